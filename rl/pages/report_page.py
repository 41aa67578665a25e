"""report.html from what rl/pages/report.py read: one file that needs no network, no script and no other file.

Every figure is from the run's files; the page's only judgements are the signs (rl/evaluation/signs.py, probe_report.py) and the
intervals (rl/evaluation/stats.py). The rules that choose programs are stated on the page. Programs are untrusted, so all text
passes through rl/pages/markup.py. The functions below are in the order of the page.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError
from rl.evaluation.probe_report import LABELS, MEASURES, style_gaming
from rl.evaluation.signs import mean, names_text, sign_lines, total, windows
from rl.evaluation.stats import Gain, gain_text, number_text
from rl.pages.curves import CURVES, draw, lines_of, short_number, values
from rl.pages.markup import SHEET, Html, element, highlighted, joined
from rl.pages.report import Probes, Report
from rl.pages.samples import (
    RULES,
    Choice,
    Pair,
    Rule,
    Side,
    grade_text,
    is_default,
    pairs_of,
    passed,
    rates_text,
    safe_code,
    setting_text,
    short,
)
from rl.rewards.base import GradedSample
from rl.run.files import LogError, write_aside
from rl.run.log import metric_value
from rl.run.progress import clock
from rl.settings.declared import FIXED, LEAVES

# The page may load nothing from anywhere. It shows untrusted programs, so this holds even if the escaping failed.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
FIGURES = {**LABELS, "completions/mean_length": "length, tokens", "completions/clipped_ratio": "cut at the token limit",
           "frac_reward_zero_std": "groups without signal"}
BIG = ("reward", "pass_rate", "style")
STRETCHES = 10                   # of the run, in the table of the curves' numbers
DRIFT = 1e-3                     # the limit for differences of log-probabilities in fp32
MAX_DETAIL = 300                 # characters of the grader's message on a sample
OWN_SAMPLES = "First and last time in training"


def page(report: Report) -> str:
    """The whole page."""
    name = run_name(report)
    sections = {"Figures": figures(report), "Signs": signs(report), "Curves": curves(report.curve_rows),
                "Tasks": tasks(report), "Samples": programs(report), "Settings": settings(report)}
    present = {title: content for title, content in sections.items() if content}
    head = element("head", element("meta", charset="utf-8"), element("title", f"Report: {name}"),
                   element("meta", name="viewport", content="width=device-width,initial-scale=1"),
                   element("meta", http_equiv="Content-Security-Policy", content=POLICY), element("style", Html(SHEET)))
    body = element("body", header(report, name),
                   element("nav", *[element("a", title, href=f"#{title.lower()}") for title in present]), missing(report),
                   *[element("section", element("h2", title, id=title.lower()), content) for title, content in present.items()],
                   element("footer", "Written by scripts/report.py from the files of the run; nothing is typed by hand.",
                           class_="faint"))
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def write(report: Report, out: Path, curves: Path) -> None:
    """Write the page and its curves, and remove the file of a curve that has no values any more."""
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


# ---- header ----------------------------------------------------------------------------------------------------------

def run_name(report: Report) -> str:
    """The name of the run's folder, in an experiment with the experiment's."""
    run = report.run.resolve()
    return f"{short(run.parent)}/{run.name}" if run.name == "train" else short(run)


def header(report: Report, name: str) -> Html:
    """The run's name, how far it is, and the figures to see first."""
    rows, model, about = report.rows, report.settings.get("model", {}).get("model"), report.about
    seconds, tokens = total(rows, "step_time"), total(rows, "num_tokens")
    facts = [f"{rows[-1]['step']} of {report.steps or '?'} steps" if rows else "no step has finished yet",
             f"{clock(seconds)} in steps, {seconds / len(rows):.1f} s per step" if seconds else "",
             f"{tokens:,.0f} tokens sampled" if tokens else "", f"model {short(model)}" if isinstance(model, str) else "",
             f"started {about['started']}" if "started" in about else "",
             f"resumed {len(about['resumed'])} times" if isinstance(about.get("resumed"), list) else ""]
    return element("header", element("h1", name), element("p", "; ".join(filter(None, facts)), class_="faint"), big(report))


def big(report: Report) -> Html | None:
    """The figures to see first: both ends of the log, and the pass rates of probes and evaluations."""
    cells = []
    if len(report.rows) > 1:
        first, last = windows(report.rows)
        cells = [_big(f"{FIGURES[name]}, in training", mean(first, name), mean(last, name), f"first and last {_steps(last)}")
                 for name in BIG]
    if report.signs:
        cells.append(_big("steps without gradient", report.signs.without_gradient, report.signs.steps,
                          f"groups without signal: {report.signs.groups_without_signal:.3f}", between=" of "))
    for probes in report.probes:
        before, after, gains = probes.comparison.before, probes.comparison.after, probes.comparison.gains
        cells.append(_big(f"pass rate, {probes.title.lower()}", before["pass_rate"].value, after["pass_rate"].value,
                          f"gain {gain_text(gains['pass_rate'])}, {direction(gains['pass_rate'])}"))
    if len(report.evals) > 1:
        first, last = report.evals[0], report.evals[-1]
        before, after = (metric_value(row, "eval/pass_rate") for row in (first, last))
        cells.append(_big("pass rate, held-out tasks, during training", before, after,
                          f"{metric_value(last, 'eval/samples') or 0:.0f} samples each, after {first['step']} and "
                          f"{last['step']} steps"))
    return element("dl", *cells, class_="big") if cells else None


def _big(label: str, before: float | None, after: float | None, note: str, between: str = " \u2192 ") -> Html:
    text = str if isinstance(before, int) else short_number
    return element("div", element("dt", label), element("dd", f"{text(before)}{between}{text(after)}"),
                   element("dd", note, class_="meta"))


def _steps(rows: Sequence[dict]) -> str:
    return "step" if len(rows) == 1 else f"{len(rows)} steps"


def missing(report: Report) -> Html | None:
    """What could not be read, or does not exist yet."""
    if not report.missing:
        return None
    return element("div", element("b", "Not in this report"), element("ul", *[element("li", line) for line in report.missing]),
                   class_="missing")


# ---- figures ---------------------------------------------------------------------------------------------------------

def figures(report: Report) -> Html | None:
    """Tables of the first and the last fifth of the log, and of each pair of probes."""
    tables = [*([training_table(report.rows)] if report.rows else []), *map(probe_table, report.probes)]
    return element("div", *tables, class_="tables") if tables else None


def training_table(rows: Sequence[dict]) -> Html:
    """Means over the first and the last fifth of the steps; a single step has nothing to be compared with."""
    first, last = windows(rows)
    lines = []
    for name, label in FIGURES.items():
        before, after = mean(first, name), mean(last, name) if len(rows) > 1 else None
        if before is not None or after is not None:
            change = "-" if before is None or after is None else f"{after - before:+,.{1 if abs(after - before) >= 10 else 3}f}"
            lines.append((label, short_number(before), short_number(after), change))
    return table(("In training", "the samples of the log; early and late steps train on different tasks"),
                 ("", f"first {_steps(first)}", f"last {_steps(last)}" if len(rows) > 1 else "later", "change"), lines)


def probe_table(probes: Probes) -> Html:
    """Every measure of two probes with its gain, and what the means hide."""
    result, docs = probes.comparison, probes.docs
    lines = [(LABELS[name], short_number(result.before[name].value), short_number(result.after[name].value),
              gain_cell(result.gains[name])) for name in MEASURES]
    summaries, metrics = [doc["summary"] for doc in docs], [doc["metrics"] for doc in docs]
    lines += [("solved at least once", *[f"{s['solved_at_least_once']} of {s['tasks']}" for s in summaries],
               f"{len(result.gained)} gained, {len(result.lost)} lost"),
              ("tasks without signal", *[short_number(m["frac_reward_zero_std"]) for m in metrics], ""),
              ("passes that fail on second cases", *[f"{s['weak_passes']} of {s['passes_rechecked']}" for s in summaries], "")]
    before, after = probes.sides
    samples = max((len(rows) for rows in before.tasks.values()), default=0)
    note = (f"{len(result.by_task)} tasks x {samples} samples; before: {before.name}; after: {after.name}. "
            "Gain with its 95 % interval; p is the share of 10,000 paired resamples of tasks without a gain")
    return table((probes.title, note), ("", "before", "after", "gain"), lines)


def table(caption: tuple[str, str], head: Sequence, lines: Sequence[Sequence], class_: str | None = None) -> Html:
    """A table with the caption (title, note); the first column names the rows."""
    rows = [element("tr", element("th", line[0], scope="row"), *[element("td", cell) for cell in line[1:]]) for line in lines]
    columns = [element("th", cell, scope="col") if cell else element("td") for cell in head]
    title, note = caption
    above = element("caption", element("b", title), element("br"), note) if title else None
    return element("div", element("table", above, element("thead", element("tr", *columns)), element("tbody", *rows),
                                  class_=class_), class_="scroll")


def gain_cell(gain: Gain) -> Html:
    """A gain with its interval, p and direction, in pieces between which a narrow column may break."""
    if math.isnan(gain.value):
        return joined("-")
    value, interval = gain_text(gain).split(" ", 1)
    return joined(element("span", value), " ", element("span", interval), " ",
                  element("span", f"p {gain.p:.4f}, {direction(gain)}", class_="faint"))


def direction(gain: Gain) -> str:
    """Whether the interval excludes zero, and on which side."""
    return "up" if gain.low > 0 else "down" if gain.high < 0 else "unsure"


# ---- signs -----------------------------------------------------------------------------------------------------------

def signs(report: Report) -> Html | None:
    """What a rising mean can hide, from the log and from the probes; lines that need a look are marked and come first."""
    lines = [*(sign_lines(report.signs) if report.signs else []), *log_signs(report.rows)]
    for probes in report.probes:
        lines += [(alarm, f"{probes.title.lower()}, {line}") for alarm, line in probe_signs(probes)]
    items = [element("li", line.replace("->", "\u2192"), class_="alarm" if alarm else None)
             for alarm, line in sorted(lines, key=lambda sign: not sign[0])]
    return element("ul", *items, class_="signs") if items else None


def log_signs(rows: Sequence[dict]) -> list[tuple[bool, str]]:
    """(whether it needs a look, line) of attempts on the grader, sampler against trainer, and skipped updates."""
    lines = []
    if (attempts := mean(rows, "hack_attempts_per_1000")) is not None:
        early, end = (short_number(mean(part, "hack_attempts_per_1000")) for part in windows(rows))
        lines.append((attempts > 0, f"attempts on the grader: {attempts:.2f} per 1,000 samples; first fifth {early}, "
                      f"last fifth {end}"))
    if (drift := mean(rows, "sampling/sampling_logp_difference/mean")) is not None:
        lines.append((drift > DRIFT, f"sampler against trainer: log-probabilities differ by {drift:.1e} on average (in fp32, "
                      f"more than {DRIFT} is a bug)"))
    with_signal = [row for row in rows if (metric_value(row, "frac_reward_zero_std") or 0) < 1]
    if skipped := total(with_signal, "skipped_steps"):    # a step without any signal is skipped by design
        lines.append((True, f"updates skipped because the gradient was not finite: {skipped:.0f}"))
    return lines


def probe_signs(probes: Probes) -> list[tuple[bool, str]]:
    """(whether it needs a look, line) of what changed between two probes."""
    result, after = probes.comparison, probes.docs[1]["summary"]
    lines = [*style_gaming(result.gains), (bool(result.lost), f"tasks lost: {names_text(result.lost)}"),
             (False, f"tasks gained: {names_text(result.gained)}"),
             (after["weak_passes"] > 0, f"weak cases: {after['weak_passes']} of {after['passes_rechecked']} passes after "
              "training fail on second cases")]
    return lines + [(True, f"not the same measurement: {'; '.join(result.differ)}")] * bool(result.differ)


# ---- curves ----------------------------------------------------------------------------------------------------------

def curves(rows: Sequence[dict]) -> Html | None:
    """Every curve with a value other than zero, the names of the others, and the same in numbers."""
    if not rows:
        return None
    shown = [curve for curve in CURVES if any(number for line in curve.lines for number in values(line, rows))]
    pictures = {curve.name: draw(curve, rows) for curve in CURVES}
    others = [curve.title.lower() + (" (no values)" if pictures[curve.name] is None else " (zero throughout)")
              for curve in CURVES if curve not in shown]
    return joined(element("p", "Faint dots are steps, lines are running means. Axes start at zero; shares end at one.",
                          class_="faint"),
                  element("div", *[element("figure", pictures[curve.name]) for curve in shown], class_="curves"),
                  element("p", f"Not drawn: {', '.join(others)}.", class_="faint") if others else None,
                  element("details", element("summary", "The curves in numbers"), numbers(rows)))


def numbers(rows: Sequence[dict]) -> Html:
    """Means over up to ten equal stretches of the run, a row per line of a curve."""
    edges = sorted({round(i * len(rows) / STRETCHES) for i in range(STRETCHES + 1)})
    parts = [rows[start:end] for start, end in zip(edges, edges[1:], strict=False)]
    lines = []
    for curve in CURVES:
        for line in (present := lines_of(curve, rows)):
            known = [[number for number in values(line, part) if number is not None] for part in parts]
            if any(known):
                means = [short_number(sum(part) / len(part) if part else None) for part in known]
                lines.append((joined(curve.title, f": {line.label}" if len(present) > 1 else "", " ",
                                     element("span", curve.unit, class_="faint")), *means))
    heads = [f"{part[0]['step']}\u2013{part[-1]['step']}" if len(part) > 1 else part[0]["step"] for part in parts]
    return table(("", ""), ("steps", *heads), lines, "numbers")


# ---- tasks -----------------------------------------------------------------------------------------------------------

class Change(NamedTuple):
    """A rate from 0 to 1 before and after; `interval` and `mark` are text, blank if there is none."""
    name: str
    before: float
    after: float
    interval: str = ""
    mark: str = ""


def tasks(report: Report) -> Html | None:
    """Pass rates by task, sorted by change: of each pair of probes, or of the run's own first and last samples."""
    parts = []
    for probes in report.probes:
        marks = dict.fromkeys(probes.comparison.gained, "gained") | dict.fromkeys(probes.comparison.lost, "lost")
        changes = [Change(task, before, after, f"[{number_text(gain.low, 2, '+')}, {number_text(gain.high, 2, '+')}]",
                          marks.get(task, ""))
                   for task, (before, after, gain) in probes.comparison.by_task.items()]
        note = ("95 % intervals resample the task's own samples, paired by number. Gained: solved at least once after, never "
                "before; lost: the reverse.")
        parts += [element("h3", probes.title), dumbbells(changes, note)]
    if report.own_samples:
        changes = [Change(pair.task, passed(pair.before) / len(pair.before), passed(pair.after) / len(pair.after))
                   for pair in pairs_of(*report.own_samples)]
        note = "One group of samples each, so the changes are rough; probes on fresh cases say more." if changes else \
            "No task was trained on twice yet."
        parts += [element("h3", OWN_SAMPLES), dumbbells(changes, note)]
    return joined(*parts) if parts else None


def dumbbells(changes: Sequence[Change], note: str, what: str = "Pass rate") -> Html:
    """A list of changes as dumbbells, the greatest rise first."""
    ordered = sorted(changes, key=lambda change: (change.before - change.after, change.name))
    legend = f"{what} from 0 (left) to 1: hollow before, filled after. " if changes else ""
    return joined(element("p", legend + note, class_="faint"),
                  element("ol", *map(_dumbbell, ordered), class_="changes") if changes else None)


def _dumbbell(change: Change) -> Html:
    rise = change.after - change.before
    way = "up" if rise > 0 else "down" if rise < 0 else "same"
    before, after = f"{100 * change.before:.1f}%", f"{100 * change.after:.1f}%"
    picture = element("svg", element("line", x1="0%", x2="100%", y1=9, y2=9, class_="scale"),
                      element("line", x1=before, x2=after, y1=9, y2=9, class_=f"gap {way}"),
                      element("circle", cx=before, cy=9, r=4, class_=f"from {way}"),
                      element("circle", cx=after, cy=9, r=4, class_=way), aria_hidden="true")
    below = " ".join(filter(None, [change.mark, change.interval]))
    return element("li", element("span", change.name), picture,
                   element("span", f"{change.before:.3f} \u2192 {change.after:.3f}", class_="num"),
                   element("span", f"{rise:+.3f}", class_="num"), element("span", below, class_="ci") if below else None)


# ---- programs --------------------------------------------------------------------------------------------------------

def lowest_reward(pairs: Sequence[Pair]) -> list[Choice]:
    """The task with the lowest mean reward after training."""
    worst = sorted(pairs, key=lambda pair: (sum(s.reward for s in pair.after) / len(pair.after), pair.rise, pair.task))[:1]
    return [Choice(pair.task, max(pair.before, key=lambda s: s.reward), min(pair.after, key=lambda s: s.reward))
            for pair in worst]


LOWEST = Rule("Lowest reward", "The task with the lowest mean reward after, the one that fell most where equal. Shown: the "
              "sample with the highest reward before, the one with the lowest after.", lowest_reward)


def programs(report: Report) -> Html | None:
    """Programs before and after, by every rule, from each pair of probes or from the run's own samples."""
    parts = [(probes.title, probes.sides) for probes in report.probes]
    parts += [(OWN_SAMPLES, report.own_samples)] if report.own_samples else []
    folds = [element("details", element("summary", title), *_chosen(*sides), open="open") for title, sides in parts]
    return joined(*folds) if folds else None


def _chosen(before: Side, after: Side) -> list[Html]:
    pairs = {pair.task: pair for pair in pairs_of(before, after)}
    parts, empty = [], []
    for rule in (*RULES, LOWEST):
        if not (choices := rule.choose([*pairs.values()])):
            empty.append(rule.title.lower())
            continue
        parts += [element("h3", rule.title), element("p", rule.text, class_="faint")]
        for choice in choices:
            parts += [element("h4", f"{choice.task}: {rates_text(pairs[choice.task])}"),
                      element("div", _program(before, choice.task, choice.before), _program(after, choice.task, choice.after),
                              class_="pair")]
    if empty:
        parts.append(element("p", f"No sample was found for: {', '.join(empty)}.", class_="faint"))
    return parts


def _program(side: Side, task: str, sample: GradedSample) -> Html:
    where = f", {side.where[task]}" if task in side.where else ""
    detail = sample.detail[:MAX_DETAIL] + (" ..." if len(sample.detail) > MAX_DETAIL else "")
    return element("div", element("p", element("b", side.name), where, element("br"), grade_text(sample),
                                  joined(element("br"), detail) if detail else None,
                                  joined(element("br"), f"flags: {', '.join(sample.flags)}") if sample.flags else None,
                                  class_="meta"),
                   element("pre", highlighted(safe_code(sample.code)), tabindex="0"))


# ---- settings --------------------------------------------------------------------------------------------------------

def settings(report: Report) -> Html | None:
    """The settings that were chosen, then all of them with their origin, then what the run ran on."""
    if not report.settings:
        return None
    leaves = [(section, str(name), value) for section, part in report.settings.items() for name, value in part.items()]
    origins = {name: _origin(name, value, report.origins.get(name)) for _, name, value in leaves}
    chosen = [f"{name.upper()}={setting_text(value)}" for _, name, value in leaves if origins[name] != "default"]
    lines = [(element("code", name.upper()), setting_text(value) or "(blank)", origins[name], section)
             for section, name, value in leaves]
    about = [(name, setting_text(value)) for name, value in report.about.items()]
    return joined(element("p", element("code", " ".join(chosen) or "all settings are the defaults")),
                  element("details", element("summary", f"All {len(lines)} settings"),
                          table(("", ""), ("setting", "value", "origin", "section"), lines, "text")),
                  element("details", element("summary", "Program and machine"), table(("", ""), ("", ""), about, "text"))
                  if about else None)


def _origin(name: str, value, recorded: str | None) -> str:
    if name not in LEAVES:
        return "default" if name in FIXED and value == FIXED[name] else "unknown to this version"
    kind, _, place = str(recorded or "set").partition(" ")
    origin = f"{kind} {short(place)}" if place else kind
    if is_default(name, value):
        return origin if recorded else "default"
    return f"{origin} (default {setting_text(LEAVES[name].default) or 'blank'})"
