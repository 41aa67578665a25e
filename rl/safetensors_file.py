"""Weights in safetensors files, one or many: checked by their headers, then read tensor by tensor through a memory map.

Reading the bytes here rather than through the safetensors library gives bfloat16 arrays, which NumPy alone lacks, and sizes
that can be checked before anything is loaded."""

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

from rl.chat import read_json

DTYPES = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype(ml_dtypes.bfloat16)}
REPAIR = "delete it and fetch it again"
INDEX = "model.safetensors.index.json"


class Entry(NamedTuple):
    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int  # first byte in the file
    size: int  # bytes


class SafeTensors(Mapping):
    """Tensors of a checkpoint folder by their names; arrays are views of mapped files, in the file's own type.

    ValueError on opening lists every file that is missing, cut off or damaged."""

    def __init__(self, folder: Path):
        wanted = _wanted(folder)
        self._entries: dict[str, Entry] = {}
        problems = []
        for name in sorted(wanted):
            try:
                found = read_header(folder / name)
            except ValueError as error:
                problems.append(str(error))
                continue
            missing = sorted(wanted[name] - found.keys())
            if missing:
                problems.append(f"{name} lacks {len(missing)} tensors that {INDEX} promises ({', '.join(missing[:3])}): {REPAIR}")
            self._entries |= found
        if problems:
            raise ValueError("; ".join(problems))
        self._maps: dict[Path, np.memmap] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        entry = self._entries[name]
        if entry.dtype not in DTYPES:
            raise ValueError(f"{entry.file.name}: {name} is stored as {entry.dtype}; only {', '.join(DTYPES)} are supported, "
                             "so take the unquantised checkpoint or a .gguf file")
        if entry.file not in self._maps:
            self._maps[entry.file] = np.memmap(entry.file, np.uint8, "r")
        raw = np.asarray(self._maps[entry.file])[entry.start : entry.start + entry.size]
        return raw.view(DTYPES[entry.dtype]).reshape(entry.shape)

    def __iter__(self):
        return iter(self._entries)

    def __len__(self):
        return len(self._entries)


def _wanted(folder: Path) -> dict[str, set[str]]:
    """The files to read and the tensors that the index expects in each; one file goes before an index, as in transformers."""
    if (folder / "model.safetensors").exists():
        return {"model.safetensors": set()}
    if not (folder / INDEX).exists():
        others = sorted(p.name for p in folder.glob("*") if p.suffix in (".bin", ".pt", ".pth", ".safetensors"))
        raise ValueError(f"there is neither model.safetensors nor {INDEX}"
                         + (f" (found {', '.join(others[:4])}; save the model with safetensors)" if others else ""))
    weight_map = read_json(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(f"{INDEX} has no weight_map: {REPAIR}")
    wanted: dict[str, set[str]] = {}
    for tensor, file in weight_map.items():
        wanted.setdefault(file, set()).add(tensor)
    return wanted


def read_header(path: Path) -> dict[str, Entry]:
    """Where each tensor of one file lies; ValueError when the file is missing or its size is not what its header says."""
    if not path.exists():  # also a link whose target is gone, as in a cache from which files were removed
        raise ValueError(f"{path.name} is missing: fetch it again")
    actual = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if head == b"version ":
            raise ValueError(f"{path.name} is a Git LFS pointer, not the weights: run `git lfs pull`, or fetch the file itself")
        if not 2 <= length <= actual - 8:
            raise ValueError(f"{path.name} ({actual:,} bytes) is cut off inside its header, or no safetensors file: {REPAIR}")
        text = file.read(length)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        entries = {name: _entry(path, about, 8 + length) for name, about in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path.name} has a damaged header ({error}): {REPAIR}") from error
    promised = max((entry.start + entry.size for entry in entries.values()), default=8 + length)
    if promised != actual:
        why = "it is cut off, as by an interrupted download or copy" if promised > actual else "bytes were added to it"
        raise ValueError(f"{path.name} has {actual:,} bytes, its header says {promised:,}: {why}; {REPAIR}")
    return entries


def _entry(path: Path, about: dict, data_start: int) -> Entry:
    shape, (begin, end) = tuple(about["shape"]), about["data_offsets"]
    dtype = DTYPES.get(about["dtype"])
    if begin < 0 or end < begin or (dtype and math.prod(shape) * dtype.itemsize != end - begin):
        raise ValueError(f"offsets {begin}..{end} do not fit {about['dtype']} of shape {shape}")
    return Entry(path, about["dtype"], shape, data_start + begin, end - begin)
