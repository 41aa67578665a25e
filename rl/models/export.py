"""A model with its adapter merged in, as a checkpoint folder of its own that any program for such models opens.

W + scale * B A is computed in fp32, tensor by tensor, and cast to the checkpoint's own number format or to one that is asked
for; everything else of the folder is copied.  Not covered: shards (one file is written), quantised formats."""

import json
import re
import shutil
from pathlib import Path

import numpy as np

from rl.errors import InputError
from rl.models.chat import read_json
from rl.models.pretrained import DTYPES, INDEX, Source, resolve, write_tensors

NAMES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
COPIED = (".json", ".jinja", ".txt", ".model")    # config, tokenizer, templates
NOT_COPIED = (INDEX, "adapter_config.json")
PROJECTION = re.compile(r"model\.layers\.(\d+)\.(self_attn|mlp)\.(\w+_proj)\.weight")


def write_merged(source: Source, adapter: dict, out: Path, dtype: str | None = None) -> int:
    """Write the folder `out`, which must not exist, whole or not at all; returns the bytes of its weights.

    dtype: float32, bfloat16 or float16 for all weights; None keeps each tensor's own.  InputError says what is in the way."""
    if out.exists():
        raise InputError(f"{out} exists: choose another folder, nothing is overwritten")
    if not source.path.is_dir():
        raise InputError(f"{source.path} holds quantised weights, into which nothing can be merged: name the checkpoint folder "
                         "or the hub id that it was made from (MODEL=)")
    kinds = {name: DTYPES[NAMES[dtype]] if dtype else source.tensors[name].dtype for name in source.tensors}
    shapes = {name: (kinds[name], source.tensors[name].shape) for name in source.tensors}
    need = sum(kind.itemsize * int(np.prod(shape)) for kind, shape in shapes.values())
    aside = out.with_name(f".{out.name}.tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)    # of a merge that was killed
        if need > (free := shutil.disk_usage(out.parent).free):
            raise InputError(f"{out} needs {need:,} bytes, {free:,} are free: free space, or choose a smaller --dtype")
        aside.mkdir()
        write_tensors(aside / "model.safetensors", shapes, lambda name: _merged(source, adapter, name, kinds[name]))
        _copy_texts(source.path, aside, dtype)
        resolve(str(aside))    # what cannot be opened again is not handed out
        aside.rename(out)
    except OSError as error:
        raise InputError(f"{out}: {error.strerror or error}; nothing is left of it. Free space or mend permissions, or choose "
                         "another folder") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return need


def _merged(source: Source, adapter: dict, name: str, kind: np.dtype) -> np.ndarray:
    """One tensor with the adapter's part, if it has one, in that number format."""
    weight = source.tensors[name]
    if p := _halves(adapter, name):
        delta_DE = np.asarray(p["a"]) @ np.asarray(p["b"])
        weight = weight.astype(np.float32) + np.float32(adapter["scale"]) * delta_DE.T
    with np.errstate(over="ignore"):
        cast = weight.astype(kind)
    if not np.isfinite(cast.astype(np.float32)).all():
        raise InputError(f"{name} has values that {kind} cannot hold: choose --dtype bfloat16 or float32")
    return cast


def _halves(adapter: dict, name: str) -> dict | None:
    """The adapter's a and b for the tensor of that name, if it has them."""
    found = PROJECTION.fullmatch(name)
    return adapter["layers"][int(found[1])][found[2]].get(found[3]) if found else None


def _copy_texts(folder: Path, to: Path, dtype: str | None) -> None:
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in COPIED and path.name not in NOT_COPIED:
            shutil.copyfile(path, to / path.name)    # the content, where the hub's cache has a link
    if dtype:
        config = read_json(to / "config.json")
        stated = [key for key in ("dtype", "torch_dtype") if key in config] or ["torch_dtype"]
        (to / "config.json").write_text(json.dumps(config | dict.fromkeys(stated, dtype), indent=2) + "\n")
