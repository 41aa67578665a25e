"""Names of models and where the hub's files lie: short names, the cache, one file of a repository. Knows no model."""

import re
from pathlib import Path

from rl.errors import InputError
from rl.settings.paths import ROOT

TINY = ROOT / "models" / "tiny"
LOCAL_CACHE = Path("hf_cache")
HUB_IDS = {name: f"Qwen/Qwen2.5-Coder-{name}-Instruct" for name in ("0.5B", "1.5B", "3B", "7B")} | {
    "qwen3-0.6B": "Qwen/Qwen3-0.6B", "qwen3-1.7B": "Qwen/Qwen3-1.7B", "qwen3-4B": "Qwen/Qwen3-4B",
    "llama-3.2-1B": "meta-llama/Llama-3.2-1B-Instruct", "llama-3.2-3B": "meta-llama/Llama-3.2-3B-Instruct"}


def hub_name(model: str) -> str:
    """The name by which other programs know a model: the hub id of a short name, any other as it is."""
    return HUB_IDS.get(model, model)


def same_model(one: str, model: str) -> bool:
    """Whether the name that an adapter gives its model may stand for the one that MODEL names.

    An owner or a folder before the name is no difference.  Where MODEL is a path there is no name to compare: folders move."""
    if model not in (*HUB_IDS, "tiny") and Path(model).expanduser().exists():
        return True
    return _last_name(one) == _last_name(model)


def _last_name(model: str) -> str:
    """A model's name without owner or folder; of a snapshot in the hub's cache the name of its repository."""
    found = re.search(r"models--[^/]*--([^/]+)/snapshots/", model)
    return (found[1] if found else Path(hub_name(model)).name).lower()


def hub_cache() -> Path | None:
    """The cache beside the program where there is one; None: HF_HUB_CACHE, or the library's default."""
    return LOCAL_CACHE if LOCAL_CACHE.is_dir() else None


def tokenizer_file(name: str, token: str | None = None) -> Path:
    """The tokenizer.json of a folder, a short name or a hub id, fetched where it is not in the cache; InputError without one.

    token: the hub's, where it is not the one that its library finds by itself."""
    from huggingface_hub import snapshot_download  # its download of one file tries for 20 s where there is no network

    folder = TINY if name == "tiny" else Path(name).expanduser()
    if folder.is_dir():
        return folder / "tokenizer.json"
    why, asked = None, {"cache_dir": hub_cache(), "allow_patterns": ["tokenizer.json"]}
    for more in ({"local_files_only": True}, {"local_files_only": False, "token": token or None}):
        try:
            file = Path(snapshot_download(hub_name(name), **asked, **more)) / "tokenizer.json"
            if not file.exists():
                raise FileNotFoundError("it has no tokenizer.json")
            return file
        except Exception as error:  # no network, no such name, a gated one: the ways on are the same
            why = error
    raise InputError(f"tokenizer {name!r}: no folder, and not to be had from the hub ({str(why).splitlines()[0]}); give a folder "
                     f"with a tokenizer.json, a hub id, or one of {', '.join(HUB_IDS)}, tiny") from why
