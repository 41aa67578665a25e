"""What a probe shows: its figures, and the paired comparison of two probes, as text and as JSON.

Intervals resample tasks (rl/evaluation/stats.py). Style, depth, calls, pure and idle are means over correct samples only, so
they do not say how many samples are correct: read them beside the pass rate. Nothing here runs a model.
"""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError
from rl.evaluation.signs import names_text
from rl.evaluation.stats import Gain, Interval, bootstrap, gain_text, number_text, paired_bootstrap, pass_at_k, pass_rate
from rl.rewards.base import GradedGroup, GradedSample
from rl.run import log
from rl.run.files import jsonable
from rl.run.log import QUALITIES, step_metrics

FORMAT = "probe 1"
LABELS = {"pass_rate": "pass rate", "reward": "mean reward", "style": "style if correct", "depth": "depth if correct",
          "calls": "calls if correct", "pure": "pure if correct", "idle": "idle calls if correct",
          "entropy": "entropy, nats/token"}
MEASURES = tuple(LABELS)
# Settings that must agree for two probes to be the same measurement. Model and adapter are what is compared.
SAME_MEASUREMENT = ("tasks", "provider_kwargs", "split", "case_seed", "case_seconds", "seed", "n_samples", "temperature", "top_k",
                    "top_p", "max_new_tokens", "style_hint", "form_example", "thinking_tag", "combine", "combine_kwargs",
                    "reward_kwargs", "style_weight", "style_depth")


class ProbeError(InputError):
    """A probe's file that cannot be read or compared; the message names it."""


# ---- figures of a probe ----------------------------------------------------------------------------------------------

class Row(NamedTuple):
    """One task of a probe: sums over its samples, from which all means and intervals are computed."""
    task: str
    graded: int
    passed: int
    reward: float
    qualities: dict[str, tuple[float, int]]    # (sum, count) over the correct samples that have a value
    entropy: float                             # nats, summed over the sampled tokens
    tokens: int

    @property
    def pooled(self) -> dict[str, tuple[float, float]]:
        """(sum, count) of every measure."""
        return {"pass_rate": (self.passed, self.graded), "reward": (self.reward, self.graded), **self.qualities,
                "entropy": (self.entropy, self.tokens)}


def rows_of(groups: Sequence[GradedGroup], entropy: Sequence[float]) -> list[Row]:
    """A row per group; `entropy` has each task's sum over its sampled tokens."""
    rows = []
    for group, task_entropy in zip(groups, entropy, strict=True):
        graded = log.graded(group.samples)
        correct = [sample for sample in graded if sample.correct]
        rows.append(Row(group.task, graded=len(graded), passed=len(correct), reward=math.fsum(s.reward for s in graded),
                        qualities={name: _pooled(getattr(s, name) for s in correct) for name in QUALITIES},
                        entropy=task_entropy, tokens=sum(s.tokens for s in group.samples)))
    return rows


def _pooled(values: Iterable[float | None]) -> tuple[float, int]:
    known = [value for value in values if value is not None]
    return math.fsum(known), len(known)


def measure(rows: Sequence[Row]) -> dict[str, Interval]:
    """Every measure over all tasks with its 95 % interval."""
    columns = {name: zip(*(row.pooled[name] for row in rows), strict=True) for name in MEASURES}
    return {name: pass_rate(*sums) if name == "pass_rate" else bootstrap(*sums) for name, sums in columns.items()}


def pass_at(rows: Sequence[Row], samples: int) -> dict[int, float]:
    """Unbiased pass@k for each k that divides `samples`, averaged over the tasks with at least k graded samples."""
    result = {}
    for k in (k for k in range(1, samples + 1) if samples % k == 0):
        values = [pass_at_k(row.graded, row.passed, k) for row in rows if row.graded >= k]
        result[k] = math.fsum(values) / len(values) if values else math.nan
    return result


# ---- the file of a probe ---------------------------------------------------------------------------------------------

def document(about: dict, *, groups: Sequence[GradedGroup], entropy: Sequence[float], rechecked: int, weak: int) -> dict:
    """A whole probe as plain data: how it was made, its figures, and every sample."""
    rows = rows_of(groups, entropy)
    summary = {**{name: interval._asdict() for name, interval in measure(rows).items()},
               "pass@k": pass_at(rows, max(len(group.samples) for group in groups)),
               "tasks": len(rows), "solved_at_least_once": sum(row.passed > 0 for row in rows),
               "weak_passes": weak, "passes_rechecked": rechecked}
    tasks = [{"task": group.task, "entropy_sum": task_entropy, "samples": [sample._asdict() for sample in group.samples]}
             for group, task_entropy in zip(groups, entropy, strict=True)]
    return jsonable({"format": FORMAT, **about, "summary": summary, "metrics": step_metrics(groups), "tasks": tasks})


def read(path: str | Path) -> dict:
    """The document in a probe's file; ProbeError when it is none."""
    try:
        doc = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ProbeError(f"{path}: {error.strerror or error}; give the JSON file that run_probe.py wrote") from error
    except ValueError as error:
        raise ProbeError(f"{path}: not JSON ({error}); give the JSON file that run_probe.py wrote") from error
    if not isinstance(doc, dict) or doc.get("format") != FORMAT:
        raise ProbeError(f"{path}: not a probe ({FORMAT!r}); give the JSON file that run_probe.py wrote")
    return doc


def groups_from(doc: dict) -> list[GradedGroup]:
    """The graded samples of a document, by task, without their prompts."""
    return [GradedGroup(task["task"], [], [*map(GradedSample.from_row, task["samples"])]) for task in doc["tasks"]]


def rows_from(doc: dict) -> list[Row]:
    """The rows of a document."""
    return rows_of(groups_from(doc), [task["entropy_sum"] for task in doc["tasks"]])


# ---- two probes ------------------------------------------------------------------------------------------------------

class Comparison(NamedTuple):
    before: dict[str, Interval]
    after: dict[str, Interval]
    gains: dict[str, Gain]
    gained: list[str]    # tasks solved at least once after, never before
    lost: list[str]      # tasks solved at least once before, never after
    differ: list[str]    # settings that make the two probes different measurements
    by_task: dict[str, tuple[float, float, Gain]]    # pass rate before and after; the gain resamples the task's own samples


def compare(before: dict, after: dict) -> Comparison:
    """The paired comparison of two documents; ProbeError when their tasks differ."""
    first, second = ({row.task: row for row in rows_from(doc)} for doc in (before, after))
    if set(first) != set(second):
        only = {"first": sorted(set(first) - set(second)), "second": sorted(set(second) - set(first))}
        listed = "; ".join(f"{len(names)} only in the {side} ({', '.join(names[:5])})" for side, names in only.items() if names)
        raise ProbeError(f"the probes are of different tasks: {listed}. Probe both with the same SPLIT and N_TASKS")
    pairs = [(row, second[task]) for task, row in first.items()]
    gains = {}
    for name in MEASURES:
        sides = [[row.pooled[name] for row in rows] for rows in zip(*pairs, strict=True)]
        (old, old_counts), (new, new_counts) = (zip(*side, strict=True) for side in sides)
        gains[name] = paired_bootstrap(old, new, old_counts, new_counts)
    values = {name: [doc["settings"].get(name) for doc in (before, after)] for name in SAME_MEASUREMENT}
    return Comparison(
        before=measure([old for old, _ in pairs]), after=measure([new for _, new in pairs]), gains=gains,
        gained=sorted(old.task for old, new in pairs if not old.passed and new.passed),
        lost=sorted(old.task for old, new in pairs if old.passed and not new.passed),
        differ=[f"{name.upper()} {old} / {new}" for name, (old, new) in values.items() if old != new],
        by_task=task_gains(before, after))


def task_gains(before: dict, after: dict) -> dict[str, tuple[float, float, Gain]]:
    """Each task's pass rate before and after with its gain, sample n of one probe paired with sample n of the other.

    These gains concern one task each, so its samples are the independent trials."""
    samples_after, gains = {task["task"]: task["samples"] for task in after["tasks"]}, {}
    for task in before["tasks"]:
        pairs = [(old["correct"], new["correct"])
                 for old, new in zip(task["samples"], samples_after[task["task"]], strict=False)
                 if old["reward"] is not None and new["reward"] is not None]
        if pairs:
            old, new = zip(*pairs, strict=True)
            gains[task["task"]] = sum(old) / len(old), sum(new) / len(new), paired_bootstrap(old, new)
    return gains


# ---- as text ---------------------------------------------------------------------------------------------------------

def probe_text(doc: dict) -> str:
    """One probe for a terminal: its figures, the signs to watch, and a table of tasks."""
    rows, summary, metrics = rows_from(doc), doc["summary"], doc["metrics"]
    verdicts = {name.removeprefix("verdict/"): share for name, share in metrics.items() if name.startswith("verdict/")}
    lines = [f"{doc['model']} {'with ' + doc['lora'] if doc['lora'] else 'without adapter'}: {len(rows)} tasks x "
             f"{max(row.graded for row in rows)} samples, {doc['seconds']:.0f} s",
             "95 % intervals resample tasks, since the samples of a task are alike", ""]
    for name in MEASURES:
        value, low, high = (number_text(summary[name][part]) for part in Interval._fields)
        lines.append(f"{LABELS[name]:<22}{value}  [{low}, {high}]")
    lines += [f"{'solved at least once':<22}{summary['solved_at_least_once']} of {summary['tasks']} tasks",
              f"{'unbiased':<22}" + "  ".join(f"pass@{k} {number_text(value)}" for k, value in summary["pass@k"].items()),
              f"{'length':<22}{number_text(metrics['completions/mean_length'], 1)} tokens, "
              f"{number_text(metrics['completions/clipped_ratio'])} cut at the token limit",
              f"{'verdicts':<22}" + ", ".join(f"{name} {number_text(share)}" for name, share in verdicts.items()), "",
              f"weak cases: {summary['weak_passes']} of {summary['passes_rechecked']} passes fail on second cases",
              f"tasks without signal: {number_text(metrics['frac_reward_zero_std'])}, all samples having the same reward"]
    if "idle" in metrics:
        lines.append(f"idle calls: {number_text(metrics['idle'])} per correct sample")
    lines += [f"attempts on the grader: {number_text(metrics['hack_attempts_per_1000'], 1)} per 1,000 samples", ""]
    return "\n".join(lines + _task_table(rows))


def comparison_text(result: Comparison, names: Sequence[str]) -> str:
    """Two probes side by side, with what a rising mean can hide."""
    lines = [f"before: {names[0]}", f"after:  {names[1]}",
             "gain with its 95 % interval; p is the share of 10,000 paired resamples of tasks without a gain", ""]
    for name in MEASURES:
        old, new, gain = result.before[name], result.after[name], result.gains[name]
        lines.append(f"{LABELS[name]:<22}{number_text(old.value)} -> {number_text(new.value)}   {gain_text(gain)}  "
                     f"p {number_text(gain.p, 4)}")
    lines += ["", f"tasks gained: {names_text(result.gained)}", f"tasks lost:   {names_text(result.lost)}"]
    lines += [line for _, line in style_gaming(result.gains)]
    if result.differ:
        lines.append(f"not the same measurement: {'; '.join(result.differ)}")
    width = max(map(len, result.by_task), default=0)
    lines += ["", "pass rate by task; these intervals resample the task's own samples, paired by number"]
    lines += [f"{task:<{width}}  {old:.3f} -> {new:.3f}   {gain_text(gain)}"
              for task, (old, new, gain) in result.by_task.items()]
    return "\n".join(lines)


def style_gaming(gains: dict[str, Gain]) -> list[tuple[bool, str]]:
    """(seen, line) of style that rose alone: surely more depth without surely more passes, or surely more idle calls.

    No line for answers in words, which have no style."""
    if math.isnan(gains["depth"].value):
        return []
    reasons = []
    if gains["depth"].low > 0 and not gains["pass_rate"].low > 0:
        reasons.append(f"depth {number_text(gains['depth'].value, sign='+')} while the pass rate did not surely rise")
    if gains["idle"].low > 0:
        reasons.append(f"idle calls {number_text(gains['idle'].value, sign='+')} per correct sample")
    return [(bool(reasons), f"style gaming: {'seen, ' + '; '.join(reasons) if reasons else 'not seen'}")]


def _task_table(rows: Sequence[Row]) -> list[str]:
    width = max(len(row.task) for row in rows)
    lines = [f"{'task':<{width}}  passed  reward   style   depth   calls  entropy"]
    for row in rows:
        means = {name: value / count if count else math.nan for name, (value, count) in row.pooled.items()}
        lines.append(f"{row.task:<{width}}  {f'{row.passed}/{row.graded}':>6}" +
                     "".join(f"{number_text(means[name]):>8}" for name in ("reward", "style", "depth", "calls", "entropy")))
    return lines
