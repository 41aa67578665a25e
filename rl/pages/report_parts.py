"""The parts of report.html that go task by task: pass rates before and after as dumbbells, and programs side by side.

Which programs are shown is decided by the rules of rl/pages/samples.py, which the page states. Programs are strangers' text: they
pass through rl/pages/markup.py alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rl.datalog import Sample
from rl.pages.markup import Html, element, highlighted, joined
from rl.pages.report import Report
from rl.pages.samples import RULES, Pair, Rule, Shown, Side, grade_text, pairs_of, passed, shown

MAX_DETAIL = 300      # characters of what the grader said of a sample


class Bell(NamedTuple):
    """A task's pass rate before and after; `interval` and `mark` are text, blank where there is none."""
    task: str
    before: float
    after: float
    interval: str = ""
    mark: str = ""


# ---- tasks -----------------------------------------------------------------------------------------------------------

def task_list(report: Report) -> Html | None:
    """Pass rates by task, sorted by change: of each pair of probes, or of the run's own first and last samples."""
    parts = []
    for probes in report.probes:
        marks = dict.fromkeys(probes.result.gained, "gained") | dict.fromkeys(probes.result.lost, "lost")
        bells = [Bell(task, before, after, f"[{gain.low:+.2f}, {gain.high:+.2f}]", marks.get(task, ""))
                 for task, (before, after, gain) in probes.result.by_task.items()]
        note = ("95 % intervals resample the task's own samples, paired by number. Gained: solved at least once after and never "
                "before; lost: the other way round.")
        parts += [element("h3", probes.title), dumbbells(bells, note)]
    if report.own:
        pairs = pairs_of(*report.own)
        bells = [Bell(pair.task, passed(pair.before) / len(pair.before), passed(pair.after) / len(pair.after))
                 for pair in pairs]
        note = "One group of samples each, so changes are rough; probes on fresh cases say more." if pairs else \
            "No task was trained on twice yet."
        parts += [element("h3", "First and last time in training"), dumbbells(bells, note)]
    return joined(*parts) if parts else None


def dumbbells(bells: Sequence[Bell], note: str, what: str = "Pass rate") -> Html:
    """A list of values from 0 to 1 before and after, the greatest rise first."""
    ordered = sorted(bells, key=lambda bell: (bell.before - bell.after, bell.task))
    legend = f"{what} from 0 (left) to 1: hollow before, filled after. " if bells else ""
    return joined(element("p", legend + note, class_="faint"),
                  element("ol", *map(_bell, ordered), class_="bells") if bells else None)


def _bell(bell: Bell) -> Html:
    change = bell.after - bell.before
    way = "up" if change > 0 else "down" if change < 0 else "same"
    at = {"before": f"{100 * bell.before:.1f}%", "after": f"{100 * bell.after:.1f}%"}
    picture = element("svg", element("line", x1="0%", x2="100%", y1=9, y2=9, class_="scale"),
                      element("line", x1=at["before"], x2=at["after"], y1=9, y2=9, class_=f"gap {way}"),
                      element("circle", cx=at["before"], cy=9, r=4, class_=f"from {way}"),
                      element("circle", cx=at["after"], cy=9, r=4, class_=way), aria_hidden="true")
    said = " ".join(filter(None, [bell.mark, bell.interval]))
    return element("li", element("span", bell.task), picture,
                   element("span", f"{bell.before:.3f} \u2192 {bell.after:.3f}", class_="num"),
                   element("span", f"{change:+.3f}", class_="num"), element("span", said, class_="ci") if said else None)


# ---- programs --------------------------------------------------------------------------------------------------------

def lowest_reward(pairs: Sequence[Pair]) -> list[Shown]:
    """The task that is paid least after training."""
    worst = sorted(pairs, key=lambda pair: (sum(s.reward for s in pair.after) / len(pair.after), pair.rise, pair.task))[:1]
    return [Shown(pair.task, max(pair.before, key=lambda s: s.reward), min(pair.after, key=lambda s: s.reward)) for pair in worst]


LOWEST = Rule("Lowest reward", "The task with the lowest mean reward after, the most fallen where equal. Shown: the best paid "
              "sample before, the worst paid after.", lowest_reward)


def programs(report: Report) -> Html | None:
    """Programs before and after, by every rule, of each pair of probes, or of the run's own samples."""
    parts = [(probes.title, probes.sides) for probes in report.probes]
    parts += [("First and last time in training", report.own)] if report.own else []
    made = [element("details", element("summary", title), *_chosen(*sides), open="open") for title, sides in parts]
    return joined(*made) if made else None


def _chosen(before: Side, after: Side) -> list[Html]:
    pairs = {pair.task: pair for pair in pairs_of(before, after)}
    parts, empty = [], []
    for rule in (*RULES, LOWEST):
        if not (found := rule.choose([*pairs.values()])):
            empty.append(rule.title.lower())
            continue
        parts += [element("h3", rule.title), element("p", rule.text, class_="faint")]
        parts += [_compared(pairs[chosen.task], chosen, before, after) for chosen in found]
    if empty:
        parts.append(element("p", f"No sample was found for: {', '.join(empty)}.", class_="faint"))
    return parts


def _compared(pair: Pair, chosen: Shown, before: Side, after: Side) -> Html:
    rates = (f"{passed(pair.before)} of {len(pair.before)} pass before, {passed(pair.after)} of {len(pair.after)} after")
    return joined(element("h4", f"{pair.task}: {rates}"),
                  element("div", _program(before, pair.task, chosen.before), _program(after, pair.task, chosen.after),
                          class_="pair"))


def _program(side: Side, task: str, sample: Sample) -> Html:
    where = f", {side.where[task]}" if task in side.where else ""
    detail = sample.detail[:MAX_DETAIL] + (" ..." if len(sample.detail) > MAX_DETAIL else "")
    return element("div", element("p", element("b", side.name), where, element("br"), grade_text(sample),
                                  joined(element("br"), detail) if detail else None,
                                  joined(element("br"), f"flags: {', '.join(sample.flags)}") if sample.flags else None,
                                  class_="meta"),
                   element("pre", highlighted(shown(sample.code)), tabindex="0"))
