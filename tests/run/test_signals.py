"""Signals: the first waits for a safe moment, the second ends the process; and streams whose terminal is closed."""

import errno
import io
import os
import signal
import subprocess
import sys
import threading

import pytest

from rl.run.signals import EXIT_CODES, Interrupted, Signals, outlive_terminal
from tests import processes

# Work in C that neither returns nor sees signals for minutes, like a compilation or a long step on the device.
BUSY = """
import hashlib, threading
from rl.run.signals import Interrupted, Signals
with Signals():
    threading.Timer(0.3, print, ("ready",), {"flush": True}).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)
"""


@pytest.mark.parametrize("first, second", [(signal.SIGINT, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)])
def test_a_second_signal_ends_a_busy_process(root, first, second):
    """Python's handlers would wait until the call in C returns; the exit code is the second signal's."""
    process = processes.start([sys.executable, "-c", BUSY], cwd=root, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(first)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    process.send_signal(second)
    assert process.wait(timeout=60) == EXIT_CODES[second]


def test_sighup_is_never_the_second_signal(root):
    """Shell and kernel both send SIGHUP when a terminal is closed: each waits like a first signal."""
    process = processes.start([sys.executable, "-c", BUSY], cwd=root, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    for _ in range(2):
        process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 143


def test_nohup_is_respected():
    """An ignored SIGHUP stays ignored; otherwise it interrupts like the others."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals():
            signal.raise_signal(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with Signals(), pytest.raises(Interrupted) as caught:
            signal.raise_signal(signal.SIGHUP)
        assert caught.value.exit_code == 129
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_restored():
    """After the block Ctrl-C is Python's again, and the thread that counted signals has ended."""
    def counting():
        return [thread for thread in threading.enumerate() if thread.name.endswith("(_exit_at_second_signal)")]
    for thread in counting():    # of an earlier test, still ending
        thread.join(timeout=60)
    before = signal.getsignal(signal.SIGINT)
    with Signals():
        assert signal.getsignal(signal.SIGINT) != before and len(counting()) == 1
    assert signal.getsignal(signal.SIGINT) == before and signal.set_wakeup_fd(-1) == -1
    for thread in counting():
        thread.join(timeout=60)
    assert not counting()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_exception_handlers_do_not_swallow_it():
    """`except Exception`, as in graders and trackers, lets Interrupted through."""
    with Signals(), pytest.raises(Interrupted):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Exception:
            pytest.fail("swallowed")


# ---- closed terminals -------------------------------------------------------------------------------------------------

WRITES = """
import os, sys, warnings
from rl.run.signals import outlive_terminal
if sys.argv[2] == "outlive":
    outlive_terminal()
print("here", flush=True)
sys.stdin.readline()
for stream in (sys.stdout, sys.stderr):
    stream.write("nobody reads this\\n")
    print("nor this", file=stream, flush=True)
warnings.warn("nor that")
os.write(1, b"nor what goes past Python\\n")
sys.stdout.write("nor what is left for the end")
open(sys.argv[1], "w").write("done")
"""


def on_terminal(root, *arguments):
    """(process, our end of the terminal): WRITES with stdout and stderr on a terminal of its own and stdin a pipe."""
    ours, theirs = os.openpty()
    process = processes.start([sys.executable, "-c", WRITES, *map(str, arguments)], cwd=root, stdin=subprocess.PIPE,
                              stdout=theirs, stderr=theirs, text=True)
    os.close(theirs)
    said = b""
    while not said.endswith(b"\n"):
        said += os.read(ours, 1024)
    assert said == b"here\r\n"
    return process, ours


def test_a_process_outlives_its_terminal(root, tmp_path):
    """What it writes after the terminal is closed is lost; it runs to its end and exits with 0."""
    process, ours = on_terminal(root, tmp_path / "file", "outlive")
    os.close(ours)
    process.communicate("go on\n", timeout=60)
    assert process.returncode == 0 and (tmp_path / "file").read_text() == "done"


def test_without_outlive_terminal_it_dies(root, tmp_path):
    """So the test above can fail."""
    process, ours = on_terminal(root, tmp_path / "file", "die")
    os.close(ours)
    process.communicate("go on\n", timeout=60)
    assert process.returncode != 0 and not (tmp_path / "file").exists()


def test_other_errors_are_errors(monkeypatch):
    """A full disk is not a closed terminal; and a stream without a terminal is left alone."""
    class Full:
        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdout", Full())
    monkeypatch.setattr(sys, "stderr", other := io.StringIO())
    outlive_terminal()
    assert sys.stderr is other and sys.stdout.isatty()
    with pytest.raises(OSError, match="No space"):
        sys.stdout.write("text")
