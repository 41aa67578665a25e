"""Qwen2, Qwen3 and Llama 3 in JAX: checkpoint shapes, forward pass, LoRA hooks.  It knows nothing of files, tokenizers or RL.

Reading order: `block` is one transformer layer; `run_layers` is all of them; a *layout* (`attention.py`) says how the tokens
of a call lie and therefore what may attend to what.  Everything else in a layer works token by token and never asks.
The families differ in three fields of `ModelConfig`: attention_bias (Qwen2), qk_norm (Qwen3), rope_scaling (Llama 3.1 on).
Parameters are a plain nested dict with the checkpoint's names; weights of projections are transposed once, at load, so that
code reads `x @ w`.  An adapter is data passed in."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from attention import Causal, Prompts

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


def load_params(tensor: Callable[[str], np.ndarray], cfg: ModelConfig, dtype) -> dict:
    """Parameters from `tensor(hub name)`, cast to dtype; ValueError lists every missing or misshapen tensor."""
    problems = []

    def get(spec):
        try:
            found = tensor(spec.name)
        except KeyError:
            return problems.append(f"{spec.name} is missing")
        if tuple(found.shape) != spec.shape:
            return problems.append(f"{spec.name} has shape {tuple(found.shape)}, the config wants {spec.shape}")
        return jnp.asarray(np.ascontiguousarray(found.T if spec.transposed else found), dtype)

    params = jax.tree.map(get, param_specs(cfg), is_leaf=lambda leaf: isinstance(leaf, Spec))
    if problems:
        raise ValueError(f"{len(problems)} tensors do not fit the config: " + "; ".join(problems[:12])
                         + ("; ..." if len(problems) > 12 else ""))
    return params


# ---- one layer -------------------------------------------------------------------------------------------------------


def rms_norm(x, weight_D, eps):
    """Root-mean-square norm, in fp32: squares of fp16 activations overflow."""
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + eps)).astype(x.dtype) * weight_D


def rope_frequencies(cfg: ModelConfig) -> np.ndarray:
    """Radians a position of each of the C // 2 channel pairs, fp32."""
    frequency_c = 1.0 / cfg.rope_theta ** (np.arange(0, cfg.head_dim, 2, dtype=np.float32) / cfg.head_dim)
    if not (s := cfg.rope_scaling):
        return frequency_c
    turns_c = frequency_c * (s.original_max_position_embeddings / (2 * np.pi))
    kept_c = np.clip((turns_c - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0, 1)
    return frequency_c * (kept_c + (1 - kept_c) / s.factor)


def rope_angles(positions, cfg: ModelConfig):
    """cos and sin of every position, shape (*positions, 1, C // 2); fp32, since bf16 merges neighbouring positions."""
    angle = positions[..., None, None].astype(jnp.float32) * rope_frequencies(cfg)
    return jnp.cos(angle), jnp.sin(angle)


def rotate(x_BTHC, rope):
    """Rotary embedding in the checkpoint's half-split order: channel c pairs with c + C // 2."""
    cos, sin = rope
    low, high = jnp.split(x_BTHC.astype(jnp.float32), 2, -1)
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], -1).astype(x_BTHC.dtype)


def product(x, weight_DE, piece):
    """x @ w; in fp32 summed in pieces of so many terms, 0 for one piece.

    XLA's CPU product adds up D terms with half again the rounding error of other libraries; pieces of 128 have a third less
    than those, and take up to twice as long."""
    D = weight_DE.shape[0]
    if not 0 < piece < D or x.dtype != jnp.float32:
        return x @ weight_DE
    return sum(x[..., i : i + piece] @ weight_DE[i : i + piece] for i in range(0, D, piece))


def project(x, bases, loras, scale, piece=0):
    """x @ w + bias of each projection of x, plus scale * (x @ a) @ b where it has an adapter; a and b are fp32 masters, cast
    to x's dtype.  All the a's are one product: many narrow ones would cost the sampler a seventh of its time."""
    ys = [product(x, base["weight"], piece) + base.get("bias", 0) for base in bases]
    adapted = [i for i, lora in enumerate(loras) if lora is not None]
    if not adapted:
        return ys
    low = x @ jnp.concatenate([loras[i]["a"] for i in adapted], 1).astype(x.dtype)
    ends = np.cumsum([loras[i]["a"].shape[1] for i in adapted])
    for i, low_R in zip(adapted, jnp.split(low, ends[:-1], -1), strict=True):
        ys[i] = ys[i] + scale.astype(x.dtype) * (low_R @ loras[i]["b"].astype(x.dtype))
    return ys


def block(x, layer, lora, scale, rope, layout, past, cfg: ModelConfig):
    """One transformer layer: (x, what the layout keeps of this layer's keys and values)."""
    lora = lora or {"self_attn": {}, "mlp": {}}
    heads = lambda y: y.reshape(*y.shape[:-1], -1, cfg.head_dim)  # noqa: E731

    def linear(y, part, *names):
        return project(y, [layer[part][p] for p in names], [lora[part].get(p) for p in names], scale, layout.PIECE)

    h, attention = rms_norm(x, layer["input_layernorm"], cfg.rms_norm_eps), layer["self_attn"]
    q, k, v = map(heads, linear(h, "self_attn", "q_proj", "k_proj", "v_proj"))
    if cfg.qk_norm:
        q, k = rms_norm(q, attention["q_norm"], cfg.rms_norm_eps), rms_norm(k, attention["k_norm"], cfg.rms_norm_eps)
    k = rotate(k, rope)
    if cfg.attention_bias:
        # Qwen2's key bias is a hundred times its keys.  Taken off again after the rotation it shifts all scores of a query
        # alike, which softmax does not see, and what is left rounds far less.
        k = k - heads(attention["k_proj"]["bias"])
    mixed, kept = layout.mix(rotate(q, rope), k, v, past, cfg.attention)
    x = x + linear(mixed, "self_attn", "o_proj")[0]

    h = rms_norm(x, layer["post_attention_layernorm"], cfg.rms_norm_eps)
    gate, up = (checkpoint_name(y, "mlp") for y in linear(h, "mlp", "gate_proj", "up_proj"))
    return x + linear(jax.nn.silu(gate) * up, "mlp", "down_proj")[0], kept


# ---- the whole model -------------------------------------------------------------------------------------------------

# Under an outer jit these vanish into it.  Called outside of one, as the update does, a layer is compiled once, run L times,
# and keeps for the backward pass its input ("full"), also gate and up, five sixths of what would be computed again ("mlp"),
# also all other matrix products ("dots"), or everything ("none").
_keep = jax.checkpoint_policies
_POLICIES = {"full": _keep.nothing_saveable, "mlp": _keep.save_only_these_names("mlp"),
             "dots": _keep.dots_with_no_batch_dims_saveable, "none": _keep.everything_saveable}
BLOCKS = {remat: jax.jit(jax.checkpoint(block, policy=policy, static_argnums=7) if remat != "none" else block, static_argnums=7)
          for remat, policy in _POLICIES.items()}


def run_layers(params, adapter, tokens, positions, layout, pasts, cfg: ModelConfig, remat="none", shift=None):
    """Hidden states after the final norm, shape (*tokens, D), and what the layout kept of each layer.  `shift` is added to the
    embeddings: something to differentiate by."""
    x, rope = enter(params["embed_tokens"], tokens, positions, cfg)
    x = x if shift is None else x + shift
    loras, scale = (adapter["layers"], adapter["scale"]) if adapter else ([None] * cfg.num_hidden_layers, None)
    kept = []
    for layer, lora, past in zip(params["layers"], loras, pasts, strict=True):
        x, keep = BLOCKS[remat](x, layer, lora, scale, rope, layout, past, cfg)
        kept.append(keep)
    return leave(x, params["norm"], cfg), kept


@partial(jax.jit, static_argnames="cfg")
def enter(embed_VD, tokens, positions, cfg: ModelConfig):
    """Embeddings and rotary angles: what the first layer is given."""
    return embed_VD[tokens], rope_angles(positions, cfg)


@partial(jax.jit, static_argnames="cfg")
def leave(x, weight_D, cfg: ModelConfig):
    """The final norm."""
    return rms_norm(x, weight_D, cfg.rms_norm_eps)


def head_logits(params, hidden_BD):
    """fp32 logits_VB of hidden states.  E @ h.T rather than h @ E.T, and left that way round: on the CPU either the other
    product or turning its result would take as long as the product itself."""
    head_VD = params.get("lm_head", params["embed_tokens"])
    return jnp.matmul(head_VD, hidden_BD.T, preferred_element_type=jnp.float32)


def padded_positions(mask_BT):
    """Positions that start at 0 on the first real token, however much padding lies left of it."""
    return jnp.maximum(jnp.cumsum(mask_BT.astype(jnp.int32), -1) - 1, 0)


@partial(jax.jit, static_argnames=("slots", "cfg"))
def prefill(params, adapter, tokens_PS, mask_PS, slots: int, cfg: ModelConfig):
    """Each layer's (k_PKCS, v_PKSC) of left-padded prompts, for `Decode`; zeros up to so many slots."""
    pasts = [None] * cfg.num_hidden_layers
    kept = run_layers(params, adapter, tokens_PS, padded_positions(mask_PS), Prompts(mask_PS), pasts, cfg)[1]
    room = ((0, 0), (0, slots - tokens_PS.shape[1]), (0, 0), (0, 0))
    kept = [[jnp.pad(y_PSKC, room) for y_PSKC in layer] for layer in kept]
    return [(k_PSKC.transpose(0, 2, 3, 1), v_PSKC.transpose(0, 2, 1, 3)) for k_PSKC, v_PSKC in kept]


@partial(jax.jit, static_argnames="cfg")
def forward(params, adapter, tokens_BT, mask_BT, cfg: ModelConfig):
    """Uncached forward of whole padded sequences: fp32 logits_BTV.  For checks; the sampler and the update never hold BTV."""
    hidden_BTD, _ = run_layers(params, adapter, tokens_BT, padded_positions(mask_BT), Causal(mask_BT),
                               [None] * cfg.num_hidden_layers, cfg)
    return head_logits(params, hidden_BTD.reshape(-1, cfg.hidden_size)).T.reshape(*tokens_BT.shape, cfg.vocab_size)
