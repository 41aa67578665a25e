"""The rule that predicts whether GRPO will improve a family of questions, and how predictions are judged afterwards.

The rule looks at what training would see: a few groups of samples with their scores. A group of equal scores has no gradient, so
with too few groups that differ there is nothing to learn from; with a mean near zero right answers are too rare to be found;
and if almost every first answer is right there is nothing left to gain. The constants were fixed before any family was trained,
and the rule may lose against the simpler RULES that it is compared with. (How an outcome is decided was widened once afterwards;
NOTES.md says when and why.)

Nothing here samples, trains or reads a file."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rl.evaluation.stats import Gain, Interval, paired_bootstrap, pass_at_k, wilson

PASS_MIN = 0.05       # mean score; below it, at most one in three groups of eight has a right answer
PASS_MAX = 0.9        # pass@1; above it, at most a tenth of the tasks can be gained, and half the groups are all right
SIGNAL_MIN = 0.25     # share of groups that differ; below it, three of four groups in a step teach nothing
VARIANCE_MIN = 0.09   # of the rule p(1 - p): pass@1 between 0.1 and 0.9
ALPHA = 0.05          # an outcome is an improvement if at most this share of the resampled gains is not above zero
RESOLUTION, RESOLVED_AT = 0.06, 200  # the smallest gain that so many tasks can resolve; it scales with 1 / sqrt(tasks)


# ---- predictions ------------------------------------------------------------------------------------------------------


class Forecast(NamedTuple):
    """A prediction and what it is based on: shares and means over a family's prediction tasks."""

    pass_1: float   # share of samples that are right (score 1)
    pass_k: float   # share of tasks with at least one right sample
    mean: float     # mean score
    signal: float   # share of tasks whose samples' scores differ
    improves: bool  # the prediction
    reason: str     # why not; "" if it improves


def make_forecast(score_PN) -> Forecast:
    """Apply the rule to scores in [0, 1] of P tasks x N samples; ValueError if one is missing or out of range."""
    score_PN = np.asarray(score_PN, np.float64)
    if score_PN.ndim != 2 or not score_PN.size or not ((score_PN >= 0) & (score_PN <= 1)).all():
        raise ValueError(f"scores of shape {score_PN.shape}: needs tasks x samples, each from 0 to 1")
    right_PN, N = score_PN >= 1, score_PN.shape[1]
    pass_1, mean = float(right_PN.mean()), float(score_PN.mean())
    pass_k = math.fsum(pass_at_k(N, int(right), N) for right in right_PN.sum(1)) / len(score_PN)
    signal = float((score_PN.max(1) > score_PN.min(1)).mean())
    reason = failed_condition(pass_1, mean, signal)
    return Forecast(pass_1=pass_1, pass_k=pass_k, mean=mean, signal=signal, improves=not reason, reason=reason)


def failed_condition(pass_1: float, mean: float, signal: float) -> str:
    """The first condition of the rule that fails, with its figures; "" if all hold."""
    if not mean > PASS_MIN:
        return f"too hard: mean score {mean:.3f}, must be above {PASS_MIN}"
    if not pass_1 < PASS_MAX:
        return f"mastered: pass@1 {pass_1:.3f}, must be below {PASS_MAX}"
    if not signal >= SIGNAL_MIN:
        return f"no signal: scores differ within {signal:.3f} of the groups, must be {SIGNAL_MIN} or more"
    return ""


class Rule(NamedTuple):
    """A rule to compare with: its name and whether it predicts that a family improves."""

    name: str
    predicts: Callable[[Forecast], bool]


RULES = (
    Rule("this rule", lambda forecast: forecast.improves),
    Rule("always yes", lambda forecast: True),
    Rule("never", lambda forecast: False),
    Rule(f"p(1 - p) >= {VARIANCE_MIN}", lambda forecast: forecast.pass_1 * (1 - forecast.pass_1) >= VARIANCE_MIN - 1e-12),
)


# ---- outcomes ---------------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """The effect of training on a family's held-out tasks, by the score that was rewarded."""

    before: float
    after: float
    gain: Gain        # paired by task
    improved: bool    # p <= ALPHA and the gain is above 0
    decided: bool     # the gain is at least the resolution, or its interval excludes one that large


def outcome_of(before: Sequence[float], after: Sequence[float]) -> Outcome:
    """The outcome from each task's score before and after training, in the same order.

    A gain below the resolution decides nothing, whatever its sign, with one exception: if it is no improvement and the whole
    interval is below the resolution, there was none. Otherwise no prediction of "does not improve" could ever hold. Equal scores
    resample to an interval of width zero, so it is taken to reach at least 3 / n, the upper limit that n zeros allow."""
    gain, least, n = paired_bootstrap(before, after), resolution(len(before)), len(before)
    improved = gain.p <= ALPHA and gain.value > 0
    decided = abs(gain.value) >= least or (not improved and max(gain.high, 3 / n) < least)
    return Outcome(before=float(np.mean(before)), after=float(np.mean(after)), gain=gain, improved=improved, decided=decided)


def resolution(tasks: int) -> float:
    """The smallest gain that so many tasks can resolve."""
    return RESOLUTION * math.sqrt(RESOLVED_AT / tasks)


def verdict(improves: bool, outcome: Outcome) -> str:
    """Whether a prediction came true: "held", "did not hold", or "undecided"."""
    if not outcome.decided:
        return "undecided"
    return "held" if outcome.improved == improves else "did not hold"


class Tally(NamedTuple):
    """How a rule did on the decided families: counts by prediction (yes, no) and outcome."""

    rule: str
    yes_improved: int
    yes_not: int
    no_improved: int
    no_not: int
    right: Interval   # share of predictions that came true, with Wilson's interval


def tally(pairs: Sequence[tuple[Forecast, Outcome]]) -> list[Tally]:
    """Each of RULES against the decided outcomes."""
    decided = [(forecast, outcome.improved) for forecast, outcome in pairs if outcome.decided]
    tallies = []
    for rule in RULES:
        cells = [(rule.predicts(forecast), improved) for forecast, improved in decided]
        counts = [cells.count(cell) for cell in ((True, True), (True, False), (False, True), (False, False))]
        tallies.append(Tally(rule.name, *counts, right=wilson(counts[0] + counts[3], len(cells))))
    return tallies
