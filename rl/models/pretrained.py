"""Where a model's files are, whether they are whole, and the model itself.

`resolve` is quick and touches no weights: it finds the files, judges the config, reads the tokenizer and checks every file's
size, so that a command can fail before it does anything heavy.  `load` then reads the weights.  The hub is asked only for
what the cache does not hold.  Not covered: saving models (export.py), adapters (peft.py)."""

import difflib
import json
import math
import os
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

from model_config import SHAPES, ModelConfig
from qwen2_jax import load_params
from rl.errors import InputError
from rl.models.chat import Chat, read_json
from rl.models.gguf import GgufFile
from rl.models.hub import HUB_IDS, TINY, hub_cache

HUB_FILES = ["*.json", "*.jinja", "*.safetensors"]
HUB_TIMEOUT_S = 10
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
# Weights that may lie unused: the head of a tied model is its embedding, and RoPE's frequencies follow from the config.
REDUNDANT = re.compile(r"lm_head\.weight|rope_freqs\.weight|.*rotary_emb\.inv_freq")


class ModelError(InputError):
    """A model that cannot be had or cannot be used; the text says why and what to do."""


class Source(NamedTuple):
    """A model found and checked, its weights not yet read."""

    name: str  # as the user wrote it
    path: Path  # the folder or the .gguf file
    cfg: ModelConfig
    chat: Chat
    tensors: Mapping[str, np.ndarray]  # by hub name, read when asked for


class Model(NamedTuple):
    name: str
    cfg: ModelConfig
    params: dict
    chat: Chat


def resolve(model: str, fetch: bool = True, token: str | None = None) -> Source:
    """The checked source of a short name, hub id, folder or .gguf file; ModelError says what is wrong and the ways on.

    Without `fetch` nothing is asked of the hub, and what it would have to be asked for counts as wrong. token: the hub's, where
    it is not the one that its library finds by itself."""
    path = Path(model).expanduser()
    if model == "tiny":
        return _open(model, TINY)
    if model in HUB_IDS:
        return _from_hub(model, HUB_IDS[model], fetch, token)
    if path.exists():
        return _open(model, path)
    if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", model) and path.suffix != ".gguf":
        return _from_hub(model, model, fetch, token)
    near = difflib.get_close_matches(model, [*HUB_IDS, "tiny"], 1, 0.5)
    raise ModelError(f"MODEL={model}: there is no such file or folder, and it is no short name ({', '.join(HUB_IDS)}, tiny) "
                     "nor a hub id (owner/name)" + (f"; did you mean {near[0]}?" if near else ""))


def shapes_without_weights(model: str) -> ModelConfig | None:
    """A model's shapes from its name or its config.json, whatever else is missing; None where neither tells them."""
    ids = {hub_id: name for name, hub_id in HUB_IDS.items()}
    if (name := ids.get(model, model)) in SHAPES and not Path(model).exists():
        return SHAPES[name]
    try:
        return _config(Path(model).expanduser() if Path(model).expanduser().exists() else _cached(model))
    except (ValueError, TypeError, ArithmeticError, OSError):
        return None


def load(source: Source, dtype) -> Model:
    """The model with its parameters in dtype; ModelError lists tensors that are missing, misshapen or without a use."""
    asked = set()

    def tensor(name):
        asked.add(name)
        return np.array(source.tensors[name])  # a copy: jax may keep an aligned array as it is, and a mapped file can change

    try:
        params = load_params(tensor, source.cfg, dtype)
    except ValueError as error:
        raise ModelError(f"{source.path}: {error}") from error
    # a weight of the model itself that nothing read, such as one more bias, would make every result wrong without a word
    unused = sorted(name for name in source.tensors if name not in asked and not REDUNDANT.fullmatch(name))
    if unused:
        raise ModelError(f"{source.path}: {len(unused)} tensors have no place in this model ({', '.join(unused[:5])}), so its "
                         "config.json does not describe these weights; take config and weights from one place")
    if source.cfg.tie_word_embeddings and HEAD in source.tensors \
            and not np.array_equal(source.tensors[HEAD], source.tensors[EMBEDDING]):
        raise ModelError(f"{source.path}: config.json ties head and embedding, but {HEAD} differs from {EMBEDDING}; if it was "
                         "trained by itself, set tie_word_embeddings to false in config.json, else remove it from the weights")
    return Model(source.name, source.cfg, params, source.chat)


def _open(name: str, path: Path) -> Source:
    """A source from a folder or .gguf file on this machine."""
    if path.is_file() and path.suffix != ".gguf":
        raise ModelError(f"MODEL={name}: {path} is a file but no .gguf; for safetensors name the folder that holds it")
    problems = []

    def part(make, *arguments):
        try:
            return make(*arguments)
        except (ValueError, ImportError, OSError) as error:
            problems.append(str(error))
        except (TypeError, ArithmeticError) as error:  # in a config: a text where a number belongs, or 0 heads
            problems.append(f"it holds values that cannot be ({error})")

    tensors = part(SafeTensors if path.is_dir() else GgufFile, path)
    if path.is_dir():
        cfg, chat = part(_config, path), part(Chat.from_folder, path)
    elif tensors is not None:
        cfg = part(lambda: ModelConfig.from_hf(tensors.config()))
        chat = part(lambda: Chat(tensors.tokenizer(), **tensors.chat_parts()))
    if not problems and cfg.num_hidden_layers > len(tensors):
        problems.append(f"the config wants {cfg.num_hidden_layers} layers, the files hold {len(tensors)} tensors")
    if not problems and chat.vocab_used > cfg.vocab_size:
        problems.append(f"the tokenizer has ids up to {chat.vocab_used - 1}, the embedding only {cfg.vocab_size} rows; "
                        "tokenizer and weights belong to different models")
    if problems:
        raise ModelError(f"MODEL={name} cannot be used, in {path}: " + "; ".join(dict.fromkeys(problems)))
    return Source(name, path, cfg, chat, tensors)


def _config(folder: Path) -> ModelConfig:
    if not (folder / "config.json").exists():
        raise ValueError("config.json is missing; a folder in the hub's layout holds config.json, tokenizer.json, "
                         "tokenizer_config.json and the weights as .safetensors")
    return ModelConfig.from_hf(read_json(folder / "config.json"))


def _cached(repo_id: str, **options) -> Path:
    """The folder of a hub id's snapshot, whole or not, without asking the network; OSError where there is none."""
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(repo_id, cache_dir=hub_cache(), allow_patterns=HUB_FILES, etag_timeout=HUB_TIMEOUT_S,
                                  **{"local_files_only": True} | options))


def _from_hub(name: str, repo_id: str, fetch: bool, token: str | None) -> Source:
    """The cached snapshot where it is whole, without asking the network; else a fetched one."""
    from huggingface_hub.constants import HF_HUB_OFFLINE

    cache = hub_cache()
    command = f"hf download {repo_id}" + (f" --cache-dir {cache}" if cache else "")
    try:
        return _open(name, _cached(repo_id))
    except OSError:
        found = f"{repo_id} is not in {f'./{cache}' if cache else 'the hub cache'}"
    except ModelError as error:
        found = str(error)
    if not fetch and not HF_HUB_OFFLINE:
        raise ModelError(f"MODEL={name}: {found}; what is missing is fetched from the hub at first use, or now:\n  {command}")
    try:
        folder = _cached(repo_id, local_files_only=False, token=token or None)
    except Exception as error:  # no network, an unknown or gated name, a full disk: the ways on are the same
        raise ModelError(_ways_on(name, command, found, error)) from error
    try:
        return _open(name, folder)
    except ModelError as error:
        raise ModelError(f"{error}\nTo fetch it anew: {command} --force-download") from error


def _ways_on(name: str, command: str, found: str, error: Exception) -> str:
    from huggingface_hub.constants import HF_HUB_OFFLINE

    why = "HF_HUB_OFFLINE is set" if HF_HUB_OFFLINE else next(iter(str(error).splitlines()), "") or type(error).__name__
    return (f"MODEL={name}: {found}, and it could not be fetched ({why}). Three ways on:\n"
            f"  {command}   on a machine with a network\n"
            "  MODEL=/path/to/folder   config.json, tokenizer.json, tokenizer_config.json, *.safetensors; or a .gguf file\n"
            "  MODEL=tiny   the small model that comes with this program")


# ---- safetensors files ------------------------------------------------------------------------------------------------


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
