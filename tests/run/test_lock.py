"""A run's folder belongs to one process at a time, for as long as that process lives."""

import fcntl
import subprocess
import sys

import pytest

from rl.errors import InputError
from rl.run.files import claimed

HOLD = """
import sys, time
from pathlib import Path
from rl.run.files import claimed
with claimed(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def holder(folder, root):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], cwd=root, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_refused_by_name_until_the_first_is_killed(tmp_path, root):
    """The message names the folder and the process that has it; kill -9 frees the folder at once; nothing is left in it."""
    first = holder(tmp_path, root)
    try:
        with pytest.raises(InputError, match=f"{tmp_path} is in use by process {first.pid}.*kill {first.pid}"), \
                claimed(tmp_path):
            pass
    finally:
        first.kill()
        first.wait()
    with claimed(tmp_path):
        assert not any(tmp_path.iterdir())


def test_the_lock_ends_with_the_block(tmp_path):
    """Also when the block fails; a lock of one folder is none of another."""
    (tmp_path / "other").mkdir()
    with pytest.raises(RuntimeError), claimed(tmp_path):
        with claimed(tmp_path / "other"), pytest.raises(InputError), claimed(tmp_path):
            pass
        raise RuntimeError
    with claimed(tmp_path):
        pass


def test_programs_started_inside_do_not_keep_the_lock(tmp_path):
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


def test_a_file_system_without_locks_is_only_warned_of(tmp_path, monkeypatch, capsys):
    """Some network mounts refuse every lock; that must not keep anyone from training there."""
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with claimed(tmp_path):
        pass
    assert "cannot be locked (Operation not supported)" in capsys.readouterr().out
