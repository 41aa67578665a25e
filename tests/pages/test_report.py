"""report.html and its curves: figures against the files, hostile text, damaged runs, and the layout in a real browser."""

import html
import json
import math
import os
import random
import re
import statistics
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
import yaml

from rl.errors import InputError
from rl.evaluation.probe_report import compare
from rl.pages import markup
from rl.pages.curves import (
    CURVES,
    HEIGHT,
    WIDTH,
    Curve,
    Line,
    draw,
    running_mean,
    short_number,
    tick_label,
    ticks,
    values,
    window,
)
from rl.pages.markup import MAX_TEXT, Html, element, escaped, highlighted
from rl.pages.report import gather, parts_of
from rl.pages.report_page import page
from rl.rewards.base import GradedGroup
from rl.run.log import RunLog, step_metrics
from tests import browser
from tests.evaluation.test_probe import report as probe_document
from tests.evaluation.test_probe import sample

CONFIG = """
model: {model: 0.5B, lora_rank: 4}
trainer: {steps: 12, seed: 0}
data: {provider_kwargs: {}}
elsewhere: {unheard_of: 1}
about: {started: '2026-01-02T03:04:05', git: abc}
"""
SVG = {"svg", "title", "desc", "style", "path", "text", "tspan", "line", "circle"}
HTML = {"html", "head", "meta", "body", "header", "h1", "h2", "h3", "h4", "p", "nav", "a", "div", "b", "ul", "ol", "li", "dl",
        "dt", "dd", "section", "table", "caption", "thead", "tbody", "tr", "th", "td", "br", "span", "figure", "details",
        "summary", "pre", "code", "footer"}


class Read(HTMLParser):
    """A page as a parser sees it: tags, attributes and text; every tag must be closed in order."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.text, self.alarms, self.styles = [], set(), [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"
        self.text = " ".join(" ".join(self.text).split())

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in ("meta", "br"):
            self.open.append((tag, dict(attrs)))

    def handle_startendtag(self, tag, attrs):
        raise AssertionError(f"<{tag}/> is not HTML")

    def handle_endtag(self, tag):
        assert self.open and self.open[-1][0] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1][0] == "style":
            self.styles.append(data)
        else:
            self.text.append(data)
        if any(attrs.get("class") == "alarm" for _, attrs in self.open):
            self.alarms.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data[:80]}")


def check_page(text: str) -> Read:
    """The parsed page, checked to be well-formed, without access to the network and without anything that runs."""
    read = Read(text)
    assert read.tags <= HTML | SVG
    for name, content in read.attributes:
        assert not name.startswith("on") and name not in ("src", "srcset", "action", "style"), name
        if name == "href":
            assert re.fullmatch(r"#\w+", content)
            assert ("id", content[1:]) in read.attributes
        assert name == "xmlns" or "http" not in (content or "")
    assert not any(word in style for style in read.styles for word in ("url(", "@import", "http", "expression("))
    ids = [content for name, content in read.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    return read


def good(code="good", **rest):
    return sample(**rest)._replace(code=code)


def bad(code="bad", **rest):
    return sample(False, **rest)._replace(code=code)


def write_run(folder, steps=12, story=None, config=CONFIG):
    """A run whose steps have one task with four samples, more and more of them correct."""
    rng, log = random.Random(0), RunLog(folder)
    for step in range(1, steps + 1):
        rows = [good(style=0.4, depth=rng.randrange(4)) if rng.random() < step / steps else bad() for _ in range(4)]
        groups = [GradedGroup(f"task{step % 3}", [], rows)] if story is None else story
        log.completions(step, groups)
        log.step(step, {**step_metrics(groups), "entropy": 1 / step, "grad_norm": 0.0 if step == 2 else 10.0 ** -step,
                        "step_time": 2.0, "num_tokens": 1000, "skipped_steps": 0, "lora_delta_norm": step / 3})
    if config:
        (folder / "config.yaml").write_text(config)
    return folder


def write_probe(path, groups, lora=""):
    path.write_text(json.dumps(probe_document(groups, [1.0] * len(groups), lora=lora)))
    return path


BEFORE = [GradedGroup("up", [], [bad("old code"), bad()]), GradedGroup("down", [], [good(), good()]),
          GradedGroup("won", [], [bad(), good()]), GradedGroup("even", [], [good(), bad()])]
AFTER = [GradedGroup("up", [], [good("new code"), bad()]), GradedGroup("down", [], [bad(), bad()]),
         GradedGroup("won", [], [good(), good()]), GradedGroup("even", [], [bad(), good()])]


def write_probes(folder, before="baseline-train.json", after="final-train.json"):
    return write_probe(folder / before, BEFORE), write_probe(folder / after, AFTER, lora="runs/x/checkpoints/step_1")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Do not wait for the disk: these runs are small and many."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("report")


def metrics(run):
    """The rows of metrics.jsonl, read without the code under test."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


# ---- figures ---------------------------------------------------------------------------------------------------------

def table_of(text: str, title: str) -> dict[str, list[str]]:
    """First cell -> the other cells, of the table with this title."""
    [table] = re.findall(rf"<table><caption><b>{title}</b>.*?</table>", text)
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", table)]
    return {cells[0]: [" ".join(re.sub("<[^>]+>", "", cell).split()) for cell in cells[1:]] for cells in rows}


@pytest.mark.parametrize("steps, width", [(12, 2), (3, 1), (2, 1)])
def test_first_and_last_steps_are_those_of_the_log(tmp_path, steps, width):
    """Means of the first and the last fifth, computed from metrics.jsonl; the top line has steps, time and tokens."""
    run = write_run(tmp_path / "run", steps)
    rows, text = metrics(run), page(gather(run))
    found, read = table_of(text, "In training"), check_page(text)
    for name, words in {"reward": "mean reward", "pass_rate": "pass rate", "style": "style if correct",
                        "entropy": "entropy, nats/token", "frac_reward_zero_std": "groups without signal"}.items():
        ends = [[row[name] for row in part if row[name] is not None] for part in (rows[:width], rows[-width:])]
        means = [statistics.fmean(end) if end else None for end in ends]
        want = ["-" if mean is None else f"{mean:.3f}" for mean in means]
        assert found[words] == [*want, "-" if None in means else f"{means[1] - means[0]:+.3f}"], words
    assert f"{steps} of 12 steps; 0:00:{2 * steps:02d} in steps, 2.0 s per step; {steps * 1000:,} tokens sampled" in read.text
    assert f"mean reward, in training {found['mean reward'][0]} \u2192 {found['mean reward'][1]}" in read.text


def test_probes_are_compared_with_their_intervals(run, tmp_path):
    """Pass rates by hand, gains as in run_probe.py --compare, tasks gained and lost, weak cases, tasks sorted by change."""
    before, after = write_probes(tmp_path, "b.json", "a.json")
    text = page(gather(run, [(before, after)]))
    read = check_page(text)
    result = compare(json.loads(before.read_text()), json.loads(after.read_text()))
    found = table_of(text, "Training tasks, a.json")
    gain = result.gains["reward"]
    assert found["pass rate"][:2] == ["0.500", "0.500"] and found["mean reward"][:2] == ["0.600", "0.600"]
    assert found["mean reward"][2] == f"{gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] p {gain.p:.4f}, unsure"
    assert found["solved at least once"] == ["3 of 4", "3 of 4", "1 gained, 1 lost"]
    assert found["passes that fail on second cases"][:2] == ["1 of 3", "1 of 3"]
    assert re.findall(r'<li><span>(\w+)</span>', text) == ["up", "won", "even", "down"]
    assert "0.000 \u2192 0.500 +0.500 gained" in read.text and "1.000 \u2192 0.000 -1.000 lost" in read.text
    alarms = " ".join(read.alarms)
    assert "training tasks, a.json, tasks lost: 1 (down)" in alarms and "weak cases: 1 of 3" in alarms
    assert "training tasks, a.json, style gaming: not seen" in read.text and "tasks gained: 1 (up)" in read.text
    assert "old code" in read.text and "new code" in read.text and "m with runs/x/checkpoints/step_1" in read.text


def test_a_run_without_probes_shows_its_own_tasks(run):
    """The first group of each task beside its last, with their steps."""
    read = check_page(page(gather(run)))
    assert "First and last time in training" in read.text and "first time in training , step 1" in read.text
    assert "last time in training , step" in read.text and "probes: none next to the run" in read.text


def test_gaming_is_marked(tmp_path):
    """Depth that rises alone, tasks lost, weak cases, a failing grader, attempts on it, skipped updates: each is an alarm."""
    log = RunLog(tmp_path)
    for step in range(1, 31):
        rows = [good(depth=step), bad(flags=("frame",) if step > 15 else ())]
        groups = [GradedGroup("a", [], rows), GradedGroup("b", [], [good(), bad()] if step < 7 else [bad(), bad()])]
        log.completions(step, groups)
        log.step(step, {**step_metrics(groups), "skipped_steps": 0 if step < 30 else 1, "grader/internal_error_rate": 0.5,
                        "grader/rechecked": 1, "grader/recheck_failed": int(step > 27)})
    alarms = " ".join(check_page(page(gather(tmp_path))).alarms)
    for words in ("style gaming: seen, depth", "tasks lost: 1 (b)", "attempts on the grader: 125.00",
                  "ALARM: the grader failed on 50.00%", "weak cases: 3 of 30", "not finite: 1"):
        assert words in alarms
    quiet = write_run(tmp_path / "quiet", 10, [GradedGroup("a", [], [good(), good()])])
    text = (quiet / "metrics.jsonl").read_text().replace('"skipped_steps": 0', '"skipped_steps": 1')
    (quiet / "metrics.jsonl").write_text(text)
    assert check_page(page(gather(quiet))).alarms == [], "a step without signal is skipped by design"


def test_settings_have_their_origin(run):
    """Without a record, a value other than the default was set; a mapping may be the default; unknown names are marked."""
    text = page(gather(run))
    cells = [re.sub("<[^>]+>", "|", row) for row in re.findall(r"<tr><th scope=\"row\"><code>.*?</tr>", text)]
    rows = [list(filter(None, row.split("|"))) for row in cells]
    assert rows == [["MODEL", "0.5B", "default", "model"], ["LORA_RANK", "4", "set (default 16)", "model"],
                    ["STEPS", "12", "set (default 600)", "trainer"], ["SEED", "0", "default", "trainer"],
                    ["PROVIDER_KWARGS", "{}", "default", "data"],
                    ["UNHEARD_OF", "1", "unknown to this version", "elsewhere"]]
    assert "LORA_RANK=4 STEPS=12 UNHEARD_OF=1" in text and "abc" in text and "started 2026-01-02T03:04:05" in text


def test_recorded_origins_are_shown(run):
    """Recorded origins are shown, with shortened paths; a default that was chosen counts as chosen."""
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["origins"] = {"lora_rank": "CONFIG /somebody/s/own/grpo.yaml (lora_r)", "steps": "env MAX_STEPS, on resume",
                         "seed": "env SEED"}
    (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    text = re.sub("<[^>]+>", "|", page(gather(run)))
    for words in ("CONFIG grpo.yaml (lora_r) (default 16)", "env MAX_STEPS, on resume (default 600)", "|env SEED|"):
        assert words in text
    assert "somebody" not in text and "LORA_RANK=4 STEPS=12 SEED=0" in text


# ---- curves ----------------------------------------------------------------------------------------------------------

def test_running_mean_is_that_of_a_loop():
    """For any window and gaps, the mean of the values around each entry."""
    rng = random.Random(1)
    for size in (1, 2, 7, 40):
        numbers = [None if rng.random() < 0.3 else rng.uniform(-5, 5) for _ in range(size)]
        for width in (1, 3, 5, 9):
            around = [[n for n in numbers[max(0, at - width // 2):at + width // 2 + 1] if n is not None] for at in range(size)]
            assert running_mean(numbers, width) == [pytest.approx(statistics.fmean(part)) if part else None for part in around]
    assert [window(n) for n in (1, 4, 30, 600)] == [1, 4, 5, 31]


def test_ticks_are_round_and_span_the_values():
    """Few, evenly spaced, from below the lowest to above the highest value; neighbouring labels differ."""
    rng = random.Random(2)
    for _ in range(500):
        high = 10 ** rng.uniform(-6, 8)
        low = rng.choice([0.0, -rng.uniform(0, 3) * high])    # every axis includes zero
        found = ticks(low, high, 4)
        step = found[1] - found[0]
        assert 2 <= len(found) <= 7 and found[0] <= low + 1e-9 * step and found[-1] >= high - 1e-3 * step
        assert len({tick_label(at, step) for at in found}) == len(found)
        assert any(abs(step / 10 ** math.floor(math.log10(step) + 1e-9) - m) < 1e-6 for m in (1, 2, 2.5, 5))


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](\S+?) ([^A-Za-z]+)", path)]


def test_dots_are_where_the_axis_says(run):
    """Read off by the tick labels, every dot is its step's value, and the line is the running mean."""
    rows = metrics(run)
    curve = Curve("x", "X", "units", (Line("x", "entropy"),))
    tree = ET.fromstring(draw(curve, rows))
    space = "{http://www.w3.org/2000/svg}"
    texts = [(float(t.get("x")), float(t.get("y")), t.text) for t in tree.iter(f"{space}text") if t.text]
    y_axis = [(y - 4, float(t)) for x, y, t in texts if x < 44 and re.fullmatch(r"[\d.]+", t)]
    x_axis = [(x, float(t)) for x, y, t in texts if x >= 44 and re.fullmatch(r"\d+", t)]

    def read(axis, at):
        (p0, v0), (p1, v1) = axis[0], axis[-1]
        return v0 + (at - p0) / (p1 - p0) * (v1 - v0)

    paths = {p.get("class"): points(p.get("d")) for p in tree.iter(f"{space}path")}
    dots, mean = paths["dots l0"], paths["mean l0"]
    assert [read(x_axis, x) for x, _ in dots] == pytest.approx([row["step"] for row in rows], abs=0.05)
    assert [read(y_axis, y) for _, y in dots] == pytest.approx([row["entropy"] for row in rows], abs=0.01)
    want = running_mean([row["entropy"] for row in rows], window(len(rows)))
    assert [read(y_axis, y) for _, y in mean] == pytest.approx(want, abs=0.01)


@pytest.mark.parametrize("steps, every", [(600, 1), (1500, 1), (1501, 2), (9000, 6)])
def test_long_runs_are_drawn_whole(steps, every):
    """Each step has a dot, in very long runs every second, third ...; the line has every step; no path is cut."""
    rows = [{"step": n, "reward": n % 7} for n in range(1, steps + 1)]
    svg = draw(CURVES[0], rows)
    dots, mean = re.search(r'd="([^"]*)" class="dots', svg)[1], re.search(r'd="([^"]*)" class="mean', svg)[1]
    assert re.fullmatch(r"(M[\d.]+ [\d.]+h0)+", dots) and dots.count("M") == math.ceil(steps / every)
    assert re.fullmatch(r"M[\d.]+ [\d.]+h0(L[\d.]+ [\d.]+)+", mean) and mean.count("L") == steps - 1


def test_nothing_is_drawn_outside_the_picture(run):
    """Every path and text lies inside, also with huge, negative and single values; labels do not overlap."""
    odd = [{"step": step, "reward": number, "pass_rate": number, "grad_norm": number, "entropy": None, "step_time": 1.0,
            "time/sample": number} for step, number in ((5, -3.0), (10**9, 1e12), (10**10, 2e-9))]
    for rows in (metrics(run), odd, odd[:1], odd[1:2]):
        for curve in CURVES:
            if (svg := draw(curve, rows)) is None:
                continue
            tree = ET.fromstring(svg)
            texts = [t for t in tree.iter() if t.tag.endswith("text")]
            places = [point for p in tree.iter() if p.tag.endswith("path") for point in points(p.get("d"))]
            places += [(float(t.get("x")), float(t.get("y"))) for t in texts]
            assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places), curve.name
            names = [t for t in texts if t.get("y") == "32"]
            assert all(float(t.get("x")) + 6.6 * len(t.text) <= WIDTH for t in names), curve.name


def test_curves_say_in_words_what_they_show(run):
    """The description has the ends of the running mean, and the lowest and highest value with their steps."""
    rows = metrics(run)
    means = running_mean([row["entropy"] for row in rows], 5)
    svg = draw(next(curve for curve in CURVES if curve.name == "entropy"), rows)
    tree = ET.fromstring(svg)
    title, desc = (next(t for t in tree.iter() if t.tag.endswith(name)) for name in ("title", "desc"))
    assert tree.get("role") == "img" and tree.get("aria-labelledby").split() == [title.get("id"), desc.get("id")]
    assert f"running mean from {short_number(means[0])} to {short_number(means[-1])}" in desc.text
    assert "lowest 0.083 at step 12, highest 1.000 at step 1, 12 of 12 steps" in desc.text


def test_a_missing_value_is_a_gap_and_a_missing_verdict_is_none():
    """No dot and, where the whole window is empty, no line; but a verdict that a row does not name is 0."""
    rows = [{"step": n, "pass_rate": 0.5, "entropy": None if 3 <= n <= 12 else 1.0} for n in range(1, 16)]
    svg = draw(Curve("x", "X", "u", (Line("x", "entropy"),)), rows)
    dots, mean = re.search(r'd="([^"]*)" class="dots', svg)[1], re.search(r'd="([^"]*)" class="mean', svg)[1]
    assert dots.count("M") == 5 and mean.count("M") == 2
    assert values(Line("x", "verdict/timeout"), rows) == [0.0] * 15
    odd = [{"reward": found} for found in (0.25, math.nan, True, "1", None)]
    assert values(Line("x", "reward", True), [*odd, {}]) == [0.75, *[None] * 5]


def test_evaluations_are_points_joined_by_straight_lines(run):
    """Beside training's curve, from the base model at step 0 on; the description has the first and last value. A run without
    evaluations, or with damaged ones, is drawn too."""
    svg_of = lambda report: draw(next(curve for curve in CURVES if curve.name == "pass_rate"), report.curve_rows)  # noqa: E731
    assert gather(run).evals == [] and "held-out" not in svg_of(gather(run))

    (run / "eval.jsonl").write_text("".join(json.dumps({"step": step, "eval/pass_rate": rate, "eval/samples": 48}) + "\n"
                                            for step, rate in ((0, 0.25), (5, 0.5), (12, 1.0))) + "damaged\n")
    report = gather(run)
    svg = svg_of(report)
    line, dots = (re.findall(rf'd="([^"]*)" class="{kind} l1"', svg)[-1] for kind in ("mean", "dots"))    # after its name
    assert points(line) == points(dots) and len(points(line)) == 3, "neither smoothed nor broken where steps have none"
    assert "held-out: from 0.250 to 1.000, lowest 0.250 at step 0, highest 1.000 at step 12, 3 of 13 steps" in svg
    text = Read(page(report)).text
    assert "pass rate, held-out tasks, during training 0.250 \u2192 1.000 48 samples each, after 0 and 12 steps" in text
    assert "evaluations: 1 damaged rows are left out" in text and "12 of 12 steps" in text


def test_every_curve_is_a_file_of_its_own_and_on_the_page(script, run):
    """The same bytes in both, well-formed XML; the file of a curve without values is removed."""
    stale = run / "curves" / "clip.svg"
    stale.parent.mkdir()
    stale.write_text("old")
    assert script.main([str(run)]) == 0
    text, files = (run / "report.html").read_text(), sorted((run / "curves").glob("*.svg"))
    assert not stale.exists() and {"reward", "pass_rate", "style", "depth", "entropy", "length", "signal", "grad_norm"} <= {
        path.stem for path in files}
    for path in files:
        svg = path.read_text()
        assert ET.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg" and svg.count("http") == 1
        drawn = any(number for curve in CURVES if curve.name == path.stem for line in curve.lines for number in
                    values(line, metrics(run)))
        assert (svg.strip() in text) == drawn, path.stem


# ---- text ------------------------------------------------------------------------------------------------------------

HOSTILE = ("</script></pre><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "]]><!-- <b>", "&lt;&amp;&#x41;",
           "\x00\x1b[2J\x07\u202e\u2066", "\ud800 lone \udfff", "'\" onload=alert(1) x='", "x = '" + "a" * 10**6, "{{7*7}}${x}",
           "\r\n\f\v\u2028", "http://example.invalid/x.js", "'''never closed", "\\" * 5001 + "'", "é 汉字 🙂")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(tmp_path, text):
    """As code, completion, detail, flag, task name and setting, and in a probe: nothing runs, and the page stays small."""
    odd = good(text, flags=(text[:50],))._replace(detail=text, text=text)
    worse = bad(text, flags=("x",))._replace(detail=text)
    story = [GradedGroup(text[:60], [], [odd, worse]), GradedGroup("plain", [], [worse, odd])]
    run = write_run(tmp_path / "run", 3, story, config="")
    start = text[:9000]    # PyYAML takes seconds for a megabyte
    settings = {"model": {"model": start, start[:40]: start}, "about": {"git": start, "x": [start]}}
    (run / "config.yaml").write_text(json.dumps(settings).replace("\\ud800", "").replace("\\udfff", ""))
    for probes in ([], [(write_probe(tmp_path / "a", story, text), write_probe(tmp_path / "b", story[::-1]))]):
        made = page(gather(run, probes))
        made.encode()    # a lone surrogate would not go into a file
        read = check_page(made)
        assert len(made) < 1_000_000 and all(c.isprintable() or c == "\n" for c in made)
        if text.isprintable() and len(text) < 100:
            assert " ".join(text.split()) in read.text


def test_only_markup_is_markup():
    """Text is escaped as child and as attribute, markup is not; None is left out; a long text is cut with a note."""
    assert element("b", "<i>", Html("<i></i>"), None, 3, title='"<', x=None, aria_label="a", class_="c") == (
        '<b title="&quot;&lt;" aria-label="a" class="c">&lt;i&gt;<i></i>3</b>')
    assert element("br") == "<br>" and isinstance(escaped("x"), Html)
    assert escaped("x" * (MAX_TEXT + 5)).endswith("x ... 5 more characters")


@pytest.mark.parametrize("code", ["", "def f(x):\n    return 'a' + \"b\" # c\n", "'''open\ntext", "x = 'a\ny = 1", "\\'", "#",
                                  "f''", "rb'\\'", "1.5e3j 0xff", "ünïcode = lambda: None",
                                  "a" * 5000, "'" * 5000, '"""' * 999, "\\" * 3000])
def test_highlighting_changes_no_character(code):
    """Without the tags it is the code again, whatever the code."""
    assert html.unescape(re.sub("<[^>]+>", "", highlighted(code))) == code


def test_highlighting_knows_python():
    """Keywords, built-ins, defined names, strings with prefix and escapes, numbers and comments; nothing inside strings."""
    code = "def f(n):  # if x\n    return sum(rb'a\\'1' if n else 1.5)"
    found = re.findall(r'<span class="(\w)">(.*?)</span>', highlighted(code))
    assert [(kind, html.unescape(text)) for kind, text in found] == [
        ("k", "def"), ("d", "f"), ("c", "# if x"), ("k", "return"), ("b", "sum"), ("s", "rb'a\\'1'"), ("k", "if"), ("k", "else"),
        ("n", "1.5")]


def test_breaking_the_escape_would_show(monkeypatch, tmp_path):
    """The checks of this file can fail: with escaping off, hostile text is caught."""
    run = write_run(tmp_path, 3, [GradedGroup("a", [], [good("<script>alert(1)</script>"), bad()])])
    monkeypatch.setattr(markup, "escaped", lambda text: Html(text))
    with pytest.raises(AssertionError):
        check_page(page(gather(run)))


# ---- incomplete and damaged runs -------------------------------------------------------------------------------------

def cut(path, keep):
    path.write_bytes(path.read_bytes()[:keep])


def damage(run, kind):
    """Damage the run as the name says."""
    log = run / "metrics.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    if kind == "no metrics":
        log.unlink()
    elif kind == "empty metrics":
        log.write_bytes(b"")
    elif kind == "one step":
        log.write_bytes(lines[0])
    elif kind == "torn row":
        cut(log, log.stat().st_size - 20)
    elif kind == "damaged rows":
        rest = [b"\xff\xfe\n", b"[]\n", b'{"step": "x"}\n', b'{"step": true}\n', b"[" * 9999 + b"\n"]
        log.write_bytes(b"".join([*lines[:2], *rest, *lines[2:]]))
    elif kind == "odd values":
        row = b'{"step": 13, "reward": NaN, "pass_rate": Infinity, "style": "x", "depth": [1], "entropy": 1e999, "calls": -9}\n'
        log.write_bytes(b"".join([*lines, row]))
    elif kind == "only nulls":
        log.write_bytes(b"".join(b'{"step": %d, "reward": null, "frac_reward_zero_std": null}\n' % n for n in range(1, 9)))
    elif kind == "no completions":
        for path in (run / "completions").glob("*"):
            path.unlink()
    elif kind == "damaged completions":
        (run / "completions" / "completions_00001.jsonl").write_bytes(b'{"task": 1}\nnot json\n')
    elif kind == "no config":
        (run / "config.yaml").unlink()
    elif kind == "bad config":
        (run / "config.yaml").write_text("a: [")
    elif kind == "odd config":
        (run / "config.yaml").write_text("trainer: 5\nmodel: {model: [1], 7: 8, lora: null}\nabout: x\n")


@pytest.mark.parametrize("kind, message", [
    ("no metrics", "no metrics.jsonl, so no step has finished yet"), ("empty metrics", "no step has finished yet"),
    ("one step", "1 of 12 steps"), ("torn row", "the last row is incomplete"), ("damaged rows", "5 damaged rows are left out"),
    ("odd values", "13 of 12 steps"), ("only nulls", "8 of 12 steps"),
    ("no completions", "completions: missing for 12 of 12 steps, first for step 1"),
    ("damaged completions", "samples: cannot be read"),
    ("no config", "settings: cannot be read (No such file or directory)"), ("bad config", "settings: cannot be read"),
    ("odd config", "12 of ? steps")])
def test_an_incomplete_run_has_a_page(script, run, kind, message, capsys):
    """It is well-formed and says what is missing; no number is made up."""
    damage(run, kind)
    assert script.main([str(run)]) == 0
    assert capsys.readouterr().err == ""
    read = check_page((run / "report.html").read_text())
    assert message in read.text and not re.search(r"\b([Nn]a[Nn]|inf|None)\b", read.text), read.text


def test_a_running_experiment_shows_what_is_there(script, run, tmp_path, capsys):
    """First the baseline's figures, then a pair of probes, then a damaged pair; from the folder and from its train/."""
    experiment = tmp_path / "experiment"
    experiment.mkdir()
    before, after = write_probes(experiment)
    kept = after.read_bytes()
    after.unlink()
    assert script.main([str(experiment)]) == 0
    read = check_page((experiment / "report.html").read_text())
    assert "no final-train.json; before training, pass rate 0.500 [" in read.text
    assert "no step has finished yet" in read.text

    run.rename(experiment / "train")
    after.write_bytes(kept)
    for folder in (experiment, experiment / "train"):
        assert script.main([str(folder)]) == 0
        read = check_page((folder / "report.html").read_text())
        assert "12 of 12 steps" in read.text and "pass rate, training tasks 0.500 \u2192 0.500" in read.text
        assert "probes, heldout: no baseline-heldout.json" in read.text and "experiment/train" in read.text
    for damaged in (b"{}", json.dumps({"format": "probe 1", "tasks": [{}]}).encode(), kept.replace(b'"up"', b'"other"')):
        after.write_bytes(damaged)
        assert script.main([str(experiment)]) == 0
        assert "probes, train: cannot be read" in check_page((experiment / "report.html").read_text()).text
    assert parts_of(experiment / "train")[1] == experiment.resolve() and parts_of(tmp_path) == (tmp_path, None)


@pytest.mark.parametrize("arguments, message", [
    (["{tmp}/nothing"], "no such folder"), (["{tmp}/empty"], "no run in it"), (["{run}/metrics.jsonl"], "no such folder"),
    (["{run}", "--before", "{tmp}/none.json", "--after", "{tmp}/none.json"], "none.json: No such file"),
    (["{run}", "--before", "{run}/config.yaml", "--after", "{run}/config.yaml"], "not JSON"),
    (["{run}", "--before", "{tmp}/half.json", "--after", "{tmp}/half.json"], "one of them is incomplete"),
    (["{run}", "--out", "{run}/config.yaml/x.html"], "cannot be written"), (["{run}", "--out", "{run}"], "cannot be written")])
def test_unusable_arguments_are_named(script, run, tmp_path, capsys, arguments, message):
    """Exit code 2 and one line."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "half.json").write_text('{"format": "probe 1", "tasks": [{"task": "a"}]}')
    assert script.main([part.format(tmp=tmp_path, run=run) for part in arguments]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and err.startswith("report.py: ")


def test_probes_come_in_pairs(script, run, capsys):
    """--before alone is refused."""
    with pytest.raises(SystemExit, match="2"):
        script.main([str(run), "--before", "x.json"])
    assert "in pairs" in capsys.readouterr().err


def test_a_report_can_be_written_elsewhere(script, run, tmp_path):
    """--out leaves the run's folder unchanged; the same files give the same page."""
    files = sorted(path for path in run.rglob("*"))
    for name in ("one", "two"):
        assert script.main([str(run), "--out", str(tmp_path / "new" / f"{name}.html")]) == 0
    one, two = ((tmp_path / "new" / f"{name}.html").read_bytes() for name in ("one", "two"))
    assert one == two and (tmp_path / "new" / "one-curves" / "reward.svg").is_file()
    assert sorted(path for path in run.rglob("*")) == files


def test_an_error_of_the_program_is_not_hidden(run, monkeypatch):
    """Damaged files are reported on the page; any other exception is raised."""
    monkeypatch.setattr("rl.pages.report.signs_of", lambda run: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gather(run)
    with pytest.raises(InputError):
        gather(run / "nowhere")


# ---- a real browser --------------------------------------------------------------------------------------------------

WIDER = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, svg.curve') &&
    e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML.slice(0, 120))"""
CLIPPED = """[...document.querySelectorAll('svg.curve text')].filter(t => { const a = t.getBoundingClientRect(),
    b = t.ownerSVGElement.getBoundingClientRect(); return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 ||
    a.bottom > b.bottom + 1 }).map(t => t.textContent)"""
SMALLEST = """Math.min(...[...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && [...e.childNodes].some(
    n => n.nodeType == 3 && n.data.trim()) && e.tagName != 'STYLE' && e.tagName != 'title' && e.tagName != 'desc').map(e => {
    const s = e.ownerSVGElement; return parseFloat(getComputedStyle(e).fontSize) * (s && s.viewBox.baseVal ?
    s.getBoundingClientRect().width / s.viewBox.baseVal.width : 1) }))"""


@pytest.mark.slow
def test_it_looks_right_in_a_browser(script, tmp_path):
    """At 360 and 1600 pixels, light, dark and on paper: nothing wider than the window, no clipped label, no tiny text, no
    request, no error; colours follow the scheme; text of a program does not run."""
    if not browser.installed():
        pytest.skip(f"needs one of {', '.join(browser.NAMES)} on the PATH")
    story = [GradedGroup("a_task_with_a_long_name_" * 4, [], [good("x = 1  # " + "long " * 200), bad("<img src=x onerror=a()>")]),
             GradedGroup("b", [], [bad("\ud800\x1b</pre><script>document.title='run'</script>")] * 2)]
    run = write_run(tmp_path / "run", 60, story)
    pair = write_probe(tmp_path / "b.json", story), write_probe(tmp_path / "a.json", story, "runs/" + "deep/" * 40)
    assert script.main([str(run), "--before", str(pair[0]), "--after", str(pair[1])]) == 0
    with browser.tab(tmp_path / "profile") as tab:
        papers = set()
        for width, dark, media in [(360, False, ""), (360, True, ""), (1600, False, ""), (1600, True, ""), (794, False, "print")]:
            tab.open(run / "report.html", width, dark=dark, media=media)
            tab.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
            assert tab.ask("innerWidth") == width and tab.ask("document.documentElement.scrollWidth") <= width
            assert tab.ask(WIDER) == [] and tab.ask(CLIPPED) == [] and tab.ask(SMALLEST) >= (8 if media else 10)
            assert tab.ask("document.title").startswith("Report: ")
            papers.add((dark, tab.ask("getComputedStyle(document.body).backgroundColor")))
            requests = [event for event in tab.seen if event.get("method") == "Network.requestWillBeSent"]
            assert len(requests) == 1 and not [event for event in tab.seen if event.get("method") == "Log.entryAdded"]
        assert len(papers) == 2 and len({colour for _, colour in papers}) == 2
