"""Weights in safetensors files, one or many: checked by their headers, then read tensor by tensor through a memory map.

Reading the bytes here rather than through the safetensors library gives bfloat16 arrays, which NumPy alone lacks, and sizes
that can be checked before anything is loaded.  Writing them here needs no more memory than one tensor."""

import json
import math
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

from rl.models.chat import read_json

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

    def __getitem__(self, name: str) -> np.ndarray:
        # A map a tensor: when it is let go, its pages leave this process, so a load never holds a second copy.
        entry = self._entries[name]
        return _array(name, entry._replace(start=0), np.asarray(np.memmap(entry.file, np.uint8, "r", entry.start, (entry.size,))))

    def __iter__(self):
        return iter(self._entries)

    def __len__(self):
        return len(self._entries)


def _array(name: str, entry: Entry, data: np.ndarray) -> np.ndarray:
    """The tensor as a view of its file's bytes."""
    if entry.dtype not in DTYPES:
        raise ValueError(f"{entry.file.name}: {name} is stored as {entry.dtype}; only {', '.join(DTYPES)} are supported, "
                         "so take the unquantised checkpoint or a .gguf file")
    return data[entry.start : entry.start + entry.size].view(DTYPES[entry.dtype]).reshape(entry.shape)


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """All tensors of one file, in memory; ValueError when it is missing, cut off or damaged."""
    header = read_header(path)
    data = np.fromfile(path, np.uint8)
    return {name: np.array(_array(name, entry, data)) for name, entry in header.items()}


def write_tensors(path: Path, shapes: dict[str, tuple[np.dtype, tuple[int, ...]]], tensor: Callable[[str], np.ndarray]) -> None:
    """Write one file, on the disk when this returns; `tensor` is asked for each name in turn and gives that dtype and shape."""
    names, header, end = {dtype: name for name, dtype in DTYPES.items()}, {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape) in shapes.items():
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": names[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of 8 bytes, as the format asks
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in shapes:
            file.write(np.ascontiguousarray(tensor(name)).reshape(-1).view(np.uint8))
        file.flush()
        os.fsync(file.fileno())


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
