"""LoRA adapters: shapes, start values, save, load, merge.  An adapter is plain data beside the parameters:

    {"scale": alpha / rank, "layers": [{"self_attn": {"q_proj": {"a": a_DR, "b": b_RE}, ...}, "mlp": {...}}, ...]}

y = x @ w + scale * (x @ a) @ b, on all seven projections.  a starts random, b at zero, so a new adapter changes nothing.
On disk it is PEFT's layout (a folder with adapter_model.safetensors and adapter_config.json) or one .npz."""

import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

from qwen2_jax import ATTENTION_PROJECTIONS, MLP_PROJECTIONS, ModelConfig, projection_shapes
from rl.errors import InputError


class AdapterError(InputError):
    """An adapter that cannot be used: of another rank or model, incomplete, or unreadable."""


def init(key, cfg: ModelConfig, rank: int, alpha: float) -> dict:
    """A new adapter, fp32: a uniform in +-1/sqrt(in) (PEFT's kaiming_uniform with a = sqrt(5)), b zero."""
    layers = []
    for layer_key in jax.random.split(key, cfg.num_hidden_layers):
        layer, keys = {}, iter(jax.random.split(layer_key, len(ATTENTION_PROJECTIONS + MLP_PROJECTIONS)))
        for part, shapes in projection_shapes(cfg).items():
            layer[part] = {name: {"a": jax.random.uniform(next(keys), (d, rank), jnp.float32, -1, 1) / math.sqrt(d),
                                  "b": jnp.zeros((rank, e), jnp.float32)} for name, (d, e) in shapes.items()}
        layers.append(layer)
    return {"scale": jnp.float32(alpha / rank), "layers": layers}


def count(adapter) -> int:
    """Number of trained values."""
    return sum(leaf.size for leaf in jax.tree.leaves(adapter["layers"]))


def delta_norm(adapter) -> float:
    """Frobenius norm over all projections of scale * a @ b: how far the adapter has moved the model."""
    return float(_delta_norm(adapter))


@jax.jit
def _delta_norm(adapter):
    total = jnp.float32(0)
    for layer in adapter["layers"]:
        for part in layer.values():
            for p in part.values():  # |a b|^2 = trace((a'a)(b b')): R x R products instead of D x E
                total += jnp.sum((p["a"].T @ p["a"]) * (p["b"] @ p["b"].T))
    return adapter["scale"] * jnp.sqrt(jnp.maximum(total, 0))


def merge(params, adapter) -> dict:
    """Parameters with the adapter added in, in the parameters' dtype; the argument stays as it is."""
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
    """PEFT's tensors: lora_A.weight (R, in) and lora_B.weight (out, R), the transposes of a and b."""
    tensors = {}
    for name, part, projection in _names(adapter):
        p = adapter["layers"][name][part][projection]
        at = f"base_model.model.model.layers.{name}.{part}.{projection}"
        tensors[f"{at}.lora_A.weight"] = np.ascontiguousarray(np.asarray(p["a"]).T)
        tensors[f"{at}.lora_B.weight"] = np.ascontiguousarray(np.asarray(p["b"]).T)
    return tensors


def save_peft(folder: Path, adapter, base_model: str) -> None:
    """Write adapter_model.safetensors and adapter_config.json into an existing folder."""
    rank = rank_of(adapter)
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base_model, "r": rank,
        "lora_alpha": float(adapter["scale"]) * rank, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": False,
        "target_modules": [*ATTENTION_PROJECTIONS, *MLP_PROJECTIONS], "inference_mode": True, "modules_to_save": None,
    }
    save_file(to_peft(adapter), folder / "adapter_model.safetensors", metadata={"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


def save_npz(path: Path, adapter) -> None:
    """One .npz with PEFT's tensor names and the scale; numpy alone reads it."""
    np.savez(path, scale=np.asarray(adapter["scale"]), **to_peft(adapter))


def load(path: str | Path, cfg: ModelConfig, rank: int | None = None) -> dict:
    """The adapter of a PEFT folder, an .npz, or a checkpoint folder holding one; AdapterError lists all that does not fit.

    rank: what the caller's settings say; None takes the file's."""
    path = Path(path)
    tensors, scale = _read(path)
    shapes, problems, ranks = {}, [], set()
    empty = lambda: {part: {p: {} for p in group} for part, group in projection_shapes(cfg).items()}  # noqa: E731
    layers = [empty() for _ in range(cfg.num_hidden_layers)]
    for i, part, projection in _names({"layers": layers}):
        at = f"base_model.model.model.layers.{i}.{part}.{projection}"
        d, e = projection_shapes(cfg)[part][projection]
        for leaf, suffix, axis, size in (("a", "lora_A", 1, d), ("b", "lora_B", 0, e)):
            found = tensors.pop(f"{at}.{suffix}.weight", None)
            if found is None or found.ndim != 2 or found.shape[axis] != size:
                shapes[f"{at}.{suffix}"] = None if found is None else found.shape
                continue
            ranks.add(found.shape[1 - axis])
            layers[i][part][projection][leaf] = jnp.asarray(found.T, jnp.float32)
    problems += [f"{name}: {'missing' if shape is None else f'shape {shape}'}" for name, shape in list(shapes.items())[:6]]
    problems += [f"{name} has no place in this model" for name in list(tensors)[:6]]
    if problems:
        raise AdapterError(f"{path} is not an adapter of this model ({cfg.num_hidden_layers} layers, width {cfg.hidden_size}): "
                           + "; ".join(problems) + ". Use the model it was trained on (MODEL=), or another adapter.")
    if len(ranks) != 1 or rank not in (None, *ranks):
        raise AdapterError(f"{path} has rank {sorted(ranks)}, the settings say LORA_RANK={rank}. "
                           f"Set LORA_RANK={max(ranks)}, or start a new adapter.")
    return {"scale": jnp.float32(scale), "layers": layers}


def rank_of(adapter) -> int:
    """The adapter's rank."""
    return adapter["layers"][0]["self_attn"]["q_proj"]["a"].shape[1]


def _names(adapter):
    """(layer, part, projection) of every adapted projection, in a fixed order."""
    for i in range(len(adapter["layers"])):
        for part, projections in (("self_attn", ATTENTION_PROJECTIONS), ("mlp", MLP_PROJECTIONS)):
            for projection in projections:
                yield i, part, projection


def _read(path: Path):
    """(tensors by PEFT name, scale) of a file or folder."""
    try:
        if path.is_dir():
            config = json.loads((path / "adapter_config.json").read_text())
            if config.get("use_dora") or config.get("use_rslora") or config.get("bias", "none") != "none":
                raise AdapterError(f"{path}: DoRA, rank-stabilised scaling and trained biases are not supported")
            return load_file(path / "adapter_model.safetensors"), config["lora_alpha"] / config["r"]
        with np.load(path) as archive:
            tensors = {name: archive[name] for name in archive.files}
        return tensors, tensors.pop("scale")
    except AdapterError:
        raise
    except Exception as error:  # a torn file raises one of many types; the user needs the path and the reason
        raise AdapterError(f"{path} cannot be read as an adapter (a PEFT folder or an .npz of ours): "
                           f"{type(error).__name__}: {error}") from error
