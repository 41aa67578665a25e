"""Ctrl-C and SIGTERM: the first waits for a safe moment, the second for nothing."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from rl.run.signals import EXIT_CODES, Interrupted, Signals

# Work in C that neither returns nor sees signals for minutes, as a compilation or a long step on the device does.
BUSY = """
import hashlib, threading
from rl.run.signals import Interrupted, Signals
with Signals():
    threading.Timer(0.3, print, ("ready",), {"flush": True}).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)
"""


@pytest.mark.parametrize("first, second", [(signal.SIGINT, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)])
def test_a_second_signal_ends_the_process_though_the_main_thread_is_deaf(root, first, second):
    """Python's own handlers would wait until the call in C is back; the exit code is the second signal's."""
    process = subprocess.Popen([sys.executable, "-c", BUSY], cwd=root, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(first)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    process.send_signal(second)
    assert process.wait(timeout=60) == EXIT_CODES[second]


def test_a_closed_terminal_is_told_of_twice_and_ends_nothing_at_once(root):
    """Shell and kernel both send SIGHUP: the second waits like the first, and is no second after another signal either."""
    process = subprocess.Popen([sys.executable, "-c", BUSY], cwd=root, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    for _ in range(2):
        process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 143


def test_nohup_is_heeded():
    """Where SIGHUP is ignored it stays so; elsewhere it interrupts as the others do."""
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


def test_handlers_are_given_back():
    """After the block Ctrl-C is Python's own again, and the thread that counted signals is gone."""
    def counting():
        return [thread for thread in threading.enumerate() if thread.name.endswith("(_end_at_the_second)")]
    for thread in counting():    # of a test before this one, on its way out
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


def test_no_fault_handler_on_the_way_takes_it_for_a_fault():
    """`except Exception` around a step, as in graders and trackers, lets it through."""
    with Signals(), pytest.raises(Interrupted):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Exception:
            pytest.fail("swallowed")
