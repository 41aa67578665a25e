"""Figures of an evaluation by hand, and its files, which survive kills and several writers."""

import json
import threading

import pytest

from rl.errors import InputError
from rl.evaluation.runs import COLUMNS, add_row, figures, key_of, read_results, table, write_summary
from rl.evaluation.stats import wilson
from rl.rewards.base import GradedGroup, GradedSample

THOUGHT = "<think>{}</think>\\boxed{{3}}"
ABOUT = {"folder": "f", "skipped": []}


def sample(text, correct=True, reward=1.0, tokens=5, finish="stop"):
    """A graded answer in words."""
    verdict = "right" if correct else "wrong"
    return GradedSample(text, tokens, finish, "3", verdict, correct, reward, None, None, None, None, None, "", ())


def words(count):
    """A well-formed answer with this many words of thinking."""
    return THOUGHT.format(" ".join("w" * count))


def row(run="run_a", step=4, measured="m", accuracy=0.5, **more):
    """A row as an evaluation writes it."""
    return dict.fromkeys(COLUMNS) | {
        "run": run, "step": step, "measured": measured, "accuracy": accuracy, "reward": 1.0, "accuracy_low": 0.1,
        "accuracy_high": 0.9, "settings": {"lr": 1}} | more


def test_figures_by_hand():
    """Ten greedy answers: 3 correct, thinking of 1 to 9 words, one without a block, one cut, one ungraded."""
    answers = [sample(words(n), n <= 3, float(n <= 3), tokens=n) for n in range(1, 10)]
    answers[8] = answers[8]._replace(finish="length")
    answers.append(sample("\\boxed{3}", False, float("nan"), 0))
    groups = [GradedGroup(f"t{n}", [], [answer]) for n, answer in enumerate(answers)]
    found = figures(groups, "think")
    assert (found["accuracy"], found["accuracy_low"], found["accuracy_high"]) == pytest.approx(wilson(3, 9))
    assert found["reward"] == pytest.approx(1 / 3) and found["reward_low"] < 1 / 3 < found["reward_high"]
    assert (found["thinking_mean"], found["thinking_median"], found["thinking_p90"]) == pytest.approx((5, 5, 8.2))
    assert (found["malformed"], found["cut"], found["tokens_mean"], found["ungraded"]) == pytest.approx((0.1, 0.1, 4.5, 1))
    assert (found["tasks"], found["samples"]) == (10, 10)


def test_figures_without_a_value_are_none():
    """Programs have no thinking; without a graded answer there is no accuracy, without a whole block no length."""
    one = [GradedGroup("t", [], [sample("x", False, float("nan"))])]
    assert figures(one, None)["malformed"] is None and figures(one, None)["thinking_mean"] is None
    found = figures(one, "think")
    assert found["accuracy"] is None and found["reward"] is None and found["malformed"] == 1 and found["thinking_p90"] is None


def test_several_answers_a_task_are_not_independent_trials():
    """With 8 samples of 4 tasks, each task all correct or all wrong, the interval is that of 4 trials, not of 32."""
    groups = [GradedGroup(f"t{n}", [], [sample(words(2), n < 2, 1.0)] * 8) for n in range(4)]
    found = figures(groups, "think")
    assert found["accuracy"] == 0.5 and found["accuracy_high"] - found["accuracy_low"] > 0.6
    sure = figures([GradedGroup(f"t{n}", [], [sample(words(2))] * 8) for n in range(4)], "think")
    assert (sure["accuracy"], sure["accuracy_low"]) == pytest.approx((1, wilson(4, 4).low))


def test_rows_are_added_once_and_whole(tmp_path):
    """An existing row stays, an incomplete last row is removed, and another measurement of a base model is another row."""
    add_row(tmp_path, row())
    with open(tmp_path / "results.jsonl", "ab") as file:
        file.write(b'{"run": "run_b", "st')
    add_row(tmp_path, row(accuracy=0.9))
    add_row(tmp_path, row(run="base", step=0, measured="x"))
    add_row(tmp_path, row(run="base", step=0, measured="y"))
    found = [(kept["run"], kept["accuracy"]) for kept in read_results(tmp_path)]
    assert found == [("run_a", 0.5), ("base", 0.5), ("base", 0.5)]


def test_processes_side_by_side_lose_no_row(tmp_path):
    """Shards take turns at one file."""
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
    with pytest.raises(InputError, match="row 1 is not an evaluation"):
        read_results(tmp_path)


def test_the_summary_is_made_from_all_rows(tmp_path):
    """CSV and JSON in order, base first, with the settings in which the runs differ."""
    for made in (row("run_b", 8, settings={"lr": 2, "same": 0}), row("run_a", 8, accuracy=0.75, settings={"lr": 1, "same": 0}),
                 row("run_a", 4, settings={"lr": 1, "same": 0}, thinking_mean=20.0), row("base", 0, accuracy=0.25, reward=None)):
        add_row(tmp_path, made)
    rows = write_summary(tmp_path, ABOUT)
    order = [("base", 0), ("run_a", 4), ("run_a", 8), ("run_b", 8)]
    assert [(found["run"], found["step"]) for found in rows] == order
    lines = (tmp_path / "summary.csv").read_text().splitlines()
    assert lines[0].startswith("run,step,model,tasks") and lines[1].startswith("base,0,,") and len(lines) == 5
    document = json.loads((tmp_path / "summary.json").read_text())
    assert document["format"] == "evaluation 1" and document["folder"] == "f"
    assert [(found["run"], found["step"]) for found in document["rows"]] == order
    assert [found["settings"] for found in document["rows"]] == ["", "LR=1", "LR=1", "LR=2"]
    assert "run_a" in table(rows)
