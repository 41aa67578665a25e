"""Grading that no grader can end: what cannot be graded is masked, counted and told of, and costs itself alone."""

import math
from collections.abc import Sequence
from numbers import Real

from rl.errors import InputError
from rl.reward import Grade, Grader
from rl.taskset import Task


def grade_safely(grader, pairs: Sequence[tuple[Task, str]]) -> list[Grade]:
    """grader.grade(pairs), where one bad sample costs that sample alone and never the run.

    Where the grader raises, each sample is graded by itself; one that raises again, or whose reward is no finite number, is an
    internal_error: masked, counted, and told of on stdout. Another number of grades than of samples is an InputError."""
    try:
        grades = list(grader.grade(pairs))
    except Exception:
        grades = [_grade_alone(grader, pair) for pair in pairs]
    if len(grades) != len(pairs):
        raise InputError(f"{type(grader).__name__}.grade gave {len(grades)} grades for {len(pairs)} samples; it must give one "
                         "for each, in order, so nothing can be learnt from these: mend that function, then RESUME the run")
    return _told([_judged(grade) for grade in grades])


def _grade_alone(grader, pair) -> Grade | None:
    try:
        grades = list(grader.grade([pair]))
    except Exception as error:
        return _ungraded(f"{type(grader).__name__}.grade: {type(error).__name__}: {error}")
    return grades[0] if len(grades) == 1 else None


def _judged(grade) -> Grade:
    """The grade as it is where it says what it should, else an internal_error that says what is wrong."""
    if grade is None:
        return _ungraded("no grade at all")
    if grade.verdict == "internal_error" or (isinstance(grade.reward, Real) and math.isfinite(grade.reward)):
        return grade
    return grade._replace(verdict="internal_error", correct=False, reward=math.nan,
                          detail=f"the reward is {grade.reward!r}, no finite number")


def _ungraded(detail: str) -> Grade:
    return Grade("", "internal_error", False, math.nan, None, None, None, None, None, detail, ())


def grade_rows(grader, task_B: Sequence, text_B: Sequence[str], tokens_B: Sequence[int],
               finish_B: Sequence[str], hidden_B: Sequence | None = None) -> list[Grade]:
    """The grades of all rows of a batch.

    A grader that needs whole groups says so by `whole_groups`, and is asked once by grade_samples; others go pair by pair.
    hidden_B: each row's hidden_TD, for a grader that says `wants_hidden`."""
    if not getattr(grader, "whole_groups", False):
        return grade_safely(grader, list(zip(task_B, text_B, strict=True)))
    return _told([_judged(grade) for grade in grader.grade_samples(task_B, text_B, tokens_B, finish_B, hidden_B)])


def _told(grades: list[Grade]) -> list[Grade]:
    """The same grades, once what could not be graded was told of on stdout."""
    if failed := [grade.detail for grade in grades if grade.verdict == "internal_error"]:
        print(f"grader: {len(failed)} of {len(grades)} samples could not be graded and count nowhere: {failed[0]}", flush=True)
    return grades


def weak_passes(second: Grader, pairs: Sequence[tuple[Task, str]],
                grades: Sequence[Grade]) -> tuple[int, list[tuple[str, Grade]]]:
    """(passes graded again on second's cases, those that fail there by task): any means that wrong code was paid for."""
    passed = [pair for pair, grade in zip(pairs, grades, strict=True) if grade.correct]
    again = [(task.name, grade) for (task, _), grade in zip(passed, grade_safely(second, passed), strict=True)
             if grade.verdict != "internal_error"]
    return len(again), [(name, grade) for name, grade in again if not grade.correct]
