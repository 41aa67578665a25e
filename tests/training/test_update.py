"""The packed update against gradients of plain rows, float64 counts and numbers by hand."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qwen2_jax import forward
from rl.training.advantages import advantages
from rl.training.loss import Loss
from rl.training.optimiser import AdamW, init_state
from rl.training.packing import bucket, pack_groups
from rl.training.update import group_gradient, update
from tests import small_model

PARAMS, ADAPTER, CFG = small_model.params(), small_model.adapter(), small_model.CFG
DAPO = Loss(logit_chunk=16)


def rollouts(seed=0, lengths=((3, 9, 1), (12, 5, 7))):
    """Two prompts (5 and 17 ids) with three samples each of the given lengths; sampler log-probabilities near the model's."""
    rng = np.random.default_rng(seed)
    flat = [n for group in lengths for n in group]
    ids = np.zeros((len(flat), 16), np.int32)
    for row, n in enumerate(flat):
        ids[row, :n] = rng.integers(0, small_model.VOCAB_USED, n)
    prompts = [small_model.prompt(5), small_model.prompt(17)][: len(lengths)]
    out = SimpleNamespace(prompt_ids=prompts, prompt_B=np.repeat(np.arange(len(lengths)), 3), ids_BT=ids, length_B=np.array(flat),
                          logprobs_BT=np.zeros((len(flat), 16), np.float32))
    for row, own in enumerate(plain_logprobs(ADAPTER["layers"], out)):
        out.logprobs_BT[row, : flat[row]] = own + rng.normal(0, 0.25, flat[row])  # so that both bounds clip
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
    """Logits of the used ids from the plain uncached forward pass; None is no adapter."""
    adapter = None if layers is None else {**ADAPTER, "layers": layers}
    return forward(PARAMS, adapter, tokens, mask, CFG)[:, :, : small_model.VOCAB_USED]


@jax.jit
def pulled_back(layers, tokens, mask, d_logits):
    """The gradient by the layers, from that by the logits."""
    return jax.vjp(lambda layers: plain_logits(layers, tokens, mask), layers)[1](d_logits)[0]


def distributions(logits, rollouts, temperature=1.0):
    """Each row's log-probabilities of all used ids, at the positions that predict its ids."""
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
    """The formula of the loss, row by row."""
    total, rows = 0.0, of_ids(distributions(logits, rollouts, temperature), rollouts)
    for row, (advantage, new) in enumerate(zip(advantage_B, rows, strict=True)):
        ratio = jnp.exp(new - rollouts.logprobs_BT[row, : rollouts.length_B[row]])
        total += jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - low, 1 + high) * advantage).sum()
    return -total / rollouts.length_B.sum()


def plain_gradient(out, loss_of_logits):
    """(value, gradient by the adapter's layers) of a function of the plain rows' logits."""
    rows = plain_rows(out)
    value, d_logits = jax.jit(jax.value_and_grad(loss_of_logits))(plain_logits(ADAPTER["layers"], *rows))
    return value, pulled_back(ADAPTER["layers"], *rows, d_logits)


def gradient(out, advantage_PN, loss=DAPO):
    """(loss value, gradient) as in `update`, before the optimiser."""
    groups = pack_groups(out, advantage_PN, np.ones_like(advantage_PN, bool), loss)
    n = sum(group.n_tokens for group in groups)
    parts = [group_gradient(PARAMS, ADAPTER, group, CFG, loss, small_model.VOCAB_USED) for group in groups]
    return sum(p[0] for p in parts) / n, jax.tree.map(lambda *g: sum(g) / n, *[p[2] for p in parts])


def assert_close(a, b, rtol):
    """Two gradients differ by at most rtol of the larger one's norm."""
    norm = lambda tree: np.sqrt(sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(tree)))  # noqa: E731
    assert norm(jax.tree.map(lambda x, y: x - y, a, b)) <= rtol * norm(b)


ADVANTAGES = np.array([[1.2, -0.7, -0.5], [0.3, 1.0, -1.3]], np.float32)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_packed_gradient_is_the_plain_gradient(temperature):
    """Packing, shared prompts and chunks give the loss and gradient of the formula on separate rows."""
    out, loss = rollouts(), DAPO._replace(temperature=temperature)
    want = plain_gradient(out, lambda logits: plain_loss(logits, out, ADVANTAGES.ravel(), temperature))
    got = gradient(out, ADVANTAGES, loss)

    np.testing.assert_allclose(got[0], want[0], rtol=1e-4)
    assert_close(got[1], want[1], 5e-5)


@pytest.mark.parametrize("change", [
    dict(logit_chunk=5), *[pytest.param(change, marks=pytest.mark.slow)
                           for change in (dict(logit_chunk=64), dict(remat="none"), dict(remat="dots"), dict(remat="mlp"))]])
def test_memory_settings_change_memory_only(change):
    """Chunk size and remat change neither loss nor gradient."""
    out = rollouts()
    base, changed = gradient(out, ADVANTAGES), gradient(out, ADVANTAGES, DAPO._replace(**change))

    np.testing.assert_allclose(changed[0], base[0], rtol=1e-5)
    assert_close(changed[1], base[1], 1e-5)


@pytest.mark.parametrize("at_once, kind", [(2, "dapo"), *[pytest.param(*case, marks=pytest.mark.slow) for case in (
    (1, "dapo"), (2, "grpo"), (1, "gspo"), (2, "dr_grpo"))]])
def test_a_group_in_parts_is_the_same_update(at_once, kind):
    """A few samples of a group at a time, each part with its own prompt: the same loss, counts and gradient."""
    out, loss, trained_PN = rollouts(), DAPO._replace(kind=kind), np.array([[True, False, True], [True] * 3])

    def updated(at_once):
        groups = pack_groups(out, ADVANTAGES, trained_PN, loss, at_once)
        state, metrics = update(PARAMS, init_state(ADAPTER), groups, CFG, loss, AdamW(learning_rate=0.1),
                                small_model.VOCAB_USED)
        return len(groups), state.mu, metrics

    whole, parts = updated(0), updated(at_once)
    assert (whole[0], parts[0]) == (2, 4 if at_once == 2 else 5)    # a part whose samples are all masked is left out
    assert_close(parts[1], whole[1], 1e-5)
    assert parts[2] == pytest.approx(whole[2], rel=1e-4, abs=1e-6)


def test_clip_statistics_match_a_float64_count():
    """clip_ratio counts the tokens whose clipped term is the smaller; the log-probability difference has its mean and maximum."""
    out, state = rollouts(), init_state(ADAPTER)
    groups = pack_groups(out, ADVANTAGES, np.ones((2, 3), bool), DAPO)
    _, metrics = update(PARAMS, state, groups, CFG, DAPO, AdamW(), small_model.VOCAB_USED)
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
    """Narrowing either bound changes the gradient."""
    out = rollouts()
    wide = gradient(out, ADVANTAGES, DAPO._replace(eps_low=0.99, eps_high=99.0))[1]
    for narrow in (dict(eps_low=0.99), dict(eps_high=99.0)):
        with pytest.raises(AssertionError):
            assert_close(gradient(out, ADVANTAGES, DAPO._replace(**narrow))[1], wide, 1e-3)


def test_the_denominator_is_the_whole_steps():
    """All tokens of an update weigh the same: the gradient of two groups is the token-weighted mean of theirs."""
    out = rollouts()
    both = gradient(out, ADVANTAGES)[1]
    only = [gradient(out, ADVANTAGES * keep[:, None])[1] for keep in (np.array([1, 0]), np.array([0, 1]))]
    tokens = [13, 24]

    assert_close(jax.tree.map(lambda a, b: (tokens[0] * a + tokens[1] * b) / 37, *only), both, 1e-5)


def test_groups_without_signal_are_left_out():
    """A group of equal rewards is neither packed nor counted; without any other, weights and moments stay."""
    out, reward = rollouts(), np.array([[1.0, 1.0, 1.0], [0.0, 1.5, 1.0]])
    groups = pack_groups(out, advantages(reward), np.isfinite(reward), DAPO)
    assert len(groups) == 1 and groups[0].n_tokens == 24

    state = init_state(ADAPTER)
    same, metrics = update(PARAMS, state, [], CFG, DAPO, AdamW(), small_model.VOCAB_USED)
    assert same is state and metrics["skipped_steps"] == 1 and metrics["loss"] == 0


def test_failed_grades_are_masked():
    """A NaN reward masks its sample: advantages and tokens are those of the group without it."""
    out, reward = rollouts(), np.array([[1.0, np.nan, 0.0], [1.0, 1.0, 1.0]])
    advantage = advantages(reward)
    assert advantage[0].tolist() == [1.0, 0.0, -1.0]
    group = pack_groups(out, advantage, np.isfinite(reward), DAPO)[0]
    assert group.n_tokens == 4, "lengths 3 and 1; the masked one has 9"


def test_a_gradient_that_is_not_finite_changes_nothing():
    """An infinite sampler log-probability: the step counts as skipped, weights and moments stay."""
    out = rollouts()
    out.logprobs_BT[0, 0] = -np.inf
    groups = pack_groups(out, ADVANTAGES, np.ones((2, 3), bool), DAPO)
    state = init_state(ADAPTER)
    same, metrics = update(PARAMS, state, groups, CFG, DAPO, AdamW(), small_model.VOCAB_USED)

    assert same is state and metrics["skipped_steps"] == 1
    assert metrics.keys() == update(PARAMS, state, [], CFG, DAPO, AdamW(), small_model.VOCAB_USED)[1].keys()


# ---- packing ---------------------------------------------------------------------------------------------------------


def test_buckets_are_few_and_tight():
    """Every length fits its bucket with at most a quarter of padding; up to 16,384 there are few buckets."""
    sizes = {n: bucket(n, 128) for n in range(1, 16385)}
    assert all(n <= size <= max(128, 1.26 * n) for n, size in sizes.items()) and len(set(sizes.values())) <= 30


def test_single_token_samples_pack():
    """Samples of one id are predicted from the prompt's last token, and have a gradient."""
    out = rollouts(lengths=((1, 1, 1),))
    value, grad = gradient(out, ADVANTAGES[:1])
    want = plain_gradient(out, lambda logits: plain_loss(logits, out, ADVANTAGES[0]))

    np.testing.assert_allclose(value, want[0], rtol=1e-4)
    assert_close(grad, want[1], 5e-5)
