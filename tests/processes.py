"""Processes that a test starts. What is left of them when it ends, children included, is killed (conftest.py)."""

import os
import pty
import signal
import subprocess
from contextlib import suppress

_groups = []    # ids of process groups


def start(command, **options) -> subprocess.Popen:
    """subprocess.Popen, in a process group of its own."""
    process = subprocess.Popen(command, process_group=0, **options)
    _groups.append(process.pid)
    return process


def on_terminal(command, cwd=None, env=None) -> tuple[int, int]:
    """Start a command on a terminal of its own: (process id, our end of the terminal)."""
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(cwd or ".")
        os.execve(command[0], [str(part) for part in command], env or os.environ)
    _groups.append(pid)
    return pid, terminal


def end_all() -> None:
    """Kill every group that still has a process."""
    while _groups:
        with suppress(ProcessLookupError):
            os.killpg(_groups.pop(), signal.SIGKILL)
