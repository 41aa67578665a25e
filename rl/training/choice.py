"""TASK_ORDER=signal: train on the tasks whose next group is most likely to hold right and wrong samples.

Each task has a Beta posterior of its pass rate p, from a uniform prior and the samples of its groups so far; at every new group
older samples count half, since the model changes. A group of G samples is mixed with probability

    P(mixed) = 1 - E[p^G] - E[(1 - p)^G],    E[p^G] = prod over i < G of (a + i) / (a + b + i)

A task that was never drawn has 1 - 2 / (G + 1), so all of them come up before one that was all right or all wrong comes again.
A task rests for REST steps after it was drawn, as far as there are enough others, and one place in FLOOR goes to the task that
has waited longest, so that none is forgotten. Similar: SPEED-RL (arXiv 2506.09016), online difficulty filtering (2504.03380).

The records are part of the run's cursor: a resumed run chooses as if it had never stopped."""

import random
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from rl.rewards.base import GradedGroup

KEPT = 0.5    # what a sample still counts once its task was drawn again
REST = 4      # steps
FLOOR = 8     # of so many places one, on average, is for the task that has waited longest


class Record(NamedTuple):
    """What a run knows of one task: right and wrong samples, decayed, and the step after which it was drawn last; 0: never."""

    right: float = 0.0
    wrong: float = 0.0
    drawn: int = 0


def p_mixed(record: Record, group: int) -> float:
    """The probability that the task's next group has right and wrong samples."""
    a, b = 1 + record.right, 1 + record.wrong
    return 1 - sum(prod((x + i) / (a + b + i) for i in range(group)) for x in (a, b))


def choose(n: int, step: int, records: Sequence[Record], count: int, group: int, seed: int) -> list[int]:
    """Indices, of n tasks, of the `count` to draw at `step`, no task twice; the first are the first to be sampled.

    records: one for each task, or none at the start. A smaller count gives a prefix."""
    records = records or [Record()] * n
    rng = random.Random(f"choice/{seed}/{step}")
    shuffled = rng.sample(range(n), n)    # so that equal tasks take turns
    resting = {i for i in shuffled if records[i].drawn and step - records[i].drawn < REST}
    likely = sorted(shuffled, key=lambda i: (i in resting, -p_mixed(records[i], group)))
    waiting = sorted(shuffled, key=lambda i: records[i].drawn)
    chosen: dict[int, None] = {}
    while len(chosen) < min(count, n):
        queue = waiting if rng.random() < 1 / FLOOR else likely
        chosen.setdefault(next(i for i in queue if i not in chosen))
    return [*chosen]


def recorded(records: Sequence[Record], n: int, step: int, chosen: Sequence[int],
             groups: Sequence[GradedGroup]) -> tuple[Record, ...]:
    """The records after the step that drew these tasks; a sample whose grader failed counts neither way."""
    new = list(records or [Record()] * n)
    for i, group in zip(chosen, groups, strict=True):
        right = sum(sample.correct for sample in group.samples)
        wrong = sum(sample.verdict != "internal_error" for sample in group.samples) - right
        new[i] = Record(KEPT * new[i].right + right, KEPT * new[i].wrong + wrong, step + 1)
    return tuple(new)
