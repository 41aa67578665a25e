"""Programs before and after training, side by side, chosen by rules that the page itself states: SAMPLES.md.

All of it comes from files that probes and runs wrote; no sentence about results is written here. Two probes give the two
sides: the same tasks, cases and random numbers, without the adapter and with it. A run without probes gives its own
samples: those of the step that first trained on a task, and those of the last such step.
"""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from rl.errors import InputError
from rl.evaluation.probe_report import compare, comparison_text, groups_from, read
from rl.evaluation.signs import signs_of, signs_text
from rl.pages.markup import printable
from rl.rewards.base import GradedSample
from rl.run.files import read_rows
from rl.run.log import graded
from rl.settings.declared import LEAVES, text_of

EACH = 2                # tasks shown by the rules for gains and for losses
MAX_SHOWN = 4000        # characters of one program; what was cut is said


class Side(NamedTuple):
    """The graded samples of every task under one name; `where` says of a task what the name leaves open."""
    name: str
    tasks: dict[str, list[GradedSample]]
    where: dict[str, str] = {}


class Pair(NamedTuple):
    """One task on both sides; neither list is empty."""
    task: str
    before: list[GradedSample]
    after: list[GradedSample]

    @property
    def rise(self) -> float:
        """Change of the pass rate."""
        return passed(self.after) / len(self.after) - passed(self.before) / len(self.before)


class Shown(NamedTuple):
    task: str
    before: GradedSample
    after: GradedSample


class Rule(NamedTuple):
    title: str
    text: str
    choose: Callable[[Sequence[Pair]], list[Shown]]


def passed(samples: Sequence[GradedSample]) -> int:
    """How many are correct."""
    return sum(sample.correct for sample in samples)


# ---- the rules -------------------------------------------------------------------------------------------------------

def most_gained(pairs: Sequence[Pair]) -> list[Shown]:
    """The tasks whose pass rate rose most."""
    risen = sorted((pair for pair in pairs if pair.rise > 0), key=lambda pair: (-pair.rise, pair.task))
    return [Shown(pair.task, _first(pair.before, False), _first(pair.after, True)) for pair in risen[:EACH]]


def most_lost(pairs: Sequence[Pair]) -> list[Shown]:
    """The tasks whose pass rate fell most."""
    fallen = sorted((pair for pair in pairs if pair.rise < 0), key=lambda pair: (pair.rise, pair.task))
    return [Shown(pair.task, _first(pair.before, True), _first(pair.after, False)) for pair in fallen[:EACH]]


def unchanged(pairs: Sequence[Pair]) -> list[Shown]:
    """The best paid of the tasks that pass as often as before."""
    same = [pair for pair in pairs if pair.rise == 0 and passed(pair.after)]
    best = sorted(same, key=lambda pair: (-_mean_reward(pair.after), pair.task))[:1]
    return [Shown(pair.task, _first(pair.before, True), _first(pair.after, True)) for pair in best]


def highest_reward(pairs: Sequence[Pair]) -> list[Shown]:
    """The best paid sample after training beside the best paid one of its task before."""
    solved = [pair for pair in pairs if passed(pair.after)]
    best = sorted(solved, key=lambda pair: (-_best(pair.after).reward, pair.task))[:1]
    return [Shown(pair.task, _best(pair.before), _best(pair.after)) for pair in best]


def most_idle(pairs: Sequence[Pair]) -> list[Shown]:
    """The paid sample with most calls that do nothing."""
    idle = [(pair, max((s for s in pair.after if s.correct), key=lambda s: s.idle or 0)) for pair in pairs if passed(pair.after)]
    worst = sorted((found for found in idle if found[1].idle), key=lambda found: (-found[1].idle, found[0].task))[:1]
    return [Shown(pair.task, _best(pair.before), sample) for pair, sample in worst]


def attempt_on_grader(pairs: Sequence[Pair]) -> list[Shown]:
    """The first sample that names things used to attack graders."""
    flagged = [(pair, sample) for pair in sorted(pairs) for sample in pair.after if sample.flags][:1]
    return [Shown(pair.task, pair.before[0], sample) for pair, sample in flagged]


RULES = (
    Rule("Most gained", f"The {EACH} tasks whose pass rate rose most, by name where equal. Shown: the first sample that fails "
         "before, the first that passes after.", most_gained),
    Rule("Most lost", f"The {EACH} tasks whose pass rate fell most. Shown: the first sample that passes before, the first that "
         "fails after.", most_lost),
    Rule("Unchanged", "Of the tasks whose pass rate is the same and above 0, the one with the highest mean reward after. "
         "Shown: the first sample that passes, before and after.", unchanged),
    Rule("Highest reward", "The task of the sample that is paid most after. Shown: the best paid sample, before and after.",
         highest_reward),
    Rule("Idle calls", "Of the samples that pass after, the one with most calls that provably do nothing. Beside it the best "
         "paid sample before.", most_idle),
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
    """A run's own samples: of each task that it trained on more than once, the first time and the last."""
    first, last = {}, {}
    for row in read_rows(run / "metrics.jsonl"):
        tasks = {}
        for sample in read_rows(run / "completions" / f"completions_{row['step']:05d}.jsonl"):
            tasks.setdefault(sample["task"], []).append(GradedSample.from_row(sample))
        for task, samples in tasks.items():
            first.setdefault(task, (row["step"], samples))
            last[task] = row["step"], samples
    seen = [task for task in first if first[task][0] != last[task][0]]
    return tuple(Side(name, {task: found[task][1] for task in seen}, {task: f"step {found[task][0]}" for task in seen})
                 for name, found in (("first time in training", first), ("last time in training", last)))


# ---- the page --------------------------------------------------------------------------------------------------------

def page(run: Path | None, probes: Sequence[tuple[Path, Path]]) -> str:
    """SAMPLES.md from a run's folder, pairs of probes, or both; InputError where there is nothing to show."""
    signs = signs_of(run) if run else None
    if not signs and not probes:
        raise InputError(f"{run}: no metrics.jsonl with a step in it; name the folder of a run or of a chain, or two probes "
                         "with --before and --after")
    lines = ["# Samples", "", "Written by `scripts/report_samples.py` from the files it names; none of it is typed by hand.", ""]
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
    """What a run was, from its config.yaml: settings that are not the default, versions; and how far it came."""
    try:
        config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{run}/config.yaml: {error.strerror}; give the folder of a run") from error
    about = config.pop("about", {})
    values = {name: value for section in config.values() for name, value in section.items()}
    given = [f"{name.upper()}={short(text_of(value))}" for name, value in values.items()
             if name in LEAVES and value != LEAVES[name].default]
    steps = [row["step"] for row in read_rows(run / "metrics.jsonl")]
    facts = [f"{steps[-1]} steps", " ".join(given) or "default settings",
             *(f"{name} {about[name]}" for name in ("git", "started") if name in about), about.get("sandbox", "")]
    return printable("; ".join(filter(None, facts)))


def chosen(before: Side, after: Side) -> list[str]:
    """Every rule with the tasks that it chooses."""
    pairs = {pair.task: pair for pair in pairs_of(before, after)}
    lines = []
    for rule in RULES:
        found = rule.choose([*pairs.values()])
        lines += ["", f"### {rule.title}", "", rule.text + ("" if found else " There is none.")]
        for shown in found:
            pair = pairs[shown.task]
            lines += ["", f"#### {shown.task}: {passed(pair.before)} of {len(pair.before)} pass before, "
                      f"{passed(pair.after)} of {len(pair.after)} after", "", "<table><tr>",
                      *_cell(before, shown.task, shown.before), *_cell(after, shown.task, shown.after), "</tr></table>"]
    return lines


def _cell(side: Side, task: str, sample: GradedSample) -> list[str]:
    """A table cell with Markdown inside, which needs the blank lines."""
    return ["<td>", "", f"`{side.name}`{' ' + side.where[task] if task in side.where else ''}", "", grade_text(sample), "",
            fenced(sample.code), "", "</td>"]


def short(path: str | Path) -> str:
    """A path without the folders that are one machine's own: from runs/ on, or its last part; a relative one as it is."""
    parts = Path(path).parts
    if not Path(path).is_absolute():
        return str(path)
    return str(Path(*parts[parts.index("runs"):])) if "runs" in parts else parts[-1]


def _weak_cases(doc: dict, name: str) -> str:
    summary = doc["summary"]
    return (f"- weak cases {name}: {summary['weak_passes']} of {summary['passes_rechecked']} passes fail on second cases; "
            f"without signal {name}: {doc['metrics']['frac_reward_zero_std']:.3f} of the tasks")


def grade_text(sample: GradedSample) -> str:
    """One line: verdict, reward, and what the style is made of."""
    cut = " (cut at the limit)" if sample.finish == "length" else ""
    if sample.style is None:
        parts = "".join(f", {name} {value:.3f}" for name, value in sample.scores.items())
        return f"{sample.verdict}: reward {sample.reward:.3f}{parts}, {sample.tokens} tokens{cut}"
    pure = "pure" if sample.pure else "not pure"
    return (f"{sample.verdict}: reward {sample.reward:.3f}, style {sample.style:.3f}, depth {sample.depth}, "
            f"calls {sample.calls}, idle {sample.idle}, {pure}, {sample.tokens} tokens{cut}")


def fenced(code: str) -> str:
    """The code in a fence that nothing inside of it can close."""
    longest = max(map(len, re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{shown(code)}\n{fence}"


def shown(code: str) -> str:
    """The code as a page or a terminal may show it: control characters escaped, a long text cut, and that said."""
    cut = f"\n... {len(code) - MAX_SHOWN} more characters" if len(code) > MAX_SHOWN else ""
    return printable(code[:MAX_SHOWN]).strip("\n") + cut
