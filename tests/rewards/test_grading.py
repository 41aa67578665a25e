"""Grading beside sampling: the same grades in the same order, whatever ended when."""

import threading
from types import SimpleNamespace

import pytest

from rl.errors import InputError
from rl.rewards.base import Completion, Grade, Grader
from rl.rewards.grading import BackgroundGrading

TASK_B = [SimpleNamespace(name=name) for name in "aabb"]


def completions(*texts):
    return [Completion(task, text) for task, text in zip(TASK_B, texts, strict=True)]


def grade(one):
    return Grade(code=one.text, verdict="pass", correct=True, reward=1.0, style=0.0, depth=0, calls=0, pure=False, idle=0,
                 detail=f"{one.task.name}{one.text}", flags=())


class Recorder(Grader):
    """A grader that notes what it is asked, and by which thread."""

    def __init__(self, answer=lambda completions: [grade(one) for one in completions]):
        self.asked, self.threads, self._answer = [], set(), answer

    def grade(self, completions):
        self.asked.append([one.text for one in completions])
        self.threads.add(threading.get_ident())
        return self._answer(completions)


def test_each_row_is_graded_once_and_in_its_place():
    """Rows begun early, in any order, and the rest at the end: every grade with its own task and text, one caller."""
    grader = Recorder()
    every = completions("zero", "one", "two", "three")
    with BackgroundGrading(grader) as grading:
        grading.begin({3: every[3], 1: every[1]})
        grades = grading.finish(every)
    assert [g.detail for g in grades] == ["azero", "aone", "btwo", "bthree"]
    assert grader.asked == [["three", "one"], ["zero", "two"]]
    assert len(grader.threads) == 1 and threading.get_ident() not in grader.threads


def test_a_grader_that_raises_costs_its_rows_alone(capsys):
    """As in a call of its own: the bad sample is an internal error, its neighbours have their grades."""
    def answer(asked):
        if any(one.text == "bad" for one in asked):
            raise RuntimeError("boom")
        return [grade(one) for one in asked]

    every = completions("bad", "good", "x", "y")
    with BackgroundGrading(Recorder(answer)) as grading:
        grading.begin(dict(enumerate(every[:2])))
        grades = grading.finish(every)
    assert [g.verdict for g in grades] == ["internal_error", "pass", "pass", "pass"]


def test_a_wrong_number_of_grades_is_told():
    """A grader that is not one, is found as without the thread."""
    with pytest.raises(InputError, match="grades"), BackgroundGrading(Recorder(lambda completions: [])) as grading:
        grading.finish(completions("a", "b", "c", "d"))


def test_leaving_early_waits_for_no_more_than_is_at_work():
    """After an exception (Ctrl-C) what has not begun is not graded, and the thread is gone."""
    at_work, go_on = threading.Event(), threading.Event()

    def answer(asked):
        at_work.set()
        go_on.wait(10)
        return [grade(one) for one in asked]

    grader, before = Recorder(answer), threading.active_count()
    with pytest.raises(KeyboardInterrupt), BackgroundGrading(grader) as grading:
        first, second, *_ = completions("first", "second", "", "")
        grading.begin({0: first})
        grading.begin({1: second})
        at_work.wait(10)
        threading.Timer(0.1, go_on.set).start()
        raise KeyboardInterrupt
    assert grader.asked == [["first"]] and threading.active_count() == before
