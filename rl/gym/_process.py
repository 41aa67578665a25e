"""Reasoning Gym's worker seen from the trainer: start it, put requests to it, replace it when it dies, leave nothing behind.

What is asked and what the replies mean is rl/gym/client.py's; the other side is rl/gym/_worker.py."""

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

from rl.errors import InputError

INSTALL = "pip install reasoning-gym==0.1.25"
WORKER_FILE = Path(__file__).with_name("_worker.py")
START_S, STOP_S = 120.0, 2.0     # wall seconds that the worker has to start, and to end by itself
PASSED_ON = ("PATH", "HOME", "LANG", "PYTHONPATH", "LD_LIBRARY_PATH", "TMPDIR")   # none of the trainer's tokens and keys
# The hash seed: five families draw from sets.  One thread: a process with several must not fork.
FIXED = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Worker:
    """The worker process, or the one that took its place; `hello` is what the first said of itself."""

    def __init__(self, seconds: float):
        """Starts it; seconds: CPU time to score one answer. InputError without the package or on a weak system."""
        self._seconds, self._lock, self._process = seconds, threading.Lock(), None
        self.hello = self._start()

    @property
    def pid(self) -> int | None:
        """Its process id, None when there is none."""
        return self._process and self._process.pid

    def close(self) -> None:
        """Ends it and its child; safe to call twice."""
        with self._lock:
            self._stop()

    def ask(self, request: dict, limit: float):
        """The reply, None when it took more than `limit` wall seconds; one that dies is replaced, and asked again, once."""
        with self._lock:
            for _ in range(2):
                if self._process is None:
                    self._start()
                try:
                    line = self._exchange(json.dumps(request).encode() + b"\n", limit)
                except BaseException:    # Ctrl-C: the reply that is still to come must not answer the next request
                    self._stop()
                    raise
                if line:
                    return json.loads(line)
                words = self._stop()
                if line is None:
                    return None
        raise InputError(f"Reasoning Gym's worker died twice in a row on {str(request)[:200]}: {words or 'no last words'}")

    def _start(self):
        self._errors = os.memfd_create("gym")
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ} | FIXED
        command = [sys.executable, "-P", "-B", "-W", "ignore", str(WORKER_FILE), str(self._seconds)]
        # A session of its own: Ctrl-C is this process's, which ends the worker when it is done with it.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=env,
                                         cwd="/", start_new_session=True)
        try:
            hello = json.loads(self._line(START_S) or "null")
        except BaseException:
            self._stop()
            raise
        if hello and hello.get("locked"):
            return hello
        words = self._stop()
        if not hello:
            raise InputError(f"Reasoning Gym's worker did not start: {words or f'no answer in {START_S:.0f} s'}")
        if "missing" in hello:
            raise InputError(f"Reasoning Gym cannot be imported ({hello['missing']}): {INSTALL}")
        raise InputError(f"some scorers run the answer as code, and this system cannot lock a process down: {hello['notes']}; "
                         "use a Linux kernel with seccomp, on x86_64 or aarch64")

    def _exchange(self, data, limit):
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except BrokenPipeError:
            return b""
        return self._line(limit)

    def _line(self, limit):
        """Its next line; b"" when it has ended, None when it is late."""
        end, pipe, parts = time.monotonic() + limit, self._process.stdout.fileno(), []
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while not parts or not parts[-1].endswith(b"\n"):
            if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                return None
            if not (data := os.read(pipe, 1 << 18)):
                return b""
            parts.append(data)
        return b"".join(parts)

    def _stop(self):
        """Ends it, and its child with it; its last words."""
        if self._process is None:
            return ""
        with contextlib.suppress(BrokenPipeError):    # what it did not read any more
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S)    # it ends with its stdin, and clears away what Matplotlib may have put in /tmp
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        words = os.pread(self._errors, 4000, 0).decode("utf-8", "replace").strip().splitlines()
        os.close(self._errors)
        self._process = None
        return " | ".join(words[-3:])
