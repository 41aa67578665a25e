"""The steps of grpo_proof.py for one family: questions, samples before training, greedy answers, training.

The loop is train_grpo.py's (rl/training/run.py), questions and their reward are those of TASKS=reasoning_gym (rl/rewards/gym/questions.py); here
is which questions are for what.  What is predicted from the samples is rl/proof/forecast.py."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError
from rl.evaluation.probe import EVAL_STEP, PROBE_STEP
from rl.proof.predictions import MEASURES
from rl.rewards.base import GradedSample
from rl.rewards.gym.client import UNSCORABLE
from rl.rewards.gym.questions import EVALUATE_FROM, PREDICT_FROM
from rl.run.log import RunLog
from rl.settings.declared import Settings
from rl.tasks import Prompt
from rl.training import run as training_run
from rl.training.run import RunContext, first_adapter, train
from rl.training.sampler import sampling_of, step_key
from rl.training.step import grade, sample_and_grade, sample_completions

UNGRADED = "internal_error"    # the verdict on a sample that the grader failed on (rl/rewards/grading.py)


class Seeds(NamedTuple):
    """Which seeds make which questions; no two of the three share one."""

    predict: range
    evaluate: range
    train: int  # how many


def seeds_of(settings: Settings) -> Seeds:
    """The seeds that these settings ask for; InputError where those of training would run into the held-out ones."""
    p, t = settings.proof, settings.trainer
    needed = t.steps * t.tasks_per_step
    if needed + p.predict_tasks > EVALUATE_FROM or PREDICT_FROM + p.predict_tasks > EVALUATE_FROM:
        raise InputError(f"STEPS={t.steps} x TASKS_PER_STEP={t.tasks_per_step} with PREDICT_TASKS={p.predict_tasks}: training "
                         f"would take {needed} seeds from 0 and reach the held-out ones, which begin at {EVALUATE_FROM}; lower "
                         "one of them")
    return Seeds(range(PREDICT_FROM, PREDICT_FROM + p.predict_tasks), range(EVALUATE_FROM, EVALUATE_FROM + p.eval_n), needed)


# ---- before training -------------------------------------------------------------------------------------------------


def measures_of(sample: GradedSample) -> dict[str, float]:
    """score, strict and lenient of a sample; one that the grader failed on is worth 0, like text that cannot be scored."""
    if sample.verdict == UNGRADED:
        return dict.fromkeys(MEASURES, 0.0)
    return {MEASURES[0]: sample.reward, **{name: sample.scores[name] for name in MEASURES[1:]}}


def verdict_of(sample: GradedSample) -> str:
    """What became of a sample; one that the grader failed on could not be scored."""
    return UNSCORABLE if sample.verdict == UNGRADED else sample.verdict


def check_graded(samples: Sequence[GradedSample]) -> None:
    """InputError where the grader failed on every sample: then it is the grader's failing, and zeros would be made up."""
    if all(sample.verdict == UNGRADED for sample in samples):
        raise InputError(f"none of {len(samples)} answers could be graded: {samples[0].detail}. Nothing was kept of them; mend "
                         "that, then start the same command again")


def sampled(model, prompts: Sequence[Prompt], grader, settings: Settings) -> list[list[GradedSample]]:
    """The samples of each prompt, drawn by the call that training makes, with the adapter that training begins with.

    InputError where none could be graded."""
    adapter, groups, P = first_adapter(model.cfg, settings), [], settings.trainer.tasks_per_step
    for start in range(0, len(prompts), P):
        groups += sample_and_grade(model, adapter, prompts[start : start + P], grader, settings, PROBE_STEP, P).groups
    check_graded([sample for group in groups for sample in group.samples])
    return [list(group.samples) for group in groups]


def greedy(model, adapter, prompts: Sequence[Prompt], grader, settings: Settings) -> list[dict]:
    """One greedy answer to each prompt with its scores, in order; as many at a time as a training step has rows.

    InputError where none could be graded."""
    sampling, at_once, answers = sampling_of(settings)._replace(temperature=0.0), rows_of_a_step(settings), []
    for start in range(0, len(prompts), at_once):
        part = prompts[start : start + at_once]
        rollouts, texts = sample_completions(model, adapter, part, 1, sampling, step_key(settings.trainer.seed, EVAL_STEP), at_once)
        groups, _ = grade(grader, part, rollouts, texts)
        answers += [answer for group in groups for answer in group.samples]
    check_graded(answers)
    return [{"seed": prompt.task.seed, "question": prompt.task.text, "gold": prompt.task.answer, "answer": answer.text,
             **measures_of(answer), "verdict": verdict_of(answer), "detail": answer.detail, "tokens": answer.tokens,
             "finish": answer.finish} for prompt, answer in zip(prompts, answers, strict=True)]


def rows_of_a_step(settings: Settings) -> int:
    """How many samples are drawn at a time."""
    return settings.trainer.tasks_per_step * settings.generation.group


# ---- training --------------------------------------------------------------------------------------------------------


class Trained(NamedTuple):
    """What training came to."""

    adapter: dict
    done: bool  # False where MAX_HOURS ended it before STEPS


def train_family(run: Path, model, prompts: Sequence[Prompt], grader, settings: Settings, signals, progress, deadline: float) -> Trained:
    """Train on each prompt once, in shuffled order, as train_grpo.py trains (rl/training/run.py); goes on where `run` was stopped.

    `deadline` is in time.monotonic's seconds, 0 for none.  An interruption saves first and is raised again."""
    run.mkdir(parents=True, exist_ok=True)
    at = training_run.start(run, model.cfg, settings)
    # Rows of a run that was killed before its first checkpoint go.
    around = RunContext(run, RunLog.resume(run, at.step), signals, progress, deadline=deadline)
    at = train(at, model, [prompt.task for prompt in prompts], prompts, grader, settings, around)
    return Trained(at.state.adapter, at.step == settings.trainer.steps)


def control_of(settings: Settings) -> Settings:
    """The same with the rewards of each step dealt out at random."""
    return replace(settings, reward=replace(settings.reward, shuffle_rewards=True))
