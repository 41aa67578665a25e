"""The signs of runs with made-up logs."""

import pytest

from rl.evaluation.signs import signs_of, signs_text, tasks_lost
from rl.run.files import append_rows
from rl.run.log import RunLog
from tests.run.test_log import group, sample, step_metrics


def run(folder, story, steps=30):
    """The signs of a run whose steps have the groups story(step)."""
    log = RunLog(folder)
    for step in range(1, steps + 1):
        groups = story(step)
        log.completions(step, groups)
        log.step(step, step_metrics(groups))
    return signs_of(folder)


def test_gaming_and_a_lost_task_are_seen(tmp_path):
    """Depth doubles at an equal pass rate, and one task is solved early but not at the end: both are named."""
    def story(step):
        late = step > 15
        return [group(sample(depth=4 if late else 2), sample(False), task="kept"),
                group(sample(late), sample(late), task="won"), group(sample(not late), sample(not late), task="gone")]

    signs = run(tmp_path, story)
    assert (signs.early["depth"], signs.end["depth"]) == (2, pytest.approx((4 + 2 + 2) / 3))
    assert signs.lost == ["gone"]
    assert "style gaming: seen, depth rose" in signs_text(signs) and "tasks lost: 1 (gone)" in signs_text(signs)


@pytest.mark.parametrize("steps, words", [(5, "style gaming: too few steps to tell (5, at least 25 needed)"),
                                          (24, "style gaming: too few steps to tell (24, at least 25 needed)"),
                                          (25, "style gaming: seen, depth rose")])
def test_a_short_run_raises_no_alarm(tmp_path, steps, words):
    """The same rise of depth at an equal pass rate counts from 25 steps on; below, the line says that steps are too few."""
    signs = run(tmp_path, lambda step: [group(sample(depth=4 if 2 * step > steps else 2), sample(False))], steps)
    assert signs.end["depth"] > signs.early["depth"] and words in signs_text(signs)


def test_an_honest_gain_is_not_called_gaming(tmp_path):
    """Depth and pass rate rise together: not gaming, and no task is lost."""
    signs = run(tmp_path, lambda step: [group(sample(depth=step), sample(step > 15, depth=step))])
    assert signs.end["pass_rate"] > signs.early["pass_rate"]
    assert "style gaming: not seen" in signs_text(signs) and signs.lost == []


def test_steps_without_gradient_are_counted(tmp_path):
    """A step counts when the samples of every group have equal rewards; the share of such groups is over all steps."""
    same, mixed = group(sample(), sample()), group(sample(), sample(False))
    signs = run(tmp_path, lambda step: [same, mixed if step > 4 else same], 10)
    assert (signs.steps, signs.without_gradient) == (10, 4)
    assert signs.groups_without_signal == pytest.approx((4 * 1 + 6 * 0.5) / 10)
    assert "4 of 10" in signs_text(signs)


def test_a_task_that_was_not_sampled_again_is_not_lost():
    """Neither a task missing at the end nor one that was never solved is lost."""
    assert tasks_lost([("a", True), ("b", True), ("c", False)], [("b", False), ("c", False)]) == ["b"]


def test_a_run_without_steps_or_without_values(tmp_path):
    """Without a log there are no signs; windows without a correct sample show dashes."""
    assert signs_of(tmp_path) is None
    append_rows(tmp_path / "metrics.jsonl", [{"step": 1, "pass_rate": 0.0, "depth": None}])
    assert "depth - -> -" in signs_text(signs_of(tmp_path))


def test_answers_in_words_have_fewer_signs(tmp_path):
    """They have no style and no second cases, so those lines are left out."""
    words = dict.fromkeys(("style", "depth", "calls", "pure", "idle"))
    signs = run(tmp_path / "words", lambda step: [group(sample(**words), sample(False, **words))])
    assert [line.split(":")[0] for line in signs_text(signs).splitlines()] == [
        "first fifth -> last fifth of 30 steps", "tasks lost", "steps without gradient"]
    assert "pass_rate 0.500 -> 0.500" in signs_text(signs) and "style" not in signs_text(signs)
    programs = signs_text(run(tmp_path / "programs", lambda step: [group(sample(False), sample(False))]))
    assert "style - -> -" in programs and "weak cases: no pass was graded on second cases; run_probe.py" in programs


def test_weak_cases_and_grader_failures_are_counted(tmp_path):
    """Passes that failed when graded again are counted over the run; a grader that fails too often is an alarm."""
    rows = [{"step": step, "grader/rechecked": 2, "grader/recheck_failed": int(step == 3), "grader/internal_error_rate": rate}
            for step, rate in ((1, 0.0), (2, 0.001), (3, 0.0))]
    append_rows(tmp_path / "metrics.jsonl", rows)
    text = signs_text(signs_of(tmp_path))
    assert "weak cases: 1 of 6 passes fail" in text and "run_probe.py every one" in text and "ALARM" not in text
    append_rows(tmp_path / "metrics.jsonl", [{"step": 4, "grader/internal_error_rate": 0.01}])
    text = signs_text(signs_of(tmp_path))
    assert "ALARM: the grader failed on 0.27%" in text and "internal_error" in text and "sandbox" not in text
