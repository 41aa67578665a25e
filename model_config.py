"""The sizes and options of a model, read from its config.json, and the parameters that follow from them.  Plain data, no jax.

Reading order: `ModelConfig` describes one checkpoint, `SHAPES` holds those with a short name; `projection_shapes` and
`param_specs` list the parameters with their names and shapes.  qwen2_jax.py computes with them.
The families differ in three fields of `ModelConfig`: attention_bias (Qwen2), qk_norm (Qwen3), rope_scaling (Llama 3.1 on)."""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

# The projections of a layer, in this order wherever they are listed.
ATTENTION_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
PROJECTIONS = ATTENTION_PROJECTIONS + MLP_PROJECTIONS

FAMILIES = {"qwen2": {"attention_bias": True}, "qwen3": {"qk_norm": True}, "llama": {}}  # model_type: the fields it sets


class RopeScaling(NamedTuple):
    """Llama 3's scaled RoPE ("llama3"): low frequencies, counted in turns within the original context, are slowed down."""

    factor: float  # how many times slower
    low_freq_factor: float  # turns up to which a frequency is slowed down fully
    high_freq_factor: float  # turns from which it is left alone; interpolated in between
    original_max_position_embeddings: int


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes and options of one checkpoint, named as in config.json."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rope_theta: float = 1e6
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = True
    max_position_embeddings: int = 32768
    attention_bias: bool = False  # biases of q, k and v; o has none in any family
    qk_norm: bool = False  # each head's query and key are normalised before rotation
    rope_scaling: RopeScaling | None = None
    attention: str = "einsum"  # not in config.json: "einsum" or an `implementation` of jax.nn.dot_product_attention

    @classmethod
    def from_hf(cls, hf: dict) -> "ModelConfig":
        """The config in a parsed config.json; ValueError lists every entry that would change the result and is not supported."""
        problems = [f"{key} = {found!r}: {why}" for key, found, bad, why in _refusals(hf) if bad]
        needed = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                  "num_key_value_heads")
        problems += [f"{key} is missing" for key in needed if key not in hf]
        problems += ["head_dim is missing"] if hf.get("model_type") == "qwen3" and not hf.get("head_dim") else []
        if problems:
            raise ValueError("config.json is not supported: " + "; ".join(problems))
        heads, kv_heads = hf["num_attention_heads"], hf["num_key_value_heads"]
        if heads % kv_heads:
            raise ValueError(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
        rope = _rope(hf)
        scaling = RopeScaling(**{key: rope[key] for key in RopeScaling._fields}) if rope["rope_type"] == "llama3" else None
        return cls(**{key: hf[key] for key in needed}, head_dim=hf.get("head_dim") or hf["hidden_size"] // heads,
                   rope_theta=float(rope["rope_theta"]), rope_scaling=scaling,
                   rms_norm_eps=float(hf.get("rms_norm_eps", 1e-6)),
                   tie_word_embeddings=bool(hf.get("tie_word_embeddings", False)),
                   max_position_embeddings=hf.get("max_position_embeddings", 32768), **FAMILIES[hf["model_type"]])


def _rope(hf: dict) -> dict:
    """The RoPE entries of config.json in one place, as old and new versions of transformers write them.

    As in transformers 5, what stands in the entry itself goes before what stands beside it, but for
    original_max_position_embeddings, where it is the other way round."""
    found = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
    beside = {"rope_type": found.get("type", "default"), "rope_theta": hf.get("rope_theta", 10000.0),
              "partial_rotary_factor": hf.get("partial_rotary_factor", 1.0)}
    original = "original_max_position_embeddings"
    return beside | found | {original: hf.get(original) or found.get(original) or hf.get("max_position_embeddings")}


def _refusals(hf: dict):
    """(key, value, whether it is refused, why) for each entry of config.json that could change the result."""
    rope, kinds = _rope(hf), ("default", "llama3")
    scaled, part, theta = rope["rope_type"] == "llama3", rope["partial_rotary_factor"], rope["rope_theta"]
    by_layer = [key for key, value in rope.items() if isinstance(value, dict)]
    low, high, *others = (rope.get(key) or 0 for key in ("low_freq_factor", "high_freq_factor", "factor",
                                                         "original_max_position_embeddings"))
    kind, act, window = hf.get("model_type"), hf.get("hidden_act", "silu"), hf.get("use_sliding_window")
    layers, quantised = hf.get("layer_types") or [], hf.get("quantization_config")
    yield "model_type", kind, kind not in FAMILIES, f"supported are {', '.join(FAMILIES)} (qwen2 includes Qwen2.5)"
    yield "hidden_act", act, act != "silu", "only 'silu' is supported"
    yield "rope_scaling", rope, rope["rope_type"] not in kinds, f"the only scaled RoPE supported is {kinds[1]!r}"
    yield "rope_scaling", rope, scaled and not (0 < low < high and min(others) > 0), f"it needs {', '.join(RopeScaling._fields)}"
    yield "rope_parameters", by_layer, bool(by_layer), "one RoPE for each type of layer is not supported"
    yield "rope_theta", theta, not (isinstance(theta, int | float) and 0 < theta < math.inf), "it must be a number above 0"
    yield "partial_rotary_factor", part, part != 1.0, "partly rotated heads are not supported"
    yield "use_sliding_window", window, bool(window), "sliding windows are not supported"
    for key in ("attention_bias", "mlp_bias"):  # Qwen2 always has its three biases
        yield key, hf.get(key), kind != "qwen2" and bool(hf.get(key)), "biases are supported in Qwen2 only"
    yield "layer_types", layers, any(t != "full_attention" for t in layers), "only 'full_attention' is supported"
    yield "quantization_config", quantised, quantised is not None, "load the unquantised checkpoint, or a .gguf"


_qwen25 = partial(ModelConfig, vocab_size=151936, num_key_value_heads=2, head_dim=128, attention_bias=True)
_qwen3 = partial(ModelConfig, vocab_size=151936, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
                 max_position_embeddings=40960, qk_norm=True)
_llama32 = partial(ModelConfig, vocab_size=128256, num_key_value_heads=8, rope_theta=5e5, rms_norm_eps=1e-5,
                   max_position_embeddings=131072, rope_scaling=RopeScaling(
                       factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192))
SHAPES = {  # by short name (a bare size is Qwen2.5-Coder-Instruct), so that planning needs no files
    "0.5B": _qwen25(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, head_dim=64),
    "1.5B": _qwen25(hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12),
    "3B": _qwen25(hidden_size=2048, intermediate_size=11008, num_hidden_layers=36, num_attention_heads=16),
    "7B": _qwen25(vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
                  num_key_value_heads=4, tie_word_embeddings=False),
    "qwen3-0.6B": _qwen3(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28),
    "qwen3-1.7B": _qwen3(hidden_size=2048, intermediate_size=6144, num_hidden_layers=28),
    "qwen3-4B": _qwen3(hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32),
    "llama-3.2-1B": _llama32(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, head_dim=64),
    "llama-3.2-3B": _llama32(hidden_size=3072, intermediate_size=8192, num_hidden_layers=28, num_attention_heads=24,
                             head_dim=128),
}


def projection_shapes(cfg: ModelConfig) -> dict[str, dict[str, tuple[int, int]]]:
    """(in, out) of each projection of a layer, nested like the parameters."""
    D, F = cfg.hidden_size, cfg.intermediate_size
    HC, KC = cfg.num_attention_heads * cfg.head_dim, cfg.num_key_value_heads * cfg.head_dim
    attention = dict(zip(ATTENTION_PROJECTIONS, ((D, HC), (D, KC), (D, KC), (HC, D)), strict=True))
    return {"self_attn": attention, "mlp": dict(zip(MLP_PROJECTIONS, ((D, F), (D, F), (F, D)), strict=True))}


class Spec(NamedTuple):
    """One parameter: its name and shape in the checkpoint, and whether it is kept transposed."""

    name: str
    shape: tuple[int, ...]
    transposed: bool = False

    @property
    def kept_shape(self):
        """The shape in memory."""
        return self.shape[::-1] if self.transposed else self.shape


def param_specs(cfg: ModelConfig) -> dict:
    """The tree of parameters, with a Spec at each leaf."""
    D, V = cfg.hidden_size, cfg.vocab_size
    specs = {"embed_tokens": Spec("model.embed_tokens.weight", (V, D)), "layers": [], "norm": Spec("model.norm.weight", (D,))}
    for i in range(cfg.num_hidden_layers):
        at = f"model.layers.{i}."
        layer = {name: Spec(f"{at}{name}.weight", (D,)) for name in ("input_layernorm", "post_attention_layernorm")}
        for part, shapes in projection_shapes(cfg).items():
            layer[part] = {p: {"weight": Spec(f"{at}{part}.{p}.weight", (e, d), True)} for p, (d, e) in shapes.items()}
        attention, shapes = layer["self_attn"], projection_shapes(cfg)["self_attn"]
        for p in ATTENTION_PROJECTIONS[:3] if cfg.attention_bias else ():
            attention[p]["bias"] = Spec(f"{at}self_attn.{p}.bias", shapes[p][1:])
        for norm in ("q_norm", "k_norm") if cfg.qk_norm else ():
            attention[norm] = Spec(f"{at}self_attn.{norm}.weight", (cfg.head_dim,))
        specs["layers"].append(layer)
    if not cfg.tie_word_embeddings:
        specs["lm_head"] = Spec("lm_head.weight", (V, D))
    return specs
