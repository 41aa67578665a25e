"""Qwen2 in JAX: checkpoint shapes, forward pass, key/value cache, LoRA hooks.  It knows nothing of files, tokenizers or RL.

Reading order: `block` is one transformer layer; `run_layers` is all of them; a *layout* says how the tokens of a call lie
and therefore what may attend to what:

    Causal   whole sequences side by side, left- or right-padded      validation
    Prompts  the same with quicker sums                               prefill
    Decode   one new token a row, prompts shared by their samples     the sampler
    Packed   a prompt and its N samples end to end, no padding        the update

Everything else in a layer works token by token and never asks.  Parameters are a plain nested dict with the checkpoint's
names; weights of projections are transposed once, at load, so that code reads `x @ w`.  An adapter is data passed in."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# The axis alphabet, repo-wide; a name like q_BTHC carries its axes.
# B rows = P prompts * N samples   T query tokens   S key (prompt) slots   Q packed tokens   L layers   V vocab   R LoRA rank
# D width   H query heads   K kv heads   G = H // K   C head channels   F mlp width   E output width of a projection
ATTENTION_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
NEVER = float(np.finfo(np.float32).min)  # a masked score; finite, so that a row with nothing to see stays finite


@dataclass(frozen=True)
class ModelConfig:
    """Shapes and constants of one Qwen2 checkpoint, in config.json's spelling."""

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
    attention: str = "einsum"  # ours, not config.json's: or an `implementation` of jax.nn.dot_product_attention

    @classmethod
    def from_hf(cls, hf: dict) -> "ModelConfig":
        """The config of a config.json; ValueError names every entry that would change the result and is not supported."""
        problems = [f"{key} = {found!r}: {why}" for key, found, bad, why in _refusals(hf) if bad]
        needed = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                  "num_key_value_heads")
        problems += [f"{key} is missing" for key in needed if key not in hf]
        if problems:
            raise ValueError("this config.json asks for what the forward pass does not do: " + "; ".join(problems))
        heads, kv_heads = hf["num_attention_heads"], hf["num_key_value_heads"]
        if heads % kv_heads:
            raise ValueError(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
        rope = hf.get("rope_parameters") or {}
        return cls(**{key: hf[key] for key in needed}, head_dim=hf.get("head_dim") or hf["hidden_size"] // heads,
                   rope_theta=float(hf.get("rope_theta") or rope.get("rope_theta") or 10000.0),
                   rms_norm_eps=float(hf.get("rms_norm_eps", 1e-6)),
                   tie_word_embeddings=bool(hf.get("tie_word_embeddings", False)),
                   max_position_embeddings=hf.get("max_position_embeddings", 32768))


def _refusals(hf: dict):
    """(key, what it says, is that a problem, why) for each entry of config.json that could change the result."""
    scaling = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
    rope, part = scaling.get("rope_type", scaling.get("type", "default")), scaling.get("partial_rotary_factor", 1.0)
    kind, act, window = hf.get("model_type"), hf.get("hidden_act", "silu"), hf.get("use_sliding_window")
    layers, quantised = hf.get("layer_types") or [], hf.get("quantization_config")
    yield "model_type", kind, kind != "qwen2", "only 'qwen2' (Qwen2 and Qwen2.5) is supported"
    yield "hidden_act", act, act != "silu", "only 'silu' is supported"
    yield "rope_scaling", scaling, rope != "default", "scaled RoPE is not supported"
    yield "partial_rotary_factor", part, part != 1.0, "only whole heads are rotated"
    yield "use_sliding_window", window, bool(window), "sliding windows are not supported"
    yield "layer_types", layers, any(t != "full_attention" for t in layers), "only 'full_attention' is supported"
    yield "quantization_config", quantised, quantised is not None, "load the unquantised checkpoint, or a .gguf"


_qwen25 = partial(ModelConfig, num_key_value_heads=2, head_dim=128)
SHAPES = {  # Qwen2.5-Coder-*-Instruct, so that planning needs no files
    "0.5B": ModelConfig(151936, 896, 4864, 24, 14, 2, 64),
    "1.5B": _qwen25(151936, 1536, 8960, 28, 12),
    "3B": _qwen25(151936, 2048, 11008, 36, 16),
    "7B": _qwen25(152064, 3584, 18944, 28, 28, num_key_value_heads=4, tie_word_embeddings=False),
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
        for p in ("q_proj", "k_proj", "v_proj"):  # Qwen2 has biases here and nowhere else
            layer["self_attn"][p]["bias"] = Spec(f"{at}self_attn.{p}.bias", (projection_shapes(cfg)["self_attn"][p][1],))
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


def rope_angles(positions, cfg: ModelConfig):
    """cos and sin of every position, shape (*positions, 1, C // 2); fp32, since bf16 merges neighbouring positions."""
    frequency_c = 1.0 / cfg.rope_theta ** (np.arange(0, cfg.head_dim, 2, dtype=np.float32) / cfg.head_dim)
    angle = positions[..., None, None].astype(jnp.float32) * frequency_c
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


def attend(q_BTHC, sources, kernel="einsum"):
    """Grouped-query attention, one softmax over all key sources.

    sources: [(k_BSKC, v_BSKC, mask)], mask broadcastable to (B, T, S), True where the query may look; fp32 scores."""
    B, T, H, C = q_BTHC.shape
    if kernel != "einsum":
        k_BSKC, v_BSKC = (jnp.concatenate(part, 1) for part in list(zip(*sources, strict=True))[:2])
        mask_BTS = jnp.concatenate([jnp.broadcast_to(mask, (B, T, k.shape[1])) for k, _, mask in sources], -1)
        o_BTHC = jax.nn.dot_product_attention(q_BTHC, k_BSKC, v_BSKC, mask=mask_BTS[:, None], implementation=kernel)
        return o_BTHC.reshape(B, T, H * C)
    K = sources[0][0].shape[2]
    q_BTKGC = q_BTHC.reshape(B, T, K, H // K, C)
    scores = []
    for k_BSKC, _, mask_BTS in sources:
        score_BKGTS = jnp.einsum("BTKGC,BSKC->BKGTS", q_BTKGC, k_BSKC, preferred_element_type=jnp.float32)
        scores.append(jnp.where(mask_BTS[:, None, None], score_BKGTS * C**-0.5, NEVER))
    weights = jax.nn.softmax(jnp.concatenate(scores, -1), -1).astype(q_BTHC.dtype)
    bounds = np.cumsum([score.shape[-1] for score in scores])[:-1]
    o_BTKGC = sum(jnp.einsum("BKGTS,BSKC->BTKGC", weight, v_BSKC)
                  for weight, (_, v_BSKC, _) in zip(jnp.split(weights, bounds, -1), sources, strict=True))
    return o_BTKGC.reshape(B, T, H * C)


def attend_part(q_BKMC, k_BKCS, v_BKSC, mask):
    """Attention over one of several key sources: (sum of mass * v, largest score, sum of mass), fp32, for `join_parts`."""
    score_BKMS = jnp.matmul(q_BKMC, k_BKCS, preferred_element_type=jnp.float32) * q_BKMC.shape[-1] ** -0.5
    score_BKMS = jnp.where(mask, score_BKMS, NEVER)
    top_BKM1 = score_BKMS.max(-1, keepdims=True)
    mass_BKMS = jnp.exp(score_BKMS - top_BKM1)
    mixed_BKMC = jnp.matmul(mass_BKMS.astype(v_BKSC.dtype), v_BKSC, preferred_element_type=jnp.float32)
    return mixed_BKMC, top_BKM1, mass_BKMS.sum(-1, keepdims=True)


def join_parts(one, two):
    """One softmax over two sources, from what `attend_part` made of each."""
    top = jnp.maximum(one[1], two[1])
    a, b = jnp.exp(one[1] - top), jnp.exp(two[1] - top)
    return (one[0] * a + two[0] * b) / (one[2] * a + two[2] * b)


def block(x, layer, lora, scale, rope, layout, past, cfg: ModelConfig):
    """One transformer layer: (x, what the layout keeps of this layer's keys and values)."""
    lora = lora or {"self_attn": {}, "mlp": {}}
    heads = lambda y: y.reshape(*y.shape[:-1], -1, cfg.head_dim)  # noqa: E731

    def linear(y, part, *names):
        return project(y, [layer[part][p] for p in names], [lora[part].get(p) for p in names], scale, layout.PIECE)

    h = rms_norm(x, layer["input_layernorm"], cfg.rms_norm_eps)
    q, k, v = map(heads, linear(h, "self_attn", "q_proj", "k_proj", "v_proj"))
    # Qwen2's key bias is a hundred times its keys.  Taken off again after the rotation it shifts all scores of a query alike,
    # which softmax does not see, and what is left rounds far less.
    k = rotate(k, rope) - heads(layer["self_attn"]["k_proj"]["bias"])
    mixed, kept = layout.mix(rotate(q, rope), k, v, past, cfg.attention)
    x = x + linear(mixed, "self_attn", "o_proj")[0]

    h = rms_norm(x, layer["post_attention_layernorm"], cfg.rms_norm_eps)
    gate, up = linear(h, "mlp", "gate_proj", "up_proj")
    return x + linear(jax.nn.silu(gate) * up, "mlp", "down_proj")[0], kept


# ---- layouts ---------------------------------------------------------------------------------------------------------


class Causal(NamedTuple):
    """Whole sequences side by side; keeps every key and value."""

    PIECE = 128  # whole sequences are for checks: here accuracy comes first
    mask_BT: jax.Array  # True on real tokens

    def mix(self, q_BTHC, k_BTKC, v_BTKC, past, kernel):
        """(attention's output, kept) of one layer's queries, keys and values."""
        T = self.mask_BT.shape[1]
        causal_TT = jnp.tril(jnp.ones((T, T), bool))
        mask_BTT = causal_TT[None] & self.mask_BT[:, None, :]
        return attend(q_BTHC, [(k_BTKC, v_BTKC, mask_BTT)], kernel), (k_BTKC, v_BTKC)


class Prompts(Causal):
    """Causal with the sums that the other programs of training have: quicker, and no further from the update's."""

    PIECE = 0


class Decode(NamedTuple):
    """One new token a row at slot `t` of the row's own cache; the prompt's keys are stored once per prompt.

    past = (k_PKCS, v_PKSC, own_k_BKCT, own_v_BKTC), laid out for small products; keeps (own_k, own_v) with slot t written.
    All rows of a prompt look at it together, so a prompt's keys are read once a step, however many rows continue it."""

    PIECE = 0
    row_PN: jax.Array  # the row that is sample n of prompt p; any row where that sample has ended
    place_B: jax.Array  # p * N + n of each row
    mask_PS: jax.Array
    t: jax.Array

    def mix(self, q_B1HC, k_B1KC, v_B1KC, past, _kernel):
        """(attention's output, kept) of one layer's queries, keys and values."""
        k_PKCS, v_PKSC, own_k, own_v = past
        (P, N), (B, _, H, C), K = self.row_PN.shape, q_B1HC.shape, own_k.shape[1]
        own_k = jax.lax.dynamic_update_slice_in_dim(own_k, k_B1KC.transpose(0, 2, 3, 1), self.t, 3)
        own_v = jax.lax.dynamic_update_slice_in_dim(own_v, v_B1KC.transpose(0, 2, 1, 3), self.t, 2)
        q_BKGC = q_B1HC.reshape(B, K, H // K, C)
        q_PKNC = q_BKGC[self.row_PN].swapaxes(1, 2).reshape(P, K, -1, C)
        shared = [y.reshape(P, K, N, H // K, -1).swapaxes(1, 2).reshape(P * N, K, H // K, -1)[self.place_B]
                  for y in attend_part(q_PKNC, k_PKCS, v_PKSC, self.mask_PS[:, None, None])]
        own = attend_part(q_BKGC, own_k, own_v, jnp.arange(own_v.shape[2]) <= self.t)
        return join_parts(shared, own).astype(q_B1HC.dtype).reshape(B, 1, H * C), (own_k, own_v)


class Packed(NamedTuple):
    """A prompt (S slots, right-padded) and its N samples end to end: Q = S + tokens of all samples (+ padding at the end).

    Projections see Q tokens and no padding; attention alone unpacks the samples to (N, T).  The prompt is computed once."""

    PIECE = 0
    mask_S: jax.Array  # True on the prompt's real tokens
    slot_NT: jax.Array  # index into the Q - S sample tokens of token t of sample n (anything where there is none)
    row_Q: jax.Array  # sample and
    column_Q: jax.Array  # place in it of each of the Q - S sample tokens

    def mix(self, q_QHC, k_QKC, v_QKC, past, kernel):
        """(attention's output, kept) of one layer's queries, keys and values."""
        S, T = self.mask_S.shape[0], self.slot_NT.shape[1]
        N = self.slot_NT.shape[0]
        prompt, _ = Causal(self.mask_S[None]).mix(q_QHC[None, :S], k_QKC[None, :S], v_QKC[None, :S], None, kernel)
        q_NTHC, k_NTKC, v_NTKC = (y[S:][self.slot_NT] for y in (q_QHC, k_QKC, v_QKC))
        shared = tuple(jnp.broadcast_to(y[None, :S], (N, S, *y.shape[1:])) for y in (k_QKC, v_QKC))
        causal_TT = jnp.tril(jnp.ones((T, T), bool))
        samples = attend(q_NTHC, [(*shared, self.mask_S[None, None]), (k_NTKC, v_NTKC, causal_TT[None])], kernel)
        return jnp.concatenate([prompt[0], samples[self.row_Q, self.column_Q]]), None


# ---- the whole model -------------------------------------------------------------------------------------------------

# Under an outer jit these vanish into it.  Called outside of one, as the update does, a layer is compiled once, run L times,
# and keeps only its input for the backward pass ("full") or also its matrix products ("dots").
_keep_dots = partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable, static_argnums=7)
BLOCKS = {
    "none": jax.jit(block, static_argnums=7),
    "dots": jax.jit(_keep_dots(block), static_argnums=7),
    "full": jax.jit(jax.checkpoint(block, static_argnums=7), static_argnums=7),
}


def run_layers(params, adapter, tokens, positions, layout, pasts, cfg: ModelConfig, remat="none"):
    """Hidden states after the final norm, shape (*tokens, D), and what the layout kept of each layer."""
    x, rope = enter(params["embed_tokens"], tokens, positions, cfg)
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


@partial(jax.jit, static_argnames="cfg")
def prefill(params, adapter, tokens_PS, mask_PS, cfg: ModelConfig):
    """Each layer's (k_PKCS, v_PKSC) of left-padded prompts, for `Decode`."""
    pasts = [None] * cfg.num_hidden_layers
    kept = run_layers(params, adapter, tokens_PS, padded_positions(mask_PS), Prompts(mask_PS), pasts, cfg)[1]
    return [(k_PSKC.transpose(0, 2, 3, 1), v_PSKC.transpose(0, 2, 1, 3)) for k_PSKC, v_PSKC in kept]


@partial(jax.jit, static_argnames="cfg")
def forward(params, adapter, tokens_BT, mask_BT, cfg: ModelConfig):
    """Uncached forward of whole padded sequences: fp32 logits_BTV.  For checks; the sampler and the update never hold BTV."""
    hidden_BTD, _ = run_layers(params, adapter, tokens_BT, padded_positions(mask_BT), Causal(mask_BT),
                               [None] * cfg.num_hidden_layers, cfg)
    return head_logits(params, hidden_BTD.reshape(-1, cfg.hidden_size)).T.reshape(*tokens_BT.shape, cfg.vocab_size)
