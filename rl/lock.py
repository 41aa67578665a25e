"""One process at a time in a run's folder.

The lock is the kernel's, on the folder itself: no file of ours is left to go stale, and it ends with the process that holds
it, however that one ends. Reading a run (probes, reports) needs no lock."""

import fcntl
import os
from contextlib import contextmanager, suppress
from pathlib import Path

from rl.errors import InputError


@contextmanager
def claimed(run: Path):
    """The run's folder, for this process alone; InputError says who has it. A file system without locks gets a warning."""
    fd = os.open(run, os.O_RDONLY)    # not inherited by programs that this one starts
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = _holder(os.fstat(fd))
            who = f"process {pid}" if pid else "another process"
            raise InputError(f"{run} is in use by {who}, which is writing this run: wait for it or stop it "
                             f"({f'kill {pid}' if pid else 'Ctrl-C'} saves first), or choose another folder") from error
        except OSError as error:
            print(f"warning: {run} cannot be locked ({error.strerror}): start no second process on it", flush=True)
        yield
    finally:
        os.close(fd)


@contextmanager
def in_turn(folder: Path):
    """The folder for this process alone, waited for where another has it; without locks in the file system it is a hope."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _holder(about: os.stat_result) -> int | None:
    """The process that the kernel lists as holding a lock on this folder; None where the list does not say."""
    file = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
    try:
        rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return None
    return next((int(row[4]) for row in rows if row[1] == "FLOCK" and row[5] == file and int(row[4]) > 0), None)
