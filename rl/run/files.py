"""The files of a run's folder: where checkpoints lie, and how files are read, written and locked.

    <run>/checkpoints/step_00025               the latest few
    <run>/checkpoints/permanent/step_00100     multiples of KEEP_EVERY; in older runs they lie beside the others

Logs are JSON lines. They grow by whole rows, which are on the disk when the call returns: a crash can tear only the last row,
which readers skip and resuming removes. Other files are replaced whole. A lock is the kernel's, on the folder itself, so it ends
with its process and cannot go stale. Reading a run (probes, reports) needs no lock."""

import fcntl
import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rl.errors import InputError

STATE = "state.json"    # of a checkpoint; written last, so a checkpoint that has it is complete
PERMANENT = "permanent"


class LogError(OSError):
    """A file of the run cannot be written or read; the text names the file and the way on."""


@contextmanager
def log_errors(path: Path) -> Iterator[None]:
    """Turns an OSError of the block into a LogError about `path`."""
    try:
        yield
    except OSError as error:
        raise LogError(f"{path}: {error.strerror or error}. Rows written before are intact; free space or fix the permissions, "
                       "then continue with RESUME=<the run's folder>") from error


# ---- checkpoints -----------------------------------------------------------------------------------------------------

def checkpoint_folder(run: Path, step: int, keep_every: int) -> Path:
    """Where the checkpoint of that step is written."""
    return run / "checkpoints" / (PERMANENT if _is_permanent(step, keep_every) else "") / f"step_{step:05d}"


def checkpoints(run: Path) -> dict[int, Path]:
    """Step -> folder of the run's complete checkpoints, sorted by step."""
    found = [*(run / "checkpoints").glob("step_*"), *(run / "checkpoints" / PERMANENT).glob("step_*")]
    return dict(sorted((int(folder.name[5:]), folder) for folder in found if (folder / STATE).exists()))


def lasting_checkpoints(run: Path, keep_every: int) -> dict[int, Path]:
    """The permanent ones of `checkpoints`, and the latest."""
    found = checkpoints(run)
    return {step: folder for step, folder in found.items()
            if folder.parent.name == PERMANENT or _is_permanent(step, keep_every) or step == max(found)}


def _is_permanent(step: int, keep_every: int) -> bool:
    return bool(keep_every and step and step % keep_every == 0)


# ---- JSON lines ------------------------------------------------------------------------------------------------------

def jsonable(value):
    """The value as JSON can hold it: NumPy scalars as Python's, nan and infinities as None, tuples as lists."""
    if isinstance(value, dict):
        return {str(key): jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(inner) for inner in value]
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_lines(rows: Iterable[dict]) -> bytes:
    """The rows as JSON lines."""
    return b"".join(json.dumps(jsonable(row), allow_nan=False).encode() + b"\n" for row in rows)


def read_rows(path: str | Path) -> list[dict]:
    """The file's rows, without a torn last one; none where there is no file. LogError where an earlier row is not JSON."""
    path = Path(path)
    if not path.exists():
        return []
    with log_errors(path):
        *lines, _torn = path.read_bytes().split(b"\n")    # each whole row ends in a newline
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise LogError(f"{path}: row {number} is not JSON ({error}): fix or delete it, then start again") from error
    return rows


def append_rows(path: Path, rows: Iterable[dict]) -> None:
    """Append rows and wait for the disk; on LogError the file is as it was before."""
    if not (data := json_lines(rows)):
        return
    with log_errors(path), open(path, "ab", buffering=0) as file:
        before = file.tell()
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest):]    # a nearly full disk takes only a part
            os.fsync(file.fileno())
        except OSError:
            os.truncate(file.fileno(), before)    # no half row in the middle, should the run go on
            raise


def drop_torn_row(path: Path) -> None:
    """Remove a torn last row, so that rows can be appended."""
    if path.exists() and not (data := path.read_bytes()).endswith(b"\n"):
        write_aside(path, data[: data.rfind(b"\n") + 1])


def drop_rows_after(path: Path, step: int) -> None:
    """Remove the rows of later steps and a torn last row."""
    if path.exists():
        write_aside(path, json_lines(row for row in read_rows(path) if row["step"] <= step))


# ---- whole files -----------------------------------------------------------------------------------------------------

def write_aside(path: Path, data: bytes) -> None:
    """Replace the file atomically: written beside it, flushed to the disk, renamed; readers see the old one or the new one."""
    aside = path.with_name(path.name + ".tmp")
    with log_errors(path):
        try:
            with open(aside, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise


# ---- locks -----------------------------------------------------------------------------------------------------------

@contextmanager
def claimed(run: Path) -> Iterator[None]:
    """Locks the run's folder; InputError names the process that holds it. Without locks in the file system, a warning."""
    fd = os.open(run, os.O_RDONLY)    # not inherited by child processes
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = _lock_holder(os.fstat(fd))
            who = f"process {pid}" if pid else "another process"
            raise InputError(f"{run} is in use by {who}: wait for it, stop it ({f'kill {pid}' if pid else 'Ctrl-C'} saves first) "
                             "or choose another folder") from error
        except OSError as error:
            print(f"warning: {run} cannot be locked ({error.strerror}): do not start a second process on it", flush=True)
        yield
    finally:
        os.close(fd)


@contextmanager
def in_turn(folder: Path) -> Iterator[None]:
    """Locks the folder, waiting while another process holds it. Without locks in the file system it does nothing."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _lock_holder(folder: os.stat_result) -> int | None:
    """The process that holds the lock on this folder according to the kernel; None where it does not say."""
    file = f"{os.major(folder.st_dev):02x}:{os.minor(folder.st_dev):02x}:{folder.st_ino}"
    try:
        rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return None
    return next((int(row[4]) for row in rows if row[1] == "FLOCK" and row[5] == file and int(row[4]) > 0), None)
