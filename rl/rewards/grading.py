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
from rl.rewards.base import Grade, GradedGroup
from rl.rewards.lisp import ProgramGrader
from rl.rewards.setup import runs_code
from rl.sandbox import Sandbox
from rl.settings.declared import Settings
from rl.tasks import Task

# ---- one bad sample costs itself alone --------------------------------------------------------------------------------


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


def weak_passes(second: ProgramGrader, pairs: Sequence[tuple[Task, str]],
                grades: Sequence[Grade]) -> tuple[int, list[tuple[str, Grade]]]:
    """(passes graded again on second's cases, those that fail there by task): any means that wrong code was paid for."""
    passed = [pair for pair, grade in zip(pairs, grades, strict=True) if grade.correct]
    again = [(task.name, grade) for (task, _), grade in zip(passed, grade_safely(second, passed), strict=True)
             if grade.verdict != "internal_error"]
    return len(again), [(name, grade) for name, grade in again if not grade.correct]


# ---- beside sampling --------------------------------------------------------------------------------------------------


class Grading:
    """A context manager around the sampling of one batch; `task_B` is the task that each row answers.

    One thread, so the sandbox has one caller at a time; what it is asked is what one call at the end would ask."""

    def __init__(self, grader, task_B: Sequence[Task]):
        self._grader, self._task_B, self._whole = grader, task_B, getattr(grader, "whole_groups", False)
        self._begun: dict[int, tuple[Future, int]] = {}

    def __enter__(self):
        self._pool = ThreadPoolExecutor(1)
        return self

    def __exit__(self, *_):
        self._pool.shutdown(cancel_futures=True)

    def begin(self, texts: dict[int, str]) -> None:
        """Have these rows' completions graded from now on, unless their grader has to see the whole batch."""
        if self._whole:
            return
        future = self._pool.submit(grade_safely, self._grader, [(self._task_B[row], text) for row, text in texts.items()])
        self._begun |= {row: (future, i) for i, row in enumerate(texts)}

    def finish(self, text_B: Sequence[str], tokens_B: Sequence[int] = (), finish_B: Sequence[str] = (),
               hidden_B: Sequence | None = None) -> list[Grade]:
        """All rows' grades, in order; InputError where the grader does not give one for each."""
        if self._whole:
            return grade_rows(self._grader, self._task_B, text_B, tokens_B, finish_B, hidden_B)
        if rest := {row: text for row, text in enumerate(text_B) if row not in self._begun}:
            self.begin(rest)
        return [future.result()[i] for future, i in (self._begun[row] for row in range(len(text_B)))]


# ---- a second look ----------------------------------------------------------------------------------------------------


RECHECK_CASES = 2**33    # added to CASE_SEED; the probe's own seeds end below


def recheck(tasks: Sequence[Task], groups: Sequence[GradedGroup], settings: Settings, step: int) -> dict[str, int]:
    """Grade RECHECK_SHARE of the step's passes again; how many were, and how many failed there, named on stdout.

    Which ones depends on SEED and step alone. Where a sandbox cannot start now, or a task cannot be graded on
    other cases, training goes on without."""
    draw = random.Random(f"{settings.trainer.seed} {step} recheck")
    drawn = [(task, sample) for task, group in zip(tasks, groups, strict=True) for sample in group.samples
             if draw.random() < settings.sandbox.recheck_share and sample.correct]
    looked = failed = 0
    if drawn and runs_code(settings):    # answers that are compared have no other cases
        try:
            looked, failed = _look_again(drawn, settings)
        except Exception as error:  # a second opinion that cannot be had must not cost the run
            print(f"step {step + 1}: no recheck of {len(drawn)} passes: {error}", flush=True)
    return {"grader/rechecked": looked, "grader/recheck_failed": failed}


def _look_again(drawn, settings):
    s = settings.sandbox
    tasks = list({task.name: task for task, _ in drawn}.values())
    with Sandbox(1, s.case_seconds, s.allow_weak_sandbox) as box:
        second = ProgramGrader(box, tasks, settings.reward.style_weight, settings.data.case_seed + RECHECK_CASES)
        again, failures = weak_passes(second, [(task, sample.text) for task, sample in drawn], [sample for _, sample in drawn])
    for name, grade in failures:
        print(f"recheck: a program for {name} that training paid for fails on other cases: {grade.verdict}, {grade.detail}",
              flush=True)
    return again, len(failures)
