"""Evaluated checkpoints as SVG: a metric over steps, one line per run, and the model without adapter as a level line.

Each point is a checkpoint with its interval as a thin vertical line; straight lines join the points of a run. Axes start at zero
and shares end at one. Many runs fit: eight colours, a new dash pattern after every eight runs, a legend with a row per run."""

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rl.pages.curves import SHARE, scale, short_number, tick_label, ticks
from rl.pages.markup import Html, element
from rl.run.files import write_aside

WIDTH, PLOT = 640, 240               # PLOT: height of the plot with its axes; the legend comes below
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 30, 30
ROW = 18                             # height of a row of the legend
MAX_NAME = 90                        # characters
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
    """`name` is the file's; `top` is the least end of the axis, None to leave it to the values."""
    name: str
    title: str
    unit: str
    metric: str
    top: float | None = None


PICTURES = (Picture("accuracy", "Accuracy on held-out tasks", "share, 95 % interval", "accuracy", SHARE),
            Picture("thinking", "Thinking", "words, mean of well-formed answers", "thinking_mean"),
            Picture("malformed", "Answers without one thinking block", "share", "malformed", SHARE),
            Picture("reward", "Mean reward on held-out tasks", "per sample, 95 % interval; compare runs with equal rewards only",
                    "reward"),
            Picture("cut", "Cut at the token limit", "share", "cut", SHARE))

Points = list[tuple[int, float, float | None, float | None]]    # step, value, low, high


def write_curves(folder: Path, rows: Sequence[dict], base: str) -> None:
    """<folder>/<name>.svg for every picture with a value in these rows of results.jsonl, which are in order of steps.

    `base` is the run name of models without adapter."""
    folder.mkdir(exist_ok=True)
    for kind in PICTURES:
        lines, levels = points_by_run(rows, kind.metric, base)
        if (svg := draw(kind, lines, levels)) is not None:
            write_aside(folder / f"{kind.name}.svg", f"{svg}\n".encode())


def points_by_run(rows: Sequence[dict], metric: str, base: str) -> tuple[dict[str, Points], set[str]]:
    """Run -> the points of the metric, one per row with a value; and the names of base models, with their digest if several."""
    lines, levels, several = {}, set(), len({row["measured"] for row in rows if row["run"] == base}) > 1
    for row in rows:
        name = row["run"]
        if name == base:
            name += f" {row['measured']}" * several
            levels.add(name)
        points = lines.setdefault(name, [])
        if row[metric] is not None:
            points.append((row["step"], row[metric], row.get(f"{metric}_low"), row.get(f"{metric}_high")))
    return lines, levels


# ---- the picture -----------------------------------------------------------------------------------------------------

def draw(kind: Picture, lines: Mapping[str, Points], levels: Collection[str] = ()) -> Html | None:
    """The SVG of these runs' points, or None without any; runs in `levels` are horizontal lines at their one value.

    A run's colour depends on its place among all runs, so it is the same in every picture."""
    index = {name: i for i, name in enumerate(name for name in lines if name not in levels)}
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return None
    steps = [step for name, points in lines.items() if name not in levels for step, *_ in points] or [0]
    known = [number for points in lines.values() for _, *numbers in points for number in numbers if number is not None]
    low, high = min(0.0, *known), max(kind.top or 0.0, *known)
    y_ticks = ticks(low, high if high > low else low + 1, 4)
    first, last = min(0, *steps), max(1, *steps)
    x, y = scale(first, last, LEFT, WIDTH - RIGHT), scale(y_ticks[0], y_ticks[-1], PLOT - BOTTOM, TOP)
    plotted, legend = [], []
    for row, (name, points) in enumerate(lines.items()):
        top = PLOT + ROW * row
        if name in levels:
            style = {"class_": "base"}
            plotted.append(element("path", d=f"M{LEFT} {y(points[0][1])}H{WIDTH - RIGHT}", **style))
        else:
            i = index[name]
            style = {"class_": f"line c{i % COLOURS}", "stroke_dasharray": DASHES[i // COLOURS % len(DASHES)]}
            plotted += _run(points, x, y, f"c{i % COLOURS}", style)
        legend += [element("path", d=f"M8 {top + 8}h26", **style), element("text", _shortened(name), x=40, y=top + 12)]
    return element("svg", element("title", kind.title, id=f"{kind.name}-title"),
                   element("desc", described(kind, lines), id=f"{kind.name}-desc"), element("style", STYLE),
                   *_axes(kind, first, last, x, y, y_ticks), *plotted, *legend, xmlns="http://www.w3.org/2000/svg",
                   viewBox=f"0 0 {WIDTH} {PLOT + ROW * len(lines) + 4}", class_="runs", role="img",
                   aria_labelledby=f"{kind.name}-title {kind.name}-desc")


def described(kind: Picture, lines: Mapping[str, Points]) -> str:
    """The picture in words: the first and the last point of each run."""
    parts = [f"{name}: {short_number(points[0][1])} at step {points[0][0]}" + (
        f" to {short_number(points[-1][1])} at step {points[-1][0]}" if len(points) > 1 else "")
        for name, points in lines.items()]
    return f"{kind.title}, {kind.unit}. {'; '.join(parts)}."


def _run(points: Points, x, y, colour: str, style: dict) -> list[Html]:
    line = "L".join(f"{x(step)} {y(value)}" for step, value, *_ in points)
    ranges = "".join(f"M{x(step)} {y(low)}V{y(high)}" for step, _, low, high in points if None not in (low, high))
    dots = "".join(f"M{x(step)} {y(value)}h0" for step, value, *_ in points)
    return [element("path", d=Html(f"M{line}"), **style), element("path", d=Html(dots), class_=f"dot {colour}"),
            *[element("path", d=Html(ranges), class_=f"range {colour}")] * bool(ranges)]


def _axes(kind: Picture, first: int, last: int, x, y, y_ticks: Sequence[float]) -> list[Html]:
    bottom = PLOT - BOTTOM
    parts = [element("text", kind.title, element("tspan", f"  {kind.unit}", font_weight="400", font_size="12"),
                     x=4, y=16, class_="name")]
    for number in y_ticks:
        parts += [element("path", d=f"M{LEFT} {y(number)}H{WIDTH - RIGHT}", class_="axis" if number == 0 else "rule"),
                  element("text", tick_label(number, y_ticks[1] - y_ticks[0]), x=LEFT - 6, y=y(number) + 4, text_anchor="end")]
    for step in (step for step in ticks(first, last, 8) if first <= step <= last and step == math.floor(step)):
        parts += [element("path", d=f"M{x(step)} {bottom}v4", class_="axis"),
                  element("text", f"{step:.0f}", x=x(step), y=bottom + 17, text_anchor="middle")]
    return [*parts, element("text", "step", x=LEFT - 6, y=bottom + 17, text_anchor="end")]


def _shortened(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[:MAX_NAME - 1]}…"
