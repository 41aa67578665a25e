"""The sampler against the uncached forward pass, distributions by hand, and itself in other batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qwen2_jax import forward
from rl.errors import InputError, NotFinite
from rl.training.sampler import (
    SamplingParams,
    decode_block,
    generate,
    inverse_cdf,
    keep_top_k,
    keep_top_p,
    prefill,
    row_keys,
    row_sizes,
    sample_tokens,
    step_key,
)
from tests import small_model

PROMPTS = [small_model.prompt(n) for n in (5, 17, 40)]
NAMES = ["five", "seventeen", "forty"]


def run(prompts=PROMPTS, names=NAMES, samples=3, adapter=None, seed=0, step=0, model=None, min_prompts=0, **sampling):
    keys = row_keys(step_key(seed, step), names, samples)
    sampling = SamplingParams(**{"max_new_tokens": 24, "block": 24, **sampling})
    return generate(model or small_model.model(), adapter, prompts, samples, sampling, keys, min_prompts)


def logits_of(model, adapter, ids):
    """fp32 logits (T, V) of one unpadded sequence; -inf for ids that the tokenizer does not have."""
    mask = jnp.arange(64)[None] < len(ids)  # one length for all, so one compile
    tokens = jnp.zeros((1, 64), jnp.int32).at[0, : len(ids)].set(jnp.asarray(ids))
    logits = forward(model.params, adapter, tokens, mask, model.cfg)[0, : len(ids)]
    return np.where(np.arange(model.cfg.vocab_size) < small_model.VOCAB_USED, np.asarray(logits, np.float64), -np.inf)


@pytest.mark.known_bug(10)
def test_greedy_equals_argmax_of_the_uncached_forward():
    """Cached, batched, left-padded greedy decoding picks the argmax of the uncached logits, within 1e-4."""
    model, adapter = small_model.model(), small_model.adapter()
    out, flips = run(model=model, adapter=adapter, samples=1, temperature=0.0), 0
    for p, prompt in enumerate(PROMPTS):
        ids = out.ids_BT[p, : out.length_B[p]].tolist()
        logits = logits_of(model, adapter, prompt + ids)[len(prompt) - 1 : -1]
        for token, row in zip(ids, logits, strict=True):
            flips += token != row.argmax()
            assert row.max() - row[token] < 1e-4

    assert flips == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("where", ["base", "adapter"])
def test_logits_that_are_not_finite_are_an_error(where, temperature):
    """Probes, evaluations, questions and training all sample here: the reason, before any id is decoded."""
    model, adapter = small_model.model(), small_model.adapter()
    if where == "base":
        model.params["norm"] = model.params["norm"] * 1e38
    else:
        adapter = {**adapter, "scale": jnp.float32(1e38)}
    with pytest.raises(NotFinite, match="logits are not finite at sampled token 1 of prompt 1: .*DTYPE"):
        run(model=model, adapter=adapter, temperature=temperature)


@pytest.mark.known_bug(8)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_batched_equals_one_by_one(temperature):
    """Neighbours, padding and the number of samples change no row: equal ids, log-probabilities within rounding."""
    together = run(temperature=temperature)
    for p in range(3):
        alone = run(PROMPTS[p : p + 1], NAMES[p : p + 1], samples=2, temperature=temperature)
        for n in range(2):
            assert alone.ids_BT[n].tolist() == together.ids_BT[p * 3 + n].tolist()
            np.testing.assert_allclose(alone.logprobs_BT[n], together.logprobs_BT[p * 3 + n], atol=2e-4)


def test_fewer_prompts_run_in_the_programs_of_more():
    """With min_prompts the rows are those of the prompts alone, and only one smaller batch size is compiled."""
    prompts, names = PROMPTS[::-1], NAMES[::-1]
    full = run(prompts, names, samples=4, block=8)
    before = decode_block._cache_size(), prefill._cache_size()
    padded = run(prompts[:2], names[:2], samples=4, block=8, min_prompts=3)

    assert padded.ids_BT.tolist() == full.ids_BT[:8].tolist() and padded.finish_B == full.finish_B[:8]
    assert padded.prompt_B.tolist() == [0] * 4 + [1] * 4 and len(padded.length_B) == 8
    assert (decode_block._cache_size() - before[0], prefill._cache_size() - before[1]) == (1, 0), "8 rows are a batch size"


def test_compaction_changes_nothing():
    """Dropping finished rows between blocks gives the same rows as one large block."""
    many = dict(samples=4, model=small_model.model(stop_ids=tuple(range(0, 300, 9))))
    dropped, whole = run(block=4, **many), run(block=24, **many)

    assert np.sort(dropped.length_B)[4] <= 12 < dropped.length_B.max(), "some rows must end early, or nothing is dropped"
    assert dropped.ids_BT.tolist() == whole.ids_BT.tolist()
    assert dropped.finish_B == whole.finish_B


def test_finished_rows_are_reported_once():
    """Each row exactly once, between blocks, with its final ids; short rows before long ones."""
    model, reported = small_model.model(stop_ids=tuple(range(0, 300, 9))), []
    keys = row_keys(step_key(0, 0), NAMES, 4)

    def finished(rows, out):
        reported.append({int(row): out.ids_BT[row].tolist() for row in rows})

    out = generate(model, None, PROMPTS, 4, SamplingParams(max_new_tokens=24, block=4), keys, 0, finished)
    assert sorted(row for rows in reported for row in rows) == list(range(12)) and len([rows for rows in reported if rows]) > 2
    assert all(out.ids_BT[row].tolist() == ids for rows in reported for row, ids in rows.items())
    lengths = [out.length_B[row] for rows in reported for row in rows]
    assert max(lengths[:4]) <= min(lengths[-4:])


def test_randomness_is_seed_step_task_and_sample():
    """Each of seed, step and task changes the sample, samples of a task differ, and a repeated call gives the same."""
    base = run(PROMPTS[:1], NAMES[:1])
    again = run(PROMPTS[:1], NAMES[:1])
    others = [run(PROMPTS[:1], NAMES[:1], seed=1), run(PROMPTS[:1], NAMES[:1], step=1), run(PROMPTS[:1], ["other"])]

    assert base.ids_BT.tolist() == again.ids_BT.tolist()
    assert all(base.ids_BT.tolist() != other.ids_BT.tolist() for other in others)
    assert len({tuple(row) for row in base.ids_BT.tolist()}) == 3, "samples of one task differ"


@pytest.mark.known_bug(10)
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_logprobs_and_entropy_are_those_of_the_forward_at_the_temperature(temperature):
    """Log-probability and entropy of each sampled id equal the float64 softmax of the uncached logits / temperature."""
    model, adapter = small_model.model(), small_model.adapter()
    out = run(model=model, adapter=adapter, temperature=temperature)
    for row, (p, length) in enumerate(zip(out.prompt_B, out.length_B, strict=True)):
        ids = out.ids_BT[row, :length].tolist()
        scaled = logits_of(model, adapter, PROMPTS[p] + ids)[len(PROMPTS[p]) - 1 : -1, : small_model.VOCAB_USED] / temperature
        logprob = scaled - np.log(np.exp(scaled).sum(-1, keepdims=True))
        entropy = -(np.exp(logprob) * logprob).sum(-1)

        np.testing.assert_allclose(out.logprobs_BT[row, :length], logprob[np.arange(length), ids], atol=1e-4)
        np.testing.assert_allclose(out.entropy_BT[row, :length], entropy, atol=1e-4)


def test_rows_end_at_the_first_stop_id():
    """A stop id ends a row and belongs to it, finish is "stop"; other rows have full length; the rest is zero."""
    out = run(samples=16)
    assert {"stop", "length"} == set(out.finish_B)
    for ids, length, finish in zip(out.ids_BT, out.length_B, out.finish_B, strict=True):
        inside = np.isin(ids[:length], small_model.STOP_IDS)
        assert not inside[:-1].any() and not ids[length:].any()
        assert inside[-1] == (finish == "stop") and (finish == "stop" or length == 24)


def test_unused_embedding_rows_are_never_sampled():
    """At a temperature that makes all ids nearly equal, no id appears that the tokenizer does not have."""
    out = run(model=small_model.model(stop_ids=(0,)), samples=40, temperature=10.0)
    assert out.ids_BT.max() < small_model.VOCAB_USED and len(np.unique(out.ids_BT)) > 250


@pytest.mark.parametrize("V", [5, 128, 300])
def test_inverse_cdf_follows_the_distribution(V):
    """Frequencies of 10,000 ids are within five standard errors of the probabilities; ids without mass never appear."""
    rng = np.random.default_rng(V)
    mass = rng.random(V) ** 4
    mass[rng.random(V) < 0.3] = 0
    B = 10_000
    mass_BV, u_B = jnp.broadcast_to(jnp.asarray(mass, jnp.float32), (B, V)), jax.random.uniform(jax.random.key(0), (B,))
    ids = np.asarray(jax.jit(inverse_cdf)(mass_BV.T, u_B))
    p = mass / mass.sum()

    assert (np.abs(np.bincount(ids, minlength=V) / B - p) <= 5 * np.sqrt(p * (1 - p) / B)).all()


def test_inverse_cdf_at_the_ends():
    """u = 0 gives the first id with mass, u = 1, by rounding, the last."""
    mass = jnp.asarray([[0, 0, 3, 0, 1, 0.0], [0, 1, 0, 0, 0, 0]])
    assert inverse_cdf(mass.T, jnp.asarray([0.0, 0.0])).tolist() == [2, 1]
    assert inverse_cdf(mass.T, jnp.asarray([1.0, 1.0])).tolist() == [4, 1]


def test_top_k_and_top_p_by_hand():
    """Four ids with shares .4 .3 .2 .1: top-k 2 keeps two; top-p .69 keeps two, .75 three, a tiny one keeps one."""
    mass = jnp.asarray([[0.3, 0.1, 0.4, 0.2]])
    kept = lambda array: (np.asarray(array)[0] > 0).tolist()  # noqa: E731

    assert kept(keep_top_k(mass, 2)) == [True, False, True, False]
    assert kept(keep_top_k(mass, 0)) == kept(keep_top_k(mass, 99)) == [True] * 4
    assert kept(keep_top_p(mass, 0.69)) == [True, False, True, False]
    assert kept(keep_top_p(mass, 0.75)) == [True, False, True, True]
    assert kept(keep_top_p(mass, 1e-6)) == [False, False, True, False]
    assert kept(keep_top_p(mass, 1.0)) == [True] * 4


def test_top_p_is_a_share_of_what_top_k_leaves():
    """Of shares .4 .3 .2 .1 top-k 3 leaves .9; top-p .75 of that is .675, which the two likeliest hold.  Of the whole it is .75,
    which takes three."""
    logits_VB = jnp.broadcast_to(jnp.log(jnp.asarray([[0.3], [0.1], [0.4], [0.2]])), (4, 400))
    keys = jax.random.split(jax.random.key(0), 400)
    drawn = lambda **filters: set(np.asarray(sample_tokens(logits_VB, keys, SamplingParams(**filters))[0]).tolist())  # noqa: E731

    assert drawn(top_k=3) == drawn(top_p=0.75) == {0, 2, 3}
    assert drawn(top_k=3, top_p=0.75) == {0, 2}


@pytest.mark.slow
def test_top_k_one_is_greedy():
    """The sampler applies the filters: with top-k 1 or a tiny top-p it is greedy."""
    greedy = run(temperature=0.0, samples=1).ids_BT.tolist()
    assert run(top_k=1, samples=1).ids_BT.tolist() == run(top_p=1e-3, samples=1).ids_BT.tolist() == greedy
    assert run(samples=1).ids_BT.tolist() != greedy


def test_row_sizes_are_few_and_cover():
    """From 64 rows down to 4 at most nine sizes; the next size is at most 1.5 times the number of live rows."""
    sizes = row_sizes(64)
    assert sizes[0] == 64 and min(sizes) == 4 and len(sizes) <= 9
    assert all(min(n for n in sizes if n >= live) <= max(4, 1.5 * live) for live in range(1, 65))


def test_too_long_is_refused_before_anything_runs():
    """A prompt and completion that exceed the model's positions: the error has both numbers and the setting."""
    with pytest.raises(InputError, match="533 positions.*512.*MAX_NEW_TOKENS=500"):
        run([small_model.prompt(33)], ["long"], max_new_tokens=500)
