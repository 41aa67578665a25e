"""Reasoning Gym's families as tasks: which seeds make which questions, whether a family is fit to train on, and the reward.

    TASKS=reasoning_gym                  the provider: PROVIDER_KWARGS='{families: [chain_sum], tasks: 1000, held_out: 100}'
    COMBINE=reasoning_gym                pays reasoning_gym_reward unchanged
    reasoning_gym_reward                 the family's own score of the answer, 0 to 1; an answer that cannot be scored is worth 0

Training uses seeds from 0, held-out questions seeds from EVALUATE_FROM, and a training question with the text of a held-out one
is skipped. Every family is audited first: if its own answers do not score 1 it is refused, and if answers without skill earn
much, a warning goes to stderr. The provider opens a Gym and closes it again; the reward uses the one that the run opened."""

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from rl.errors import InputError
from rl.registry import register_data_provider, register_objective, register_reward
from rl.rewards.base import Combiner, Completion, Grade, Grader
from rl.rewards.gym.client import UNSCORABLE, Family, Gym, Question, Score, UnusableSeeds, parse_families
from rl.settings.declared import Settings

# ---- questions --------------------------------------------------------------------------------------------------------


PREDICT_FROM, EVALUATE_FROM = 500, 100_000    # first seeds of predictions and of held-out questions; training starts at 0
UNUSABLE = 0.05    # share of seeds that may make no question: basic_arithmetic divides by zero once in a million
AUDITED = range(PREDICT_FROM, PREDICT_FROM + 24)    # the seeds whose questions a family is audited on


@register_data_provider("reasoning_gym", thinking=False)
def provide(tasks_file: str, families: str | list[str], tasks: int = 1000,
            held_out: int = 100) -> tuple[list[Question], frozenset[str]]:
    """`tasks` questions of each family to train on and `held_out` others; families: text as in FAMILIES, or a list of such."""
    problems = [f"TASKS_FILE={tasks_file}: the questions are generated, not read; leave TASKS_FILE out"] if tasks_file else []
    for name, count, least in (("tasks", tasks, 1), ("held_out", held_out, 0)):
        if not isinstance(count, int) or isinstance(count, bool) or not least <= count <= EVALUATE_FROM:
            problems.append(f"{name}={count!r} should be a whole number from {least} to {EVALUATE_FROM}")
    if not isinstance(families, str) and not (isinstance(families, list) and all(isinstance(one, str) for one in families)):
        problems.append(f"families={families!r} should be text, or a list of texts such as [chain_sum, 'gcd:max_value=100']")
    if problems:
        raise InputError(f"PROVIDER_KWARGS of reasoning_gym: {'; '.join(problems)}")
    train, unseen = draw_questions(families if isinstance(families, str) else ",".join(families), tasks, held_out)
    return [*train, *unseen], frozenset(question.name for question in unseen)


@cache    # a command asks once for each split
def draw_questions(families: str, tasks: int, held_out: int) -> tuple[tuple[Question, ...], tuple[Question, ...]]:
    """(questions to train on, held-out ones) of all families together; InputError names families that cannot be used."""
    train, unseen = [], []
    with Gym() as gym:
        parsed = parse_families(families, gym)
        check_families(gym, parsed)
        for family in parsed:
            print(f"{family.text}: making {tasks} training questions and {held_out} held-out ones", file=sys.stderr, flush=True)
            held_out_ones = make_questions(gym, family, range(EVALUATE_FROM, EVALUATE_FROM + held_out))
            train += training_questions(gym, family, tasks, held_out_ones)
            unseen += held_out_ones
    return tuple(train), tuple(unseen)


def check_families(gym: Gym, families: Sequence[Family]) -> None:
    """InputError naming all families whose own answers are wrong; a warning on stderr for each that can be farmed."""
    audits = [audit(gym, family, AUDITED) for family in families]
    if refusals := [found.refusal for found in audits if found.refusal]:
        raise InputError(f"families that cannot be used: {'; '.join(refusals)}. Leave them out")
    for found in audits:
        if found.farmable:
            print(f"warning: {found.problems[-1]}, without any skill: the reward can rise without anything being learnt",
                  file=sys.stderr, flush=True)


def training_questions(gym: Gym, family: Family, count: int, unseen: Sequence[Question],
                       reserved: range = range(0)) -> list[Question]:
    """The first `count` questions in seed order whose text is in none of `unseen`; seeds in `reserved` are skipped.

    InputError if there are too few below EVALUATE_FROM."""
    taken, unseen_texts = [], {question.text for question in unseen}
    for seeds in _chunks([seed for seed in range(EVALUATE_FROM) if seed not in reserved], count):
        taken += [question for question in make_questions(gym, family, seeds) if question.text not in unseen_texts]
        if len(taken) >= count:
            return taken[:count]
    raise InputError(f"{family.text}: only {len(taken)} of its questions below seed {EVALUATE_FROM} differ from the held-out "
                     f"ones, and {count} are needed for training: ask for fewer, or leave this family out")


def _chunks(seeds: list[int], size: int) -> Iterator[list[int]]:
    return (seeds[start:start + size] for start in range(0, len(seeds), size))


def make_questions(gym: Gym, family: Family, seeds: Sequence[int]) -> list[Question]:
    """The questions of those seeds that make one; UnusableSeeds if more than UNUSABLE of them do not."""
    try:
        return gym.questions(family, seeds)
    except UnusableSeeds as error:
        if len(error.seeds) > len(seeds) * UNUSABLE:
            raise
        print(f"{family.text}: left out {error}", file=sys.stderr, flush=True)
        return error.questions


# ---- the audit of a family --------------------------------------------------------------------------------------------


# The last three because puzzle24 does not check which numbers are used, and some scorers run the answer with the right one in
# scope.
FIXED_ANSWERS = ("", "banana", "0", "1", "2", "12345678", "True", "False", "Yes", "No", "None",
                 "1*1*4*6", "entry['answer']", "entry['metadata']['solutions'][0]")
LINES_COPIED = 40
# An answer without skill that is right on a fifth of the questions is, if it is tried at all, right in 5 of 6 groups of 8, so
# GRPO finds it. And a quarter of the reward for nothing is more than most models earn honestly at the start.
FARMED_STRICT, FARMED_RAW = 0.20, 0.25


class Audit(NamedTuple):
    """How a family does as a task, measured on some of its questions."""

    gold: float                 # share of the questions on which the family's own answer scores 1
    floor: float                # mean score of the best answering policy that needs no skill
    floor_strict: float         # share of the questions on which that policy scores 1
    policy: str                 # its name
    farmable: bool              # whether that is so much that the reward could rise without anything being learnt
    problems: tuple[str, ...]   # these and others, in words
    refusal: str = ""           # why the family cannot be used at all, "" if it can


def audit(gym: Gym, family: Family, seeds: Sequence[int]) -> Audit:
    """Audit a family on these seeds' questions: score its own answers, and answers that need no skill."""
    try:
        questions, problems = gym.questions(family, seeds), []
    except UnusableSeeds as error:
        questions, problems = error.questions, [str(error)]
    if not questions:
        return Audit(gold=0.0, floor=0.0, floor_strict=0.0, policy="", farmable=False, problems=tuple(problems),
                     refusal=problems[0])
    own_scores = gym.score_texts([(question, (question.answer or "").strip()) for question in questions])
    wrong = [question for (question, _), score in own_scores.items() if question.answer is None or score.raw < 1]
    # If many answers are right, the family gives the first that it finds, and anything if it finds none.
    unsound = [question for question in wrong if question.answer is None or not question.example]
    policies = _policies(questions)
    scores = gym.score_texts([pair for answers in policies.values() for pair in zip(questions, answers, strict=True)])
    earned = {name: [scores[pair].raw for pair in zip(questions, answers, strict=True)] for name, answers in policies.items()}
    policy, floor, strict = max(((name, _mean(raws), _mean(raw >= 1 for raw in raws)) for name, raws in earned.items()),
                                key=lambda row: max(row[1] / FARMED_RAW, row[2] / FARMED_STRICT))
    farmable = strict >= FARMED_STRICT or floor >= FARMED_RAW
    problems += [_gold_problem(wrong, questions)] if wrong else []
    problems += [f"{family.text}: {problem}" for problem in _scorer_problems(scores)]
    problems += [f"{family.text}: {policy} earns {floor:.2f} and is right on {strict:.0%} of the questions"] if farmable else []
    return Audit(gold=1 - len(wrong) / len(questions), floor=floor, floor_strict=strict, policy=policy, farmable=farmable,
                 problems=tuple(problems), refusal=_gold_problem(unsound, questions) if unsound else "")


def _gold_problem(wrong, questions):
    first = wrong[0]
    example = "has no answer of its own" if first.answer is None else f"answers {first.answer[:80]!r} itself"
    share = f"{len(wrong)} of {len(questions)} questions"
    return f"{first.family.text}: its own answers do not score 1 on {share}: {first.name} {example}"


def _scorer_problems(scores):
    """Problems of the scorer that show in the scores of answers without skill."""
    if any(score.ran_code for (_, text), score in scores.items() if text == "banana"):
        yield "its scorer runs the answer as code"
    if failed := Counter(score.failed for score in scores.values() if score.failed):
        counts = ", ".join(f"{why} ({count})" for why, count in sorted(failed.items()))
        yield f"some of {len(scores)} answers without skill could not be scored: {counts}"


def _policies(questions):
    """Name -> answers to the questions without any skill: a constant, or something copied out of the question."""
    copies = [_copies(question.text) for question in questions]
    return ({f"always {answer!r}": [answer] * len(questions) for answer in FIXED_ANSWERS}
            | {name: [copied.get(name, "") for copied in copies] for some in copies for name in some})


def _copies(text):
    """Name -> answer copied out of a question: each line, the last one, the text after the last colon."""
    lines = [re.sub(r"^[\s.*•-]*(\d+[.):])?\s*", "", line).strip() for line in text.splitlines() if line.strip()]
    copies = {f"line {number}": line for number, line in enumerate(lines[:LINES_COPIED], 1)}
    return copies | {"the last line": lines[-1], "the text behind the last colon": text.rpartition(":")[2].strip()}


def _mean(values):
    values = list(values)
    return sum(values) / len(values)


# ---- the reward -------------------------------------------------------------------------------------------------------


GYM_VERDICTS = ("right", "partial", "wrong", UNSCORABLE)


@register_reward("reasoning_gym_reward", reads=("score_seconds",))
class GymGrader(Grader):
    """Grades answers with the family's score as the reward; strict and lenient scores are recorded beside it."""

    needs = "family"

    def __init__(self, gym: Gym):
        self._gym = gym

    @classmethod
    def open_judge(cls, settings: Settings) -> Gym:
        """The worker that scores."""
        return Gym(settings.proof.score_seconds)

    @classmethod
    def for_run(cls, judge: Gym, tasks: Sequence[Question], settings: Settings, case_shift: int = 0) -> "GymGrader":
        """The same grader for all tasks; questions have no other cases."""
        return cls(judge)

    def grade(self, completions: Sequence[Completion]) -> list[Grade]:
        """One Grade for each answer, in order; verdicts are GYM_VERDICTS."""
        start = time.monotonic()
        scores = self._gym.score([(one.task, one.text) for one in completions])
        each = (time.monotonic() - start) / max(1, len(completions))
        return [_grade(one.text.strip(), score, each) for one, score in zip(completions, scores, strict=True)]


def _grade(answer: str, score: Score, wall_s: float) -> Grade:
    verdict = UNSCORABLE if score.failed else "right" if score.strict else "partial" if score.raw > 0 else "wrong"
    return Grade(code=answer, verdict=verdict, correct=score.strict, reward=score.raw, detail=score.failed, wall_s=wall_s,
                 scores={"strict": float(score.strict), "lenient": float(score.lenient)})


@register_objective("reasoning_gym")
class FamilyScore(Combiner):
    """Pays the family's score unchanged."""

    unchanged = True

    def reward_names(self) -> tuple[str, ...]:
        """The one reward that scores by family."""
        return ("reasoning_gym_reward",)

    def combine_rewards(self, scores: dict[str, list[float]]) -> list[float]:
        """Its numbers, unchanged."""
        return scores["reasoning_gym_reward"]
