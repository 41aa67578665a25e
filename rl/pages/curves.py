"""Curves over a run's steps, each a self-contained SVG: raw values as faint dots, their running mean as a line.

Axes start at zero and shares end at one, so that small changes look small. Every curve also says in words (title and desc) what
it shows. Gaps are shown: a step without a value has no dot, and the line breaks where its window has no values. Evaluations
during training are few, so they are drawn as points joined by straight lines.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from rl.pages.markup import Html, element
from rl.run.log import metric_value

WIDTH, HEIGHT = 340, 180
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 28, 24    # margins around the plot; the title stands in TOP
LEGEND = 16                                  # height of the row with the lines' labels
MAX_DOTS = 1500                              # per line; with more steps only every second, third ... has a dot
SHARE = 1.0

# A curve looks the same on the page and as a file, so it carries its own colours. The palette is Okabe and Ito's; dashes tell
# the lines apart in print.
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
    """One line of a curve. `complement` shows one minus the metric; `sparse` means that few steps have a value."""
    label: str
    metric: str
    complement: bool = False
    sparse: bool = False


class Curve(NamedTuple):
    """`name` is the file's; `top` is the least end of the axis, None to leave it to the values."""
    name: str
    title: str
    unit: str
    lines: tuple[Line, ...]
    top: float | None = None


def _with_held_out(label: str, metric: str) -> tuple[Line, Line]:
    """A metric of training, and the same on held-out tasks for runs with evaluations."""
    return Line(label, metric), Line(f"{label}, held-out", f"eval/{metric}", sparse=True)


CURVES = (
    Curve("reward", "Mean reward", "per sample", _with_held_out("reward", "reward")),
    Curve("pass_rate", "Pass rate", "share of samples", _with_held_out("pass rate", "pass_rate"), SHARE),
    Curve("style", "Style if correct", "0 to 1", _with_held_out("style", "style"), SHARE),
    Curve("depth", "Depth if correct", "nested calls", _with_held_out("depth", "depth")),
    Curve("calls", "Calls if correct", "per sample", (Line("calls", "calls"), Line("idle", "idle"))),
    Curve("signal", "Groups with signal", "share of groups", (Line("with signal", "frac_reward_zero_std", True),), SHARE),
    Curve("groups", "Groups by outcome", "share of groups", (Line("all correct", "frac_all_good"),
          Line("mixed", "frac_mixed"), Line("none correct", "frac_all_bad")), SHARE),
    Curve("entropy", "Entropy", "nats per token", (Line("entropy", "entropy"),)),
    Curve("kl", "Distance from the base model", "KL, nats per token", (Line("kl", "kl"),)),
    Curve("length", "Completion length", "tokens", (Line("mean length", "completions/mean_length"),)),
    Curve("cut", "Cut at the token limit", "share of samples", (Line("cut", "completions/clipped_ratio"),), SHARE),
    Curve("verdicts", "Why samples fail", "share of samples", (Line("wrong", "verdict/wrong_answer"),
          Line("exception", "verdict/exception"), Line("syntax", "verdict/syntax_error"), Line("timeout", "verdict/timeout"))),
    Curve("hacks", "Attempts on the grader", "per 1,000 samples", (Line("attempts", "hack_attempts_per_1000"),)),
    Curve("grad_norm", "Gradient norm", "before clipping", (Line("norm", "grad_norm"),)),
    Curve("clip", "Tokens at a clip bound", "share of tokens", (Line("low", "clip_ratio/low_mean"),
          Line("high", "clip_ratio/high_mean"))),
    Curve("adapter", "Adapter norm", "Frobenius", (Line("norm", "lora_delta_norm"),)),
    Curve("time", "Step time", "seconds", (Line("all", "step_time"), Line("sample", "time/sample"),
          Line("update", "time/update"), Line("grade", "time/grade"))),
)


def values(line: Line, rows: Sequence[dict]) -> list[float | None]:
    """The line's value in each row; a verdict that a row does not name occurred in no sample, so it is 0."""
    numbers = [metric_value(row, line.metric) for row in rows]
    if line.metric.startswith("verdict/"):
        numbers = [0.0 if number is None and "pass_rate" in row else number for row, number in zip(rows, numbers, strict=True)]
    return [None if number is None else 1 - number for number in numbers] if line.complement else numbers


def window(steps: int) -> int:
    """The width of the running mean, in steps."""
    return min(steps, max(5, steps // 20 | 1))


def running_mean(numbers: Sequence[float | None], width: int) -> list[float | None]:
    """Mean of the values among the `width` entries around each entry, fewer at the ends; None without any value."""
    sums, counts = [0.0], [0]
    for number in numbers:
        sums.append(sums[-1] + (number or 0.0))
        counts.append(counts[-1] + (number is not None))
    half, means = width // 2, []
    for i in range(len(numbers)):
        low, high = max(0, i - half), min(len(numbers), i + half + 1)
        count = counts[high] - counts[low]
        means.append((sums[high] - sums[low]) / count if count else None)
    return means


def lines_of(curve: Curve, rows: Sequence[dict]) -> list[Line]:
    """The curve's lines in this run: all of them, but sparse ones only with a value."""
    return [line for line in curve.lines if not line.sparse or _has_values(values(line, rows))]


def smoothed(line: Line, numbers: Sequence[float | None]) -> list[tuple[int, float | None]]:
    """(row, number) of the points that the line passes through: the running mean, for a sparse line the values."""
    if line.sparse:
        return [(row, number) for row, number in enumerate(numbers) if number is not None]
    return [*enumerate(running_mean(numbers, window(len(numbers))))]


def _has_values(numbers: Sequence[float | None]) -> bool:
    return any(number is not None for number in numbers)


# ---- the picture -----------------------------------------------------------------------------------------------------

def draw(curve: Curve, rows: Sequence[dict]) -> Html | None:
    """The curve's SVG; None where no row has a value for it."""
    lines = [(i, line, numbers) for i, line in enumerate(curve.lines) if _has_values(numbers := values(line, rows))]
    if not lines:
        return None
    with_legend = len(lines_of(curve, rows)) > 1
    steps = [row["step"] for row in rows]
    known = [number for _, _, numbers in lines for number in numbers if number is not None]
    low, high = min(0.0, *known), max(curve.top or 0.0, *known)
    y_ticks = ticks(low, high if high > low else low + 1, 4)
    y = scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP + LEGEND * with_legend)
    pad = 0.5 if steps[0] == steps[-1] else 0.0
    x = scale(steps[0] - pad, steps[-1] + pad, LEFT + 4, WIDTH - RIGHT)
    words = f"{curve.title}, {curve.unit}. {described(curve, rows)}"
    return element("svg", element("title", curve.title, id=f"{curve.name}-title"),
                   element("desc", words, id=f"{curve.name}-desc"), element("style", STYLE),
                   *_axes(curve, steps, x, y, y_ticks), *(_legend(lines) if with_legend else []),
                   *[_dots(i, steps, numbers, x, y) for i, _, numbers in lines],
                   *[_mean(i, steps, smoothed(line, numbers), x, y) for i, line, numbers in lines],
                   xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {HEIGHT}", class_="curve", role="img",
                   aria_labelledby=f"{curve.name}-title {curve.name}-desc")


def scale(low: float, high: float, start: float, end: float):
    """The function that maps [low, high] to [start, end], in pixels with one decimal."""
    return lambda number: round(start + (number - low) / (high - low) * (end - start), 1)


def ticks(low: float, high: float, most: int) -> list[float]:
    """About `most` round numbers that span [low, high]."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def tick_label(number: float, step: float) -> str:
    """A tick's number with as many digits as the distance between ticks needs."""
    if number and not 1e-4 <= abs(number) < 1e6:
        return f"{number:.1e}".replace("e-0", "e-").replace("e+0", "e")
    digits = next((count for count in range(6) if abs(step - round(step, count)) < step * 1e-6), 6)
    return f"{number:.{digits}f}"


def _axes(curve: Curve, steps: Sequence[int], x, y, y_ticks: Sequence[float]) -> list[Html]:
    spacing, bottom = y_ticks[1] - y_ticks[0], HEIGHT - BOTTOM
    parts = [element("text", curve.title, element("tspan", f"  {curve.unit}", font_weight="400", font_size="11.5"),
                     x=4, y=14, class_="name")]
    for number in y_ticks:
        parts += [element("path", d=f"M{LEFT} {y(number)}H{WIDTH - RIGHT}", class_="axis" if number == 0 else "rule"),
                  element("text", tick_label(number, spacing), x=LEFT - 6, y=y(number) + 4, text_anchor="end")]
    inside = [step for step in ticks(steps[0], steps[-1], 5) if steps[0] <= step <= steps[-1] and step == int(step)] \
        if steps[-1] > steps[0] else []
    for step in inside or dict.fromkeys((steps[0], steps[-1])):
        parts += [element("path", d=f"M{x(step)} {bottom}v4", class_="axis"),
                  element("text", f"{step:.0f}" if step < 1e6 else f"{step:.3g}", x=x(step), y=bottom + 16,
                          text_anchor="middle")]
    return [*parts, element("text", "step", x=LEFT - 6, y=bottom + 16, text_anchor="end")]


def _legend(lines) -> list[Html]:
    parts, left = [], 4.0
    for i, line, _ in lines:
        parts += [element("path", d=f"M{left:g} 28h18", class_=f"mean l{i}"),
                  element("text", line.label, x=f"{left + 22:g}", y=32)]
        left += 22 + 6.6 * len(line.label) + 10    # the letters of a wide font, so that labels do not overlap
    return parts


def _dots(i: int, steps, numbers, x, y) -> Html:
    every = math.ceil(len(numbers) / MAX_DOTS)
    points = [(step, number) for step, number in zip(steps, numbers, strict=True) if number is not None][::every]
    return _path([f"M{x(step)} {y(number)}h0" for step, number in points], f"dots l{i}")


def _mean(i: int, steps, points: Sequence[tuple[int, float | None]], x, y) -> Html:
    parts, drawing = [], False
    for row, number in points:
        if number is not None:
            parts.append(f"{'L' if drawing else 'M'}{x(steps[row])} {y(number)}" + ("" if drawing else "h0"))
        drawing = number is not None
    return _path(parts, f"mean l{i}")


def _path(parts: Sequence[str], class_: str) -> Html:
    return element("path", d=Html("".join(parts)), class_=class_)    # Html: numbers only, and longer than MAX_TEXT


# ---- in words --------------------------------------------------------------------------------------------------------

def described(curve: Curve, rows: Sequence[dict]) -> str:
    """The picture in words: each line's lowest and highest value with their steps, and the ends of its running mean."""
    parts = []
    for line in curve.lines:
        points = [(number, row["step"]) for number, row in zip(values(line, rows), rows, strict=True) if number is not None]
        if not points:
            continue
        means = [mean for _, mean in smoothed(line, values(line, rows)) if mean is not None]
        (low, low_step), (high, high_step) = min(points), max(points)
        ends = f"{'' if line.sparse else 'running mean '}from {short_number(means[0])} to {short_number(means[-1])}"
        parts.append(f"{line.label}: {ends}, lowest {short_number(low)} at step {low_step}, highest {short_number(high)} "
                     f"at step {high_step}, {len(points)} of {len(rows)} steps have a value")
    return "; ".join(parts) + f". Dots are steps, lines are running means over {window(len(rows))} steps."


def short_number(number: float | None) -> str:
    """A number to read at a glance: three decimals, one from 10 on, none from 1,000 on; an exponent for tiny and huge ones."""
    if number is None or math.isnan(number):
        return "-"
    if number and not 1e-3 <= abs(number) < 1e7:
        return f"{number:.2g}"
    digits = 0 if abs(number) >= 1000 else 1 if abs(number) >= 10 else 3
    return f"{number:,.{digits}f}"
