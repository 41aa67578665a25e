"""What probes say: one probe's numbers, the difference of two, both as text and as JSON.

Intervals resample tasks, not samples, since samples of one task are alike (rl/evaluation/stats.py); where every sample passes or
none does, the pass rate has Wilson's interval with a trial a task. Style, depth, calls, pure and idle are means over
correct samples only, so they say nothing about how many those are: read them beside the pass rate. Nothing here runs
a model.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError
from rl.evaluation.stats import Gain, Interval, bootstrap, paired_bootstrap, pass_at_k, wilson
from rl.rewards.base import GradedGroup, GradedSample
from rl.run import log
from rl.run.files import jsonable
from rl.run.log import QUALITIES, step_metrics

FORMAT = "probe 1"
MEASURES = ("pass_rate", "reward", *QUALITIES, "entropy")
# Settings that make two probes different measurements; the adapter and the model are what one compares.
SAME_MEASUREMENT = ("tasks", "split", "case_seed", "seed", "n_samples", "temperature", "top_k", "top_p",
                    "max_new_tokens", "style_weight", "style_hint")


class ProbeError(InputError):
    """A probe's file that cannot be read or compared; the text names it."""


class Row(NamedTuple):
    """One task of a probe: sums over its samples, from which every mean and interval is made."""
    task: str
    graded: int
    passed: int
    reward: float
    qualities: dict[str, tuple[float, int]]    # (sum, how many) over the passed that have one: answers in words have none
    entropy: float                 # nats, summed over sampled tokens
    tokens: int

    @property
    def pooled(self) -> dict[str, tuple[float, float]]:
        """(total, count) of every measure."""
        return {"pass_rate": (self.passed, self.graded), "reward": (self.reward, self.graded),
                **self.qualities,
                "entropy": (self.entropy, self.tokens)}


def rows_of(groups: Sequence[GradedGroup], entropy: Sequence[float]) -> list[Row]:
    """A row for each group; entropy is the task's sum over its sampled tokens."""
    rows = []
    for group, total in zip(groups, entropy, strict=True):
        counting = log.graded(group.samples)
        correct = [sample for sample in counting if sample.correct]
        rows.append(Row(group.task, len(counting), len(correct), math.fsum(sample.reward for sample in counting),
                        {name: _pooled(getattr(sample, name) for sample in correct) for name in QUALITIES}, total,
                        sum(sample.tokens for sample in group.samples)))
    return rows


def _pooled(values) -> tuple[float, int]:
    known = [value for value in values if value is not None]
    return math.fsum(known), len(known)


def measure(rows: Sequence[Row]) -> dict[str, Interval]:
    """Every measure over all tasks with its 95 % interval."""
    found = {name: bootstrap(*zip(*(row.pooled[name] for row in rows), strict=True)) for name in MEASURES}
    if found["pass_rate"].value in (0, 1):    # resampling equal tasks shows no doubt at all; each task is one trial then
        tried = sum(row.graded > 0 for row in rows)
        found["pass_rate"] = wilson(tried * int(found["pass_rate"].value), tried)
    return found


def pass_at(rows: Sequence[Row], samples: int) -> dict[int, float]:
    """Unbiased pass@k, averaged over tasks, for each k that divides the samples; tasks with fewer graded left out."""
    found = {}
    for k in (k for k in range(1, samples + 1) if samples % k == 0):
        values = [pass_at_k(row.graded, row.passed, k) for row in rows if row.graded >= k]
        found[k] = math.fsum(values) / len(values) if values else float("nan")
    return found


def document(about: dict, groups: Sequence[GradedGroup], entropy: Sequence[float], rechecked: int, weak: int) -> dict:
    """All of a probe as plain data: what it was, its numbers, and every sample it rests on."""
    rows = rows_of(groups, entropy)
    summary = {**{name: interval._asdict() for name, interval in measure(rows).items()},
               "pass@k": pass_at(rows, max(len(group.samples) for group in groups)),
               "tasks": len(rows), "solved_at_least_once": sum(row.passed > 0 for row in rows),
               "weak_passes": weak, "passes_rechecked": rechecked}
    tasks = [{"task": group.task, "entropy_sum": total, "samples": [sample._asdict() for sample in group.samples]}
             for group, total in zip(groups, entropy, strict=True)]
    return jsonable({"format": FORMAT, **about, "summary": summary, "metrics": step_metrics(groups), "tasks": tasks})


def read(path: str | Path) -> dict:
    """A probe's document back from its file; ProbeError when it is none."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ProbeError(f"{path}: {error.strerror or error}; give the JSON file that run_probe.py wrote") from error
    except ValueError as error:
        raise ProbeError(f"{path}: not JSON ({error}); give the JSON file that run_probe.py wrote") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ProbeError(f"{path}: not a probe ({FORMAT!r}); give the JSON file that run_probe.py wrote")
    return found


def groups_from(doc: dict) -> list[GradedGroup]:
    """The graded samples of a document that was read back, task by task, without their prompts."""
    return [GradedGroup(task["task"], [], [*map(GradedSample.from_row, task["samples"])]) for task in doc["tasks"]]


def rows_from(doc: dict) -> list[Row]:
    """The rows of a document that was read back."""
    return rows_of(groups_from(doc), [task["entropy_sum"] for task in doc["tasks"]])


class Comparison(NamedTuple):
    before: dict[str, Interval]
    after: dict[str, Interval]
    gains: dict[str, Gain]
    gained: list[str]    # tasks solved at least once after and never before
    lost: list[str]      # the other way round
    differ: list[str]    # settings in which the two probes are not the same measurement
    by_task: dict[str, tuple[float, float, Gain]]    # pass rate before and after; the gain resamples this task's samples


def compare(before: dict, after: dict) -> Comparison:
    """The paired comparison of two documents; ProbeError when they are not of the same tasks."""
    first, second = ({row.task: row for row in rows_from(doc)} for doc in (before, after))
    if set(first) != set(second):
        alone = {"first": sorted(set(first) - set(second)), "second": sorted(set(second) - set(first))}
        only = "; ".join(f"{len(names)} only in the {side} ({', '.join(names[:5])})"
                         for side, names in alone.items() if names)
        raise ProbeError(f"the probes are of different tasks: {only}. Probe both with the same SPLIT and N_TASKS")
    pairs = [(row, second[task]) for task, row in first.items()]
    gains = {}
    for name in MEASURES:
        sides = [[row.pooled[name] for row in rows] for rows in zip(*pairs, strict=True)]
        (old, old_counts), (new, new_counts) = (zip(*side, strict=True) for side in sides)
        gains[name] = paired_bootstrap(old, new, old_counts, new_counts)
    values = {name: [doc["settings"].get(name) for doc in (before, after)] for name in SAME_MEASUREMENT}
    differ = [f"{name.upper()} {old} / {new}" for name, (old, new) in values.items() if old != new]
    return Comparison(measure(list(first.values())), measure([new for _, new in pairs]), gains,
                      sorted(old.task for old, new in pairs if not old.passed and new.passed),
                      sorted(old.task for old, new in pairs if old.passed and not new.passed), differ, task_gains(before, after))


def task_gains(before: dict, after: dict) -> dict[str, tuple[float, float, Gain]]:
    """Each task's pass rate before and after with its gain; sample n of one probe is paired with sample n of the other.

    Unlike the other gains these speak of this task alone, so its samples are the independent trials."""
    later, found = {task["task"]: task["samples"] for task in after["tasks"]}, {}
    for task in before["tasks"]:
        pairs = [(old["correct"], new["correct"]) for old, new in zip(task["samples"], later[task["task"]], strict=False)
                 if old["reward"] is not None and new["reward"] is not None]
        if pairs:
            old, new = zip(*pairs, strict=True)
            found[task["task"]] = sum(old) / len(old), sum(new) / len(new), paired_bootstrap(old, new)
    return found


# ---- as text ---------------------------------------------------------------------------------------------------------

def probe_text(doc: dict) -> str:
    """One probe, for a terminal: its numbers, the signs to watch, and a table of tasks."""
    rows, summary, metrics = rows_from(doc), doc["summary"], doc["metrics"]
    idle = f"idle calls: {_number(metrics['idle'])} a correct sample; " if "idle" in metrics else ""
    lines = [f"{doc['model']} {'with ' + doc['lora'] if doc['lora'] else 'without adapter'}: {len(rows)} tasks x "
             f"{max(row.graded for row in rows)} samples, {doc['seconds']:.0f} s",
             "95 % intervals resample tasks, since samples of one task are alike", ""]
    lines += [f"{LABELS[name]:<22}{_range(summary[name])}" for name in MEASURES]
    lines += [f"{'solved at least once':<22}{summary['solved_at_least_once']} of {summary['tasks']} tasks",
              f"{'unbiased':<22}" + "  ".join(f"pass@{k} {_number(value)}" for k, value in summary["pass@k"].items()),
              f"{'length':<22}{_number(metrics['completions/mean_length'], 1)} tokens, "
              f"{_number(metrics['completions/clipped_ratio'])} cut at the limit",
              f"{'verdicts':<22}" + ", ".join(f"{name.removeprefix('verdict/')} {_number(share)}"
                                              for name, share in metrics.items() if name.startswith("verdict/")), "",
              f"weak cases: {summary['weak_passes']} of {summary['passes_rechecked']} passes fail on second cases",
              f"without signal: {_number(metrics['frac_reward_zero_std'])} of the tasks, all samples having one reward",
              f"{idle}attempts on the grader: {_number(metrics['hack_attempts_per_1000'], 1)} in 1,000 samples", ""]
    return "\n".join(lines + _table(rows))


def comparison_text(result: Comparison, names: Sequence[str]) -> str:
    """Two probes side by side, with what a rising mean can hide."""
    lines = [f"before: {names[0]}", f"after:  {names[1]}",
             "gain with its 95 % interval, and p, the share of 10,000 paired resamples of tasks without a gain", ""]
    for name in MEASURES:
        old, new, gain = result.before[name], result.after[name], result.gains[name]
        lines.append(f"{LABELS[name]:<22}{_number(old.value)} -> {_number(new.value)}   {_signed(gain.value)} "
                     f"[{_signed(gain.low)}, {_signed(gain.high)}]  p {_number(gain.p, 4)}")
    lines += ["", f"tasks gained: {_listed(result.gained)}", f"tasks lost:   {_listed(result.lost)}",
              *gaming(result.gains)]
    if result.differ:
        lines.append(f"not the same measurement: {'; '.join(result.differ)}")
    width = max(map(len, result.by_task), default=0)
    lines += ["", "pass rate by task; these intervals resample the task's own samples, paired by number"]
    lines += [f"{task:<{width}}  {old:.3f} -> {new:.3f}   {_signed(gain.value)} [{_signed(gain.low)}, {_signed(gain.high)}]"
              for task, (old, new, gain) in result.by_task.items()]
    return "\n".join(lines)


def gaming(gains: dict[str, Gain]) -> list[str]:
    """A line where style rose alone: depth surely up and passing not, or more calls that do nothing."""
    lines = []
    if gains["depth"].low > 0 and not gains["pass_rate"].low > 0:
        lines.append(f"style gaming? depth {_signed(gains['depth'].value)} while the pass rate did not surely rise")
    if gains["idle"].low > 0:
        lines.append(f"style gaming? idle calls {_signed(gains['idle'].value)} a correct sample")
    return lines


LABELS = {"pass_rate": "pass rate", "reward": "mean reward", "style": "style of correct", "depth": "depth of correct",
          "calls": "calls of correct", "pure": "pure among correct", "idle": "idle calls of correct",
          "entropy": "entropy, nats a token"}


def _table(rows: Sequence[Row]) -> list[str]:
    width = max(len(row.task) for row in rows)
    lines = [f"{'task':<{width}}  passed  reward   style   depth   calls  entropy"]
    for row in rows:
        means = {name: total / count if count else math.nan for name, (total, count) in row.pooled.items()}
        lines.append(f"{row.task:<{width}}  {f'{row.passed}/{row.graded}':>6}" +
                     "".join(f"{_number(means[name]):>8}" for name in ("reward", "style", "depth", "calls", "entropy")))
    return lines


def _range(interval: dict) -> str:
    return f"{_number(interval['value'])}  [{_number(interval['low'])}, {_number(interval['high'])}]"


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _signed(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:+.3f}"


def _listed(names: Sequence[str]) -> str:
    return f"{len(names)}" + (f" ({', '.join(names)})" if names else "")
