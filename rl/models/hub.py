"""The hub: short names and ids of models, the cache, downloads, and JSON files of a checkpoint.  Loads no jax and no weights."""

import json
import re
from pathlib import Path

from model_config import SHAPES
from rl.errors import InputError
from rl.settings.paths import ROOT
from rl.text_files import read_text

TINY = ROOT / "models" / "tiny"
LOCAL_CACHE = Path("hf_cache")
TIMEOUT_S = 10
ID_PATTERNS = {"": "Qwen/Qwen2.5-Coder-{}-Instruct", "qwen3": "Qwen/Qwen3-{}", "llama-3.2": "meta-llama/Llama-3.2-{}-Instruct"}


def _hub_id(short_name: str) -> str:
    family, _, size = short_name.rpartition("-")
    return ID_PATTERNS[family].format(size)


HUB_IDS = {name: _hub_id(name) for name in SHAPES}


def hub_name(model: str) -> str:
    """The hub id of a short name; any other name unchanged."""
    return HUB_IDS.get(model, model)


def same_model(base: str, model: str) -> bool:
    """Whether `base`, the model an adapter says it was trained on, may be MODEL.

    Owners and folders before the name are ignored. If MODEL is a path the answer is yes, because folders get renamed."""
    if model not in (*HUB_IDS, "tiny") and Path(model).expanduser().exists():
        return True
    return _last_name(base) == _last_name(model)


def _last_name(model: str) -> str:
    """A model's name without owner or folder; for a snapshot in the hub's cache, the name of its repository."""
    found = re.search(r"models--[^/]*--([^/]+)/snapshots/", model)
    return (found[1] if found else Path(hub_name(model)).name).lower()


def hub_cache() -> Path | None:
    """./hf_cache if it exists; None stands for HF_HUB_CACHE or the library's default."""
    return LOCAL_CACHE if LOCAL_CACHE.is_dir() else None


def snapshot(repo_id: str, patterns: list[str], *, fetch: bool) -> Path:
    """The folder of a repository with the files that match; without `fetch` the cached one, complete or not, without network.

    The hub's library finds the token, HF_TOKEN. OSError if nothing is cached; a download can raise anything."""
    from huggingface_hub import snapshot_download  # not hf_hub_download, which retries for 20 s without a network

    return Path(snapshot_download(repo_id, cache_dir=hub_cache(), allow_patterns=patterns, etag_timeout=TIMEOUT_S,
                                  local_files_only=not fetch))


def first_line(error: Exception) -> str:
    """The first line of an error's text, or its type if it has none."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def tokenizer_file(name: str) -> Path:
    """The tokenizer.json of a folder, short name or hub id, downloaded if it is not cached; InputError if there is none."""
    folder = TINY if name == "tiny" else Path(name).expanduser()
    if folder.is_dir():
        return folder / "tokenizer.json"
    for fetch in (False, True):
        try:
            file = snapshot(hub_name(name), ["tokenizer.json"], fetch=fetch) / "tokenizer.json"
            if file.exists():
                return file
            reason = "it has no tokenizer.json"
        except Exception as error:  # no network, no such name, no access: the remedies are the same
            reason = first_line(error)
    raise InputError(f"tokenizer {name!r}: not a folder, and the hub could not provide it ({reason}); give a folder that holds "
                     f"tokenizer.json, a hub id, or one of {', '.join(HUB_IDS)}, tiny")


def read_json(path: Path) -> dict:
    """The JSON object in a file, {} if there is no such file; ValueError if it holds anything else."""
    try:
        found = json.loads(read_text(path)) if path.exists() else {}
    except ValueError as error:
        raise ValueError(f"{path.name} is not valid JSON ({error}): it is cut off or damaged, fetch it again") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} holds a {type(found).__name__}, not an object: fetch it again")
    return found
