"""One training step: sample completions of the prompts, grade them, turn rewards into advantages, update the adapter.

State goes in and comes out; nothing here writes a file or catches a signal."""

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rl.rewards.base import Completion, Grade, GradedGroup, GradedSample, Grader
from rl.rewards.grading import BackgroundGrading, grade_safely, recheck
from rl.run.log import step_metrics
from rl.settings.declared import Settings
from rl.tasks import Prompt
from rl.training import lora
from rl.training.advantages import advantages, batch_scaled, most_varied, overlong, scaled_by_reward, with_signal
from rl.training.device import Compiling
from rl.training.loss import Loss, loss_of
from rl.training.optimiser import TrainState, optimiser_of
from rl.training.packing import pack_groups, teaching
from rl.training.sampler import Rollouts, SamplingParams, generate, row_keys, sampling_of, step_key
from rl.training.update import hidden_of, update, with_base_logprobs


def sample_completions(model, adapter, prompts: Sequence[Prompt], samples: int, sampling: SamplingParams, key, *,
                       min_prompts: int = 0, on_finished: Callable[[dict[int, Completion]], None] = lambda finished: None,
                       hidden: bool = False) -> tuple[Rollouts, list[Completion]]:
    """`samples` completions of each prompt, row by row.

    min_prompts is the sampler's (sampler.py).  on_finished gets each row's completion as soon as it is whole.  hidden: with the
    hidden states that the tokens were drawn from, which cost another forward pass."""
    found: dict[int, Completion] = {}

    def finished(rows, out: Rollouts):
        new = {row: Completion(task=prompts[out.prompt_B[row]].task, tokens=int(out.length_B[row]), finish=out.finish_B[row],
                               text=model.chat.decode(out.ids_BT[row, : out.length_B[row]])) for row in rows}
        found.update(new)
        on_finished(new)

    names = [prompt.task.name for prompt in prompts]
    rollouts = generate(model, adapter, [p.ids for p in prompts], samples, sampling, row_keys(key, names, samples),
                        min_prompts, finished)
    completions = [found[row] for row in range(len(found))]
    if hidden:
        completions = [one._replace(hidden_TD=hidden_TD) for one, hidden_TD in
                       zip(completions, hidden_of(model, adapter, rollouts), strict=True)]
    return rollouts, completions


def grade(grader: Grader, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[GradedGroup]:
    """The completions, graded now, grouped by prompt."""
    return grouped(prompts, completions, grade_safely(grader, completions))


def grouped(prompts: Sequence[Prompt], completions: Sequence[Completion], grades: Sequence[Grade]) -> list[GradedGroup]:
    """The completions with their grades, grouped by prompt."""
    samples = [GradedSample.of(completion, found) for completion, found in zip(completions, grades, strict=True)]
    N = len(samples) // len(prompts)
    return [GradedGroup(prompt.task.name, prompt.messages, samples[p * N : (p + 1) * N]) for p, prompt in enumerate(prompts)]


def rewards_of(groups: Sequence[GradedGroup], shuffled_by: tuple[int, int] | None = None, penalty_PN=0.0) -> np.ndarray:
    """reward_PN, NaN where the grader failed; `shuffled_by` (seed, step) deals them out at random, the control arm."""
    reward_PN = np.array([[sample.reward for sample in group.samples] for group in groups]) + penalty_PN
    return dealt_out(reward_PN, shuffled_by)


def dealt_out(value_PN: np.ndarray, shuffled_by: tuple[int, int] | None) -> np.ndarray:
    """The values, or the same ones in an order that depends on (seed, step) alone."""
    if shuffled_by is None:
        return value_PN
    return np.random.default_rng(shuffled_by).permutation(value_PN.ravel()).reshape(value_PN.shape)


def length_penalties(groups: Sequence[GradedGroup], settings: Settings) -> np.ndarray:
    """What OVERLONG=penalise adds to each reward, 0 or less.  Wrong answers, worth 0 already, lose nothing: else groups
    without a right one would teach brevity, and a short wrong answer could outrank a long right one."""
    o, length_PN = settings.objective, [[sample.tokens for sample in group.samples] for group in groups]
    if o.overlong != "penalise":
        return np.zeros(np.shape(length_PN))
    correct_PN = np.array([[sample.correct for sample in group.samples] for group in groups])
    return o.overlong_penalty * correct_PN * overlong(length_PN, settings.generation.max_new_tokens, o.overlong_tokens)


def advantages_of(reward_PN, right_PN, settings: Settings) -> np.ndarray:
    """advantage_PN as the settings define it; right_PN: 1 for right answers, which is what the rest of a reward is told from."""
    o = settings.objective
    if o.advantage_scale == "batch":
        return batch_scaled(reward_PN, o.advantage)
    if o.advantage_scale == "reward":
        right_PN = np.where(np.isfinite(reward_PN), right_PN, np.nan)
        return scaled_by_reward((right_PN, reward_PN - right_PN), (1.0, settings.reward.style_weight), o.advantage)
    auto = o.loss != "dr_grpo" and o.advantage != "rloo"
    return advantages(reward_PN, o.advantage, auto if o.advantage_scale == "auto" else o.advantage_scale == "std", o.pass_k)


class Batch(NamedTuple):
    """Groups, sampled and judged; P = their prompts, N = samples of each."""

    prompts: list[Prompt]
    rollouts: Rollouts
    groups: list[GradedGroup]
    reward_PN: np.ndarray  # NaN where the grader failed, and for samples that UPDATE_GROUP leaves out
    right_PN: np.ndarray  # 1.0 for right answers; shuffled as the rewards are
    advantage_PN: np.ndarray
    trained_PN: np.ndarray  # False where reward_PN is NaN, and where OVERLONG=mask takes a cut sample out of the loss
    grading_s: list[float]  # of each sample
    sample_s: float
    grade_s: float  # after the last sample had ended

    @property
    def signal_P(self) -> np.ndarray:
        """Which groups have signal."""
        return with_signal(self.advantage_PN, self.trained_PN)


def sample_and_grade(model, adapter, prompts: Sequence[Prompt], grader: Grader, settings: Settings, step: int,
                     min_prompts: int) -> Batch:
    """The groups of these prompts: sampled, graded, rewarded, compared."""
    started = time.perf_counter()
    seed, N = settings.trainer.seed, settings.generation.group
    with BackgroundGrading(grader) as grading:
        rollouts, completions = sample_completions(model, adapter, prompts, N, sampling_of(settings), step_key(seed, step),
                                                   min_prompts=min_prompts, on_finished=grading.begin, hidden=grader.wants_hidden)
        sampled = time.perf_counter()
        grades = grading.finish(completions)
    groups = grouped(prompts, completions, grades)
    shuffled_by = (seed, step) if settings.reward.shuffle_rewards else None
    reward_PN = rewards_of(groups, shuffled_by, length_penalties(groups, settings))
    right_PN = dealt_out(np.array([[float(sample.correct) for sample in group.samples] for group in groups]), shuffled_by)
    reward_PN = np.where(most_varied(reward_PN, settings.generation.update_group), reward_PN, np.nan)
    trained_PN = np.isfinite(reward_PN)
    if settings.objective.overlong == "mask":
        trained_PN &= np.reshape(rollouts.finish_B, reward_PN.shape) != "length"
    return Batch(prompts=list(prompts), rollouts=rollouts, groups=groups, reward_PN=reward_PN, right_PN=right_PN,
                 advantage_PN=advantages_of(reward_PN, right_PN, settings), trained_PN=trained_PN,
                 grading_s=[found.wall_s for found in grades], sample_s=sampled - started, grade_s=time.perf_counter() - sampled)


def collect(model, adapter, prompts: Sequence[Prompt], grader, settings: Settings, step: int) -> Batch:
    """The step's groups: of all prompts, or with DYNAMIC_SAMPLING of as many as it takes for TASKS_PER_STEP to have signal."""
    wanted = settings.trainer.tasks_per_step if settings.generation.dynamic_sampling else len(prompts)
    batch = sample_and_grade(model, adapter, prompts[:wanted], grader, settings, step, wanted)
    while (missing := wanted - batch.signal_P.sum()) and (rest := prompts[len(batch.prompts):]):
        batch = joined(batch, sample_and_grade(model, adapter, rest[:missing], grader, settings, step, wanted), settings)
    return batch


def joined(a: Batch, b: Batch, settings: Settings) -> Batch:
    """Two batches as one, a's groups first."""
    both = {name: np.concatenate([getattr(a.rollouts, name), getattr(b.rollouts, name)])
            for name in ("ids_BT", "logprobs_BT", "entropy_BT", "length_B")}
    prompt_B = np.concatenate([a.rollouts.prompt_B, len(a.prompts) + b.rollouts.prompt_B])
    rollouts = Rollouts(prompt_ids=a.rollouts.prompt_ids + b.rollouts.prompt_ids, prompt_B=prompt_B,
                        finish_B=a.rollouts.finish_B + b.rollouts.finish_B, **both)
    reward_PN, right_PN = np.concatenate([a.reward_PN, b.reward_PN]), np.concatenate([a.right_PN, b.right_PN])
    return Batch(prompts=a.prompts + b.prompts, rollouts=rollouts, groups=a.groups + b.groups, reward_PN=reward_PN,
                 right_PN=right_PN, advantage_PN=advantages_of(reward_PN, right_PN, settings),
                 trained_PN=np.concatenate([a.trained_PN, b.trained_PN]), grading_s=a.grading_s + b.grading_s,
                 sample_s=a.sample_s + b.sample_s, grade_s=a.grade_s + b.grade_s)


def train_step(model, state: TrainState, prompts: Sequence[Prompt], grader, settings: Settings, step: int):
    """One GRPO step on these prompts: (state, graded groups, the step's metrics row)."""
    with Compiling() as compiling:
        state, groups, metrics = _train_step(model, state, prompts, grader, settings, step)
    return state, groups, metrics | {"compiles": compiling.programs, "time/compile": compiling.seconds}


def _train_step(model, state: TrainState, prompts: Sequence[Prompt], grader, settings: Settings, step: int):
    started = time.perf_counter()
    loss, optimiser, passes = loss_of(settings), optimiser_of(settings), []
    batch = collect(model, state.adapter, prompts, grader, settings, step)
    rechecking = time.perf_counter()
    checked = recheck(grader, [prompt.task for prompt in batch.prompts], batch.groups, settings, step)
    graded = time.perf_counter()
    packed = pack_groups(batch.rollouts, batch.advantage_PN, batch.trained_PN, loss, settings.model.update_samples)
    if loss.kl_beta:
        packed = [with_base_logprobs(model.params, group, model.cfg, loss, model.chat.vocab_used) for group in packed]
    for _ in range(settings.objective.updates_per_batch):
        state, metrics = update(model.params, state, packed, model.cfg, loss, optimiser, model.chat.vocab_used)
        passes.append(metrics)
        if not math.isfinite(metrics["loss"]):  # the run ends here; no mean of inf and -inf
            break
    updated = time.perf_counter()
    return state, batch.groups, {
        **step_metrics(batch.groups), **checked, **extra_metrics(batch, loss, settings),
        "time/grade_p99": float(np.quantile(batch.grading_s, 0.99)),
        "frac_reward_zero_std": 1 - int(batch.signal_P.sum()) / len(batch.prompts),  # of the rewards trained on, shuffled or not
        "entropy": float(batch.rollouts.entropy_BT.sum() / batch.rollouts.length_B.sum()),
        **over_passes(passes),
        "lora_delta_norm": lora.delta_norm(state.adapter),
        "num_tokens": int(batch.rollouts.length_B.sum()),
        "step_time": updated - started,
        "time/sample": batch.sample_s, "time/grade": batch.grade_s + graded - rechecking, "time/update": updated - graded,
    }


def extra_metrics(batch: Batch, loss: Loss, settings: Settings) -> dict:
    """Metrics that only some settings have."""
    metrics = {}
    if settings.generation.dynamic_sampling:
        taught = int(teaching(batch.advantage_PN, batch.trained_PN, loss).sum())
        metrics |= {"sampled_groups": len(batch.groups), "discarded_groups": len(batch.groups) - taught}
    if settings.objective.overlong == "penalise":
        metrics["rewards/overlong/mean"] = float(length_penalties(batch.groups, settings).mean())
    return metrics


def over_passes(passes: list[dict]) -> dict:
    """Metrics of several updates on one batch as one row: counts added, maxima kept, the rest averaged."""
    def combined(name):
        values = [metrics[name] for metrics in passes]
        if name in ("skipped_steps", "trained_tokens"):
            return sum(values)
        return max(values) if name.endswith("max") else math.fsum(values) / len(values)

    return {name: combined(name) for name in passes[0]}
