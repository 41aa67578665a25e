"""What report.html is made of: a run's log, its settings, its probes, read from whatever is there.

A run that is still going, one that crashed, one whose logs are damaged: what can be read is used, and what cannot is named
in `missing`. Only a folder that holds no run at all, or a probe that the user named and that is none, is an error.
No text of the page is made here.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from rl.errors import InputError
from rl.evaluation.probe_report import Comparison, ProbeError, compare, read
from rl.evaluation.signs import WINDOWS, Signs, signs_of
from rl.pages.samples import Side, probe_side, run_sides, short
from rl.run.files import LogError
from rl.run.log import EVALUATIONS, metric_value
from rl.settings.config import ABOUT, ORIGINS

SPLITS = {"train": "Training tasks", "heldout": "Held-out tasks"}    # those that an experiment probes, with their titles
# What reading damaged files can raise; an error in this program that is none of these is not hidden.
DAMAGE = (LogError, LookupError, TypeError, ValueError, AttributeError, RecursionError, OSError, yaml.YAMLError)


class Probes(NamedTuple):
    """Two probes of the same tasks, before and after training, and their difference; `title` says which tasks."""
    title: str
    docs: tuple[dict, dict]
    result: Comparison
    sides: tuple[Side, Side]


class Report(NamedTuple):
    """A run as far as it can be read. `rows`: metrics by step; `evals`: evaluations on the way; `own`: the run's own samples,
    where there are no probes."""
    run: Path
    rows: list[dict]
    evals: list[dict]
    settings: dict[str, dict[str, Any]]    # section -> name -> value, as config.yaml has them
    origins: dict[str, str]                # name -> where its value came from; defaults, and all of older runs, are left out
    about: dict[str, Any]
    signs: Signs | None
    probes: list[Probes]
    own: tuple[Side, Side] | None
    missing: list[str]

    @property
    def steps(self) -> int | None:
        """How many steps the run was to have."""
        asked = self.settings.get("trainer", {}).get("steps")
        return asked if isinstance(asked, int) else None

    @property
    def curve_rows(self) -> list[dict]:
        """What the curves show: every step's metrics with its evaluation, the base model's at step 0."""
        found = {row["step"]: row for row in self.rows}
        for row in self.evals if self.rows else []:
            found[row["step"]] = row | found.get(row["step"], {})
        return [found[step] for step in sorted(found)]


def asked(doc: str, arguments: Sequence[str]) -> tuple[argparse.Namespace, list[tuple[Path, Path]]]:
    """The command line of a report, whose help is `doc`: run and out, and the pairs of probes that --before and --after name."""
    parser = argparse.ArgumentParser(usage=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--before", type=Path, action="append", default=[])
    parser.add_argument("--after", type=Path, action="append", default=[])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    if len(given.before) != len(given.after):
        parser.error("give --before and --after in pairs")
    return given, [*zip(given.before, given.after, strict=True)]


def gather(folder: Path, given: Sequence[tuple[Path, Path]] = ()) -> Report:
    """All of a run, or of an experiment's folder; `given` pairs of probes, else those that lie in the folder."""
    run, beside = parts_of(folder)
    missing: list[str] = []
    probes = [_probes("", before, after) for before, after in given] or found_probes(beside, missing)
    traces = [run / "config.yaml", run / "metrics.jsonl", run / "completions", *_baselines(beside)]
    if not probes and not any(path.exists() for path in traces):
        what = "no such folder" if not folder.is_dir() else "no run in it: neither config.yaml nor metrics.jsonl nor probes"
        raise InputError(f"{folder}: {what}; name the folder that training wrote (OUT), or that of run_experiment.sh")
    config = _attempt("settings", lambda: read_config(run / "config.yaml"), {}, missing)
    rows, evals = read_metrics(run / "metrics.jsonl", missing), read_evaluations(run / EVALUATIONS, missing)
    signs = _attempt("gaming signs", lambda: signs_of(run), None, missing) if rows else None
    if rows and (without := [row["step"] for row in rows if not _completions(run, row["step"]).is_file()]):
        missing.append(f"completions: of {len(without)} of {len(rows)} steps, the first is {without[0]}")
    own = None if probes or not rows else _attempt("samples", lambda: run_sides(run), None, missing)
    origins, about = ({} if not isinstance(part := config.pop(name, None), dict) else part for name in (ORIGINS, ABOUT))
    return Report(run, rows, evals, {name: part for name, part in config.items() if isinstance(part, dict)}, origins, about,
                  signs, probes, own, missing)


def parts_of(folder: Path) -> tuple[Path, Path | None]:
    """The run's folder, and the experiment's where the folder is one or lies in one."""
    if (folder / "train").is_dir() or _baselines(folder):
        return folder / "train", folder
    above = folder.resolve().parent
    return folder, above if folder.resolve().name == "train" and _baselines(above) else None


def _baselines(experiment: Path | None) -> list[Path]:
    return sorted(experiment.glob("baseline-*.json")) if experiment else []


# ---- probes ----------------------------------------------------------------------------------------------------------

def found_probes(experiment: Path | None, missing: list[str]) -> list[Probes]:
    """The finished pairs in an experiment's folder; a probe whose partner is not there yet is told of in `missing`."""
    found = []
    if experiment is None:
        missing.append("probes: none beside the run; --before and --after name them, run_probe.py makes them")
        return found
    for split, title in SPLITS.items():
        before, after = experiment / f"baseline-{split}.json", experiment / f"final-{split}.json"
        if before.exists() and after.exists():
            made = _attempt(f"probes, {split}", lambda title=title, b=before, a=after: _probes(title, b, a), None, missing)
            found += [made] if made else []
        elif not before.exists():
            missing.append(f"probes, {split}: {before.name} is not there")
        else:
            base = _attempt(f"probes, {split}", lambda b=before: _base_figures(read(b)), "", missing)
            missing.append(f"probes, {split}: {after.name} is not there{base}")
    return found


def _probes(title: str, before: Path, after: Path) -> Probes:
    docs = read(before), read(after)
    try:
        title = title or f"{SPLITS.get(docs[1]['settings']['split'], 'All tasks')}, {short(after)}"
        return Probes(title, docs, compare(*docs), (probe_side(docs[0]), probe_side(docs[1])))
    except ProbeError as error:
        raise ProbeError(f"{before} and {after}: {error}") from error
    except DAMAGE as error:
        raise ProbeError(f"{before} and {after}: one is not a whole probe ({type(error).__name__}: {error}); give files that "
                         "run_probe.py wrote") from error


def _base_figures(doc: dict) -> str:
    rate, reward = doc["summary"]["pass_rate"], doc["summary"]["reward"]
    return (f"; before training, pass rate {rate['value']:.3f} [{rate['low']:.3f}, {rate['high']:.3f}], "
            f"mean reward {reward['value']:.3f}")


# ---- the run's files -------------------------------------------------------------------------------------------------

def read_config(path: Path) -> dict:
    """config.yaml as a dict; an error says why not."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError("holds no settings")
    return found


def read_metrics(path: Path, missing: list[str]) -> list[dict]:
    """The rows that can be read, by step; a torn end and damaged rows are counted in `missing`."""
    if not path.exists():
        missing.append("metrics: no metrics.jsonl, so no step has ended yet")
        return []
    if not (rows := _rows("metrics", path, missing)):
        missing.append("metrics: no step has ended yet")
    return rows


def read_evaluations(path: Path, missing: list[str]) -> list[dict]:
    """The evaluations on the way that can be read, by step; a run need not have any."""
    return _rows("evaluations", path, missing) if path.exists() else []


def _rows(what: str, path: Path, missing: list[str]) -> list[dict]:
    *lines, torn = _attempt(what, path.read_bytes, b"", missing).split(b"\n")
    found = [_row(line) for line in lines]
    rows = {row["step"]: row for row in found if row}
    if torn:
        missing.append(f"{what}: the last row is torn (the run is writing it, or was killed while it did); it is left out")
    if None in found:
        missing.append(f"{what}: {found.count(None)} damaged rows are left out")
    return [rows[step] for step in sorted(rows)]


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
    """What `make` gives; where the files it reads are damaged, `otherwise`, and the reason in `missing`."""
    try:
        return make()
    except DAMAGE as error:
        reason = error.strerror or error if isinstance(error, OSError) and error.strerror else error
        said = str(reason) if isinstance(error, InputError | OSError) else f"{type(error).__name__}: {reason}"
        missing.append(f"{what}: cannot be read ({said})")
        return otherwise


# ---- figures ---------------------------------------------------------------------------------------------------------

def windows(rows: Sequence[dict]) -> tuple[Sequence[dict], Sequence[dict]]:
    """The first and the last fifth of the steps, as the gaming signs compare them."""
    width = max(1, len(rows) // WINDOWS)
    return rows[:width], rows[-width:]


def mean(rows: Sequence[dict], name: str) -> float | None:
    """Mean of a metric over the rows that have a value; None where none has."""
    found = [number for row in rows if (number := metric_value(row, name)) is not None]
    return sum(found) / len(found) if found else None


def total(rows: Sequence[dict], name: str) -> float:
    """Sum of a metric over the rows that have a value."""
    return sum(metric_value(row, name) or 0.0 for row in rows)
