"""What a sweep came to: its finished points in order, the best one, and whether that can be told from the second.

A point's figure is over the last fifth of its steps: on held-out tasks where every finished point was evaluated there
(EVAL_EVERY), else in training. It is the mean reward, or the pass rate where the points differ in what a reward is, for then
rewards are no common measure. Intervals: of training, steps resampled; of a held-out pass rate, Wilson's with a trial a task; of
a held-out reward, evaluations resampled; of fewer than three steps or evaluations there is none. Steps of one run share its luck,
so intervals that are apart speak of these runs, not of what another seed would give."""

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path

from rl.evaluation.stats import Interval, bootstrap, wilson
from rl.run.files import jsonable, read_rows, write_aside
from rl.run.log import EVALUATIONS, metric_value
from rl.settings.declared import LEAVES

MEASURES = ("reward", "pass_rate")
FIFTH = 5
LEAST = 3    # numbers that an interval is made from
NONE = Interval(math.nan, math.nan, math.nan)


def measure_for(axes) -> str:
    """What points are compared by: the pass rate where an axis changes what a reward is, else the reward."""
    pays = {name for name, leaf in LEAVES.items() if leaf.section == "reward"} | {"combine", "combine_kwargs"} | {
        name for name in LEAVES if name.startswith("overlong")}
    return "pass_rate" if pays & {axis.leaf.name for axis in axes} else "reward"


def figures(run: Path, steps: int) -> dict[str, Interval]:
    """reward, pass_rate of training and, under eval/, of held-out tasks, over the last fifth of the steps."""
    last = lambda rows: [row for row in rows if row["step"] > steps - max(1, steps // FIFTH)]  # noqa: E731
    trained, held_out = last(read_rows(run / "metrics.jsonl")), last(read_rows(run / EVALUATIONS))
    found = {}
    for name in MEASURES:
        found[name] = _mean([number for row in trained if (number := metric_value(row, name)) is not None])
        found[f"eval/{name}"] = _mean([number for row in held_out if (number := metric_value(row, f"eval/{name}")) is not None])
    if not math.isnan(rate := found["eval/pass_rate"].value):
        tasks = int(held_out[-1]["eval/tasks"])
        found["eval/pass_rate"] = Interval(rate, *wilson(round(rate * tasks), tasks)[1:])
    return found


def _mean(numbers: Sequence[float]) -> Interval:
    """The mean, and the interval of resampling where there is something to resample: one number has no spread at all."""
    if not numbers:
        return NONE
    found = bootstrap(numbers)
    return found if len(numbers) >= LEAST else Interval(found.value, math.nan, math.nan)


def summary(points: Sequence, out: Path, states: dict[str, str], measure: str) -> dict:
    """The whole summary as plain data; `states` has what became of each point, "finished" or in other words."""
    found = {point.name: figures(out / point.name, point.settings.trainer.steps) for point in points
             if states[point.name] == "finished"}
    held_out = bool(found) and all(not math.isnan(figure[f"eval/{measure}"].value) for figure in found.values())
    by = f"eval/{measure}" if held_out else measure
    order = sorted(found, key=lambda name: -_or_last(found[name][by].value))
    rows = [{"point": point.name, "state": states[point.name], **point.chosen, **{
        f"{name}{end}": number for name, interval in found.get(point.name, {}).items()
        for end, number in zip(("", "_low", "_high"), interval, strict=True)}} for point in points]
    rows.sort(key=lambda row: order.index(row["point"]) if row["point"] in order else len(order))
    apart = None
    if len(order) > 1:
        first, second = (found[name][by] for name in order[:2])
        apart = None if math.isnan(first.low) or math.isnan(second.high) else first.low > second.high
    return jsonable({"format": "sweep 1", "by": by, "best": order[0] if order else None, "apart_from_second": apart, "points": rows})


def _or_last(number: float) -> float:
    return -math.inf if math.isnan(number) else number


def text(found: dict) -> str:
    """The summary for a terminal."""
    by, rows = found["by"], found["points"]
    where = "held-out tasks" if by.startswith("eval/") else "training tasks"
    width = max(len(row["point"]) for row in rows)
    lines = [f"{by.removeprefix('eval/').replace('_', ' ')} on {where}, last fifth of the steps, 95 % interval"]
    for row in rows:
        numbers = [row.get(f"{by}{end}") for end in ("", "_low", "_high")]
        shown = ["-" if number is None else f"{number:.3f}" for number in numbers]
        figure = f"{shown[0]} [{shown[1]}, {shown[2]}]" if row["state"] == "finished" else row["state"]
        lines.append(f"{row['point']:<{width}}  {figure}")
    if found["best"]:
        lines.append(f"best: {_best(found, [row for row in rows if row['state'] == 'finished'])}")
    return "\n".join(lines)


def _best(found: dict, finished: Sequence[dict]) -> str:
    """Which point is best, and what is known of its distance from the second."""
    by, first = found["by"], found["best"]
    what = by.removeprefix("eval/").replace("_", " ")
    if finished[0][by] is None:
        return f"not known; no finished point has a {what}"
    if len(equal := [row["point"] for row in finished if row[by] == finished[0][by]]) > 1:
        return f"not one alone; equal in {what} are {', '.join(equal)}"
    if len(finished) == 1:
        return f"{first}; it is the only finished point, so there is none to compare it with"
    if found["apart_from_second"] is not None:
        return f"{first}; its interval " + ("is above that of the second" if found["apart_from_second"] else
                                            "and that of the second overlap, so which is better is not known")
    without = [row["point"] for row in finished[:2] if row[f"{by}_low"] is None]
    least = (f"{LEAST} evaluations with a {what} in the last fifth of the steps (lower EVAL_EVERY)" if by.startswith("eval/") else
             f"{LEAST} steps with a {what} in the last fifth, so STEPS={FIFTH * LEAST} or more")
    return f"{first}; nothing is known of the distance, for an interval takes {least}, and {' and '.join(without)} had fewer"


def write(out: Path, found: dict) -> None:
    """summary.json and summary.csv."""
    columns = list(dict.fromkeys(name for row in found["points"] for name in row))
    table = io.StringIO()
    writer = csv.DictWriter(table, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(found["points"])
    write_aside(out / "summary.csv", table.getvalue().encode())
    write_aside(out / "summary.json", json.dumps(found, indent=1).encode() + b"\n")
