"""An adapter's files as others write them: a PEFT folder judged by its config, or an .npz of ours.  Tensors by PEFT's names.

Whatever in adapter_config.json would make another layer than y = x @ w + scale * (x @ a) @ b is refused by name, entries that
this program does not know too: newer kinds of adapters are told apart by such entries.  A folder may train fewer than all
projections; which, `trains` says.  Shapes against a model are rl/training/lora.py's business."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rl.errors import InputError
from rl.models.pretrained import read_tensors

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
# Entries that say where an adapter comes from or how it was started and trained, not what it computes.
WITHOUT_EFFECT = {
    "peft_type", "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode", "r",
    "lora_alpha", "lora_dropout", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "use_rslora",
    "init_lora_weights", "bias", "megatron_core", "qalora_group_size", "loftq_config", "eva_config", "corda_config",
    "lora_ga_config", "runtime_config", "ensure_weight_tying"}
WHY = {
    "use_dora": "DoRA rescales the weights", "lora_bias": "trained biases are not supported",
    "rank_pattern": "all projections need one rank", "alpha_pattern": "all projections need one alpha",
    "modules_to_save": "whole layers were trained beside the adapter", "fan_in_fan_out": "only linear layers are supported",
    "trainable_token_indices": "rows of the embedding were trained", "layer_replication": "layers were repeated",
    "alora_invocation_tokens": "it acts after certain tokens only", "target_parameters": "only linear layers are supported"}
TARGET = re.compile(r"\.(\w+)\.lora_[AB]\.weight$")
STARTS = (None, True, False, "gaussian", "orthogonal", "eva")    # those that leave the frozen weights as they were


class AdapterError(InputError):
    """An adapter that cannot be used: of another rank, kind or model, incomplete, or unreadable."""


class Stored(NamedTuple):
    """An adapter as its files have it."""

    tensors: dict[str, np.ndarray]
    rank: int
    alpha: float  # the scale is alpha / rank
    trains: Callable[[str], bool]  # whether a projection, such as model.layers.0.mlp.up_proj, is adapted
    base: str  # the model it was trained on, as far as it says

    @property
    def targets(self) -> list[str]:
        """The last names of the projections that the tensors are for, such as up_proj, each once."""
        return sorted({found[1] for name in self.tensors if (found := TARGET.search(name))})


def read_adapter(path: str | Path) -> Stored:
    """The adapter of a PEFT folder, an .npz of ours, or a checkpoint folder; AdapterError names the path and what is wrong."""
    path = Path(path)
    if not path.exists() or (path.is_dir() and not (path / CONFIG).exists()):
        raise AdapterError(f"{path}: {'no adapter in this folder' if path.exists() else 'there is no such file or folder'}; give "
                           "runs/<name>/checkpoints/step_NNNNN, a folder that peft saved, or a lora_stepNNNNN.npz")
    try:
        return _read_folder(path) if path.is_dir() else _read_npz(path)
    except AdapterError:
        raise
    except Exception as error:  # a torn file raises one of many types; the user needs the path and the reason
        raise AdapterError(f"{path} cannot be read as an adapter (a PEFT folder or an .npz of ours): "
                           f"{type(error).__name__}: {error}") from error


def _read_npz(path: Path) -> Stored:
    with np.load(path) as archive:
        tensors = {name: archive[name] for name in archive.files}
    scale = float(tensors.pop("scale"))
    rank = next(value.shape[0] for name, value in tensors.items() if name.endswith("lora_A.weight"))
    stored = Stored(tensors, rank, scale * rank, lambda projection: True, "")
    targets = stored.targets
    return stored._replace(trains=lambda projection: projection.split(".")[-1] in targets)


def _read_folder(path: Path) -> Stored:
    config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    if problems := _refusals(config):
        raise AdapterError(f"{path / CONFIG} asks for what this program's adapters do not do: " + "; ".join(problems))
    if not (path / WEIGHTS).exists() and (path / "adapter_model.bin").exists():
        raise AdapterError(f"{path} holds adapter_model.bin, which can run code when it is opened; save it anew with "
                           "save_pretrained(..., safe_serialization=True)")
    rank, alpha = config["r"], float(config["lora_alpha"])
    return Stored(read_tensors(path / WEIGHTS), rank, alpha * math.sqrt(rank) if config.get("use_rslora") else alpha,
                  _trained(config), config.get("base_model_name_or_path") or "")


def _refusals(config: dict) -> list[str]:
    """Every entry that would change the result and is not supported, with the reason."""
    kind, bias, start = config.get("peft_type"), config.get("bias", "none"), config.get("init_lora_weights", True)
    problems = [f"peft_type = {kind!r}: only LORA is supported"] if kind != "LORA" else []
    problems += [f"bias = {bias!r}: trained biases are not supported"] if bias != "none" else []
    problems += [f"init_lora_weights = {start!r}: it may have changed the frozen weights, which an adapter does not hold; "
                 "save a plain one (PEFT's path_initial_model_for_weight_conversion)"] if start not in STARTS else []
    unknown = "not known here; if it does not change what the adapter computes, remove it from the file"
    problems += [f"{key} = {str(value)[:60]}: {WHY.get(key, unknown)}" for key, value in config.items()
                 if value and key not in WITHOUT_EFFECT]
    return problems


def _trained(config: dict) -> Callable[[str], bool]:
    """Whether a module is adapted, by PEFT's rules: a text is a pattern of the whole path, a list holds ends of paths."""
    wanted, left_out, layers = (config.get(key) for key in ("target_modules", "exclude_modules", "layers_to_transform"))
    layers = [layers] if isinstance(layers, int) else layers

    def named(names, module):
        if isinstance(names, str):
            return names == "all-linear" or bool(re.fullmatch(names, module))
        return any(module == name or module.endswith(f".{name}") for name in names)

    def trains(module):
        inside = layers is None or int(module.split(".layers.")[1].split(".")[0]) in layers
        return inside and (wanted is None or named(wanted, module)) and not (left_out and named(left_out, module))

    return trains
