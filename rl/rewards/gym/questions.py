"""Reasoning Gym's families as tasks: which seeds make which questions, whether a family is fit to train on, and its reward.

    TASKS=reasoning_gym                  the provider: PROVIDER_KWARGS='{families: [chain_sum], tasks: 1000, held_out: 100}'
    COMBINE=reasoning_gym                pays reasoning_gym_reward unchanged
    reasoning_gym_reward                 the family's own score of the answer, 0 to 1; an answer that cannot be scored is worth 0

Training takes seeds from 0, held-out questions those from EVALUATE_FROM, and a training question that reads like a held-out one
is skipped. A family is audited first: one whose own answers do not score 1 is refused, one that pays for answers without skill
is reported on stderr. The provider closes the Gym that it opens; the reward asks the one that the run opened
(rl/rewards/setup.py)."""

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from rl.errors import InputError
from rl.registry import register_data_provider, register_objective, register_reward
from rl.rewards.base import Grade
from rl.rewards.gym.client import UNSCORABLE, Family, Gym, Question, Score, UnusableSeeds, parse_families

# ---- the audit of a family --------------------------------------------------------------------------------------------


# The last three because puzzle24 does not look which numbers are used, and some scorers run the answer beside the right one.
FIXED_ANSWERS = ("", "banana", "0", "1", "2", "12345678", "True", "False", "Yes", "No", "None",
                 "1*1*4*6", "entry['answer']", "entry['metadata']['solutions'][0]")
LINES_COPIED = 40
# An answer without skill that is right on a fifth of the questions is, if it is tried at all, right in 5 groups of 6 at 8
# samples, so GRPO finds it.  And a quarter of the reward for nothing is more than most models earn honestly at the start.
FARMED_STRICT, FARMED_RAW = 0.20, 0.25


class Audit(NamedTuple):
    """What is wrong with a family as a task, found on some of its questions."""

    gold: float                 # share of the questions on which the family's own answer scores 1
    floor: float                # mean score of the best answer policy that needs no skill
    floor_strict: float         # share of the questions on which that policy scores 1
    policy: str                 # which one
    farmable: bool              # that is too much: a reward curve would rise without anything being learnt
    problems: tuple[str, ...]   # the same and more, in words
    refusal: str = ""           # why the family cannot be used at all


def audit(gym: Gym, family: Family, seeds: Sequence[int]) -> Audit:
    """The family judged on these seeds' questions: its own answers, and those that anybody could give."""
    try:
        questions, problems = gym.questions(family, seeds), []
    except UnusableSeeds as error:
        questions, problems = error.questions, [str(error)]
    if not questions:
        return Audit(0.0, 0.0, 0.0, "", False, tuple(problems), problems[0])
    golds = gym.rows([(question, (question.answer or "").strip()) for question in questions])
    wrong = [question for question, text in golds if question.answer is None or golds[question, text][0] < 1]
    # Where many answers are right the family gives the first that it finds, and where it finds none, anything.
    unsound = [question for question in wrong if question.answer is None or not question.example]
    policies = _policies(questions)
    rows = gym.rows([pair for answers in policies.values() for pair in zip(questions, answers, strict=True)])
    earned = {name: [rows[pair][0] for pair in zip(questions, answers, strict=True)] for name, answers in policies.items()}
    name, floor, strict = max(((name, _mean(raws), _mean(raw >= 1 for raw in raws)) for name, raws in earned.items()),
                              key=lambda row: max(row[1] / FARMED_RAW, row[2] / FARMED_STRICT))
    farmable = strict >= FARMED_STRICT or floor >= FARMED_RAW
    problems += [_gold_problem(wrong, questions)] if wrong else []
    problems += [f"{family.text}: {said}" for said in _said_of(rows)]
    problems += [f"{family.text}: {name} earns {floor:.2f} and is right on {strict:.0%} of the questions"] if farmable else []
    return Audit(1 - len(wrong) / len(questions), floor, strict, name, farmable, tuple(problems),
                 _gold_problem(unsound, questions) if unsound else "")


def refused(found: Audit) -> str:
    """Why the family cannot be used at all, with an example; "" where it can."""
    return found.refusal


def _gold_problem(wrong, questions):
    first = wrong[0]
    lacks = "has no answer of its own" if first.answer is None else f"answers {first.answer[:80]!r} itself"
    share = f"{len(wrong)} of {len(questions)} questions"
    return f"{first.family.text}: its own answers do not score 1 on {share}: {first.name} {lacks}"


def _said_of(rows):
    """What the scoring of skill-free answers says of the scorer."""
    if any(ran for (_, text), (_, _, ran) in rows.items() if text == "banana"):
        yield "its scorer runs the answer as code"
    if failed := Counter(why for _, why, _ in rows.values() if why):
        said = ", ".join(f"{why} ({count})" for why, count in sorted(failed.items()))
        yield f"of {len(rows)} answers without skill some could not be scored: {said}"


def _policies(questions):
    """Name -> the answers to the questions of one who has no skill: always the same, or copied out of the question."""
    copies = [_copies(question.text) for question in questions]
    return ({f"always {answer!r}": [answer] * len(questions) for answer in FIXED_ANSWERS}
            | {name: [copied.get(name, "") for copied in copies] for some in copies for name in some})


def _copies(text):
    """Name -> answer that is copied out of a question: each line, the last one, what stands behind the last colon."""
    lines = [re.sub(r"^[\s.*•-]*(\d+[.):])?\s*", "", line).strip() for line in text.splitlines() if line.strip()]
    found = {f"line {number}": line for number, line in enumerate(lines[:LINES_COPIED], 1)}
    return found | {"the last line": lines[-1], "the text behind the last colon": text.rpartition(":")[2].strip()}


def _mean(values):
    values = list(values)
    return sum(values) / len(values)


# ---- tasks and their reward -------------------------------------------------------------------------------------------


PREDICT_FROM, EVALUATE_FROM = 500, 100_000    # first seeds of what is predicted on and of what is held out; training's is 0
UNUSABLE = 0.05    # share of seeds that may make no question: basic_arithmetic divides by zero once in a million
AUDITED = range(PREDICT_FROM, PREDICT_FROM + 24)    # the seeds of questions that a family is judged on
GYM_VERDICTS = ("right", "partial", "wrong", UNSCORABLE)


# ---- questions -------------------------------------------------------------------------------------------------------

@register_data_provider("reasoning_gym")
def provide(tasks_file: str, families: str | list[str], tasks: int = 1000,
            held_out: int = 100) -> tuple[list[Question], frozenset[str]]:
    """Of each family so many questions to train on and so many that are held out; families as FAMILIES has them, or a list."""
    problems = [f"TASKS_FILE={tasks_file}: the questions are made, not read; leave TASKS_FILE out"] if tasks_file else []
    for name, count, least in (("tasks", tasks, 1), ("held_out", held_out, 0)):
        if not isinstance(count, int) or isinstance(count, bool) or not least <= count <= EVALUATE_FROM:
            problems.append(f"{name}={count!r} should be a whole number from {least} to {EVALUATE_FROM}")
    if not isinstance(families, str) and not (isinstance(families, list) and all(isinstance(one, str) for one in families)):
        problems.append(f"families={families!r} should be text, or a list of texts such as [chain_sum, 'gcd:max_value=100']")
    if problems:
        raise InputError(f"PROVIDER_KWARGS of reasoning_gym: {'; '.join(problems)}")
    train, unseen = drawn(families if isinstance(families, str) else ",".join(families), tasks, held_out)
    return [*train, *unseen], frozenset(question.name for question in unseen)


@cache    # a command asks once for each split
def drawn(families: str, tasks: int, held_out: int) -> tuple[tuple[Question, ...], tuple[Question, ...]]:
    """(questions to train on, held-out ones) of all these families; InputError names those that cannot be used."""
    train, unseen = [], []
    with Gym() as gym:
        found = parse_families(families, gym)
        judge(gym, found)
        for family in found:
            print(f"{family.text}: making {tasks} questions to train on, {held_out} held-out ones", file=sys.stderr, flush=True)
            measured = usable(gym, family, range(EVALUATE_FROM, EVALUATE_FROM + held_out))
            train += training_questions(gym, family, tasks, measured)
            unseen += measured
    return tuple(train), tuple(unseen)


def judge(gym: Gym, families: Sequence[Family]) -> None:
    """InputError that names all families whose own answers are not right; those that can be farmed are told of on stderr."""
    audits = [audit(gym, family, AUDITED) for family in families]
    if wrong := [why for found in audits if (why := refused(found))]:
        raise InputError(f"families that cannot be used: {'; '.join(wrong)}. Leave them out")
    for found in audits:
        if found.farmable:
            print(f"warning: {found.problems[-1]}, without any skill: its reward can rise and nothing be learnt", file=sys.stderr,
                  flush=True)


def training_questions(gym: Gym, family: Family, count: int, unseen: Sequence[Question],
                       kept_back: range = range(0)) -> list[Question]:
    """The first `count` questions, in the order of their seeds, that read like none of `unseen`; `kept_back` are no seeds of
    training. InputError where there are fewer below the held-out ones."""
    taken, texts = [], {question.text for question in unseen}
    for seeds in chunks([seed for seed in range(EVALUATE_FROM) if seed not in kept_back], count):
        taken += [question for question in usable(gym, family, seeds) if question.text not in texts]
        if len(taken) >= count:
            return taken[:count]
    raise InputError(f"{family.text}: of its questions below seed {EVALUATE_FROM} only {len(taken)} are no held-out question "
                     f"over again, and {count} are needed to train on: ask for fewer, or leave this family out")


def chunks(seeds: list[int], size: int) -> Iterator[list[int]]:
    """The seeds in order, so many at a time."""
    return (seeds[start:start + size] for start in range(0, len(seeds), size))


def usable(gym: Gym, family: Family, seeds: Sequence[int]) -> list[Question]:
    """The questions of those seeds that make one; InputError where more than a twentieth do not."""
    try:
        return gym.questions(family, seeds)
    except UnusableSeeds as error:
        if len(error.seeds) > len(seeds) * UNUSABLE:
            raise
        print(f"{family.text}: left out {error}", file=sys.stderr, flush=True)
        return error.questions


# ---- what an answer is worth -----------------------------------------------------------------------------------------

@register_reward("reasoning_gym_reward")
class GymGrader:
    """Grades answers with the family's score as the reward; strict and lenient scores stand beside it."""

    def __init__(self, gym: Gym):
        self._gym = gym

    def grade(self, pairs: Sequence[tuple[Question, str]]) -> list[Grade]:
        """One Grade for each (question, answer), in order; verdicts are GYM_VERDICTS."""
        start = time.monotonic()
        scores = self._gym.score(pairs)
        each = (time.monotonic() - start) / max(1, len(pairs))
        return [_grade(text.strip(), score, each) for (_, text), score in zip(pairs, scores, strict=True)]


def _grade(answer: str, score: Score, wall_s: float) -> Grade:
    verdict = UNSCORABLE if score.failed else "right" if score.strict else "partial" if score.raw > 0 else "wrong"
    return Grade(code=answer, verdict=verdict, correct=score.strict, reward=score.raw, style=None, depth=None, calls=None,
                 pure=None, idle=None, detail=score.failed, flags=(), wall_s=wall_s,
                 scores={"strict": float(score.strict), "lenient": float(score.lenient)})


@register_objective("reasoning_gym")
class FamilysScore:
    """The family's score, as it is."""

    def reward_names(self) -> tuple[str, ...]:
        """The families' own."""
        return ("reasoning_gym_reward",)

    def combine_rewards(self, scores: dict[str, list[float]]) -> list[float]:
        """What it pays."""
        return scores["reasoning_gym_reward"]
