"""Weights in .safetensors files, read and written one tensor at a time.  Loads no jax and knows no model."""

import json
import math
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from rl.models.hub import read_json

# The format's names.  Importing ml_dtypes also teaches NumPy, and so the library, what bfloat16 is.
DTYPES = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype(ml_dtypes.bfloat16)}
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
REPAIR = "delete it and fetch it again"


class Entry(NamedTuple):
    """A tensor in a file, not yet read."""

    file: Path
    dtype: np.dtype
    shape: tuple[int, ...]


class SafeTensors(Mapping):
    """The tensors of a checkpoint folder by name; each access reads one into memory, in the file's own dtype.

    Opening reads the headers only. ValueError lists every file that is missing, cut off, damaged or of an unsupported dtype."""

    def __init__(self, folder: Path):
        self.entries: dict[str, Entry] = {}
        problems = []
        for file, promised in sorted(_files(folder).items()):
            try:
                found = read_header(folder / file)
            except ValueError as error:
                problems.append(str(error))
                continue
            if missing := sorted(promised - found.keys()):
                problems.append(f"{file} lacks {len(missing)} tensors listed in {INDEX} ({', '.join(missing[:3])}): {REPAIR}")
            self.entries |= found
        if problems:
            raise ValueError("; ".join(problems))

    def __getitem__(self, name: str) -> np.ndarray:
        # Opened for one tensor: while a file is open, all its pages that were read count as memory of this process.
        with safe_open(self.entries[name].file, framework="numpy") as file:
            return file.get_tensor(name)

    def __iter__(self):
        return iter(self.entries)

    def __len__(self):
        return len(self.entries)


def _files(folder: Path) -> dict[str, set[str]]:
    """The files to read and the tensors that the index lists for each; as in transformers, a single file goes before an index."""
    if (folder / SINGLE).exists():
        return {SINGLE: set()}
    if not (folder / INDEX).exists():
        others = sorted(p.name for p in folder.glob("*") if p.suffix in (".bin", ".pt", ".pth", ".safetensors"))
        raise ValueError(f"neither {SINGLE} nor {INDEX} exists"
                         + (f" (found {', '.join(others[:4])}; save the model as safetensors)" if others else ""))
    weight_map = read_json(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(f"{INDEX} has no weight_map: {REPAIR}")
    files: dict[str, set[str]] = {}
    for tensor, file in weight_map.items():
        files.setdefault(file, set()).add(tensor)
    return files


def read_header(path: Path) -> dict[str, Entry]:
    """The tensors of one file; ValueError if it is missing, cut off or damaged, or if a dtype is not supported."""
    if not path.exists():  # or is a broken link, as in a cache whose blobs were deleted
        raise ValueError(f"{path.name} is missing: fetch it again")
    try:
        with safe_open(path, framework="numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}
            about = {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
    except SafetensorError as error:
        with path.open("rb") as file:
            if file.read(8) == b"version ":
                raise ValueError(f"{path.name} is a Git LFS pointer, not the weights: run `git lfs pull` or fetch it") from error
        raise ValueError(f"{path.name} ({path.stat().st_size:,} bytes) is cut off or damaged ({error}): {REPAIR}") from error
    if bad := [f"{name} is stored as {dtype}" for name, (dtype, _) in sorted(about.items()) if dtype not in DTYPES]:
        raise ValueError(f"{path.name}: {', '.join(bad[:3])}; only {', '.join(DTYPES)} are supported, so use the unquantised "
                         "checkpoint or a .gguf file")
    return {name: Entry(path, DTYPES[dtype], shape) for name, (dtype, shape) in about.items()}


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """All tensors of one file, in memory; ValueError as for `read_header`."""
    read_header(path)
    return load_file(path)


def write_tensors(path: Path, shapes: dict[str, tuple[np.dtype, tuple[int, ...]]], tensor: Callable[[str], np.ndarray]) -> None:
    """Write one file and flush it to disk; `tensor` is called for each name in turn and returns that dtype and shape.

    The library's writer needs all tensors in memory at once."""
    codes, header, end = {dtype: code for code, dtype in DTYPES.items()}, {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape) in shapes.items():
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": codes[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the format aligns tensors to 8 bytes
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in shapes:
            file.write(np.ascontiguousarray(tensor(name)).reshape(-1).view(np.uint8))
        file.flush()
        os.fsync(file.fileno())
