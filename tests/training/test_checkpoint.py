"""Checkpoints: complete or absent, exact, pruned as the settings say, with clear errors when the disk fails."""

import errno
import os
import resource
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl.tasks import Cursor
from rl.training import checkpoint, lora
from rl.training.optimiser import init_state
from tests import small_model

CFG = small_model.CFG


def state(seed=0):
    rng = np.random.default_rng(seed)
    noise = lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape), jnp.float32)  # noqa: E731
    new = init_state(small_model.adapter(seed=seed))
    return new._replace(mu=jax.tree.map(noise, new.mu), nu=jax.tree.map(noise, new.nu), updates=jnp.int32(7))


def save(run, step, value=None, keep_last=3, keep_every=0):
    return checkpoint.save(run, step, value or state(), seed=0, base_model="base", keep_last=keep_last, keep_every=keep_every)


def test_every_part_comes_back_bit_for_bit(tmp_path):
    """Adapter, scale, both moments, the number of updates and the step."""
    saved = state()
    save(tmp_path, 12, saved)
    restored, step = checkpoint.restore(tmp_path, CFG, 4)

    assert step == 12
    for got, want in zip(jax.tree.leaves(restored), jax.tree.leaves(saved), strict=True):
        assert got.dtype == want.dtype and (np.asarray(got) == np.asarray(want)).all()


def test_an_adapter_of_a_few_projections_comes_back(tmp_path):
    """Its moments stay with their values; a run whose settings name other projections is refused."""
    two = init_state(lora.init(jax.random.key(0), CFG, 4, 8.0, ("v_proj", "up_proj")))
    numbered = lambda tree, start: jax.tree.unflatten(  # noqa: E731
        jax.tree.structure(tree), [leaf + start + i for i, leaf in enumerate(jax.tree.leaves(tree))])
    saved = two._replace(mu=numbered(two.mu, 1), nu=numbered(two.nu, 100))
    save(tmp_path, 3, saved)
    restored, _ = checkpoint.restore(tmp_path, CFG, 4, ["v_proj", "up_proj"])

    assert jax.tree.structure(restored) == jax.tree.structure(saved)
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(restored), jax.tree.leaves(saved), strict=True))
    with pytest.raises(ValueError, match="LORA_TARGETS"):
        checkpoint.restore(tmp_path, CFG, 4, ["v_proj"])


def test_the_data_cursor_comes_back(tmp_path):
    """Epochs and remaining tasks; the initial cursor if an older checkpoint has none."""
    cursor = Cursor(3, (5, 0, 7))
    folder = checkpoint.save(tmp_path, 4, state(), seed=0, base_model="base", keep_last=3, keep_every=0, cursor=cursor)
    assert checkpoint.data_cursor(tmp_path) == cursor
    (folder / checkpoint.STATE).write_text('{"step": 4, "seed": 0}')
    assert checkpoint.data_cursor(tmp_path) == Cursor()


def test_a_checkpoint_holds_what_others_read(tmp_path):
    """The .npz, PEFT's two files, the optimiser and the file that marks completeness."""
    names = sorted(path.name for path in save(tmp_path, 25).iterdir())
    assert names == ["adapter_config.json", "adapter_model.safetensors", "lora_step00025.npz", "optimizer.npz", "state.json"]


def test_the_last_few_and_the_permanent_ones_stay(tmp_path):
    """KEEP_LAST=2 and KEEP_EVERY=4 over steps 0..9 keep 4, 8 and 9, but not 0."""
    for step in range(10):
        save(tmp_path, step, keep_last=2, keep_every=4)
    assert checkpoint.steps(tmp_path) == [4, 8, 9]
    assert sorted(path.name for path in (tmp_path / "checkpoints/permanent").iterdir()) == ["step_00004", "step_00008"]


@pytest.mark.parametrize("old_layout", [False, True])
def test_a_permanent_checkpoint_is_resumed_from(tmp_path, old_layout):
    """If it is the latest; also where older versions put it, beside the others, and there it stays."""
    save(tmp_path, 4, keep_last=1, keep_every=4)
    if old_layout:
        (tmp_path / "checkpoints/permanent/step_00004").rename(tmp_path / "checkpoints/step_00004")
    (tmp_path / "checkpoints/permanent/.step_00008.tmp").mkdir(parents=True)
    assert checkpoint.restore(tmp_path, CFG, 4)[1] == 4 and checkpoint.data_cursor(tmp_path) == Cursor()
    save(tmp_path, 5, keep_last=1, keep_every=4)
    assert checkpoint.steps(tmp_path) == [4, 5] and not [*tmp_path.glob("**/.step_*")]


def test_the_latest_complete_one_is_restored(tmp_path):
    """A folder without state.json and an unfinished hidden one are ignored."""
    save(tmp_path, 3)
    (save(tmp_path, 6) / checkpoint.STATE).unlink()
    (tmp_path / "checkpoints" / ".step_00009.tmp").mkdir()
    assert checkpoint.restore(tmp_path, CFG, 4)[1] == 3


@pytest.mark.parametrize("left", [".step_00005.tmp", "permanent/.step_00005.tmp", "step_00005", "permanent/step_00005"])
def test_a_save_that_was_cut_off_is_reported(tmp_path, capsys, left):
    """Resuming says that it goes on from the checkpoint before; older left-overs and removed checkpoints are no reason to."""
    save(tmp_path, 4)
    for other in (".step_00003.tmp", ".step_00009.old"):
        (tmp_path / "checkpoints" / other).mkdir()
    checkpoint.restore(tmp_path, CFG, 4)
    assert not capsys.readouterr().out
    (tmp_path / "checkpoints" / left).mkdir(parents=True)
    _, step = checkpoint.restore(tmp_path, CFG, 4)
    said = capsys.readouterr().out
    assert step == 4 and "save after step 5 was cut off" in said and "last complete checkpoint, of step 4" in said


def test_saving_a_step_again_replaces_it(tmp_path):
    """The newer state of the same step is restored."""
    save(tmp_path, 5, state(0))
    save(tmp_path, 5, state(1))
    restored = checkpoint.restore(tmp_path, CFG, 4)[0]
    assert (np.asarray(jax.tree.leaves(restored.mu)[0]) == np.asarray(jax.tree.leaves(state(1).mu)[0])).all()


@pytest.mark.parametrize("file", ["lora_step00004.npz", "optimizer.npz"])
def test_a_damaged_file_is_named(tmp_path, file):
    """With a truncated adapter or optimiser file the error names it."""
    path = save(tmp_path, 4) / file
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match=file):
        checkpoint.restore(tmp_path, CFG, 4)


def test_nothing_to_resume_is_an_error(tmp_path):
    """An empty run folder is refused."""
    with pytest.raises(checkpoint.CheckpointError, match="no complete checkpoint"):
        checkpoint.restore(tmp_path, CFG, 4)


def test_a_full_disk_leaves_earlier_checkpoints_whole(tmp_path, monkeypatch):
    """The error names the folder and RESUME, nothing unfinished is left, and the earlier checkpoint restores."""
    save(tmp_path, 1)

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint.np, "savez", full)
    with pytest.raises(checkpoint.CheckpointError, match="step_00002: No space left.*RESUME"):
        save(tmp_path, 2)
    monkeypatch.undo()

    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_00001"]
    assert checkpoint.restore(tmp_path, CFG, 4)[1] == 1


def limited(size):
    """Limit the size of this process's files, as on a full disk; returns a function that undoes it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("file", ["lora_step00002.npz", "adapter_model.safetensors", "optimizer.npz", "state.json"])
def test_whichever_file_the_disk_refuses(tmp_path, file, monkeypatch):
    """Whichever file cannot be written: the same error, nothing unfinished left, the earlier checkpoint intact."""
    size = (save(tmp_path, 1) / file.replace("00002", "00001")).stat().st_size
    writers = {"lora_step00002.npz": (checkpoint.lora, "save_npz"), "adapter_model.safetensors": (checkpoint.lora, "save_peft"),
               "optimizer.npz": (checkpoint.np, "savez"), "state.json": (checkpoint.Path, "write_text")}
    owner, name = writers[file]
    write = getattr(owner, name)

    def refused(path, *arguments, **named):
        if name == "write_text" and path.name != file:
            return write(path, *arguments, **named)
        undo = limited(size - 1)
        try:
            return write(path, *arguments, **named)
        finally:
            undo()

    monkeypatch.setattr(owner, name, refused)
    with pytest.raises(checkpoint.CheckpointError, match="step_00002: File too large.*earlier checkpoints are intact.*RESUME"):
        save(tmp_path, 2)
    monkeypatch.undo()

    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_00001"]
    assert checkpoint.restore(tmp_path, CFG, 4)[1] == 1


class Killed(BaseException):
    """Stands for kill -9: no handler of errors catches it."""


CHANGES = ("mkdir", "rename", "unlink", "rmdir", "fsync")    # the system calls of a save, besides writing


@pytest.mark.parametrize("saved", [3, 2])
def test_a_kill_at_any_moment_of_a_save_leaves_the_old_or_the_new(tmp_path, monkeypatch, saved):
    """Killed before each change to the folder in turn, saving a new step or an existing one: a complete checkpoint restores.

    The same save, repeated, succeeds and cleans up."""
    left = 10**9

    def counted(real):
        def call(*arguments, **named):
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return real(*arguments, **named)
        return call

    for name in CHANGES:
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    (tmp_path / "before").mkdir()
    states = {seed: state(seed) for seed in (1, 2, 9)}
    first = {seed: np.asarray(jax.tree.leaves(made.nu)[0]) for seed, made in states.items()}
    for step in (1, 2):
        save(tmp_path / "before", step, states[step], keep_last=2)
    for moments in range(1000):
        run = tmp_path / str(moments)
        shutil.copytree(tmp_path / "before", run)
        left = moments
        try:
            save(run, saved, states[9], keep_last=2)
            break
        except Killed:
            left = 10**9
        restored, step = checkpoint.restore(run, CFG, 4)
        found = np.asarray(jax.tree.leaves(restored.nu)[0])
        assert (found == first[9]).all() if step == 3 else any((found == first[seed]).all() for seed in (step, 9))
        save(run, saved, states[9], keep_last=2)
        assert sorted(path.name for path in (run / "checkpoints").iterdir()) == [f"step_{n:05d}" for n in (saved - 1, saved)]
        assert checkpoint.restore(run, CFG, 4)[1] == saved
    assert moments > 10, "the save makes system calls that this test does not count"
