"""SAMPLES.md: programs before and after training, side by side, chosen by rules that the page states.

Everything on it comes from the files of probes and runs. Two probes give the two sides: the same tasks, cases and random
numbers, without and with the adapter. A run without probes gives its own samples: those of the step that first trained on a
task, and those of the last such step.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from rl.errors import InputError
from rl.evaluation.probe_report import compare, comparison_text, groups_from, read
from rl.evaluation.signs import signs_of, signs_text
from rl.evaluation.stats import number_text
from rl.pages.markup import printable
from rl.rewards.base import GradedSample
from rl.run.files import read_rows
from rl.run.log import graded
from rl.settings.config import ABOUT, ORIGINS
from rl.settings.declared import LEAVES, Kwargs, text_of

EACH = 2                # tasks that the rules for gains and losses show
MAX_CODE = 4000         # characters of one program


class Side(NamedTuple):
    """The graded samples of every task under one name; `where` says where a task's samples are from, such as "step 3"."""
    name: str
    tasks: dict[str, list[GradedSample]]
    where: dict[str, str] = {}


class Pair(NamedTuple):
    """A task's graded samples on both sides; neither list is empty."""
    task: str
    before: list[GradedSample]
    after: list[GradedSample]

    @property
    def rise(self) -> float:
        """Change of the pass rate."""
        return passed(self.after) / len(self.after) - passed(self.before) / len(self.before)


class Choice(NamedTuple):
    """The two samples of a task that a rule shows."""
    task: str
    before: GradedSample
    after: GradedSample


class Rule(NamedTuple):
    """Which tasks and samples to show, in words and as a function."""
    title: str
    text: str
    choose: Callable[[Sequence[Pair]], list[Choice]]


def passed(samples: Sequence[GradedSample]) -> int:
    """How many are correct."""
    return sum(sample.correct for sample in samples)


# ---- the rules -------------------------------------------------------------------------------------------------------

def most_gained(pairs: Sequence[Pair]) -> list[Choice]:
    """The tasks whose pass rate rose most."""
    risen = sorted((pair for pair in pairs if pair.rise > 0), key=lambda pair: (-pair.rise, pair.task))
    return [Choice(pair.task, _first(pair.before, False), _first(pair.after, True)) for pair in risen[:EACH]]


def most_lost(pairs: Sequence[Pair]) -> list[Choice]:
    """The tasks whose pass rate fell most."""
    fallen = sorted((pair for pair in pairs if pair.rise < 0), key=lambda pair: (pair.rise, pair.task))
    return [Choice(pair.task, _first(pair.before, True), _first(pair.after, False)) for pair in fallen[:EACH]]


def unchanged(pairs: Sequence[Pair]) -> list[Choice]:
    """Of the tasks that pass as often as before, the one with the highest mean reward."""
    same = [pair for pair in pairs if pair.rise == 0 and passed(pair.after)]
    best = sorted(same, key=lambda pair: (-_mean_reward(pair.after), pair.task))[:1]
    return [Choice(pair.task, _first(pair.before, True), _first(pair.after, True)) for pair in best]


def highest_reward(pairs: Sequence[Pair]) -> list[Choice]:
    """The sample with the highest reward after training, beside the best one of its task before."""
    solved = [pair for pair in pairs if passed(pair.after)]
    best = sorted(solved, key=lambda pair: (-_best(pair.after).reward, pair.task))[:1]
    return [Choice(pair.task, _best(pair.before), _best(pair.after)) for pair in best]


def most_idle(pairs: Sequence[Pair]) -> list[Choice]:
    """The correct sample with the most calls that do nothing."""
    idlest = [(pair, max((s for s in pair.after if s.correct), key=lambda s: s.idle or 0))
              for pair in pairs if passed(pair.after)]
    worst = sorted(((pair, sample) for pair, sample in idlest if sample.idle), key=lambda both: (-both[1].idle, both[0].task))[:1]
    return [Choice(pair.task, _best(pair.before), sample) for pair, sample in worst]


def attempt_on_grader(pairs: Sequence[Pair]) -> list[Choice]:
    """The first sample that names things used to attack graders."""
    flagged = [(pair, sample) for pair in sorted(pairs) for sample in pair.after if sample.flags][:1]
    return [Choice(pair.task, pair.before[0], sample) for pair, sample in flagged]


RULES = (
    Rule("Most gained", f"The {EACH} tasks whose pass rate rose most, by name where equal. Shown: the first sample that fails "
         "before, the first that passes after.", most_gained),
    Rule("Most lost", f"The {EACH} tasks whose pass rate fell most. Shown: the first sample that passes before, the first that "
         "fails after.", most_lost),
    Rule("Unchanged", "Of the tasks whose pass rate is the same and above 0, the one with the highest mean reward after. "
         "Shown: the first sample that passes, before and after.", unchanged),
    Rule("Highest reward", "The task of the sample with the highest reward after. Shown: the sample with the highest reward, "
         "before and after.", highest_reward),
    Rule("Idle calls", "Of the samples that pass after, the one with the most calls that provably do nothing. Beside it the "
         "sample with the highest reward before.", most_idle),
    Rule("Attempts on the grader", "The first sample after, by task name, that names things used to attack graders. Beside it "
         "the task's first sample before.", attempt_on_grader),
)


def pairs_of(before: Side, after: Side) -> list[Pair]:
    """The tasks that have graded samples on both sides, by name."""
    both = [Pair(task, graded(before.tasks[task]), graded(after.tasks[task]))
            for task in sorted(before.tasks.keys() & after.tasks)]
    return [pair for pair in both if pair.before and pair.after]


def _first(samples: Sequence[GradedSample], correct: bool) -> GradedSample:
    return next(sample for sample in samples if sample.correct == correct)


def _best(samples: Sequence[GradedSample]) -> GradedSample:
    return max(samples, key=lambda sample: sample.reward)


def _mean_reward(samples: Sequence[GradedSample]) -> float:
    return math.fsum(sample.reward for sample in samples) / len(samples)


# ---- the sides -------------------------------------------------------------------------------------------------------

def probe_side(doc: dict) -> Side:
    """The samples of a probe."""
    name = f"{short(doc['model'])} with {short(doc['lora'])}" if doc["lora"] else short(doc["model"])
    return Side(name, {group.task: list(group.samples) for group in groups_from(doc)})


def run_sides(run: Path) -> tuple[Side, Side]:
    """A run's own samples, from the first and the last time, of each task that it trained on more than once."""
    first, last = {}, {}
    for row in read_rows(run / "metrics.jsonl"):
        tasks = {}
        for sample in read_rows(run / "completions" / f"completions_{row['step']:05d}.jsonl"):
            tasks.setdefault(sample["task"], []).append(GradedSample.from_row(sample))
        for task, samples in tasks.items():
            first.setdefault(task, (row["step"], samples))
            last[task] = row["step"], samples
    repeated = [task for task in first if first[task][0] != last[task][0]]
    return tuple(Side(name, {task: side[task][1] for task in repeated}, {task: f"step {side[task][0]}" for task in repeated})
                 for name, side in (("first time in training", first), ("last time in training", last)))


# ---- the page --------------------------------------------------------------------------------------------------------

def page(run: Path | None, probes: Sequence[tuple[Path, Path]]) -> str:
    """SAMPLES.md from a run's folder, pairs of probes, or both; InputError where there is nothing to show."""
    signs = signs_of(run) if run else None
    if not signs and not probes:
        raise InputError(f"{run}: no metrics.jsonl with a step in it; give the folder of a run or of an experiment, or two "
                         "probes with --before and --after")
    lines = ["# Samples", "", "Written by `scripts/report_samples.py` from the files named below; nothing is typed by hand.", ""]
    if signs:
        lines += [f"- run `{short(run)}`: {described(run)}", *(f"- {line}" for line in signs_text(signs).splitlines())]
    for before, after in probes:
        docs = [read(before), read(after)]
        sides = [*map(probe_side, docs)]
        lines += ["", f"## `{short(before)}` and `{short(after)}`", "", *map(_weak_cases, docs, ("before", "after")), "",
                  "```text", comparison_text(compare(*docs), [side.name for side in sides]), "```", *chosen(*sides)]
    if not probes:
        lines += ["", "## The run's own samples", *chosen(*run_sides(run))]
    return "\n".join(lines) + "\n"


def described(run: Path) -> str:
    """A run in one line, from its config.yaml and log: steps, settings that differ from their defaults, versions."""
    try:
        config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{run}/config.yaml: {error.strerror}; give the folder of a run") from error
    about = config.get(ABOUT, {})
    settings = {name: value for section, values in config.items() if section not in (ABOUT, ORIGINS)
                for name, value in values.items()}
    chosen = [f"{name.upper()}={short(setting_text(value))}" for name, value in settings.items()
              if name in LEAVES and not is_default(name, value)]
    steps = [row["step"] for row in read_rows(run / "metrics.jsonl")]
    facts = [f"{steps[-1]} steps", " ".join(chosen) or "default settings",
             *(f"{name} {about[name]}" for name in ("git", "started") if name in about), about.get("sandbox", "")]
    return printable("; ".join(filter(None, facts)))


def setting_text(value) -> str:
    """A value of config.yaml as text, blank for null, which means unset."""
    return "" if value is None else text_of(value)


def is_default(name: str, value) -> bool:
    """Whether a value of config.yaml is the setting's default; null means unset, and mappings are not JSON text there."""
    leaf = LEAVES[name]
    return value is None or value == (json.loads(leaf.default) if leaf.type is Kwargs else leaf.default)


def chosen(before: Side, after: Side) -> list[str]:
    """Every rule with the samples that it chooses."""
    pairs = {pair.task: pair for pair in pairs_of(before, after)}
    lines = []
    for rule in RULES:
        choices = rule.choose([*pairs.values()])
        lines += ["", f"### {rule.title}", "", rule.text + ("" if choices else " There is none.")]
        for choice in choices:
            lines += ["", f"#### {choice.task}: {rates_text(pairs[choice.task])}", "", "<table><tr>",
                      *_cell(before, choice.task, choice.before), *_cell(after, choice.task, choice.after), "</tr></table>"]
    return lines


def rates_text(pair: Pair) -> str:
    """How many samples of a task pass."""
    return f"{passed(pair.before)} of {len(pair.before)} pass before, {passed(pair.after)} of {len(pair.after)} after"


def _cell(side: Side, task: str, sample: GradedSample) -> list[str]:
    """A table cell; the Markdown inside needs the blank lines."""
    return ["<td>", "", f"`{side.name}`{' ' + side.where[task] if task in side.where else ''}", "", grade_text(sample), "",
            fenced(sample.code), "", "</td>"]


def short(path: str | Path) -> str:
    """A path without the folders of this machine: from runs/ on, else its last part; a relative path unchanged."""
    parts = Path(path).parts
    if not Path(path).is_absolute():
        return str(path)
    return str(Path(*parts[parts.index("runs"):])) if "runs" in parts else parts[-1]


def _weak_cases(doc: dict, name: str) -> str:
    summary = doc["summary"]
    return (f"- weak cases {name}: {summary['weak_passes']} of {summary['passes_rechecked']} passes fail on second cases; "
            f"tasks without signal {name}: {number_text(doc['metrics']['frac_reward_zero_std'])}")


def grade_text(sample: GradedSample) -> str:
    """One line: verdict, reward, the parts of the style, length."""
    cut = " (cut at the token limit)" if sample.finish == "length" else ""
    if sample.style is None:
        parts = "".join(f", {name} {value:.3f}" for name, value in sample.scores.items())
        return f"{sample.verdict}: reward {sample.reward:.3f}{parts}, {sample.tokens} tokens{cut}"
    pure = "pure" if sample.pure else "not pure"
    return (f"{sample.verdict}: reward {sample.reward:.3f}, style {sample.style:.3f}, depth {sample.depth}, "
            f"calls {sample.calls}, idle {sample.idle}, {pure}, {sample.tokens} tokens{cut}")


def fenced(code: str) -> str:
    """The code in a Markdown fence that nothing inside can close."""
    longest = max(map(len, re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{safe_code(code)}\n{fence}"


def safe_code(code: str) -> str:
    """The code as a page or a terminal can show it: control characters escaped, long code cut with a note."""
    cut = f"\n... {len(code) - MAX_CODE} more characters" if len(code) > MAX_CODE else ""
    return printable(code[:MAX_CODE]).strip("\n") + cut
