"""Curves of evaluated runs: which files are written, and the pictures read back as XML."""

import xml.etree.ElementTree as ET

from rl.pages.run_curves import PICTURES, draw, points_by_run, write_curves


def row(run, step, accuracy=None, measured="m", **more):
    """The part of a row of results.jsonl that pictures read."""
    return {"run": run, "step": step, "measured": measured} | dict.fromkeys(kind.metric for kind in PICTURES) | {
        "accuracy": accuracy} | more


def test_a_metric_with_values_has_a_file(tmp_path):
    """A metric that no row has is left out."""
    write_curves(tmp_path / "curves", [row("base", 0, 0.25), row("run_a", 4, 0.5, thinking_mean=20.0)], base="base")
    assert sorted(path.name for path in (tmp_path / "curves").iterdir()) == ["accuracy.svg", "thinking.svg"]


def test_several_base_models_are_told_apart():
    """Each is a level of its own under its digest; a single one is just the base model; rows without a value are no points."""
    rows = [row("base", 0, 0.1, "x"), row("base", 0, 0.2, "y"), row("run_a", 4, 0.5, accuracy_low=0.4, accuracy_high=0.6),
            row("run_a", 8)]
    assert points_by_run(rows, "accuracy", "base") == (
        {"base x": [(0, 0.1, None, None)], "base y": [(0, 0.2, None, None)], "run_a": [(4, 0.5, 0.4, 0.6)]}, {"base x", "base y"})
    assert points_by_run(rows[1:], "accuracy", "base")[1] == {"base"}


def test_a_picture_has_a_line_per_run():
    """Well-formed SVG: each run has a legend and a dot per point, the base model is a level line; the description agrees."""
    svg = draw(PICTURES[0], {"base": [(0, 0.25, None, None)], "run_a": [(0, 0.0, 0, 0.1), (10, 1.0, 0.9, 1.0)],
                             "run_<b>": [(5, 0.5, 0.4, 0.6)]}, {"base"})
    tree = ET.fromstring(svg)
    texts = ["".join(node.itertext()) for node in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert [name for name in ("base", "run_a", "run_<b>") if name in texts] == ["base", "run_a", "run_<b>"]
    dots = [node.get("d") for node in tree.iter("{http://www.w3.org/2000/svg}path") if "dot" in node.get("class")]
    assert dots == ["M52.0 210.0h0M626.0 30.0h0", "M339.0 120.0h0"]
    assert "run_a: 0.000 at step 0 to 1.000 at step 10" in tree.find("{http://www.w3.org/2000/svg}desc").text
    assert draw(PICTURES[0], {"a": []}) is None


def test_a_run_has_one_colour_in_all_pictures():
    """A run or base model missing from a picture does not change how the others look."""
    def colours(**lines):
        tree = ET.fromstring(draw(PICTURES[0], lines, {"base"}))
        dots = [node for node in tree.iter("{http://www.w3.org/2000/svg}path") if "dot" in node.get("class")]
        return {node.get("d"): node.get("class") for node in dots}
    a, b, base = [(0, 0.1, None, None)], [(0, 0.2, None, None)], [(0, 0.3, None, None)]
    complete = colours(base=base, a=a, b=b)
    assert len(set(complete.values())) == 2
    assert complete == colours(a=a, b=b) == colours(base=[], a=a, b=b)
    assert colours(base=base, a=[], b=b).items() < complete.items()


def test_many_runs_differ_in_colour_or_dash():
    """No two of thirty-two lines look alike."""
    tree = ET.fromstring(draw(PICTURES[0], {f"run_{n:02}": [(0, 0.1, None, None), (1, 0.2, None, None)] for n in range(32)}))
    looks = [(node.get("class"), node.get("stroke-dasharray")) for node in tree.iter("{http://www.w3.org/2000/svg}path")
             if node.get("d").startswith("M8 ")]
    assert len(set(looks)) == len(looks) == 32
