"""Figures of an evaluation by hand, its files under kills and company, and the pictures made of them."""

import json
import threading
import xml.etree.ElementTree as ET

import pytest

from rl.errors import InputError
from rl.evaluation.runs import COLUMNS, add_row, figures, key_of, read_results, table, write_summary
from rl.evaluation.stats import wilson
from rl.pages.run_curves import PICTURES, picture
from rl.rewards.base import GradedGroup, GradedSample

THOUGHT = "<think>{}</think>\\boxed{{3}}"
ABOUT = {"folder": "f", "skipped": []}


def sample(text, correct=True, reward=1.0, tokens=5, finish="stop"):
    """A graded answer in words."""
    verdict = "right" if correct else "wrong"
    return GradedSample(text, tokens, finish, "3", verdict, correct, reward, None, None, None, None, None, "", ())


def words(count):
    """A well-formed answer with so many words of thinking."""
    return THOUGHT.format(" ".join("w" * count))


def row(run="run_a", step=4, measured="m", accuracy=0.5, **more):
    """A row as an evaluation writes it."""
    return dict.fromkeys(COLUMNS) | {
        "run": run, "step": step, "measured": measured, "accuracy": accuracy, "reward": 1.0, "accuracy_low": 0.1,
        "accuracy_high": 0.9, "settings": {"lr": 1}} | more


def test_figures_by_hand():
    """Ten greedy answers: 3 right, thinking of 1 to 9 words and one without a block, one cut, one that could not be graded."""
    answers = [sample(words(n), n <= 3, float(n <= 3), tokens=n) for n in range(1, 10)]
    answers[8] = answers[8]._replace(finish="length")
    groups = [GradedGroup(f"t{n}", [], [answer]) for n, answer in enumerate([*answers, sample("\\boxed{3}", False, float("nan"), 0)])]
    found = figures(groups, "think")
    assert (found["accuracy"], found["accuracy_low"], found["accuracy_high"]) == pytest.approx(wilson(3, 9))
    assert found["reward"] == pytest.approx(1 / 3) and found["reward_low"] < 1 / 3 < found["reward_high"]
    assert (found["thinking_mean"], found["thinking_median"], found["thinking_p90"]) == pytest.approx((5, 5, 8.2))
    assert (found["malformed"], found["cut"], found["tokens_mean"], found["ungraded"]) == pytest.approx((0.1, 0.1, 4.5, 1))
    assert (found["tasks"], found["samples"]) == (10, 10)


def test_what_does_not_exist_is_none():
    """Programs have no thinking; where nothing was graded there is no accuracy; where no block is whole there is no length."""
    one = [GradedGroup("t", [], [sample("x", False, float("nan"))])]
    assert figures(one, None)["malformed"] is None and figures(one, None)["thinking_mean"] is None
    found = figures(one, "think")
    assert found["accuracy"] is None and found["reward"] is None and found["malformed"] == 1 and found["thinking_p90"] is None


def test_several_answers_a_task_are_not_independent_trials():
    """With 8 samples of 4 tasks, each task all right or all wrong, the interval is as wide as that of 4 trials, not of 32."""
    groups = [GradedGroup(f"t{n}", [], [sample(words(2), n < 2, 1.0)] * 8) for n in range(4)]
    found = figures(groups, "think")
    assert found["accuracy"] == 0.5 and found["accuracy_high"] - found["accuracy_low"] > 0.6
    sure = figures([GradedGroup(f"t{n}", [], [sample(words(2))] * 8) for n in range(4)], "think")
    assert (sure["accuracy"], sure["accuracy_low"]) == pytest.approx((1, wilson(4, 4).low))


def test_rows_are_added_once_and_whole(tmp_path):
    """A row that is there stays; a tail torn off by a kill goes; another measurement of a base model is another row."""
    add_row(tmp_path, row())
    with open(tmp_path / "results.jsonl", "ab") as file:
        file.write(b'{"run": "run_b", "st')
    add_row(tmp_path, row(accuracy=0.9))
    add_row(tmp_path, row(run="base", step=0, measured="x"))
    add_row(tmp_path, row(run="base", step=0, measured="y"))
    found = [(kept["run"], kept["accuracy"]) for kept in read_results(tmp_path)]
    assert found == [("run_a", 0.5), ("base", 0.5), ("base", 0.5)]


def test_processes_side_by_side_lose_no_row(tmp_path):
    """Shards append to one file in turn."""
    def shard(at):
        for step in range(10):
            add_row(tmp_path, row(f"run_{at}", step))
    threads = [threading.Thread(target=shard, args=(at,)) for at in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len({key_of(found) for found in read_results(tmp_path)}) == 40


def test_a_file_of_something_else_is_refused(tmp_path):
    """The message names the row."""
    (tmp_path / "results.jsonl").write_text('{"run": "a"}\n')
    with pytest.raises(InputError, match="row 1 is no evaluation"):
        read_results(tmp_path)


def test_the_summary_is_made_from_all_rows(tmp_path):
    """CSV and JSON in order, base first, with the settings in which runs differ; a curve a metric that has values."""
    for made in (row("run_b", 8, settings={"lr": 2, "same": 0}), row("run_a", 8, accuracy=0.75, settings={"lr": 1, "same": 0}),
                 row("run_a", 4, settings={"lr": 1, "same": 0}, thinking_mean=20.0), row("base", 0, accuracy=0.25, reward=None)):
        add_row(tmp_path, made)
    rows = write_summary(tmp_path, ABOUT)
    assert [(found["run"], found["step"], found["settings"]) for found in rows] == [
        ("base", 0, ""), ("run_a", 4, "LR=1"), ("run_a", 8, "LR=1"), ("run_b", 8, "LR=2")]
    lines = (tmp_path / "summary.csv").read_text().splitlines()
    assert lines[0].startswith("run,step,model,tasks") and lines[1].startswith("base,0,,") and len(lines) == 5
    document = json.loads((tmp_path / "summary.json").read_text())
    assert document["format"] == "evaluation 1" and document["rows"] == rows and document["folder"] == "f"
    assert sorted(path.name for path in (tmp_path / "curves").iterdir()) == ["accuracy.svg", "reward.svg", "thinking.svg"]
    assert "run_a" in table(rows)


def test_a_picture_has_a_line_a_run():
    """Well-formed SVG; each run a legend and a dot a point at its place, the base model a line across; words say the same."""
    drawn = picture(PICTURES[0], {"base": [(0, 0.25, None, None)], "run_a": [(0, 0.0, 0, 0.1), (10, 1.0, 0.9, 1.0)],
                                  "run_<b>": [(5, 0.5, 0.4, 0.6)]}, frozenset({"base"}))
    tree = ET.fromstring(drawn)
    texts = ["".join(node.itertext()) for node in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert [name for name in ("base", "run_a", "run_<b>") if name in texts] == ["base", "run_a", "run_<b>"]
    dots = [node.get("d") for node in tree.iter("{http://www.w3.org/2000/svg}path") if "dot" in node.get("class")]
    assert dots == ["M52.0 210.0h0M626.0 30.0h0", "M339.0 120.0h0"]
    assert "run_a: 0.000 at step 0 to 1.000 at step 10" in tree.find("{http://www.w3.org/2000/svg}desc").text
    assert picture(PICTURES[0], {"a": []}) is None


def test_a_run_has_one_colour_in_all_pictures():
    """Whoever is missing in a picture, the base model among them: the others look as they do elsewhere."""
    def colours(**lines):
        tree = ET.fromstring(picture(PICTURES[0], lines, frozenset({"base"})))
        dots = [node for node in tree.iter("{http://www.w3.org/2000/svg}path") if "dot" in node.get("class")]
        return {node.get("d"): node.get("class") for node in dots}
    a, b, base = [(0, 0.1, None, None)], [(0, 0.2, None, None)], [(0, 0.3, None, None)]
    everybody = colours(base=base, a=a, b=b)
    assert len(set(everybody.values())) == 2
    assert everybody == colours(a=a, b=b) == colours(base=[], a=a, b=b)
    assert colours(base=base, a=[], b=b).items() < everybody.items()


def test_many_runs_differ_in_colour_or_dash():
    """Thirty-two runs, and no two lines look alike."""
    tree = ET.fromstring(picture(PICTURES[0], {f"run_{n:02}": [(0, 0.1, None, None), (1, 0.2, None, None)] for n in range(32)}))
    looks = [(node.get("class"), node.get("stroke-dasharray")) for node in tree.iter("{http://www.w3.org/2000/svg}path")
             if node.get("d").startswith("M8 ")]
    assert len(set(looks)) == len(looks) == 32
