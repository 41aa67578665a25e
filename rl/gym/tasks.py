"""Reasoning Gym's families as tasks of every command that trains or measures: which seeds make which questions, and their reward.

    TASKS=reasoning_gym                  the provider: PROVIDER_KWARGS='{families: [chain_sum], tasks: 1000, held_out: 100}'
    COMBINE=reasoning_gym                the objective: pays reasoning_gym_reward as it is
    reasoning_gym_reward                 the family's own score of the answer, 0..1; what cannot be scored is worth 0

Training takes seeds from 0, held-out questions those from EVALUATE_FROM, and a training question that reads like a held-out one
is passed over. A family whose own answers do not score 1 is refused, one that pays for answers without skill is told of on stderr
(audit.py). Questions are made and answers are scored in the worker of client.Gym: the provider closes its own again, the reward
asks the one that the run opened (rl/graders.open_judge)."""

import sys
import time
from collections.abc import Iterator, Sequence
from functools import cache

from rl.errors import InputError
from rl.gym.audit import audit, refused
from rl.gym.client import UNSCORABLE, Gym, Question, Score, UnusableSeeds
from rl.gym.families import Family, parse_families
from rl.registry import register_data_provider, register_objective, register_reward
from rl.reward import Grade

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
