"""Where things lie: relative paths under CACHE_DIR where that is set, and the checkpoints inside of a run's folder.

    CACHE_DIR/artifacts/runs      OUT, RESUME and LORA of runs       CACHE_DIR/datasets    TASKS_FILE, provider kwargs ..._path
    CACHE_DIR/artifacts/sweeps    --out of scripts/sweep.py          CACHE_DIR/models      a MODEL that is there
    CACHE_DIR/artifacts/eval      evaluations, files of zero_shot
    (logs lie in the folder of the run or sweep that they are of: artifacts/sweeps/<name>/logs)

    <run>/checkpoints/step_00025               the latest few
    <run>/checkpoints/permanent/step_00100     multiples of KEEP_EVERY; in older runs these stand beside the others

With CACHE_DIR blank, and for absolute paths, a path means what it says. A run's config.yaml has the paths as they were before,
so a cache folder can move. Nothing here reads a file's content."""

import json
from dataclasses import replace
from pathlib import Path

from rl.settings.declared import Kwargs, Settings

ROOT = Path(__file__).resolve().parents[2]    # the repo
PLACES = {"runs": "artifacts/runs", "sweeps": "artifacts/sweeps", "eval": "artifacts/eval", "datasets": "datasets",
          "models": "models"}


def place(cache_dir: str, kind: str, path: str | Path) -> Path:
    """The path, under the kind's folder of the cache where there is one and the path is relative."""
    path = Path(path)
    return folder_of(cache_dir, kind) / path if cache_dir and not path.expanduser().is_absolute() else path


def folder_of(cache_dir: str, kind: str) -> Path:
    """The folder of a kind of things; absolute, so that what is printed can be given back from anywhere."""
    return Path(cache_dir).expanduser().resolve() / PLACES[kind]


def located(settings: Settings) -> Settings:
    """The settings with their relative paths put under CACHE_DIR."""
    cache = settings.storage.cache_dir

    def under(kind, path, must_be_there=False):
        found = place(cache, kind, path)
        return str(found) if path and (found.exists() or not must_be_there) else path

    # Names come before files there; and what a resumed run is given as OUT is its folder as it was found.
    return _with_paths(settings, under, out=not settings.run.resume) if cache else settings


def as_written(settings: Settings) -> Settings:
    """What `located` was given, as far as paths lie in the cache: relative again."""
    cache = settings.storage.cache_dir

    def short(kind, path, must_be_there=False):
        inside = Path(path).is_relative_to(folder_of(cache, kind)) and path
        return str(Path(path).relative_to(folder_of(cache, kind))) if inside else path

    return _with_paths(settings, short, out=False) if cache else settings


def _with_paths(settings, change, out):
    m, data, reward = settings.model, settings.data, settings.reward
    model = replace(m, model=change("models", m.model, True), lora=change("runs", m.lora, True))
    data = replace(data, tasks_file=change("datasets", data.tasks_file), provider_kwargs=_changed(
        data.provider_kwargs, lambda name, value: change("datasets", value) if name.endswith("_path") else value))
    reward = replace(reward, reward_kwargs=_changed(
        reward.reward_kwargs, lambda name, value: change("eval", value) if name == "zero_shot" else value))
    run = replace(settings.run, out=change("runs", settings.run.out)) if out else settings.run
    return replace(settings, model=model, data=data, reward=reward, run=run)


def _changed(kwargs: Kwargs, change) -> Kwargs:
    """The mapping with `change(name, text)` in place of each text in it, however deep."""
    def inside(name, value):
        if isinstance(value, dict):
            return {inner: inside(inner, part) for inner, part in value.items()}
        return change(name, value) if isinstance(value, str) else value
    return Kwargs(json.dumps(inside("", json.loads(kwargs)), sort_keys=True))
