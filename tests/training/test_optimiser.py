"""AdamW, clipping and the schedules against optax, transformers and numbers by hand."""

import jax
import numpy as np
import optax
import pytest

from rl.training import checkpoint
from rl.training.optimiser import AdamW, adamw, init_state, learning_rate_at
from tests import oracles, small_model

ADAPTER = small_model.adapter()


def optax_rate(opt):
    """The learning rate by optax, as a function of the updates made: the warm-up, then one of its schedules."""
    rate, left = opt.learning_rate, opt.total_updates - opt.warmup_updates
    then = {"constant": optax.constant_schedule, "linear": lambda rate: optax.linear_schedule(rate, 0.0, left),
            "cosine": lambda rate: optax.cosine_decay_schedule(rate, left)}[opt.scheduler](rate)
    return optax.join_schedules([lambda n: rate * (n + 1) / max(1, opt.warmup_updates), then], [opt.warmup_updates])


@pytest.mark.parametrize("opt", [
    AdamW(learning_rate=1e-2, warmup_updates=3, weight_decay=0.1, scheduler="cosine", total_updates=10), *[
        pytest.param(opt, marks=pytest.mark.slow) for opt in (
            AdamW(learning_rate=1e-2, warmup_updates=3, beta2=0.99, weight_decay=0.1, max_grad_norm=0.5),
            AdamW(learning_rate=3e-3, warmup_updates=0, beta1=0.8, eps=1e-6, max_grad_norm=0.0),
            AdamW(learning_rate=1e-2, warmup_updates=2, scheduler="linear", total_updates=8))]])
def test_adamw_is_optax(opt):
    """Eight updates: clipping, AdamW and the schedule equal optax's."""
    clip = [optax.clip_by_global_norm(opt.max_grad_norm)] if opt.max_grad_norm else []
    rate = optax_rate(opt)
    oracle = optax.chain(*clip, optax.adamw(rate, opt.beta1, opt.beta2, opt.eps, weight_decay=opt.weight_decay))
    layers = ADAPTER["layers"]
    theirs, their_state, ours, rng = layers, oracle.init(layers), init_state(ADAPTER), np.random.default_rng(0)
    update, apply, tree_norm = map(jax.jit, (oracle.update, optax.apply_updates, optax.tree.norm))
    for n in range(8):
        gradient = jax.tree.map(lambda leaf: 0.1 * rng.standard_normal(leaf.shape, np.float32), layers)
        updates, their_state = update(gradient, their_state, theirs)
        theirs = apply(theirs, updates)
        ours, norm, used = adamw(ours, gradient, opt)

        np.testing.assert_allclose(norm, tree_norm(gradient), rtol=1e-5)
        np.testing.assert_allclose(used, rate(n), rtol=1e-5)
    for a, b in zip(jax.tree.leaves(ours.adapter["layers"]), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


def rates(opt):
    """The learning rate of every update and of one more."""
    return [float(learning_rate_at(opt, n)) for n in range(1, opt.total_updates + 2)]


warmups = pytest.mark.parametrize("warmup, last", [(0, 7), (1, 2), (3, 10), (5, 6)])
schedulers = pytest.mark.parametrize("scheduler", ["linear", "cosine"])


@warmups
@schedulers
def test_schedules_are_those_of_optax(scheduler, warmup, last):
    """After the warm-up; no update has rate 0."""
    found = rates(AdamW(learning_rate=0.5, warmup_updates=warmup, scheduler=scheduler, total_updates=last))
    decay = {"linear": optax.linear_schedule(0.5, 0.0, last - warmup), "cosine": optax.cosine_decay_schedule(0.5, last - warmup)}

    assert found[warmup:last] == pytest.approx([float(decay[scheduler](n)) for n in range(last - warmup)], rel=1e-5)
    assert min(found[:last]) > 0 and found[last] == pytest.approx(0, abs=1e-7)


@pytest.mark.slow
@warmups
@schedulers
def test_schedules_are_those_of_transformers(scheduler, warmup, last):
    """After the warm-up those of get_<scheduler>_schedule_with_warmup; the warm-up is one update ahead of theirs."""
    torch, transformers = oracles.package("torch"), oracles.package("transformers")
    found = rates(AdamW(learning_rate=0.5, warmup_updates=warmup, scheduler=scheduler, total_updates=last))
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    schedule = getattr(transformers, f"get_{scheduler}_schedule_with_warmup")(optimizer, warmup, last)
    theirs = []
    for _ in range(last):
        theirs += schedule.get_last_lr()
        optimizer.step()
        schedule.step()

    assert found[warmup:last] == pytest.approx(theirs[warmup:], rel=1e-5)
    assert found[:warmup] == pytest.approx([*theirs[1:warmup], 0.5][:warmup], rel=1e-5)


def test_schedules_by_hand():
    """Two updates up to 0.8, then four: linear falls by quarters, cosine by (1 + cos of 0, 45, 90, 135 degrees) / 2."""
    up, half = [0.4, 0.8], 0.5 ** 0.5
    for scheduler, down in (("linear", [0.8, 0.6, 0.4, 0.2, 0]), ("constant", [0.8] * 5),
                            ("cosine", [0.8, 0.4 * (1 + half), 0.4, 0.4 * (1 - half), 0])):
        opt = AdamW(learning_rate=0.8, warmup_updates=2, scheduler=scheduler, total_updates=6)
        assert rates(opt) == pytest.approx(up + down, abs=1e-7)


def test_updates_continue_from_a_checkpoint(tmp_path):
    """Three updates, saved and restored, and three more equal six, bit for bit."""
    opt = AdamW(learning_rate=1e-2, warmup_updates=2, scheduler="cosine", total_updates=6)

    def three_more(state, first):
        for n in range(first, first + 3):
            keys = iter(jax.random.split(jax.random.key(n), 1000))
            gradient = jax.tree.map(lambda leaf: jax.random.normal(next(keys), leaf.shape), state.mu)  # noqa: B023
            state, _, rate = adamw(state, gradient, opt)
        return state, float(rate)

    half = three_more(init_state(ADAPTER), 0)[0]
    checkpoint.save(tmp_path, 3, half, seed=0, base_model="base", keep_last=3, keep_every=0)
    restored = checkpoint.restore(tmp_path, small_model.CFG, 4)[0]
    (whole, rate), (resumed, same) = (three_more(state, 3) for state in (half, restored))

    assert rate == same == pytest.approx(float(learning_rate_at(opt, 6)))
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(resumed), strict=True))
