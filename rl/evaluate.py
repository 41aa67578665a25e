"""Evaluations on the way: how a run does on tasks that it does not train on, every EVAL_EVERY steps.

The probe's own work (rl/evaluation/probe.py) on the held-out split, with the adapter as it stands. Its random numbers are its
own and the same each time, so training draws what it draws without, and two evaluations of a run differ by the adapter alone.
It never has more prompts or rows at work than a training step, so the memory planned for training is enough.

Not here: where the rows are written (rl/datalog.py) and shown (rl/progress.py, rl/pages/report.py)."""

from dataclasses import replace
from typing import NamedTuple

from rl.datalog import step_metrics
from rl.errors import InputError
from rl.evaluation.probe import EVAL_STEP, Probed, ProbeGrader, probe
from rl.loop import Prompt, sampling_of
from rl.settings import Settings
from rl.taskset import Task, load_tasks


def held_out(settings: Settings) -> list[Task]:
    """The tasks of the evaluations, none where EVAL_EVERY is 0; InputError where EVAL_TASKS asks for more than there are."""
    return first_held_out(settings, settings.evaluation.eval_tasks) if settings.evaluation.eval_every else []


def first_held_out(settings: Settings, count: int) -> list[Task]:
    """The first `count` held-out tasks (0: all) in their fixed shuffled order; InputError where there are fewer."""
    tasks = load_tasks(replace(settings.data, split="heldout", n_tasks=0, task_names=""))  # names are of training tasks
    if count > len(tasks):
        raise InputError(f"EVAL_TASKS={count}, but {len(tasks)} tasks of {settings.data.tasks} are held out; ask for 1 to "
                         f"{len(tasks)}, or 0 for all of them")
    return tasks[:count or len(tasks)]


class Evaluation(NamedTuple):
    """What all evaluations of a run share; without prompts none is ever due."""

    prompts: list[Prompt]
    graders: ProbeGrader
    settings: Settings

    @classmethod
    def on(cls, judge, prompts: list[Prompt], settings: Settings) -> "Evaluation":
        """On these held-out prompts, graded on the cases of a probe."""
        tasks = [prompt.task for prompt in prompts]
        return cls(prompts, ProbeGrader.on(judge, tasks, settings), settings)

    def due(self, step: int) -> bool:
        """Whether this many steps are an occasion: none, a multiple of EVAL_EVERY, or all."""
        return bool(self.prompts) and (step % self.settings.evaluation.eval_every == 0 or step == self.settings.trainer.steps)

    def of(self, model, adapter) -> dict[str, float | None]:
        """The metrics of the model with this adapter."""
        s = self.settings
        N, most = s.evaluation.eval_samples, s.trainer.tasks_per_step
        at_once = min(most, most * s.generation.group // N)
        return eval_metrics(probe(model, adapter, self.prompts, self.graders, N, sampling_of(s), s.trainer.seed, at_once,
                                  step=EVAL_STEP, slots=at_once))


def eval_metrics(found: Probed) -> dict[str, float | None]:
    """An evaluation's row: the grades' part of a step's row and a probe's own figures, all under eval/."""
    samples = [sample for group in found.groups for sample in group.samples]
    figures = {**step_metrics(found.groups), "entropy": sum(found.entropy) / sum(sample.tokens for sample in samples),
               "tasks": len(found.groups), "samples": len(samples),
               "solved_at_least_once": sum(any(sample.correct for sample in group.samples) for group in found.groups),
               "weak_passes": found.weak, "passes_rechecked": found.rechecked, "time": found.seconds}
    return {f"eval/{name}": value for name, value in figures.items()}
