"""Grading beside sampling: completions that have ended are graded while the rest of their batch is still being sampled."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from rl.reward import Grade
from rl.safe_grading import grade_rows, grade_safely
from rl.taskset import Task


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
