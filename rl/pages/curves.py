"""Curves over a run's steps, each an SVG that stands alone: raw values as faint dots, a running mean as a line.

Axes begin at zero, shares end at one, so that small changes look small. Every curve says in words (title and desc) what
its picture shows. Nothing is smoothed away: a step without a value has no dot, and where the window holds none the line
breaks. Evaluations on the way are few, so each is a point that straight lines join to its neighbours.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from rl.pages.markup import Html, element, joined
from rl.run.log import metric_value

WIDTH, HEIGHT = 340, 180
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 28, 24    # margins around the plot; the title stands in TOP
NAMES = 16                                   # what a row with the names of lines takes more
MAX_DOTS = 1500                              # of a line; of more steps every second, third ... is dotted
SHARE = 1.0

# The same in a page and as a file, so colours are here and not in the page's style. Okabe and Ito's palette, and dashes,
# tell lines apart for every eye and in print.
STYLE = Html("""
.curve{--a:#0072b2;--b:#c44e00;--c:#007d5c;--d:#8f4c78;--text:#24231f;--faint:#65635a;--rule:#e0ded6;
  font:11.5px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
@media screen and (prefers-color-scheme:dark){
  .curve{--a:#6cb8ee;--b:#f0984f;--c:#45c8a0;--d:#d99bc4;--text:#e6e4dc;--faint:#a3a196;--rule:#3a3a37}}
.curve text{fill:var(--faint)}
.curve .name{fill:var(--text);font-weight:600;font-size:13px}
.curve path{fill:none;stroke-linejoin:round;stroke-linecap:round}
.curve .rule{stroke:var(--rule)}
.curve .axis{stroke:var(--faint)}
.curve .l0{stroke:var(--a)}
.curve .l1{stroke:var(--b);stroke-dasharray:6 4}
.curve .l2{stroke:var(--c);stroke-dasharray:1 4}
.curve .l3{stroke:var(--d);stroke-dasharray:9 4 1 4}
.curve .mean{stroke-width:2}
.curve .dots{stroke-width:3.4;opacity:.45;stroke-dasharray:none}
""")


class Line(NamedTuple):
    """One line of a curve: its label and the metric it shows, or one minus the metric; `sparse`: few steps have a value."""
    label: str
    metric: str
    complement: bool = False
    sparse: bool = False


class Curve(NamedTuple):
    """`name` is the file's; `top` the axis' fixed end, None where the values decide."""
    name: str
    title: str
    unit: str
    lines: tuple[Line, ...]
    top: float | None = None


def _measured(label: str, metric: str) -> tuple[Line, Line]:
    """A metric of training and, where there are evaluations, the same on held-out tasks."""
    return Line(label, metric), Line(f"{label}, held-out", f"eval/{metric}", sparse=True)


CURVES = (
    Curve("reward", "Mean reward", "a sample", _measured("reward", "reward")),
    Curve("pass_rate", "Pass rate", "share of samples", _measured("pass rate", "pass_rate"), SHARE),
    Curve("style", "Style of correct", "0 to 1", _measured("style", "style"), SHARE),
    Curve("depth", "Depth of correct", "nested calls", _measured("depth", "depth")),
    Curve("calls", "Calls of correct", "a sample", (Line("calls", "calls"), Line("idle", "idle"))),
    Curve("signal", "Groups with signal", "share of groups", (Line("with signal", "frac_reward_zero_std", True),), SHARE),
    Curve("groups", "Groups by outcome", "share of groups", (Line("all correct", "frac_all_good"),
          Line("mixed", "frac_mixed"), Line("none correct", "frac_all_bad")), SHARE),
    Curve("entropy", "Entropy", "nats a token", (Line("entropy", "entropy"),)),
    Curve("kl", "Distance from the base model", "KL, nats a token", (Line("kl", "kl"),)),
    Curve("length", "Completion length", "tokens", (Line("mean length", "completions/mean_length"),)),
    Curve("cut", "Cut at the token limit", "share of samples", (Line("cut", "completions/clipped_ratio"),), SHARE),
    Curve("verdicts", "Why samples fail", "share of samples", (Line("wrong", "verdict/wrong_answer"),
          Line("exception", "verdict/exception"), Line("syntax", "verdict/syntax_error"), Line("timeout", "verdict/timeout"))),
    Curve("hacks", "Attempts on the grader", "in 1,000 samples", (Line("attempts", "hack_attempts_per_1000"),)),
    Curve("grad_norm", "Gradient norm", "before clipping", (Line("norm", "grad_norm"),)),
    Curve("clip", "Tokens at a clip bound", "share of trained", (Line("low", "clip_ratio/low_mean"),
          Line("high", "clip_ratio/high_mean"))),
    Curve("adapter", "Norm of the adapter", "Frobenius", (Line("norm", "lora_delta_norm"),)),
    Curve("time", "Time of a step", "seconds", (Line("all", "step_time"), Line("sample", "time/sample"),
          Line("update", "time/update"), Line("grade", "time/grade"))),
)


def values(line: Line, rows: Sequence[dict]) -> list[float | None]:
    """What the line shows of each row; a verdict that a row does not name had no sample."""
    found = [metric_value(row, line.metric) for row in rows]
    if line.metric.startswith("verdict/"):
        found = [0.0 if number is None and "pass_rate" in row else number for row, number in zip(rows, found, strict=True)]
    return [None if number is None else 1 - number for number in found] if line.complement else found


def window(steps: int) -> int:
    """Over how many steps the running mean goes."""
    return min(steps, max(5, steps // 20 | 1))


def running_mean(numbers: Sequence[float | None], width: int) -> list[float | None]:
    """Mean of what has a value among the `width` entries around each, fewer at the ends; None where none has."""
    sums, counts = [0.0], [0]
    for number in numbers:
        sums.append(sums[-1] + (number or 0.0))
        counts.append(counts[-1] + (number is not None))
    half, found = width // 2, []
    for at in range(len(numbers)):
        low, high = max(0, at - half), min(len(numbers), at + half + 1)
        count = counts[high] - counts[low]
        found.append((sums[high] - sums[low]) / count if count else None)
    return found


def lines_of(curve: Curve, rows: Sequence[dict]) -> list[Line]:
    """The lines that the curve can have in this run: all, but sparse ones only where they have a value."""
    return [line for line in curve.lines if not line.sparse or any(number is not None for number in values(line, rows))]


def smoothed(line: Line, found: Sequence[float | None]) -> list[tuple[int, float | None]]:
    """(row, number) of the points that the line goes through: the running mean, or of a sparse one the values themselves."""
    if line.sparse:
        return [(at, number) for at, number in enumerate(found) if number is not None]
    return [*enumerate(running_mean(found, window(len(found))))]


# ---- the picture -----------------------------------------------------------------------------------------------------

def draw(curve: Curve, rows: Sequence[dict]) -> Html | None:
    """The curve's SVG; None where no row has a value for it."""
    lines = [(at, line, values(line, rows)) for at, line in enumerate(curve.lines)]
    shown = [(at, line, found) for at, line, found in lines if any(number is not None for number in found)]
    possible = len(lines_of(curve, rows))
    if not shown:
        return None
    steps = [row["step"] for row in rows]
    flat = [number for _, _, found in shown for number in found if number is not None]
    low, high = min(0.0, *flat), max(curve.top or 0.0, *flat)
    y_ticks = ticks(low, high if high > low else low + 1, 4)
    y = scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP + NAMES * (possible > 1))
    pad = 0.5 if steps[0] == steps[-1] else 0.0
    x = scale(steps[0] - pad, steps[-1] + pad, LEFT + 4, WIDTH - RIGHT)
    said = f"{curve.title}, {curve.unit}. {described(curve, rows)}"
    return element("svg", element("title", curve.title, id=f"{curve.name}-title"), element("desc", said, id=f"{curve.name}-desc"),
                   element("style", STYLE), *_axes(curve, steps, x, y, y_ticks), *_names(shown, possible),
                   *[_dots(at, steps, found, x, y) for at, _, found in shown],
                   *[_mean(at, steps, smoothed(line, found), x, y) for at, line, found in shown],
                   xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {HEIGHT}", class_="curve", role="img",
                   aria_labelledby=f"{curve.name}-title {curve.name}-desc")


def scale(low: float, high: float, start: float, end: float):
    """The function that takes [low, high] to [start, end], in pixels with one decimal."""
    return lambda number: round(start + (number - low) / (high - low) * (end - start), 1)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers, at most about `most`, that span [low, high]."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 2.5, 5, 10) if power * times >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [at * step for at in range(first, last + 1)]


def label(number: float, step: float) -> str:
    """A tick's number with as many digits as the distance of ticks needs."""
    if number and not 1e-4 <= abs(number) < 1e6:
        return f"{number:.1e}".replace("e-0", "e-").replace("e+0", "e")
    digits = next((count for count in range(6) if abs(step - round(step, count)) < step * 1e-6), 6)
    return f"{number:.{digits}f}"


def _axes(curve: Curve, steps: Sequence[int], x, y, y_ticks: Sequence[float]) -> list[Html]:
    apart, bottom = y_ticks[1] - y_ticks[0], HEIGHT - BOTTOM
    parts = [joined(element("text", curve.title, element("tspan", f"  {curve.unit}", font_weight="400", font_size="11.5"),
                            x=4, y=14, class_="name"))]
    for number in y_ticks:
        parts += [element("path", d=f"M{LEFT} {y(number)}H{WIDTH - RIGHT}", class_="axis" if number == 0 else "rule"),
                  element("text", label(number, apart), x=LEFT - 6, y=y(number) + 4, text_anchor="end")]
    inside = [at for at in ticks(steps[0], steps[-1], 5) if steps[0] <= at <= steps[-1] and at == int(at)] \
        if steps[-1] > steps[0] else []
    for at in inside or dict.fromkeys((steps[0], steps[-1])):
        parts += [element("path", d=f"M{x(at)} {bottom}v4", class_="axis"),
                  element("text", f"{at:.0f}" if at < 1e6 else f"{at:.3g}", x=x(at), y=bottom + 16, text_anchor="middle")]
    return [*parts, element("text", "step", x=LEFT - 6, y=bottom + 16, text_anchor="end")]


def _names(shown, lines: int) -> list[Html]:
    """A sample of each line with its label, where the curve can have several."""
    parts, left = [], 4.0
    for at, line, _ in shown if lines > 1 else ():
        parts += [element("path", d=f"M{left:g} 28h18", class_=f"mean l{at}"),
                  element("text", line.label, x=f"{left + 22:g}", y=32)]
        left += 22 + 6.6 * len(line.label) + 10    # a wide font's letters, so that no name runs into the next
    return parts


def _dots(at: int, steps, found, x, y) -> Html:
    every = math.ceil(len(found) / MAX_DOTS)
    points = [(step, number) for step, number in zip(steps, found, strict=True) if number is not None][::every]
    return _path([f"M{x(step)} {y(number)}h0" for step, number in points], f"dots l{at}")


def _mean(at: int, steps, smooth: Sequence[tuple[int, float | None]], x, y) -> Html:
    parts, drawing = [], False
    for place, number in smooth:
        if number is not None:
            parts.append(f"{'L' if drawing else 'M'}{x(steps[place])} {y(number)}" + ("" if drawing else "h0"))
        drawing = number is not None
    return _path(parts, f"mean l{at}")


def _path(parts: Sequence[str], kind: str) -> Html:
    return element("path", d=Html("".join(parts)), class_=kind)    # no text of anybody's, and longer than a text may be


# ---- in words --------------------------------------------------------------------------------------------------------

def described(curve: Curve, rows: Sequence[dict]) -> str:
    """What the picture shows: each line's lowest and highest value with their steps, and where the running mean goes."""
    said = []
    for line in curve.lines:
        points = [(number, row["step"]) for number, row in zip(values(line, rows), rows, strict=True) if number is not None]
        if not points:
            continue
        means = [mean for _, mean in smoothed(line, values(line, rows)) if mean is not None]
        (low, low_step), (high, high_step) = min(points), max(points)
        goes = "goes from" if line.sparse else "running mean from"
        said.append(f"{line.label}: {goes} {short_number(means[0])} to {short_number(means[-1])}, lowest {short_number(low)} "
                    f"at step {low_step}, highest {short_number(high)} at step {high_step}, "
                    f"{len(points)} of {len(rows)} steps have a value")
    return "; ".join(said) + f". Dots are steps, lines running means of {window(len(rows))} steps."


def short_number(number: float | None) -> str:
    """A number for people: three digits after the point, one from 10 on, none from 1,000 on; powers of ten where it is tiny."""
    if number is None or math.isnan(number):
        return "-"
    if number and not 1e-3 <= abs(number) < 1e7:
        return f"{number:.2g}"
    digits = 0 if abs(number) >= 1000 else 1 if abs(number) >= 10 else 3
    return f"{number:,.{digits}f}"
