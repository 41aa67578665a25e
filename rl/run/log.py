"""What a run writes: metrics.jsonl, completions/, sft_pool.jsonl, hard_pool.jsonl and eval.jsonl, all JSON lines (files.py).

Every row carries its step, so going back to a checkpoint means dropping the later rows of every file. A value that does not
exist (the style of correct answers when none is correct) is null, never 0, and never NaN, which JSON lacks; what this kind of
answer never has (the style of answers in words) has no key. Not here: checkpoints, config.yaml and report.html.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rl.rewards.base import GradedGroup, GradedSample
from rl.rewards.source import normalise
from rl.run.files import LogError, append_rows, drop_rows_after, json_lines, log_errors, read_rows, write_aside

POOLS = ("sft_pool.jsonl", "hard_pool.jsonl")
EVALUATIONS = "eval.jsonl"    # not in metrics.jsonl: most steps have no evaluation, and the base model has no step
QUALITIES = ("style", "depth", "calls", "pure", "idle")    # of programs; averaged over correct samples


# ---- metrics of a step -----------------------------------------------------------------------------------------------

def step_metrics(groups: Sequence[GradedGroup]) -> dict[str, float | None]:
    """The metrics of a step that come from grades and lengths, under TRL's names where TRL has them."""
    return {**group_metrics(groups), **sample_metrics([sample for group in groups for sample in group.samples])}


def graded(samples: Sequence[GradedSample]) -> list[GradedSample]:
    """The samples whose grader did not fail."""
    return [sample for sample in samples if not math.isnan(sample.reward)]


def group_metrics(groups: Sequence[GradedGroup]) -> dict[str, float | None]:
    """Means over groups; reward_std is the mean within-group std (ddof 0, as in the advantage), "good" means correct."""
    groups = [kept for group in groups if (kept := graded(group.samples))]
    rewards = [[s.reward for s in kept] for kept in groups]
    good, bad = [all(s.correct for s in kept) for kept in groups], [not any(s.correct for s in kept) for kept in groups]
    return {"reward_std": _mean(_std(values) for values in rewards),
            "frac_reward_zero_std": _mean(max(values) == min(values) for values in rewards),
            "frac_all_good": _mean(good),
            "frac_all_bad": _mean(bad),
            "frac_mixed": _mean(not (g or b) for g, b in zip(good, bad, strict=True))}


def sample_metrics(samples: Sequence[GradedSample]) -> dict[str, float | None]:
    """Means over samples; QUALITIES over correct programs only, and only where there are programs."""
    counted = graded(samples)
    correct = [s for s in counted if s.correct]
    terminated = [s.tokens for s in samples if s.finish == "stop"]
    lengths = [s.tokens for s in samples]
    verdicts = Counter(s.verdict for s in samples)
    qualities = QUALITIES if any(s.style is not None for s in samples) else ()
    return {"reward": _mean(s.reward for s in counted),
            "pass_rate": _mean(s.correct for s in counted),
            **{name: _mean(value for s in correct if (value := getattr(s, name)) is not None) for name in qualities},
            "completions/mean_length": _mean(lengths),
            "completions/min_length": min(lengths, default=None),
            "completions/max_length": max(lengths, default=None),
            "completions/mean_terminated_length": _mean(terminated),
            "completions/clipped_ratio": _mean(s.finish == "length" for s in samples),
            "grader/internal_error_rate": _mean(s.verdict == "internal_error" for s in samples),
            "hack_attempts_per_1000": _mean(1000 * bool(s.flags) for s in samples),
            **{f"verdict/{name}": count / len(samples) for name, count in sorted(verdicts.items())},
            **score_metrics(counted)}


def score_metrics(samples: Sequence[GradedSample]) -> dict[str, float | None]:
    """rewards/<name>/mean of each score that the grader gives besides the reward."""
    names = sorted({name for sample in samples for name in sample.scores})
    return {f"rewards/{name}/mean": _mean(s.scores[name] for s in samples if name in s.scores) for name in names}


def metric_value(row: dict, name: str) -> float | None:
    """A metric of a row as a float; None where it is missing, null, not a number or not finite."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e300 else None    # nan compares false; an axis must not overflow


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return math.fsum(values) / len(values) if values else None


def _std(values: Sequence[float]) -> float:
    mean = _mean(values)
    # Equal rewards have no spread, even where rounding moves their mean.
    return 0.0 if max(values) == min(values) else math.sqrt(_mean((value - mean) ** 2 for value in values))


# ---- the files -------------------------------------------------------------------------------------------------------

class RunLog:
    """The JSON lines of a run's folder. A new log refuses a folder that has one; `RunLog.resume` continues it."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        if (self.folder / "metrics.jsonl").exists():
            raise LogError(f"{self.folder}: already holds a run's metrics.jsonl. Resume it with RESUME={self.folder}, "
                           "or choose another OUT")
        self._open()

    @classmethod
    def resume(cls, folder: str | Path, step: int) -> "RunLog":
        """The log of a run that goes back to `step`: later rows and files, and torn last rows, are removed."""
        log = cls.__new__(cls)
        log.folder = Path(folder)
        for name in ("metrics.jsonl", EVALUATIONS, *POOLS):
            drop_rows_after(log.folder / name, step)
        for path in (log.folder / "completions").glob("completions_*.jsonl"):
            number = path.stem.removeprefix("completions_")
            if number.isdecimal() and int(number) > step:
                with log_errors(path):
                    path.unlink()
        log._open()
        return log

    def _open(self):
        completions = self.folder / "completions"
        with log_errors(completions):
            completions.mkdir(parents=True, exist_ok=True)
        self._pooled = {_pool_key(row["task"], row["code"]) for row in read_rows(self.folder / POOLS[0])}
        self.evaluated = {row["step"] for row in read_rows(self.folder / EVALUATIONS)}

    def step(self, step: int, metrics: dict) -> None:
        """Append the step's row to metrics.jsonl. Call it last: a step counts as logged once it has this row."""
        append_rows(self.folder / "metrics.jsonl", [{"step": step, **metrics}])

    def evaluation(self, step: int, metrics: dict) -> None:
        """Append an evaluation of the adapter after `step` steps to eval.jsonl, and the step to `evaluated`."""
        append_rows(self.folder / EVALUATIONS, [{"step": step, **metrics}])
        self.evaluated.add(step)

    def completions(self, step: int, groups: Sequence[GradedGroup]) -> None:
        """Write completions/completions_NNNNN.jsonl, one row per sample."""
        rows = [{"step": step, "task": group.task, "sample": number, **sample._asdict()}
                for group in groups for number, sample in enumerate(group.samples)]
        write_aside(self.folder / "completions" / f"completions_{step:05d}.jsonl", json_lines(rows))

    def pools(self, step: int, groups: Sequence[GradedGroup]) -> None:
        """Append new correct solutions to sft_pool.jsonl, and groups without any to hard_pool.jsonl.

        Solutions of a task with equal normalised code are pooled once; group_all_correct is about the group of the first.
        """
        solved, hard = [], []
        for group in groups:
            counted = graded(group.samples)
            if counted and not any(s.correct for s in counted):
                hard.append({"step": step, "task": group.task, "prompt": group.prompt,
                             "verdicts": Counter(s.verdict for s in counted)})
            for sample in counted:
                if sample.correct and (key := _pool_key(group.task, sample.code)) not in self._pooled:
                    self._pooled.add(key)
                    solved.append({"step": step, "task": group.task, "prompt": group.prompt, "code": sample.code,
                                   "group_all_correct": all(s.correct for s in counted),
                                   **{name: getattr(sample, name) for name in ("reward", *QUALITIES)}})
        append_rows(self.folder / POOLS[0], solved)
        append_rows(self.folder / POOLS[1], hard)


def _pool_key(task: str, code: str) -> tuple[str, str]:
    return task, normalise(code)
