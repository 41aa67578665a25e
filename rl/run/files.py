"""The files of a run's folder: JSON lines that survive a crash, files replaced whole, one writer at a time, where checkpoints lie.

    <run>/checkpoints/step_00025               the latest few
    <run>/checkpoints/permanent/step_00100     multiples of KEEP_EVERY; in older runs these stand beside the others

Files grow by whole rows that are on the disk before the call returns. A crash can tear only the last row, and resuming drops it.
The lock on a run's folder is the kernel's, on the folder itself: no file of ours can go stale, and it ends with the process that
holds it, however that one ends. Reading a run (probes, reports) needs no lock."""

import fcntl
import json
import math
import os
from collections.abc import Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

from rl.errors import InputError

# ---- rows and whole files ---------------------------------------------------------------------------------------------


class LogError(OSError):
    """A file of the run cannot be written or read; the text names it and the way on."""


def read_rows(path: str | Path) -> list[dict]:
    """The file's rows; none when there is no file; a torn last row is left out, a bad row before it is an error."""
    path = Path(path)
    if not path.exists():
        return []
    *whole, _torn = _guard(path, Path.read_bytes).split(b"\n")    # each whole row ends in a newline
    rows = []
    for number, line in enumerate(whole, 1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise LogError(f"{path}: row {number} is not JSON ({error}): mend or delete it, start again") from error
    return rows


def cut_after(path: Path, step: int) -> None:
    """Drop the rows of later steps and a torn last row, written aside and renamed."""
    if path.exists():
        write_aside(path, _lines(row for row in read_rows(path) if row["step"] <= step))


def append_rows(path: Path, rows: Iterable[dict]) -> None:
    """Append rows and wait for the disk. When that fails the file is as it was before, and LogError says so."""
    data = _lines(rows)
    if data:
        _guard(path, lambda path: _append(path, data))


def _append(path: Path, data: bytes) -> None:
    with open(path, "ab", buffering=0) as file:
        before = file.tell()
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest):]    # a nearly full disk takes a part
            os.fsync(file.fileno())
        except OSError:
            os.truncate(file.fileno(), before)    # no half row in the middle, should the run go on
            raise


def write_aside(path: Path, data: bytes) -> None:
    """Replace the file at once: written beside it, flushed to the disk, renamed; readers see the old one or the new."""
    _guard(path, lambda path: _write_aside(path, data))


def _write_aside(path: Path, data: bytes) -> None:
    aside = path.with_name(path.name + ".tmp")
    try:
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def _guard(path: Path, action):
    try:
        return action(path)
    except OSError as error:
        raise LogError(f"{path}: {error.strerror or error}. Rows written before are intact; free space or mend "
                       "permissions, then go on with RESUME=<the run's folder>") from error


def _lines(rows: Iterable[dict]) -> bytes:
    return b"".join(json.dumps(jsonable(row), allow_nan=False).encode() + b"\n" for row in rows)


def jsonable(value):
    """The value as JSON has it: NumPy scalars as Python's, nan and infinities as None, tuples as lists."""
    if isinstance(value, dict):
        return {str(key): jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(inner) for inner in value]
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---- one process at a time --------------------------------------------------------------------------------------------


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


# ---- checkpoints ------------------------------------------------------------------------------------------------------


STATE = "state.json"    # of a checkpoint; written last, so its presence means complete
PERMANENT = "permanent"


# ---- inside of a run -------------------------------------------------------------------------------------------------

def checkpoint_folder(run: Path, step: int, keep_every: int) -> Path:
    """Where the checkpoint of that step is written."""
    stays = keep_every and step and step % keep_every == 0
    return run / "checkpoints" / (PERMANENT if stays else "") / f"step_{step:05d}"


def checkpoints(run: Path) -> dict[int, Path]:
    """Step -> folder of the run's complete checkpoints, in order of steps."""
    found = [*(run / "checkpoints").glob("step_*"), *(run / "checkpoints" / PERMANENT).glob("step_*")]
    return dict(sorted((int(folder.name[5:]), folder) for folder in found if (folder / STATE).exists()))


def lasting_checkpoints(run: Path, keep_every: int) -> dict[int, Path]:
    """Those of `checkpoints` that stay for good, and the latest."""
    found = checkpoints(run)
    return {step: folder for step, folder in found.items()
            if folder.parent.name == PERMANENT or (keep_every and step and step % keep_every == 0) or step == max(found)}
