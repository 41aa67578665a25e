"""GRPO's loss and its variants: what a sampled token adds to the objective J, and what the sum is divided by; the loss is -J.

    A_n = (r_n - mean(r)) / std(r)                        over the N samples of a prompt, std with ddof 0
    J   = sum over tokens of min(rho A, clip(rho) A) / tokens trained on

rho = exp(logp - logp_sampler) is a token's probability ratio, clip(rho) is rho limited to [1 - eps_low, 1 + eps_high], and A is
the advantage of the token's sample.  This is the default, after Shao et al. 2024 (arXiv 2402.03300) and DAPO, Yu et al. 2025
(2503.14476).  It differs from plain GRPO in three ways: no KL term and no reference model; two clip bounds; a mean over the
tokens of the whole optimiser step instead of a mean of sample means.  Samples of a prompt with equal rewards have no signal and
are left out, unless there is an entropy bonus or a KL term.  advantages.py has the other advantages.  The losses, with |o| the
tokens of a sample and T = MAX_NEW_TOKENS, the most it can have:

    LOSS      a token adds                              weight     divisor
    dapo      min(rho A, clip(rho) A)                   1          tokens trained on
    grpo      the same                                  T / |o|    T * samples trained on
    dr_grpo   the same                                  1          T * TASKS_PER_STEP * GROUP, a constant
    gspo      min(s A, clip(s) A), own clip bounds      T / |o|    T * samples trained on
              s = exp(mean of log rho in the sample)
    cispo     stop_gradient(clip(rho)) A logp           1          tokens trained on

Dr. GRPO: Liu et al. 2025 (2503.20783), no length in the divisor, no std in the advantage.  GSPO: Zheng et al. 2025 (2507.18071).
CISPO: MiniMax-M1, 2025 (2506.13585), REINFORCE with a clipped weight; no token loses its gradient.  T cancels in the means over
samples; it keeps half-precision gradients near one.

With the same weight and divisor every token also adds ENTROPY_BONUS * entropy - KL_BETA * KL(policy || base).  KL is estimated by
k3 of Schulman's note "Approximating KL divergence": exp(d) - d - 1 with d = logp_base - logp, never negative."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attention import NEVER
from qwen2_jax import head_logits
from rl.settings.declared import Settings

SAMPLE_MEANS = ("grpo", "gspo")  # every sample has the same weight, whatever its length


class Loss(NamedTuple):
    """The constants of the loss, and how much memory its gradient may take; hashable."""

    eps_low: float = 0.2
    eps_high: float = 0.28
    temperature: float = 1.0
    logit_chunk: int = 256  # tokens whose logits exist at the same time; changes memory only
    remat: str = "full"  # what the backward pass recomputes (`qwen2_jax.BLOCKS`); changes memory only
    kind: str = "dapo"
    entropy_bonus: float = 0.0
    kl_beta: float = 0.0
    max_new_tokens: int = 192  # T of the table
    step_samples: int = 64  # TASKS_PER_STEP * GROUP, or * UPDATE_GROUP

    @property
    def needs_no_signal(self) -> bool:
        """Whether groups whose advantages are all 0 are trained on."""
        return self.entropy_bonus > 0 or self.kl_beta > 0


class Targets(NamedTuple):
    """The M sampled tokens of a packed group, or of one chunk of it, and what the loss needs for each; padded with weight 0."""

    source_M: np.ndarray  # which of the Q hidden states predicts the token
    target_M: np.ndarray  # its id
    sampler_logprob_M: np.ndarray
    advantage_M: np.ndarray
    sample_M: np.ndarray  # which of the N samples it belongs to
    weight_M: np.ndarray  # 0 on padding
    base_logprob_M: np.ndarray | None = None  # without the adapter; only with a KL term
    sample_log_ratio_M: jax.Array | None = None  # log s of its sample; only for gspo


def loss_sum(hidden_MD, params, targets: Targets, cfg, loss: Loss, vocab_used: int):
    """(-J before the division, statistics), both summed over the targets; hidden_MD are the states that predict them."""
    logits_MV, vocab_ok_V = logits_of(hidden_MD, params, cfg, loss, vocab_used)
    logprob_M = logprob_of(logits_MV, targets.target_M)
    mask_M = (targets.weight_M > 0).astype(jnp.float32)
    difference_M = (logprob_M - targets.sampler_logprob_M) * mask_M
    log_ratio_M = difference_M
    if targets.sample_log_ratio_M is not None:
        log_ratio_M = through_tokens(targets.sample_log_ratio_M, logprob_M) * mask_M
    gain_M, low_M, high_M = surrogate(logprob_M, log_ratio_M, targets.advantage_M, loss)
    stats = {"clip_low": (low_M * mask_M).sum(), "clip_high": (high_M * mask_M).sum(),
             "difference": jnp.abs(difference_M).sum(), "difference_max": jnp.abs(difference_M).max()}
    if loss.entropy_bonus:
        gain_M += loss.entropy_bonus * entropy(logits_MV, vocab_ok_V)
    if loss.kl_beta:
        kl_M = kl_k3(logprob_M, targets.base_logprob_M)
        gain_M -= loss.kl_beta * kl_M
        stats["kl"] = (kl_M * mask_M).sum()
    return -(gain_M * targets.weight_M).sum(), stats


def surrogate(logprob_M, log_ratio_M, advantage_M, loss: Loss):
    """(what each token adds to J, whether the lower bound clips it, whether the upper bound does)."""
    ratio_M = jnp.exp(log_ratio_M)
    clipped_M = jnp.clip(ratio_M, 1 - loss.eps_low, 1 + loss.eps_high)
    low_M, high_M = ratio_M < 1 - loss.eps_low, ratio_M > 1 + loss.eps_high
    if loss.kind == "cispo":
        return jax.lax.stop_gradient(clipped_M) * advantage_M * logprob_M, low_M, high_M
    gain_M = jnp.minimum(ratio_M * advantage_M, clipped_M * advantage_M)
    return gain_M, low_M & (advantage_M < 0), high_M & (advantage_M > 0)


def token_weight(length: int, loss: Loss) -> float:
    """The weight of each token of a sample of that length."""
    return loss.max_new_tokens / length if loss.kind in SAMPLE_MEANS else 1.0


def denominator(loss: Loss, tokens: int, samples: int) -> int:
    """The divisor of a whole optimiser step that trains on so many tokens and samples."""
    if loss.kind == "dr_grpo":
        return loss.max_new_tokens * loss.step_samples
    return loss.max_new_tokens * samples if loss.kind in SAMPLE_MEANS else tokens


# ---- log-probabilities -----------------------------------------------------------------------------------------------


def logits_of(hidden_MD, params, cfg, loss: Loss, vocab_used: int):
    """(logits_MV at the sampling temperature, which ids can be sampled), so that ratios are 1 before the first update."""
    vocab_ok_V = jnp.arange(cfg.vocab_size) < vocab_used
    return jnp.where(vocab_ok_V, head_logits(params, hidden_MD).T, NEVER) / loss.temperature, vocab_ok_V


def logprob_of(logits_MV, target_M):
    """The log-probability of each target."""
    return jnp.take_along_axis(logits_MV, target_M[:, None], -1)[:, 0] - jax.nn.logsumexp(logits_MV, -1)


# ---- the ratio of a whole sample -------------------------------------------------------------------------------------


def sample_log_ratio(log_ratio_M, sample_M, mask_M, samples: int):
    """log s for each token: the mean of log rho over the token's sample."""
    total_N, count_N = (jax.ops.segment_sum(x_M, sample_M, samples) for x_M in (log_ratio_M * mask_M, mask_M.astype(jnp.int32)))
    return (total_N / jnp.maximum(1, count_N))[sample_M]  # a sample left out of the loss has no tokens


def through_tokens(sample_log_ratio_M, logprob_M):
    """log s as a function of the token's own log-probability: the same value, and the token's share of the gradient.

    By the chain rule d s / d logp = s / |o|; the token's weight holds the 1 / |o|."""
    return sample_log_ratio_M + logprob_M - jax.lax.stop_gradient(logprob_M)


# ---- entropy and KL --------------------------------------------------------------------------------------------------


def entropy(logits_MV, vocab_ok_V):
    """Entropy in nats of each token's distribution; unused ids have no mass, whatever their logits."""
    finite_MV = jnp.where(vocab_ok_V, logits_MV, 0.0)
    return jax.nn.logsumexp(logits_MV, -1) - (jax.nn.softmax(logits_MV, -1) * finite_MV).sum(-1)


def kl_k3(logprob_M, base_logprob_M):
    """An unbiased, never negative estimate of KL(policy || base) from one id drawn from the policy."""
    difference_M = base_logprob_M - logprob_M
    return jnp.expm1(difference_M) - difference_M


# ---- from the settings -----------------------------------------------------------------------------------------------


def loss_of(settings: Settings) -> Loss:
    """The loss that the settings describe."""
    o, g, remat = settings.objective, settings.generation, settings.model.remat
    return Loss(eps_low=o.gspo_eps_low if o.loss == "gspo" else o.eps_low,
                eps_high=o.gspo_eps_high if o.loss == "gspo" else o.eps_high,
                temperature=g.temperature, logit_chunk=o.logit_chunk,
                remat="full" if remat == "auto" else remat,  # no memory plan yet: the smallest
                kind=o.loss, entropy_bonus=o.entropy_bonus, kl_beta=o.kl_beta,
                max_new_tokens=g.max_new_tokens, step_samples=settings.trainer.tasks_per_step * (g.update_group or g.group))
