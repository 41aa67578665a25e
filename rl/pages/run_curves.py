"""Evaluated checkpoints as SVG: a metric over steps, one line a run, the model without adapter as a level to compare with.

Points are measured checkpoints with their interval as a thin upright line; straight lines join a run's. Axes begin at zero,
shares end at one. Many runs fit: eight colours, another dash for every eight, and a legend with a row a run."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rl.pages.curves import SHARE, label, scale, short_number, ticks
from rl.pages.markup import Html, element

WIDTH, PLOT = 640, 240               # of the picture, and the height of the plot with its axes; the legend comes below
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 30, 30
ROW = 18                             # of the legend
NAME_LETTERS = 90
COLOURS = 8
DASHES = (None, "6 4", "2 3", "9 3 2 3")

STYLE = Html("""
.runs{--0:#0072b2;--1:#c44e00;--2:#007d5c;--3:#8f4c78;--4:#8a6d00;--5:#0a86b8;--6:#a3262a;--7:#4b5320;--text:#24231f;--faint:#65635a;
  --rule:#e0ded6;font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
@media screen and (prefers-color-scheme:dark){
  .runs{--0:#6cb8ee;--1:#f0984f;--2:#45c8a0;--3:#d99bc4;--4:#d8b94a;--5:#8fd8f5;--6:#f08a8a;--7:#b9c48a;--text:#e6e4dc;
    --faint:#a3a196;--rule:#3a3a37}}
.runs text{fill:var(--faint)}
.runs .name{fill:var(--text);font-weight:600;font-size:13px}
.runs path{fill:none;stroke-linejoin:round;stroke-linecap:round}
.runs .rule{stroke:var(--rule)}
.runs .axis{stroke:var(--faint)}
.runs .line{stroke-width:2}
.runs .dot{stroke-width:6}
.runs .range{stroke-width:1;opacity:.6}
.runs .base{stroke:var(--faint);stroke-dasharray:2 4;stroke-width:1.5}
""" + "".join(f".runs .c{at}{{stroke:var(--{at})}}" for at in range(COLOURS)) + "\n")


class Picture(NamedTuple):
    """`name` is the file's; `top` the axis' fixed end, None where the values decide."""
    name: str
    title: str
    unit: str
    metric: str
    top: float | None = None


PICTURES = (Picture("accuracy", "Accuracy on held-out tasks", "share, 95 % interval", "accuracy", SHARE),
            Picture("thinking", "Thinking", "words, mean of well-formed answers", "thinking_mean"),
            Picture("malformed", "Answers without one thinking block", "share", "malformed", SHARE),
            Picture("reward", "Mean reward on held-out tasks", "a sample, 95 % interval; comparable where runs pay alike",
                    "reward"),
            Picture("cut", "Cut at the token limit", "share", "cut", SHARE))

Points = Sequence[tuple[int, float, float | None, float | None]]    # step, value, low, high


def picture(kind: Picture, lines: Mapping[str, Points], levels: frozenset[str] = frozenset()) -> Html | None:
    """The SVG of these runs' points; those in `levels` are lines across, at their one value. None where there is no point.

    A run has the colour of its place among all runs, also where others have no point: the same in every picture."""
    place = {name: at for at, name in enumerate(name for name in lines if name not in levels)}
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return None
    steps = [step for name, points in lines.items() if name not in levels for step, *_ in points] or [0]
    flat = [number for points in lines.values() for _, *numbers in points for number in numbers if number is not None]
    low, high = min(0.0, *flat), max(kind.top or 0.0, *flat)
    y_ticks = ticks(low, high if high > low else low + 1, 4)
    first, last = min(0, *steps), max(1, *steps)
    x, y = scale(first, last, LEFT, WIDTH - RIGHT), scale(y_ticks[0], y_ticks[-1], PLOT - BOTTOM, TOP)
    drawn, legend = [], []
    for row, (name, points) in enumerate(lines.items()):
        is_level, at, beneath = name in levels, place.get(name, 0), PLOT + ROW * row
        looks = {"class_": "base"} if is_level else {"class_": f"line c{at % COLOURS}",
                                                     "stroke_dasharray": DASHES[at // COLOURS % len(DASHES)]}
        drawn += [_level(points, y, looks)] if is_level else _run(points, x, y, at, looks)
        legend += [element("path", d=f"M8 {beneath + 8}h26", **looks),
                   element("text", _cut(name), x=40, y=beneath + 12)]
    return element("svg", element("title", kind.title, id=f"{kind.name}-title"),
                   element("desc", described(kind, lines), id=f"{kind.name}-desc"), element("style", STYLE),
                   *_axes(kind, first, last, x, y, y_ticks), *drawn, *legend, xmlns="http://www.w3.org/2000/svg",
                   viewBox=f"0 0 {WIDTH} {PLOT + ROW * len(lines) + 4}", class_="runs", role="img",
                   aria_labelledby=f"{kind.name}-title {kind.name}-desc")


def described(kind: Picture, lines: Mapping[str, Points]) -> str:
    """The picture in words: where each run begins and ends."""
    said = [f"{name}: {short_number(points[0][1])} at step {points[0][0]}" + (
        f" to {short_number(points[-1][1])} at step {points[-1][0]}" if len(points) > 1 else "")
        for name, points in lines.items()]
    return f"{kind.title}, {kind.unit}. {'; '.join(said)}."


def _run(points: Points, x, y, at: int, looks: dict) -> list[Html]:
    line = "L".join(f"{x(step)} {y(value)}" for step, value, *_ in points)
    ranges = "".join(f"M{x(step)} {y(low)}V{y(high)}" for step, _, low, high in points if None not in (low, high))
    dots = "".join(f"M{x(step)} {y(value)}h0" for step, value, *_ in points)
    colour = f"c{at % COLOURS}"
    return [element("path", d=Html(f"M{line}"), **looks), element("path", d=Html(dots), class_=f"dot {colour}"),
            *[element("path", d=Html(ranges), class_=f"range {colour}")] * bool(ranges)]


def _level(points: Points, y, looks: dict) -> Html:
    return element("path", d=f"M{LEFT} {y(points[0][1])}H{WIDTH - RIGHT}", **looks)


def _axes(kind: Picture, first: int, last: int, x, y, y_ticks: Sequence[float]) -> list[Html]:
    bottom = PLOT - BOTTOM
    parts = [element("text", kind.title, element("tspan", f"  {kind.unit}", font_weight="400", font_size="12"),
                     x=4, y=16, class_="name")]
    for number in y_ticks:
        parts += [element("path", d=f"M{LEFT} {y(number)}H{WIDTH - RIGHT}", class_="axis" if number == 0 else "rule"),
                  element("text", label(number, y_ticks[1] - y_ticks[0]), x=LEFT - 6, y=y(number) + 4, text_anchor="end")]
    for at in (at for at in ticks(first, last, 8) if first <= at <= last and at == math.floor(at)):
        parts += [element("path", d=f"M{x(at)} {bottom}v4", class_="axis"),
                  element("text", f"{at:.0f}", x=x(at), y=bottom + 17, text_anchor="middle")]
    return [*parts, element("text", "step", x=LEFT - 6, y=bottom + 17, text_anchor="end")]


def _cut(name: str) -> str:
    return name if len(name) <= NAME_LETTERS else f"{name[:NAME_LETTERS - 1]}…"
