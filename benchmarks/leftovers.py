"""What a piece of work left behind on this machine: a snapshot before, one after, and the difference in words.

Covered: descendants of this process, zombies included (inside `adopting_strays` also those whose parent has ended); open
descriptors of this process and of named ones; new top-level entries in /tmp, /dev/shm, /dev/mqueue, the working folder,
home and /; System V and POSIX IPC objects (the latter are entries of /dev/shm and /dev/mqueue). Not covered: changes deeper
in folders or inside files. Every program uses /tmp, so only entries that candidates may have made count there: with this
process as root, which no candidate is, those of other users, else those of this user. A file that another program of this
user makes meanwhile cannot be told apart, and counts. Linux only.
"""

import contextlib
import ctypes
import os
import re
import time
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

TEMPORARY = ("/tmp", "/var/tmp")
FOLDERS = (*TEMPORARY, "/", "/dev/shm", "/dev/mqueue")
PATIENCE_S = 3.0    # ending takes a moment, and most files of other programs are soon gone
PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37
TICKS = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """One line of the kernel's process table."""

    parent: int
    name: str
    state: str      # R running, S asleep, Z zombie, ...
    started: int    # clock ticks after boot; unique together with the id
    cpu_s: float    # its own and that of children it has reaped


class Snapshot(NamedTuple):
    """The state at one moment; compare two with `left_behind`."""

    processes: dict[tuple[int, int], str]   # (id, started): its description
    descriptors: dict[int, Counter]         # by process that may be inspected: how many of each kind are open
    files: frozenset[str]
    ipc: frozenset[str]


def process_table() -> dict[int, Process]:
    """Every process of this machine by its id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
            cpu_s = sum(map(int, fields[11:15])) / TICKS
            found[int(folder.name)] = Process(int(fields[1]), name, fields[0], int(fields[19]), cpu_s)
    return found


def descendants(pid: int, table: dict[int, Process] | None = None) -> list[int]:
    """Descendants of the process, zombies included."""
    table = process_table() if table is None else table
    found, frontier = [], {pid}
    while frontier := {child for child, process in table.items() if process.parent in frontier}:
        found += sorted(frontier)
    return found


def memory_kib(pid: int) -> tuple[int, int]:
    """(RSS, PSS) of a process in KiB; zeros when it has ended, PSS = RSS where this user may not read it."""
    try:
        sizes = dict(re.findall(r"^(Rss|Pss): +(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M))
        return int(sizes["Rss"]), int(sizes["Pss"])
    except (OSError, KeyError):
        with contextlib.suppress(OSError):
            rss = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 10
            return rss, rss
    return 0, 0


@contextlib.contextmanager
def adopting_strays() -> Iterator[None]:
    """Inside the block a descendant that loses its parent becomes a child of this process, so that `snapshot` sees it."""
    libc, before = ctypes.CDLL(None, use_errno=True), ctypes.c_int()
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def snapshot(servers: Collection[int] = ()) -> Snapshot:
    """The state now; `servers` are descendants that are expected, of which the descriptors are covered instead."""
    table = process_table()
    processes = {(pid, table[pid].started): f"process {pid} ({table[pid].name}, state {table[pid].state})"
                 for pid in descendants(os.getpid(), table) if pid not in servers}
    kinds = {pid: _open_kinds(pid) for pid in (os.getpid(), *servers)}
    readable = {pid: found for pid, found in kinds.items() if found is not None}
    return Snapshot(processes, readable, frozenset(_entries()), frozenset(_ipc_objects()))


def left_behind(before: Snapshot, after: Snapshot) -> list[str]:
    """A line for everything new in the second snapshot; descriptors only of processes in both."""
    lines = [words for key, words in after.processes.items() if key not in before.processes]
    for pid in before.descriptors.keys() & after.descriptors.keys():
        more = after.descriptors[pid] - before.descriptors[pid]
        lines += [f"process {pid} has {count} more open: {kind}" for kind, count in sorted(more.items())]
    lines += [f"new file {path}" for path in sorted(after.files - before.files)]
    return lines + [f"new {name}" for name in sorted(after.ipc - before.ipc)]


def settled(before: Snapshot, servers: Collection[int] = ()) -> list[str]:
    """`left_behind` now, retried until nothing is left or PATIENCE_S is over."""
    end = time.monotonic() + PATIENCE_S
    while (lines := left_behind(before, snapshot(servers))) and time.monotonic() < end:
        time.sleep(0.1)
    return lines


def _open_kinds(pid):
    """How many descriptors of each kind a process has; None when this user may not see them."""
    kinds, folder = Counter(), f"/proc/{pid}/fd"
    try:
        for number in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # the one that lists the folder
                kinds[re.sub(r":\[\d+\]$", "", os.readlink(f"{folder}/{number}"))] += 1
    except OSError:
        return None
    return kinds


def _entries():
    for folder in {*FOLDERS, os.getcwd(), str(Path.home())}:
        with contextlib.suppress(OSError):  # missing on this machine, or closed to this user
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                if folder not in TEMPORARY or _of_candidates(path):
                    yield path


def _of_candidates(path):
    try:
        owner = os.lstat(path).st_uid
    except OSError:
        return False
    return owner == os.geteuid() if os.geteuid() else owner != 0


def _ipc_objects():
    for kind in ("shm", "sem", "msg"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]:
                yield f"System V {kind} object {line.split()[1]}"
