"""report.html from what rl/pages/report.py gathered: one file that needs no network, no script and no other file.

Every sentence about a result is a figure from the run's files; nothing is judged here beyond the signs of
rl/evaluation/signs.py and the intervals of rl/evaluation/stats.py. Which programs are shown is decided by the rules of
rl/pages/samples.py, which the page states. Programs are strangers' text: they pass through rl/pages/markup.py alone.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError
from rl.evaluation.probe_report import LABELS, MEASURES, gaming
from rl.evaluation.signs import Signs, signs_text
from rl.evaluation.stats import Gain
from rl.pages.curves import CURVES, draw, lines_of, short_number, values
from rl.pages.markup import SHEET, Html, element, highlighted, joined
from rl.pages.report import Probes, Report, mean, total, windows
from rl.pages.samples import RULES, Pair, Rule, Shown, Side, grade_text, pairs_of, passed, short, shown
from rl.rewards.base import GradedSample
from rl.run.files import LogError, write_aside
from rl.run.log import metric_value
from rl.run.progress import clock
from rl.settings.declared import LEAVES, text_of

# What may go out from the page: nothing. Programs on it are strangers' text, so this stands even if escaping failed.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
FIGURES = {**LABELS, "completions/mean_length": "length, tokens", "completions/clipped_ratio": "cut at the token limit",
           "frac_reward_zero_std": "groups without signal"}
BIG = ("reward", "pass_rate", "style")
STRETCHES = 10                   # of a run, in the table that says in numbers what the curves show
DRIFT = 1e-3                     # of log-probabilities: the limit that NOTES names for fp32


def page(report: Report) -> str:
    """The whole page."""
    name = run_name(report)
    sections = {"Figures": figures(report), "Signs": signs(report), "Curves": curves(report.curve_rows),
                "Tasks": task_list(report), "Samples": programs(report), "Settings": settings(report)}
    present = {title: body for title, body in sections.items() if body}
    head = element("head", element("meta", charset="utf-8"), element("title", f"Report: {name}"),
                   element("meta", name="viewport", content="width=device-width,initial-scale=1"),
                   element("meta", http_equiv="Content-Security-Policy", content=POLICY), element("style", Html(SHEET)))
    body = element("body", header(report, name),
                   element("nav", *[element("a", title, href=f"#{title.lower()}") for title in present]), missing(report),
                   *[element("section", element("h2", title, id=title.lower()), content) for title, content in present.items()],
                   element("footer", "Written by scripts/report.py from the files of the run; none of it is typed by hand.",
                           class_="faint"))
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def write(report: Report, out: Path, curves: Path) -> None:
    """The page and its curves; a curve that an earlier report drew and this one does not is taken away."""
    text = page(report)
    try:
        curves.mkdir(parents=True, exist_ok=True)
        for curve in CURVES:
            if (svg := draw(curve, report.curve_rows)) if report.rows else None:
                write_aside(curves / f"{curve.name}.svg", svg.encode() + b"\n")
            else:
                (curves / f"{curve.name}.svg").unlink(missing_ok=True)
        write_aside(out, text.encode())
    except (LogError, OSError) as error:
        reason = error.__cause__ or error
        raise InputError(f"{out}: cannot be written ({reason.strerror or reason}); choose another place with --out") from error


def run_name(report: Report) -> str:
    """The run's folder; that of the experiment as well where it lies in one."""
    run = report.run.resolve()
    return f"{short(run.parent)}/{run.name}" if run.name == "train" else short(run)


def header(report: Report, name: str) -> Html:
    """The run's name and how far it came."""
    rows, model = report.rows, report.settings.get("model", {}).get("model")
    seconds, tokens = total(rows, "step_time"), total(rows, "num_tokens")
    facts = [f"{rows[-1]['step']} of {report.steps or '?'} steps" if rows else "no step has ended yet",
             f"{clock(seconds)} in steps, {seconds / len(rows):.1f} s a step" if seconds else "",
             f"{tokens:,.0f} tokens sampled" if tokens else "", f"model {short(model)}" if isinstance(model, str) else "",
             f"started {report.about['started']}" if "started" in report.about else "",
             f"resumed {len(report.about['resumed'])} times" if isinstance(report.about.get("resumed"), list) else ""]
    return element("header", element("h1", name), element("p", "; ".join(filter(None, facts)), class_="faint"), big(report))


def big(report: Report) -> Html | None:
    """The few figures to see first: the log's ends, and the pass rates of the probes."""
    cells = []
    if len(report.rows) > 1:
        first, last = windows(report.rows)
        cells = [_big(f"{FIGURES[name]}, in training", mean(first, name), mean(last, name), f"first and last {_steps(last)}")
                 for name in BIG]
    if report.signs:
        cells.append(_big("steps without a gradient", report.signs.without_gradient, report.signs.steps,
                          f"groups without signal: {report.signs.groups_without_signal:.3f}", " of "))
    for probes in report.probes:
        gain = probes.result.gains["pass_rate"]
        cells.append(_big(f"pass rate, {probes.title.lower()}", probes.result.before["pass_rate"].value,
                          probes.result.after["pass_rate"].value, f"gain {gain_text(gain)}, {sure(gain)}"))
    if len(report.evals) > 1:
        first, last = report.evals[0], report.evals[-1]
        cells.append(_big("pass rate, held-out, on the way", metric_value(first, "eval/pass_rate"), metric_value(last, "eval/pass_rate"),
                          f"{metric_value(last, 'eval/samples') or 0:.0f} samples each, after {first['step']} and {last['step']} steps"))
    return element("dl", *cells, class_="big") if cells else None


def _big(label: str, before: float | None, after: float | None, meta: str, between: str = " \u2192 ") -> Html:
    show = str if isinstance(before, int) else short_number
    return element("div", element("dt", label), element("dd", f"{show(before)}{between}{show(after)}"),
                   element("dd", meta, class_="meta"))


def missing(report: Report) -> Html | None:
    """What could not be read, or is not there yet."""
    if not report.missing:
        return None
    return element("div", element("b", "Not in this report"), element("ul", *[element("li", line) for line in report.missing]),
                   class_="missing")


# ---- figures ---------------------------------------------------------------------------------------------------------

def figures(report: Report) -> Html | None:
    """The log's first and last fifth, and each pair of probes with paired intervals, as tables."""
    tables = [*([training_table(report.rows)] if report.rows else []), *map(probe_table, report.probes)]
    return element("div", *tables, class_="tables") if tables else None


def training_table(rows: Sequence[dict]) -> Html:
    """Means of the first and the last fifth of the steps; one step alone has nothing to be compared with."""
    first, last = windows(rows)
    lines = []
    for name, label in FIGURES.items():
        before, after = mean(first, name), mean(last, name) if len(rows) > 1 else None
        if before is not None or after is not None:
            change = "-" if before is None or after is None else f"{after - before:+,.{1 if abs(after - before) >= 10 else 3}f}"
            lines.append((label, short_number(before), short_number(after), change))
    return table(("In training", "the log's own samples; early and late steps train on different tasks"),
                 ("", f"first {_steps(first)}", f"last {_steps(last)}" if len(rows) > 1 else "later", "change"), lines)


def probe_table(probes: Probes) -> Html:
    """Every measure of two probes with its gain, and what the means hide."""
    result, docs = probes.result, probes.docs
    lines = [(LABELS[name], short_number(result.before[name].value), short_number(result.after[name].value),
              gain_cell(result.gains[name])) for name in MEASURES]
    summaries, metrics = [doc["summary"] for doc in docs], [doc["metrics"] for doc in docs]
    lines += [("solved at least once", *[f"{s['solved_at_least_once']} of {s['tasks']}" for s in summaries],
               f"{len(result.gained)} gained, {len(result.lost)} lost"),
              ("tasks without signal", *[short_number(m["frac_reward_zero_std"]) for m in metrics], ""),
              ("passes that fail on second cases", *[f"{s['weak_passes']} of {s['passes_rechecked']}" for s in summaries], "")]
    samples = max((len(rows) for rows in probes.sides[0].tasks.values()), default=0)
    note = (f"{len(result.by_task)} tasks x {samples} samples; before: {probes.sides[0].name}; after: {probes.sides[1].name}. "
            "Gain with its 95 % interval, and p, the share of 10,000 paired resamples of tasks without a gain")
    return table((probes.title, note), ("", "before", "after", "gain"), lines)


def table(caption: tuple[str, str], head: Sequence, lines: Sequence[Sequence], class_: str | None = None) -> Html:
    """A table whose first column names its rows."""
    rows = [element("tr", element("th", line[0], scope="row"), *[element("td", cell) for cell in line[1:]]) for line in lines]
    top = [element("th", cell, scope="col") if cell else element("td") for cell in head]
    said = element("caption", element("b", caption[0]), element("br"), caption[1]) if caption[0] else None
    return element("div", element("table", said, element("thead", element("tr", *top)), element("tbody", *rows), class_=class_),
                   class_="scroll")


def gain_text(gain: Gain) -> str:
    """A gain and its interval."""
    return "-" if math.isnan(gain.value) else f"{gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"


def gain_cell(gain: Gain) -> Html:
    """The same with p and in words, in pieces between which a narrow column may break."""
    if math.isnan(gain.value):
        return joined("-")
    return joined(element("span", f"{gain.value:+.3f}"), " ", element("span", f"[{gain.low:+.3f}, {gain.high:+.3f}]"), " ",
                  element("span", f"p {gain.p:.4f}, {sure(gain)}", class_="faint"))


def sure(gain: Gain) -> str:
    """Whether the interval leaves zero out."""
    return "up" if gain.low > 0 else "down" if gain.high < 0 else "unsure"


# ---- signs -----------------------------------------------------------------------------------------------------------

def signs(report: Report) -> Html | None:
    """What a rising mean can hide, from the log and from the probes; what needs a look carries a mark."""
    lines = [(_alarming(line, report.signs), line) for line in signs_text(report.signs).splitlines()] if report.signs else []
    lines += log_signs(report.rows)
    for probes in report.probes:
        where, result, after = probes.title.lower(), probes.result, probes.docs[1]["summary"]
        lines += [(True, f"{where}: {line}") for line in gaming(result.gains)]
        lines += [(bool(result.lost), f"{where}, solved before and never after: {len(result.lost)}{_named(result.lost)}"),
                  (False, f"{where}, never solved before and solved after: {len(result.gained)}{_named(result.gained)}"),
                  (after["weak_passes"] > 0, f"{where}, weak cases: {after['weak_passes']} of {after['passes_rechecked']} passes "
                   "after training fail on second cases")]
        lines += [(True, f"{where}, not the same measurement: {'; '.join(result.differ)}")] if result.differ else []
    items = [element("li", line.replace("->", "\u2192"), class_="alarm" if alarm else None)
             for alarm, line in sorted(lines, key=lambda found: not found[0])]
    return element("ul", *items, class_="said") if items else None


def _alarming(line: str, found: Signs) -> bool:
    return ("likely" in line or line.startswith("ALARM") or (line.startswith("tasks lost") and bool(found.lost))
            or (line.startswith("weak cases") and found.weak > 0))


def log_signs(rows: Sequence[dict]) -> list[tuple[bool, str]]:
    """Attempts on the grader, sampler against trainer, updates thrown away; each with whether it is alarming."""
    lines = []
    if (attempts := mean(rows, "hack_attempts_per_1000")) is not None:
        first, last = windows(rows)
        lines.append((attempts > 0, f"attempts on the grader: {attempts:.2f} in 1,000 samples; first fifth "
                      f"{short_number(mean(first, 'hack_attempts_per_1000'))}, last fifth "
                      f"{short_number(mean(last, 'hack_attempts_per_1000'))}"))
    if (drift := mean(rows, "sampling/sampling_logp_difference/mean")) is not None:
        lines.append((drift > DRIFT, f"sampler against trainer: log-probabilities differ by {drift:.1e} on average (in fp32 "
                      f"above {DRIFT} a bug)"))
    with_signal = [row for row in rows if (metric_value(row, "frac_reward_zero_std") or 0) < 1]
    if skipped := total(with_signal, "skipped_steps"):    # a step without any signal counts as skipped, and is no fault
        lines.append((True, f"updates skipped because the gradient was not finite: {skipped:.0f}"))
    return lines


def _named(tasks: Sequence[str]) -> str:
    return f" ({', '.join(tasks)})" if tasks else ""


# ---- curves ----------------------------------------------------------------------------------------------------------

def curves(rows: Sequence[dict]) -> Html | None:
    """Every curve that shows something; those that are zero throughout or without values by name; the same in numbers."""
    if not rows:
        return None
    shown = [curve for curve in CURVES if any(number for line in curve.lines for number in values(line, rows))]
    drawn = {curve.name: draw(curve, rows) for curve in CURVES}
    rest = [curve.title.lower() + (" (no values)" if drawn[curve.name] is None else " (zero throughout)")
            for curve in CURVES if curve not in shown]
    return joined(element("p", "Faint dots are steps, lines are running means. Axes begin at zero; shares end at one.",
                          class_="faint"),
                  element("div", *[element("figure", drawn[curve.name]) for curve in shown], class_="curves"),
                  element("p", f"Not drawn: {', '.join(rest)}.", class_="faint") if rest else None,
                  element("details", element("summary", "The curves in numbers"), numbers(rows)))


def numbers(rows: Sequence[dict]) -> Html:
    """Means of up to ten equal stretches of the run, a row a line of a curve."""
    edges = sorted({round(at * len(rows) / STRETCHES) for at in range(STRETCHES + 1)})
    parts = [rows[start:end] for start, end in zip(edges, edges[1:], strict=False)]
    lines = []
    for curve in CURVES:
        for line in (named := lines_of(curve, rows)):
            known = [[number for number in values(line, part) if number is not None] for part in parts]
            if any(known):
                means = [short_number(sum(found) / len(found) if found else None) for found in known]
                lines.append((joined(curve.title, f": {line.label}" if len(named) > 1 else "", " ",
                                     element("span", curve.unit, class_="faint")), *means))
    heads = [f"{part[0]['step']}\u2013{part[-1]['step']}" if len(part) > 1 else part[0]["step"] for part in parts]
    return table(("", ""), ("steps", *heads), lines, "numbers")


# ---- settings --------------------------------------------------------------------------------------------------------

def settings(report: Report) -> Html | None:
    """Every setting with where it came from, those that were chosen first, and what the run ran with."""
    if not report.settings:
        return None
    found = [(section, str(name), content) for section, part in report.settings.items() for name, content in part.items()]
    origins = {name: _origin(name, content, report.origins.get(name)) for _, name, content in found}
    chosen = [f"{name.upper()}={setting_text(content)}" for _, name, content in found if origins[name] != "default"]
    lines = [(element("code", name.upper()), setting_text(content) or "(blank)", origins[name], section)
             for section, name, content in found]
    about = [(name, setting_text(content)) for name, content in report.about.items()]
    return joined(element("p", element("code", " ".join(chosen) or "all settings are the defaults")),
                  element("details", element("summary", f"All {len(lines)} settings"),
                          table(("", ""), ("setting", "value", "origin", "section"), lines, "text")),
                  element("details", element("summary", "Program and machine"), table(("", ""), ("", ""), about, "text"))
                  if about else None)


def setting_text(content) -> str:
    """A value of config.yaml as text; null is an unset one."""
    return "" if content is None else text_of(content)


def _origin(name: str, content, recorded) -> str:
    if name not in LEAVES:
        return "unknown to this version"
    default, (kind, _, place) = LEAVES[name].default, str(recorded or "set").partition(" ")
    said = f"{kind} {short(place)}" if place else kind    # a path as short as elsewhere on the page
    if content in (None, default):
        return said if recorded else "default"
    return f"{said} (default {text_of(default) or 'blank'})"


def _steps(rows: Sequence[dict]) -> str:
    return "step" if len(rows) == 1 else f"{len(rows)} steps"


# ---- tasks and programs -----------------------------------------------------------------------------------------------


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


def _program(side: Side, task: str, sample: GradedSample) -> Html:
    where = f", {side.where[task]}" if task in side.where else ""
    detail = sample.detail[:MAX_DETAIL] + (" ..." if len(sample.detail) > MAX_DETAIL else "")
    return element("div", element("p", element("b", side.name), where, element("br"), grade_text(sample),
                                  joined(element("br"), detail) if detail else None,
                                  joined(element("br"), f"flags: {', '.join(sample.flags)}") if sample.flags else None,
                                  class_="meta"),
                   element("pre", highlighted(shown(sample.code)), tabindex="0"))
