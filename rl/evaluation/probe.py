"""Probing: samples of whole tasks on cases that training never used, graded as in training; also every EVAL_EVERY steps of a run.

Probes of two models with equal settings see the same tasks, the same hidden cases and the same random numbers, so their
difference is the models' own. An evaluation on the way is the same work on the held-out split with the adapter as it stands. Its
random numbers are its own and the same each time, so training is not disturbed, and two evaluations of a run differ by the
adapter alone. It never has more prompts or rows in flight than a training step, so the memory planned for training suffices.

What the samples say is worked out in rl/evaluation/probe_report.py.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from rl.rewards.base import GradedGroup, Grader
from rl.rewards.grading import weak_passes
from rl.rewards.setup import grader_of
from rl.rewards.words.rewards import LENGTH
from rl.run.log import step_metrics
from rl.settings.declared import Kwargs, Settings
from rl.tasks import Prompt
from rl.training.sampler import SamplingParams, sampling_of, step_key
from rl.training.step import grade, sample_completions

# ---- a probe ----------------------------------------------------------------------------------------------------------


# A probe samples as a step of its own that no run reaches, and its cases come from seeds beyond those of training.
PROBE_STEP = 2**31 - 1
EVAL_STEP = PROBE_STEP - 1    # of evaluations on the way, so that a probe of the run that they judged draws afresh
UTILISATION = "token_utilisation_reward"
PROBE_CASES, SECOND_CASES = 2**31, 2**32    # added to CASE_SEED, which ends below 2**31


class Probed(NamedTuple):
    """What a probe gathered: a group a task, the tasks' entropy sums, and how its passes did on second cases."""
    groups: list[GradedGroup]
    entropy: list[float]       # nats, summed over the task's sampled tokens
    rechecked: int             # passes graded again on cases of yet another seed
    weak: int                  # those that fail there: the first cases let wrong code pass
    seconds: float


class ProbeGrader(NamedTuple):
    """The grader of a probe, on fresh cases, and a second one on other fresh cases to check the first."""
    first: Grader
    second: Grader | None    # None where answers are compared and there are no cases to be fresh

    @classmethod
    def on(cls, judge, tasks: Sequence, settings: Settings) -> "ProbeGrader":
        """Both graders of what the settings pay for."""
        settings = for_unseen_prompts(settings)
        first = grader_of(judge, tasks, settings, PROBE_CASES)
        return cls(first, grader_of(judge, tasks, settings, SECOND_CASES) if first.has_cases else None)


def probe(model, adapter, prompts: Sequence[Prompt], graders: ProbeGrader, *, samples: int, sampling: SamplingParams, seed: int,
          tasks_at_once: int, step: int = PROBE_STEP, tell: Callable[[str], None] = lambda line: None) -> Probed:
    """`samples` graded completions of every prompt; tasks_at_once bounds memory and changes nothing else."""
    started = time.perf_counter()
    groups, entropy, rechecked, weak = [], [], 0, 0
    for start in range(0, len(prompts), tasks_at_once):
        part = prompts[start:start + tasks_at_once]
        rollouts, completions = sample_completions(model, adapter, part, samples, sampling, step_key(seed, step),
                                                   min_prompts=tasks_at_once, hidden=graders.first.wants_hidden)
        new = grade(graders.first, part, completions)
        groups += new
        entropy += rollouts.entropy_BT.sum(-1).reshape(len(part), samples).sum(-1).tolist()
        if graders.second:
            looked, failed = weak_passes(graders.second, completions, [sample for group in new for sample in group.samples])
            rechecked, weak = rechecked + looked, weak + len(failed)
        tell(_progress(groups, len(prompts), time.perf_counter() - started))
    return Probed(groups, entropy, rechecked, weak, time.perf_counter() - started)


def for_unseen_prompts(settings: Settings) -> Settings:
    """With 0 for what a file of the frozen model's answers lacks, for it has training prompts, and others are measured here; and
    with groups of one prompt, whatever size they had in training."""
    given = json.loads(settings.reward.reward_kwargs)
    if isinstance(utilisation := given.get(UTILISATION), dict):
        given[UTILISATION] = {"missing": "zero"} | utilisation
    if isinstance(length := given.get(LENGTH), dict):
        given[LENGTH] = {name: value for name, value in length.items() if name != "group_size"}
    return replace(settings, reward=replace(settings.reward, reward_kwargs=Kwargs(json.dumps(given, sort_keys=True))))


def _progress(groups: Sequence[GradedGroup], tasks: int, seconds: float) -> str:
    correct = [row.correct for group in groups for row in group.samples]
    left = seconds / len(groups) * (tasks - len(groups))
    return f"{len(groups)}/{tasks} tasks, {sum(correct)}/{len(correct)} pass, {seconds:.0f} s, {left:.0f} s to go"


# ---- evaluations during training --------------------------------------------------------------------------------------


class HeldOutEvaluation(NamedTuple):
    """What all evaluations of a run share; without prompts none is ever due."""

    prompts: list[Prompt]
    graders: ProbeGrader
    settings: Settings

    @classmethod
    def on(cls, judge, prompts: list[Prompt], settings: Settings) -> "HeldOutEvaluation":
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
        return eval_metrics(probe(model, adapter, self.prompts, self.graders, samples=N, sampling=sampling_of(s),
                                  seed=s.trainer.seed, tasks_at_once=at_once, step=EVAL_STEP))


def eval_metrics(found: Probed) -> dict[str, float | None]:
    """An evaluation's row: the grades' part of a step's row and a probe's own figures, all under eval/."""
    samples = [sample for group in found.groups for sample in group.samples]
    figures = {**step_metrics(found.groups), "entropy": sum(found.entropy) / sum(sample.tokens for sample in samples),
               "tasks": len(found.groups), "samples": len(samples),
               "solved_at_least_once": sum(any(sample.correct for sample in group.samples) for group in found.groups),
               "weak_passes": found.weak, "passes_rechecked": found.rechecked, "time": found.seconds}
    return {f"eval/{name}": value for name, value in figures.items()}
