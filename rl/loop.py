"""The training loop's steps, shared by every command that trains: prepare prompts, sample, grade, update.

State goes in and comes out; nothing here writes a file or catches a signal."""

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rl import datalog, lora
from rl.errors import InputError
from rl.generate import Rollouts, Sampling, generate, row_keys, step_key
from rl.grpo import AdamW, Objective, TrainState, advantages, pack_groups, update
from rl.recheck import recheck
from rl.reward import grade_safely
from rl.settings import Settings
from rl.taskset import Task, messages


class Prompt(NamedTuple):
    """A task as the model sees it."""

    task: Task
    messages: list[dict]
    ids: list[int]


def prepare(tasks: Sequence[Task], chat, style_hint: bool, max_prompt_tokens: int) -> list[Prompt]:
    """Every task's prompt, encoded once; InputError names all that are longer than the limit."""
    prompts = []
    for task in tasks:
        said = messages(task, task.example_results, style_hint)
        prompts.append(Prompt(task, said, chat.encode(said)))
    if long := [f"{p.task.name} ({len(p.ids)})" for p in prompts if len(p.ids) > max_prompt_tokens]:
        raise InputError(f"{len(long)} prompts have more than MAX_PROMPT_TOKENS={max_prompt_tokens} tokens: "
                         f"{', '.join(long[:8])}; raise MAX_PROMPT_TOKENS, or leave these tasks out")
    return prompts


def sampling_of(settings: Settings) -> Sampling:
    """The sampler's part of the settings."""
    g = settings.generation
    return Sampling(g.temperature, g.top_k, g.top_p, g.max_new_tokens, g.decode_block)


def objective_of(settings: Settings) -> Objective:
    """The loss's part of the settings."""
    o = settings.objective
    return Objective(o.eps_low, o.eps_high, settings.generation.temperature, o.logit_chunk, settings.model.remat)


def optimiser_of(settings: Settings) -> AdamW:
    """The optimiser's part of the settings; warm-up counts updates, the setting counts steps."""
    t = settings.trainer
    return AdamW(t.learning_rate, t.warmup_steps * settings.objective.updates_per_batch, t.adam_beta1, t.adam_beta2,
                 t.adam_eps, t.weight_decay, t.max_grad_norm)


def sample(model, adapter, prompts: Sequence[Prompt], samples: int, sampling: Sampling, key) -> tuple[Rollouts, list[str]]:
    """Completions of the prompts and their texts, row by row."""
    names = [prompt.task.name for prompt in prompts]
    rollouts = generate(model, adapter, [p.ids for p in prompts], samples, sampling, row_keys(key, names, samples))
    return rollouts, [model.chat.decode(ids[:n]) for ids, n in zip(rollouts.ids_BT, rollouts.length_B, strict=True)]


def grade(grader, prompts: Sequence[Prompt], rollouts: Rollouts, texts: list[str]) -> tuple[list[datalog.Group], list[float]]:
    """The samples with their grades, grouped by prompt; and the seconds that each took to grade."""
    grades = grade_safely(grader, [(prompts[p].task, text) for p, text in zip(rollouts.prompt_B, texts, strict=True)])
    samples = [datalog.Sample.of(text, int(n), finish, g) for text, n, finish, g in
               zip(texts, rollouts.length_B, rollouts.finish_B, grades, strict=True)]
    N = len(samples) // len(prompts)
    groups = [datalog.Group(prompt.task.name, prompt.messages, samples[p * N : (p + 1) * N]) for p, prompt in enumerate(prompts)]
    return groups, [g.wall_s for g in grades]


def rewards_of(groups: Sequence[datalog.Group], shuffled_by: tuple[int, int] | None = None) -> np.ndarray:
    """reward_PN, NaN where the grader failed; `shuffled_by` (seed, step) deals them out at random, the control arm."""
    reward_PN = np.array([[sample.reward for sample in group.samples] for group in groups])
    if shuffled_by is None:
        return reward_PN
    return np.random.default_rng(shuffled_by).permutation(reward_PN.ravel()).reshape(reward_PN.shape)


def train_step(model, state: TrainState, prompts: Sequence[Prompt], grader, settings: Settings, step: int):
    """One GRPO step on these prompts: (state, graded groups, the step's metrics row)."""
    started = time.perf_counter()
    seed = settings.trainer.seed
    key, N = step_key(seed, step), settings.generation.group
    rollouts, texts = sample(model, state.adapter, prompts, N, sampling_of(settings), key)
    sampled = time.perf_counter()
    groups, grading_s = grade(grader, prompts, rollouts, texts)
    checked = recheck([prompt.task for prompt in prompts], groups, settings, step)
    graded = time.perf_counter()
    reward_PN = rewards_of(groups, (seed, step) if settings.reward.shuffle_rewards else None)
    packed = pack_groups(rollouts, advantages(reward_PN), np.isfinite(reward_PN), settings.objective.logit_chunk)
    objective, optimiser, passes = objective_of(settings), optimiser_of(settings), []
    for _ in range(settings.objective.updates_per_batch):
        state, metrics = update(model.params, state, packed, model.cfg, objective, optimiser, model.chat.vocab_used)
        passes.append(metrics)
    updated = time.perf_counter()
    return state, groups, {
        **datalog.step_metrics(groups), **checked,
        "time/grade_p99": float(np.quantile(grading_s, 0.99)),
        "frac_reward_zero_std": 1 - len(packed) / len(prompts),  # of the rewards trained on, shuffled or not
        "entropy": float(rollouts.entropy_BT.sum() / rollouts.length_B.sum()),
        **over_passes(passes),
        "lora_delta_norm": lora.delta_norm(state.adapter),
        "num_tokens": int(rollouts.length_B.sum()),
        "step_time": updated - started,
        "time/sample": sampled - started, "time/grade": graded - sampled, "time/update": updated - graded,
    }


def over_passes(passes: list[dict]) -> dict:
    """Metrics of several updates on one batch as one row: counts added, maxima kept, the rest averaged."""
    def combined(name):
        values = [metrics[name] for metrics in passes]
        if name in ("skipped_steps", "trained_tokens"):
            return sum(values)
        return max(values) if name.endswith("max") else math.fsum(values) / len(values)

    return {name: combined(name) for name in passes[0]}
