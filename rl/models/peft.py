"""Reads adapters: a folder in PEFT's layout, or an .npz of this program.  Tensors have PEFT's names.

Any entry of adapter_config.json that changes y = x @ w + scale * (x @ a) @ b is refused by name, and so is any unknown entry,
because that is how newer kinds of adapters differ.  rl/training/lora.py compares shapes with the model."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rl.errors import InputError
from rl.models.tensors import read_tensors
from rl.settings.paths import adapter_path
from rl.text_files import read_text

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
# Entries about where an adapter comes from and how it was trained, not about what it computes.
WITHOUT_EFFECT = {
    "peft_type", "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode", "r",
    "lora_alpha", "lora_dropout", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "use_rslora",
    "init_lora_weights", "bias", "megatron_core", "qalora_group_size", "loftq_config", "eva_config", "corda_config",
    "lora_ga_config", "runtime_config", "ensure_weight_tying"}
WHY = {
    "use_dora": "DoRA rescales the weights", "lora_bias": "trained biases are not supported",
    "rank_pattern": "all projections must have the same rank", "alpha_pattern": "all projections must have the same alpha",
    "modules_to_save": "whole layers were trained beside the adapter", "fan_in_fan_out": "only linear layers are supported",
    "trainable_token_indices": "rows of the embedding were trained", "layer_replication": "layers were repeated",
    "alora_invocation_tokens": "it acts only after certain tokens", "target_parameters": "only linear layers are supported"}
MAX_ALPHA = float(np.finfo(np.float32).max)
TARGET = re.compile(r"\.(\w+)\.lora_[AB]\.weight$")
STARTS = (None, True, False, "gaussian", "orthogonal", "eva")  # values of init_lora_weights that keep the frozen weights


class AdapterError(InputError):
    """An adapter that cannot be used: unreadable, incomplete, or of another rank, kind or model."""


class Stored(NamedTuple):
    """An adapter as its files hold it."""

    tensors: dict[str, np.ndarray]
    rank: int
    alpha: float  # the scale is alpha / rank
    trains: Callable[[str], bool]  # whether a projection, such as model.layers.0.mlp.up_proj, is adapted
    base: str  # the model it was trained on; "" if unknown

    @property
    def targets(self) -> list[str]:
        """The projections that have tensors in any layer, such as up_proj."""
        return sorted({found[1] for name in self.tensors if (found := TARGET.search(name))})


def read_adapter(path: str | Path) -> Stored:
    """The adapter in a checkpoint of a run, a PEFT folder or an .npz; AdapterError names the path and what is wrong."""
    path = adapter_path(Path(path))
    if not path.exists() or (path.is_dir() and not (path / CONFIG).exists()):
        raise AdapterError(f"{path}: {'no adapter in this folder' if path.exists() else 'no such file or folder'}; give "
                           "runs/<name>/checkpoints/step_NNNNN, a folder that peft saved, or a lora_stepNNNNN.npz")
    try:
        return _checked(path, _read_folder(path) if path.is_dir() else _read_npz(path))
    except AdapterError:
        raise
    except Exception as error:  # a damaged file raises one of many types; the user needs the path and the reason
        raise AdapterError(f"{path} cannot be read as an adapter (a PEFT folder or an .npz of this program): "
                           f"{type(error).__name__}: {error}") from error


def _checked(path: Path, stored: Stored) -> Stored:
    """The adapter; AdapterError names the tensors with values that are not finite in float32, or the scale."""
    with np.errstate(over="ignore"):
        scale = np.float32(stored.alpha / stored.rank)
        bad = [name for name, value in stored.tensors.items() if not np.isfinite(value.astype(np.float32)).all()]
    if not np.isfinite(scale):
        raise AdapterError(f"{path}: its scale, alpha / rank = {stored.alpha} / {stored.rank}, is not finite: it is damaged")
    if bad:
        raise AdapterError(f"{path} has values that are not finite in {len(bad)} tensors ({', '.join(bad[:5])}): training "
                           "diverged, or the file is damaged; use an earlier checkpoint or another adapter")
    return stored


def _read_npz(path: Path) -> Stored:
    with np.load(path) as archive:
        tensors = {name: archive[name] for name in archive.files}
    scale = float(tensors.pop("scale"))
    rank = next(value.shape[0] for name, value in tensors.items() if name.endswith("lora_A.weight"))
    stored = Stored(tensors=tensors, rank=rank, alpha=scale * rank, trains=lambda projection: True, base="")
    targets = stored.targets
    return stored._replace(trains=lambda projection: projection.split(".")[-1] in targets)


def _read_folder(path: Path) -> Stored:
    config = json.loads(read_text(path / CONFIG))
    if problems := _refusals(config):
        raise AdapterError(f"{path / CONFIG} describes an adapter that is not supported: " + "; ".join(problems))
    if not (path / WEIGHTS).exists() and (path / "adapter_model.bin").exists():
        raise AdapterError(f"{path} holds adapter_model.bin, which can run code when it is opened; save it again with "
                           "save_pretrained(..., safe_serialization=True)")
    rank, alpha = config["r"], config["lora_alpha"]
    if not isinstance(rank, int) or rank < 1 or not isinstance(alpha, int | float) or not abs(alpha) <= MAX_ALPHA:
        raise AdapterError(f"{path / CONFIG} has r = {rank!r} and lora_alpha = {alpha!r}: r must be a positive integer, "
                           "lora_alpha a finite number")
    alpha = float(alpha)
    return Stored(tensors=read_tensors(path / WEIGHTS), rank=rank,
                  alpha=alpha * math.sqrt(rank) if config.get("use_rslora") else alpha,
                  trains=_trains(config), base=config.get("base_model_name_or_path") or "")


def _refusals(config: dict) -> list[str]:
    """The entries that are not supported, each with the reason."""
    kind, bias, start = config.get("peft_type"), config.get("bias", "none"), config.get("init_lora_weights", True)
    problems = [f"peft_type = {kind!r}: only LORA is supported"] if kind != "LORA" else []
    problems += [f"bias = {bias!r}: trained biases are not supported"] if bias != "none" else []
    problems += [f"init_lora_weights = {start!r}: it may have changed the frozen weights, which the adapter does not hold; "
                 "convert it to plain LoRA (PEFT's path_initial_model_for_weight_conversion)"] if start not in STARTS else []
    unknown = "unknown entry; if it does not change what the adapter computes, remove it from the file"
    problems += [f"{key} = {str(value)[:60]}: {WHY.get(key, unknown)}" for key, value in config.items()
                 if value and key not in WITHOUT_EFFECT]
    return problems


def _trains(config: dict) -> Callable[[str], bool]:
    """Whether a module is adapted, by PEFT's rules: a text is a pattern of the whole path, a list holds ends of paths."""
    targets, excluded, layers = (config.get(key) for key in ("target_modules", "exclude_modules", "layers_to_transform"))
    layers = [layers] if isinstance(layers, int) else layers

    def named(names, module):
        if isinstance(names, str):
            return names == "all-linear" or bool(re.fullmatch(names, module))
        return any(module == name or module.endswith(f".{name}") for name in names)

    def trains(module):
        in_layers = layers is None or int(module.split(".layers.")[1].split(".")[0]) in layers
        return in_layers and (targets is None or named(targets, module)) and not (excluded and named(excluded, module))

    return trains
