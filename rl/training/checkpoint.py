"""Checkpoints of a run, each written under a hidden name and then renamed, so that it is either complete or absent.

    checkpoints/step_00025/
        lora_step00025.npz                                  the adapter, exactly as trained
        adapter_model.safetensors, adapter_config.json      the same for PEFT
        optimizer.npz                                       the optimiser's moments and the number of updates
        state.json                                          step, seed, cursor; written last: it marks a complete checkpoint
    checkpoints/permanent/step_00100/                       those of KEEP_EVERY, removed only if not finite

Sampling keys and the order of tasks are functions of (seed, step), so nothing else is saved of them but the cursor of runs with
DYNAMIC_SAMPLING, where the number of tasks used so far does not follow from the step, and of those that mix providers."""

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from rl.errors import InputError
from rl.run.files import PERMANENT, STATE, checkpoint_folder, checkpoints
from rl.tasks import START, Cursor
from rl.training import lora
from rl.training.choice import Record
from rl.training.optimiser import TrainState


class CheckpointError(InputError):
    """A checkpoint that cannot be written or read; the message names the folder and the way on."""


def save(run: Path, step: int, state: TrainState, *, seed: int, base_model: str, keep_last: int, keep_every: int,
         cursor: Cursor = START) -> Path:
    """Write the checkpoint after `step` steps and remove those that are no longer kept; returns its folder."""
    final = checkpoint_folder(run, step, keep_every)
    aside = final.with_name(f".{final.name}.tmp")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        _sweep(run / "checkpoints")
        aside.mkdir()
        lora.save_npz(aside / f"lora_step{step:05d}.npz", state.adapter)
        lora.save_peft(aside, state.adapter, base_model)
        moments = _numbered("mu", state.mu) | _numbered("nu", state.nu)
        np.savez(aside / "optimizer.npz", updates=np.asarray(state.updates), **moments)
        (aside / STATE).write_text(json.dumps({"step": step, "seed": seed, "cursor": cursor._asdict()}) + "\n")
        for path in [*aside.iterdir(), aside]:
            _to_disk(path)
        _hide(final)  # a damaged checkpoint of the same step
        aside.rename(final)
        done = checkpoints(run)
        for old in to_remove([*done], keep_last, keep_every):
            _hide(done[old])
        for folder in {final.parent, run / "checkpoints"}:
            _to_disk(folder)
        _sweep(run / "checkpoints")
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise CheckpointError(f"{final}: {error.strerror or error}; earlier checkpoints are intact. "
                              f"Free space or fix the permissions, then continue with RESUME={run}") from error
    return final


def remove(run: Path, step: int) -> None:
    """Delete the checkpoint after `step` steps."""
    _hide(checkpoints(run)[step])
    _sweep(run / "checkpoints")


def to_remove(done: list[int], keep_last: int, keep_every: int) -> list[int]:
    """The steps to remove: all but the last `keep_last` and the multiples of keep_every (0: none) above 0."""
    return [step for step in sorted(done)[:-keep_last] if not (keep_every and step and step % keep_every == 0)]


def steps(run: Path) -> list[int]:
    """The steps of the run's complete checkpoints, ascending."""
    return [*checkpoints(run)]


def restore(run: Path, cfg, rank: int, targets=None) -> tuple[TrainState, int]:
    """State and step of the run's latest complete checkpoint; AdapterError if its adapter has another rank or other targets.

    Prints a warning if a later save was cut off."""
    done = steps(run)
    if not done:
        raise CheckpointError(f"{run} has no complete checkpoint to resume from: start a new run")
    if (lost := max(_begun(run), default=0)) > done[-1]:
        print(f"warning: {run}: the save after step {lost} was cut off, so the run goes on from its last complete checkpoint, of "
              f"step {done[-1]}", flush=True)
    folder = checkpoints(run)[done[-1]]
    adapter = lora.load(folder / f"lora_step{done[-1]:05d}.npz", cfg, rank, targets)
    shape = jax.tree.structure(adapter["layers"])
    try:
        with np.load(folder / "optimizer.npz") as saved:
            mu, nu = (jax.tree.unflatten(shape, [jnp.asarray(saved[f"{name}{i}"]) for i in range(shape.num_leaves)])
                      for name in ("mu", "nu"))
            return TrainState(adapter, mu, nu, jnp.asarray(saved["updates"])), done[-1]
    except Exception as error:  # numpy and zipfile raise many types for a damaged archive
        raise CheckpointError(f"{folder / 'optimizer.npz'} is damaged ({error}): remove {folder} to resume from the checkpoint "
                              "before it") from error


def data_cursor(run: Path) -> Cursor:
    """The cursor of the run's latest complete checkpoint; the initial one if it has none."""
    state = json.loads((checkpoints(run)[steps(run)[-1]] / STATE).read_text())
    saved = state.get("cursor", START._asdict())
    return _cursor(*saved.values())


def _cursor(epochs: int, rest: list[int], turn: int = 0, parts: Sequence[list] = (), records: Sequence[list] = ()) -> Cursor:
    """The cursor from what JSON makes of it; older runs have fewer of its values."""
    return Cursor(epochs, tuple(rest), turn, tuple(_cursor(*part) for part in parts), tuple(Record(*one) for one in records))


def disk_bytes(adapter_values: int, keep_last: int, permanent: int) -> int:
    """Upper bound on a run's checkpoints: the adapter twice and two moments in fp32, in one more folder while saving."""
    return adapter_values * 4 * 4 * (keep_last + 1 + permanent)


def _begun(run: Path) -> list[int]:
    """The steps of checkpoints that are there but incomplete: a save was killed, or a file is missing."""
    folders = [path for top in (run / "checkpoints", run / "checkpoints" / PERMANENT) for path in top.glob("*step_*")]
    return [int(found[1]) for path in folders if (found := re.fullmatch(r"\.?step_(\d+)(?:\.tmp)?", path.name))
            and (path.name.endswith(".tmp") or not (path / STATE).exists())]


def _hide(folder: Path) -> None:
    """Remove a checkpoint by one rename, so that a kill never leaves a half-removed one that looks complete."""
    if folder.exists():
        folder.rename(folder.with_name(f".{folder.name}.old"))


def _sweep(top: Path) -> None:
    """Delete hidden folders: removed checkpoints, and unfinished ones of a killed process."""
    for left in (*top.glob(".step_*"), *(top / PERMANENT).glob(".step_*")):
        shutil.rmtree(left)


def _numbered(name: str, tree) -> dict[str, np.ndarray]:
    return {f"{name}{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


def _to_disk(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
