"""The steps of grpo_proof.py for one family: which questions it uses, samples before training, greedy answers, training.

Questions and reward are those of TASKS=reasoning_gym (rl/rewards/gym/questions.py), the training loop is train_grpo.py's
(rl/training/run.py), and the prediction made from the samples is rl/proof/forecast.py's."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError
from rl.evaluation.probe import EVAL_STEP, PROBE_STEP
from rl.proof.predictions import MEASURES
from rl.rewards.base import GradedSample, Grader
from rl.rewards.gym.client import UNSCORABLE
from rl.rewards.gym.questions import EVALUATE_FROM, PREDICT_FROM
from rl.run.log import RunLog
from rl.run.progress import ProgressDisplay
from rl.run.signals import Signals
from rl.settings.declared import Settings
from rl.tasks import Prompt
from rl.training.run import RunContext, first_adapter, start, train
from rl.training.sampler import sampling_of, step_key
from rl.training.step import grade, sample_and_grade, sample_completions

UNGRADED = "internal_error"    # the verdict on a sample that the grader failed on (rl/rewards/grading.py)

# ---- questions --------------------------------------------------------------------------------------------------------


class Seeds(NamedTuple):
    """Which seeds the questions are made from; no two of the three uses share a seed."""

    predict: range
    evaluate: range
    train: int  # how many questions, from seed 0 on


def seeds_of(settings: Settings) -> Seeds:
    """The seeds for these settings; InputError if training would reach the held-out ones."""
    p, t = settings.proof, settings.trainer
    needed = t.steps * t.tasks_per_step
    if needed + p.predict_tasks > EVALUATE_FROM or PREDICT_FROM + p.predict_tasks > EVALUATE_FROM:
        raise InputError(f"STEPS={t.steps} x TASKS_PER_STEP={t.tasks_per_step} with PREDICT_TASKS={p.predict_tasks}: training "
                         f"would take {needed} seeds from 0 on and reach the held-out ones, which begin at {EVALUATE_FROM}; "
                         "lower one of them")
    return Seeds(predict=range(PREDICT_FROM, PREDICT_FROM + p.predict_tasks),
                 evaluate=range(EVALUATE_FROM, EVALUATE_FROM + p.eval_n), train=needed)


# ---- measuring --------------------------------------------------------------------------------------------------------


def sample_prompts(model, prompts: Sequence[Prompt], grader: Grader, settings: Settings) -> list[list[GradedSample]]:
    """The samples of each prompt, drawn exactly as training draws them, with the adapter that training begins with.

    InputError if none can be graded."""
    adapter, groups, P = first_adapter(model.cfg, settings), [], settings.trainer.tasks_per_step
    for i in range(0, len(prompts), P):
        groups += sample_and_grade(model, adapter, prompts[i : i + P], grader, settings, PROBE_STEP, P).groups
    check_graded([sample for group in groups for sample in group.samples])
    return [list(group.samples) for group in groups]


def answer_greedily(model, adapter, prompts: Sequence[Prompt], grader: Grader, settings: Settings) -> list[dict]:
    """One greedy answer to each prompt with its scores, in order; batches have as many rows as a training step.

    InputError if none can be graded."""
    sampling, rows = sampling_of(settings)._replace(temperature=0.0), settings.trainer.tasks_per_step * settings.generation.group
    key, answers = step_key(settings.trainer.seed, EVAL_STEP), []
    for i in range(0, len(prompts), rows):
        batch = prompts[i : i + rows]
        _, completions = sample_completions(model, adapter, batch, 1, sampling, key, min_prompts=rows)
        answers += [answer for group in grade(grader, batch, completions) for answer in group.samples]
    check_graded(answers)
    return [{"seed": prompt.task.seed, "question": prompt.task.text, "gold": prompt.task.answer, "answer": answer.text,
             **measures_of(answer), "verdict": verdict_of(answer), "detail": answer.detail, "tokens": answer.tokens,
             "finish": answer.finish} for prompt, answer in zip(prompts, answers, strict=True)]


def measures_of(sample: GradedSample) -> dict[str, float]:
    """score, strict and lenient of a sample; all 0 if the grader failed on it, as for answers that cannot be scored."""
    if sample.verdict == UNGRADED:
        return dict.fromkeys(MEASURES, 0.0)
    return {MEASURES[0]: sample.reward, **{name: sample.scores[name] for name in MEASURES[1:]}}


def verdict_of(sample: GradedSample) -> str:
    """The sample's verdict; UNSCORABLE if the grader failed on it."""
    return UNSCORABLE if sample.verdict == UNGRADED else sample.verdict


def check_graded(samples: Sequence[GradedSample]) -> None:
    """InputError if the grader failed on every sample: that is the grader's fault, and zeros would be made up."""
    if all(sample.verdict == UNGRADED for sample in samples):
        raise InputError(f"none of {len(samples)} answers could be graded: {samples[0].detail}. Nothing was kept of them; fix "
                         "that, then start the same command again")


# ---- training ---------------------------------------------------------------------------------------------------------


class Trained(NamedTuple):
    """The result of training."""

    adapter: dict
    done: bool  # False if MAX_HOURS ended it before STEPS


def train_family(run: Path, model, prompts: Sequence[Prompt], grader: Grader, settings: Settings, *, signals: Signals,
                 display: ProgressDisplay, deadline: float) -> Trained:
    """Train on each prompt once, in shuffled order, as train_grpo.py does; a run that was stopped goes on.

    deadline: in time.monotonic's seconds, 0 for none. An interruption is saved first and raised again."""
    run.mkdir(parents=True, exist_ok=True)
    progress = start(run, model.cfg, settings)
    # Drops the rows of a run that was killed before its first checkpoint.
    log = RunLog.resume(run, progress.step)
    context = RunContext(run, log, signals, display, deadline=deadline)
    progress = train(progress, model, prompts, grader, settings, context)
    return Trained(progress.state.adapter, progress.step == settings.trainer.steps)


def control_settings(settings: Settings) -> Settings:
    """The same settings with the rewards of each step shuffled."""
    return replace(settings, reward=replace(settings.reward, shuffle_rewards=True))
