"""AdamW with gradient clipping and learning-rate schedules, and the state that training changes.  Pure functions of arrays."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rl.settings.declared import Settings


class AdamW(NamedTuple):
    """The constants of AdamW and of its learning rate; hashable."""

    learning_rate: float = 2e-5
    warmup_updates: int = 5
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0  # 0: no clipping
    scheduler: str = "constant"
    total_updates: int = 0  # where a falling schedule ends
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


class TrainState(NamedTuple):
    """All that training changes."""

    adapter: dict
    mu: list  # first and
    nu: list  # second moment, shaped like adapter["layers"]
    updates: jax.Array  # optimiser updates made


def init_state(adapter) -> TrainState:
    """The training state of a new adapter, with zero moments."""
    zeros = jax.tree.map(jnp.zeros_like, adapter["layers"])
    return TrainState(adapter, zeros, zeros, jnp.int32(0))


def optimiser_of(settings: Settings) -> AdamW:
    """The optimiser of these settings; they count steps, it counts updates."""
    t, each = settings.trainer, settings.objective.updates_per_batch
    return AdamW(learning_rate=t.learning_rate, warmup_updates=t.warmup_steps * each, weight_decay=t.weight_decay,
                 max_grad_norm=t.max_grad_norm, scheduler=t.scheduler, total_updates=t.steps * each)


def learning_rate_at(opt: AdamW, update):
    """The learning rate of an update, counted from 1; it depends on nothing else, so a resumed run needs no more state.

    After the warm-up it is that of Hugging Face and optax: their value after n - 1 updates is used for update n, so the last
    update still has a rate above 0.  The warm-up is one update ahead of theirs, which begins at 0."""
    rate = opt.learning_rate * jnp.minimum(1.0, update / max(1, opt.warmup_updates))
    if opt.scheduler == "constant":
        return rate
    progress = jnp.clip((update - 1 - opt.warmup_updates) / max(1, opt.total_updates - opt.warmup_updates), 0.0, 1.0)
    return rate * (1 - progress if opt.scheduler == "linear" else (1 + jnp.cos(jnp.pi * progress)) / 2)


def clip_by_global_norm(gradient, max_norm: float):
    """(the gradient, scaled down to `max_norm` if its norm is larger; its norm before); 0 turns clipping off."""
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradient)))
    if max_norm:
        gradient = jax.tree.map(lambda g: g * jnp.minimum(1.0, max_norm / jnp.maximum(norm, 1e-12)), gradient)
    return gradient, norm


@partial(jax.jit, static_argnames="opt")
def adamw(state: TrainState, gradient, opt: AdamW):
    """One AdamW update (Loshchilov & Hutter 2019, arXiv 1711.05101) after clipping: (state, gradient norm, learning rate)."""
    gradient, norm = clip_by_global_norm(gradient, opt.max_grad_norm)
    count = state.updates + 1
    rate = learning_rate_at(opt, count)
    mu = jax.tree.map(lambda m, g: opt.beta1 * m + (1 - opt.beta1) * g, state.mu, gradient)
    nu = jax.tree.map(lambda v, g: opt.beta2 * v + (1 - opt.beta2) * g * g, state.nu, gradient)
    bias1, bias2 = 1 - opt.beta1**count, 1 - opt.beta2**count

    def moved(w, m, v):
        return w - rate * (m / bias1 / (jnp.sqrt(v / bias2) + opt.eps) + opt.weight_decay * w)

    layers = jax.tree.map(moved, state.adapter["layers"], mu, nu)
    return TrainState({**state.adapter, "layers": layers}, mu, nu, count), norm, rate


@jax.jit
def add_scaled(total, gradient, scale):
    """total + scale * gradient, in fp32."""
    return jax.tree.map(lambda t, g: t + scale * g.astype(jnp.float32), total, gradient)
