"""LoRA adapters: initial values, merging, saving, loading.  An adapter is plain data beside the parameters:

    {"scale": alpha / rank, "layers": [{"self_attn": {"q_proj": {"a": a_DR, "b": b_RE}, ...}, "mlp": {...}}, ...]}

y = x @ w + scale * (x @ a) @ b for the projections with an entry, the targets, which are the same in every layer.  a starts
random and b at zero, so a new adapter changes nothing.  On disk it is a PEFT folder (adapter_model.safetensors and
adapter_config.json) or one .npz; rl/models/peft.py decides which PEFT folders of others are supported."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save

from model_config import PROJECTIONS, ModelConfig, projection_shapes
from rl.models.hub import same_model
from rl.models.peft import CONFIG, WEIGHTS, AdapterError, Stored, read_adapter
from rl.settings.declared import ModelSettings


def init(key, cfg: ModelConfig, rank: int, alpha: float, targets: Sequence[str] = PROJECTIONS) -> dict:
    """A new fp32 adapter: a uniform in +-1/sqrt(in) (PEFT's kaiming_uniform with a = sqrt(5)), b zero.

    A projection starts from the same values whatever the other targets are."""
    layers = []
    for layer_key in jax.random.split(key, cfg.num_hidden_layers):
        layer, keys = {}, dict(zip(PROJECTIONS, jax.random.split(layer_key, len(PROJECTIONS)), strict=True))
        for part, shapes in projection_shapes(cfg).items():
            layer[part] = {name: {"a": jax.random.uniform(keys[name], (d, rank), jnp.float32, -1, 1) / math.sqrt(d),
                                  "b": jnp.zeros((rank, e), jnp.float32)} for name, (d, e) in shapes.items() if name in targets}
        layers.append(layer)
    return {"scale": jnp.float32(alpha / rank), "layers": layers}


def adapter_key(seed: int):
    """The random key of a new adapter; no sampling key equals it."""
    return jax.random.fold_in(jax.random.key(seed), 2**32 - 1)


def count(adapter) -> int:
    """Number of trained values."""
    return sum(leaf.size for leaf in jax.tree.leaves(adapter["layers"]))


def delta_norm(adapter) -> float:
    """Frobenius norm of scale * a @ b over all projections."""
    return float(_delta_norm(adapter))


@jax.jit
def _delta_norm(adapter):
    total = jnp.float32(0)
    for layer in adapter["layers"]:
        for part in layer.values():
            for p in part.values():  # |a b|^2 = trace((a'a)(b b')), RR products instead of DE
                total += jnp.sum((p["a"].T @ p["a"]) * (p["b"] @ p["b"].T))
    return adapter["scale"] * jnp.sqrt(jnp.maximum(total, 0))


def merge(params, adapter) -> dict:
    """New parameters with the adapter added to the weights, in their dtype."""
    merged = {**params, "layers": []}
    for layer, lora in zip(params["layers"], adapter["layers"], strict=True):
        new = dict(layer)
        for part, loras in lora.items():
            new[part] = {**layer[part], **{name: _merged(layer[part][name], p, adapter["scale"]) for name, p in loras.items()}}
        merged["layers"].append(new)
    return merged


def _merged(base, p, scale):
    weight_DE = base["weight"].astype(jnp.float32) + scale * (p["a"] @ p["b"])
    return {**base, "weight": weight_DE.astype(base["weight"].dtype)}


# ---- files -----------------------------------------------------------------------------------------------------------


def to_peft(adapter) -> dict[str, np.ndarray]:
    """PEFT's tensors: lora_A.weight (R, in) and lora_B.weight (out, R) are the transposes of a and b."""
    tensors = {}
    for name, part, projection in _names(adapter):
        p = adapter["layers"][name][part][projection]
        at = f"base_model.model.{_module(name, part, projection)}"
        tensors[f"{at}.lora_A.weight"] = np.ascontiguousarray(np.asarray(p["a"]).T)
        tensors[f"{at}.lora_B.weight"] = np.ascontiguousarray(np.asarray(p["b"]).T)
    return tensors


def save_peft(folder: Path, adapter, base_model: str) -> None:
    """Write adapter_model.safetensors and adapter_config.json into an existing folder."""
    rank = rank_of(adapter)
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base_model, "r": rank,
        "lora_alpha": float(adapter["scale"]) * rank, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": False,
        "target_modules": targets_of(adapter), "inference_mode": True, "modules_to_save": None,
    }
    # save_file would raise something other than OSError on a full disk
    (folder / WEIGHTS).write_bytes(save(to_peft(adapter), metadata={"format": "pt"}))
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def save_npz(path: Path, adapter) -> None:
    """Write one .npz with the scale and PEFT's tensors, which numpy alone can read."""
    np.savez(path, scale=np.asarray(adapter["scale"]), **to_peft(adapter))


def to_measure(settings: ModelSettings, cfg: ModelConfig) -> dict | None:
    """The adapter that LORA names, its effect times LORA_SCALE; None without one.

    0 is the base model, 1 the adapter as trained; between them lie the interpolated weights of WiSE-FT (arXiv 2109.01903)."""
    if not settings.lora:
        return None
    adapter = load(settings.lora, cfg, model=settings.model)
    return {**adapter, "scale": adapter["scale"] * settings.lora_scale}


def label(settings: ModelSettings) -> str:
    """What tables call that adapter; "" without one."""
    return f"{settings.lora} x {settings.lora_scale:g}" if settings.lora and settings.lora_scale != 1 else settings.lora


def load(path: str | Path, cfg: ModelConfig, rank: int | None = None, targets: Sequence[str] | None = None,
         model: str = "") -> dict:
    """The adapter in a PEFT folder, an .npz or a checkpoint folder; AdapterError lists everything that does not fit.

    rank and targets are those of the settings, None for any; model is MODEL, compared with the name in the file, "" for any.
    A projection that a PEFT adapter trains in some layers only gets a = b = 0 in the others: it adds nothing there, and with
    no gradient it stays untrained."""
    stored = read_adapter(path)
    tensors, problems, ranks = dict(stored.tensors), [], set()
    layers = _empty_layers(stored, cfg)
    for i, part, projection in _names({"layers": layers}):
        module = _module(i, part, projection)
        d, e = projection_shapes(cfg)[part][projection]
        for leaf, suffix, shape in (("a", "lora_A", (stored.rank, d)), ("b", "lora_B", (e, stored.rank))):
            axis = int(leaf == "b")  # of the rank
            found = tensors.pop(f"base_model.model.{module}.{suffix}.weight", None)
            if found is None and not stored.trains(module):
                found = np.zeros(shape, np.float32)
            if found is None or found.ndim != 2 or found.shape[1 - axis] != shape[1 - axis]:
                problems.append(f"{module}.{suffix}: {'missing' if found is None else f'shape {found.shape}'}")
                continue
            ranks.add(found.shape[axis])
            layers[i][part][projection][leaf] = jnp.asarray(found.T, jnp.float32)
    problems = problems[:6] + [f"{name} has no place in this model" for name in list(tensors)[:6]]
    problems += [] if ranks or problems else ["it adapts no projection"]
    if problems:
        raise AdapterError(f"{path} is not an adapter of this model ({cfg.num_hidden_layers} layers, width {cfg.hidden_size}): "
                           + "; ".join(problems) + f". Use the model it was trained on (MODEL={stored.base}), or another "
                           "adapter.")
    if model and stored.base and not same_model(stored.base, model):
        raise AdapterError(f"{path} was trained on {stored.base}, the settings say MODEL={model}, another model with equal "
                           "shapes. Set MODEL to the model it was trained on; if both names mean the same model, write MODEL's "
                           f"as base_model_name_or_path into {CONFIG}")
    if len(ranks) != 1 or rank not in (None, *ranks):
        raise AdapterError(f"{path} has rank {sorted(ranks)}, the settings say LORA_RANK={rank}. "
                           f"Set LORA_RANK={max(ranks)}, or start a new adapter.")
    if targets is not None and set(targets) != set(found := targets_of({"layers": layers})):
        raise AdapterError(f"{path} has adapters on {', '.join(found)}, the settings say LORA_TARGETS={','.join(targets)}. "
                           f"Set LORA_TARGETS={','.join(found)}, or start a new adapter.")
    return {"scale": jnp.float32(stored.alpha / stored.rank), "layers": layers}


def _empty_layers(stored: Stored, cfg: ModelConfig) -> list[dict]:
    """An adapter without values: in every layer the projections that the stored one trains in any."""
    layers = range(cfg.num_hidden_layers)
    targets = {part: [p for p in shapes if any(stored.trains(_module(i, part, p)) for i in layers)]
               for part, shapes in projection_shapes(cfg).items()}
    return [{part: {p: {} for p in names} for part, names in targets.items()} for _ in layers]


def rank_of(adapter) -> int:
    """The adapter's rank."""
    i, part, projection = next(_names(adapter))
    return adapter["layers"][i][part][projection]["a"].shape[1]


def targets_of(adapter) -> list[str]:
    """The adapted projections, in the order of PROJECTIONS."""
    return list(dict.fromkeys(projection for _, _, projection in _names(adapter)))


def _module(layer: int, part: str, projection: str) -> str:
    return f"model.layers.{layer}.{part}.{projection}"


def _names(adapter):
    """(layer, part, projection) of every adapted projection, in a fixed order."""
    for i, layer in enumerate(adapter["layers"]):
        for part in ("self_attn", "mlp"):
            for projection in PROJECTIONS:
                if projection in layer[part]:
                    yield i, part, projection
