"""The loop of every command that trains: choose tasks, sample, grade, update, log, save, until STEPS or out of time.

    progress = train(start(run, cfg, settings), model, prompts, grader, settings, context)

What ends a run: STEPS done, MAX_HOURS over, a signal (saved first), a first step in which nothing could be graded, or loss,
entropy or adapter not finite (the last good state is saved; a gradient that is not finite only skips its update). Between any
two steps the run is whole on the disk: state, step and cursor move together with the log, and a signal waits until they have.
Not here: what one step does (step.py), the files (checkpoint.py, rl/run/log.py), what a command checks and prints around it."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from rl.errors import InputError, NotFinite
from rl.models.hub import hub_name
from rl.rewards.base import GradedGroup, Grader
from rl.run.log import RunLog
from rl.run.progress import ProgressDisplay
from rl.run.signals import Interrupted, Signals
from rl.run.tracker import Tracker
from rl.settings.declared import Settings
from rl.tasks import START, Cursor, Mixture, Prompt, cursor_after, next_tasks
from rl.training import checkpoint, lora
from rl.training.choice import choose, recorded
from rl.training.lora import adapter_key
from rl.training.optimiser import TrainState, init_state
from rl.training.step import train_step


class Progress(NamedTuple):
    """How far a run has come."""

    state: TrainState
    step: int = 0  # steps done
    cursor: Cursor = START  # where its order of tasks is; moves with DYNAMIC_SAMPLING and with a mixture


class Evaluation(Protocol):
    """Measurements during training, such as those on held-out tasks (rl/evaluation/probe.py)."""

    def due(self, step: int) -> bool:
        """Whether to measure after that many steps."""

    def of(self, model, adapter) -> dict[str, float | None]:
        """The metrics of the model with this adapter."""


class RunContext(NamedTuple):
    """What surrounds a run's state: its folder, its log, what shows it, what ends it."""

    run: Path
    log: RunLog
    signals: Signals
    display: ProgressDisplay
    tracker: Tracker = Tracker("none", Path())
    evaluation: Evaluation | None = None
    deadline: float = 0.0  # in time.monotonic's seconds: no step begins after it; 0: none
    order: Callable | Mixture | None = None  # the provider's own order of tasks, where it has one


def first_adapter(cfg, settings: Settings):
    """The adapter that training starts from: LORA's, or a new one, which changes nothing yet."""
    m = settings.model
    targets = m.lora_targets.split(",")
    if m.lora:
        return lora.load(m.lora, cfg, m.lora_rank, targets)
    return lora.init(adapter_key(settings.trainer.seed), cfg, m.lora_rank, m.lora_alpha, targets)


def start(run: Path, cfg, settings: Settings) -> Progress:
    """Where the latest checkpoint in `run` left off, else the beginning; CheckpointError where RESUME finds none."""
    if settings.run.resume or checkpoint.steps(run):
        rank, targets = settings.model.lora_rank, settings.model.lora_targets.split(",")
        return Progress(*checkpoint.restore(run, cfg, rank, targets), checkpoint.data_cursor(run))
    return Progress(init_state(first_adapter(cfg, settings)))


def deadline_after(hours: float) -> float:
    """The time.monotonic() at which so many hours from now are over; 0 hours are no limit."""
    return time.monotonic() + hours * 3600 if hours else 0.0


def train(progress: Progress, model, prompts: Sequence[Prompt], grader: Grader, settings: Settings,
          context: RunContext) -> Progress:
    """Train on these prompts from `progress` on, to STEPS or the deadline; returns how far it came, saved.

    An interruption saves the last whole step first and is raised again. InputError where nothing could be graded in the first
    step, for what fails for every sample would fail all night, and where a step is not finite."""
    t, n, begun, done = settings.trainer, len(prompts), progress.step, checkpoint.steps(context.run)
    saved, good = done[-1] if done else None, progress  # good: the last that gave finite samples
    context.display.begin(progress.step)
    try:
        if saved is None:  # so that a kill at any later moment leaves something to go on with
            saved = save(progress, context.run, settings)
        evaluate(progress, model, context)
        while progress.step < t.steps and not (context.deadline and time.monotonic() >= context.deadline):
            chosen = tasks_to_train(n, progress, settings, context.order)
            state, groups, metrics = train_step(model, progress.state, [prompts[i] for i in chosen], grader, settings,
                                                progress.step)
            good = progress
            check_finite(metrics)
            if progress.step == begun:
                check_graded(groups, context.run)
            with context.signals.held():
                if settings.data.task_order == "signal":
                    records = recorded(progress.cursor.records, n, progress.step, chosen[:len(groups)], groups)
                    cursor = progress.cursor._replace(records=records)
                else:
                    cursor = cursor_after(n, len(groups), progress.cursor, settings, context.order)
                progress = Progress(state, progress.step + 1, cursor)
                write(progress.step, groups, metrics, context)
                if progress.step % settings.run.save_every == 0 or progress.step == t.steps:
                    saved = save(progress, context.run, settings)
            evaluate(progress, model, context)
        if saved != progress.step:
            with context.signals.held():
                saved = save(progress, context.run, settings)
    except Interrupted:
        if saved != progress.step:
            save(progress, context.run, settings)
        raise
    except NotFinite as error:
        with context.signals.held():
            folder = go_back(good, context.run, settings)
        raise InputError(f"training ended after {progress.step} steps: {error}. The last good state is {folder}: start a new run "
                         f"with LORA={folder} and a lower LEARNING_RATE, or with DTYPE=float32") from error
    return progress


def tasks_to_train(n: int, progress: Progress, settings: Settings, order: Callable | Mixture | None) -> list[int]:
    """Indices of the next step's tasks, with DYNAMIC_SAMPLING also of those that may replace some of them."""
    if settings.data.task_order != "signal":
        return next_tasks(n, progress.step, progress.cursor, settings, order)
    g, t = settings.generation, settings.trainer
    count = g.max_sampled_groups if g.dynamic_sampling else t.tasks_per_step
    return choose(n, progress.step, progress.cursor.records, count, g.group, t.seed)


def check_finite(metrics: dict) -> None:
    """NotFinite where the step's loss, entropy or adapter is NaN or infinite."""
    for name in ("loss", "entropy", "lora_delta_norm"):
        if not math.isfinite(value := metrics.get(name, 0.0)):
            raise NotFinite(f"{name} is {value}")


def go_back(good: Progress, run: Path, settings: Settings) -> Path:
    """Make `good` the latest checkpoint, removing later ones, whose logits are not finite; returns its folder."""
    for step in checkpoint.steps(run):
        if step > good.step:
            checkpoint.remove(run, step)
    if good.step not in checkpoint.steps(run):
        save(good, run, settings)
    return checkpoint.checkpoints(run)[good.step]


def check_graded(groups: Sequence[GradedGroup], run: Path) -> None:
    """InputError where no sample of these groups could be graded."""
    samples = [sample for group in groups for sample in group.samples]
    if all(sample.verdict == "internal_error" for sample in samples):
        raise InputError(f"none of the first step's {len(samples)} samples could be graded, so nothing could be learnt: "
                         f"{samples[0].detail}. Mend the reward, or what it needs, and go on: RESUME={run} python "
                         "train_grpo.py, or grpo_proof.py as it was started; or start a new run where it is a setting")


def write(step: int, groups: Sequence[GradedGroup], metrics: dict, context: RunContext) -> None:
    """Log a step's samples and metrics, and show them."""
    context.log.completions(step, groups)
    context.log.pools(step, groups)
    context.log.step(step, metrics)
    context.tracker.step(step, metrics)
    context.display.step(step, metrics, sum(len(group.samples) for group in groups))


def save(progress: Progress, run: Path, settings: Settings) -> int:
    """Write a checkpoint, and remove those that need not stay; returns its step."""
    r = settings.run
    checkpoint.save(run, progress.step, progress.state, seed=settings.trainer.seed, base_model=hub_name(settings.model.model),
                    keep_last=r.keep_last, keep_every=r.keep_every, cursor=progress.cursor)
    return progress.step


def evaluate(progress: Progress, model, context: RunContext) -> None:
    """Measure on held-out tasks where that is due and the log does not have it yet."""
    evaluation = context.evaluation
    if evaluation and evaluation.due(progress.step) and progress.step not in context.log.evaluated:
        found = evaluation.of(model, progress.state.adapter)
        with context.signals.held():
            context.log.evaluation(progress.step, found)
            context.tracker.step(progress.step, found)
            context.display.evaluated(progress.step, found)
