"""A second opinion on some of the passes that training pays for: other hidden cases, in an interpreter started for them.

Training grades once, on cases it made at its start. A pass that fails here was let through by weak cases, or by a grader
that does not repeat itself; both should be 0. Nothing here changes a reward.
"""

import random
from collections.abc import Sequence

from rl.datalog import Group
from rl.graders import runs_code
from rl.reward import Grader
from rl.safe_grading import weak_passes
from rl.sandbox import Sandbox
from rl.settings import Settings
from rl.taskset import Task

RECHECK_CASES = 2**33    # added to CASE_SEED; the probe's own seeds end below


def recheck(tasks: Sequence[Task], groups: Sequence[Group], settings: Settings, step: int) -> dict[str, int]:
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
        second = Grader(box, tasks, settings.reward.style_weight, settings.data.case_seed + RECHECK_CASES)
        again, failures = weak_passes(second, [(task, sample.text) for task, sample in drawn], [sample for _, sample in drawn])
    for name, grade in failures:
        print(f"recheck: a program for {name} that training paid for fails on other cases: {grade.verdict}, {grade.detail}",
              flush=True)
    return again, len(failures)
