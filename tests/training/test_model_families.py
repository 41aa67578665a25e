"""Qwen3 and Llama 3.2: forward pass, sampler, update and adapters, against float64, transformers and peft."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import validate_forward as validate
from model_config import PROJECTIONS
from qwen2_jax import forward
from rl.models import export, pretrained
from rl.training import lora
from rl.training.loss import Loss
from rl.training.packing import pack
from rl.training.sampler import SamplingParams, generate, left_pad, row_keys, step_key
from rl.training.update import group_gradient
from tests import oracles
from tests.hub_folder import write_checkpoint
from tests.small_model import adapter as random_adapter

PROMPTS = [[5], [61, 60, 59] * 5, list(range(3, 228, 5))]
T = 64    # sequences are padded to this length, so that few programs are compiled
VARIANTS = [("qwen3", False), ("llama", True), *(pytest.param(pair, marks=pytest.mark.slow)
                                                 for pair in (("qwen3", True), ("llama", False)))]


class Case(SimpleNamespace):
    """A checkpoint of a family: its folder and tensors, our parameters and a random adapter."""


def named(pair):
    return f"{pair[0]}-{'tied' if pair[1] else 'untied'}"


@pytest.fixture(scope="module", params=VARIANTS, ids=named)
def case(request, tmp_path_factory):
    """A Case, built once a module."""
    family, tied = request.param
    folder = tmp_path_factory.mktemp("family") / "model"
    tensors = write_checkpoint(folder, family=family, tied=tied, initializer_range=0.15)
    source = pretrained.resolve(str(folder))
    params = pretrained.load(source, jnp.float32).params
    return Case(family=family, folder=folder, source=source, cfg=source.cfg, tensors=tensors, params=params,
                adapter=random_adapter(source.cfg))


def padded(sequences):
    """(tokens, mask), padded on the right."""
    tokens, mask = np.zeros((len(sequences), T), np.int32), np.zeros((len(sequences), T), bool)
    for row, ids in enumerate(sequences):
        tokens[row, : len(ids)], mask[row, : len(ids)] = ids, True
    return tokens, mask


def our_logits(case, adapter, ids):
    return np.asarray(forward(case.params, adapter, *padded([ids]), case.cfg)[0, : len(ids)])


# ---- the forward pass ----


def test_the_case_is_not_qwen2(case):
    """H * C differs from D, and each family has its own options."""
    assert case.cfg.num_attention_heads * case.cfg.head_dim != case.cfg.hidden_size
    assert (case.cfg.attention_bias, case.cfg.qk_norm, case.cfg.rope_scaling is None) == (
        False, case.family == "qwen3", case.family == "qwen3")
    assert ("lm_head" in case.params) != case.cfg.tie_word_embeddings


def test_logits_are_those_of_float64(case):
    """fp32, prompts of 1 to 45 tokens, left-padded in one batch and one by one."""
    exact = validate.float64_run(case.tensors.__getitem__, case.cfg, PROMPTS).logits
    batch = np.asarray(forward(case.params, None, *left_pad(PROMPTS, T), case.cfg))
    for row, ids, want in zip(batch, PROMPTS, exact, strict=True):
        np.testing.assert_allclose(row[-len(ids):], want, atol=5e-5)
        np.testing.assert_allclose(our_logits(case, None, ids), want, atol=5e-5)


@pytest.mark.slow
def test_every_layer_and_the_logits_are_those_of_transformers(case):
    """The same prompts in both ways; the float64 NumPy model agrees too."""
    model = oracles.opened(case.folder)
    runs = {"ours": validate.batch_and_single(partial(validate.our_run, case.params, case.cfg, pad_id=0), PROMPTS),
            "theirs": validate.batch_and_single(partial(validate.transformers_run, model, pad_id=0), PROMPTS)}
    exact = validate.float64_run(case.source.tensors.__getitem__, case.cfg, PROMPTS)
    for way in ("batch", "single"):
        ours, theirs = runs["ours"][way], runs["theirs"][way]
        assert len(ours.hidden) == len(theirs.hidden) == 4
        for layer in range(4):
            for a, b, c in zip(ours.hidden[layer], theirs.hidden[layer], exact.hidden[layer], strict=True):
                np.testing.assert_allclose(a, b, atol=3e-5)
                np.testing.assert_allclose(a, c, atol=3e-5)
        for a, b, c in zip(ours.logits, theirs.logits, exact.logits, strict=True):
            np.testing.assert_allclose(a, b, atol=5e-5)
            np.testing.assert_allclose(a, c, atol=5e-5)


@pytest.mark.slow
def test_half_precision_is_finite_and_near(case):
    """bf16 weights stay near the fp32 ones."""
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), case.params)
    found = np.asarray(forward(half, case.adapter, *padded(PROMPTS[2:3]), case.cfg)[0, : len(PROMPTS[2])])
    full = our_logits(case, case.adapter, PROMPTS[2])
    assert np.isfinite(found).all() and np.abs(found - full).max() < 0.1 * np.abs(full).max()


# ---- the cache ----


@pytest.mark.parametrize("temperature", [1.0, pytest.param(0.0, marks=pytest.mark.slow)])
def test_decoding_with_the_cache_is_the_full_forward(case, temperature):
    """Prefill and decoding with the adapter, prompts left-padded and shared by two samples each: log-probabilities are those of
    the uncached forward pass, and greedy ids its argmax."""
    vocab = 267    # used ids; the embedding has 272 rows
    model = SimpleNamespace(cfg=case.cfg, params=case.params, chat=SimpleNamespace(stop_ids=(7,), vocab_used=vocab))
    prompts = PROMPTS[1:3]
    keys = row_keys(step_key(0, 0), ["a", "b"], 2)
    sampling = SamplingParams(max_new_tokens=12, block=6, temperature=temperature)
    out = generate(model, case.adapter, prompts, 2, sampling, keys)
    for row, (p, length) in enumerate(zip(out.prompt_B, out.length_B, strict=True)):
        ids = out.ids_BT[row, :length].tolist()
        logits = our_logits(case, case.adapter, prompts[p] + ids)[len(prompts[p]) - 1 : -1, :vocab].astype(np.float64)
        chosen = logits[np.arange(length), ids]
        if temperature == 0:
            assert (logits.max(-1) - chosen < 1e-4).all()
        else:
            np.testing.assert_allclose(out.logprobs_BT[row, :length], chosen - np.log(np.exp(logits).sum(-1)), atol=2e-4)


# ---- the update ----

# Compiling the backward pass takes long.
one_of_each = pytest.mark.parametrize("case", [("qwen3", False), pytest.param(("llama", True), marks=pytest.mark.slow)],
                                      ids=named, indirect=True)
SAMPLES = [[11, 40, 7], [200, 13, 90, 33, 5, 21, 7], [77]]
ADVANTAGES = np.array([1.2, -0.7, -0.5], np.float32)


def plain_loss(case, layers):
    """-J at ratios near 1, summed over tokens, each sample as its own row through the uncached forward pass."""
    total, start = 0.0, len(PROMPTS[1]) - 1
    logits = forward(case.params, {**case.adapter, "layers": layers}, *padded([PROMPTS[1] + ids for ids in SAMPLES]), case.cfg)
    for row, ids, advantage in zip(logits, SAMPLES, ADVANTAGES, strict=True):
        logprobs = jax.nn.log_softmax(row[start : start + len(ids)])[np.arange(len(ids)), np.array(ids)]
        ratio = jnp.exp(logprobs - jax.lax.stop_gradient(logprobs))
        total += jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.28) * advantage).sum()
    return -total


def packed(case, adapter):
    """(loss value, gradient) of the same samples by the update; the sampler's log-probabilities are the model's."""
    own = []
    for ids in SAMPLES:
        rows = our_logits(case, adapter, PROMPTS[1] + ids)[len(PROMPTS[1]) - 1 : -1].astype(np.float64)
        own.append((rows - np.log(np.exp(rows).sum(-1, keepdims=True)))[np.arange(len(ids)), ids])
    loss = Loss(logit_chunk=8)
    group = pack(PROMPTS[1], [np.array(ids) for ids in SAMPLES], own, ADVANTAGES, loss)
    value, _, gradient = group_gradient(case.params, adapter, group, case.cfg, loss, case.cfg.vocab_size)
    return value, gradient


def assert_close(a, b, rtol):
    """Two non-zero gradients differ by at most rtol of the norm of b."""
    norm = lambda tree: np.sqrt(sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(tree)))  # noqa: E731
    assert norm(b) > 0 and norm(jax.tree.map(lambda x, y: x - y, a, b)) <= rtol * norm(b)


@one_of_each
def test_packed_gradient_is_the_plain_gradient(case):
    """Loss and gradient of the packed group are those of separate rows."""
    want = jax.jit(jax.value_and_grad(partial(plain_loss, case)))(case.adapter["layers"])
    got = packed(case, case.adapter)

    np.testing.assert_allclose(got[0], want[0], atol=1e-3)
    assert_close(got[1], want[1], 1e-4)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(got[1]))


@one_of_each
def test_only_named_projections_have_a_gradient(case):
    """The gradient of an adapter on two projections is that of the full adapter, for those two."""
    names = ("v_proj", "down_proj")
    kept = [{part: {name: p for name, p in group.items() if name in names} for part, group in layer.items()}
            for layer in case.adapter["layers"]]
    silent = [{part: {name: p if name in names else jax.tree.map(jnp.zeros_like, p) for name, p in group.items()}
               for part, group in layer.items()} for layer in case.adapter["layers"]]
    few, all_ = packed(case, {**case.adapter, "layers": kept})[1], packed(case, {**case.adapter, "layers": silent})[1]

    assert [sorted(n for part in layer.values() for n in part) for layer in few] == [sorted(names)] * 2
    cut = [{part: {name: p for name, p in group.items() if name in names} for part, group in layer.items()} for layer in all_]
    assert_close(few, cut, 1e-5)


# ---- adapters elsewhere ----


def on(case, targets):
    """The case's adapter on those projections alone."""
    layers = [{part: {name: p for name, p in group.items() if name in targets} for part, group in layer.items()}
              for layer in case.adapter["layers"]]
    return {**case.adapter, "layers": layers}


some_targets = pytest.mark.parametrize("targets", [PROJECTIONS, ("q_proj", "up_proj")], ids=["all", "two"])


@some_targets
def test_a_merge_gives_the_logits_of_base_and_adapter(case, tmp_path, targets):
    """The merged checkpoint's tensors, in float64."""
    export.write_merged(case.source, on(case, targets), tmp_path / "merged")
    merged = pretrained.resolve(str(tmp_path / "merged"))
    want, = validate.float64_run(merged.tensors.__getitem__, merged.cfg, PROMPTS[2:]).logits

    np.testing.assert_allclose(our_logits(case, on(case, targets), PROMPTS[2]), want, atol=1e-4)
    assert np.abs(want - our_logits(case, None, PROMPTS[2])).max() > 0.1


@pytest.mark.slow
@some_targets
def test_peft_and_a_merge_give_our_logits(case, tmp_path, targets):
    """peft with the adapter folder, and transformers with a merged checkpoint, give the same logits."""
    adapter = on(case, targets)
    (tmp_path / "adapter").mkdir()
    lora.save_peft(tmp_path / "adapter", adapter, str(case.folder))
    export.write_merged(case.source, adapter, tmp_path / "merged")
    wanted, base = our_logits(case, adapter, PROMPTS[2]), our_logits(case, None, PROMPTS[2])
    with_peft, merged = oracles.adapted(case.folder, tmp_path / "adapter"), oracles.opened(tmp_path / "merged")

    np.testing.assert_allclose(oracles.logits(with_peft, PROMPTS[2:])[0], wanted, atol=1e-4)
    np.testing.assert_allclose(oracles.logits(merged, PROMPTS[2:])[0], wanted, atol=1e-4)
    assert np.abs(wanted - base).max() > 0.1
