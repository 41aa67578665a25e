"""A grid over settings: its points, each a run's settings with a folder run_<point> of its own, and a summary of their results.

    NAME=v1,v2               values of a setting, separated by commas, or by semicolons if there is one
    NAME={a: 1};{a: 2}       mappings (COMBINE_KWARGS, ...) and lists of names (LORA_TARGETS), separated by semicolons only
    NAME.key=v1,v2           one entry of a mapping; the other entries are those of the CONFIG file

The CONFIG file may hold the same names below `sweep:`, with lists of values. All points are checked before the first one starts.
Nothing is trained here: `start` gives the environment for train_grpo.py.

A point's figure is over the last fifth of its steps: on held-out tasks if every finished point was evaluated there (EVAL_EVERY),
else in training. It is the mean reward, or the pass rate where the points differ in how rewards are computed, which makes
rewards incomparable. Intervals resample steps in training; a held-out pass rate has Wilson's, one trial per task; a held-out
reward resamples evaluations. Fewer than three values have no interval. The steps of a run share its seed, so disjoint intervals
say something about these runs, not about other seeds."""

import csv
import hashlib
import io
import itertools
import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError
from rl.evaluation.stats import UNKNOWN, Interval, bootstrap, number_text, wilson
from rl.registry import nearest
from rl.rewards.setup import trainable
from rl.run.files import checkpoints, jsonable, read_rows, write_aside
from rl.run.log import EVALUATIONS, metric_value
from rl.settings import config
from rl.settings.checks import fixed_on_resume
from rl.settings.declared import LEAVES, NAMES, RETIRED_NAMES, Kwargs, Leaf, Settings, text_of, value_of, values_of
from rl.settings.paths import with_relative_paths
from rl.settings.values import entry, parse, read_mapping
from rl.tasks import load_tasks

OF_THE_SWEEP = ("out", "resume", "run_name", "cache_dir")    # set by the sweep itself
BY_ADAPTER = ("lora_rank", "lora_alpha", "lora_targets")     # taken from LORA's adapter where LORA is set
LONGEST = 100                                                # characters of a folder's name
MEASURES = ("reward", "pass_rate")
FIFTH = 5
LEAST_VALUES = 3                                             # of an interval
FINISHED = "finished"                                        # the state of a point that has all its steps


class Axis(NamedTuple):
    """One setting, or with a path one entry of a mapping, and its values."""
    leaf: Leaf
    path: tuple[str, ...]
    values: tuple

    @property
    def name(self) -> str:
        """As a user writes it."""
        return ".".join([self.leaf.name.upper(), *self.path])


class Point(NamedTuple):
    """One run of the grid."""
    name: str
    chosen: dict[str, str]      # axis -> value, as text
    settings: Settings
    environ: dict[str, str]     # for a new run, without OUT
    warnings: list[str]


# ---- from text to a grid ---------------------------------------------------------------------------------------------

def axes_of(config_file: str | Path, arguments: Sequence[str]) -> list[Axis]:
    """The axes of `sweep:` in the file and of the arguments NAME=values; InputError lists everything wrong with them."""
    problems = []
    in_file = read_mapping(config_file, problems).get(config.SWEEP) or {}
    if not isinstance(in_file, dict) or not all(isinstance(values, list) for values in in_file.values()):
        problems.append(f"{config_file}: {config.SWEEP} needs a list of values for each setting, such as "
                        "learning_rate: [1e-5, 2e-5]")
        in_file = {}
    given = []
    for argument in arguments:
        name, equals, values = argument.partition("=")
        problems += [] if equals else [f"--set {argument}: write NAME=value,value"]
        given += [(name, values)] if equals else []
    axes = [_axis(str(name), values, problems) for name, values in (*in_file.items(), *given)]
    names = [axis.name for axis in axes if axis]
    problems += [f"{name} is given twice" for name in sorted({name for name in names if names.count(name) > 1})]
    if not axes and not problems:
        problems.append(f"nothing to sweep: give --set NAME=value,value, or {config.SWEEP}: in {config_file}")
    if problems:
        raise InputError("\n".join(problems))
    return axes


def _axis(name: str, values: str | list, problems: list[str]) -> Axis | None:
    """The axis of that name; None where it is impossible. Everything wrong is added to `problems`."""
    key, *path = name.strip().split(".")
    leaf = NAMES.get(key.strip().lower())
    if old := RETIRED_NAMES.get(key.strip().lower()):
        problems.append(f"{name}: {old.name.upper()} is fixed at {old.fixed} ({old.help}); leave it out")
        return None
    if leaf is None:
        problems.append(f"{name}: unknown setting{nearest(key.lower(), NAMES)}; train_grpo.py --help lists them")
        return None
    if leaf.name in OF_THE_SWEEP:
        problems.append(f"{name}: the sweep sets it for every point; leave it out")
        return None
    if path and leaf.type is not Kwargs:
        problems.append(f"{name}: {leaf.name.upper()} is not a mapping, so it has no {'.'.join(path)}")
        return None
    parsed = []
    for value in split_values(leaf, path, values) if isinstance(values, str) else values:
        try:
            parsed.append(entry(value) if path else parse(leaf, value))
        except (ValueError, OverflowError):
            takes = "not valid YAML, or not a finite number" if path else f"{leaf.name.upper()} takes {leaf.limits}"
            problems.append(f"{name}={value}: {takes}")
    problems += [f"{name}: no values"] * (not values)
    problems += [f"{name}={text_of(value)} is given twice" for i, value in enumerate(parsed) if value in parsed[:i]]
    return Axis(leaf, tuple(path), tuple(parsed))


def split_values(leaf: Leaf, path: Sequence[str], text: str) -> list[str]:
    """The values in a text; mappings and lists of names have commas of their own."""
    commas_inside = ";" in text or (leaf.type is Kwargs and not path) or leaf.names
    return [part.strip() for part in text.split(";" if commas_inside else ",")] if text.strip() else []


def points_of(config_file: str | Path, axes: Sequence[Axis], environ: Mapping[str, str]) -> list[Point]:
    """All points, checked, the last axis changing fastest; InputError lists everything wrong with any of them."""
    refused = [name for name in ("CONFIG", "OUT", "RESUME") if environ.get(name)]
    if refused:
        raise InputError(f"{', '.join(f'{name}={environ[name]}' for name in refused)}: the sweep sets that itself; unset it")
    swept = {name.upper() for axis in axes for name in (axis.leaf.name, *axis.leaf.aliases)}
    outer = {name: value for name, value in environ.items() if name not in swept} | {"CONFIG": str(config_file)}
    base = with_relative_paths(config.load(outer).settings) if any(axis.path for axis in axes) else None
    points, problems, load = [], [], cache(load_tasks)    # most points share their tasks
    for values in itertools.product(*(axis.values for axis in axes)):
        own = environ_of(axes, values, base)
        try:
            loaded = config.load(outer | own, training=True)
            trainable(loaded.settings, load)
        except config.SettingsError as error:
            problems += error.problems
            continue
        except InputError as error:
            problems.append(str(error))
            continue
        chosen = {axis.name: text_of(value) for axis, value in zip(axes, values, strict=True)}
        points.append(Point(folder_name(axes, values), chosen, loaded.settings, outer | own, loaded.warnings))
    if problems:
        raise InputError("\n".join(["nothing was started:", *dict.fromkeys(problems)]))
    return points


def environ_of(axes: Sequence[Axis], values: Sequence, base: Settings | None) -> dict[str, str]:
    """The variables of a point; entries of mappings are set in the mapping of another axis, else in that of `base`."""
    leaves = {axis.leaf.name: value for axis, value in zip(axes, values, strict=True) if not axis.path}
    for axis, value in zip(axes, values, strict=True):
        if axis.path:
            inner = tree = json.loads(leaves.get(axis.leaf.name, value_of(base, axis.leaf.name)))
            for key in axis.path[:-1]:
                inner[key] = inner = dict(inner[key]) if isinstance(inner.get(key), dict) else {}
            inner[axis.path[-1]] = value
            leaves[axis.leaf.name] = json.dumps(tree, sort_keys=True)
    return {name.upper(): text_of(value) for name, value in leaves.items()}


def folder_name(axes: Sequence[Axis], values: Sequence) -> str:
    """run_<setting>-<value>_..., always the same for a point; with a digest if shortened or not written out in full."""
    parts = [f"{(axis.path or (axis.leaf.name,))[-1]}-{text_of(value)}" for axis, value in zip(axes, values, strict=True)]
    name = "run_" + "_".join(re.sub(r"[^A-Za-z0-9.+_]+", "-", part).strip("-") for part in parts)
    complete = all(re.fullmatch(r"[A-Za-z0-9.+_-]+", part) for part in parts) and len(name) <= LONGEST
    whole = json.dumps([[axis.name for axis in axes], parts])
    return name if complete else f"{name[:LONGEST - 7]}-{hashlib.sha256(whole.encode()).hexdigest()[:6]}"


# ---- points and their folders ----------------------------------------------------------------------------------------

def check_folders(points: Sequence[Point], out: Path) -> None:
    """InputError lists each folder with other settings, or with a log and no checkpoint to continue from."""
    names = [point.name for point in points]
    problems = [f"two points would both be {name}" for name in sorted({name for name in names if names.count(name) > 1})]
    for point in points:
        run = out / point.name
        if not checkpoints(run) and read_rows(run / "metrics.jsonl"):
            problems.append(f"{run} has a log but no complete checkpoint: move it away")
        elif (run / "config.yaml").is_file() and checkpoints(run):
            differs = differing(config.load({"CONFIG": str(run / "config.yaml")}).settings, point.settings)
            problems += [f"{run} was started with other settings: {'; '.join(differs)}"] if differs else []
    if problems:
        raise InputError("\n".join(["nothing was started:", *problems, "Give another --out, or undo the change"]))


def differing(before: Settings, wanted: Settings) -> list[str]:
    """The settings in which a run is not the wanted one, except those that a resume may change or that are left to the run."""
    old, new = values_of(with_relative_paths(before)), values_of(with_relative_paths(wanted))
    left_open = {name for name in ("remat", "update_samples") if new[name] == LEAVES[name].default}
    ignored = set(OF_THE_SWEEP) | left_open | (set(BY_ADAPTER) if new["lora"] else set())
    return [f"{name.upper()}={text_of(old[name])}, now {text_of(new[name])}" for name in LEAVES
            if name not in ignored and old[name] != new[name] and fixed_on_resume(name, old["scheduler"])]


def is_finished(point: Point, run: Path) -> bool:
    """Whether the run has all its steps."""
    return max(checkpoints(run), default=-1) >= point.settings.trainer.steps


def start(point: Point, run: Path) -> dict[str, str]:
    """The environment in which train_grpo.py starts or resumes the run; removes the folder of a run without checkpoint."""
    if checkpoints(run):
        other = {name: value for name, value in point.environ.items() if name != "CONFIG" and name.lower() not in NAMES}
        may_change = {name.upper(): text_of(value_of(point.settings, name)) for name, leaf in LEAVES.items() if leaf.on_resume}
        return other | may_change | {"RESUME": str(run.resolve())}
    if run.exists():    # killed before its first checkpoint, so before its first step
        shutil.rmtree(run)
    return point.environ | {"OUT": str(run.resolve())}


# ---- the summary -----------------------------------------------------------------------------------------------------

def measure_for(axes: Sequence[Axis]) -> str:
    """What points are compared by: the pass rate if an axis changes how rewards are computed, else the reward."""
    of_rewards = {name for name, leaf in LEAVES.items() if leaf.section == "reward"} | {"combine", "combine_kwargs"} | {
        name for name in LEAVES if name.startswith("overlong")}
    return "pass_rate" if of_rewards & {axis.leaf.name for axis in axes} else "reward"


def figures(run: Path, steps: int) -> dict[str, Interval]:
    """reward and pass_rate over the last fifth of the steps: in training and, as eval/..., on held-out tasks."""
    first = steps - max(1, steps // FIFTH) + 1
    trained, held_out = ([row for row in read_rows(run / name) if row["step"] >= first]
                         for name in ("metrics.jsonl", EVALUATIONS))
    intervals = {}
    for name in MEASURES:
        intervals[name] = _mean(trained, name)
        intervals[f"eval/{name}"] = _mean(held_out, f"eval/{name}")
    if not math.isnan(rate := intervals["eval/pass_rate"].value):
        tasks = int(held_out[-1]["eval/tasks"])
        intervals["eval/pass_rate"] = Interval(rate, *wilson(round(rate * tasks), tasks)[1:])
    return intervals


def _mean(rows: Sequence[dict], name: str) -> Interval:
    """The mean of a metric, with an interval if there are enough values to resample."""
    values = [value for row in rows if (value := metric_value(row, name)) is not None]
    if not values:
        return UNKNOWN
    mean = bootstrap(values)
    return mean if len(values) >= LEAST_VALUES else UNKNOWN._replace(value=mean.value)


def summary(points: Sequence[Point], out: Path, states: dict[str, str], measure: str) -> dict:
    """The whole summary as plain data, best point first; `states` says of each point FINISHED or what else became of it."""
    intervals = {point.name: figures(out / point.name, point.settings.trainer.steps) for point in points
                 if states[point.name] == FINISHED}
    held_out = bool(intervals) and all(not math.isnan(point[f"eval/{measure}"].value) for point in intervals.values())
    by = f"eval/{measure}" if held_out else measure
    order = sorted(intervals, key=lambda name: -_or_last(intervals[name][by].value))
    rows = [{"point": point.name, "state": states[point.name], **point.chosen, **{
        f"{name}{end}": number for name, interval in intervals.get(point.name, {}).items()
        for end, number in zip(("", "_low", "_high"), interval, strict=True)}} for point in points]
    rows.sort(key=lambda row: order.index(row["point"]) if row["point"] in order else len(order))
    apart = None
    if len(order) > 1:
        first, second = (intervals[name][by] for name in order[:2])
        apart = None if math.isnan(first.low) or math.isnan(second.high) else first.low > second.high
    return jsonable({"format": "sweep 1", "by": by, "best": order[0] if order else None, "apart_from_second": apart,
                     "points": rows})


def _or_last(number: float) -> float:
    return -math.inf if math.isnan(number) else number


def summary_text(result: dict) -> str:
    """The summary for a terminal."""
    by, rows = result["by"], result["points"]
    tasks = "held-out tasks" if by.startswith("eval/") else "training tasks"
    width = max(len(row["point"]) for row in rows)
    lines = [f"{by.removeprefix('eval/').replace('_', ' ')} on {tasks}, last fifth of the steps, 95 % interval"]
    for row in rows:
        value, low, high = (number_text(row.get(f"{by}{end}")) for end in ("", "_low", "_high"))
        lines.append(f"{row['point']:<{width}}  " + (f"{value} [{low}, {high}]" if row["state"] == FINISHED else row["state"]))
    if result["best"]:
        lines.append(f"best: {_best(result, [row for row in rows if row['state'] == FINISHED])}")
    return "\n".join(lines)


def _best(result: dict, finished: Sequence[dict]) -> str:
    """The best point, and whether it is known to be better than the second."""
    by, best = result["by"], result["best"]
    what = by.removeprefix("eval/").replace("_", " ")
    if finished[0][by] is None:
        return f"unknown; no finished point has a {what}"
    if len(equal := [row["point"] for row in finished if row[by] == finished[0][by]]) > 1:
        return f"a tie in {what}: {', '.join(equal)}"
    if len(finished) == 1:
        return f"{best}, the only finished point"
    if result["apart_from_second"] is not None:
        return f"{best}; its interval " + ("is above that of the second" if result["apart_from_second"] else
                                           "and that of the second overlap, so the better one is unknown")
    without = [row["point"] for row in finished[:2] if row[f"{by}_low"] is None]
    needed = (f"{LEAST_VALUES} evaluations with a {what} in the last fifth of the steps (lower EVAL_EVERY)"
              if by.startswith("eval/") else
              f"{LEAST_VALUES} steps with a {what} in the last fifth (STEPS={FIFTH * LEAST_VALUES} or more)")
    return (f"{best}; whether it is better than the second is unknown: an interval needs {needed}, and "
            f"{' and '.join(without)} had fewer")


def write_summary(out: Path, result: dict) -> None:
    """Write summary.json and summary.csv."""
    columns = list(dict.fromkeys(name for row in result["points"] for name in row))
    table = io.StringIO()
    writer = csv.DictWriter(table, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(result["points"])
    write_aside(out / "summary.csv", table.getvalue().encode())
    write_aside(out / "summary.json", json.dumps(result, indent=1).encode() + b"\n")
