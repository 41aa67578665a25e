"""Four things that a rising mean reward can hide, read from a run's own log.

1. Style gaming: depth or idle calls rise while the pass rate does not. Programs only.
2. Tasks lost: solved early in the run, sampled again at its end and never solved there.
3. Weak cases: passes that fail on second cases. Training grades a share of its passes again (rl/rewards/grading.py), a probe
   all of them.
4. Steps without gradient: in every group of the step all samples had the same reward.

One more concerns the grader: the share of samples that it failed to grade.

"Early" and "end" are the first and the last fifth of the steps. In a short run each covers only a few tasks, and other tasks
have other depths, so style gaming is judged from LEAST_STEPS on. These are signs, not tests: compare two probes for intervals.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rl.evaluation.stats import number_text
from rl.run.files import read_rows
from rl.run.log import QUALITIES, metric_value

WINDOWS = 5
LEAST_STEPS = 25    # five per window
RISE = {"depth": 0.25, "idle": 0.05}    # the least change between the windows that counts as a rise
MOST_GRADER_FAILURES = 0.001


class Signs(NamedTuple):
    """What a run's log shows; `early` and `end` are the windows' means, None where no step has a value.

    They hold only what the log has: answers in words have no style."""
    steps: int
    without_gradient: int
    groups_without_signal: float
    early: dict[str, float | None]
    end: dict[str, float | None]
    lost: list[str]
    rechecked: int
    weak: int
    grader_failures: float


def signs_of(run: str | Path) -> Signs | None:
    """The signs of the run in this folder; None before its first step."""
    rows = read_rows(Path(run) / "metrics.jsonl")
    if not rows:
        return None
    early, end = windows(rows)
    names = ["pass_rate", *(name for name in QUALITIES if any(name in row for row in rows))]
    return Signs(
        steps=len(rows), without_gradient=sum(metric_value(row, "frac_reward_zero_std") == 1 for row in rows),
        groups_without_signal=mean(rows, "frac_reward_zero_std") or 0.0,
        early={name: mean(early, name) for name in names}, end={name: mean(end, name) for name in names},
        lost=tasks_lost(_outcomes(run, early), _outcomes(run, end)),
        rechecked=int(total(rows, "grader/rechecked")), weak=int(total(rows, "grader/recheck_failed")),
        grader_failures=mean(rows, "grader/internal_error_rate") or 0.0)


def tasks_lost(early: Iterable[tuple[str, bool]], end: Iterable[tuple[str, bool]]) -> list[str]:
    """Tasks with a correct sample early that were sampled again at the end, without a correct one."""
    early, end = list(early), list(end)
    solved_early, solved_end = ({task for task, correct in outcomes if correct} for outcomes in (early, end))
    return sorted((solved_early & {task for task, _ in end}) - solved_end)


def _outcomes(run: str | Path, rows: Sequence[dict]) -> list[tuple[str, bool]]:
    """(task, correct) of every sample of these steps."""
    folder = Path(run) / "completions"
    return [(sample["task"], sample["correct"]) for row in rows
            for sample in read_rows(folder / f"completions_{row['step']:05d}.jsonl")]


# ---- metrics over steps ----------------------------------------------------------------------------------------------

def windows(rows: Sequence[dict]) -> tuple[Sequence[dict], Sequence[dict]]:
    """The first and the last fifth of the steps."""
    width = max(1, len(rows) // WINDOWS)
    return rows[:width], rows[-width:]


def mean(rows: Sequence[dict], name: str) -> float | None:
    """Mean of a metric over the rows that have a value; None where none has."""
    values = [value for row in rows if (value := metric_value(row, name)) is not None]
    return math.fsum(values) / len(values) if values else None


def total(rows: Sequence[dict], name: str) -> float:
    """Sum of a metric over the rows that have a value."""
    return math.fsum(metric_value(row, name) or 0.0 for row in rows)


# ---- as text ---------------------------------------------------------------------------------------------------------

def signs_text(signs: Signs) -> str:
    """One line per sign."""
    return "\n".join(line for _, line in sign_lines(signs))


def sign_lines(signs: Signs) -> list[tuple[bool, str]]:
    """(whether it needs a look, line) of what changed and of every sign that these samples can have."""
    def change(name):
        return f"{name} {number_text(signs.early[name])} -> {number_text(signs.end[name])}"

    programs = bool(RISE.keys() & signs.early.keys())
    lines = [(False, f"first fifth -> last fifth of {signs.steps} steps: {', '.join(map(change, signs.early))}")]
    if programs:
        lines.append(_style_gaming(signs))
    lines.append((bool(signs.lost), f"tasks lost: {names_text(signs.lost)}"))
    if programs or signs.rechecked:
        lines.append((signs.weak > 0, f"weak cases: {_weak_cases(signs)}"))
    lines.append((False, f"steps without gradient: {signs.without_gradient} of {signs.steps}; groups without signal: "
                  f"{signs.groups_without_signal:.3f}"))
    if signs.grader_failures > MOST_GRADER_FAILURES:
        lines.append((True, f"ALARM: the grader failed on {signs.grader_failures:.2%} of the samples; completions/ has the "
                      "reasons, under the verdict internal_error"))
    return lines


def names_text(names: Sequence[str]) -> str:
    """How many names, and which."""
    return f"{len(names)} ({', '.join(names)})" if names else "0"


def _style_gaming(signs: Signs) -> tuple[bool, str]:
    if signs.steps < LEAST_STEPS:
        return False, f"style gaming: too few steps to tell ({signs.steps}, at least {LEAST_STEPS} needed)"
    risen = [name for name, least in RISE.items() if _rise(signs, name) >= least and _rise(signs, "pass_rate") <= 0]
    return bool(risen), "style gaming: " + (
        f"seen, {' and '.join(risen)} rose while the pass rate did not" if risen else "not seen")


def _weak_cases(signs: Signs) -> str:
    if not signs.rechecked:
        return "no pass was graded on second cases; run_probe.py grades every pass again"
    return (f"{signs.weak} of {signs.rechecked} passes fail on second cases (training grades a share of them again, "
            "run_probe.py every one)")


def _rise(signs: Signs, name: str) -> float:
    before, after = signs.early.get(name), signs.end.get(name)
    return 0.0 if before is None or after is None else after - before
