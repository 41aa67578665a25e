"""The loop of every command that trains: choose tasks, sample, grade, update, log, save, until STEPS or out of time.

    at = train(start(run, cfg, settings), model, tasks, prompts, grader, settings, around)

Between any two steps the run is whole on the disk: state, step and cursor move together with the log, and a signal waits until
they have. Not here: what one step does (rl/training/step.py), the files (rl/training/checkpoint.py, rl/run/log.py), and what a command checks and
says before and after."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError
from rl.evaluation.probe import HeldOutEvaluation
from rl.models.hub import hub_name
from rl.rewards.base import GradedGroup
from rl.run.log import RunLog
from rl.run.progress import ProgressDisplay
from rl.run.signals import Interrupted, Signals
from rl.run.tracker import Tracker
from rl.settings.declared import Settings
from rl.tasks import START, Cursor, Prompt, cursor_after, next_tasks
from rl.training import checkpoint, lora
from rl.training.lora import adapter_key
from rl.training.optimiser import TrainState, init_state
from rl.training.step import train_step


class Progress(NamedTuple):
    """How far a run has come."""

    state: TrainState
    step: int = 0  # steps done
    cursor: Cursor = START  # where its order of tasks is; moves with DYNAMIC_SAMPLING alone


class RunContext(NamedTuple):
    """What a run has besides its state: where it is kept, who is told of it, when it ends."""

    run: Path
    log: RunLog
    signals: Signals
    progress: ProgressDisplay
    tracked: Tracker = Tracker("none", Path())
    evaluation: HeldOutEvaluation | None = None
    deadline: float = 0.0  # in time.monotonic's seconds: no step begins after it; 0: none


def first_adapter(cfg, settings: Settings):
    """The adapter that training begins with: LORA's, or a new one, which changes nothing yet."""
    m = settings.model
    targets = m.lora_targets.split(",")
    if m.lora:
        return lora.load(m.lora, cfg, m.lora_rank, targets)
    return lora.init(adapter_key(settings.trainer.seed), cfg, m.lora_rank, m.lora_alpha, targets)


def start(run: Path, cfg, settings: Settings) -> Progress:
    """Where the latest checkpoint in `run` left it, else a beginning; CheckpointError where RESUME finds none."""
    if settings.run.resume or checkpoint.steps(run):
        rank, targets = settings.model.lora_rank, settings.model.lora_targets.split(",")
        return Progress(*checkpoint.restore(run, cfg, rank, targets), checkpoint.data_cursor(run))
    return Progress(init_state(first_adapter(cfg, settings)))


def deadline_after(hours: float) -> float:
    """When so many hours from now will be over, for Around; 0 hours are no limit."""
    return time.monotonic() + hours * 3600 if hours else 0.0


def train(at: Progress, model, tasks: Sequence, prompts: Sequence[Prompt], grader, settings: Settings, around: RunContext) -> Progress:
    """Train from `at` on, on the prompts of these tasks in the tasks' own order; where that has brought the run.

    Ends at STEPS or after the deadline, saved. An interruption saves the last whole step first and is raised again. InputError
    where nothing could be graded in the first step: what fails for every sample would fail all night."""
    t, signals, done, begun = settings.trainer, around.signals, checkpoint.steps(around.run), at.step
    saved = done[-1] if done else None
    around.progress.begin(at.step)
    try:
        if saved is None:  # so that a kill at any later moment leaves something to go on with
            saved = save(at, around.run, settings)
        evaluate(at, model, around)
        while at.step < t.steps and not (around.deadline and time.monotonic() >= around.deadline):
            chosen = [prompts[i] for i in next_tasks(tasks, at.step, at.cursor, settings)]
            state, groups, metrics = train_step(model, at.state, chosen, grader, settings, at.step)
            if at.step == begun:
                check_graded(groups, around.run)
            with signals.held():
                at = Progress(state, at.step + 1, cursor_after(tasks, len(groups), at.cursor, settings))
                write(at.step, groups, metrics, around)
                if at.step % settings.run.save_every == 0 or at.step == t.steps:
                    saved = save(at, around.run, settings)
            evaluate(at, model, around)
        if saved != at.step:
            with signals.held():
                saved = save(at, around.run, settings)
    except Interrupted:
        if saved != at.step:
            save(at, around.run, settings)
        raise
    return at


def check_graded(groups: Sequence[GradedGroup], run: Path) -> None:
    """InputError where no sample of these groups could be graded."""
    samples = [sample for group in groups for sample in group.samples]
    if all(sample.verdict == "internal_error" for sample in samples):
        raise InputError(f"none of the first step's {len(samples)} samples could be graded, so nothing could be learnt: "
                         f"{samples[0].detail}. Mend the reward, or what it needs, and go on: RESUME={run} python "
                         "train_grpo.py, or grpo_proof.py as it was started; or start a new run where it is a setting")


def write(step: int, groups: Sequence[GradedGroup], metrics: dict, around: RunContext) -> None:
    """Log a step's samples and figures, and tell of it."""
    around.log.completions(step, groups)
    around.log.pools(step, groups)
    around.log.step(step, metrics)
    around.tracked.step(step, metrics)
    around.progress.step(step, metrics, sum(len(group.samples) for group in groups))


def save(at: Progress, run: Path, settings: Settings) -> int:
    """Write a checkpoint, and remove those that need not stay; returns its step."""
    r = settings.run
    checkpoint.save(run, at.step, at.state, settings.trainer.seed, hub_name(settings.model.model), r.keep_last,
                    r.keep_every, at.cursor)
    return at.step


def evaluate(at: Progress, model, around: RunContext) -> None:
    """Measure on held-out tasks where that is due and the log does not have it yet."""
    evaluation = around.evaluation
    if evaluation and evaluation.due(at.step) and at.step not in around.log.evaluated:
        found = evaluation.of(model, at.state.adapter)
        with around.signals.held():
            around.log.evaluation(at.step, found)
            around.tracked.step(at.step, found)
            around.progress.evaluated(at.step, found)
