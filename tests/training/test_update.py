"""The packed update and the optimisers against hand-computed numbers, plain per-row gradients, float64 loops, optax and
transformers."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from qwen2_jax import forward
from rl.training import checkpoint, lora
from rl.training.advantages import advantages
from rl.training.loss import Loss
from rl.training.optimiser import SGD, AdamW, adamw, init_state, rate_of, sgd
from rl.training.packing import bucket, pack_groups
from rl.training.update import group_gradient, update
from tests import small_model

PARAMS, ADAPTER, CFG = small_model.params(), small_model.adapter(), small_model.CFG
OBJECTIVE = Loss(logit_chunk=16)


def rollouts(seed=0, lengths=((3, 9, 1), (12, 5, 7))):
    """Two prompts (5 and 17 ids) with three samples each of the given lengths; sampler logprobs near the model's own."""
    rng = np.random.default_rng(seed)
    flat = [n for group in lengths for n in group]
    ids = np.zeros((len(flat), 16), np.int32)
    for row, n in enumerate(flat):
        ids[row, :n] = rng.integers(0, small_model.VOCAB_USED, n)
    prompts = [small_model.prompt(5), small_model.prompt(17)][: len(lengths)]
    out = SimpleNamespace(prompt_ids=prompts, prompt_B=np.repeat(np.arange(len(lengths)), 3), ids_BT=ids, length_B=np.array(flat),
                          logprobs_BT=np.zeros((len(flat), 16), np.float32))
    for row, own in enumerate(plain_logprobs(ADAPTER["layers"], out)):
        out.logprobs_BT[row, : flat[row]] = own + rng.normal(0, 0.25, flat[row])  # so that both clip bounds act
    return out


def plain_rows(rollouts):
    """(tokens, mask) of prompts and samples as separate padded rows: no packing, no sharing."""
    rows = [np.concatenate([rollouts.prompt_ids[p], ids[:n]]) for p, ids, n in
            zip(rollouts.prompt_B, rollouts.ids_BT, rollouts.length_B, strict=True)]
    tokens, mask = np.zeros((len(rows), 40), np.int32), np.zeros((len(rows), 40), bool)
    for row, ids in enumerate(rows):
        tokens[row, : len(ids)], mask[row, : len(ids)] = ids, True
    return tokens, mask


@jax.jit
def plain_logits(layers, tokens, mask):
    """Logits of the vocabulary in use from the plain uncached forward; adapter off where layers is None."""
    adapter = None if layers is None else {**ADAPTER, "layers": layers}
    return forward(PARAMS, adapter, tokens, mask, CFG)[:, :, : small_model.VOCAB_USED]


@jax.jit
def pulled_back(layers, tokens, mask, d_logits):
    """The gradient by the layers that belongs to one by the logits."""
    return jax.vjp(lambda layers: plain_logits(layers, tokens, mask), layers)[1](d_logits)[0]


def distributions(logits, rollouts, temperature=1.0):
    """Each row's log-probabilities of all ids in use, at the positions that sampled its ids."""
    starts = [len(rollouts.prompt_ids[p]) - 1 for p in rollouts.prompt_B]
    return [jax.nn.log_softmax(logits[b, start : start + n] / temperature)
            for b, (start, n) in enumerate(zip(starts, rollouts.length_B, strict=True))]


def of_ids(rows, rollouts):
    """The log-probabilities of the sampled ids among `distributions`."""
    return [row[np.arange(len(row)), rollouts.ids_BT[b, : len(row)]] for b, row in enumerate(rows)]


def plain_logprobs(layers, rollouts, temperature=1.0):
    """Each row's log-probabilities of its sampled ids."""
    return of_ids(distributions(plain_logits(layers, *plain_rows(rollouts)), rollouts, temperature), rollouts)


def plain_loss(logits, rollouts, advantage_B, temperature=1.0, low=0.2, high=0.28):
    """The objective as its formula reads, row by row, over the tokens of rows with an advantage in a group with signal."""
    total, rows = 0.0, of_ids(distributions(logits, rollouts, temperature), rollouts)
    for row, (advantage, new) in enumerate(zip(advantage_B, rows, strict=True)):
        ratio = jnp.exp(new - rollouts.logprobs_BT[row, : rollouts.length_B[row]])
        total += jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - low, 1 + high) * advantage).sum()
    return -total / rollouts.length_B.sum()


def plain_gradient(out, loss_of_logits):
    """(loss, gradient by the adapter's layers) of a function of the plain rows' logits."""
    rows = plain_rows(out)
    loss, d_logits = jax.value_and_grad(loss_of_logits)(plain_logits(ADAPTER["layers"], *rows))
    return loss, pulled_back(ADAPTER["layers"], *rows, d_logits)


def gradient(out, advantage_PN, objective=OBJECTIVE):
    """(loss, gradient) as `update` makes them, before the optimiser."""
    groups = pack_groups(out, advantage_PN, np.ones_like(advantage_PN, bool), objective)
    n = sum(group.n_tokens for group in groups)
    parts = [group_gradient(PARAMS, ADAPTER, group, CFG, objective, small_model.VOCAB_USED) for group in groups]
    return sum(p[0] for p in parts) / n, jax.tree.map(lambda *g: sum(g) / n, *[p[2] for p in parts])


def assert_close(a, b, rtol):
    """Two gradients differ by at most rtol of the larger one's norm."""
    norm = lambda tree: np.sqrt(sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(tree)))  # noqa: E731
    assert norm(jax.tree.map(lambda x, y: x - y, a, b)) <= rtol * norm(b)


ADVANTAGES = np.array([[1.2, -0.7, -0.5], [0.3, 1.0, -1.3]], np.float32)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_packed_gradient_is_the_plain_gradient(temperature):
    """Packing, prompt sharing and chunking give loss and gradient of the formula on separate, unshared rows."""
    out, objective = rollouts(), OBJECTIVE._replace(temperature=temperature)
    want = plain_gradient(out, lambda logits: plain_loss(logits, out, ADVANTAGES.ravel(), temperature))
    got = gradient(out, ADVANTAGES, objective)

    np.testing.assert_allclose(got[0], want[0], rtol=1e-4)
    assert_close(got[1], want[1], 5e-5)


@pytest.mark.parametrize("change", [
    dict(logit_chunk=5), *[pytest.param(change, marks=pytest.mark.slow)
                           for change in (dict(logit_chunk=64), dict(remat="none"), dict(remat="dots"), dict(remat="mlp"))]])
def test_memory_settings_change_memory_only(change):
    """Chunk size and remat leave loss and gradient alone."""
    out = rollouts()
    base, changed = gradient(out, ADVANTAGES), gradient(out, ADVANTAGES, OBJECTIVE._replace(**change))

    np.testing.assert_allclose(changed[0], base[0], rtol=1e-5)
    assert_close(changed[1], base[1], 1e-5)


@pytest.mark.parametrize("at_once, loss", [(2, "dapo"), *[pytest.param(*case, marks=pytest.mark.slow) for case in (
    (1, "dapo"), (2, "grpo"), (1, "gspo"), (2, "dr_grpo"))]])
def test_a_group_in_parts_is_the_same_update(at_once, loss):
    """So many samples of a group at a time, each part with a prompt of its own: the same loss, counts and new adapter."""
    out, objective, trained_PN = rollouts(), OBJECTIVE._replace(loss=loss), np.array([[True, False, True], [True] * 3])

    def updated(at_once):
        groups = pack_groups(out, ADVANTAGES, trained_PN, objective, at_once)
        state, metrics = update(PARAMS, init_state(ADAPTER), groups, CFG, objective, AdamW(learning_rate=0.1),
                                     small_model.VOCAB_USED)
        return len(groups), state.mu, metrics

    whole, parts = updated(0), updated(at_once)
    assert (whole[0], parts[0]) == (2, 4 if at_once == 2 else 5)    # a part of nothing but left out samples is left out
    assert_close(parts[1], whole[1], 1e-5)
    assert parts[2] == pytest.approx(whole[2], rel=1e-4, abs=1e-6)


def test_clip_statistics_match_a_float64_count():
    """clip_ratio counts the tokens at which the bound is the smaller term; the logprob difference is its mean and maximum."""
    out, state = rollouts(), init_state(ADAPTER)
    groups = pack_groups(out, ADVANTAGES, np.ones((2, 3), bool), OBJECTIVE)
    _, metrics = update(PARAMS, state, groups, CFG, OBJECTIVE, AdamW(), small_model.VOCAB_USED)
    low, high, differences = 0, 0, []
    for row, (advantage, new) in enumerate(zip(ADVANTAGES.ravel(), plain_logprobs(ADAPTER["layers"], out), strict=True)):
        new, old = np.asarray(new, np.float64), out.logprobs_BT[row, : out.length_B[row]]
        low += ((np.exp(new - old) < 0.8) & (advantage < 0)).sum()
        high += ((np.exp(new - old) > 1.28) & (advantage > 0)).sum()
        differences += abs(new - old).tolist()

    assert low > 0 and high > 0
    assert metrics["clip_ratio/low_mean"] == pytest.approx(low / 37)
    assert metrics["clip_ratio/high_mean"] == pytest.approx(high / 37)
    assert metrics["sampling/sampling_logp_difference/mean"] == pytest.approx(np.mean(differences), rel=1e-3)
    assert metrics["sampling/sampling_logp_difference/max"] == pytest.approx(np.max(differences), rel=1e-3)
    assert metrics["trained_tokens"] == 37


def test_clipping_acts():
    """Wide bounds give another gradient than narrow ones, and each bound acts by itself."""
    out = rollouts()
    wide = gradient(out, ADVANTAGES, OBJECTIVE._replace(eps_low=0.99, eps_high=99.0))[1]
    for narrow in (dict(eps_low=0.99), dict(eps_high=99.0)):
        with pytest.raises(AssertionError):
            assert_close(gradient(out, ADVANTAGES, OBJECTIVE._replace(**narrow))[1], wide, 1e-3)


def test_the_denominator_is_the_whole_steps():
    """Two groups in one update weigh their tokens alike: their sum is the token-weighted mean of the groups alone."""
    out = rollouts()
    both = gradient(out, ADVANTAGES)[1]
    only = [gradient(out, ADVANTAGES * keep[:, None])[1] for keep in (np.array([1, 0]), np.array([0, 1]))]
    tokens = [13, 24]

    assert_close(jax.tree.map(lambda a, b: (tokens[0] * a + tokens[1] * b) / 37, *only), both, 1e-5)


def test_groups_without_signal_are_left_out():
    """A group of equal rewards is not packed, and its tokens are not counted; alone it leaves state and moments as they were."""
    out, reward = rollouts(), np.array([[1.0, 1.0, 1.0], [0.0, 1.5, 1.0]])
    groups = pack_groups(out, advantages(reward), np.isfinite(reward), OBJECTIVE)
    assert len(groups) == 1 and groups[0].n_tokens == 24

    state = init_state(ADAPTER)
    same, metrics = update(PARAMS, state, [], CFG, OBJECTIVE, AdamW(), small_model.VOCAB_USED)
    assert same is state and metrics["skipped_steps"] == 1 and metrics["loss"] == 0


def test_failed_grades_are_masked():
    """A NaN reward takes its sample out: advantages of the rest, tokens and gradient are those of the group without it."""
    out, reward = rollouts(), np.array([[1.0, np.nan, 0.0], [1.0, 1.0, 1.0]])
    advantage = advantages(reward)
    assert advantage[0].tolist() == [1.0, 0.0, -1.0]
    group = pack_groups(out, advantage, np.isfinite(reward), OBJECTIVE)[0]
    assert group.n_tokens == 4, "lengths 3 and 1; the masked one has 9"


def test_a_gradient_that_is_not_finite_changes_nothing():
    """An infinite sampler logprob makes the step count as skipped, weights and moments untouched."""
    out = rollouts()
    out.logprobs_BT[0, 0] = -np.inf
    groups = pack_groups(out, ADVANTAGES, np.ones((2, 3), bool), OBJECTIVE)
    state = init_state(ADAPTER)
    same, metrics = update(PARAMS, state, groups, CFG, OBJECTIVE, AdamW(), small_model.VOCAB_USED)

    assert same is state and metrics["skipped_steps"] == 1
    assert metrics.keys() == update(PARAMS, state, [], CFG, OBJECTIVE, AdamW(), small_model.VOCAB_USED)[1].keys()


def test_an_update_moves_the_sampler():
    """After one update of a new adapter b is no longer zero, a follows in the second, and the model's logits change."""
    state = init_state(lora.init(jax.random.key(3), CFG, 4, 8.0))
    groups = pack_groups(rollouts(), ADVANTAGES, np.ones((2, 3), bool), OBJECTIVE)
    step = lambda s: update(PARAMS, s, groups, CFG, OBJECTIVE, AdamW(1e-2), small_model.VOCAB_USED)[0]  # noqa: E731
    one = step(state)
    two = step(one)
    q = [s.adapter["layers"][0]["self_attn"]["q_proj"] for s in (state, one, two)]
    tokens = jnp.asarray([small_model.prompt(40)])
    logits = [forward(PARAMS, s.adapter, tokens, jnp.ones_like(tokens, bool), CFG) for s in (state, one)]

    assert not q[0]["b"].any() and q[1]["b"].all() and (q[2]["a"] != q[1]["a"]).any()
    assert float(abs(logits[1] - logits[0]).max()) > 1e-3


# ---- packing ---------------------------------------------------------------------------------------------------------


def test_buckets_are_few_and_tight():
    """Every length fits its bucket with at most a quarter of padding; there are few buckets up to 16,384."""
    sizes = {n: bucket(n, 128) for n in range(1, 16385)}
    assert all(n <= size <= max(128, 1.26 * n) for n, size in sizes.items()) and len(set(sizes.values())) <= 30


def test_single_token_samples_pack():
    """Samples that stop at once feed nothing, predict one id each from the prompt's last token, and have a gradient."""
    out = rollouts(lengths=((1, 1, 1),))
    loss, grad = gradient(out, ADVANTAGES[:1])
    want = plain_gradient(out, lambda logits: plain_loss(logits, out, ADVANTAGES[0]))

    np.testing.assert_allclose(loss, want[0], rtol=1e-4)
    assert_close(grad, want[1], 5e-5)


# ---- optimiser -------------------------------------------------------------------------------------------------------


def optax_rate(opt):
    """The learning rate from optax's parts, which count the updates made: our warm-up, then one of their schedules."""
    rate, left = opt.learning_rate, opt.all_updates - opt.warmup_steps
    then = {"constant": optax.constant_schedule, "linear": lambda rate: optax.linear_schedule(rate, 0.0, left),
            "cosine": lambda rate: optax.cosine_decay_schedule(rate, left)}[opt.scheduler](rate)
    return optax.join_schedules([lambda n: rate * (n + 1) / max(1, opt.warmup_steps), then], [opt.warmup_steps])


def assert_steps_are_optaxs(step, opt, *parts):
    """Eight updates by `step` end where optax's clip_by_global_norm and these parts do; returns our last state."""
    clip = [optax.clip_by_global_norm(opt.max_grad_norm)] if opt.max_grad_norm else []
    rate, oracle = optax_rate(opt), optax.chain(*clip, *parts)
    layers = ADAPTER["layers"]
    theirs, their_state, ours = layers, oracle.init(layers), init_state(ADAPTER)
    for n in range(8):
        keys = iter(jax.random.split(jax.random.key(n), 1000))
        grads = jax.tree.map(lambda leaf: jax.random.normal(next(keys), leaf.shape) * 0.1, layers)  # noqa: B023
        updates, their_state = oracle.update(grads, their_state, theirs)
        theirs = optax.apply_updates(theirs, updates)
        ours, norm, used = step(ours, grads, opt)

        np.testing.assert_allclose(norm, optax.tree.norm(grads), rtol=1e-5)
        np.testing.assert_allclose(used, rate(n), rtol=1e-5)
    for a, b in zip(jax.tree.leaves(ours.adapter["layers"]), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)
    return ours


@pytest.mark.parametrize("opt", [AdamW(1e-2, 3, weight_decay=0.1, scheduler="cosine", all_updates=10), *[
    pytest.param(opt, marks=pytest.mark.slow) for opt in (
        AdamW(1e-2, 3, 0.9, 0.99, 1e-8, 0.1, 0.5), AdamW(3e-3, 0, 0.8, 0.999, 1e-6, 0.0, 0.0),
        AdamW(1e-2, 2, scheduler="linear", all_updates=8))]])
def test_adamw_is_optax(opt):
    """Clipping, adamw and the schedule are optax's, but for the warm-up that is ours."""
    assert_steps_are_optaxs(adamw, opt, optax.adamw(optax_rate(opt), opt.beta1, opt.beta2, opt.eps,
                                                         weight_decay=opt.weight_decay))


@pytest.mark.parametrize("opt", [SGD(0.5, 3, 0.1, 0.5), SGD(0.1, 0, 0.0, 0.0), SGD(0.2, 0, 0.3, 1.0, "linear", 8),
                                 SGD(0.2, 2, 0.0, 2.0, "cosine", 8)])
def test_sgd_is_optax(opt):
    """Clipping, sgd without momentum and decay that is decoupled; the moments, which a checkpoint holds, stay zeros."""
    state = assert_steps_are_optaxs(sgd, opt, optax.add_decayed_weights(opt.weight_decay), optax.sgd(optax_rate(opt)))

    assert int(state.updates) == 8 and jax.tree.structure(state) == jax.tree.structure(init_state(ADAPTER))
    assert not any(leaf.any() for leaf in jax.tree.leaves((state.mu, state.nu)))


def test_sgd_by_hand():
    """(3, 4) is cut to (0.6, 0.8); rate 0.5 and decay 0.1 take (2, -1) to (2 - 0.5 (0.6 + 0.2), -1 - 0.5 (0.8 - 0.1))."""
    state = init_state({"layers": [jnp.array([2.0, -1.0])], "scale": jnp.float32(1)})
    new, norm, rate = sgd(state, [jnp.array([3.0, 4.0])], SGD(0.5, 0, 0.1))

    np.testing.assert_allclose(new.adapter["layers"][0], [1.6, -1.35], rtol=1e-6)
    assert (float(norm), float(rate), float(new.adapter["scale"])) == (5.0, 0.5, 1.0)


def test_an_update_is_by_the_optimiser_that_is_asked_for():
    """With SGD the adapter moves against the gradient, by the rate times as far."""
    out = rollouts()
    groups = pack_groups(out, ADVANTAGES, np.ones((2, 3), bool), OBJECTIVE)
    state, metrics = update(PARAMS, init_state(ADAPTER), groups, CFG, OBJECTIVE, SGD(0.25, 0, 0.0, 0.0),
                                 small_model.VOCAB_USED)

    moved = jax.tree.map(lambda new, old: (old - new) / 0.25, state.adapter["layers"], ADAPTER["layers"])
    assert_close(moved, gradient(out, ADVANTAGES)[1], 1e-4)
    assert metrics["learning_rate"] == 0.25


def rates(opt):
    """The rate of each of the updates, and of one more."""
    return [float(rate_of(opt, n)) for n in range(1, opt.all_updates + 2)]


@pytest.mark.parametrize("warmup, last", [(0, 7), (1, 2), (3, 10), (5, 6)])
@pytest.mark.parametrize("scheduler", ["linear", "cosine"])
def test_schedules_are_those_of_transformers_and_optax(scheduler, warmup, last):
    """get_<scheduler>_schedule_with_warmup and optax's with warm-up give the rate of each update after the warm-up, and the
    warm-up one update later; no update has rate 0, the one after the last would."""
    import torch
    import transformers
    found = rates(SGD(0.5, warmup, scheduler=scheduler, all_updates=last))
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    schedule = getattr(transformers, f"get_{scheduler}_schedule_with_warmup")(optimizer, warmup, last)
    theirs = []
    for _ in range(last):
        theirs += schedule.get_last_lr()
        optimizer.step()
        schedule.step()
    decay = {"linear": optax.linear_schedule(0.5, 0.0, last - warmup), "cosine": optax.cosine_decay_schedule(0.5, last - warmup)}

    assert found[warmup:last] == pytest.approx(theirs[warmup:], rel=1e-5)
    assert found[warmup:last] == pytest.approx([float(decay[scheduler](n)) for n in range(last - warmup)], rel=1e-5)
    assert found[:warmup] == pytest.approx([*theirs[1:warmup], 0.5][:warmup], rel=1e-5)
    assert min(found[:last]) > 0 and found[last] == pytest.approx(0, abs=1e-7)


def test_schedules_by_hand():
    """Two updates up to 0.8, four down: linear by quarters; cosine (1 + cos of 0, 45, 90, 135 degrees) / 2; constant stays."""
    up, half = [0.4, 0.8], 0.5 ** 0.5
    for scheduler, down in (("linear", [0.8, 0.6, 0.4, 0.2, 0]), ("constant", [0.8] * 5),
                            ("cosine", [0.8, 0.4 * (1 + half), 0.4, 0.4 * (1 - half), 0])):
        assert rates(AdamW(0.8, 2, scheduler=scheduler, all_updates=6)) == pytest.approx(up + down, abs=1e-7)


@pytest.mark.parametrize("step, opt", [(adamw, AdamW(1e-2, 2, scheduler="cosine", all_updates=6)),
                                       (sgd, SGD(0.5, 1, scheduler="linear", all_updates=6))], ids=["adamw", "sgd"])
def test_updates_go_on_from_a_checkpoint(tmp_path, step, opt):
    """Three updates, saved and restored, and three more are six, bit for bit: what a schedule needs to know is in the state."""
    def on(state, first):
        for n in range(first, first + 3):
            keys = iter(jax.random.split(jax.random.key(n), 1000))
            gradient = jax.tree.map(lambda leaf: jax.random.normal(next(keys), leaf.shape), state.mu)  # noqa: B023
            state, _, rate = step(state, gradient, opt)
        return state, float(rate)

    half = on(init_state(ADAPTER), 0)[0]
    checkpoint.save(tmp_path, 3, half, 0, "base", 3, 0)
    (whole, rate), (resumed, same) = on(half, 3), on(checkpoint.restore(tmp_path, CFG, 4)[0], 3)

    assert rate == same == pytest.approx(float(rate_of(opt, 6)))
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(resumed), strict=True))
