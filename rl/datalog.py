"""What a run writes down: metrics.jsonl, completions/, sft_pool.jsonl, hard_pool.jsonl and eval.jsonl, all JSON lines.

Files grow by whole rows that are on the disk before the call returns. A crash can tear only the last row, and resuming
drops it. Every row carries its step, so going back to a checkpoint is cutting all files after that step. A value that
does not exist (the style of correct answers when none was correct) is null, never 0 and never NaN, which JSON lacks;
what such answers never have (the style of answers in words) has no key.

Not here: checkpoints, config.yaml and report.html.
"""

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rl.source import normalise

POOLS = ("sft_pool.jsonl", "hard_pool.jsonl")
EVALUATIONS = "eval.jsonl"    # not in metrics.jsonl: the base model is evaluated before there is a step, and most steps are not
QUALITIES = ("style", "depth", "calls", "pure", "idle")    # what is averaged over correct samples


class LogError(OSError):
    """A file of the run cannot be written or read; the text names it and the way on."""


class Sample(NamedTuple):
    """One completion with its grade; the fields after `finish` are the grade's own."""
    text: str
    tokens: int        # sampled ids, the stop id included
    finish: str        # "stop", or "length" where the token limit cut it
    code: str
    verdict: str
    correct: bool
    reward: float      # nan: the grader failed, the sample counts nowhere but in grader/internal_error_rate
    style: float | None    # this and the next four are a program's; None where the answer is none
    depth: int | None
    calls: int | None
    pure: bool | None
    idle: int | None
    detail: str
    flags: tuple[str, ...]
    scores: dict[str, float] = {}    # measures beside the reward, by name

    @classmethod
    def of(cls, text: str, tokens: int, finish: str, grade) -> "Sample":
        """A completion with the grade that it got (rl/reward.py)."""
        return cls(text, tokens, finish, *(getattr(grade, name) for name in cls._fields[3:]))

    @classmethod
    def from_row(cls, row: dict) -> "Sample":
        """The sample of a row that was written by `plain` and read back; the row may say more, such as its step."""
        found = {"scores": {}} | {name: row[name] for name in cls._fields if name in row}    # rows were once without scores
        return cls(**found | {"flags": tuple(row["flags"]), "reward": math.nan if row["reward"] is None else row["reward"]})


class Group(NamedTuple):
    task: str
    prompt: list[dict]                # the messages, so that a pool can train on them
    samples: Sequence[Sample]


# ---- metrics of one step ---------------------------------------------------------------------------------------------

def step_metrics(groups: Sequence[Group]) -> dict[str, float | None]:
    """The part of a metrics row that grades and lengths give, under the names TRL's users know."""
    return {**group_metrics(groups), **sample_metrics([sample for group in groups for sample in group.samples])}


def graded(samples: Sequence[Sample]) -> list[Sample]:
    """The samples that count: all but those whose grader failed."""
    return [sample for sample in samples if not math.isnan(sample.reward)]


def group_metrics(groups: Sequence[Group]) -> dict[str, float | None]:
    """How groups split; reward_std is the mean within-group std (ddof 0, as in the advantage), good is correct."""
    groups = [kept for group in groups if (kept := graded(group.samples))]
    rewards = [[s.reward for s in kept] for kept in groups]
    good, bad = [all(s.correct for s in kept) for kept in groups], [not any(s.correct for s in kept) for kept in groups]
    return {"reward_std": _mean(_std(values) for values in rewards),
            "frac_reward_zero_std": _mean(max(values) == min(values) for values in rewards),
            "frac_all_good": _mean(good),
            "frac_all_bad": _mean(bad),
            "frac_mixed": _mean(not (g or b) for g, b in zip(good, bad, strict=True))}


def sample_metrics(samples: Sequence[Sample]) -> dict[str, float | None]:
    """Means over samples; style, depth, calls, pure and idle over correct ones only, and where there are programs at all."""
    counting = graded(samples)
    correct = [s for s in counting if s.correct]
    ended = [s.tokens for s in samples if s.finish == "stop"]
    lengths = [s.tokens for s in samples]
    verdicts = Counter(s.verdict for s in samples)
    qualities = QUALITIES if any(s.style is not None for s in samples) else ()
    return {"reward": _mean(s.reward for s in counting),
            "pass_rate": _mean(s.correct for s in counting),
            **{name: _mean(value for s in correct if (value := getattr(s, name)) is not None) for name in qualities},
            "completions/mean_length": _mean(lengths),
            "completions/min_length": min(lengths, default=None),
            "completions/max_length": max(lengths, default=None),
            "completions/mean_terminated_length": _mean(ended),
            "completions/clipped_ratio": _mean(s.finish == "length" for s in samples),
            "grader/internal_error_rate": _mean(s.verdict == "internal_error" for s in samples),
            "hack_attempts_per_1000": _mean(1000 * bool(s.flags) for s in samples),
            **{f"verdict/{name}": count / len(samples) for name, count in sorted(verdicts.items())},
            **score_metrics(counting)}


def score_metrics(samples: Sequence[Sample]) -> dict[str, float | None]:
    """rewards/<name>/mean of each measure that the grader gives beside the reward."""
    names = sorted({name for sample in samples for name in sample.scores})
    return {f"rewards/{name}/mean": _mean(s.scores[name] for s in samples if name in s.scores) for name in names}


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return math.fsum(values) / len(values) if values else None


def _std(values: Sequence[float]) -> float:
    mean = _mean(values)
    # equal rewards have no spread, whatever rounding makes of their mean
    return 0.0 if max(values) == min(values) else math.sqrt(_mean((value - mean) ** 2 for value in values))


# ---- the files -------------------------------------------------------------------------------------------------------

class RunLog:
    """The run folder's JSON lines. A new log refuses a folder that holds one; `RunLog.resume` goes on in it."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        if (self.folder / "metrics.jsonl").exists():
            raise LogError(f"{self.folder}: already holds a run's metrics.jsonl. Resume it with RESUME={self.folder}, "
                           "or choose another OUT")
        self._open()

    @classmethod
    def resume(cls, folder: str | Path, step: int) -> "RunLog":
        """The log of a run gone back to `step`: whatever was written after it, and a torn last row, is cut off."""
        log = cls.__new__(cls)
        log.folder = Path(folder)
        for name in ("metrics.jsonl", EVALUATIONS, *POOLS):
            cut_after(log.folder / name, step)
        for path in (log.folder / "completions").glob("completions_*.jsonl"):
            number = path.stem.removeprefix("completions_")
            if number.isdecimal() and int(number) > step:
                _guard(path, Path.unlink)
        log._open()
        return log

    def _open(self):
        _guard(self.folder / "completions", lambda path: path.mkdir(parents=True, exist_ok=True))
        self._pooled = {_pool_key(row["task"], row["code"]) for row in read_rows(self.folder / POOLS[0])}
        self.evaluated = {row["step"] for row in read_rows(self.folder / EVALUATIONS)}

    def step(self, step: int, metrics: dict) -> None:
        """Append the step's row to metrics.jsonl; call it last, for a step is logged once this row is."""
        append_rows(self.folder / "metrics.jsonl", [{"step": step, **metrics}])

    def evaluation(self, step: int, metrics: dict) -> None:
        """Append what the adapter of so many steps did on the held-out tasks to eval.jsonl; `evaluated` has the step then."""
        append_rows(self.folder / EVALUATIONS, [{"step": step, **metrics}])
        self.evaluated.add(step)

    def completions(self, step: int, groups: Sequence[Group]) -> None:
        """Write completions/completions_NNNNN.jsonl, one row a sample."""
        rows = [{"step": step, "task": group.task, "sample": number, **sample._asdict()}
                for group in groups for number, sample in enumerate(group.samples)]
        write_aside(self.folder / "completions" / f"completions_{step:05d}.jsonl", _lines(rows))

    def pools(self, step: int, groups: Sequence[Group]) -> None:
        """Append new correct solutions to sft_pool.jsonl, and groups without any to hard_pool.jsonl.

        A solution is new once per task and normalised code; group_all_correct tells of the group it was first seen in.
        """
        solved, hard = [], []
        for group in groups:
            counting = graded(group.samples)
            if counting and not any(s.correct for s in counting):
                hard.append({"step": step, "task": group.task, "prompt": group.prompt,
                             "verdicts": Counter(s.verdict for s in counting)})
            for sample in counting:
                if sample.correct and (key := _pool_key(group.task, sample.code)) not in self._pooled:
                    self._pooled.add(key)
                    solved.append({"step": step, "task": group.task, "prompt": group.prompt, "code": sample.code,
                                   "group_all_correct": all(s.correct for s in counting),
                                   **{name: getattr(sample, name) for name in ("reward", *QUALITIES)}})
        append_rows(self.folder / POOLS[0], solved)
        append_rows(self.folder / POOLS[1], hard)


def _pool_key(task: str, code: str) -> tuple[str, str]:
    return task, normalise(code)


def read_rows(path: str | Path) -> list[dict]:
    """The file's rows; none when there is no file; a torn last row is left out, a bad row before it is an error."""
    path = Path(path)
    if not path.exists():
        return []
    *whole, _torn = _guard(path, Path.read_bytes).split(b"\n")    # each whole row ends in a newline
    rows = []
    for number, line in enumerate(whole, 1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise LogError(f"{path}: row {number} is not JSON ({error}): mend or delete it, start again") from error
    return rows


def cut_after(path: Path, step: int) -> None:
    """Drop the rows of later steps and a torn last row, written aside and renamed."""
    if path.exists():
        write_aside(path, _lines(row for row in read_rows(path) if row["step"] <= step))


def append_rows(path: Path, rows: Iterable[dict]) -> None:
    """Append rows and wait for the disk. When that fails the file is as it was before, and LogError says so."""
    data = _lines(rows)
    if data:
        _guard(path, lambda path: _append(path, data))


def _append(path: Path, data: bytes) -> None:
    with open(path, "ab", buffering=0) as file:
        before = file.tell()
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest):]    # a nearly full disk takes a part
            os.fsync(file.fileno())
        except OSError:
            os.truncate(file.fileno(), before)    # no half row in the middle, should the run go on
            raise


def write_aside(path: Path, data: bytes) -> None:
    """Replace the file at once: written beside it, flushed to the disk, renamed; readers see the old one or the new."""
    _guard(path, lambda path: _write_aside(path, data))


def _write_aside(path: Path, data: bytes) -> None:
    aside = path.with_name(path.name + ".tmp")
    try:
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def _guard(path: Path, action):
    try:
        return action(path)
    except OSError as error:
        raise LogError(f"{path}: {error.strerror or error}. Rows written before are intact; free space or mend "
                       "permissions, then go on with RESUME=<the run's folder>") from error


def _lines(rows: Iterable[dict]) -> bytes:
    return b"".join(json.dumps(plain(row), allow_nan=False).encode() + b"\n" for row in rows)


def plain(value):
    """The value as JSON has it: NumPy scalars as Python's, nan and infinities as None, tuples as lists."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
