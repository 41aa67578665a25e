"""Find a model, check its files, load it.

`resolve` finds the files, checks that they are complete and supported, and reads config and tokenizer but no weights, so that
a command can fail before it does anything heavy.  `load` reads the weights.  The hub is asked only for what is not cached."""

import difflib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from model_config import SHAPES, ModelConfig
from qwen2_jax import load_params
from rl.errors import InputError
from rl.models.chat import Chat
from rl.models.gguf import GgufFile
from rl.models.hub import HUB_IDS, TINY, first_line, hub_cache, read_json, snapshot
from rl.models.tensors import SafeTensors

HUB_FILES = ["*.json", "*.jinja", "*.safetensors"]
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
# Tensors that may stay unused: a tied model's head is its embedding, and RoPE's frequencies follow from the config.
REDUNDANT = re.compile(r"lm_head\.weight|rope_freqs\.weight|.*rotary_emb\.inv_freq")


class ModelError(InputError):
    """A model that cannot be found or used; the text says why and what to do."""


class Source(NamedTuple):
    """A model that was found and checked; its weights are not yet read."""

    name: str  # as the user wrote it
    path: Path  # the folder or the .gguf file
    cfg: ModelConfig
    chat: Chat
    tensors: Mapping[str, np.ndarray]  # by hub name; each access reads one


class Model(NamedTuple):
    """A loaded model."""

    name: str
    cfg: ModelConfig
    params: dict
    chat: Chat


def resolve(model: str, fetch: bool = True) -> Source:
    """The checked source of a short name, hub id, folder or .gguf file; ModelError says what is wrong and how to go on.

    Without `fetch` nothing is downloaded, and a model that is not here is an error."""
    path = Path(model).expanduser()
    if model == "tiny":
        return _open(model, TINY)
    if model in HUB_IDS:
        return _from_hub(model, HUB_IDS[model], fetch)
    if path.exists():
        return _open(model, path)
    if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", model) and not _is_gguf(path):
        return _from_hub(model, model, fetch)
    near = difflib.get_close_matches(model, [*HUB_IDS, "tiny"], 1, 0.5)
    raise ModelError(f"MODEL={model}: no such file or folder, not a short name ({', '.join(HUB_IDS)}, tiny) and not a hub id "
                     "(owner/name)" + (f"; did you mean {near[0]}?" if near else ""))


def shapes_without_weights(model: str) -> ModelConfig | None:
    """A model's config, from its name or its config.json alone; None if neither gives it."""
    short_names = {hub_id: name for name, hub_id in HUB_IDS.items()}
    path = Path(model).expanduser()
    if (name := short_names.get(model, model)) in SHAPES and not path.exists():
        return SHAPES[name]
    try:
        return _config(path if path.exists() else snapshot(model, HUB_FILES, fetch=False))
    except (ValueError, TypeError, ArithmeticError, OSError):
        return None


def load(source: Source, dtype) -> Model:
    """The model with its parameters in dtype; ModelError lists tensors that are missing, misshapen, not finite or unused."""
    used = set()

    def tensor(name):
        used.add(name)
        return source.tensors[name]

    try:
        params = load_params(tensor, source.cfg, dtype)
    except ValueError as error:
        raise ModelError(f"{source.path}: {error}") from error
    # an ignored weight of the model, such as one more bias, would silently make every result wrong
    unused = sorted(name for name in source.tensors if name not in used and not REDUNDANT.fullmatch(name))
    if unused:
        raise ModelError(f"{source.path}: config.json has no place for {len(unused)} tensors ({', '.join(unused[:5])}); take "
                         "config.json and weights from the same model")
    if source.cfg.tie_word_embeddings and HEAD in source.tensors \
            and not np.array_equal(source.tensors[HEAD], source.tensors[EMBEDDING]):
        raise ModelError(f"{source.path}: config.json ties head and embedding, but {HEAD} differs from {EMBEDDING}; if the head "
                         "was trained, set tie_word_embeddings to false in config.json, otherwise remove it from the weights")
    return Model(name=source.name, cfg=source.cfg, params=params, chat=source.chat)


def _open(name: str, path: Path) -> Source:
    """The checked source of a folder or .gguf file on this machine."""
    if path.is_file() and not _is_gguf(path):
        raise ModelError(f"MODEL={name} is not a .gguf file; for safetensors, name the folder that holds them")
    problems = []

    def part(read: Callable, *arguments):
        try:
            return read(*arguments)
        except (ValueError, ImportError, OSError) as error:
            problems.append(str(error))
        except (TypeError, ArithmeticError) as error:  # in a config: a text instead of a number, or 0 heads
            problems.append(f"invalid value in its config ({error})")

    if path.is_dir():
        tensors, cfg, chat = part(SafeTensors, path), part(_config, path), part(Chat.from_folder, path)
    elif (tensors := part(GgufFile, path)) is not None:
        cfg, chat = part(lambda: ModelConfig.from_hf(tensors.config())), part(tensors.chat)
    if not problems and cfg.num_hidden_layers > len(tensors):
        problems.append(f"the config has {cfg.num_hidden_layers} layers, the files only {len(tensors)} tensors")
    if not problems and chat.vocab_used > cfg.vocab_size:
        problems.append(f"the tokenizer has ids up to {chat.vocab_used - 1}, the embedding only {cfg.vocab_size} rows: they "
                        "belong to different models")
    if problems:
        raise ModelError(f"MODEL={name} cannot be used ({path}): " + "; ".join(dict.fromkeys(problems)))
    return Source(name=name, path=path, cfg=cfg, chat=chat, tensors=tensors)


def _is_gguf(path: Path) -> bool:
    return path.suffix.lower() == ".gguf"


def _config(folder: Path) -> ModelConfig:
    if not (folder / "config.json").exists():
        raise ValueError("config.json is missing; a model folder holds config.json, tokenizer.json, tokenizer_config.json and "
                         "the weights as .safetensors")
    return ModelConfig.from_hf(read_json(folder / "config.json"))


def _from_hub(name: str, repo_id: str, fetch: bool) -> Source:
    """The source in the cache if it is complete, without asking the network; otherwise downloaded."""
    from huggingface_hub.constants import HF_HUB_OFFLINE

    cache = hub_cache()
    command = f"hf download {repo_id}" + (f" --cache-dir {cache}" if cache else "")
    try:
        return _open(name, snapshot(repo_id, HUB_FILES, fetch=False))
    except OSError:
        problem = f"MODEL={name}: {repo_id} is not in {f'./{cache}' if cache else 'the hub cache'}"
    except ModelError as error:
        problem = str(error)
    if not fetch and not HF_HUB_OFFLINE:
        raise ModelError(f"{problem}; it is fetched from the hub at first use, or now with:\n  {command}")
    try:
        folder = snapshot(repo_id, HUB_FILES, fetch=True)
    except Exception as error:  # no network, unknown name, no access, full disk: the remedies are the same
        reason = "HF_HUB_OFFLINE is set" if HF_HUB_OFFLINE else first_line(error)
        raise ModelError(f"{problem}, and the download failed ({reason}). Three ways on:\n"
                         f"  {command}   on a machine with a network\n"
                         "  MODEL=/path/to/folder   with config.json, tokenizer.json, tokenizer_config.json, *.safetensors; or a "
                         ".gguf file\n  MODEL=tiny   the small model that comes with this program") from error
    try:
        return _open(name, folder)
    except ModelError as error:
        raise ModelError(f"{error}\nTo download it again: {command} --force-download") from error
