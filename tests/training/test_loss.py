"""Every loss, the entropy bonus and the KL term: against float64 loops, finite differences, and plain rows through the model.

The loops know nothing of chunks, packing, weights or JAX: they state each loss sample by sample."""

from math import exp

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl.training.loss import Loss, denominator, entropy, kl_k3, sample_log_ratio, surrogate, through_tokens, token_weight
from rl.training.optimiser import AdamW, init_state
from rl.training.packing import pack_groups
from rl.training.update import group_gradient, update, with_base_logprobs
from tests import small_model
from tests.training.test_update import (
    ADAPTER,
    ADVANTAGES,
    CFG,
    PARAMS,
    assert_close,
    distributions,
    of_ids,
    plain_gradient,
    plain_logprobs,
    rollouts,
)

KINDS = ["dapo", "grpo", "dr_grpo", "gspo", "cispo"]
T, STEP_SAMPLES = 16, 8
BOUNDS = {"gspo": (0.02, 0.05)}  # ratios of whole samples are nearer to 1


def make_loss(kind, **more):
    low, high = BOUNDS.get(kind, (0.2, 0.28))
    return Loss(eps_low=low, eps_high=high, kind=kind, max_new_tokens=T, step_samples=STEP_SAMPLES, logit_chunk=16, **more)


def kept_within(x, low, high):
    return min(max(x, 1 - low), 1 + high)


def by_hand(new, old, advantage, kind, weights_at=None):
    """J of lists of log-probabilities, straight from the formula; cispo's weights are fixed at `weights_at`."""
    low, high = BOUNDS.get(kind, (0.2, 0.28))
    total, tokens = 0.0, sum(map(len, new))
    for n, A in enumerate(advantage):
        length = len(new[n])
        if kind == "gspo":
            s = exp(sum(new[n][t] - old[n][t] for t in range(length)) / length)
            total += min(s * A, kept_within(s, low, high) * A) / len(new)
            continue
        for t in range(length):
            rho = exp(new[n][t] - old[n][t])
            gain = min(rho * A, kept_within(rho, low, high) * A)
            if kind == "cispo":
                gain = kept_within(exp((weights_at or new)[n][t] - old[n][t]), low, high) * A * new[n][t]
            total += gain / {"dapo": tokens, "cispo": tokens, "grpo": length * len(new), "dr_grpo": T * STEP_SAMPLES}[kind]
    return total


def rows(seed=1, lengths=(3, 9, 2, 16)):
    """(new, old, advantage): log-probabilities of four samples, ratios on both sides of both bounds."""
    rng = np.random.default_rng(seed)
    new = [(-rng.exponential(1, n)).tolist() for n in lengths]
    old = [[lp - rng.normal(0, 0.3) for lp in row] for row in new]
    return new, old, [1.3, -0.4, 0.6, -1.5]


def assembled(flat, old, advantage, lengths, loss):
    """J from the functions of rl/training/loss.py, combined as in the update."""
    sample = np.repeat(np.arange(len(lengths)), lengths)
    weight = np.array([token_weight(n, loss) for n in lengths], np.float32)[sample]
    log_ratio = flat - np.concatenate(old)
    if loss.kind == "gspo":
        mean = sample_log_ratio(jax.lax.stop_gradient(log_ratio), sample, np.ones(len(sample)), len(lengths))
        log_ratio = through_tokens(mean, flat)
    gain, low, high = surrogate(flat, log_ratio, np.array(advantage)[sample], loss)
    return (gain * weight).sum() / denominator(loss, len(sample), len(lengths)), (low, high)


@pytest.mark.parametrize("kind", KINDS)
def test_value_and_gradient_by_finite_differences(kind):
    """J equals the loops', and its gradient by each log-probability equals their difference quotient."""
    new, old, advantage = rows()
    lengths, loss = [len(row) for row in new], make_loss(kind)
    flat = jnp.asarray(np.concatenate(new), jnp.float32)
    (value, (low, high)), gradient = jax.value_and_grad(assembled, has_aux=True)(flat, old, advantage, lengths, loss)
    quotients, h = [], 1e-6
    for n, row in enumerate(new):
        for t in range(len(row)):
            up, down = ([[lp + by * ((m, u) == (n, t)) for u, lp in enumerate(r)] for m, r in enumerate(new)] for by in (h, -h))
            quotients.append((by_hand(up, old, advantage, kind, new) - by_hand(down, old, advantage, kind, new)) / (2 * h))

    assert low.any() and high.any(), "the bounds must clip, or this shows nothing"
    np.testing.assert_allclose(value, by_hand(new, old, advantage, kind), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient, quotients, atol=2e-6)


def test_bounds_clip_where_they_should():
    """The min clips only what would move further: below for A < 0, above for A > 0; cispo clips the weight either way."""
    log_ratio, advantage = np.log([0.5, 0.5, 2.0, 2.0, 1.0]), np.array([1.0, -1, 1, -1, 1])
    _, low, high = surrogate(np.zeros(5), log_ratio, advantage, Loss())
    assert low.tolist() == [0, 1, 0, 0, 0] and high.tolist() == [0, 0, 1, 0, 0]
    gain, low, high = surrogate(np.full(5, -2.0), log_ratio, advantage, Loss(kind="cispo"))
    assert low.tolist() == [1, 1, 0, 0, 0] and high.tolist() == [0, 0, 1, 1, 0]
    np.testing.assert_allclose(gain, [-1.6, 1.6, -2.56, 2.56, -2.0], rtol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_entropy_is_the_sum_over_the_vocabulary_in_use(temperature):
    """-sum p log p in float64; unused ids, whose logits are hugely negative, add nothing to value or gradient."""
    logits = np.random.default_rng(0).normal(0, 3, (5, 20)).astype(np.float32)
    ok = np.arange(20) < 17
    masked = jnp.where(ok, logits, float(np.finfo(np.float32).min)) / temperature
    p = np.exp(logits[:, :17].astype(np.float64) / temperature)
    p /= p.sum(1, keepdims=True)
    want = -(p * np.log(p)).sum(1)
    gradient = jax.grad(lambda x: entropy(x, ok).sum())(masked)

    np.testing.assert_allclose(entropy(masked, ok), want, rtol=1e-5)
    np.testing.assert_allclose(gradient[:, :17], -p * (np.log(p) + want[:, None]), atol=1e-5)
    assert not gradient[:, 17:].any()


def test_k3_is_never_negative_and_unbiased():
    """Its expectation is KL(p || q); at p = q it is 0 with gradient 0; its derivative by logp is 1 - q / p."""
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(12)), rng.dirichlet(np.ones(12))
    k3 = np.asarray(kl_k3(jnp.log(p), jnp.log(q)))

    assert (k3 >= 0).all()
    assert (p * k3).sum() == pytest.approx((p * np.log(p / q)).sum(), rel=1e-5)
    assert kl_k3(-1.5, -1.5) == 0 and jax.grad(kl_k3)(-1.5, -1.5) == 0
    np.testing.assert_allclose(jax.vmap(jax.grad(kl_k3))(jnp.log(p), jnp.log(q)), 1 - q / p, rtol=1e-4, atol=1e-6)


# ---- through the model -----------------------------------------------------------------------------------------------


def packed(out, loss, advantage=ADVANTAGES, trained=None):
    groups = pack_groups(out, advantage, np.ones((2, 3), bool) if trained is None else trained, loss)
    if loss.kl_beta:
        groups = [with_base_logprobs(PARAMS, g, CFG, loss, small_model.VOCAB_USED) for g in groups]
    return groups


def gradient(out, loss, **more):
    """(loss value, gradient) as in `update`, before the optimiser."""
    groups = packed(out, loss, **more)
    divisor = denominator(loss, sum(g.n_tokens for g in groups), sum(g.n_samples for g in groups))
    parts = [group_gradient(PARAMS, ADAPTER, g, CFG, loss, small_model.VOCAB_USED) for g in groups]
    return sum(p[0] for p in parts) / divisor, jax.tree.map(lambda *g: sum(g) / divisor, *[p[2] for p in parts])


def averaged(values, lengths, kind):
    """Per-token values of rows, averaged as this loss does."""
    if kind in ("grpo", "gspo"):
        return sum(value.sum() / n for value, n in zip(values, lengths, strict=True)) / len(lengths)
    return sum(value.sum() for value in values) / (T * STEP_SAMPLES if kind == "dr_grpo" else sum(lengths))


def plain_loss(logits, out, kind, temperature=1.0, bonus=0.0, beta=0.0):
    """The whole formula from the logits of separate rows, for JAX to differentiate."""
    low, high = BOUNDS.get(kind, (0.2, 0.28))
    lengths, rows = out.length_B.tolist(), distributions(logits, out, temperature)
    base, gains = plain_logprobs(None, out, temperature), []
    for row, (A, new) in enumerate(zip(ADVANTAGES.ravel(), of_ids(rows, out), strict=True)):
        rho = jnp.exp(new - out.logprobs_BT[row, : lengths[row]])
        if kind == "gspo":
            rho = jnp.full(lengths[row], jnp.exp(jnp.log(rho).mean()))
        clipped = jnp.clip(rho, 1 - low, 1 + high)
        gain = jax.lax.stop_gradient(clipped) * A * new if kind == "cispo" else jnp.minimum(rho * A, clipped * A)
        d = base[row] - new
        gains.append(gain - bonus * (jnp.exp(rows[row]) * rows[row]).sum(-1) - beta * (jnp.exp(d) - d - 1))
    return -averaged(gains, lengths, kind)


@pytest.mark.parametrize("kind, more", [
    *[pytest.param(kind, {}, marks=pytest.mark.slow) for kind in KINDS[1:]],
    pytest.param("dapo", dict(entropy_bonus=0.3), marks=pytest.mark.slow),
    pytest.param("dapo", dict(kl_beta=0.5), marks=pytest.mark.slow),
    pytest.param("gspo", dict(entropy_bonus=0.3, kl_beta=0.5, temperature=0.7), marks=pytest.mark.slow)])
def test_packed_gradient_is_the_plain_gradient(kind, more):
    """Packing, sharing, chunks and the manual chain rule give the loss and gradient of the formula on separate rows."""
    out = rollouts()
    got = gradient(out, make_loss(kind, **more))
    terms = [more.get(name, default) for name, default in (("temperature", 1.0), ("entropy_bonus", 0.0), ("kl_beta", 0.0))]
    want = plain_gradient(out, lambda logits: plain_loss(logits, out, kind, *terms))

    np.testing.assert_allclose(got[0], want[0], rtol=2e-4)
    assert_close(got[1], want[1], 1e-4)


@pytest.mark.parametrize("kind", [pytest.param("grpo", marks=pytest.mark.slow), "gspo"])
def test_chunks_change_memory_only(kind):
    """Chunks that split samples change neither loss nor gradient, with all terms on."""
    out, loss = rollouts(), make_loss(kind, entropy_bonus=0.3, kl_beta=0.5)
    one, other = (gradient(out, loss._replace(logit_chunk=size)) for size in (5, 64))

    np.testing.assert_allclose(one[0], other[0], rtol=1e-5)
    assert_close(one[1], other[1], 1e-5)


def test_at_ratio_1_the_kind_of_ratio_does_not_matter():
    """Before the first update cispo has dapo's gradient and gspo has grpo's."""
    out = rollouts()
    for row, own in enumerate(plain_logprobs(ADAPTER["layers"], out)):
        out.logprobs_BT[row, : len(own)] = own
    wide = dict(eps_low=0.2, eps_high=0.28)
    grads = {kind: gradient(out, make_loss(kind)._replace(**wide))[1] for kind in KINDS}

    assert_close(grads["cispo"], grads["dapo"], 1e-4)
    assert_close(grads["gspo"], grads["grpo"], 1e-4)
    with pytest.raises(AssertionError):
        assert_close(grads["grpo"], grads["dapo"], 1e-2)


@pytest.mark.parametrize("kind, shares", [("grpo", (0.5, 0.5)), ("gspo", (0.5, 0.5)), ("cispo", (13 / 37, 24 / 37)),
                                          ("dr_grpo", (1, 1))])
def test_the_denominator_is_the_whole_steps(kind, shares):
    """The gradient of two groups is the mean of the two, by samples or by tokens; with a constant divisor, their sum."""
    out, loss = rollouts(), make_loss(kind)
    both = gradient(out, loss)[1]
    only = [gradient(out, loss, advantage=ADVANTAGES * keep[:, None])[1] for keep in (np.array([1, 0]), np.array([0, 1]))]

    assert_close(jax.tree.map(lambda a, b: shares[0] * a + shares[1] * b, *only), both, 1e-5)


def test_a_masked_sample_is_not_counted():
    """Every divisor but dr_grpo's leaves it and its tokens out; the packed shapes stay, so nothing is compiled again."""
    out, trained = rollouts(), np.array([[True, False, True], [True, True, True]])
    for kind in KINDS:
        whole, less = packed(out, make_loss(kind)), packed(out, make_loss(kind), trained=trained)
        assert (less[0].n_tokens, less[0].n_samples, less[1].n_tokens) == (4, 2, 24)
        assert less[0].layout.index_NT.shape == whole[0].layout.index_NT.shape
    other = rollouts()
    other.logprobs_BT[1] += 5  # of the masked sample: must not matter
    one, same = (gradient(batch, make_loss("gspo"), trained=trained)[1] for batch in (out, other))
    assert_close(same, one, 1e-6)


def test_a_step_of_nothing_but_masked_samples_is_skipped():
    """No group is left, so weights and moments stay, with a KL term too."""
    for loss in (make_loss("dapo"), make_loss("dapo", kl_beta=0.1)):
        groups = pack_groups(rollouts(), ADVANTAGES, np.zeros((2, 3), bool), loss)
        state = init_state(ADAPTER)
        same, metrics = update(PARAMS, state, groups, CFG, loss, AdamW(), small_model.VOCAB_USED)
        assert groups == [] and same is state and metrics["skipped_steps"] == 1


@pytest.mark.parametrize("more", [dict(entropy_bonus=0.1), dict(kl_beta=0.1)])
def test_groups_without_signal_are_trained_on_for_the_bonus(more):
    """With all advantages 0 there is a gradient only with an entropy bonus or a KL term."""
    out, none = rollouts(), np.zeros_like(ADVANTAGES)

    assert pack_groups(out, none, np.ones((2, 3), bool), make_loss("dapo")) == []
    value, found = gradient(out, make_loss("dapo", **more), advantage=none)
    assert value != 0 and all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(found))


def test_kl_is_measured_from_the_model_without_its_adapter():
    """The metric is the mean k3 over trained tokens in float64, and 0 for an adapter of scale 0."""
    out, loss = rollouts(), make_loss("dapo", kl_beta=0.1)
    base, new = plain_logprobs(None, out), plain_logprobs(ADAPTER["layers"], out)
    d = np.concatenate([np.asarray(b, np.float64) - np.asarray(n) for b, n in zip(base, new, strict=True)])
    step = lambda adapter, loss=loss: update(PARAMS, init_state(adapter), packed(out, loss), CFG, loss,  # noqa: E731
                                             AdamW(), small_model.VOCAB_USED)[1]
    idle = {**ADAPTER, "scale": jnp.float32(0)}

    assert step(ADAPTER)["kl"] == pytest.approx(np.mean(np.exp(d) - d - 1), rel=1e-3)
    assert step(idle)["kl"] == pytest.approx(0, abs=1e-9)
    assert "kl" not in step(ADAPTER, make_loss("dapo"))


@pytest.mark.parametrize("kind", ["gspo", "cispo"])
def test_clip_statistics_match_a_count_in_float64(kind):
    """Shares of trained tokens: gspo counts all tokens of a clipped sample, cispo wherever the weight is clipped."""
    out, loss, advantage = rollouts(), make_loss(kind), -ADVANTAGES
    _, metrics = update(PARAMS, init_state(ADAPTER), packed(out, loss, advantage), CFG, loss, AdamW(), small_model.VOCAB_USED)
    low = high = 0
    for row, (A, new) in enumerate(zip(advantage.ravel(), plain_logprobs(ADAPTER["layers"], out), strict=True)):
        ratio = np.asarray(new, np.float64) - out.logprobs_BT[row, : out.length_B[row]]
        ratio = np.exp(np.full_like(ratio, ratio.mean()) if kind == "gspo" else ratio)
        low += ((ratio < 1 - loss.eps_low) & (A < 0 or kind == "cispo")).sum()
        high += ((ratio > 1 + loss.eps_high) & (A > 0 or kind == "cispo")).sum()

    assert low + high > 0
    assert metrics["clip_ratio/low_mean"] == pytest.approx(low / 37)
    assert metrics["clip_ratio/high_mean"] == pytest.approx(high / 37)
