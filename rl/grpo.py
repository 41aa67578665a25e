"""GRPO with DAPO's loss, on LoRA adapters.  Pure functions of arrays; no files, no text.

    A_n = (r_n - mean(r)) / std(r)                                          within one prompt's group, std with ddof 0
    J   = sum over tokens of min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A) / n_tokens,   rho = exp(logp - logp_sampler)

after Shao et al. 2024 (arXiv 2402.03300) and Yu et al. 2025 (DAPO, arXiv 2503.14476).  Departures from plain GRPO: no critic,
no KL term, no reference model; two clip bounds; a token mean over the WHOLE optimiser step.  n_tokens counts the tokens of all
groups with signal, is fixed before anything is cut into pieces, and divides the summed gradient once, at the end and in fp32,
so neither the loss nor the gradient depends on the cutting (and half-precision backward passes see gradients of order one).
Groups in which every reward is equal have no signal: they are neither computed nor counted.

One group is one micro-batch, packed (see `qwen2_jax.Packed`): its prompt is computed once, its samples carry no padding."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from qwen2_jax import NEVER, ModelConfig, Packed, head_logits, run_layers


class Objective(NamedTuple):
    """The constants of the loss and of its memory; hashable."""

    eps_low: float = 0.2
    eps_high: float = 0.28
    temperature: float = 1.0
    logit_chunk: int = 256  # positions whose logits exist at the same time; changes memory only
    remat: str = "full"


class AdamW(NamedTuple):
    """The constants of the optimiser."""

    learning_rate: float = 2e-5
    warmup_steps: int = 5
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0  # 0 is off


class TrainState(NamedTuple):
    """All that training changes."""

    adapter: dict
    mu: list  # first and
    nu: list  # second moment, shaped like adapter["layers"]
    updates: jax.Array  # optimiser updates made


class Group(NamedTuple):
    """One prompt's samples, packed; M = sampled tokens of the group, padded to whole logit chunks."""

    tokens_Q: np.ndarray
    positions_Q: np.ndarray
    layout: Packed
    source_M: np.ndarray  # which of the Q hidden states predicts sampled token m
    target_M: np.ndarray
    sampler_logprob_M: np.ndarray
    advantage_M: np.ndarray
    weight_M: np.ndarray  # 1 on sampled tokens, 0 on padding


def advantages(reward_PN) -> np.ndarray:
    """Each reward less its group's mean over the group's std (ddof 0); exactly 0 where all are equal, and 0 for NaN rewards.

    NaN marks a sample whose grader failed: the rest of its group is judged without it.  |A| <= sqrt(N - 1)."""
    reward_PN = np.asarray(reward_PN, np.float64)
    advantage_PN = np.zeros_like(reward_PN)
    for reward_N, advantage_N in zip(reward_PN, advantage_PN, strict=True):
        ok = np.isfinite(reward_N)
        if ok.sum() < 2 or reward_N[ok].max() == reward_N[ok].min():
            continue
        centred = reward_N[ok] - reward_N[ok].mean()
        centred /= np.abs(centred).max()  # so that squares of tiny spreads do not vanish
        limit = np.sqrt(ok.sum() - 1)
        advantage_N[ok] = np.clip(centred / np.sqrt(np.mean(centred**2)), -limit, limit)
    return advantage_PN.astype(np.float32)


# ---- packing ---------------------------------------------------------------------------------------------------------


def bucket(n: int, smallest: int) -> int:
    """n rounded up to a length in use: four of them an octave, so padding is at most a quarter and compiles are few."""
    size = smallest
    while size < n:
        step = max(1, 2 ** (size.bit_length() - 1) // 4)
        size += step
    return size


def sample_slots(longest: int) -> int:
    """Slots a sample gets inside attention: the power of two that holds the longest, at least 32."""
    return 1 << max(5, (longest - 1).bit_length() if longest else 0)


def pack(prompt_ids, samples, sampler_logprobs, advantage_N, logit_chunk: int) -> Group:
    """Lay one group out for the update.  samples: N arrays of sampled ids (stop id included), none of them empty."""
    S = bucket(len(prompt_ids), 64)
    inputs = [ids[:-1] for ids in samples]  # the last sampled token is predicted, never fed
    lengths = np.array([len(ids) for ids in inputs])
    R = bucket(max(1, lengths.sum()), 128)  # sample tokens in the packed sequence
    T = sample_slots(int(lengths.max()))
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])

    tokens_Q, positions_Q = np.zeros(S + R, np.int32), np.zeros(S + R, np.int32)
    tokens_Q[: len(prompt_ids)], positions_Q[:S] = prompt_ids, np.arange(S)
    slot_NT = np.zeros((len(samples), T), np.int32)
    row_R, column_R = np.zeros(R, np.int32), np.zeros(R, np.int32)
    source = []
    for n, (ids, start, length) in enumerate(zip(inputs, starts, lengths, strict=True)):
        here = slice(start, start + length)
        tokens_Q[S:][here], positions_Q[S:][here] = ids, len(prompt_ids) + np.arange(length)
        slot_NT[n, :length] = np.arange(start, start + length)
        row_R[here], column_R[here] = n, np.arange(length)
        source += [len(prompt_ids) - 1, *range(S + start, S + start + length)]

    M = -(-len(source) // logit_chunk) * logit_chunk
    padded = lambda values, dtype: np.pad(np.asarray(values, dtype), (0, M - len(source)))  # noqa: E731
    return Group(tokens_Q, positions_Q, Packed(np.arange(S) < len(prompt_ids), slot_NT, row_R, column_R),
                 padded(source, np.int32), padded(np.concatenate(samples), np.int32),
                 padded(np.concatenate(sampler_logprobs), np.float32),
                 padded(np.repeat(advantage_N, [len(ids) for ids in samples]), np.float32),
                 padded(np.ones(len(source)), np.float32))


def pack_groups(rollouts, advantage_PN, valid_PN, logit_chunk: int) -> list[Group]:
    """The groups with signal, packed; samples that are not valid (grader failed) are left out of them."""
    P, N = advantage_PN.shape
    groups = []
    for p in range(P):
        if not advantage_PN[p].any():
            continue
        keep = np.flatnonzero(valid_PN[p])
        rows = p * N + keep
        cut = lambda array, rows=rows: [array[b, : rollouts.length_B[b]] for b in rows]  # noqa: E731
        groups.append(pack(rollouts.prompt_ids[p], cut(rollouts.ids_BT), cut(rollouts.logprobs_BT),
                           advantage_PN[p, keep], logit_chunk))
    return groups


# ---- loss and gradient -----------------------------------------------------------------------------------------------


def chunk_loss(hidden_CD, params, target_C, sampler_logprob_C, advantage_C, weight_C, cfg, objective, vocab_used):
    """(-J summed over a chunk of positions, statistics summed over it)."""
    vocab_ok_V = jnp.arange(cfg.vocab_size) < vocab_used  # the sampler's support, so that the ratio of equal weights is 1
    logits_CV = jnp.where(vocab_ok_V, head_logits(params, hidden_CD), NEVER) / objective.temperature
    logprob_C = jnp.take_along_axis(logits_CV, target_C[:, None], -1)[:, 0] - jax.nn.logsumexp(logits_CV, -1)
    difference_C = (logprob_C - sampler_logprob_C) * weight_C
    ratio_C = jnp.exp(difference_C)
    clipped_C = jnp.clip(ratio_C, 1 - objective.eps_low, 1 + objective.eps_high)
    gain_C = jnp.minimum(ratio_C * advantage_C, clipped_C * advantage_C) * weight_C
    low_C = (ratio_C < 1 - objective.eps_low) & (advantage_C < 0)
    high_C = (ratio_C > 1 + objective.eps_high) & (advantage_C > 0)
    stats = {"clip_low": (low_C * weight_C).sum(), "clip_high": (high_C * weight_C).sum(),
             "difference": jnp.abs(difference_C).sum(), "difference_max": jnp.abs(difference_C).max()}
    return -gain_C.sum(), stats


@partial(jax.jit, static_argnames=("cfg", "objective", "vocab_used"), donate_argnames="d_hidden_QD")
def chunk_gradient(d_hidden_QD, hidden_QD, source_C, params, target_C, sampler_logprob_C, advantage_C, weight_C, cfg, objective,
                   vocab_used):
    """(summed -J, statistics, d_hidden_QD with this chunk's gradient by the hidden states added)."""
    gradient = jax.value_and_grad(chunk_loss, has_aux=True)
    (loss, stats), d_hidden_CD = gradient(hidden_QD[source_C], params, target_C, sampler_logprob_C, advantage_C, weight_C,
                                          cfg, objective, vocab_used)
    return loss, stats, d_hidden_QD.at[source_C].add(d_hidden_CD.astype(jnp.float32))


def group_gradient(params, adapter, group: Group, cfg: ModelConfig, objective: Objective, vocab_used: int):
    """(summed -J, statistics, gradient of the summed -J by the adapter's layers) of one group.

    The chain rule by hand in three steps, so that each program is compiled once whatever the depth, and the logits of one
    chunk are the only ones that ever exist: layers forward, head forward and backward by chunks, layers backward."""

    def hidden_states(layers):
        return run_layers(params, {**adapter, "layers": layers}, group.tokens_Q, group.positions_Q, group.layout,
                          [None] * cfg.num_hidden_layers, cfg, objective.remat)[0]

    hidden_QD, pull_back = jax.vjp(hidden_states, adapter["layers"])
    d_hidden_QD = jnp.zeros(hidden_QD.shape, jnp.float32)
    total, stats = jnp.float32(0), None
    for start in range(0, len(group.source_M), objective.logit_chunk):
        here = slice(start, start + objective.logit_chunk)
        loss, chunk_stats, d_hidden_QD = chunk_gradient(
            d_hidden_QD, hidden_QD, group.source_M[here], params, group.target_M[here], group.sampler_logprob_M[here],
            group.advantage_M[here], group.weight_M[here], cfg, objective, vocab_used)
        total, stats = total + loss, chunk_stats if stats is None else add_stats(stats, chunk_stats)
    return total, stats, pull_back(d_hidden_QD.astype(hidden_QD.dtype))[0]


def add_stats(a: dict, b: dict) -> dict:
    """Sums, but for names that end in _max."""
    return {key: jnp.maximum(a[key], b[key]) if key.endswith("_max") else a[key] + b[key] for key in a}


# ---- the step --------------------------------------------------------------------------------------------------------


def adapter_key(seed: int):
    """The key of a new adapter's random half; apart from every sampling key."""
    return jax.random.fold_in(jax.random.key(seed), 2**32 - 1)


def init_state(adapter) -> TrainState:
    """Training state around an adapter, moments at zero."""
    zeros = jax.tree.map(jnp.zeros_like, adapter["layers"])
    return TrainState(adapter, zeros, zeros, jnp.int32(0))


@partial(jax.jit, static_argnames="opt")
def adamw(state: TrainState, gradient, opt: AdamW):
    """One AdamW update (Loshchilov & Hutter 2019, arXiv 1711.05101) after clipping by the global norm: (state, norm, rate)."""
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradient)))
    if opt.max_grad_norm:
        gradient = jax.tree.map(lambda g: g * jnp.minimum(1.0, opt.max_grad_norm / jnp.maximum(norm, 1e-12)), gradient)
    count = state.updates + 1
    rate = opt.learning_rate * jnp.minimum(1.0, count / max(1, opt.warmup_steps))
    mu = jax.tree.map(lambda m, g: opt.beta1 * m + (1 - opt.beta1) * g, state.mu, gradient)
    nu = jax.tree.map(lambda v, g: opt.beta2 * v + (1 - opt.beta2) * g * g, state.nu, gradient)
    correct1, correct2 = 1 - opt.beta1**count, 1 - opt.beta2**count

    def moved(w, m, v):
        return w - rate * (m / correct1 / (jnp.sqrt(v / correct2) + opt.eps) + opt.weight_decay * w)

    layers = jax.tree.map(moved, state.adapter["layers"], mu, nu)
    return TrainState({**state.adapter, "layers": layers}, mu, nu, count), norm, rate


@jax.jit
def add_scaled(total, gradient, scale):
    """total + scale * gradient, in fp32."""
    return jax.tree.map(lambda t, g: t + scale * g.astype(jnp.float32), total, gradient)


METRICS = ("loss", "grad_norm", "learning_rate", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean",
           "sampling/sampling_logp_difference/mean", "sampling/sampling_logp_difference/max")


def update(params, state: TrainState, groups: list[Group], cfg, objective: Objective, opt: AdamW, vocab_used: int):
    """One optimiser update over all groups: (state, metrics).  No groups, or a gradient that is not finite: no update at all."""
    if not groups:
        return state, dict.fromkeys(METRICS, 0.0) | {"trained_tokens": 0, "skipped_steps": 1}
    n_tokens = float(sum(group.weight_M.sum() for group in groups))
    gradient, loss, stats = jax.tree.map(jnp.zeros_like, state.mu), 0.0, None
    for group in groups:
        group_loss, group_stats, group_grad = group_gradient(params, state.adapter, group, cfg, objective, vocab_used)
        gradient = add_scaled(gradient, group_grad, 1 / n_tokens)
        loss, stats = loss + group_loss / n_tokens, group_stats if stats is None else add_stats(stats, group_stats)
    new_state, norm, rate = adamw(state, gradient, opt)
    finite = bool(jnp.isfinite(norm))
    values = (loss, norm, rate if finite else 0.0, *(stats[name] / n_tokens for name in ("clip_low", "clip_high")),
              (stats["clip_low"] + stats["clip_high"]) / n_tokens, stats["difference"] / n_tokens, stats["difference_max"])
    metrics = dict(zip(METRICS, map(float, values), strict=True))
    return (new_state if finite else state), metrics | {"trained_tokens": int(n_tokens), "skipped_steps": int(not finite)}
