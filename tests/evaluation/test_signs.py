"""The signs of a run against logs whose story is known."""

import pytest

from rl.evaluation.signs import signs_of, signs_text, tasks_lost
from rl.run.files import append_rows
from rl.run.log import RunLog
from tests.run.test_log import group, sample, step_metrics


def run(folder, story, steps=30):
    """A run whose step holds the groups that `story(step)` gives."""
    log = RunLog(folder)
    for step in range(1, steps + 1):
        groups = story(step)
        log.completions(step, groups)
        log.step(step, step_metrics(groups))
    return signs_of(folder)


def test_gaming_and_a_lost_task_are_seen(tmp_path):
    """Depth doubles, the pass rate stands, one task is solved early and not at the end: both are told by name."""
    def story(step):
        late = step > 15
        return [group(sample(depth=4 if late else 2), sample(False), task="kept"),
                group(sample(late), sample(late), task="won"), group(sample(not late), sample(not late), task="gone")]

    signs = run(tmp_path, story)
    assert (signs.early["depth"], signs.end["depth"]) == (2, pytest.approx((4 + 2 + 2) / 3))
    assert signs.lost == ["gone"]
    assert "likely, depth rose" in signs_text(signs) and "tasks lost: 1 (gone)" in signs_text(signs)


@pytest.mark.parametrize("steps, words", [(5, "style gaming: too few steps to tell (5, of at least 25)"),
                                          (24, "style gaming: too few steps to tell (24, of at least 25)"),
                                          (25, "style gaming: likely, depth rose")])
def test_a_short_run_raises_no_alarm(tmp_path, steps, words):
    """The same rise of depth at a flat pass rate is a sign from 25 steps on; before, the line says why there is no judgement."""
    signs = run(tmp_path, lambda step: [group(sample(depth=4 if 2 * step > steps else 2), sample(False))], steps)
    assert signs.end["depth"] > signs.early["depth"] and words in signs_text(signs)


def test_an_honest_gain_is_not_called_gaming(tmp_path):
    """Depth and pass rate rise together: no alarm, nothing lost."""
    signs = run(tmp_path, lambda step: [group(sample(depth=step), sample(step > 15, depth=step))])
    assert signs.end["pass_rate"] > signs.early["pass_rate"]
    assert "style gaming: not seen" in signs_text(signs) and signs.lost == []


def test_steps_without_gradient_are_counted(tmp_path):
    """A step counts when none of its groups differ; the share of such groups is over all steps."""
    same, mixed = group(sample(), sample()), group(sample(), sample(False))
    signs = run(tmp_path, lambda step: [same, mixed if step > 4 else same], 10)
    assert (signs.steps, signs.without_gradient) == (10, 4)
    assert signs.groups_without_signal == pytest.approx((4 * 1 + 6 * 0.5) / 10)
    assert "4 of 10" in signs_text(signs)


def test_a_task_that_was_not_sampled_again_is_not_lost():
    """Not seen at the end says nothing; never solved is not lost either."""
    assert tasks_lost([("a", True), ("b", True), ("c", False)], [("b", False), ("c", False)]) == ["b"]


def test_a_run_without_steps_or_without_values(tmp_path):
    """No log has no signs; windows in which nothing was ever correct show dashes."""
    assert signs_of(tmp_path) is None
    append_rows(tmp_path / "metrics.jsonl", [{"step": 1, "pass_rate": 0.0, "depth": None}])
    assert "depth - -> -" in signs_text(signs_of(tmp_path))


def test_answers_in_words_have_the_signs_that_can_be_seen_there(tmp_path):
    """Neither style nor depth, and no other cases to grade on: such lines are left out, not filled with dashes and noughts."""
    words = dict.fromkeys(("style", "depth", "calls", "pure", "idle"))
    signs = run(tmp_path / "words", lambda step: [group(sample(**words), sample(False, **words))])
    assert [line.split(":")[0] for line in signs_text(signs).splitlines()] == [
        "first fifth -> last fifth of 30 steps", "tasks lost", "steps without gradient"]
    assert "pass_rate 0.500 -> 0.500" in signs_text(signs) and "style" not in signs_text(signs)
    programs = signs_text(run(tmp_path / "programs", lambda step: [group(sample(False), sample(False))]))
    assert "style - -> -" in programs and "weak cases: no pass was graded on other cases; run_probe.py" in programs


def test_what_the_grader_saw_is_told(tmp_path):
    """Passes that failed when graded again are counted over the run; a grader that fails too often is an alarm."""
    rows = [{"step": step, "grader/rechecked": 2, "grader/recheck_failed": step == 3, "grader/internal_error_rate": rate}
            for step, rate in ((1, 0.0), (2, 0.001), (3, 0.0))]
    append_rows(tmp_path / "metrics.jsonl", rows)
    text = signs_text(signs_of(tmp_path))
    assert "weak cases: 1 of 6 passes fail" in text and "run_probe.py every one" in text and "ALARM" not in text
    append_rows(tmp_path / "metrics.jsonl", [{"step": 4, "grader/internal_error_rate": 0.01}])
    text = signs_text(signs_of(tmp_path))
    assert "ALARM: the grader failed on 0.27%" in text and "internal_error" in text and "sandbox" not in text
