"""Grading beside sampling: the same grades in the same order, whatever ended when."""

import threading
from types import SimpleNamespace

import pytest

from rl.errors import InputError
from rl.rewards.base import Grade
from rl.rewards.grading import Grading

TASK_B = [SimpleNamespace(name=name) for name in "aabb"]


def grade(task, text):
    return Grade(code=text, verdict="pass", correct=True, reward=1.0, style=0.0, depth=0, calls=0, pure=False, idle=0,
                 detail=f"{task.name}{text}", flags=())


class Recorder:
    """A grader that notes what it is asked, and by which thread."""

    def __init__(self, answer=lambda pairs: [grade(*pair) for pair in pairs]):
        self.asked, self.threads, self._answer = [], set(), answer

    def grade(self, pairs):
        self.asked.append([text for _, text in pairs])
        self.threads.add(threading.get_ident())
        return self._answer(pairs)


def test_each_row_is_graded_once_and_in_its_place():
    """Rows begun early, in any order, and the rest at the end: every grade with its own task and text, one caller."""
    grader = Recorder()
    with Grading(grader, TASK_B) as grading:
        grading.begin({3: "three", 1: "one"})
        grades = grading.finish(["zero", "one", "two", "three"])
    assert [g.detail for g in grades] == ["azero", "aone", "btwo", "bthree"]
    assert grader.asked == [["three", "one"], ["zero", "two"]]
    assert len(grader.threads) == 1 and threading.get_ident() not in grader.threads


def test_a_grader_that_raises_costs_its_rows_alone(capsys):
    """As in a call of its own: the bad sample is an internal error, its neighbours have their grades."""
    def answer(pairs):
        if any(text == "bad" for _, text in pairs):
            raise RuntimeError("boom")
        return [grade(*pair) for pair in pairs]

    with Grading(Recorder(answer), TASK_B) as grading:
        grading.begin({0: "bad", 1: "good"})
        grades = grading.finish(["bad", "good", "x", "y"])
    assert [g.verdict for g in grades] == ["internal_error", "pass", "pass", "pass"]


def test_a_wrong_number_of_grades_is_told():
    """A grader that is not one, is found as without the thread."""
    with pytest.raises(InputError, match="grades"), Grading(Recorder(lambda pairs: []), TASK_B) as grading:
        grading.finish(["a", "b", "c", "d"])


def test_leaving_early_waits_for_no_more_than_is_at_work():
    """After an exception (Ctrl-C) what has not begun is not graded, and the thread is gone."""
    at_work, go_on = threading.Event(), threading.Event()

    def answer(pairs):
        at_work.set()
        go_on.wait(10)
        return [grade(*pair) for pair in pairs]

    grader, before = Recorder(answer), threading.active_count()
    with pytest.raises(KeyboardInterrupt), Grading(grader, TASK_B) as grading:
        grading.begin({0: "first"})
        grading.begin({1: "second"})
        at_work.wait(10)
        threading.Timer(0.1, go_on.set).start()
        raise KeyboardInterrupt
    assert grader.asked == [["first"]] and threading.active_count() == before
