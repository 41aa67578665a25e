"""Intervals and paired comparisons for pass rates, rewards and styles, with numpy alone.

Samples of one task resemble each other, so whatever spans several tasks is resampled by task, never by sample: an
interval that took 320 samples of 40 tasks for 320 independent draws would be far too narrow. Wilson's interval is for
independent trials only, such as one greedy answer a task. Resampling is seeded: equal numbers give equal intervals.
"""

from collections.abc import Sequence
from math import comb, sqrt
from typing import NamedTuple

import numpy as np

RESAMPLES = 10_000
LEVEL = 0.95
_Z = 1.959963984540054    # standard normal quantile at 1 - (1 - LEVEL) / 2
_BLOCK = 500              # resamples drawn at once: bounds the memory at any number of tasks


class Interval(NamedTuple):
    value: float
    low: float
    high: float


class Gain(NamedTuple):
    """after - before with its interval; p is the share of resampled gains that are not above zero."""
    value: float
    low: float
    high: float
    p: float


def wilson(passed: int, total: int) -> Interval:
    """95% Wilson interval for a share of independent trials; (0, 1) when nothing was run."""
    if not 0 <= passed <= total:
        raise ValueError(f"passed = {passed} of total = {total}: passed must lie between 0 and total")
    if total == 0:
        return Interval(float("nan"), 0.0, 1.0)
    share, spread = passed / total, _Z * _Z / total
    centre = (share + spread / 2) / (1 + spread)
    half = _Z * sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    # rounding leaves 1e-17 where the exact bound is 0 or 1
    return Interval(share, 0.0 if passed == 0 else centre - half, 1.0 if passed == total else centre + half)


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """Unbiased chance that at least one of k draws passes, from `passed` among `samples` drawn (no draw used twice)."""
    if not (0 <= passed <= samples and 1 <= k <= samples):
        raise ValueError(f"pass@{k} of {passed} passed among {samples} samples: needs 0 <= passed <= samples and "
                         f"1 <= k <= samples; draw at least {k} samples (N_SAMPLES)")
    total = comb(samples, k)
    return (total - comb(samples - passed, k)) / total    # whole numbers up to the division: exact at any size


def bootstrap(totals: Sequence[float], counts: Sequence[float] | None = None, seed: int = 0) -> Interval:
    """Ratio sum(totals) / sum(counts) over tasks with its percentile interval; without counts, the mean of totals.

    One entry a task: the total of its samples' values, and how many samples those were (0 where it has none).
    """
    totals, counts = _columns(totals, counts)
    draws = _resampled(np.stack([totals, counts]), seed)
    return Interval(_ratio(totals.sum(), counts.sum()), *_percentiles(_ratio(draws[0], draws[1])))


def paired_bootstrap(before: Sequence[float], after: Sequence[float], before_counts: Sequence[float] | None = None,
                     after_counts: Sequence[float] | None = None, seed: int = 0) -> Gain:
    """Gain of after over before on the same tasks in the same order: both sides see the same resampled tasks.

    Entries as for `bootstrap`. p counts gains of exactly zero against the claim, so equal sides give p = 1.
    """
    if len(before) != len(after):
        raise ValueError(f"{len(before)} tasks before and {len(after)} after: a paired comparison needs the same tasks")
    sides = [*_columns(before, before_counts), *_columns(after, after_counts)]
    draws = _resampled(np.stack(sides), seed)
    gains = _ratio(draws[2], draws[3]) - _ratio(draws[0], draws[1])
    value = _ratio(sides[2].sum(), sides[3].sum()) - _ratio(sides[0].sum(), sides[1].sum())
    known = gains[np.isfinite(gains)]
    return Gain(float(value), *_percentiles(gains), float((known <= 0).mean()) if len(known) else float("nan"))


def _columns(totals, counts) -> tuple[np.ndarray, np.ndarray]:
    totals = np.asarray(totals, np.float64)
    counts = np.ones_like(totals) if counts is None else np.asarray(counts, np.float64)
    if totals.ndim != 1 or totals.shape != counts.shape or not len(totals):
        raise ValueError(f"totals of shape {totals.shape} and counts of shape {counts.shape}: "
                         "needs one of each for every task, and at least one task")
    if not (np.isfinite(totals).all() and np.isfinite(counts).all()):
        raise ValueError("totals and counts must be finite: leave out samples without a value before adding up")
    return totals, counts


def _resampled(columns: np.ndarray, seed: int) -> np.ndarray:
    """(columns, RESAMPLES) sums over as many tasks as there are, drawn with replacement, the same for every column."""
    random, tasks = np.random.default_rng(seed), columns.shape[1]
    blocks = [columns[:, random.integers(0, tasks, (_BLOCK, tasks))].sum(-1) for _ in range(RESAMPLES // _BLOCK)]
    return np.concatenate(blocks, axis=1)


def _ratio(total, count):
    """total / count; nan where a draw holds only tasks without any sample that counts."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.divide(total, count)


def _percentiles(values: np.ndarray) -> tuple[float, float]:
    """The percentile interval of the draws that have a value; (nan, nan) when none has."""
    known = values[np.isfinite(values)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
