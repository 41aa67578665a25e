"""Intervals and paired comparisons of pass rates, rewards and styles, in plain NumPy, and how they are printed.

The samples of a task resemble each other, so any figure over several tasks is resampled by task, never by sample: treating
320 samples of 40 tasks as 320 independent draws would give an interval that is far too narrow. Wilson's interval is for
independent trials only, such as one greedy answer per task. Resampling is seeded: equal numbers give equal intervals.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 10_000
LEVEL = 0.95
_Z = 1.959963984540054    # standard normal quantile at 1 - (1 - LEVEL) / 2
_BLOCK = 500              # resamples drawn at once, which bounds the memory for any number of tasks


class Interval(NamedTuple):
    value: float
    low: float
    high: float


UNKNOWN = Interval(math.nan, math.nan, math.nan)


class Gain(NamedTuple):
    """after - before with its interval; p is the share of the resampled gains that are zero or below."""
    value: float
    low: float
    high: float
    p: float


def wilson(passed: int, total: int) -> Interval:
    """95 % Wilson interval of a share of independent trials; (0, 1) without any trial."""
    if not 0 <= passed <= total:
        raise ValueError(f"passed = {passed} of total = {total}: passed must lie between 0 and total")
    if total == 0:
        return Interval(math.nan, 0.0, 1.0)
    share, spread = passed / total, _Z * _Z / total
    centre = (share + spread / 2) / (1 + spread)
    half = _Z * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    # rounding would leave 1e-17 where the exact bound is 0 or 1
    return Interval(share, 0.0 if passed == 0 else centre - half, 1.0 if passed == total else centre + half)


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """Unbiased estimate of the chance that at least one of k samples passes, given that `passed` of `samples` did."""
    if not (0 <= passed <= samples and 1 <= k <= samples):
        raise ValueError(f"pass@{k} of {passed} passed among {samples} samples: needs 0 <= passed <= samples and "
                         f"1 <= k <= samples; draw at least {k} samples (N_SAMPLES)")
    total = math.comb(samples, k)
    return (total - math.comb(samples - passed, k)) / total    # integers up to the division, so exact at any size


def bootstrap(totals: Sequence[float], counts: Sequence[float] | None = None, seed: int = 0) -> Interval:
    """sum(totals) / sum(counts) over tasks with its percentile interval; without counts, the mean of the totals.

    One entry per task: the sum of its samples' values, and the number of these samples, which may be 0.
    """
    totals, counts = _columns(totals, counts)
    draws = _resampled(np.stack([totals, counts]), seed)
    return Interval(_ratio(totals.sum(), counts.sum()), *_percentiles(_ratio(draws[0], draws[1])))


def pass_rate(passed: Sequence[int], counts: Sequence[int]) -> Interval:
    """`bootstrap` of passes per task; where all samples pass or none does, Wilson's interval with one trial per task."""
    rate = bootstrap(passed, counts)
    if rate.value not in (0, 1):
        return rate
    tasks = sum(count > 0 for count in counts)    # resampling equal tasks would give an interval of zero width
    return wilson(tasks * int(rate.value), tasks)


def paired_bootstrap(before: Sequence[float], after: Sequence[float], before_counts: Sequence[float] | None = None,
                     after_counts: Sequence[float] | None = None, seed: int = 0) -> Gain:
    """Gain of after over before on the same tasks in the same order; each resample draws the same tasks on both sides.

    Entries as for `bootstrap`. A gain of exactly zero counts as no gain, so equal sides give p = 1.
    """
    if len(before) != len(after):
        raise ValueError(f"{len(before)} tasks before and {len(after)} after: a paired comparison needs the same tasks")
    sides = [*_columns(before, before_counts), *_columns(after, after_counts)]
    draws = _resampled(np.stack(sides), seed)
    gains = _ratio(draws[2], draws[3]) - _ratio(draws[0], draws[1])
    value = _ratio(sides[2].sum(), sides[3].sum()) - _ratio(sides[0].sum(), sides[1].sum())
    known = gains[np.isfinite(gains)]
    return Gain(float(value), *_percentiles(gains), float((known <= 0).mean()) if len(known) else math.nan)


def _columns(totals, counts) -> tuple[np.ndarray, np.ndarray]:
    totals = np.asarray(totals, np.float64)
    counts = np.ones_like(totals) if counts is None else np.asarray(counts, np.float64)
    if totals.ndim != 1 or totals.shape != counts.shape or not len(totals):
        raise ValueError(f"totals of shape {totals.shape} and counts of shape {counts.shape}: "
                         "give one of each per task, and at least one task")
    if not (np.isfinite(totals).all() and np.isfinite(counts).all()):
        raise ValueError("totals and counts must be finite: leave out samples without a value before summing")
    return totals, counts


def _resampled(columns: np.ndarray, seed: int) -> np.ndarray:
    """(columns, RESAMPLES): sums over tasks drawn with replacement, the same tasks for every column."""
    random, tasks = np.random.default_rng(seed), columns.shape[1]
    blocks = [columns[:, random.integers(0, tasks, (_BLOCK, tasks))].sum(-1) for _ in range(RESAMPLES // _BLOCK)]
    return np.concatenate(blocks, axis=1)


def _ratio(total, count):
    """total / count; nan where no task of a resample has a sample that counts."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.divide(total, count)


def _percentiles(values: np.ndarray) -> tuple[float, float]:
    """The percentile interval of the resamples that have a value; (nan, nan) when none has."""
    known = values[np.isfinite(values)]
    if not len(known):
        return math.nan, math.nan
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


# ---- as text ---------------------------------------------------------------------------------------------------------

def number_text(number: float | None, digits: int = 3, sign: str = "") -> str:
    """The number with that many decimals, `sign` "+" to print a plus too; a dash for None and nan."""
    return "-" if number is None or math.isnan(number) else f"{number:{sign}.{digits}f}"


def gain_text(gain: Gain) -> str:
    """A gain and its interval."""
    value, low, high = (number_text(number, sign="+") for number in gain[:3])
    return f"{value} [{low}, {high}]"
