"""Write a model with its adapter merged in as a checkpoint folder, which any program for such models can open.

W + scale * B A is computed in fp32, one tensor at a time, and cast to the checkpoint's dtype or a requested one; configs,
tokenizer and templates are copied.  Not supported: shards (one file is written), quantised formats."""

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np

from rl.errors import InputError
from rl.models.hub import read_json
from rl.models.pretrained import Source, resolve
from rl.models.tensors import INDEX, SINGLE, write_tensors

FORMATS = ("float32", "bfloat16", "float16")
COPIED = (".json", ".jinja", ".txt", ".model")  # config, tokenizer, templates
NOT_COPIED = (INDEX, "adapter_config.json")
PROJECTION = re.compile(r"model\.layers\.(\d+)\.(self_attn|mlp)\.(\w+_proj)\.weight")


def write_merged(source: Source, adapter: dict, out: Path, dtype: str | None = None) -> int:
    """Write the folder `out`, which must not exist, completely or not at all; returns the bytes of its weights.

    dtype: one of FORMATS for all weights; None keeps each tensor's own.  InputError says why it could not be written."""
    if out.exists():
        raise InputError(f"{out} exists: choose another folder, nothing is overwritten")
    if not source.path.is_dir():
        raise InputError(f"{source.path} holds quantised weights, which cannot be merged into: name the checkpoint folder or hub "
                         "id that it was made from (MODEL=)")
    shapes = {name: (np.dtype(dtype or entry.dtype), entry.shape) for name, entry in source.tensors.entries.items()}
    size = sum(kind.itemsize * math.prod(shape) for kind, shape in shapes.values())
    temporary = out.with_name(f".{out.name}.tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)  # left by a merge that was killed
        if size > (free := shutil.disk_usage(out.parent).free):
            raise InputError(f"{out} needs {size:,} bytes, {free:,} are free: free some, or choose a smaller --dtype")
        temporary.mkdir()
        write_tensors(temporary / SINGLE, shapes, lambda name: _merged(source, adapter, name, shapes[name][0]))
        _copy_texts(source.path, temporary, dtype)
        resolve(str(temporary))  # a result that cannot be opened is an error here
        temporary.rename(out)
    except OSError as error:
        raise InputError(f"{out}: {error.strerror or error}; nothing was written. Free space, check permissions or choose "
                         "another folder") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return size


def _merged(source: Source, adapter: dict, name: str, dtype: np.dtype) -> np.ndarray:
    """One tensor, with the adapter's share if it has one, in dtype."""
    weight = source.tensors[name]
    if not np.isfinite(weight).all():
        raise InputError(f"{source.path}: {name} has values that are NaN or infinite: fetch the model again")
    if p := _adapted(adapter, name):
        delta_DE = np.asarray(p["a"]) @ np.asarray(p["b"])
        weight = weight.astype(np.float32) + np.float32(adapter["scale"]) * delta_DE.T
    with np.errstate(over="ignore"):
        cast = weight.astype(dtype)
    if not np.isfinite(cast.astype(np.float32)).all():
        raise InputError(f"{name} has values beyond the range of {dtype}: choose --dtype bfloat16 or float32")
    return cast


def _adapted(adapter: dict, name: str) -> dict | None:
    """The adapter's a and b for the tensor of that name, if it has them."""
    found = PROJECTION.fullmatch(name)
    return adapter["layers"][int(found[1])][found[2]].get(found[3]) if found else None


def _copy_texts(folder: Path, to: Path, dtype: str | None) -> None:
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in COPIED and path.name not in NOT_COPIED:
            shutil.copyfile(path, to / path.name)  # the content: in the hub's cache it is a link
    if dtype:
        config = read_json(to / "config.json")
        keys = [key for key in ("dtype", "torch_dtype") if key in config] or ["torch_dtype"]
        (to / "config.json").write_text(json.dumps(config | dict.fromkeys(keys, dtype), indent=2) + "\n")
