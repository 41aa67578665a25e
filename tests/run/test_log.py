"""The metrics of a step against numbers worked out by hand, and a run's log through crashes and resumes."""

import json
from statistics import fmean, pstdev

import numpy as np
import pytest

from rl.rewards.base import GradedGroup, GradedSample
from rl.run.files import LogError, read_rows
from rl.run.log import QUALITIES, RunLog, step_metrics

NAN = float("nan")


def sample(correct=True, style=0.4, code="def f(x):\n    return x\n", tokens=10, finish="stop", verdict=None, **rest):
    verdict = verdict or ("pass" if correct else "wrong_answer")
    reward = NAN if verdict == "internal_error" else (1 + 0.5 * (style or 0.0) if correct else 0.0)
    grade = {"depth": 2, "calls": 1, "pure": True, "idle": 0, "detail": "", "flags": ()} | rest
    return GradedSample(text=code, tokens=tokens, finish=finish, code=code, verdict=verdict, correct=correct, reward=reward,
                  style=style, **grade)


def group(*samples, task="t"):
    return GradedGroup(task, [{"role": "user", "content": task}], samples)


GOOD = group(sample(style=0.2), sample(style=0.6, depth=5, calls=4, pure=False, idle=1), task="good")
SAME = group(sample(style=0.4), sample(style=0.4), task="same")
BAD = group(sample(False, tokens=192, finish="length"), sample(False, verdict="timeout", flags=("_os",)), task="bad")
MIXED = group(sample(style=0.5, tokens=30), sample(False, tokens=4), task="mixed")
BROKEN = group(sample(False, verdict="internal_error"), sample(style=0.0, tokens=7), task="broken")


def test_step_metrics_by_hand():
    """Every number of a step of four groups."""
    m = step_metrics([GOOD, SAME, BAD, MIXED])

    assert m["reward"] == pytest.approx((1.1 + 1.3 + 1.2 + 1.2 + 0 + 0 + 1.25 + 0) / 8)
    assert m["reward_std"] == pytest.approx((0.1 + 0 + 0 + 0.625) / 4)
    assert m["frac_reward_zero_std"] == 0.5
    assert (m["frac_all_good"], m["frac_all_bad"], m["frac_mixed"]) == (0.5, 0.25, 0.25)
    assert m["pass_rate"] == 5 / 8
    assert m["style"] == pytest.approx((0.2 + 0.6 + 0.4 + 0.4 + 0.5) / 5)
    assert (m["depth"], m["calls"], m["pure"], m["idle"]) == (13 / 5, 8 / 5, 4 / 5, 1 / 5)
    assert m["completions/mean_length"] == (10 * 5 + 192 + 30 + 4) / 8
    assert (m["completions/min_length"], m["completions/max_length"]) == (4, 192)
    assert m["completions/mean_terminated_length"] == pytest.approx((10 * 5 + 30 + 4) / 7)
    assert m["completions/clipped_ratio"] == 1 / 8
    assert m["hack_attempts_per_1000"] == 125.0
    assert (m["verdict/pass"], m["verdict/wrong_answer"], m["verdict/timeout"]) == (5 / 8, 2 / 8, 1 / 8)
    assert m["grader/internal_error_rate"] == 0.0


def test_a_failed_grader_is_not_a_wrong_answer():
    """The group's numbers come from its other samples alone; failures have a rate of their own."""
    m = step_metrics([BROKEN])
    assert (m["reward"], m["pass_rate"], m["frac_all_good"], m["reward_std"]) == (1.0, 1.0, 1.0, 0.0)
    assert m["grader/internal_error_rate"] == 0.5


def test_a_metric_without_samples_is_none():
    """No correct sample: no style; no terminated sample: no terminated length; no graded group: no shares."""
    m = step_metrics([group(sample(False, finish="length"))])
    assert all(m[name] is None for name in (*QUALITIES, "completions/mean_terminated_length"))
    m = step_metrics([group(sample(False, verdict="internal_error"))])
    assert all(m[name] is None for name in ("reward", "reward_std", "pass_rate", "frac_mixed", "frac_reward_zero_std"))
    assert step_metrics([])["completions/max_length"] is None


def test_answers_in_words_have_no_style():
    """No key at all, so that displays can leave the names out; a single program is enough for all keys."""
    words = sample(**dict.fromkeys(QUALITIES), verdict="right")
    assert not {*QUALITIES} & {*step_metrics([group(words, words)])}
    assert step_metrics([group(words, words)])["pass_rate"] == 1.0
    assert step_metrics([group(words, sample(False))])["style"] is None and step_metrics([group(words, sample())])["style"] == 0.4


def test_reward_std_is_the_mean_of_the_groups_own():
    """Spread between groups does not count: groups at 0 and at 1.2 without spread inside have reward_std 0."""
    assert step_metrics([SAME, BAD])["reward_std"] == 0.0
    thirds = group(*[sample(style=0.1)] * 3)    # the mean of three equal floats may differ from them
    assert step_metrics([thirds])["reward_std"] == 0.0
    groups = [GOOD, SAME, BAD, MIXED]
    spreads = [pstdev(s.reward for s in g.samples) for g in groups]
    assert step_metrics(groups)["reward_std"] == pytest.approx(fmean(spreads))


def test_the_order_of_groups_does_not_matter():
    """A step's numbers come from all its groups at once."""
    assert step_metrics([GOOD, SAME, BAD, MIXED]) == pytest.approx(step_metrics([MIXED, BAD, GOOD, SAME]))


def run(folder, steps, log=None):
    log = log or RunLog(folder)
    for step in steps:
        groups = [group(sample(code=f"def f(x):\n    return x + {step // 2}\n"), sample(False)), BAD]
        log.completions(step, groups)
        log.pools(step, groups)
        log.step(step, step_metrics(groups))
    return log


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_files_hold_what_was_logged(tmp_path):
    """One metrics row per step, one completions file per step with every sample, valid JSON throughout."""
    run(tmp_path, [1, 2])
    assert [row["step"] for row in read_rows(tmp_path / "metrics.jsonl")] == [1, 2]
    rows = read_rows(tmp_path / "completions" / "completions_00002.jsonl")
    assert [(row["task"], row["sample"], row["correct"]) for row in rows] == [
        ("t", 0, True), ("t", 1, False), ("bad", 0, False), ("bad", 1, False)]
    hard = read_rows(tmp_path / "hard_pool.jsonl")
    assert [(row["step"], row["task"], row["verdicts"]) for row in hard] == [
        (1, "bad", {"wrong_answer": 1, "timeout": 1}), (2, "bad", {"wrong_answer": 1, "timeout": 1})]


def test_numbers_without_json_become_null(tmp_path):
    """nan and infinity, Python's or NumPy's, are null; NumPy scalars are numbers; no NaN token is ever written."""
    RunLog(tmp_path).step(1, {"a": NAN, "b": np.float32("inf"), "c": np.float32(0.5), "d": np.int64(3), "e": [NAN],
                              "text": "\ud800\u2028é"})
    text = (tmp_path / "metrics.jsonl").read_text()
    row = json.loads(text, parse_constant=lambda token: pytest.fail(f"{token} is not JSON"))
    assert row == {"step": 1, "a": None, "b": None, "c": 0.5, "d": 3, "e": [None], "text": "\ud800\u2028é"}
    assert text.count("\n") == 1


def test_solutions_are_pooled_once_per_program(tmp_path):
    """Spacing and comments do not make another program, another task does; wrong code is never pooled."""
    log = RunLog(tmp_path)
    log.pools(1, [group(sample(code="def f(x):\n    return x\n"), sample(False, code="def f(x): return 2"))])
    log.pools(2, [group(sample(code="def f( x ):   # again\n    return (x)\n"), sample(code="def f(x): return x+0")),
                  group(sample(code="def f(x):\n    return x\n"), task="other")])
    rows = read_rows(tmp_path / "sft_pool.jsonl")
    assert [(r["step"], r["task"], r["code"], r["group_all_correct"]) for r in rows] == [
        (1, "t", "def f(x):\n    return x\n", False),
        (2, "t", "def f(x): return x+0", True),
        (2, "other", "def f(x):\n    return x\n", True)]
    assert rows[0]["prompt"] == [{"role": "user", "content": "t"}] and rows[0]["style"] == 0.4


@pytest.mark.parametrize("code", [
    f"def f(x):\n    return 0x{'f' * 10_000}\n", f"f = lambda x: {' + '.join('x' * 2_500)}", f"f = {'-' * 60_000}1",
    "def f(x):\n    return '\ud800'\n", "def f(x):\n    return 1\0", "\u2028\x85\r", "9" * 10_000], ids=range(7))
def test_no_program_ends_a_step(tmp_path, code):
    """Whatever a right program looks like, it is logged as it is and pooled once, also after a resume."""
    groups = [group(sample(code=code), sample(code=code, detail=code))]
    log = RunLog(tmp_path)
    log.completions(1, groups)
    log.pools(1, groups)
    RunLog.resume(tmp_path, 1).pools(2, groups)

    assert [row["code"] for row in read_rows(tmp_path / "sft_pool.jsonl")] == [code]
    assert [row["detail"] for row in read_rows(tmp_path / "completions" / "completions_00001.jsonl")] == ["", code]


def test_a_group_whose_grader_failed_is_not_hard(tmp_path):
    """Only groups with graded samples, all of them wrong, are hard."""
    log = RunLog(tmp_path)
    log.pools(1, [group(sample(False, verdict="internal_error")), BROKEN, MIXED, GOOD])
    assert read_rows(tmp_path / "hard_pool.jsonl") == []


@pytest.mark.parametrize("kept", [0, 2, 3, 5])
def test_resume_equals_a_run_without_interruption(tmp_path, kept):
    """Going back to a step and running on gives the files of an uninterrupted run, byte for byte."""
    run(tmp_path / "straight", range(1, 6))
    run(tmp_path / "broken", range(1, 6))
    log = RunLog.resume(tmp_path / "broken", kept)
    cut = contents(tmp_path / "broken")
    run(tmp_path / "broken", range(kept + 1, 6), log)

    assert contents(tmp_path / "broken") == contents(tmp_path / "straight")
    assert all(json.loads(line)["step"] <= kept for data in cut.values() for line in data.splitlines())
    assert sum("completions_" in name for name in cut) == kept


@pytest.mark.parametrize("name", ["metrics.jsonl", "sft_pool.jsonl", "hard_pool.jsonl"])
@pytest.mark.parametrize("tail", [b'{"step": 3, "rew', b'{"step": 2}', b"\x00\x00\x00"])
def test_a_torn_last_row_is_dropped(tmp_path, name, tail):
    """A crash in the middle of a row costs that row: it is not read, and resuming removes it."""
    run(tmp_path, [1, 2])
    whole = contents(tmp_path)
    with open(tmp_path / name, "ab") as file:
        file.write(tail)

    assert len(read_rows(tmp_path / name)) == whole[name].count(b"\n")
    RunLog.resume(tmp_path, 2)
    assert contents(tmp_path) == whole


def test_a_bad_row_in_the_middle_is_reported(tmp_path):
    """A bad row that no crash explains is an error with file and number, and the file stays as it is."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\nrubbish\n{"step": 2}\n')
    with pytest.raises(LogError, match="metrics.jsonl: row 2"):
        RunLog.resume(tmp_path, 2)
    assert path.read_bytes() == b'{"step": 1}\nrubbish\n{"step": 2}\n'


def test_a_new_log_refuses_an_old_run(tmp_path):
    """A folder with metrics is refused with the way on, and nothing in it changes."""
    run(tmp_path, [1])
    before = contents(tmp_path)
    with pytest.raises(LogError, match="RESUME="):
        RunLog(tmp_path)
    assert contents(tmp_path) == before


def test_an_unwritable_folder_is_named(tmp_path):
    """A run folder below a regular file cannot be made: the error names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match="file/run"):
        RunLog(tmp_path / "file" / "run")
