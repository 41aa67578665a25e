"""Evaluations of runs as figures and files: results.jsonl with a row a checkpoint, summary.csv, summary.json, curves/*.svg.

Several processes may add rows to one folder: each row is appended in turn, and a tail that a kill tore off is cut before. What
is made from the rows is made anew from all of them every time. Accuracy has Wilson's interval where there is one answer a task,
else one that resamples tasks, as the mean reward has. Thinking is what stands in the one thinking block, counted in words over
the samples that have one; `malformed` is the share that have none. Nothing here runs a model."""

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rl.datalog import Group, append_rows, graded, plain, read_rows, write_aside
from rl.errors import InputError
from rl.evaluation.run_curves import PICTURES, picture
from rl.evaluation.stats import Interval, bootstrap, wilson
from rl.lock import in_turn
from rl.words.text_rewards import thinking

FORMAT = "evaluation 1"
RESULTS = "results.jsonl"
BASE = "base"    # the run name of a model without adapter
COLUMNS = ("run", "step", "model", "tasks", "samples", "accuracy", "accuracy_low", "accuracy_high", "reward", "reward_low",
           "reward_high", "thinking_mean", "thinking_median", "thinking_p90", "malformed", "cut", "tokens_mean", "ungraded",
           "trained_on", "seconds")


class Key(NamedTuple):
    """What tells one evaluation from another; `measured` is the digest of how it was measured."""
    run: str
    step: int
    measured: str


def key_of(row: dict) -> Key:
    """The key of a row of results.jsonl."""
    return Key(row["run"], row["step"], row["measured"])


def figures(groups: Sequence[Group], tag: str | None) -> dict[str, float | None]:
    """The numbers of one checkpoint's answers; without a tag (programs have no thinking) those of thinking are None."""
    kept = [graded(group.samples) for group in groups]
    samples = [sample for group in groups for sample in group.samples]
    accuracy, reward = accuracy_of(kept), means_over_tasks([[sample.reward for sample in part] for part in kept])
    lengths = [None if (block := thinking(sample.text, tag)) is None else len(block.split()) for sample in samples] if tag else []
    whole = [length for length in lengths if length is not None]
    return plain({
        "tasks": len(groups), "samples": len(samples), **_named("accuracy", accuracy), **_named("reward", reward),
        "thinking_mean": float(np.mean(whole)) if whole else None,
        "thinking_median": float(np.median(whole)) if whole else None,
        "thinking_p90": float(np.quantile(whole, 0.9)) if whole else None,
        "malformed": 1 - len(whole) / len(lengths) if lengths else None,
        "cut": sum(sample.finish == "length" for sample in samples) / len(samples),
        "tokens_mean": sum(sample.tokens for sample in samples) / len(samples),
        "ungraded": len(samples) - sum(map(len, kept))})


def accuracy_of(kept: Sequence[Sequence]) -> Interval:
    """Share of graded samples that are correct, tasks as given."""
    passed, counts = [sum(sample.correct for sample in part) for part in kept], [len(part) for part in kept]
    if max(counts, default=0) <= 1:
        return wilson(sum(passed), sum(counts))
    found = bootstrap(passed, counts)
    if found.value in (0, 1):    # resampling equal tasks shows no doubt at all; each task is one trial then
        tried = sum(count > 0 for count in counts)
        return wilson(tried * int(found.value), tried)
    return found


def means_over_tasks(values: Sequence[Sequence[float]]) -> Interval:
    """The mean of all values with the interval that resamples tasks."""
    if not any(values):
        return Interval(math.nan, math.nan, math.nan)
    return bootstrap([math.fsum(part) for part in values], [len(part) for part in values])


def _named(name, interval):
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


# ---- files -----------------------------------------------------------------------------------------------------------

def add_row(out: Path, row: dict) -> None:
    """Append the row to results.jsonl unless its key is there."""
    path = out / RESULTS
    with in_turn(out):
        cut_torn(path)
        if key_of(row) not in set(map(key_of, read_results(out))):
            append_rows(path, [row])


def cut_torn(path: Path) -> None:
    """Cut what stands behind the last whole row, which a kill left."""
    if path.exists() and not (data := path.read_bytes()).endswith(b"\n"):
        write_aside(path, data[: data.rfind(b"\n") + 1])


def read_results(out: Path) -> list[dict]:
    """The rows of results.jsonl, none where there is none; InputError where a row is no evaluation."""
    rows = read_rows(out / RESULTS)
    bad = [number for number, row in enumerate(rows, 1) if not isinstance(row, dict) or not {*Key._fields, *COLUMNS} <= set(row)]
    if bad:
        raise InputError(f"{out / RESULTS}: row {bad[0]} is no evaluation of this program; choose another --out")
    return rows


def jsonl(rows: Sequence[dict]) -> bytes:
    """The rows as JSON lines."""
    return b"".join(json.dumps(plain(row), allow_nan=False).encode() + b"\n" for row in rows)


def write_summary(out: Path, about: dict) -> list[dict]:
    """summary.csv, summary.json and curves/ from all rows; returns them, in order of run and step."""
    with in_turn(out):
        rows = sorted(read_results(out), key=lambda row: (row["run"] != BASE, row["run"], row["step"], row["measured"]))
        differing = differing_settings(rows)
        shown = [{name: row[name] for name in COLUMNS} | {"settings": said(row, differing)} for row in rows]
        write_aside(out / "summary.csv", csv_text(shown).encode())
        write_aside(out / "summary.json", json.dumps({"format": FORMAT, **about, "rows": shown}, indent=1).encode() + b"\n")
        (out / "curves").mkdir(exist_ok=True)
        for kind in PICTURES:
            lines = lines_of(rows, kind.metric)
            if (drawn := picture(kind, lines, frozenset(name for name in lines if name.split()[0] == BASE))) is not None:
                write_aside(out / "curves" / f"{kind.name}.svg", f"{drawn}\n".encode())
    return shown


def csv_text(rows: Sequence[dict]) -> str:
    """The rows as CSV, what is missing blank."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*COLUMNS, "settings"], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if value is None else value for name, value in row.items()} for row in rows)
    return text.getvalue()


def differing_settings(rows: Sequence[dict]) -> list[str]:
    """The settings in which the runs differ."""
    runs = [row["settings"] for row in rows if row["run"] != BASE]
    return [name for name in (runs[0] if runs else {}) if any(run.get(name) != runs[0][name] for run in runs)]


def said(row: dict, names: Sequence[str]) -> str:
    """Those settings of a row as one would type them."""
    return "" if row["run"] == BASE else " ".join(f"{name.upper()}={row['settings'].get(name)}" for name in names)


def lines_of(rows: Sequence[dict], metric: str) -> dict[str, list[tuple[int, float, float | None, float | None]]]:
    """Run -> (step, value, low, high) of the metric in order of steps, those that have a value; base models by digest."""
    lines, bases = {}, len({row["measured"] for row in rows if row["run"] == BASE})
    for row in rows:
        name = f"{BASE} {row['measured']}" if row["run"] == BASE and bases > 1 else row["run"]
        points = lines.setdefault(name, [])
        if row[metric] is not None:
            points.append((row["step"], row[metric], row.get(f"{metric}_low"), row.get(f"{metric}_high")))
    return lines


def table(rows: Sequence[dict]) -> str:
    """The rows for a terminal."""
    width = max(len(row["run"]) for row in rows)
    lines = [f"{'run':<{width}}   step  accuracy  95 % interval     reward  words of thinking: mean  median     p90  malformed"
             "    cut"]
    for row in rows:
        numbers = [_shown(row[name], digits) for name, digits in (
            ("accuracy", 3), ("accuracy_low", 3), ("accuracy_high", 3), ("reward", 3), ("thinking_mean", 1),
            ("thinking_median", 1), ("thinking_p90", 1), ("malformed", 3), ("cut", 3))]
        accuracy, low, high, reward, mean, median, p90, malformed, cut = numbers
        lines.append(f"{row['run']:<{width}} {row['step']:>6} {accuracy:>9}  [{low}, {high}]  {reward:>8}  {mean:>23} "
                     f"{median:>7} {p90:>7} {malformed:>10} {cut:>6}")
    return "\n".join(lines)


def _shown(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"
