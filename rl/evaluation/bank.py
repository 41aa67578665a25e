"""The evaluation bank: sets of held-out tasks, each answered greedily and with samples, and what an adapter gained on them.

    OUT/measured/<set>-<greedy|samples>-<key>.json    a part, in the form of a probe; the key stands for all that decides it
    OUT/<model>-<key>.json                            the table of a model
    OUT/<model>+<adapter>-<key>.json                  the table of an adapter beside its model

A part that is there is not measured again: an interrupted bank goes on where it was, and all adapters of a model are compared
with one measurement of it. Other weights, tasks, hidden cases or settings have another key, and so another file.

Greedy answers and tasks solved at least once are one trial a task, so they have Wilson's interval; pass@1 of the samples and all
gains resample tasks (rl/evaluation/stats.py). Nothing here runs a model."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError
from rl.evaluation.probe_report import ProbeError, Row, read, rows_from
from rl.evaluation.stats import Gain, Interval, gain_text, number_text, paired_bootstrap, pass_rate, wilson
from rl.registry import nearest
from rl.run.files import jsonable
from rl.settings.declared import Kwargs, Settings
from rl.tasks import BaseTask, Task, hidden_inputs

FORMAT = "bank 1"
MEASURED = "measured"
MODES = ("greedy", "samples")
SETS = ("generated", "lc_easy", "humaneval", "mbpp")
MADE = {"count": 3000}    # the generated tasks that held-out ones are chosen from
SHOWN = 12    # names of tasks in a line of text; the file has all


# ---- what is measured --------------------------------------------------------------------------------------------------


def sets_of(settings: Settings) -> tuple[dict[str, Settings], list[str]]:
    """(set -> the settings of its tasks, a line for each set without a file); InputError where one is unknown or none is left."""
    bank = settings.bank
    files = {"humaneval": bank.humaneval_file, "mbpp": bank.mbpp_file}
    names = dict.fromkeys(name.strip() for name in bank.bank_sets.split(","))
    if unknown := [f"{name!r}{nearest(name, SETS)}" for name in names if name not in SETS]:
        raise InputError(f"BANK_SETS={bank.bank_sets}: no such set: {', '.join(unknown)}; there are {', '.join(SETS)}")
    chosen, left_out = {}, []
    for name in names:
        if name in files and not files[name]:
            left_out.append(f"{name} is left out: {name.upper()}_FILE is not set")
            continue
        kwargs = Kwargs(json.dumps(MADE if name == "generated" else {}))
        chosen[name] = replace(settings, data=replace(settings.data, tasks=name, tasks_file=files.get(name, ""), split="heldout",
                                                      provider_kwargs=kwargs))
    if not chosen:
        raise InputError("\n".join([*left_out, f"BANK_SETS={bank.bank_sets}: no set is left to measure"]))
    return chosen, left_out


def at_most(name: str, tasks: Sequence[BaseTask], settings: Settings) -> list[BaseTask]:
    """The first of a set's tasks in their fixed shuffled order: BANK_TASKS, and of generated ones BANK_GENERATED."""
    limits = [settings.bank.bank_tasks, settings.bank.bank_generated if name == "generated" else 0]
    return list(tasks[:min(filter(None, limits), default=len(tasks))])


def in_mode(settings: Settings, mode: str) -> Settings:
    """The settings with one greedy answer for each task, or with N_SAMPLES of them as they stand."""
    greedy = replace(settings.generation, n_samples=1, temperature=0.0)
    return replace(settings, generation=greedy) if mode == "greedy" else settings


class Part(NamedTuple):
    """One measurement: a set of tasks, answered by a model or by a model with an adapter."""

    set: str
    mode: str
    how: dict    # all that the figures depend on

    @property
    def key(self) -> str:
        """Stands for `how`."""
        return _digest(self.how)

    def path(self, out: Path) -> Path:
        """Its file."""
        return out / MEASURED / f"{self.set}-{self.mode}-{self.key}.json"


def part_of(name: str, mode: str, settings: Settings, **digests: str | int) -> Part:
    """The part of a set; digests: those of model, adapter ("" for none) and tasks, the number of tasks, and the dtype."""
    g = settings.generation
    how = digests | {"max_new_tokens": g.max_new_tokens, "case_seconds": settings.sandbox.case_seconds}
    if mode == "samples":
        how |= {"n_samples": g.n_samples, "temperature": g.temperature, "top_k": g.top_k, "top_p": g.top_p,
                "seed": settings.trainer.seed}
    return Part(name, mode, how)


def tasks_digest(tasks: Sequence[BaseTask], settings: Settings) -> str:
    """A digest of what is asked and how answers are graded: prompts, references, hidden inputs, and the set's file."""
    file = Path(settings.data.tasks_file).read_bytes() if settings.data.tasks_file else b""
    asked = [[task.name, task.messages(settings.data.style_hint), task.reference,
              repr(hidden_inputs(task, settings.data.case_seed)) if isinstance(task, Task) and task.generate else ""]
             for task in tasks]
    return _digest([asked, hashlib.sha256(file).hexdigest()])


def file_digest(path: Path) -> str:
    """A digest of a model's files: the .gguf file, or the folder's weights, shapes and tokenizer."""
    patterns = ("*.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json")
    files = [path] if path.is_file() else sorted(file for pattern in patterns for file in path.glob(pattern))
    digest = hashlib.sha256()
    for file in files:
        with open(file, "rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()[:16]


def _digest(value) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


# ---- parts that are there ----------------------------------------------------------------------------------------------


def found(part: Part, out: Path) -> dict | None:
    """The part's document, None where it was not measured yet; InputError for a file that is damaged or of another part."""
    path = part.path(out)
    try:
        doc = read(path) if path.exists() else None
    except ProbeError as error:
        raise InputError(f"{path} is damaged ({error}): remove it, and it is measured again") from error
    if doc and doc.get("how") != part.how:
        raise InputError(f"{path} was not measured as its name says: remove it, and it is measured again")
    return doc


def other_settings(part: Part, out: Path) -> str:
    """What differs in the likest measurement of the same set by the same model and adapter, "" where there is none."""
    others = []
    for path in sorted((out / MEASURED).glob(f"{part.set}-{part.mode}-*.json")):
        with suppress(ProbeError):
            how = read(path)["how"]
            differs = [name for name in part.how if how.get(name) != part.how[name]]
            if not {"model", "adapter"} & {*differs}:
                others.append((differs, how))
    differs, how = min(others, key=lambda other: len(other[0]), default=([], {}))
    if "n_tasks" in differs:    # then the tasks differ anyway
        differs.remove("tasks")
    return ", ".join("other tasks or hidden cases" if name == "tasks" else f"{name.upper()} {how.get(name)} / {part.how[name]}"
                     for name in differs)


# ---- figures -----------------------------------------------------------------------------------------------------------

LABELS = {"greedy": "pass@1 greedy", "samples": "pass@1 of {n}", "solved": "solved in {n}"}


def columns(greedy: Sequence[Row], samples: Sequence[Row]) -> dict[str, dict[str, tuple[int, int]]]:
    """Measure -> task -> (passes, trials): of the greedy answer, of the samples, and of the task itself."""
    return {"greedy": {row.task: (row.passed, row.graded) for row in greedy},
            "samples": {row.task: (row.passed, row.graded) for row in samples},
            "solved": {row.task: (int(row.passed > 0), int(row.graded > 0)) for row in samples}}


def levels(of: dict[str, dict[str, tuple[int, int]]]) -> dict[str, Interval]:
    """Each measure with its interval."""
    found = {}
    for name, tasks in of.items():
        passed, trials = zip(*tasks.values(), strict=True)
        found[name] = pass_rate(passed, trials) if name == "samples" else wilson(sum(passed), sum(trials))
    return found


class Change(NamedTuple):
    """A measure of the adapter against the base, on the same tasks."""

    gain: Gain
    gained: list[str]    # tasks that pass with the adapter alone; of samples: at least once
    lost: list[str]


def changes(before: dict[str, dict], after: dict[str, dict]) -> dict[str, Change]:
    """Each measure's change, from columns of the same tasks."""
    result = {}
    for name, old in before.items():
        pairs = [(old[task], after[name][task], task) for task in old]
        sides = [[pair[side][part] for pair in pairs] for part in (0, 1) for side in (0, 1)]
        both = [(a[0] > 0, b[0] > 0, task) for a, b, task in pairs if a[1] and b[1]]
        result[name] = Change(paired_bootstrap(*sides), sorted(task for a, b, task in both if b and not a),
                              sorted(task for a, b, task in both if a and not b))
    return result


def summary(about: dict, docs: dict[tuple[str, str, str], dict]) -> dict:
    """All figures as plain data, from the documents of (side, set, mode); sides are "base" and, with an adapter, "adapter"."""
    sets, sides = {}, dict.fromkeys(side for side, _, _ in docs)
    for name in dict.fromkeys(name for _, name, _ in docs):
        of = {side: columns(*(rows_from(docs[side, name, mode]) for mode in MODES)) for side in sides}
        sets[name] = {"tasks": len(of["base"]["greedy"]), **{side: _plain(levels(found)) for side, found in of.items()}}
        if "adapter" in of:
            sets[name]["gains"] = {measure: {**change.gain._asdict(), "gained": change.gained, "lost": change.lost}
                                   for measure, change in changes(of["base"], of["adapter"]).items()}
    return jsonable({"format": FORMAT, **about, "sets": sets})


def _plain(intervals):
    return {name: interval._asdict() for name, interval in intervals.items()}


# ---- as text -----------------------------------------------------------------------------------------------------------


def text(doc: dict) -> str:
    """The table for a terminal, and with an adapter the gains with the tasks gained and lost."""
    n, width = doc["samples"], max(map(len, [*doc["sets"], "set"]))
    labels = {name: label.format(n=n) for name, label in LABELS.items()}
    lines = [doc["model"], *([f"adapter: {doc['lora']}"] if doc["lora"] else []), "",
             f"{'set':<{width}}  tasks  {'':<8}" + "".join(f"{label:<23}" for label in labels.values()).rstrip()]
    for name, found in doc["sets"].items():
        for side in ("base", "adapter") if doc["lora"] else ("base",):
            first = f"{name:<{width}}  {found['tasks']:>5}" if side == "base" else " " * (width + 7)
            lines.append(f"{first}  {side:<8}" + "".join(f"{_interval(found[side][measure]):<23}" for measure in labels).rstrip())
    lines += ["", f"95 % intervals: Wilson's of greedy answers and of tasks solved at least once; pass@1 of {n} resamples tasks"]
    if doc["lora"]:
        lines += _gains(doc, labels, width)
    return "\n".join([*lines, *[""][:len(doc["left_out"])], *doc["left_out"]])


def _gains(doc, labels, width):
    lines = ["", "adapter against base; p is the share of 10,000 paired resamples of tasks without a gain", "",
             f"{'set':<{width}}  {'measure':<15}{'gain':<25}{'p':<9}tasks gained, lost"]
    named = []
    for name, found in doc["sets"].items():
        for measure, label in labels.items():
            gain = found["gains"][measure]
            numbers = Gain(*(float("nan") if gain[part] is None else gain[part] for part in Gain._fields))
            counts = f"{len(gain['gained'])}, {len(gain['lost'])}" if measure != "samples" else ""    # those of "solved"
            lines.append(f"{name:<{width}}  {label:<15}{gain_text(numbers):<25}{number_text(gain['p'], 4):<9}{counts}".rstrip())
            named += [f"{name}, {label}, {way}: {_names(gain[way])}" for way in ("gained", "lost") if counts and gain[way]]
    return [*lines, "", *named] if named else lines


def _names(names):
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _interval(found):
    value, low, high = (number_text(found[part]) for part in Interval._fields)
    return f"{value} [{low}, {high}]"
