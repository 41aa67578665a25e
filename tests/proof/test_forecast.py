"""The rule, its limits, outcomes and tallies, against numbers worked out by hand and a slow bootstrap."""

import math
import random

import numpy as np
import pytest

from rl.evaluation.stats import Gain
from rl.proof.forecast import RULES, Forecast, Outcome, failed_condition, make_forecast, outcome_of, resolution, tally, verdict


def scores(rows):
    return np.array(rows, float)


def test_a_forecast_by_hand():
    """Four tasks of four samples: shares of right samples, of solved tasks, of tasks whose scores differ, and the mean."""
    found = make_forecast(scores([[1, 0, 0, 0], [0.5, 0.5, 0.5, 0.5], [1, 1, 1, 1], [0, 0.2, 0, 0]]))

    assert found.pass_1 == 5 / 16
    assert found.pass_k == 2 / 4
    assert found.mean == pytest.approx((1 + 2 + 4 + 0.2) / 16)
    assert found.signal == 2 / 4
    assert found.improves and found.reason == ""


@pytest.mark.parametrize("pass_1, mean, signal, named", [
    (0.0, 0.05, 1.0, "too hard"), (0.0, 0.0501, 0.25, ""), (0.9, 0.95, 1.0, "mastered"), (0.8999, 0.95, 0.25, ""),
    (0.5, 0.5, 0.2499, "no signal"), (0.0, 0.0, 0.0, "too hard"), (0.95, 0.95, 0.0, "mastered")])
def test_the_rule_at_its_limits(pass_1, mean, signal, named):
    """Above 0.05, below 0.9, at least 0.25; the first condition that fails is named with its figure."""
    why = failed_condition(pass_1, mean, signal)

    assert why.startswith(named) and bool(why) == bool(named)


def test_partial_scores_are_not_right_answers():
    """A family that only earns partial credit has pass@1 0, but a mean and a signal."""
    found = make_forecast(scores([[0.5, 0.9], [0.3, 0.3]]))

    assert (found.pass_1, found.pass_k, found.mean, found.signal) == (0.0, 0.0, 0.5, 0.5)


@pytest.mark.parametrize("bad", [[], [[]], [0.5], [[0.5, float("nan")]], [[1.1]], [[-0.1]]])
def test_bad_scores_are_rejected(bad):
    """A missing score, or one out of range, is an error."""
    with pytest.raises(ValueError, match="from 0 to 1"):
        make_forecast(bad)


def test_an_outcome_agrees_with_a_slow_bootstrap():
    """Gain, interval and p equal those of resampling tasks one by one, within the resampling error."""
    draw = random.Random(3)
    before = [float(draw.random() < 0.4) for _ in range(200)]
    after = [max(value, float(draw.random() < 0.12)) for value in before]
    found = outcome_of(before, after)

    gains = []
    for _ in range(4000):
        chosen = [draw.randrange(200) for _ in range(200)]
        gains.append(math.fsum(after[i] - before[i] for i in chosen) / 200)
    gains.sort()
    assert found.gain.value == pytest.approx((sum(after) - sum(before)) / 200)
    assert (found.gain.low, found.gain.high) == pytest.approx((gains[100], gains[3899]), abs=0.01)
    assert found.improved and found.gain.p == pytest.approx(sum(g <= 0 for g in gains) / 4000, abs=0.01)


def test_an_interval_agrees_with_the_closed_form():
    """For 200 paired differences the percentile interval is the normal one within a tenth of its width."""
    before, after = [0.0] * 200, [1.0] * 60 + [0.0] * 140
    found, deviation = outcome_of(before, after), math.sqrt(0.3 * 0.7 / 200)

    assert found.gain.low == pytest.approx(0.3 - 1.96 * deviation, abs=0.012)
    assert found.gain.high == pytest.approx(0.3 + 1.96 * deviation, abs=0.012)


def test_small_differences_are_undecided():
    """On 200 tasks six points decide; less does not, however certain its sign; the bound scales with 1 / sqrt(tasks)."""
    sure_but_small = outcome_of([0.0] * 200, [0.05] * 200)

    assert sure_but_small.improved and not sure_but_small.decided
    assert verdict(True, sure_but_small) == "undecided"
    assert outcome_of([0.0] * 200, [1.0] * 12 + [0.0] * 188).decided
    assert resolution(200) == 0.06 and resolution(50) == pytest.approx(0.12)


def test_the_absence_of_a_gain_can_be_decided():
    """No gain and an interval below six points are decided; a wider interval, or a small certain gain, is not."""
    none, even = outcome_of([0.0] * 200, [0.0] * 200), outcome_of([1.0, 0.0] * 4 + [0.0] * 192, [0.0, 1.0] * 4 + [0.0] * 192)
    for found in (none, even):
        assert found.decided and not found.improved and found.gain.high < 0.06
        assert verdict(False, found) == "held" and verdict(True, found) == "did not hold"
    assert not outcome_of([0.0] * 12, [0.0] * 12).decided, "twelve equal answers do not exclude a gain of 0.24"
    wide = outcome_of([1.0, 0.0] * 100, [0.0, 1.0] * 100)
    assert wide.gain.value == 0 and wide.gain.high > 0.06 and not wide.decided
    assert not outcome_of([0.0] * 200, [0.01] * 200).decided


def test_no_change_is_no_improvement():
    """Equal answers have p = 1; a loss is decided, and not an improvement."""
    same, worse = outcome_of([1.0, 0.0] * 50, [1.0, 0.0] * 50), outcome_of([1.0] * 100, [0.5] * 100)

    assert same.gain.p == 1 and not same.improved
    assert worse.decided and not worse.improved
    assert verdict(False, worse) == "held" and verdict(True, worse) == "did not hold"


def made(pass_1, improves, improved, decided=True):
    gain = Gain(0.2 if improved else -0.2, 0.1, 0.3, 0.0)
    return Forecast(pass_1, 1.0, pass_1, 0.5, improves, "" if improves else "too hard"), Outcome(0, 0, gain, improved, decided)


def test_rules_are_tallied_over_decided_families():
    """Five families, one undecided: each rule's four counts and its share of right predictions, by hand."""
    pairs = [made(0.5, True, True), made(0.05, True, False), made(0.95, False, True), made(0.0, False, False),
             made(0.5, True, True, decided=False)]
    found = {line.rule: line for line in tally(pairs)}

    assert found["this rule"][1:5] == (1, 1, 1, 1)
    assert found["always yes"][1:5] == (2, 2, 0, 0)
    assert found["never"][1:5] == (0, 0, 2, 2)
    assert found["p(1 - p) >= 0.09"][1:5] == (1, 0, 1, 2)
    assert found["p(1 - p) >= 0.09"].right.value == 0.75
    assert math.isnan(tally([])[0].right.value)


def test_the_variance_rule_includes_its_limits():
    """pass@1 of exactly 0.1 and 0.9 has variance 0.09 despite rounding."""
    predicts = RULES[3].predicts
    assert predicts(made(0.1, True, True)[0]) and predicts(made(0.9, True, True)[0])
    assert not predicts(made(0.0999, True, True)[0])
