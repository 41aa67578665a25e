"""The metrics of a step against hand-worked numbers, and the run's files through crashes, resumes and full disks."""

import json
import math
import os
from statistics import fmean, pstdev

import numpy as np
import pytest

from rl.rewards.base import GradedGroup, GradedSample
from rl.run import files as run_files
from rl.run.files import LogError, append_rows, read_rows, write_aside
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
    """Every number of a step of four groups, worked out by hand."""
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


def test_a_failed_grader_is_no_wrong_answer():
    """The other samples of its group alone make the group's numbers; the failure has a rate of its own."""
    m = step_metrics([BROKEN])
    assert (m["reward"], m["pass_rate"], m["frac_all_good"], m["reward_std"]) == (1.0, 1.0, 1.0, 0.0)
    assert m["grader/internal_error_rate"] == 0.5


def test_what_does_not_exist_is_none():
    """No correct sample: no style; no ended sample: no ended length; no graded group: no shares."""
    m = step_metrics([group(sample(False, finish="length"))])
    assert all(m[name] is None for name in (*QUALITIES, "completions/mean_terminated_length"))
    m = step_metrics([group(sample(False, verdict="internal_error"))])
    assert all(m[name] is None for name in ("reward", "reward_std", "pass_rate", "frac_mixed", "frac_reward_zero_std"))
    assert step_metrics([])["completions/max_length"] is None


def test_answers_in_words_have_no_style():
    """No key at all, so that whoever shows the metrics can leave the names out; one program is enough for all of them."""
    words = sample(**dict.fromkeys(QUALITIES), verdict="right")
    assert not {*QUALITIES} & {*step_metrics([group(words, words)])}
    assert step_metrics([group(words, words)])["pass_rate"] == 1.0
    assert step_metrics([group(words, sample(False))])["style"] is None and step_metrics([group(words, sample())])["style"] == 0.4


def test_reward_std_is_the_mean_of_the_groups_own():
    """Spread between groups does not count: groups at 0 and at 1.2 without any spread inside have reward_std 0."""
    assert step_metrics([SAME, BAD])["reward_std"] == 0.0
    thirds = group(*[sample(style=0.1)] * 3)    # the mean of three equal floats need not be that float
    assert step_metrics([thirds])["reward_std"] == 0.0
    groups = [GOOD, SAME, BAD, MIXED]
    spreads = [pstdev(s.reward for s in g.samples) for g in groups]
    assert step_metrics(groups)["reward_std"] == pytest.approx(fmean(spreads))


def test_cutting_the_step_differently_changes_nothing():
    """A step's numbers come from all its groups at once, in whatever order they stand."""
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
    """One metrics row a step, one completions file a step with every sample, valid JSON throughout."""
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
    """Other spacing and comments are the same program; another task's equal code is not; wrong code never enters."""
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


def test_a_group_whose_grader_failed_is_not_hard(tmp_path):
    """Only groups with a graded sample, all of them wrong, are hard."""
    log = RunLog(tmp_path)
    log.pools(1, [group(sample(False, verdict="internal_error")), BROKEN, MIXED, GOOD])
    assert read_rows(tmp_path / "hard_pool.jsonl") == []


@pytest.mark.parametrize("kept", [0, 2, 3, 5])
def test_resume_equals_a_run_without_interruption(tmp_path, kept):
    """Going back to a step and running on gives, byte for byte, the files of an unbroken run."""
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


def test_a_bad_row_in_the_middle_is_told(tmp_path):
    """A row that no crash explains is an error with its file and number, and the file stays as it is."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\nrubbish\n{"step": 2}\n')
    with pytest.raises(LogError, match="metrics.jsonl: row 2"):
        RunLog.resume(tmp_path, 2)
    assert path.read_bytes() == b'{"step": 1}\nrubbish\n{"step": 2}\n'


def test_a_new_log_does_not_enter_an_old_run(tmp_path):
    """A folder with metrics is refused, with the way on, and nothing in it changes."""
    run(tmp_path, [1])
    before = contents(tmp_path)
    with pytest.raises(LogError, match="RESUME="):
        RunLog(tmp_path)
    assert contents(tmp_path) == before


class FullDisk:
    """A file that takes `room` bytes and then says that the disk is full."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def write(self, data):
        taken = self.file.write(bytes(data)[:self.room])
        self.room -= taken
        if not taken:
            raise OSError(28, "No space left on device")
        return taken


@pytest.mark.parametrize("room", [0, 1, 30])
def test_a_full_disk_leaves_the_earlier_rows(tmp_path, monkeypatch, room):
    """When a row does not fit, the error names the file and the file holds the earlier rows and no part of this one."""
    path = tmp_path / "metrics.jsonl"
    append_rows(path, [{"step": 1}])
    monkeypatch.setattr(run_files, "open", lambda *args, **rest: FullDisk(open(*args, **rest), room), raising=False)

    with pytest.raises(LogError, match=r"metrics\.jsonl: No space left on device.*RESUME="):
        append_rows(path, [{"step": 2, "filler": "x" * 100}])
    assert path.read_bytes() == b'{"step": 1}\n'


def test_a_full_disk_leaves_the_old_file_when_cutting(tmp_path, monkeypatch):
    """Cutting writes aside first: a disk that is full leaves the log whole and no half file behind."""
    run(tmp_path, [1, 2, 3])
    before = contents(tmp_path)
    monkeypatch.setattr(run_files, "open", lambda *args, **rest: FullDisk(open(*args, **rest), 5), raising=False)
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))

    with pytest.raises(LogError, match="No space left"):
        RunLog.resume(tmp_path, 1)
    assert contents(tmp_path) == before


def test_an_unwritable_folder_is_named(tmp_path):
    """A run folder below a plain file cannot be made: the error names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match="file/run"):
        RunLog(tmp_path / "file" / "run")


def test_write_aside_replaces_at_once(tmp_path, monkeypatch):
    """A reader meets the old text or the new one: when the rename fails the old one stays and the aside copy goes."""
    path = tmp_path / "probe.json"
    write_aside(path, b"old")
    monkeypatch.setattr(os, "replace", lambda *args: (_ for _ in ()).throw(OSError(30, "Read-only file system")))
    with pytest.raises(LogError, match="Read-only"):
        write_aside(path, b"new")
    assert contents(tmp_path) == {"probe.json": b"old"}


def test_a_partly_taken_write_is_continued(tmp_path, monkeypatch):
    """A write that takes a few bytes at a time still lands whole."""
    class Slow(FullDisk):
        def write(self, data):
            return self.file.write(bytes(data)[:3])

    monkeypatch.setattr(run_files, "open", lambda *args, **rest: Slow(open(*args, **rest), 0), raising=False)
    append_rows(tmp_path / "rows.jsonl", [{"step": 1, "x": math.pi}])
    assert read_rows(tmp_path / "rows.jsonl") == [{"step": 1, "x": math.pi}]
