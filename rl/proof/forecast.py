"""Whether GRPO will improve a family of questions, said before training, and how such sayings are judged afterwards.

The rule looks at what training itself would see: a few groups of samples with their scores. A group whose scores are all equal
gives no gradient, so too few groups that differ mean nothing to learn from; a mean near zero means that right answers are too
rare to be found; a first answer that is nearly always right leaves nothing to gain. Its constants stand here and nowhere else.
They were written down before any family was trained and are allowed to lose against the simpler rules beside them. (How an
outcome is decided was widened once afterwards; NOTES.md says when and why.)

Nothing here samples, trains or reads a file."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rl.evaluation.stats import Gain, Interval, paired_bootstrap, pass_at_k, wilson

PASS_MIN = 0.05       # mean score: below, a group of eight holds a right answer in one of three tries or less
PASS_MAX = 0.9        # pass@1: above, at most a tenth of the tasks can be gained, and half the groups are all right
SIGNAL_MIN = 0.25     # share of groups that differ: below, three groups of a step of four teach nothing
VARIANCE_MIN = 0.09   # of the rule p(1 - p): pass@1 between 0.1 and 0.9
ALPHA = 0.05          # an outcome is an improvement where at most so many resampled gains are not above zero
RESOLUTION, RESOLVED_AT = 0.06, 200  # what so many tasks can tell of a gain; on n tasks the bound goes with 1 / sqrt(n)


class Forecast(NamedTuple):
    """What a family's samples say before training; shares and means over its prediction tasks."""

    pass_1: float   # share of samples that are right (score 1)
    pass_k: float   # share of tasks with a right one among their samples
    mean: float     # score
    signal: float   # share of tasks whose samples' scores differ
    improves: bool
    reason: str     # why not; "" where it is said to improve


def forecast(score_PN) -> Forecast:
    """The rule applied to scores of P tasks x N samples in [0, 1]; ValueError where one is missing or out of range."""
    score_PN = np.asarray(score_PN, np.float64)
    if score_PN.ndim != 2 or not score_PN.size or not ((score_PN >= 0) & (score_PN <= 1)).all():
        raise ValueError(f"scores of shape {score_PN.shape}: needs tasks x samples, each from 0 to 1")
    right_PN, N = score_PN >= 1, score_PN.shape[1]
    pass_1, mean = float(right_PN.mean()), float(score_PN.mean())
    pass_k = math.fsum(pass_at_k(N, int(right), N) for right in right_PN.sum(1)) / len(score_PN)
    signal = float((score_PN.max(1) > score_PN.min(1)).mean())
    reason = why_not(pass_1, mean, signal)
    return Forecast(pass_1, pass_k, mean, signal, not reason, reason)


def why_not(pass_1: float, mean: float, signal: float) -> str:
    """The first condition of the rule that fails, with its figures; "" where none does."""
    if not mean > PASS_MIN:
        return f"too hard: mean score {mean:.3f}, must be above {PASS_MIN}"
    if not pass_1 < PASS_MAX:
        return f"mastered: pass@1 {pass_1:.3f}, must be below {PASS_MAX}"
    if not signal >= SIGNAL_MIN:
        return f"no signal: scores differ within {signal:.3f} of the groups, must be {SIGNAL_MIN} or more"
    return ""


class Rule(NamedTuple):
    """A rule to compare with: what it is called and whether it says that a family will improve."""

    name: str
    says: Callable[[Forecast], bool]


RULES = (
    Rule("this rule", lambda found: found.improves),
    Rule("always yes", lambda found: True),
    Rule("never", lambda found: False),
    Rule(f"p(1 - p) >= {VARIANCE_MIN}", lambda found: found.pass_1 * (1 - found.pass_1) >= VARIANCE_MIN - 1e-12),
)


# ---- outcomes --------------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What training did to a family's held-out tasks, by the score that it was paid for."""

    before: float
    after: float
    gain: Gain        # paired by task
    improved: bool    # p <= ALPHA and the gain above 0
    decided: bool     # the gain is no smaller than so many tasks can tell, or its interval says that there is none so large


def outcome(before: Sequence[float], after: Sequence[float]) -> Outcome:
    """The outcome from each task's score before and after, in the same order.

    A difference smaller than the resolution decides nothing, whatever its sign; but where the whole interval stays below it and
    nothing speaks for a gain, there was none. Else no saying that a family will not improve could ever come true. Equal scores
    resample to an interval of no width, so it is taken to reach to 3 / n at least, as far as n times nothing can tell."""
    gain, least, n = paired_bootstrap(before, after), resolution(len(before)), len(before)
    improved = gain.p <= ALPHA and gain.value > 0
    decided = abs(gain.value) >= least or (not improved and max(gain.high, 3 / n) < least)
    return Outcome(float(np.mean(before)), float(np.mean(after)), gain, improved, decided)


def resolution(tasks: int) -> float:
    """The smallest gain that so many tasks can tell."""
    return RESOLUTION * math.sqrt(RESOLVED_AT / tasks)


def verdict(improves: bool, found: Outcome) -> str:
    """What became of a prediction: "held", "did not hold", or "undecided"."""
    if not found.decided:
        return "undecided"
    return "held" if found.improved == improves else "did not hold"


class Tally(NamedTuple):
    """How a rule did over the decided families."""

    rule: str
    yes_improved: int
    yes_not: int
    no_improved: int
    no_not: int
    right: Interval   # share of its sayings that came true, Wilson's interval


def tally(pairs: Sequence[tuple[Forecast, Outcome]]) -> list[Tally]:
    """Each of RULES against the outcomes that are decided."""
    decided = [(found, out.improved) for found, out in pairs if out.decided]
    tallies = []
    for rule in RULES:
        said = [(rule.says(found), improved) for found, improved in decided]
        cells = [said.count(cell) for cell in ((True, True), (True, False), (False, True), (False, False))]
        tallies.append(Tally(rule.name, *cells, wilson(cells[0] + cells[3], len(said))))
    return tallies
