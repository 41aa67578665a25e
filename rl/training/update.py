"""One optimiser update: how the gradient of the loss (loss.py) is computed; and forward passes without a gradient.

Pure functions of arrays.  A micro-batch is one group, or some of its samples, packed (packing.py): the prompt is computed once.
The divisor of the loss is fixed before anything is split and divides the summed gradient at the end, in fp32.  So neither the
loss nor the gradient depends on the split, and half-precision backward passes see gradients near one."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from model_config import ModelConfig
from qwen2_jax import run_layers
from rl.training.loss import Loss, Targets, denominator, logits_of, logprob_of, loss_sum, sample_log_ratio
from rl.training.optimiser import AdamW, TrainState, adamw, add_scaled
from rl.training.packing import PackedGroup, pack

METRICS = ("loss", "grad_norm", "learning_rate", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean",
           "sampling/sampling_logp_difference/mean", "sampling/sampling_logp_difference/max")


def update(params, state: TrainState, groups: list[PackedGroup], cfg, loss: Loss, opt: AdamW, vocab_used: int):
    """One optimiser update on all groups: (state, metrics).  Without groups, or with a gradient that is not finite, none."""
    if not groups:
        return state, dict.fromkeys(METRICS, 0.0) | {"trained_tokens": 0, "skipped_steps": 1}
    n_tokens = sum(group.n_tokens for group in groups)
    divisor = denominator(loss, n_tokens, sum(group.n_samples for group in groups))
    gradient, total, stats = jax.tree.map(jnp.zeros_like, state.mu), 0.0, None
    for group in groups:
        group_total, group_stats, group_grad = group_gradient(params, state.adapter, group, cfg, loss, vocab_used)
        gradient = add_scaled(gradient, group_grad, 1 / divisor)
        total, stats = total + group_total / divisor, group_stats if stats is None else add_stats(stats, group_stats)
    new_state, norm, rate = adamw(state, gradient, opt)
    finite = bool(jnp.isfinite(norm))
    metrics = {"loss": float(total), "grad_norm": float(norm), "learning_rate": float(rate) if finite else 0.0,
               "clip_ratio/low_mean": float(stats["clip_low"] / n_tokens),
               "clip_ratio/high_mean": float(stats["clip_high"] / n_tokens),
               "clip_ratio/region_mean": float((stats["clip_low"] + stats["clip_high"]) / n_tokens),
               "sampling/sampling_logp_difference/mean": float(stats["difference"] / n_tokens),
               "sampling/sampling_logp_difference/max": float(stats["difference_max"]),
               "trained_tokens": n_tokens, "skipped_steps": int(not finite)}
    if loss.kl_beta:
        metrics["kl"] = float(stats["kl"] / n_tokens)
    return (new_state if finite else state), metrics


def add_stats(a: dict, b: dict) -> dict:
    """Sums; the maximum where the name ends in _max."""
    return {key: jnp.maximum(a[key], b[key]) if key.endswith("_max") else a[key] + b[key] for key in a}


def group_gradient(params, adapter, group: PackedGroup, cfg: ModelConfig, loss: Loss, vocab_used: int):
    """(summed loss, statistics, its gradient with respect to the adapter's layers) of one group, before the division.

    The chain rule in three steps: layers forward; head forward and backward, chunk by chunk; layers backward.  So each program
    is compiled once, whatever the number of layers, and only one chunk's logits exist at a time."""
    # The gradient with respect to the embeddings is not needed.  But leaving it out of the first layer would take two more
    # programs, half of what a new shape has to compile, to save three products of one layer's backward pass.
    no_shift = jnp.zeros((), params["embed_tokens"].dtype)
    hidden_QD, pull_back = jax.vjp(lambda layers, shift: hidden_states(params, {**adapter, "layers": layers}, group, cfg,
                                                                       loss.remat, shift), adapter["layers"], no_shift)
    if loss.kind == "gspo":
        group = with_sample_ratios(hidden_QD, params, group, cfg, loss, vocab_used)
    d_hidden_QD = jnp.zeros(hidden_QD.shape, jnp.float32)
    total, stats = jnp.float32(0), None
    for part in chunks(group.targets, loss.logit_chunk):
        chunk_total, chunk_stats, d_hidden_QD = chunk_gradient(d_hidden_QD, hidden_QD, params, part, cfg, loss, vocab_used)
        total, stats = total + chunk_total, chunk_stats if stats is None else add_stats(stats, chunk_stats)
    return total, stats, pull_back(d_hidden_QD.astype(hidden_QD.dtype))[0]


def hidden_states(params, adapter, group: PackedGroup, cfg, remat: str, shift=None):
    """hidden_QD of the packed group; `shift` is added to its embeddings."""
    return run_layers(params, adapter, group.tokens_Q, group.positions_Q, group.layout, [None] * cfg.num_hidden_layers, cfg,
                      remat, shift)[0]


def chunks(targets: Targets, size: int):
    """The targets, `size` at a time."""
    for start in range(0, len(targets.source_M), size):
        yield jax.tree.map(lambda field_M: field_M[start : start + size], targets)  # noqa: B023


@partial(jax.jit, static_argnames=("cfg", "loss", "vocab_used"), donate_argnames="d_hidden_QD")
def chunk_gradient(d_hidden_QD, hidden_QD, params, targets: Targets, cfg, loss: Loss, vocab_used: int):
    """(summed loss, statistics, d_hidden_QD plus this chunk's gradient with respect to the hidden states)."""
    gradient = jax.value_and_grad(loss_sum, has_aux=True)
    (total, stats), d_hidden_MD = gradient(hidden_QD[targets.source_M], params, targets, cfg, loss, vocab_used)
    return total, stats, d_hidden_QD.at[targets.source_M].add(d_hidden_MD.astype(jnp.float32))


# ---- log-probabilities without a gradient ----------------------------------------------------------------------------


@partial(jax.jit, static_argnames=("cfg", "loss", "vocab_used"))
def chunk_logprobs(hidden_QD, params, targets: Targets, cfg, loss: Loss, vocab_used: int):
    """logprob_M of one chunk."""
    return logprob_of(logits_of(hidden_QD[targets.source_M], params, cfg, loss, vocab_used)[0], targets.target_M)


def logprobs(hidden_QD, params, group: PackedGroup, cfg, loss: Loss, vocab_used: int):
    """logprob_M of all sampled tokens of a group, in the same chunks as the loss."""
    return jnp.concatenate([chunk_logprobs(hidden_QD, params, part, cfg, loss, vocab_used)
                            for part in chunks(group.targets, loss.logit_chunk)])


def with_base_logprobs(params, group: PackedGroup, cfg, loss: Loss, vocab_used: int) -> PackedGroup:
    """The group with the log-probabilities of the model without its adapter, which the KL term needs."""
    base_M = logprobs(hidden_states(params, None, group, cfg, "none"), params, group, cfg, loss, vocab_used)
    return group._replace(targets=group.targets._replace(base_logprob_M=np.asarray(base_M)))


def with_sample_ratios(hidden_QD, params, group: PackedGroup, cfg, loss: Loss, vocab_used: int) -> PackedGroup:
    """The group with the log ratio of each whole sample, which gspo needs."""
    targets = group.targets
    log_ratio_M = logprobs(hidden_QD, params, group, cfg, loss, vocab_used) - targets.sampler_logprob_M
    ratio_M = sample_log_ratio(log_ratio_M, targets.sample_M, targets.weight_M > 0, len(group.layout.index_NT))
    return group._replace(targets=targets._replace(sample_log_ratio_M=ratio_M))


# ---- hidden states for rewards ---------------------------------------------------------------------------------------

AT_ONCE = 8  # samples in one pass; without a gradient no layer keeps anything, so this takes less memory than any update


def hidden_of(model, adapter, rollouts) -> list[np.ndarray]:
    """hidden_TD of each row: for each of its T sampled tokens, the state after the final norm that gave its logits."""
    return [hidden_TD for p in range(len(rollouts.prompt_ids)) for hidden_TD in _of_prompt(model, adapter, rollouts, p)]


def _of_prompt(model, adapter, rollouts, p):
    rows = np.flatnonzero(rollouts.prompt_B == p)
    for start in range(0, len(rows), AT_ONCE):
        part = rows[start : start + AT_ONCE]
        ids = [rollouts.ids_BT[row, : rollouts.length_B[row]] for row in part]
        sampler_logprobs = [rollouts.logprobs_BT[row, : rollouts.length_B[row]] for row in part]
        group = pack(rollouts.prompt_ids[p], ids, sampler_logprobs, np.zeros(len(part)), Loss())
        hidden_QD = np.asarray(hidden_states(model.params, adapter, group, model.cfg, "none"), np.float32)
        counts = [len(row_ids) for row_ids in ids]
        yield from np.split(hidden_QD[group.targets.source_M[: sum(counts)]], np.cumsum(counts)[:-1])
