"""The files of a run's folder through crashes and full disks, and its lock. Checkpoint folders: tests/settings/test_paths.py."""

import fcntl
import math
import os
import subprocess
import sys

import pytest

from rl.errors import InputError
from rl.run import files
from rl.run.files import LogError, append_rows, claimed, drop_rows_after, read_rows, write_aside

# ---- rows and whole files --------------------------------------------------------------------------------------------


class FullDisk:
    """A file that takes `room` bytes and then says that the disk is full."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def write(self, data):
        taken = self.file.write(bytes(data)[:self.room])
        self.room -= taken
        if not taken:
            raise OSError(28, "No space left on device")
        return taken


def fill_disk(monkeypatch, room):
    monkeypatch.setattr(files, "open", lambda *args, **rest: FullDisk(open(*args, **rest), room), raising=False)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("room", [0, 1, 30])
def test_a_full_disk_leaves_the_earlier_rows(tmp_path, monkeypatch, room):
    """When a row does not fit, the error names the file, and the file has the earlier rows and no part of this one."""
    path = tmp_path / "metrics.jsonl"
    append_rows(path, [{"step": 1}])
    fill_disk(monkeypatch, room)

    with pytest.raises(LogError, match=r"metrics\.jsonl: No space left on device.*RESUME="):
        append_rows(path, [{"step": 2, "filler": "x" * 100}])
    assert path.read_bytes() == b'{"step": 1}\n'


def test_a_full_disk_leaves_the_old_file_when_rows_are_dropped(tmp_path, monkeypatch):
    """Rows are dropped by writing a new file first: a full disk leaves the old one whole and no half file behind."""
    path = tmp_path / "metrics.jsonl"
    append_rows(path, [{"step": step} for step in (1, 2, 3)])
    before = contents(tmp_path)
    fill_disk(monkeypatch, 5)
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))

    with pytest.raises(LogError, match="No space left"):
        drop_rows_after(path, 1)
    assert contents(tmp_path) == before


def test_a_partly_taken_write_is_continued(tmp_path, monkeypatch):
    """A write that takes a few bytes at a time still writes everything."""
    class Slow(FullDisk):
        def write(self, data):
            return self.file.write(bytes(data)[:3])

    monkeypatch.setattr(files, "open", lambda *args, **rest: Slow(open(*args, **rest), 0), raising=False)
    append_rows(tmp_path / "rows.jsonl", [{"step": 1, "x": math.pi}])
    assert read_rows(tmp_path / "rows.jsonl") == [{"step": 1, "x": math.pi}]


def test_write_aside_replaces_atomically(tmp_path, monkeypatch):
    """Readers see the old text or the new one: when the rename fails the old one stays and the new file is removed."""
    path = tmp_path / "probe.json"
    write_aside(path, b"old")
    monkeypatch.setattr(os, "replace", lambda *args: (_ for _ in ()).throw(OSError(30, "Read-only file system")))
    with pytest.raises(LogError, match="Read-only"):
        write_aside(path, b"new")
    assert contents(tmp_path) == {"probe.json": b"old"}


# ---- locks -----------------------------------------------------------------------------------------------------------

HOLD = """
import sys, time
from pathlib import Path
from rl.run.files import claimed
with claimed(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path, root):
    """The message names the folder and the process that holds it; kill -9 frees the folder at once; no file is left in it."""
    first = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=root, stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=f"{tmp_path} is in use by process {first.pid}.*kill {first.pid}"), \
                claimed(tmp_path):
            pass
    finally:
        first.kill()
        first.wait()
    with claimed(tmp_path):
        assert not any(tmp_path.iterdir())


def test_the_lock_ends_with_the_block(tmp_path):
    """Also when the block fails; a lock of one folder does not lock another."""
    (tmp_path / "other").mkdir()
    with pytest.raises(RuntimeError), claimed(tmp_path):
        with claimed(tmp_path / "other"), pytest.raises(InputError), claimed(tmp_path):
            pass
        raise RuntimeError
    with claimed(tmp_path):
        pass


def test_child_processes_do_not_keep_the_lock(tmp_path):
    """A child that outlives the run (an orphaned fork server) does not hold its folder."""
    with claimed(tmp_path):
        child = subprocess.Popen([sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False)
        child.stdout.readline()
    try:
        with claimed(tmp_path):
            pass
    finally:
        child.communicate()


def test_a_file_system_without_locks_gets_a_warning(tmp_path, monkeypatch, capsys):
    """Some network mounts refuse every lock; training there must still work."""
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with claimed(tmp_path):
        pass
    assert "cannot be locked (Operation not supported)" in capsys.readouterr().out
