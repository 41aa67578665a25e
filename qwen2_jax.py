"""Qwen2, Qwen3 and Llama 3 in JAX: parameters, forward pass, LoRA.  Knows nothing of files, tokenizers or RL.

Reading order: `block` is one transformer layer, `run_layers` runs all of them, `prefill` and `forward` are whole passes.  A
*layout* (attention.py) says how the tokens of a call are arranged and which may attend to which; the rest of a layer treats
every token by itself.  Sizes and parameter names come from model_config.py.  Parameters are a nested dict with the
checkpoint's names; projections are transposed once, at load, so that code reads `x @ w`.  An adapter is data passed in.

Names end in the axes of the array, as in q_BTHC.  A letter means the same in every file:

    B  rows = P prompts * N samples             D  width                    H  query heads
    T  tokens of a row                          F  mlp width                K  key/value heads
    S  prompt slots                             E  projection output        G  = H / K
    Q  packed tokens = S + Y sample tokens      R  LoRA rank                X  queries that share a key/value head
    U  keys a query may see: S, T or S + T      L  layers                   C  head channels, c = C / 2
    M  sampled tokens scored together           V  vocabulary = Z tiles of W ids
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from attention import Causal, Prompts
from model_config import ModelConfig, Spec, param_specs


def load_params(tensor: Callable[[str], np.ndarray], cfg: ModelConfig, dtype) -> dict:
    """Parameters from `tensor(name in the checkpoint)`, cast to dtype.

    ValueError lists every tensor that is missing, misshapen or not finite in dtype."""
    problems = []

    def get(spec):
        try:
            found = tensor(spec.name)
        except KeyError:
            return problems.append(f"{spec.name} is missing")
        if tuple(found.shape) != spec.shape:
            return problems.append(f"{spec.name} has shape {tuple(found.shape)}, the config wants {spec.shape}")
        kept = jnp.asarray(np.ascontiguousarray(found.T if spec.transposed else found), dtype)
        if not all_finite(kept):
            problems.append(f"{spec.name} has values that are NaN, infinite or beyond the range of {kept.dtype}")
        return kept

    params = jax.tree.map(get, param_specs(cfg), is_leaf=lambda leaf: isinstance(leaf, Spec))
    if problems:
        raise ValueError(f"{len(problems)} tensors cannot be used with this config: " + "; ".join(problems[:12])
                         + ("; ..." if len(problems) > 12 else ""))
    return params


@jax.jit
def all_finite(values):
    """Whether no value is NaN or infinite; jitted, so that no array of flags is made."""
    return jnp.isfinite(values).all()


# ---- one layer -------------------------------------------------------------------------------------------------------


def rms_norm(x, weight, eps):
    """Root-mean-square norm over the last axis, in fp32: squares of fp16 activations overflow."""
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + eps)).astype(x.dtype) * weight


def rope_frequencies(cfg: ModelConfig) -> np.ndarray:
    """frequency_c, fp32: radians per position of each channel pair."""
    frequency_c = 1.0 / cfg.rope_theta ** (np.arange(0, cfg.head_dim, 2, dtype=np.float32) / cfg.head_dim)
    if not (s := cfg.rope_scaling):
        return frequency_c
    turns_c = frequency_c * (s.original_max_position_embeddings / (2 * np.pi))
    kept_c = np.clip((turns_c - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0, 1)
    return frequency_c * (kept_c + (1 - kept_c) / s.factor)


def rope_angles(positions, cfg: ModelConfig):
    """cos and sin of every position, (*positions, 1, c); fp32, because bf16 merges neighbouring positions."""
    angle = positions[..., None, None].astype(jnp.float32) * rope_frequencies(cfg)
    return jnp.cos(angle), jnp.sin(angle)


def rotate(x, rope):
    """Rotary embedding of x, (..., heads, C), in the checkpoint's half-split order: channel i pairs with i + C / 2."""
    cos, sin = rope
    low, high = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], -1).astype(x.dtype)


def product(x, weight_DE, piece):
    """x @ w; in fp32 as a sum over pieces of that many rows of w, 0 for one product.

    XLA's CPU product has 1.5 times the rounding error of other libraries.  Pieces of 128 have two thirds of theirs and take up
    to twice as long."""
    D = weight_DE.shape[0]
    if not 0 < piece < D or x.dtype != jnp.float32:
        return x @ weight_DE
    return sum(x[..., i : i + piece] @ weight_DE[i : i + piece] for i in range(0, D, piece))


def project(x, bases, loras, scale, piece=0):
    """For each projection of x: x @ w + bias, plus scale * (x @ a) @ b if it is adapted.  a and b are fp32, cast to x's dtype.

    All x @ a are one product: separate narrow ones would take a seventh of the sampler's time."""
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
    """One transformer layer: (x, the keys and values that the layout keeps)."""
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
        # Qwen2's key bias is a hundred times larger than its keys.  Subtracting it again after the rotation shifts all scores
        # of a query by the same amount, which softmax ignores, and leaves far smaller rounding errors.
        k = k - heads(attention["k_proj"]["bias"])
    mixed, kept = layout.mix(rotate(q, rope), k, v, past, cfg.attention)
    x = x + linear(mixed, "self_attn", "o_proj")[0]

    h = rms_norm(x, layer["post_attention_layernorm"], cfg.rms_norm_eps)
    gate, up = (checkpoint_name(y, "mlp") for y in linear(h, "mlp", "gate_proj", "up_proj"))
    return x + linear(jax.nn.silu(gate) * up, "mlp", "down_proj")[0], kept


# ---- the whole model -------------------------------------------------------------------------------------------------

# Under an outer jit these are inlined.  The update calls them outside of one, so that a layer is compiled once and run L times.
# A layer keeps for the backward pass: its input ("full"); gate and up too, which saves five sixths of the recomputation
# ("mlp"); all other matrix products too ("dots"); everything ("none").
_keep = jax.checkpoint_policies
_POLICIES = {"full": _keep.nothing_saveable, "mlp": _keep.save_only_these_names("mlp"),
             "dots": _keep.dots_with_no_batch_dims_saveable, "none": _keep.everything_saveable}
BLOCKS = {remat: jax.jit(jax.checkpoint(block, policy=policy, static_argnums=7) if remat != "none" else block, static_argnums=7)
          for remat, policy in _POLICIES.items()}


def run_layers(params, adapter, tokens, positions, layout, pasts, cfg: ModelConfig, remat="none", shift=None):
    """Hidden states after the final norm, (*tokens, D), and what the layout keeps of each layer.

    `shift` is added to the embeddings, so that one can differentiate with respect to them."""
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
    """Embeddings and rotary angles: the first layer's input."""
    return embed_VD[tokens], rope_angles(positions, cfg)


@partial(jax.jit, static_argnames="cfg")
def leave(x, weight_D, cfg: ModelConfig):
    """The final norm."""
    return rms_norm(x, weight_D, cfg.rms_norm_eps)


def head_logits(params, hidden):
    """fp32 logits, (V, tokens), of hidden states, (tokens, D).

    Computed and returned as head @ hidden.T: on a CPU, hidden @ head.T or transposing the result would double the time."""
    head_VD = params.get("lm_head", params["embed_tokens"])
    return jnp.matmul(head_VD, hidden.T, preferred_element_type=jnp.float32)


def padded_positions(mask_BT):
    """Positions that count from 0 at the first real token, after any padding on the left."""
    return jnp.maximum(jnp.cumsum(mask_BT.astype(jnp.int32), -1) - 1, 0)


@partial(jax.jit, static_argnames=("slots", "cfg"))
def prefill(params, adapter, tokens_PS, mask_PS, slots: int, cfg: ModelConfig):
    """Each layer's (k_PKCS, v_PKSC) of left-padded prompts, for `Decode`, filled up with zeros to S = slots."""
    pasts = [None] * cfg.num_hidden_layers
    kept = run_layers(params, adapter, tokens_PS, padded_positions(mask_PS), Prompts(mask_PS), pasts, cfg)[1]
    room = ((0, 0), (0, slots - tokens_PS.shape[1]), (0, 0), (0, 0))
    kept = [[jnp.pad(y_PSKC, room) for y_PSKC in layer] for layer in kept]
    return [(k_PSKC.transpose(0, 2, 3, 1), v_PSKC.transpose(0, 2, 1, 3)) for k_PSKC, v_PSKC in kept]


@partial(jax.jit, static_argnames="cfg")
def forward(params, adapter, tokens_BT, mask_BT, cfg: ModelConfig):
    """Uncached forward pass of whole padded sequences: fp32 logits_BTV.  For checks; training never holds so many logits."""
    hidden_BTD, _ = run_layers(params, adapter, tokens_BT, padded_positions(mask_BT), Causal(mask_BT),
                               [None] * cfg.num_hidden_layers, cfg)
    return head_logits(params, hidden_BTD.reshape(-1, cfg.hidden_size)).T.reshape(*tokens_BT.shape, cfg.vocab_size)
