r"""What math-verify says of two answers, for those that our own comparison cannot decide: another library's word, not exact.

It simplifies with sympy, which can take any time and memory and stops itself by signals, which only work in a main thread. So
it runs in a process of its own, started once, whose CPU time and memory have limits; a question that exceeds them ends that
process, counts as "no", and the next question starts a new one. Both answers go in as boxed: bare text would be searched for
anything that looks like an answer.

Known to be wrong on: units it does not know (72 clips), 52_8, numbers below 1e-6 of each other. Not for rewards, unless one
asks for it."""

import importlib.util
import json
import os
import resource
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

from rl.errors import InputError
from rl.rewards.words.answers import boxes
from rl.rewards.words.expressions import MAX_LENGTH
from rl.settings.paths import ROOT

CPU_S, MEMORY_MB = 5, 1024       # one question; beyond what the process holds after it has loaded everything
START_S, WALL_FACTOR = 120, 10   # wall clock, for machines that are busy with other things


class SecondOpinion:
    """second_opinion(prediction, reference) -> bool; a context manager. `unanswered` counts what went beyond the limits."""

    def __init__(self, cpu_s: int = CPU_S, memory_mb: int = MEMORY_MB):
        if importlib.util.find_spec("math_verify") is None:
            raise InputError("a second opinion needs the package math-verify: pip install math-verify, or do without one")
        self._limits, self._process, self._lock, self.unanswered = (cpu_s, memory_mb), None, threading.Lock(), 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __call__(self, prediction: str, reference: str) -> bool:
        """Whether math-verify takes the prediction for the reference; False where it does not answer within its limits."""
        if any(len(text) > MAX_LENGTH or boxes(text) or not _is_balanced(text) for text in (prediction, reference)):
            return False
        with self._lock:
            answer = self._ask(json.dumps([reference, prediction]))
        if answer not in (b"yes\n", b"no\n"):
            self.close()
            self.unanswered += 1
        return answer == b"yes\n"

    def close(self) -> None:
        """End the process; the next question starts another one."""
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _ask(self, question):
        if self._process is None:
            self._start()
        try:
            self._process.stdin.write(question.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:    # it has ended
            return b""
        return self._line(self._limits[0] * WALL_FACTOR)

    def _line(self, seconds):
        """The next line that it writes; what there is of it when it ends or the time is over."""
        found, until = b"", time.monotonic() + seconds
        while not found.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self._process.stdout.fileno(), 1 << 12) if ready else b""
            if not data:
                break
            found += data
        return found

    def _start(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rl.rewards.words.second_opinion", *map(str, self._limits)], cwd=ROOT, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        if self._line(START_S) != b"ready\n":
            self.close()
            raise InputError("math-verify does not start; `python -m rl.rewards.words.second_opinion` in the repo says why. Do without "
                             "it, or pip install --force-reinstall math-verify")


def _is_balanced(text):
    """Whether the text closes just the braces that it opens, so that it stays inside of the box it is put in."""
    return boxes(rf"\boxed{{{text}}}") == [(0, text)]


def _serve(cpu_s, memory_mb):
    """The process's side: a question a line, answered with yes or no."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)    # whatever else is printed is no answer
    from math_verify import LatexExtractionConfig, parse, verify

    verify(parse("$1$", parsing_timeout=None), parse("$1$", parsing_timeout=None), timeout_seconds=None)    # loads the rest of it
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + (memory_mb << 20),) * 2)
    config = [LatexExtractionConfig(boxed_match_priority=0)]
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + cpu_s + 1, resource.RLIM_INFINITY))
        gold, given = (parse(rf"\boxed{{{text}}}", config, parsing_timeout=None) for text in json.loads(line))
        print("yes" if verify(gold, given, timeout_seconds=None) else "no", file=answers, flush=True)


if __name__ == "__main__":
    _serve(*map(int, sys.argv[1:3])) if len(sys.argv) == 3 else _serve(CPU_S, MEMORY_MB)
