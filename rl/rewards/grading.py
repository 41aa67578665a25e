"""Grading completions during a run: a grader that raises costs one sample and never the run; grading overlaps with sampling; some
passes are graded a second time.

What cannot be graded is masked out of the loss, counted and reported on stdout. The second grading uses other hidden cases in an
interpreter started for them: a pass that fails there was let through by weak cases, or by a grader that does not repeat itself;
both should be 0. It changes no reward."""

import math
import random
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from numbers import Real

from rl.errors import InputError
from rl.rewards.base import Completion, Grade, GradedGroup, GradedSample, Grader
from rl.settings.declared import Settings


def grade_safely(grader: Grader, completions: Sequence[Completion]) -> list[Grade]:
    """The grader's grades, where one bad sample costs that sample alone and never the run.

    Where the grader raises, each sample is graded by itself; one that raises again, or whose reward is not a finite number, is an
    internal_error: masked, counted and reported on stdout. InputError where the number of grades is not that of the samples. A
    grader that needs whole groups is asked once; what it raises is raised."""
    if grader.whole_groups:
        grades = list(grader.grade(completions))
    else:
        try:
            grades = list(grader.grade(completions))
        except Exception:
            grades = [_grade_alone(grader, completion) for completion in completions]
    if len(grades) != len(completions):
        raise InputError(f"{type(grader).__name__}.grade gave {len(grades)} grades for {len(completions)} samples; it must give "
                         "one for each, in order, so nothing can be learnt from these: mend that function, then RESUME the run")
    grades = [_checked(grade) for grade in grades]
    if failed := [grade.detail for grade in grades if grade.verdict == "internal_error"]:
        print(f"grader: {len(failed)} of {len(grades)} samples could not be graded and count nowhere: {failed[0]}", flush=True)
    return grades


def _grade_alone(grader: Grader, completion: Completion) -> Grade | None:
    try:
        grades = list(grader.grade([completion]))
    except Exception as error:
        return ungraded(f"{type(grader).__name__}.grade: {type(error).__name__}: {error}")
    return grades[0] if len(grades) == 1 else None


def _checked(grade: Grade | None) -> Grade:
    """The grade unchanged where it is usable, else an internal_error that says what is wrong with it."""
    if grade is None:
        return ungraded("no grade at all")
    if grade.verdict == "internal_error" or (isinstance(grade.reward, Real) and math.isfinite(grade.reward)):
        return grade
    return grade._replace(verdict="internal_error", correct=False, reward=math.nan,
                          detail=f"the reward is {grade.reward!r}, not a finite number")


def ungraded(detail: str) -> Grade:
    """The grade of a sample that could not be graded."""
    return Grade(code="", verdict="internal_error", correct=False, reward=math.nan, detail=detail)


# ---- beside sampling --------------------------------------------------------------------------------------------------


class BackgroundGrading:
    """A context manager around the sampling of one batch: completions are graded while others are still being sampled.

    One thread, so the sandbox has one caller at a time; the grades are those of one call at the end."""

    def __init__(self, grader: Grader):
        self._grader = grader
        self._begun: dict[int, tuple[Future, int]] = {}

    def __enter__(self):
        self._pool = ThreadPoolExecutor(1)
        return self

    def __exit__(self, *_):
        self._pool.shutdown(cancel_futures=True)

    def begin(self, completions: dict[int, Completion]) -> None:
        """Start grading these rows, unless the grader has to see the whole batch."""
        if not self._grader.whole_groups:
            future = self._pool.submit(grade_safely, self._grader, list(completions.values()))
            self._begun |= {row: (future, i) for i, row in enumerate(completions)}

    def finish(self, completions: Sequence[Completion]) -> list[Grade]:
        """The grades of all rows, in order; InputError where the grader does not give one for each."""
        if self._grader.whole_groups:
            return grade_safely(self._grader, completions)
        if rest := {row: completion for row, completion in enumerate(completions) if row not in self._begun}:
            self.begin(rest)
        return [future.result()[i] for future, i in (self._begun[row] for row in range(len(completions)))]


# ---- a second look ----------------------------------------------------------------------------------------------------


def weak_passes(second: Grader, completions: Sequence[Completion],
                grades: Sequence[Grade | GradedSample]) -> tuple[int, list[tuple[str, Grade]]]:
    """(passes graded again by `second`, those that fail there, by task): any failure means that wrong code was paid for."""
    passed = [completion for completion, grade in zip(completions, grades, strict=True) if grade.correct]
    again = [(completion.task.name, grade) for completion, grade in zip(passed, grade_safely(second, passed), strict=True)
             if grade.verdict != "internal_error"]
    return len(again), [(name, grade) for name, grade in again if not grade.correct]


def recheck(grader: Grader, tasks: Sequence, groups: Sequence[GradedGroup], settings: Settings, step: int) -> dict[str, int]:
    """Grade RECHECK_SHARE of the step's passes again: how many were, and how many failed, each named on stdout.

    The choice depends on SEED and step alone. Where a second grader cannot start, training goes on without."""
    rng = random.Random(f"{settings.trainer.seed} {step} recheck")
    drawn = [(Completion(task, sample.text), sample) for task, group in zip(tasks, groups, strict=True)
             for sample in group.samples if rng.random() < settings.sandbox.recheck_share and sample.correct]
    looked, failures = 0, []
    if drawn and grader.has_cases:
        try:
            completions, samples = zip(*drawn, strict=True)
            passed = {completion.task.name: completion.task for completion in completions}
            with grader.second_grader(list(passed.values())) as second:
                looked, failures = weak_passes(second, completions, samples)
        except Exception as error:  # a second look must not cost the run
            print(f"step {step + 1}: no recheck of {len(drawn)} passes: {error}", flush=True)
    for name, grade in failures:
        print(f"recheck: a program for {name} that training paid for fails on other cases: {grade.verdict}, {grade.detail}",
              flush=True)
    return {"grader/rechecked": looked, "grader/recheck_failed": len(failures)}
