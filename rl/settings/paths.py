"""Where relative paths lie when CACHE_DIR is set, and the way back to what the user wrote.

    CACHE_DIR/artifacts/runs      OUT, RESUME and LORA               CACHE_DIR/models      MODEL, if it exists there
    CACHE_DIR/artifacts/sweeps    --out of scripts/sweep.py          CACHE_DIR/datasets    TASKS_FILE, HUMANEVAL_FILE, MBPP_FILE;
                                                                      ..._path and tasks_file in PROVIDER_KWARGS
    CACHE_DIR/artifacts/eval      evaluations, zero-shot files
    CACHE_DIR/logs/wandb          TRACKER=wandb                      (other logs are in the folder of their run or sweep)

    <run>/checkpoints/step_00025               the latest few
    <run>/checkpoints/permanent/step_00100     multiples of KEEP_EVERY; older runs have these beside the others

Without CACHE_DIR, and for absolute paths, a path means what it says. A run's config.yaml holds relative paths, so that a cache
folder can be moved. Nothing here reads a file's content."""

import json
import re
from dataclasses import replace
from pathlib import Path

from rl.settings.declared import Kwargs, Settings

ROOT = Path(__file__).resolve().parents[2]    # the repo
FOLDERS = {"runs": "artifacts/runs", "sweeps": "artifacts/sweeps", "eval": "artifacts/eval", "datasets": "datasets",
           "models": "models", "logs": "logs"}


def cache_folder(cache_dir: str, kind: str) -> Path:
    """The folder in CACHE_DIR for one kind of files (a key of FOLDERS); absolute, so that printed paths work from anywhere."""
    return Path(cache_dir).expanduser().resolve() / FOLDERS[kind]


def resolved_path(cache_dir: str, kind: str, path: str | Path) -> Path:
    """`path`, under the kind's folder in CACHE_DIR if that is set and the path is relative."""
    path = Path(path)
    return cache_folder(cache_dir, kind) / path if cache_dir and not path.expanduser().is_absolute() else path


def adapter_path(path: Path) -> Path:
    """`path`, or the checkpoint's folder where the path is checkpoints/lora_step00600.npz, as in the reference's layout, or where
    the checkpoint is in checkpoints/permanent."""
    if path.exists() or not (found := re.fullmatch(r"(?:lora_step(\d+)\.npz|step_(\d+))", path.name)):
        return path
    name = f"step_{found[1] or found[2]}"
    return next((folder for folder in (path.parent / name, path.parent / "permanent" / name) if folder.is_dir()), path)


def with_absolute_paths(settings: Settings) -> Settings:
    """The settings with relative paths resolved under CACHE_DIR."""
    cache = settings.storage.cache_dir

    def absolute(kind, path, must_exist=False):
        found = resolved_path(cache, kind, path)
        return str(found) if path and (adapter_path(found).exists() or not must_exist) else path

    # A resumed run's OUT is its folder, which has already been found.
    return _with_paths(settings, absolute, out=not settings.run.resume) if cache else settings


def with_relative_paths(settings: Settings) -> Settings:
    """The reverse of with_absolute_paths: paths inside CACHE_DIR are relative again."""
    cache = settings.storage.cache_dir

    def relative(kind, path, must_exist=False):
        folder = cache_folder(cache, kind)
        return str(Path(path).relative_to(folder)) if path and Path(path).is_relative_to(folder) else path

    return _with_paths(settings, relative, out=False) if cache else settings


def _with_paths(settings, change, out):
    """The settings with change(kind, path) applied to every path; to OUT only if `out`.

    MODEL and LORA may also be names or paths elsewhere, so they are changed only if they exist in the cache."""
    m, data, reward = settings.model, settings.data, settings.reward
    model = replace(m, model=change("models", m.model, must_exist=True), lora=change("runs", m.lora, must_exist=True))
    data = replace(data, tasks_file=change("datasets", data.tasks_file), provider_kwargs=_with_texts(
        data.provider_kwargs, lambda name, text: change("datasets", text) if name.endswith(("_path", "tasks_file")) else text))
    reward = replace(reward, reward_kwargs=_with_texts(
        reward.reward_kwargs, lambda name, text: change("eval", text) if name == "zero_shot" else text))
    bank = replace(settings.bank, humaneval_file=change("datasets", settings.bank.humaneval_file),
                   mbpp_file=change("datasets", settings.bank.mbpp_file))
    run = replace(settings.run, out=change("runs", settings.run.out)) if out else settings.run
    return replace(settings, model=model, data=data, reward=reward, bank=bank, run=run)


def _with_texts(kwargs: Kwargs, change) -> Kwargs:
    """The mapping with change(name, text) in place of every text in it, at any depth."""
    def changed(name, value):
        if isinstance(value, dict):
            return {inner: changed(inner, part) for inner, part in value.items()}
        return change(name, value) if isinstance(value, str) else value
    return Kwargs(json.dumps(changed("", json.loads(kwargs)), sort_keys=True))
