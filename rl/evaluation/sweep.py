"""A grid over settings: from what is asked for to points, each a run's settings and the folder run_<point> of its own.

    NAME=v1,v2               values of a setting, comma-separated; separated by ; where one is there
    NAME={a: 1};{a: 2}       mappings (COMBINE_KWARGS, ...), and lists of names (LORA_TARGETS), separated by ; alone
    NAME.key=v1,v2           one entry of a mapping, the others as the CONFIG file has them

The same names and values may stand below `sweep:` in the CONFIG file, as lists. All points are checked before the first starts.
Training is not done here: `start` says with which environment train_grpo.py is to be called. Results: sweep_summary.py."""

import hashlib
import itertools
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

from rl.errors import InputError
from rl.registry import nearest
from rl.rewards.setup import trainable
from rl.run.files import checkpoints, read_rows
from rl.settings import checks, config
from rl.settings.declared import LEAVES, NAMES, Kwargs, Leaf, Settings, text_of, value_of, values_of
from rl.settings.paths import as_written
from rl.settings.values import read_mapping, typed
from rl.tasks import load_tasks

OF_THE_SWEEP = ("out", "resume", "run_name", "cache_dir")    # the sweep's own business
BY_ADAPTER = ("lora_rank", "lora_alpha", "lora_targets")     # decided by LORA where that is set
LONGEST = 100                                                # letters of a folder's name


class Axis(NamedTuple):
    """One setting, or with a path one entry of a mapping, and the values it takes."""
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
    environ: dict[str, str]     # of a process that starts it, but for OUT


# ---- from text to a grid ---------------------------------------------------------------------------------------------

def axes_of(config_file: str | Path, asked: Sequence[str]) -> list[Axis]:
    """The axes of `sweep:` in the file and of the texts NAME=values; InputError names all that is wrong with them."""
    problems = []
    inside = read_mapping(config_file, problems).get(config.SWEEP) or {}
    if not isinstance(inside, dict) or not all(isinstance(values, list) for values in inside.values()):
        problems.append(f"{config_file}: {config.SWEEP} should have a list of values for each setting, as in "
                        "learning_rate: [1e-5, 2e-5]")
        inside = {}
    texts = []
    for text in asked:
        name, equals, values = text.partition("=")
        problems += [] if equals else [f"--set {text}: write NAME=value,value"]
        texts += [(name, values)] if equals else []
    axes = [_axis(str(name), values, problems) for name, values in (*inside.items(), *texts)]
    names = [axis.name for axis in axes if axis]
    problems += [f"{name} is given twice" for name in sorted({name for name in names if names.count(name) > 1})]
    if not axes and not problems:
        problems.append(f"nothing to sweep: give --set NAME=value,value, or {config.SWEEP}: in {config_file}")
    if problems:
        raise InputError("\n".join(problems))
    return axes


def _axis(name: str, values: str | list, problems: list[str]) -> Axis | None:
    """The axis of that name; None and a line more in `problems` where it cannot be."""
    key, *path = name.strip().split(".")
    leaf = NAMES.get(key.strip().lower())
    if leaf is None:
        problems.append(f"{name}: unknown setting{nearest(key.lower(), NAMES)}; train_grpo.py --help lists them")
        return None
    if leaf.name in OF_THE_SWEEP or (path and leaf.type is not Kwargs):
        problems.append(f"{name}: " + (f"{leaf.name.upper()} is no mapping, so it has no {'.'.join(path)}" if path else
                                       "every point has its own; leave it out"))
        return None
    found = []
    for value in split_values(leaf, path, values) if isinstance(values, str) else values:
        try:
            found.append(_plain(value) if path else typed(leaf, value))
        except (ValueError, OverflowError):
            problems.append(f"{name}={value}: " + ("not valid YAML" if path else f"{leaf.name.upper()} takes {leaf.limits}"))
    problems += [f"{name}: no values"] * (not values)
    problems += [f"{name}={text_of(value)} is given twice" for at, value in enumerate(found) if value in found[:at]]
    return Axis(leaf, tuple(path), tuple(found))


def split_values(leaf: Leaf, path: Sequence[str], text: str) -> list[str]:
    """The values in a text; mappings and lists of names have commas of their own."""
    commas_inside = ";" in text or (leaf.type is Kwargs and not path) or leaf.names
    return [part.strip() for part in text.split(";" if commas_inside else ",")] if text.strip() else []


def _plain(value):
    """An entry of a mapping from text, ValueError where it is no YAML; YAML 1.1 leaves 1e-5 a text."""
    try:
        found = yaml.safe_load(value) if isinstance(value, str) else value
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError from error
    return float(found) if isinstance(found, str) and re.fullmatch(r"[+-]?[0-9.]+[eE][+-]?[0-9]+", found) else found


def points_of(config_file: str | Path, axes: Sequence[Axis], environ: Mapping[str, str]) -> list[Point]:
    """All points, the last axis changing fastest, each checked; InputError names everything that is wrong with any."""
    refused = [name for name in ("CONFIG", "OUT", "RESUME") if environ.get(name)]
    if refused:
        raise InputError(f"{', '.join(f'{name}={environ[name]}' for name in refused)}: the sweep sets that itself; unset it")
    swept = {name.upper() for axis in axes for name in (axis.leaf.name, *axis.leaf.aliases)}
    outer = {name: value for name, value in environ.items() if name not in swept} | {"CONFIG": str(config_file)}
    base = as_written(config.load(outer).settings) if any(axis.path for axis in axes) else None
    points, problems, load = [], [], cache(load_tasks)    # most points share their tasks
    for values in itertools.product(*(axis.values for axis in axes)):
        own = environ_of(axes, values, base)
        try:
            settings = config.load(outer | own, training=True).settings
            trainable(settings, load)
        except config.SettingsError as error:
            problems += error.problems
            continue
        except InputError as error:
            problems.append(str(error))
            continue
        chosen = {axis.name: text_of(value) for axis, value in zip(axes, values, strict=True)}
        points.append(Point(folder_name(axes, values), chosen, settings, outer | own))
    if problems:
        raise InputError("\n".join(["nothing was started:", *dict.fromkeys(problems)]))
    return points


def environ_of(axes: Sequence[Axis], values: Sequence, base: Settings | None) -> dict[str, str]:
    """The variables of a point; entries of mappings go into the mapping as `base` or another axis has it."""
    found = {axis.leaf.name: value for axis, value in zip(axes, values, strict=True) if not axis.path}
    for axis, value in zip(axes, values, strict=True):
        if axis.path:
            inner = tree = json.loads(found.get(axis.leaf.name, value_of(base, axis.leaf.name)))
            for key in axis.path[:-1]:
                inner[key] = inner = dict(inner[key]) if isinstance(inner.get(key), dict) else {}
            inner[axis.path[-1]] = value
            found[axis.leaf.name] = json.dumps(tree, sort_keys=True)
    return {name.upper(): text_of(value) for name, value in found.items()}


def folder_name(axes: Sequence[Axis], values: Sequence) -> str:
    """run_<setting>-<value>_..., the same for the same point; what is too long or was spelt out ends in a digest."""
    said = [f"{(axis.path or (axis.leaf.name,))[-1]}-{text_of(value)}" for axis, value in zip(axes, values, strict=True)]
    name = "run_" + "_".join(re.sub(r"[^A-Za-z0-9.+_]+", "-", part).strip("-") for part in said)
    told_apart = all(re.fullmatch(r"[A-Za-z0-9.+_-]+", part) for part in said) and len(name) <= LONGEST
    whole = json.dumps([[axis.name for axis in axes], said])
    return name if told_apart else f"{name[:LONGEST - 7]}-{hashlib.sha256(whole.encode()).hexdigest()[:6]}"


# ---- points and their folders ----------------------------------------------------------------------------------------

def check_folders(points: Sequence[Point], out: Path) -> None:
    """InputError names each folder that is there with other settings, or with a log and nothing to go on from."""
    problems = []
    names = [point.name for point in points]
    problems += [f"two points would both be {name}" for name in sorted({name for name in names if names.count(name) > 1})]
    for point in points:
        run = out / point.name
        if not checkpoints(run) and read_rows(run / "metrics.jsonl"):
            problems.append(f"{run} has a log but no complete checkpoint: move it away")
        elif (run / "config.yaml").is_file() and checkpoints(run):
            differs = differing(config.load({"CONFIG": str(run / "config.yaml")}).settings, point.settings)
            problems += [f"{run} was started with other settings: {'; '.join(differs)}"] if differs else []
    if problems:
        raise InputError("\n".join(["nothing was started:", *problems, "Give another --out, or take back what changed"]))


def differing(before: Settings, wanted: Settings) -> list[str]:
    """In which settings a run is another than the one that is wanted, those aside that a resume may change or a run decides."""
    old, new = values_of(as_written(before)), values_of(as_written(wanted))
    left_open = {name for name in ("remat", "update_samples") if new[name] == LEAVES[name].default}
    ours = set(OF_THE_SWEEP) | left_open | (set(BY_ADAPTER) if new["lora"] else set())
    return [f"{name.upper()}={text_of(old[name])}, now {text_of(new[name])}" for name in LEAVES
            if name not in ours and old[name] != new[name] and checks.keeps(name, old["scheduler"])]


def is_finished(point: Point, run: Path) -> bool:
    """Whether the run has all its steps."""
    return max(checkpoints(run), default=-1) >= point.settings.trainer.steps


def start(point: Point, run: Path) -> dict[str, str]:
    """The environment in which train_grpo.py starts the run or goes on with it."""
    if checkpoints(run):
        keeps = {name: value for name, value in point.environ.items() if name != "CONFIG" and name.lower() not in NAMES}
        may_change = {name.upper(): text_of(value_of(point.settings, name)) for name, leaf in LEAVES.items() if leaf.on_resume}
        return keeps | may_change | {"RESUME": str(run.resolve())}
    if run.exists():    # killed before its first checkpoint, which is there before the first step
        shutil.rmtree(run)
    return point.environ | {"OUT": str(run.resolve())}
