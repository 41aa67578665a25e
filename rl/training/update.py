"""One optimiser update on a batch of packed groups, and the forward passes that need no gradient.  Pure functions of arrays.

A micro-batch is one group, or some of its samples, packed (packing.py): the prompt is computed once, no sample is padded.  The
divisor of the loss is fixed before anything is cut into pieces and divides the summed gradient once, at the end and in fp32, so
neither the loss nor the gradient depends on the cutting (and half-precision backward passes see gradients of order one)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from model_config import ModelConfig
from qwen2_jax import run_layers
from rl.training.loss import Loss, Targets, chunk_logits, chunk_loss, denominator, logprob_of, sample_log_ratio
from rl.training.optimiser import SGD, AdamW, TrainState, adamw, add_scaled, sgd
from rl.training.packing import PackedGroup, pack


@partial(jax.jit, static_argnames=("cfg", "objective", "vocab_used"), donate_argnames="d_hidden_QD")
def chunk_gradient(d_hidden_QD, hidden_QD, params, sampled: Targets, cfg, objective, vocab_used):
    """(summed -J, statistics, d_hidden_QD with this chunk's gradient by the hidden states added)."""
    gradient = jax.value_and_grad(chunk_loss, has_aux=True)
    (loss, stats), d_hidden_CD = gradient(hidden_QD[sampled.source_M], params, sampled, cfg, objective, vocab_used)
    return loss, stats, d_hidden_QD.at[sampled.source_M].add(d_hidden_CD.astype(jnp.float32))


@partial(jax.jit, static_argnames=("cfg", "objective", "vocab_used"))
def chunk_logprobs(hidden_QD, params, sampled: Targets, cfg, objective, vocab_used):
    """Log-probabilities of a chunk's ids, where no gradient is asked for."""
    return logprob_of(chunk_logits(hidden_QD[sampled.source_M], params, cfg, objective, vocab_used)[0], sampled.target_M)


def chunks(sampled: Targets, size: int):
    """The sampled tokens, so many at a time."""
    for start in range(0, len(sampled.source_M), size):
        yield jax.tree.map(lambda field_M: field_M[start : start + size], sampled)  # noqa: B023


def logprobs(hidden_QD, params, group: PackedGroup, cfg, objective, vocab_used):
    """logprob_M of all sampled tokens of a group, by chunks as in the loss."""
    return jnp.concatenate([chunk_logprobs(hidden_QD, params, part, cfg, objective, vocab_used)
                            for part in chunks(group.sampled, objective.logit_chunk)])


def hidden_states(params, adapter, group: PackedGroup, cfg, remat: str, shift=None):
    """hidden_QD of the packed group; `shift` is added to its embeddings."""
    return run_layers(params, adapter, group.tokens_Q, group.positions_Q, group.layout, [None] * cfg.num_hidden_layers, cfg,
                      remat, shift)[0]


def with_base_logprobs(params, group: PackedGroup, cfg, objective: Loss, vocab_used: int) -> PackedGroup:
    """The group with what the model without its adapter makes of it: what the KL term measures the distance to."""
    base_M = logprobs(hidden_states(params, None, group, cfg, "none"), params, group, cfg, objective, vocab_used)
    return group._replace(sampled=group.sampled._replace(base_logprob_M=np.asarray(base_M)))


def with_sample_ratios(hidden_QD, params, group: PackedGroup, cfg, objective: Loss, vocab_used: int) -> PackedGroup:
    """The group with the log ratio of each whole sample, for the loss that clips samples and not tokens."""
    sampled = group.sampled
    log_ratio_M = logprobs(hidden_QD, params, group, cfg, objective, vocab_used) - sampled.sampler_logprob_M
    ratio_M = sample_log_ratio(log_ratio_M, sampled.sample_M, sampled.weight_M > 0, len(group.layout.slot_NT))
    return group._replace(sampled=sampled._replace(sample_log_ratio_M=ratio_M))


def group_gradient(params, adapter, group: PackedGroup, cfg: ModelConfig, objective: Loss, vocab_used: int):
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


METRICS = ("loss", "grad_norm", "learning_rate", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean",
           "sampling/sampling_logp_difference/mean", "sampling/sampling_logp_difference/max")


def update(params, state: TrainState, groups: list[PackedGroup], cfg, objective: Loss, opt: AdamW | SGD, vocab_used: int):
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


# ---- hidden states of what was sampled --------------------------------------------------------------------------------


AT_ONCE = 8  # samples in one pass; without a gradient nothing is kept of a layer, so this is less than any update takes


def hidden_of(model, adapter, rollouts) -> list[np.ndarray]:
    """hidden_TD of each row, in order: for each of its T sampled tokens the state, after the final norm, that gave its logits."""
    return [hidden_TD for p in range(len(rollouts.prompt_ids)) for hidden_TD in _of_prompt(model, adapter, rollouts, p)]


def _of_prompt(model, adapter, rollouts, p):
    rows = np.flatnonzero(rollouts.prompt_B == p)
    for start in range(0, len(rows), AT_ONCE):
        part = rows[start : start + AT_ONCE]
        ids = [rollouts.ids_BT[row, : rollouts.length_B[row]] for row in part]
        logprobs = [rollouts.logprobs_BT[row, : rollouts.length_B[row]] for row in part]
        group = pack(rollouts.prompt_ids[p], ids, logprobs, np.zeros(len(part)), Loss())
        hidden_QD = np.asarray(hidden_states(model.params, adapter, group, model.cfg, "none"), np.float32)
        counts = [len(row_ids) for row_ids in ids]
        yield from np.split(hidden_QD[group.sampled.source_M[: sum(counts)]], np.cumsum(counts)[:-1])
