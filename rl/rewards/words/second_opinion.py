r"""A second opinion from math-verify on pairs of answers that our own comparison cannot decide. It is not exact.

math-verify simplifies with SymPy, which can take any amount of time and memory, and its time limit is a signal, which works
only in a main thread. So it runs in a process of its own, started once, with limited CPU time and memory. A question that
exceeds them ends the process and counts as "no"; the next question starts a new one. Both answers are passed in a box, since
bare text would be searched for anything that looks like an answer.

Known to be wrong on unknown units (72 clips), on 52_8, and on numbers that differ by less than 1e-6. Rewards use it only on
request (second_opinion: math-verify)."""

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

CPU_S, MEMORY_MB = 5, 1024       # for one question; the memory in addition to the process's own after loading
START_S, WALL_FACTOR = 120, 10   # wall-clock limits: at start, and for a question in multiples of CPU_S, for busy machines


class SecondOpinion:
    """A callable (prediction, reference) -> bool and a context manager; `unanswered` counts questions beyond the limits."""

    def __init__(self, cpu_s: int = CPU_S, memory_mb: int = MEMORY_MB):
        if importlib.util.find_spec("math_verify") is None:
            raise InputError("a second opinion needs the package math-verify: pip install math-verify, or leave it out")
        self._limits, self._process, self._lock, self.unanswered = (cpu_s, memory_mb), None, threading.Lock(), 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __call__(self, prediction: str, reference: str) -> bool:
        """Whether math-verify holds the two equal; False if it does not answer within its limits."""
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
        """Its next line of output, or what there is of it when the process ends or time is up."""
        line, until = b"", time.monotonic() + seconds
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self._process.stdout.fileno(), 1 << 12) if ready else b""
            if not data:
                break
            line += data
        return line

    def _start(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rl.rewards.words.second_opinion", *map(str, self._limits)], cwd=ROOT, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        if self._line(START_S) != b"ready\n":
            self.close()
            raise InputError("math-verify does not start; `python -m rl.rewards.words.second_opinion` in the repo says why. "
                             "Leave it out, or pip install --force-reinstall math-verify")


def _is_balanced(text):
    """Whether the text's braces match, so that it cannot leave the box that it is put into."""
    return boxes(rf"\boxed{{{text}}}") == [(0, text)]


def _serve(cpu_s, memory_mb):
    """The process's main loop: one question a line, answered with yes or no."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)    # nothing that the library prints may pass for an answer
    from math_verify import LatexExtractionConfig, parse, verify

    verify(parse("$1$", parsing_timeout=None), parse("$1$", parsing_timeout=None), timeout_seconds=None)    # lazy imports
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
