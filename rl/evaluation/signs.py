"""Four things that a rising mean reward can hide, read from a run's own log.

1. Style gaming: depth or idle calls rise while the pass rate does not. Needs windows of some steps: those of a short run are
   a few tasks each, and other tasks have other depths. Of programs alone, as weak cases are.
2. Tasks lost: solved early in the run, never again at its end.
3. Weak cases: passes that fail on other hidden cases. Training grades a share of the passes again (rl/rewards/grading.py), a
   probe every one.
4. Steps without gradient: every group of the step had one reward throughout.

And one that is about the grader: samples that it failed to grade, which count nowhere.

"Early" and "end" are the first and the last fifth of the steps, so that each window sees a task more than once in a run
of some epochs. These are signs, not tests: for intervals compare two probes.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rl.run.files import read_rows

WINDOWS = 5
LEAST_STEPS = 25    # five a window; with fewer, style gaming is neither seen nor ruled out
RISE = {"depth": 0.25, "idle": 0.05}    # a change between the windows that is worth a line
MOST_GRADER_FAILURES = 0.001
COMPARED = ("pass_rate", "style", "depth", "calls", "pure", "idle")


class Signs(NamedTuple):
    """What a run's log shows; `early` and `end` hold the windows' means, None where a window has no value.

    They have no name that the log does not know: answers in words have no style."""
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
    """The signs of the run in this folder; None when it has logged no step."""
    rows = read_rows(Path(run) / "metrics.jsonl")
    if not rows:
        return None
    width = max(1, len(rows) // WINDOWS)
    early, end = rows[:width], rows[-width:]
    still = [row.get("frac_reward_zero_std") for row in rows if row.get("frac_reward_zero_std") is not None]
    looked, weak = (sum(row.get(name, 0) for row in rows) for name in ("grader/rechecked", "grader/recheck_failed"))
    names = [name for name in COMPARED if name == "pass_rate" or any(name in row for row in rows)]
    failures = [row.get("grader/internal_error_rate") or 0.0 for row in rows]
    return Signs(steps=len(rows), without_gradient=sum(share == 1 for share in still),
                 groups_without_signal=_mean(still) or 0.0, early=_means(early, names), end=_means(end, names),
                 lost=tasks_lost(_outcomes(run, early), _outcomes(run, end)), rechecked=looked, weak=weak,
                 grader_failures=_mean(failures))


def tasks_lost(early: Iterable[tuple[str, bool]], end: Iterable[tuple[str, bool]]) -> list[str]:
    """Tasks with a correct sample early and, though sampled again, none at the end."""
    early, end = list(early), list(end)
    solved_early, solved_end = ({task for task, correct in part if correct} for part in (early, end))
    return sorted((solved_early & {task for task, _ in end}) - solved_end)


def signs_text(signs: Signs) -> str:
    """What changed, then the signs, a line each; of answers in words two signs are left out. One more line where the grader
    failed too often to trust the rest."""
    def change(name):
        before, after = signs.early[name], signs.end[name]
        return f"{name} {_number(before)} -> {_number(after)}"

    alarm = [f"ALARM: the grader failed on {signs.grader_failures:.2%} of the samples; completions/ says why, at the verdict "
             "internal_error"] if signs.grader_failures > MOST_GRADER_FAILURES else []
    programs = bool(RISE.keys() & signs.early.keys())
    return "\n".join([
        f"first fifth -> last fifth of {signs.steps} steps: {', '.join(map(change, signs.early))}",
        *([f"style gaming: {_gaming(signs)}"] if programs else []),
        f"tasks lost: {len(signs.lost)}" + (f" ({', '.join(signs.lost)})" if signs.lost else ""),
        *([f"weak cases: {_weak(signs)}"] if programs or signs.rechecked else []),
        f"steps without gradient: {signs.without_gradient} of {signs.steps}; groups without signal: "
        f"{signs.groups_without_signal:.3f}", *alarm])


def _gaming(signs: Signs) -> str:
    if signs.steps < LEAST_STEPS:
        return f"too few steps to tell ({signs.steps}, of at least {LEAST_STEPS})"
    gamed = [name for name, least in RISE.items() if _rise(signs, name) >= least and _rise(signs, "pass_rate") <= 0]
    return f"likely, {' and '.join(gamed)} rose while the pass rate did not" if gamed else "not seen"


def _weak(signs: Signs) -> str:
    if not signs.rechecked:
        return "no pass was graded on other cases; run_probe.py grades every pass again"
    return f"{signs.weak} of {signs.rechecked} passes fail on other cases (training grades a share again, run_probe.py every one)"


def _outcomes(run: str | Path, rows: Sequence[dict]) -> list[tuple[str, bool]]:
    """(task, correct) of every sample of these steps."""
    folder = Path(run) / "completions"
    return [(sample["task"], sample["correct"]) for row in rows
            for sample in read_rows(folder / f"completions_{row['step']:05d}.jsonl")]


def _means(rows: Sequence[dict], names: Sequence[str]) -> dict[str, float | None]:
    return {name: _mean([row[name] for row in rows if row.get(name) is not None]) for name in names}


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _rise(signs: Signs, name: str) -> float:
    before, after = signs.early.get(name), signs.end.get(name)
    return 0.0 if before is None or after is None else after - before


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
