"""The forward pass against a float64 NumPy one, and its layouts, kernels and refusals."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qwen2_jax import SHAPES, ModelConfig, forward, head_logits, padded_positions, run_layers
from rl.generate import left_pad
from tests import small_model

CFG, PARAMS, ADAPTER = small_model.CFG, small_model.params(), small_model.adapter()
HF = {"model_type": "qwen2", "vocab_size": 320, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
      "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "rope_theta": 1e4, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": True, "max_position_embeddings": 512, "hidden_act": "silu", "use_sliding_window": False}


def loop_forward(ids):
    """Logits of one sequence in float64, with the adapter, one token and one head at a time."""
    f64 = lambda x: np.asarray(x, np.float64)  # noqa: E731
    norm = lambda x, w: x / np.sqrt((x * x).mean() + CFG.rms_norm_eps) * f64(w)  # noqa: E731
    scale = float(ADAPTER["scale"])

    def project(x, base, pair):
        return x @ f64(base["weight"]) + f64(base.get("bias", 0)) + scale * (x @ f64(pair["a"])) @ f64(pair["b"])

    def rotate(head, position):
        half = CFG.head_dim // 2
        out = np.empty_like(head)
        for c in range(half):
            angle = position / CFG.rope_theta ** (2 * c / CFG.head_dim)
            out[c] = head[c] * np.cos(angle) - head[c + half] * np.sin(angle)
            out[c + half] = head[c + half] * np.cos(angle) + head[c] * np.sin(angle)
        return out

    xs = [f64(PARAMS["embed_tokens"])[i] for i in ids]
    per_key = CFG.num_attention_heads // CFG.num_key_value_heads
    for layer, lora in zip(PARAMS["layers"], ADAPTER["layers"], strict=True):
        attn, lo = layer["self_attn"], lora["self_attn"]
        hs = [norm(x, layer["input_layernorm"]) for x in xs]
        q, k, v = ([project(h, attn[p], lo[p]).reshape(-1, CFG.head_dim) for h in hs] for p in ("q_proj", "k_proj", "v_proj"))
        for t in range(len(xs)):
            heads = []
            for head in range(CFG.num_attention_heads):
                kv = head // per_key
                scores = np.array([rotate(q[t][head], t) @ rotate(k[s][kv], s) for s in range(t + 1)]) / CFG.head_dim**0.5
                weights = np.exp(scores - scores.max())
                heads.append(sum(w * v[s][kv] for s, w in enumerate(weights / weights.sum())))
            xs[t] = xs[t] + project(np.concatenate(heads), attn["o_proj"], lo["o_proj"])
            h, mlp, lm = norm(xs[t], layer["post_attention_layernorm"]), layer["mlp"], lora["mlp"]
            gate, up = (project(h, mlp[p], lm[p]) for p in ("gate_proj", "up_proj"))
            xs[t] = xs[t] + project(gate / (1 + np.exp(-gate)) * up, mlp["down_proj"], lm["down_proj"])
    return np.array([norm(x, PARAMS["norm"]) @ f64(PARAMS["embed_tokens"]).T for x in xs])


def test_forward_is_the_float64_loop():
    """Logits of three left-padded sequences of different length, with adapter, equal token-by-token float64 loops."""
    prompts = [small_model.prompt(n) for n in (3, 8, 14)]
    tokens, mask = left_pad(prompts, 16)
    logits = np.asarray(forward(PARAMS, ADAPTER, tokens, mask, CFG))
    for row, ids in enumerate(prompts):
        np.testing.assert_allclose(logits[row, -len(ids):], loop_forward(ids), atol=2e-4)


def test_untied_head_is_used():
    """With lm_head the logits come from it, not from the embedding."""
    head = PARAMS["embed_tokens"][::-1]
    hidden = jnp.ones((2, CFG.hidden_size))
    np.testing.assert_allclose(head_logits({**PARAMS, "lm_head": head}, hidden), head_logits(PARAMS, hidden)[::-1], rtol=1e-5)


def test_nothing_looks_ahead():
    """The logits at token t have zero gradient by later embeddings and a non-zero one by every earlier one."""
    tokens, t = jnp.asarray([small_model.prompt(10)]), 6
    mask = jnp.ones_like(tokens, bool)

    def logit(embedded):
        positions = padded_positions(mask)
        params = {**PARAMS, "embed_tokens": embedded}
        from attention import Causal
        hidden, _ = run_layers(params, ADAPTER, jnp.arange(10)[None], positions, Causal(mask), [None] * 2, CFG)
        return hidden[0, t].sum()

    gradient = jax.grad(logit)(PARAMS["embed_tokens"][tokens[0]])

    assert (gradient[t + 1:] == 0).all() and (abs(gradient[: t + 1]).max(-1) > 0).all()


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_runs_close(dtype):
    """fp16 and bf16 weights give finite logits near the fp32 ones: the fp32 islands hold."""
    tokens = jnp.asarray([small_model.prompt(20)])
    mask = jnp.ones_like(tokens, bool)
    half = forward(small_model.params(dtype=dtype), ADAPTER, tokens, mask, CFG)
    full = forward(PARAMS, ADAPTER, tokens, mask, CFG)

    assert half.dtype == jnp.float32 and jnp.isfinite(half).all()
    assert abs(half - full).max() < 0.1 * abs(full).max()


def test_another_kernel_gives_the_same_logits():
    """The path to jax.nn.dot_product_attention, taken with its plain implementation, equals einsum attention."""
    tokens, mask = left_pad([small_model.prompt(n) for n in (5, 20)], 32)
    a, b = (forward(PARAMS, ADAPTER, tokens, mask, replace(CFG, attention=kernel)) for kernel in ("einsum", "xla"))
    np.testing.assert_allclose(a[0, -5:], b[0, -5:], atol=1e-4)
    np.testing.assert_allclose(a[1, -20:], b[1, -20:], atol=1e-4)


def test_config_is_read():
    """config.json of either transformers generation gives the same ModelConfig."""
    nested = {key: value for key, value in HF.items() if key != "rope_theta"} | {
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "layer_types": ["full_attention"] * 2}
    assert ModelConfig.from_hf(HF) == ModelConfig.from_hf(nested) == CFG


@pytest.mark.parametrize("change, word", [
    ({"model_type": "llama"}, "model_type"), ({"hidden_act": "gelu"}, "hidden_act"),
    ({"use_sliding_window": True}, "use_sliding_window"), ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_scaling"),
    ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ({"layer_types": ["sliding_attention"]}, "layer_types"), ({"num_key_value_heads": 4}, "not a multiple"),
    ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
])
def test_what_would_change_the_result_is_refused_by_name(change, word):
    """Each entry that the forward pass does not honour is an error with its name; two are reported together."""
    with pytest.raises(ValueError, match=word):
        ModelConfig.from_hf(HF | change)
    with pytest.raises(ValueError, match="hidden_act.*quantization_config"):
        ModelConfig.from_hf(HF | {"hidden_act": "gelu", "quantization_config": {}})


def test_built_in_shapes_count():
    """The 0.5B of the built-in table has 494,032,768 weights, as its card says."""
    from qwen2_jax import Spec, param_specs
    specs = jax.tree.leaves(param_specs(SHAPES["0.5B"]), is_leaf=lambda leaf: isinstance(leaf, Spec))
    assert sum(int(np.prod(spec.shape)) for spec in specs) == 494_032_768
