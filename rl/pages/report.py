"""Reads what report.html shows: a run's log, settings and probes.

Of a run that is unfinished, crashed or damaged, whatever can be read is used and the rest is listed in `missing`. Only a folder
without any run, or a probe that the user named and that cannot be read, is an error. The page itself is report_page.py.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from rl.errors import InputError
from rl.evaluation.probe_report import Comparison, ProbeError, compare, read
from rl.evaluation.signs import Signs, signs_of
from rl.pages.samples import Side, probe_side, run_sides, short
from rl.run.files import LogError
from rl.run.log import EVALUATIONS
from rl.settings.config import ABOUT, ORIGINS

SPLITS = {"train": "Training tasks", "heldout": "Held-out tasks"}    # the splits that an experiment probes, with their titles
# What reading damaged files can raise; any other exception is an error of this program and is not hidden.
DAMAGE = (LogError, LookupError, TypeError, ValueError, AttributeError, RecursionError, OSError, yaml.YAMLError)


class Probes(NamedTuple):
    """Two probes of the same tasks, before and after training; `title` says which tasks."""
    title: str
    docs: tuple[dict, dict]
    comparison: Comparison
    sides: tuple[Side, Side]


class Report(NamedTuple):
    """A run as far as it can be read."""
    run: Path
    rows: list[dict]                       # metrics, in order of steps
    evals: list[dict]                      # evaluations during training, in order of steps
    settings: dict[str, dict[str, Any]]    # section -> name -> value, as in config.yaml
    origins: dict[str, str]                # name -> where its value came from; defaults are left out, and older runs have none
    about: dict[str, Any]
    signs: Signs | None
    probes: list[Probes]
    own_samples: tuple[Side, Side] | None  # the run's own, without probes
    missing: list[str]

    @property
    def steps(self) -> int | None:
        """The number of steps that the run was to have."""
        steps = self.settings.get("trainer", {}).get("steps")
        return steps if isinstance(steps, int) else None

    @property
    def curve_rows(self) -> list[dict]:
        """What the curves show: the metrics of every step with its evaluation, the base model's at step 0."""
        by_step = {row["step"]: row for row in self.rows}
        for row in self.evals if self.rows else []:
            by_step[row["step"]] = row | by_step.get(row["step"], {})
        return [by_step[step] for step in sorted(by_step)]


def parse_arguments(doc: str, arguments: Sequence[str]) -> tuple[argparse.Namespace, list[tuple[Path, Path]]]:
    """The command line of a script with help `doc`: `run` and `out`, and the pairs of probes from --before and --after."""
    parser = argparse.ArgumentParser(usage=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--before", type=Path, action="append", default=[])
    parser.add_argument("--after", type=Path, action="append", default=[])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    if len(given.before) != len(given.after):
        parser.error("give --before and --after in pairs")
    return given, [*zip(given.before, given.after, strict=True)]


def gather(folder: Path, pairs: Sequence[tuple[Path, Path]] = ()) -> Report:
    """All of a run, or of an experiment's folder, with these pairs of probes or else those in the folder.

    InputError where there is neither a run nor a probe, or where one of `pairs` cannot be read."""
    run, experiment = parts_of(folder)
    missing: list[str] = []
    probes = [read_probes("", before, after) for before, after in pairs] or find_probes(experiment, missing)
    traces = [run / "config.yaml", run / "metrics.jsonl", run / "completions", *_baselines(experiment)]
    if not probes and not any(path.exists() for path in traces):
        what = "no such folder" if not folder.is_dir() else "no run in it: neither config.yaml nor metrics.jsonl nor probes"
        raise InputError(f"{folder}: {what}; give the folder that training wrote (OUT), or that of run_experiment.sh")
    config = _attempt("settings", lambda: read_config(run / "config.yaml"), {}, missing)
    rows, evals = read_metrics(run / "metrics.jsonl", missing), read_evaluations(run / EVALUATIONS, missing)
    signs = _attempt("signs", lambda: signs_of(run), None, missing) if rows else None
    if rows and (without := [row["step"] for row in rows if not _completions(run, row["step"]).is_file()]):
        missing.append(f"completions: missing for {len(without)} of {len(rows)} steps, first for step {without[0]}")
    own_samples = None if probes or not rows else _attempt("samples", lambda: run_sides(run), None, missing)
    parts = {name: part for name, part in config.items() if isinstance(part, dict)}
    origins, about = parts.pop(ORIGINS, {}), parts.pop(ABOUT, {})
    return Report(run=run, rows=rows, evals=evals, settings=parts, origins=origins, about=about, signs=signs, probes=probes,
                  own_samples=own_samples, missing=missing)


def parts_of(folder: Path) -> tuple[Path, Path | None]:
    """The run's folder, and the experiment's if the given folder is one or is inside one."""
    if (folder / "train").is_dir() or _baselines(folder):
        return folder / "train", folder
    parent = folder.resolve().parent
    return folder, parent if folder.resolve().name == "train" and _baselines(parent) else None


def _baselines(experiment: Path | None) -> list[Path]:
    return sorted(experiment.glob("baseline-*.json")) if experiment else []


# ---- probes ----------------------------------------------------------------------------------------------------------

def probe_files(experiment: Path, split: str) -> tuple[Path, Path]:
    """Where run_experiment.sh writes the probes of a split, before and after training."""
    return experiment / f"baseline-{split}.json", experiment / f"final-{split}.json"


def find_probes(experiment: Path | None, missing: list[str]) -> list[Probes]:
    """The finished pairs in an experiment's folder; what is not there yet is listed in `missing`."""
    if experiment is None:
        missing.append("probes: none next to the run; make them with run_probe.py, name them with --before and --after")
        return []
    probes = []
    for split, title in SPLITS.items():
        before, after = probe_files(experiment, split)
        if not before.exists():
            missing.append(f"probes, {split}: no {before.name}")
        elif not after.exists():
            figures = _attempt(f"probes, {split}", lambda path=before: _figures(read(path)), "", missing)
            missing.append(f"probes, {split}: no {after.name}{figures}")
        elif pair := _attempt(f"probes, {split}", lambda title=title, b=before, a=after: read_probes(title, b, a), None, missing):
            probes.append(pair)
    return probes


def read_probes(title: str, before: Path, after: Path) -> Probes:
    """Two probes and their comparison; ProbeError names the files. Without a title, one is made from the split and the name."""
    docs = read(before), read(after)
    try:
        title = title or f"{SPLITS.get(docs[1]['settings']['split'], 'All tasks')}, {short(after)}"
        return Probes(title, docs, compare(*docs), (probe_side(docs[0]), probe_side(docs[1])))
    except ProbeError as error:
        raise ProbeError(f"{before} and {after}: {error}") from error
    except DAMAGE as error:
        raise ProbeError(f"{before} and {after}: one of them is incomplete ({type(error).__name__}: {error}); give files that "
                         "run_probe.py wrote") from error


def _figures(doc: dict) -> str:
    rate, reward = doc["summary"]["pass_rate"], doc["summary"]["reward"]
    return (f"; before training, pass rate {rate['value']:.3f} [{rate['low']:.3f}, {rate['high']:.3f}], "
            f"mean reward {reward['value']:.3f}")


# ---- the run's files -------------------------------------------------------------------------------------------------

def read_config(path: Path) -> dict:
    """config.yaml as a dict; ValueError where it is not one."""
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise ValueError("not a mapping of settings")
    return config


def read_metrics(path: Path, missing: list[str]) -> list[dict]:
    """The rows that can be read, by step; damaged rows are reported in `missing`."""
    if not path.exists():
        missing.append("metrics: no metrics.jsonl, so no step has finished yet")
        return []
    if not (rows := _rows("metrics", path, missing)):
        missing.append("metrics: no step has finished yet")
    return rows


def read_evaluations(path: Path, missing: list[str]) -> list[dict]:
    """The evaluations during training that can be read, by step; a run need not have any."""
    return _rows("evaluations", path, missing) if path.exists() else []


def _rows(what: str, path: Path, missing: list[str]) -> list[dict]:
    *lines, torn = _attempt(what, path.read_bytes, b"", missing).split(b"\n")
    rows = [_row(line) for line in lines]
    by_step = {row["step"]: row for row in rows if row}
    if torn:
        missing.append(f"{what}: the last row is incomplete (being written, or cut off by a kill) and left out")
    if None in rows:
        missing.append(f"{what}: {rows.count(None)} damaged rows are left out")
    return [by_step[step] for step in sorted(by_step)]


def _row(line: bytes) -> dict | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    good = isinstance(row, dict) and type(row.get("step")) is int and 0 <= row["step"] < 1e12
    return row if good else None


def _completions(run: Path, step: int) -> Path:
    return run / "completions" / f"completions_{step:05d}.jsonl"


def _attempt(what: str, make: Callable[[], Any], otherwise: Any, missing: list[str]) -> Any:
    """The result of `make`; where it meets damaged files, `otherwise`, with the reason in `missing`."""
    try:
        return make()
    except DAMAGE as error:
        reason = error.strerror or error if isinstance(error, OSError) else error
        kind = "" if isinstance(error, InputError | OSError) else f"{type(error).__name__}: "
        missing.append(f"{what}: cannot be read ({kind}{reason})")
        return otherwise
