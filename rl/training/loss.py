"""The objective: what one sampled token adds to it, and what the sum is divided by.  Pure functions of arrays.

rho = exp(logp - logp_sampler) is a token's ratio, clip(x) = x kept within 1 - eps_low and 1 + eps_high, A its sample's
advantage, |o| its sample's length, T = MAX_NEW_TOKENS.

    LOSS      a token adds                                          times      the sum is divided by
    dapo      min(rho A, clip(rho) A)                               1          the tokens trained on
    grpo      the same                                              T / |o|    T * the samples trained on
    dr_grpo   the same                                              1          T * TASKS_PER_STEP * GROUP, a constant
    gspo      the same with s = exp(mean of log rho over the        T / |o|    T * the samples trained on
              sample) for rho, and bounds of its own
    cispo     stop_gradient(clip(rho)) A logp                       1          the tokens trained on

DAPO: Yu et al. 2025 (arXiv 2503.14476), the token mean.  GRPO: Shao et al. 2024 (2402.03300), the mean of sample means.
Dr. GRPO: Liu et al. 2025 (2503.20783), no length in the denominator and no std in the advantage.  GSPO: Zheng et al. 2025
(2507.18071), the ratio of whole samples, length-normalised.  CISPO: MiniMax-M1, 2025 (2506.13585), REINFORCE whose weight is
clipped and whose tokens all keep their gradient.  T cancels in the sample means; it keeps half-precision gradients near one.

To each token, with the loss's own weight and divisor, + ENTROPY_BONUS * entropy - KL_BETA * KL(policy || base), the latter by
the k3 estimator of Schulman's note "Approximating KL divergence": exp(d) - d - 1 with d = logp_base - logp, never negative."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attention import NEVER
from qwen2_jax import head_logits
from rl.settings.declared import Settings

SAMPLE_MEANS = ("grpo", "gspo")  # every sample weighs the same, whatever its length


class Loss(NamedTuple):
    """The constants of the loss and of its memory; hashable."""

    eps_low: float = 0.2
    eps_high: float = 0.28
    temperature: float = 1.0
    logit_chunk: int = 256  # positions whose logits exist at the same time; changes memory only
    remat: str = "full"
    loss: str = "dapo"
    entropy_bonus: float = 0.0
    kl_beta: float = 0.0
    longest: int = 192  # T, tokens
    step_samples: int = 64  # samples a step is meant to train on

    @property
    def needs_no_signal(self) -> bool:
        """Whether groups teach something even where all their advantages are 0."""
        return self.entropy_bonus > 0 or self.kl_beta > 0


def surrogate(logprob_C, log_ratio_C, advantage_C, objective: Loss):
    """(what each token adds, whether the lower, whether the upper bound acts there)."""
    ratio_C = jnp.exp(log_ratio_C)
    clipped_C = jnp.clip(ratio_C, 1 - objective.eps_low, 1 + objective.eps_high)
    low_C, high_C = ratio_C < 1 - objective.eps_low, ratio_C > 1 + objective.eps_high
    if objective.loss == "cispo":
        return jax.lax.stop_gradient(clipped_C) * advantage_C * logprob_C, low_C, high_C
    gain_C = jnp.minimum(ratio_C * advantage_C, clipped_C * advantage_C)
    return gain_C, low_C & (advantage_C < 0), high_C & (advantage_C > 0)


def sample_log_ratio(log_ratio_M, sample_M, mask_M, samples: int):
    """The mean of a sample's log ratios, for each of its tokens: the log of GSPO's ratio s."""
    total_N, count_N = (jax.ops.segment_sum(x_M, sample_M, samples) for x_M in (log_ratio_M * mask_M, mask_M.astype(jnp.int32)))
    return (total_N / jnp.maximum(1, count_N))[sample_M]  # a sample left out of the loss has no tokens


def through_tokens(sample_log_ratio_C, logprob_C):
    """GSPO's log ratio as a function of the tokens' own log-probabilities: its value, and its sample's share of the gradient.

    By the chain rule d s / d logp = s / |o|; the 1 / |o| is in the token's weight."""
    return sample_log_ratio_C + logprob_C - jax.lax.stop_gradient(logprob_C)


def entropy(logits_CV, vocab_ok_V):
    """Nats of each position's distribution; ids outside the vocabulary in use have no mass, whatever their logit."""
    finite_CV = jnp.where(vocab_ok_V, logits_CV, 0.0)
    return jax.nn.logsumexp(logits_CV, -1) - (jax.nn.softmax(logits_CV, -1) * finite_CV).sum(-1)


def kl_k3(logprob_C, base_logprob_C):
    """An estimate of KL(policy || base) from one id a position, drawn from the policy: unbiased, and never negative."""
    difference_C = base_logprob_C - logprob_C
    return jnp.expm1(difference_C) - difference_C


def token_weight(length: int, objective: Loss) -> float:
    """What a token of a sample of so many tokens counts."""
    return objective.longest / length if objective.loss in SAMPLE_MEANS else 1.0


def denominator(objective: Loss, tokens: int, samples: int) -> int:
    """What the sum over a whole optimiser step is divided by, for so many tokens and samples trained on."""
    if objective.loss == "dr_grpo":
        return objective.longest * objective.step_samples
    return objective.longest * samples if objective.loss in SAMPLE_MEANS else tokens



def loss_of(settings: Settings) -> Loss:
    """The loss's part of the settings."""
    o, g = settings.objective, settings.generation
    low, high = (o.gspo_eps_low, o.gspo_eps_high) if o.loss == "gspo" else (o.eps_low, o.eps_high)
    remat = "full" if settings.model.remat == "auto" else settings.model.remat  # not planned for: what fits if anything does
    return Loss(low, high, g.temperature, o.logit_chunk, remat, o.loss, o.entropy_bonus, o.kl_beta,
                     g.max_new_tokens, settings.trainer.tasks_per_step * g.group)



class Targets(NamedTuple):
    """The sampled tokens of a group, one after another, and what the loss needs to know of each; padded to whole chunks."""

    source_M: np.ndarray  # which of the Q hidden states predicts the token
    target_M: np.ndarray  # its id
    sampler_logprob_M: np.ndarray
    advantage_M: np.ndarray
    sample_M: np.ndarray  # which of the group's samples it belongs to
    weight_M: np.ndarray  # what it counts in the objective; 0 on padding
    base_logprob_M: np.ndarray | None = None  # without the adapter, where there is a KL term
    sample_log_ratio_M: jax.Array | None = None  # of its whole sample, where the loss asks for it



# ---- loss and gradient -----------------------------------------------------------------------------------------------


def chunk_logits(hidden_CD, params, cfg, objective, vocab_used):
    """(logits of the distribution that was sampled from, which ids it can give): a ratio of equal weights is then 1."""
    vocab_ok_V = jnp.arange(cfg.vocab_size) < vocab_used
    return jnp.where(vocab_ok_V, head_logits(params, hidden_CD).T, NEVER) / objective.temperature, vocab_ok_V


def logprob_of(logits_CV, target_C):
    """Log-probability of one id a position."""
    return jnp.take_along_axis(logits_CV, target_C[:, None], -1)[:, 0] - jax.nn.logsumexp(logits_CV, -1)


def chunk_loss(hidden_CD, params, sampled: Targets, cfg, objective, vocab_used):
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
