"""Qwen2, Qwen3 and Llama 3 in JAX: checkpoint shapes, forward pass, LoRA hooks.  It knows nothing of files, tokenizers or RL.

Reading order: `block` is one transformer layer; `run_layers` is all of them; a *layout* (`attention.py`) says how the tokens
of a call lie and therefore what may attend to what.  Everything else in a layer works token by token and never asks.
The families differ in three fields of `ModelConfig`: attention_bias (Qwen2), qk_norm (Qwen3), rope_scaling (Llama 3.1 on).
Parameters are a plain nested dict with the checkpoint's names; weights of projections are transposed once, at load, so that
code reads `x @ w`.  An adapter is data passed in."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

# The axis alphabet; a name like q_BTHC carries its axes.  Files that use a letter otherwise say so at their top.
# B rows = P prompts * N samples   T query tokens   S key (prompt) slots   Q packed tokens   L layers   V vocab   R LoRA rank
# D width   H query heads   K kv heads   G = H // K   C head channels   F mlp width   E output width of a projection
ATTENTION_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


class RopeScaling(NamedTuple):
    """Llama 3's stretched RoPE ("llama3"): what turns seldom within the original context turns `factor` times slower."""

    factor: float
    low_freq_factor: float  # turns within that context: up to so many, slowed down wholly
    high_freq_factor: float  # from so many on, left as they are; in between, by their number
    original_max_position_embeddings: int


FAMILIES = {"qwen2": {"attention_bias": True}, "qwen3": {"qk_norm": True}, "llama": {}}  # model_type: what sets it apart


@dataclass(frozen=True)
class ModelConfig:
    """Shapes and constants of one checkpoint, in config.json's spelling."""

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
    attention_bias: bool = False  # q, k and v have biases; o has none in any family
    qk_norm: bool = False  # each head's query and key are normed before they are rotated
    rope_scaling: RopeScaling | None = None
    attention: str = "einsum"  # ours, not config.json's: or an `implementation` of jax.nn.dot_product_attention

    @classmethod
    def from_hf(cls, hf: dict) -> "ModelConfig":
        """The config of a config.json; ValueError names every entry that would change the result and is not supported."""
        problems = [f"{key} = {found!r}: {why}" for key, found, bad, why in _refusals(hf) if bad]
        needed = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                  "num_key_value_heads")
        problems += [f"{key} is missing" for key in needed if key not in hf]
        problems += ["head_dim is missing"] if hf.get("model_type") == "qwen3" and not hf.get("head_dim") else []
        if problems:
            raise ValueError("this config.json asks for what the forward pass does not do: " + "; ".join(problems))
        heads, kv_heads = hf["num_attention_heads"], hf["num_key_value_heads"]
        if heads % kv_heads:
            raise ValueError(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
        rope = _rope(hf)
        scaling = RopeScaling(*(rope[key] for key in RopeScaling._fields)) if rope["rope_type"] == "llama3" else None
        return cls(**{key: hf[key] for key in needed}, head_dim=hf.get("head_dim") or hf["hidden_size"] // heads,
                   rope_theta=float(hf.get("rope_theta") or rope.get("rope_theta") or 10000.0), rope_scaling=scaling,
                   rms_norm_eps=float(hf.get("rms_norm_eps", 1e-6)),
                   tie_word_embeddings=bool(hf.get("tie_word_embeddings", False)),
                   max_position_embeddings=hf.get("max_position_embeddings", 32768), **FAMILIES[hf["model_type"]])


def _rope(hf: dict) -> dict:
    """What a config.json of either transformers generation says of RoPE, with its rope_type."""
    found = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
    return {"rope_type": found.get("type", "default")} | found


def _refusals(hf: dict):
    """(key, what it says, is that a problem, why) for each entry of config.json that could change the result."""
    rope, kinds = _rope(hf), ("default", "llama3")
    scaled, part = rope["rope_type"] == "llama3", rope.get("partial_rotary_factor", 1.0)
    low, high, *others = (rope.get(key) or 0 for key in ("low_freq_factor", "high_freq_factor", "factor",
                                                         "original_max_position_embeddings"))
    kind, act, window = hf.get("model_type"), hf.get("hidden_act", "silu"), hf.get("use_sliding_window")
    layers, quantised = hf.get("layer_types") or [], hf.get("quantization_config")
    yield "model_type", kind, kind not in FAMILIES, f"supported are {', '.join(FAMILIES)} (qwen2 is Qwen2.5 too)"
    yield "hidden_act", act, act != "silu", "only 'silu' is supported"
    yield "rope_scaling", rope, rope["rope_type"] not in kinds, f"of scaled RoPE only {kinds[1]!r} is supported"
    yield "rope_scaling", rope, scaled and not (0 < low < high and min(others) > 0), f"it needs {', '.join(RopeScaling._fields)}"
    yield "partial_rotary_factor", part, part != 1.0, "only whole heads are rotated"
    yield "use_sliding_window", window, bool(window), "sliding windows are not supported"
    for key in ("attention_bias", "mlp_bias"):  # Qwen2's three biases are no choice of its config.json
        yield key, hf.get(key), kind != "qwen2" and bool(hf.get(key)), "biases beside Qwen2's are not supported"
    yield "layer_types", layers, any(t != "full_attention" for t in layers), "only 'full_attention' is supported"
    yield "quantization_config", quantised, quantised is not None, "load the unquantised checkpoint, or a .gguf"


_qwen25 = partial(ModelConfig, num_key_value_heads=2, head_dim=128, attention_bias=True)
_qwen3 = partial(ModelConfig, num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=40960,
                 qk_norm=True)
_llama32 = partial(ModelConfig, num_key_value_heads=8, rope_theta=5e5, rms_norm_eps=1e-5, max_position_embeddings=131072,
                   rope_scaling=RopeScaling(32.0, 1.0, 4.0, 8192))
SHAPES = {  # Qwen2.5-Coder-*-Instruct under their bare size; here so that planning needs no files
    "0.5B": ModelConfig(151936, 896, 4864, 24, 14, 2, 64, attention_bias=True),
    "1.5B": _qwen25(151936, 1536, 8960, 28, 12),
    "3B": _qwen25(151936, 2048, 11008, 36, 16),
    "7B": _qwen25(152064, 3584, 18944, 28, 28, num_key_value_heads=4, tie_word_embeddings=False),
    "qwen3-0.6B": _qwen3(151936, 1024, 3072, 28),
    "qwen3-1.7B": _qwen3(151936, 2048, 6144, 28),
    "qwen3-4B": _qwen3(151936, 2560, 9728, 36, num_attention_heads=32),
    "llama-3.2-1B": _llama32(128256, 2048, 8192, 16, 32, head_dim=64),
    "llama-3.2-3B": _llama32(128256, 3072, 8192, 28, 24, head_dim=128),
}


def projection_shapes(cfg: ModelConfig) -> dict[str, dict[str, tuple[int, int]]]:
    """(in, out) of each projection of a layer, nested as in the parameters; LoRA and loading both read it."""
    D, F = cfg.hidden_size, cfg.intermediate_size
    HC, KC = cfg.num_attention_heads * cfg.head_dim, cfg.num_key_value_heads * cfg.head_dim
    attention = dict(zip(ATTENTION_PROJECTIONS, ((D, HC), (D, KC), (D, KC), (HC, D)), strict=True))
    return {"self_attn": attention, "mlp": dict(zip(MLP_PROJECTIONS, ((D, F), (D, F), (F, D)), strict=True))}


class Spec(NamedTuple):
    """One parameter: its name and shape on the hub, and whether we keep the transpose."""

    name: str
    shape: tuple[int, ...]
    transposed: bool = False

    @property
    def kept_shape(self):
        """The shape it has here."""
        return self.shape[::-1] if self.transposed else self.shape


def param_specs(cfg: ModelConfig) -> dict:
    """The parameters' tree with a Spec at each leaf; loading and planning read it."""
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


PROJECTIONS = ATTENTION_PROJECTIONS + MLP_PROJECTIONS
