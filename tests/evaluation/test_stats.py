"""Intervals and paired comparisons against closed forms and slow loops that share no code with them."""

import itertools
import math
import random

import numpy as np
import pytest

from rl.evaluation.stats import (
    RESAMPLES,
    Gain,
    bootstrap,
    gain_text,
    number_text,
    paired_bootstrap,
    pass_at_k,
    pass_rate,
    wilson,
)


@pytest.mark.parametrize(("passed", "total", "low", "high"), [
    (0, 10, 0.0, 0.27753279986288926),         # z^2 / (n + z^2)
    (10, 10, 0.7224672001371107, 1.0),
    (5, 10, 0.2365930905125640, 0.7634069094874360),
    (1, 1, 0.2065493143772375, 1.0),
])
def test_wilson_against_its_closed_form(passed, total, low, high):
    """The bounds solve (p - share)^2 = z^2 p (1 - p) / n; these numbers were computed from that equation."""
    interval = wilson(passed, total)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-12)


def test_wilson_bounds_solve_their_equation():
    """For every count of 37 the bounds satisfy the score equation and enclose the share, within [0, 1]."""
    z2 = 1.959963984540054**2
    for passed in range(38):
        value, low, high = wilson(passed, 37)
        assert 0 <= low <= value <= high <= 1
        for bound in (low, high):
            assert (bound - value) ** 2 == pytest.approx(z2 * bound * (1 - bound) / 37, abs=1e-12)


def test_wilson_of_nothing_and_of_nonsense():
    """Without a trial the interval is (0, 1); impossible counts are refused with their values."""
    assert wilson(0, 0)[1:] == (0.0, 1.0)
    with pytest.raises(ValueError, match="passed = 3 of total = 2"):
        wilson(3, 2)


@pytest.mark.parametrize("samples", [1, 2, 5, 8])
def test_pass_at_k_against_every_draw(samples):
    """pass@k is the share of the k-subsets of the samples that contain a pass, counted one by one."""
    for passed in range(samples + 1):
        outcomes = [True] * passed + [False] * (samples - passed)
        for k in range(1, samples + 1):
            draws = [any(draw) for draw in itertools.combinations(outcomes, k)]
            assert pass_at_k(samples, passed, k) == pytest.approx(sum(draws) / len(draws), abs=1e-15)


def test_pass_at_k_at_sizes_where_factorials_overflow():
    """At 100,000 samples the value is still precise; the oracle sums the complement's ratios as logarithms."""
    n, c, k = 100_000, 3, 50
    log_miss = sum(math.log1p(-k / i) for i in range(n - c + 1, n + 1))
    assert pass_at_k(n, c, k) == pytest.approx(-math.expm1(log_miss), rel=1e-9)
    assert pass_at_k(n, 0, k) == 0.0 and pass_at_k(n, n, k) == 1.0


@pytest.mark.parametrize(("n", "c", "k"), [(1, 0, 10), (8, 9, 1), (8, -1, 1), (8, 1, 0)])
def test_pass_at_k_refuses_what_has_no_unbiased_estimate(n, c, k):
    """pass@10 from one sample and impossible counts are errors, not numbers."""
    with pytest.raises(ValueError, match=f"pass@{k}"):
        pass_at_k(n, c, k)


def slow_percentile(values, share):
    """Linear interpolation between order statistics, by hand."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def slow_resamples(totals, counts, seed):
    """Another generator and plain loops: the same distribution, other draws."""
    rng, n, out = random.Random(seed), len(totals), []
    for _ in range(4_000):
        picked = [rng.randrange(n) for _ in range(n)]
        out.append(sum(totals[i] for i in picked) / sum(counts[i] for i in picked))
    return out


def test_bootstrap_against_a_slow_loop():
    """The percentile bounds agree with those of a plain loop, within the precision of 4,000 draws."""
    rng = random.Random(5)
    counts = [rng.randint(4, 8) for _ in range(20)]
    totals = [rng.randint(0, count) for count in counts]
    got = bootstrap(totals, counts)
    slow = slow_resamples(totals, counts, seed=9)

    assert got.value == sum(totals) / sum(counts)
    assert got.low == pytest.approx(slow_percentile(slow, 0.025), abs=0.02)
    assert got.high == pytest.approx(slow_percentile(slow, 0.975), abs=0.02)


def test_bootstrap_resamples_tasks_not_samples():
    """With every task all correct or all wrong, the interval is that of 40 tasks, not of 320 samples."""
    clustered = bootstrap([8] * 20 + [0] * 20, [8] * 40)
    spread = bootstrap([4] * 40, [8] * 40)
    by_sample = wilson(160, 320)

    assert clustered.high - clustered.low > 2 * (by_sample.high - by_sample.low)
    assert clustered.high - clustered.low == pytest.approx(2 * 1.96 * 0.5 / math.sqrt(40), abs=0.03)
    assert spread.low == spread.high == 0.5
    assert bootstrap([1, 2, 8], [2, 4, 16])[:] == (0.5, 0.5, 0.5), "tasks with more samples weigh more"


def test_two_tasks_have_the_exact_distribution():
    """A resample of two tasks worth 0 and 1 is 0, 1/2 or 1 with chances 1/4, 1/2, 1/4, which p must show."""
    gain = paired_bootstrap([0.0, 0.0], [0.0, 1.0])
    assert gain.value == 0.5
    assert (gain.low, gain.high) == (0.0, 1.0)
    assert gain.p == pytest.approx(0.25, abs=4 * math.sqrt(0.25 * 0.75 / RESAMPLES))


def test_pairing_uses_the_same_tasks_on_both_sides():
    """A gain of 0.1 on each task has no spread, however much the tasks differ from each other."""
    before = np.linspace(0, 0.9, 30)
    gain = paired_bootstrap(before, before + 0.1)
    assert (gain.value, gain.low, gain.high) == pytest.approx((0.1, 0.1, 0.1), abs=1e-12)
    assert gain.p == 0.0


def test_equal_sides_are_no_gain():
    """p is 1, since a gain of exactly zero counts as none."""
    assert paired_bootstrap([0.2, 0.4], [0.2, 0.4]) == (0.0, 0.0, 0.0, 1.0)


def test_paired_bootstrap_against_a_slow_loop():
    """Bounds and p agree with plain loops that draw other tasks."""
    rng = random.Random(3)
    before = [rng.random() for _ in range(25)]
    after = [value + rng.gauss(0.05, 0.2) for value in before]
    gain = paired_bootstrap(before, after)
    slow = slow_resamples([b - a for a, b in zip(before, after, strict=True)], [1] * 25, seed=1)

    assert gain.low == pytest.approx(slow_percentile(slow, 0.025), abs=0.01)
    assert gain.high == pytest.approx(slow_percentile(slow, 0.975), abs=0.01)
    assert gain.p == pytest.approx(sum(draw <= 0 for draw in slow) / len(slow), abs=0.03)


def test_tasks_without_a_value_count_for_nothing():
    """As for the style of correct samples: a task without any is ignored, and if no task has one there is no value."""
    assert bootstrap([2.0, 0.0], [4, 0]).value == 0.5
    nothing = bootstrap([0.0, 0.0], [0, 0])
    assert all(math.isnan(part) for part in nothing)
    assert math.isnan(paired_bootstrap([0.0], [1.0], [0], [2]).p)


def test_a_seed_repeats_itself_and_another_differs():
    """Equal numbers and seeds give equal intervals."""
    totals = [random.Random(1).random() for _ in range(7)]
    assert bootstrap(totals, seed=4) == bootstrap(totals, seed=4)
    rng = np.random.default_rng(0)
    wide = rng.normal(size=31)
    assert bootstrap(wide, seed=4) != bootstrap(wide, seed=5)


def test_bad_columns_are_refused():
    """No tasks, unequal lengths and values that are not finite are errors."""
    with pytest.raises(ValueError, match="at least one task"):
        bootstrap([])
    with pytest.raises(ValueError, match="1 tasks before and 2 after"):
        paired_bootstrap([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="finite"):
        bootstrap([float("nan"), 1.0])


def test_a_pass_rate_of_0_or_1_still_has_an_interval():
    """Resampling equal tasks has no spread, so each task that has samples is one trial; other rates are resampled."""
    assert pass_rate([0, 0, 0], [8, 8, 0]) == wilson(0, 2) and pass_rate([8, 4], [8, 4]) == wilson(2, 2)
    assert pass_rate([8, 0], [8, 8]) == bootstrap([8, 0], [8, 8])


def test_numbers_without_a_value_are_dashes():
    """None and nan alike, alone and in a gain."""
    assert [number_text(number, 1, "+") for number in (0.26, -1.0, None, math.nan)] == ["+0.3", "-1.0", "-", "-"]
    assert gain_text(Gain(0.25, -0.125, 1.0, 0.1)) == "+0.250 [-0.125, +1.000]"
    assert gain_text(Gain(math.nan, math.nan, math.nan, math.nan)) == "- [-, -]"
