"""GRPO on LoRA adapters: loss, gradient, optimiser.  Pure functions of arrays; no files, no text.

    A_n = (r_n - mean(r)) / std(r)                                          within one prompt's group, std with ddof 0
    J   = sum over tokens of min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A) / n_tokens,   rho = exp(logp - logp_sampler)

after Shao et al. 2024 (arXiv 2402.03300) and Yu et al. 2025 (DAPO, arXiv 2503.14476).  This is the default; `rl/advantages.py`
and `rl/objectives.py` have the other advantages and losses.  Departures from plain GRPO: no KL term, no reference model; two
clip bounds; a token mean over the WHOLE optimiser step.  n_tokens counts the tokens of all groups with signal, is
fixed before anything is cut into pieces, and divides the summed gradient once, at the end and in fp32, so neither the loss nor
the gradient depends on the cutting (and half-precision backward passes see gradients of order one).  Groups in which every
reward is equal have no signal: they are neither computed nor counted, unless an entropy bonus or a KL term is on.

A micro-batch is one group, or some of its samples, packed (`rl/packing.py`): the prompt is computed once, no sample is padded.
M is the sampled tokens of such a batch, C those of one chunk of them."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attention import NEVER
from qwen2_jax import ModelConfig, head_logits, run_layers
from rl.objectives import Objective, denominator, entropy, kl_k3, sample_log_ratio, surrogate, through_tokens
from rl.packing import Group, Sampled


class AdamW(NamedTuple):
    """The constants of AdamW and of its learning rate."""

    learning_rate: float = 2e-5
    warmup_steps: int = 5
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0  # 0 is off
    scheduler: str = "constant"
    all_updates: int = 0  # where a schedule that falls ends


class SGD(NamedTuple):
    """The constants of plain gradient descent and of its learning rate."""

    learning_rate: float
    warmup_steps: int = 5
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    scheduler: str = "constant"
    all_updates: int = 0


class TrainState(NamedTuple):
    """All that training changes."""

    adapter: dict
    mu: list  # first and
    nu: list  # second moment, shaped like adapter["layers"]; zeros where SGD leaves them
    updates: jax.Array  # optimiser updates made


# ---- loss and gradient -----------------------------------------------------------------------------------------------


def chunk_logits(hidden_CD, params, cfg, objective, vocab_used):
    """(logits of the distribution that was sampled from, which ids it can give): a ratio of equal weights is then 1."""
    vocab_ok_V = jnp.arange(cfg.vocab_size) < vocab_used
    return jnp.where(vocab_ok_V, head_logits(params, hidden_CD).T, NEVER) / objective.temperature, vocab_ok_V


def logprob_of(logits_CV, target_C):
    """Log-probability of one id a position."""
    return jnp.take_along_axis(logits_CV, target_C[:, None], -1)[:, 0] - jax.nn.logsumexp(logits_CV, -1)


def chunk_loss(hidden_CD, params, sampled: Sampled, cfg, objective, vocab_used):
    """(-J summed over a chunk of positions, statistics summed over it); the fields of `sampled` are the chunk's."""
    logits_CV, vocab_ok_V = chunk_logits(hidden_CD, params, cfg, objective, vocab_used)
    logprob_C = logprob_of(logits_CV, sampled.target_M)
    mask_C = (sampled.weight_M > 0).astype(jnp.float32)
    difference_C = (logprob_C - sampled.sampler_logprob_M) * mask_C
    log_ratio_C = difference_C
    if sampled.sample_log_ratio_M is not None:
        log_ratio_C = through_tokens(sampled.sample_log_ratio_M, logprob_C) * mask_C
    gain_C, low_C, high_C = surrogate(logprob_C, log_ratio_C, sampled.advantage_M, objective)
    stats = {"clip_low": (low_C * mask_C).sum(), "clip_high": (high_C * mask_C).sum(),
             "difference": jnp.abs(difference_C).sum(), "difference_max": jnp.abs(difference_C).max()}
    if objective.entropy_bonus:
        gain_C += objective.entropy_bonus * entropy(logits_CV, vocab_ok_V)
    if objective.kl_beta:
        kl_C = kl_k3(logprob_C, sampled.base_logprob_M)
        gain_C -= objective.kl_beta * kl_C
        stats["kl"] = (kl_C * mask_C).sum()
    return -(gain_C * sampled.weight_M).sum(), stats


@partial(jax.jit, static_argnames=("cfg", "objective", "vocab_used"), donate_argnames="d_hidden_QD")
def chunk_gradient(d_hidden_QD, hidden_QD, params, sampled: Sampled, cfg, objective, vocab_used):
    """(summed -J, statistics, d_hidden_QD with this chunk's gradient by the hidden states added)."""
    gradient = jax.value_and_grad(chunk_loss, has_aux=True)
    (loss, stats), d_hidden_CD = gradient(hidden_QD[sampled.source_M], params, sampled, cfg, objective, vocab_used)
    return loss, stats, d_hidden_QD.at[sampled.source_M].add(d_hidden_CD.astype(jnp.float32))


@partial(jax.jit, static_argnames=("cfg", "objective", "vocab_used"))
def chunk_logprobs(hidden_QD, params, sampled: Sampled, cfg, objective, vocab_used):
    """Log-probabilities of a chunk's ids, where no gradient is asked for."""
    return logprob_of(chunk_logits(hidden_QD[sampled.source_M], params, cfg, objective, vocab_used)[0], sampled.target_M)


def chunks(sampled: Sampled, size: int):
    """The sampled tokens, so many at a time."""
    for start in range(0, len(sampled.source_M), size):
        yield jax.tree.map(lambda field_M: field_M[start : start + size], sampled)  # noqa: B023


def logprobs(hidden_QD, params, group: Group, cfg, objective, vocab_used):
    """logprob_M of all sampled tokens of a group, by chunks as in the loss."""
    return jnp.concatenate([chunk_logprobs(hidden_QD, params, part, cfg, objective, vocab_used)
                            for part in chunks(group.sampled, objective.logit_chunk)])


def hidden_states(params, adapter, group: Group, cfg, remat: str, shift=None):
    """hidden_QD of the packed group; `shift` is added to its embeddings."""
    return run_layers(params, adapter, group.tokens_Q, group.positions_Q, group.layout, [None] * cfg.num_hidden_layers, cfg,
                      remat, shift)[0]


def with_base_logprobs(params, group: Group, cfg, objective: Objective, vocab_used: int) -> Group:
    """The group with what the model without its adapter makes of it: what the KL term measures the distance to."""
    base_M = logprobs(hidden_states(params, None, group, cfg, "none"), params, group, cfg, objective, vocab_used)
    return group._replace(sampled=group.sampled._replace(base_logprob_M=np.asarray(base_M)))


def with_sample_ratios(hidden_QD, params, group: Group, cfg, objective: Objective, vocab_used: int) -> Group:
    """The group with the log ratio of each whole sample, for the loss that clips samples and not tokens."""
    sampled = group.sampled
    log_ratio_M = logprobs(hidden_QD, params, group, cfg, objective, vocab_used) - sampled.sampler_logprob_M
    ratio_M = sample_log_ratio(log_ratio_M, sampled.sample_M, sampled.weight_M > 0, len(group.layout.slot_NT))
    return group._replace(sampled=sampled._replace(sample_log_ratio_M=ratio_M))


def group_gradient(params, adapter, group: Group, cfg: ModelConfig, objective: Objective, vocab_used: int):
    """(summed -J, statistics, gradient of the summed -J by the adapter's layers) of one group.

    The chain rule by hand in three steps, so that each program is compiled once whatever the depth, and the logits of one
    chunk are the only ones that ever exist: layers forward, head forward and backward by chunks, layers backward."""
    # Nobody asks for the gradient by the embeddings. But a first layer without it would be two programs of its own, half of
    # what a new shape has to compile, and saves three products of its backward pass.
    no_shift = jnp.zeros((), params["embed_tokens"].dtype)
    hidden_QD, pull_back = jax.vjp(lambda layers, shift: hidden_states(params, {**adapter, "layers": layers}, group, cfg,
                                                                       objective.remat, shift), adapter["layers"], no_shift)
    if objective.loss == "gspo":
        group = with_sample_ratios(hidden_QD, params, group, cfg, objective, vocab_used)
    d_hidden_QD = jnp.zeros(hidden_QD.shape, jnp.float32)
    total, stats = jnp.float32(0), None
    for part in chunks(group.sampled, objective.logit_chunk):
        loss, chunk_stats, d_hidden_QD = chunk_gradient(d_hidden_QD, hidden_QD, params, part, cfg, objective, vocab_used)
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


def rate_of(opt: AdamW | SGD, count):
    """The learning rate of update number `count`, from 1 on: a function of that alone, so a resumed run needs no more.

    After the warm-up it is Hugging Face's and optax's: update `count` has the value of their schedules after count - 1 updates,
    so the last has not 0, which would be an update for nothing, but what is one update short of it.  The warm-up is one ahead of
    theirs for the same reason: they begin with a rate of 0."""
    rate = opt.learning_rate * jnp.minimum(1.0, count / max(1, opt.warmup_steps))
    if opt.scheduler == "constant":
        return rate
    gone = jnp.clip((count - 1 - opt.warmup_steps) / max(1, opt.all_updates - opt.warmup_steps), 0.0, 1.0)
    return rate * (1 - gone if opt.scheduler == "linear" else (1 + jnp.cos(jnp.pi * gone)) / 2)


def clipped(gradient, longest: float):
    """(the gradient, scaled down to that global norm where it is longer; its norm before): 0 is off."""
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradient)))
    if longest:
        gradient = jax.tree.map(lambda g: g * jnp.minimum(1.0, longest / jnp.maximum(norm, 1e-12)), gradient)
    return gradient, norm


@partial(jax.jit, static_argnames="opt")
def adamw(state: TrainState, gradient, opt: AdamW):
    """One AdamW update (Loshchilov & Hutter 2019, arXiv 1711.05101) after clipping by the global norm: (state, norm, rate)."""
    gradient, norm = clipped(gradient, opt.max_grad_norm)
    count = state.updates + 1
    rate = rate_of(opt, count)
    mu = jax.tree.map(lambda m, g: opt.beta1 * m + (1 - opt.beta1) * g, state.mu, gradient)
    nu = jax.tree.map(lambda v, g: opt.beta2 * v + (1 - opt.beta2) * g * g, state.nu, gradient)
    correct1, correct2 = 1 - opt.beta1**count, 1 - opt.beta2**count

    def moved(w, m, v):
        return w - rate * (m / correct1 / (jnp.sqrt(v / correct2) + opt.eps) + opt.weight_decay * w)

    layers = jax.tree.map(moved, state.adapter["layers"], mu, nu)
    return TrainState({**state.adapter, "layers": layers}, mu, nu, count), norm, rate


@partial(jax.jit, static_argnames="opt")
def sgd(state: TrainState, gradient, opt: SGD):
    """One step down the gradient after clipping by the global norm: (state, norm, rate); the moments stay as they are."""
    gradient, norm = clipped(gradient, opt.max_grad_norm)
    count = state.updates + 1
    rate = rate_of(opt, count)
    layers = jax.tree.map(lambda w, g: w - rate * (g + opt.weight_decay * w), state.adapter["layers"], gradient)
    return state._replace(adapter={**state.adapter, "layers": layers}, updates=count), norm, rate


@jax.jit
def add_scaled(total, gradient, scale):
    """total + scale * gradient, in fp32."""
    return jax.tree.map(lambda t, g: t + scale * g.astype(jnp.float32), total, gradient)


METRICS = ("loss", "grad_norm", "learning_rate", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean",
           "sampling/sampling_logp_difference/mean", "sampling/sampling_logp_difference/max")


def update(params, state: TrainState, groups: list[Group], cfg, objective: Objective, opt: AdamW | SGD, vocab_used: int):
    """One optimiser update over all groups: (state, metrics).  No groups, or a gradient that is not finite: no update at all."""
    if not groups:
        return state, dict.fromkeys(METRICS, 0.0) | {"trained_tokens": 0, "skipped_steps": 1}
    n_tokens = sum(group.n_tokens for group in groups)
    divisor = denominator(objective, n_tokens, sum(group.n_samples for group in groups))
    gradient, loss, stats = jax.tree.map(jnp.zeros_like, state.mu), 0.0, None
    for group in groups:
        group_loss, group_stats, group_grad = group_gradient(params, state.adapter, group, cfg, objective, vocab_used)
        gradient = add_scaled(gradient, group_grad, 1 / divisor)
        loss, stats = loss + group_loss / divisor, group_stats if stats is None else add_stats(stats, group_stats)
    new_state, norm, rate = (sgd if isinstance(opt, SGD) else adamw)(state, gradient, opt)
    finite = bool(jnp.isfinite(norm))
    metrics = {"loss": float(loss), "grad_norm": float(norm), "learning_rate": float(rate) if finite else 0.0,
               "clip_ratio/low_mean": float(stats["clip_low"] / n_tokens),
               "clip_ratio/high_mean": float(stats["clip_high"] / n_tokens),
               "clip_ratio/region_mean": float((stats["clip_low"] + stats["clip_high"]) / n_tokens),
               "sampling/sampling_logp_difference/mean": float(stats["difference"] / n_tokens),
               "sampling/sampling_logp_difference/max": float(stats["difference_max"]),
               "trained_tokens": n_tokens, "skipped_steps": int(not finite)}
    if objective.kl_beta:
        metrics["kl"] = float(stats["kl"] / n_tokens)
    return (new_state if finite else state), metrics
