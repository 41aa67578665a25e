"""GRPO on LoRA adapters: loss, gradient, optimiser.  Pure functions of arrays; no files, no text.

    A_n = (r_n - mean(r)) / std(r)                                          within one prompt's group, std with ddof 0
    J   = sum over tokens of min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A) / n_tokens,   rho = exp(logp - logp_sampler)

after Shao et al. 2024 (arXiv 2402.03300) and Yu et al. 2025 (DAPO, arXiv 2503.14476).  This is the default; `rl/training/advantages.py`
and `rl/training/loss.py` have the other advantages and losses.  Departures from plain GRPO: no KL term, no reference model; two
clip bounds; a token mean over the WHOLE optimiser step.  n_tokens counts the tokens of all groups with signal, is
fixed before anything is cut into pieces, and divides the summed gradient once, at the end and in fp32, so neither the loss nor
the gradient depends on the cutting (and half-precision backward passes see gradients of order one).  Groups in which every
reward is equal have no signal: they are neither computed nor counted, unless an entropy bonus or a KL term is on.

A micro-batch is one group, or some of its samples, packed (`rl/training/packing.py`): the prompt is computed once, no sample is padded.
M is the sampled tokens of such a batch, C those of one chunk of them."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rl.settings.declared import Settings


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



def optimiser_of(settings: Settings) -> AdamW | SGD:
    """The optimiser's part of the settings; warm-up and decay count updates, the settings count steps."""
    t, each = settings.trainer, settings.objective.updates_per_batch
    warmup, end = t.warmup_steps * each, (t.scheduler, t.steps * each)
    if t.optimizer == "sgd":
        return SGD(t.learning_rate, warmup, t.weight_decay, t.max_grad_norm, *end)
    return AdamW(t.learning_rate, warmup, t.adam_beta1, t.adam_beta2, t.adam_eps, t.weight_decay, t.max_grad_norm, *end)
