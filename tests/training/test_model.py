"""The forward pass against float64 loops; its kernels; which config.json is read and which is refused."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention import Causal, Prompts
from model_config import SHAPES, ModelConfig, RopeScaling, Spec, param_specs
from qwen2_jax import block, forward, head_logits, padded_positions, rope_angles, rope_frequencies, run_layers
from rl.training.sampler import left_pad
from tests import oracles, small_model

CFG, PARAMS, ADAPTER = small_model.CFG, small_model.params(), small_model.adapter()
HF = {"model_type": "qwen2", "vocab_size": 320, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
      "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "rope_theta": 1e4, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": True, "max_position_embeddings": 512, "hidden_act": "silu", "use_sliding_window": False}
LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}


def loop_forward(ids):
    """Logits of one sequence in float64, adapter included, token by token and head by head."""
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
    """Logits of three left-padded sequences of different lengths, adapter included, equal the float64 loops."""
    prompts = [small_model.prompt(n) for n in (3, 8, 14)]
    tokens, mask = left_pad(prompts, 16)
    logits = np.asarray(forward(PARAMS, ADAPTER, tokens, mask, CFG))
    for row, ids in enumerate(prompts):
        np.testing.assert_allclose(logits[row, -len(ids):], loop_forward(ids), atol=2e-4)


def test_checks_round_less_than_prefill():
    """A layer's products of 4,096 terms are closer to float64 in `Causal` than in `Prompts`.  A token that sees only itself has
    its own values as attention, and the MLP adds nothing here, so all that rounds is the output projection."""
    cfg = replace(CFG, num_attention_heads=512)
    layer, x = small_model.params(cfg)["layers"][0], jax.random.normal(jax.random.key(0), (16, 1, CFG.hidden_size))
    layer = {**layer, "mlp": {name: {"weight": jnp.zeros_like(base["weight"])} for name, base in layer["mlp"].items()}}
    mask, out_ED = jnp.ones((16, 1), bool), np.asarray(layer["self_attn"]["o_proj"]["weight"], np.float64)
    error = {}
    for layout in (Causal, Prompts):
        y, (_, v_BTKC) = block(x, layer, None, None, rope_angles(jnp.zeros((16, 1)), cfg), layout(mask), None, cfg)
        mixed_BTE = np.repeat(np.asarray(v_BTKC, np.float64), 512 // CFG.num_key_value_heads, 2).reshape(16, 1, 4096)
        error[layout] = np.abs(np.asarray(y, np.float64) - np.asarray(x, np.float64) - mixed_BTE @ out_ED).mean()

    assert 0 < error[Causal] < 0.7 * error[Prompts] < 1e-3, error


def test_untied_head_is_used():
    """With lm_head the logits are computed from it, not from the embedding."""
    head = PARAMS["embed_tokens"][::-1]
    hidden = jnp.ones((2, CFG.hidden_size))
    np.testing.assert_allclose(head_logits({**PARAMS, "lm_head": head}, hidden), head_logits(PARAMS, hidden)[::-1], rtol=1e-5)


def test_nothing_looks_ahead():
    """The output at token t has a zero gradient by later embeddings and a non-zero one by all others."""
    tokens, t = jnp.asarray([small_model.prompt(10)]), 6
    mask = jnp.ones_like(tokens, bool)

    def logit(embedded):
        positions = padded_positions(mask)
        params = {**PARAMS, "embed_tokens": embedded}
        hidden, _ = run_layers(params, ADAPTER, jnp.arange(10)[None], positions, Causal(mask), [None] * 2, CFG)
        return hidden[0, t].sum()

    gradient = jax.grad(logit)(PARAMS["embed_tokens"][tokens[0]])

    assert (gradient[t + 1:] == 0).all() and (abs(gradient[: t + 1]).max(-1) > 0).all()


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_runs_close(dtype):
    """fp16 and bf16 weights give finite logits near the fp32 ones."""
    tokens = jnp.asarray([small_model.prompt(20)])
    mask = jnp.ones_like(tokens, bool)
    half = forward(small_model.params(dtype=dtype), ADAPTER, tokens, mask, CFG)
    full = forward(PARAMS, ADAPTER, tokens, mask, CFG)

    assert half.dtype == jnp.float32 and jnp.isfinite(half).all()
    assert np.linalg.norm(half - full) < 0.1 * np.linalg.norm(full)


def test_another_kernel_gives_the_same_logits():
    """jax.nn.dot_product_attention, in its plain implementation, equals einsum attention."""
    tokens, mask = left_pad([small_model.prompt(n) for n in (5, 20)], 32)
    a, b = (forward(PARAMS, ADAPTER, tokens, mask, replace(CFG, attention=kernel)) for kernel in ("einsum", "xla"))
    np.testing.assert_allclose(a[0, -5:], b[0, -5:], atol=1e-4)
    np.testing.assert_allclose(a[1, -20:], b[1, -20:], atol=1e-4)


def test_config_is_read():
    """config.json of old and of new transformers gives the same ModelConfig."""
    nested = {key: value for key, value in HF.items() if key != "rope_theta"} | {
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "layer_types": ["full_attention"] * 2}
    assert ModelConfig.from_hf(HF) == ModelConfig.from_hf(nested) == CFG


def test_model_families_are_three_fields():
    """qwen2 has biases, qwen3 normalised heads, llama neither; llama3 scaling is read from either entry, with `type` too."""
    found = {kind: ModelConfig.from_hf(HF | {"model_type": kind}) for kind in ("qwen2", "qwen3", "llama")}
    assert {kind: (cfg.attention_bias, cfg.qk_norm) for kind, cfg in found.items()} == {
        "qwen2": (True, False), "qwen3": (False, True), "llama": (False, False)}
    old = {"type" if key == "rope_type" else key: value for key, value in LLAMA3.items()}
    scaled = [ModelConfig.from_hf(HF | {"model_type": "llama", "rope_theta": 5e5, "rope_scaling": rope})
              for rope in (LLAMA3, old)]
    new = {key: value for key, value in HF.items() if key != "rope_theta"} | {
        "model_type": "llama", "rope_parameters": LLAMA3 | {"rope_theta": 5e5}}
    assert scaled[0] == scaled[1] == ModelConfig.from_hf(new) == replace(
        found["llama"], rope_theta=5e5, rope_scaling=RopeScaling(
            factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192))


@pytest.mark.slow
@pytest.mark.parametrize("rope", [{"rope_type": "default"}, LLAMA3], ids=lambda rope: rope["rope_type"])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_rotary_frequencies_are_those_of_transformers(rope, head_dim):
    """To the last few bits of fp32, with the theta, context and head sizes of Llama 3.2."""
    torch, transformers = oracles.package("torch"), oracles.package("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
    about = {"hidden_size": 4 * head_dim, "num_attention_heads": 4, "head_dim": head_dim}
    theirs = LlamaRotaryEmbedding(transformers.LlamaConfig(**about, rope_parameters=rope | {"rope_theta": 5e5})).inv_freq
    hf = HF | {"model_type": "llama", "head_dim": head_dim, "rope_theta": 5e5, "rope_scaling": rope}
    ours = rope_frequencies(ModelConfig.from_hf(hf))

    assert ours.dtype == np.float32 and theirs.dtype == torch.float32
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=5e-7)
    kept = ours * 5e5 ** (np.arange(0, head_dim, 2) / head_dim)
    assert rope["rope_type"] == "default" or (kept[0], kept[-1]) == pytest.approx((1, 1 / 32))


@pytest.mark.parametrize("change, word", [
    ({"model_type": "mistral"}, "model_type.*qwen2, qwen3, llama"), ({"hidden_act": "gelu"}, "hidden_act"),
    ({"use_sliding_window": True}, "use_sliding_window"), ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_scaling"),
    ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ({"layer_types": ["sliding_attention"]}, "layer_types"), ({"num_key_value_heads": 4}, "not a multiple"),
    ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling.*low_freq_factor, high_freq_factor"),
    ({"rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}}, "rope_scaling"),
    ({"model_type": "llama", "mlp_bias": True}, "mlp_bias"), ({"model_type": "qwen3", "attention_bias": True}, "attention_bias"),
    ({"model_type": "qwen3", "head_dim": None}, "head_dim is missing"),
])
def test_unsupported_entries_are_refused_by_name(change, word):
    """Every entry that the forward pass does not support is an error with its name; two are reported together."""
    with pytest.raises(ValueError, match=word):
        ModelConfig.from_hf(HF | change)
    with pytest.raises(ValueError, match="hidden_act.*quantization_config"):
        ModelConfig.from_hf(HF | {"hidden_act": "gelu", "quantization_config": {}})


def specs_of(name):
    """Name and shape of every parameter of a built-in config."""
    leaves = jax.tree.leaves(param_specs(SHAPES[name]), is_leaf=lambda leaf: isinstance(leaf, Spec))
    return {spec.name: spec.shape for spec in leaves}


@pytest.mark.parametrize("name, count", [
    ("0.5B", 494_032_768), ("1.5B", 1_543_714_304), ("qwen3-0.6B", 596_049_920), ("qwen3-1.7B", 1_720_574_976),
    ("qwen3-4B", 4_022_468_096), ("llama-3.2-1B", 1_235_814_400), ("llama-3.2-3B", 3_212_749_824)])
def test_built_in_shapes_count(name, count):
    """The built-in configs have as many weights as the model cards say."""
    assert sum(int(np.prod(shape)) for shape in specs_of(name).values()) == count


@pytest.mark.slow
@pytest.mark.parametrize("name, kind", [("qwen3-0.6B", "Qwen3"), ("llama-3.2-1B", "Llama")])
def test_built_in_shapes_are_transformers_tensors(name, kind):
    """Names and shapes of all tensors are those of transformers' model of that size, built without memory."""
    torch, transformers = oracles.package("torch"), oracles.package("transformers")
    about = {key: value for key, value in vars(SHAPES[name]).items() if not key.startswith("rope") and key != "attention"}
    with torch.device("meta"):
        model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**about))
    theirs = {key: tuple(value.shape) for key, value in model.state_dict().items()}

    assert theirs.pop("lm_head.weight") and theirs == specs_of(name)
