"""Evaluations on the way: how a run does on tasks that it does not train on, every EVAL_EVERY steps.

The probe's own work (rl/evaluation/probe.py) on the held-out split, with the adapter as it stands. Its random numbers are its
own and the same each time, so training draws what it draws without, and two evaluations of a run differ by the adapter alone.
It never has more prompts or rows at work than a training step, so the memory planned for training is enough.

Not here: where the rows are written (rl/datalog.py) and shown (rl/progress.py, rl/pages/report.py)."""

from typing import NamedTuple

from rl.datalog import step_metrics
from rl.evaluation.probe import EVAL_STEP, Probed, ProbeGrader, probe
from rl.loop import Prompt, sampling_of
from rl.settings import Settings


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
