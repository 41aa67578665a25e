"""Every loss, the entropy bonus and the KL term: float64 loops and finite differences; through the model against plain rows.

The loops know nothing of chunks, packing, weights or JAX: they say what each objective is, sample by sample."""

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

LOSSES = ["dapo", "grpo", "dr_grpo", "gspo", "cispo"]
T, STEP_SAMPLES = 16, 8
BOUNDS = {"gspo": (0.02, 0.05)}  # of whole samples, whose ratios are nearer to 1


def objective_of(loss, **more):
    low, high = BOUNDS.get(loss, (0.2, 0.28))
    return Loss(low, high, loss=loss, longest=T, step_samples=STEP_SAMPLES, logit_chunk=16, **more)


def kept_within(x, low, high):
    return min(max(x, 1 - low), 1 + high)


def by_hand(new, old, advantage, loss, weights_at=None):
    """J of lists of log-probabilities, as its formula reads; cispo's weights are those at `weights_at`, held fixed."""
    low, high = BOUNDS.get(loss, (0.2, 0.28))
    total, tokens = 0.0, sum(map(len, new))
    for n, A in enumerate(advantage):
        length = len(new[n])
        if loss == "gspo":
            s = exp(sum(new[n][t] - old[n][t] for t in range(length)) / length)
            total += min(s * A, kept_within(s, low, high) * A) / len(new)
            continue
        for t in range(length):
            rho = exp(new[n][t] - old[n][t])
            gain = min(rho * A, kept_within(rho, low, high) * A)
            if loss == "cispo":
                gain = kept_within(exp((weights_at or new)[n][t] - old[n][t]), low, high) * A * new[n][t]
            total += gain / {"dapo": tokens, "cispo": tokens, "grpo": length * len(new), "dr_grpo": T * STEP_SAMPLES}[loss]
    return total


def rows(seed=1, lengths=(3, 9, 2, 16)):
    """(new, old, advantage): log-probabilities of four samples, ratios on both sides of both bounds."""
    rng = np.random.default_rng(seed)
    new = [(-rng.exponential(1, n)).tolist() for n in lengths]
    old = [[lp - rng.normal(0, 0.3) for lp in row] for row in new]
    return new, old, [1.3, -0.4, 0.6, -1.5]


def assembled(flat, old, advantage, lengths, objective):
    """J from the functions of rl/training/loss.py, as the update puts them together."""
    sample = np.repeat(np.arange(len(lengths)), lengths)
    weight = np.array([token_weight(n, objective) for n in lengths], np.float32)[sample]
    log_ratio = flat - np.concatenate(old)
    if objective.loss == "gspo":
        mean = sample_log_ratio(jax.lax.stop_gradient(log_ratio), sample, np.ones(len(sample)), len(lengths))
        log_ratio = through_tokens(mean, flat)
    gain, low, high = surrogate(flat, log_ratio, np.array(advantage)[sample], objective)
    return (gain * weight).sum() / denominator(objective, len(sample), len(lengths)), (low, high)


@pytest.mark.parametrize("loss", LOSSES)
def test_value_and_gradient_by_finite_differences(loss):
    """J equals the loops', and its gradient by each log-probability equals their difference quotient."""
    new, old, advantage = rows()
    lengths, objective = [len(row) for row in new], objective_of(loss)
    flat = jnp.asarray(np.concatenate(new), jnp.float32)
    (value, (low, high)), gradient = jax.value_and_grad(assembled, has_aux=True)(flat, old, advantage, lengths, objective)
    quotients, h = [], 1e-6
    for n, row in enumerate(new):
        for t in range(len(row)):
            up, down = ([[lp + by * ((m, u) == (n, t)) for u, lp in enumerate(r)] for m, r in enumerate(new)] for by in (h, -h))
            quotients.append((by_hand(up, old, advantage, loss, new) - by_hand(down, old, advantage, loss, new)) / (2 * h))

    assert low.any() and high.any(), "the bounds must act for this to mean anything"
    np.testing.assert_allclose(value, by_hand(new, old, advantage, loss), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient, quotients, atol=2e-6)


def test_bounds_act_where_they_should():
    """The min only clips what would be pushed further: below for A < 0, above for A > 0; cispo clips the weight either way."""
    log_ratio, advantage = np.log([0.5, 0.5, 2.0, 2.0, 1.0]), np.array([1.0, -1, 1, -1, 1])
    _, low, high = surrogate(np.zeros(5), log_ratio, advantage, Loss())
    assert low.tolist() == [0, 1, 0, 0, 0] and high.tolist() == [0, 0, 1, 0, 0]
    gain, low, high = surrogate(np.full(5, -2.0), log_ratio, advantage, Loss(loss="cispo"))
    assert low.tolist() == [1, 1, 0, 0, 0] and high.tolist() == [0, 0, 1, 1, 0]
    np.testing.assert_allclose(gain, [-1.6, 1.6, -2.56, 2.56, -2.0], rtol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_entropy_is_the_sum_over_the_vocabulary_in_use(temperature):
    """-sum p log p in float64; ids never sampled have a logit of -inf or nearly, and add nothing to value or gradient."""
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


def test_k3_is_never_negative_and_right_on_average():
    """Over the whole support its mean is KL(p || q); at p = q it is 0 with gradient 0; its slope by logp is 1 - q / p."""
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(12)), rng.dirichlet(np.ones(12))
    k3 = np.asarray(kl_k3(jnp.log(p), jnp.log(q)))

    assert (k3 >= 0).all()
    assert (p * k3).sum() == pytest.approx((p * np.log(p / q)).sum(), rel=1e-5)
    assert kl_k3(-1.5, -1.5) == 0 and jax.grad(kl_k3)(-1.5, -1.5) == 0
    np.testing.assert_allclose(jax.vmap(jax.grad(kl_k3))(jnp.log(p), jnp.log(q)), 1 - q / p, rtol=1e-4, atol=1e-6)


# ---- through the model -----------------------------------------------------------------------------------------------


def packed(out, objective, advantage=ADVANTAGES, trained=None):
    groups = pack_groups(out, advantage, np.ones((2, 3), bool) if trained is None else trained, objective)
    if objective.kl_beta:
        groups = [with_base_logprobs(PARAMS, g, CFG, objective, small_model.VOCAB_USED) for g in groups]
    return groups


def gradient(out, objective, **more):
    """(loss, gradient) as `update` makes them, before the optimiser."""
    groups = packed(out, objective, **more)
    divisor = denominator(objective, sum(g.n_tokens for g in groups), sum(g.n_samples for g in groups))
    parts = [group_gradient(PARAMS, ADAPTER, g, CFG, objective, small_model.VOCAB_USED) for g in groups]
    return sum(p[0] for p in parts) / divisor, jax.tree.map(lambda *g: sum(g) / divisor, *[p[2] for p in parts])


def averaged(values, lengths, loss):
    """Per-token values of rows, averaged as the loss does it."""
    if loss in ("grpo", "gspo"):
        return sum(value.sum() / n for value, n in zip(values, lengths, strict=True)) / len(lengths)
    return sum(value.sum() for value in values) / (T * STEP_SAMPLES if loss == "dr_grpo" else sum(lengths))


def plain_loss(logits, out, loss, temperature=1.0, bonus=0.0, beta=0.0):
    """The whole formula from the logits of separate rows; JAX differentiates it as it stands."""
    low, high = BOUNDS.get(loss, (0.2, 0.28))
    lengths, rows = out.length_B.tolist(), distributions(logits, out, temperature)
    base, gains = plain_logprobs(None, out, temperature), []
    for row, (A, new) in enumerate(zip(ADVANTAGES.ravel(), of_ids(rows, out), strict=True)):
        rho = jnp.exp(new - out.logprobs_BT[row, : lengths[row]])
        if loss == "gspo":
            rho = jnp.full(lengths[row], jnp.exp(jnp.log(rho).mean()))
        clipped = jnp.clip(rho, 1 - low, 1 + high)
        gain = jax.lax.stop_gradient(clipped) * A * new if loss == "cispo" else jnp.minimum(rho * A, clipped * A)
        d = base[row] - new
        gains.append(gain - bonus * (jnp.exp(rows[row]) * rows[row]).sum(-1) - beta * (jnp.exp(d) - d - 1))
    return -averaged(gains, lengths, loss)


@pytest.mark.parametrize("loss, more", [
    *[pytest.param(loss, {}, marks=pytest.mark.slow) for loss in LOSSES[1:]],
    pytest.param("dapo", dict(entropy_bonus=0.3), marks=pytest.mark.slow),
    pytest.param("dapo", dict(kl_beta=0.5), marks=pytest.mark.slow),
    pytest.param("gspo", dict(entropy_bonus=0.3, kl_beta=0.5, temperature=0.7), marks=pytest.mark.slow)])
def test_packed_gradient_is_the_plain_gradient(loss, more):
    """Packing, sharing, chunks and the chain rule by hand give the loss and gradient of the formula on separate rows."""
    out = rollouts()
    got = gradient(out, objective_of(loss, **more))
    terms = [more.get(name, default) for name, default in (("temperature", 1.0), ("entropy_bonus", 0.0), ("kl_beta", 0.0))]
    want = plain_gradient(out, lambda logits: plain_loss(logits, out, loss, *terms))

    np.testing.assert_allclose(got[0], want[0], rtol=2e-4)
    assert_close(got[1], want[1], 1e-4)


@pytest.mark.parametrize("loss", [pytest.param("grpo", marks=pytest.mark.slow), "gspo"])
def test_chunks_change_memory_only(loss):
    """Chunks that cut through samples leave loss and gradient alone, with all terms on."""
    out, objective = rollouts(), objective_of(loss, entropy_bonus=0.3, kl_beta=0.5)
    one, other = (gradient(out, objective._replace(logit_chunk=size)) for size in (5, 64))

    np.testing.assert_allclose(one[0], other[0], rtol=1e-5)
    assert_close(one[1], other[1], 1e-5)


def test_while_the_sampler_is_the_policy_ratios_do_not_matter():
    """At ratio 1 cispo has dapo's gradient and gspo has grpo's: what tells them apart needs several updates."""
    out = rollouts()
    for row, own in enumerate(plain_logprobs(ADAPTER["layers"], out)):
        out.logprobs_BT[row, : len(own)] = own
    wide = dict(eps_low=0.2, eps_high=0.28)
    grads = {loss: gradient(out, objective_of(loss)._replace(**wide))[1] for loss in LOSSES}

    assert_close(grads["cispo"], grads["dapo"], 1e-4)
    assert_close(grads["gspo"], grads["grpo"], 1e-4)
    with pytest.raises(AssertionError):
        assert_close(grads["grpo"], grads["dapo"], 1e-2)


@pytest.mark.parametrize("loss, shares", [("grpo", (0.5, 0.5)), ("gspo", (0.5, 0.5)), ("cispo", (13 / 37, 24 / 37)),
                                          ("dr_grpo", (1, 1))])
def test_the_denominator_is_the_whole_steps(loss, shares):
    """Two groups in one update are the mean of each alone, by samples or by tokens; a constant one is their sum."""
    out, objective = rollouts(), objective_of(loss)
    both = gradient(out, objective)[1]
    only = [gradient(out, objective, advantage=ADVANTAGES * keep[:, None])[1] for keep in (np.array([1, 0]), np.array([0, 1]))]

    assert_close(jax.tree.map(lambda a, b: shares[0] * a + shares[1] * b, *only), both, 1e-5)


def test_a_sample_out_of_the_loss_is_not_counted():
    """Its tokens and itself leave every denominator but dr_grpo's; the packed shapes stay, so nothing is compiled anew."""
    out, trained = rollouts(), np.array([[True, False, True], [True, True, True]])
    for loss in LOSSES:
        whole, less = packed(out, objective_of(loss)), packed(out, objective_of(loss), trained=trained)
        assert (less[0].n_tokens, less[0].n_samples, less[1].n_tokens) == (4, 2, 24)
        assert less[0].layout.slot_NT.shape == whole[0].layout.slot_NT.shape
    other = rollouts()
    other.logprobs_BT[1] += 5  # what is out of the loss cannot matter
    one, same = (gradient(batch, objective_of("gspo"), trained=trained)[1] for batch in (out, other))
    assert_close(same, one, 1e-6)


def test_a_step_of_nothing_but_masked_samples_is_skipped():
    """No group is left, so weights and moments stay; also with a KL term, which needs tokens too."""
    for objective in (objective_of("dapo"), objective_of("dapo", kl_beta=0.1)):
        groups = pack_groups(rollouts(), ADVANTAGES, np.zeros((2, 3), bool), objective)
        state = init_state(ADAPTER)
        same, metrics = update(PARAMS, state, groups, CFG, objective, AdamW(), small_model.VOCAB_USED)
        assert groups == [] and same is state and metrics["skipped_steps"] == 1


@pytest.mark.parametrize("more", [dict(entropy_bonus=0.1), dict(kl_beta=0.1)])
def test_groups_without_signal_are_trained_on_for_the_bonus(more):
    """All advantages 0: nothing to do without a bonus, a gradient with one."""
    out, none = rollouts(), np.zeros_like(ADVANTAGES)

    assert pack_groups(out, none, np.ones((2, 3), bool), objective_of("dapo")) == []
    value, found = gradient(out, objective_of("dapo", **more), advantage=none)
    assert value != 0 and all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(found))


def test_kl_is_measured_from_the_model_without_its_adapter():
    """The metric is the mean k3 over trained tokens in float64, and 0 for an adapter that does nothing yet."""
    out, objective = rollouts(), objective_of("dapo", kl_beta=0.1)
    base, new = plain_logprobs(None, out), plain_logprobs(ADAPTER["layers"], out)
    d = np.concatenate([np.asarray(b, np.float64) - np.asarray(n) for b, n in zip(base, new, strict=True)])
    step = lambda adapter: update(PARAMS, init_state(adapter), packed(out, objective), CFG, objective,  # noqa: E731
                                       AdamW(), small_model.VOCAB_USED)[1]
    idle = {**ADAPTER, "scale": jnp.float32(0)}

    assert step(ADAPTER)["kl"] == pytest.approx(np.mean(np.exp(d) - d - 1), rel=1e-3)
    assert step(idle)["kl"] == pytest.approx(0, abs=1e-9)
    assert "kl" not in update(PARAMS, init_state(ADAPTER), packed(out, objective_of("dapo")), CFG, objective_of("dapo"),
                                   AdamW(), small_model.VOCAB_USED)[1]


@pytest.mark.parametrize("loss", ["gspo", "cispo"])
def test_clip_statistics_match_a_count_in_float64(loss):
    """Shares of trained tokens: for gspo all of a clipped sample's, for cispo wherever the weight is clipped."""
    out, objective, advantage = rollouts(), objective_of(loss), -ADVANTAGES
    _, metrics = update(PARAMS, init_state(ADAPTER), packed(out, objective, advantage), CFG, objective, AdamW(),
                             small_model.VOCAB_USED)
    low = high = 0
    for row, (A, new) in enumerate(zip(advantage.ravel(), plain_logprobs(ADAPTER["layers"], out), strict=True)):
        ratio = np.asarray(new, np.float64) - out.logprobs_BT[row, : out.length_B[row]]
        ratio = np.exp(np.full_like(ratio, ratio.mean()) if loss == "gspo" else ratio)
        low += ((ratio < 1 - objective.eps_low) & (A < 0 or loss == "cispo")).sum()
        high += ((ratio > 1 + objective.eps_high) & (A > 0 or loss == "cispo")).sum()

    assert low + high > 0
    assert metrics["clip_ratio/low_mean"] == pytest.approx(low / 37)
    assert metrics["clip_ratio/high_mean"] == pytest.approx(high / 37)
