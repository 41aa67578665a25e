"""Scores answers with the families' own scorers, in forked children that lock themselves down first.

Loaded by path into rl/rewards/gym/worker.py, standard library only. The scorers of some families run the answer as Python or
SymPy, and swallow exceptions; so time is kept outside, and a late child is killed. One child scores many answers in a row,
unless an answer with a bracket (without, an expression only computes) is about to be run as code: that could change what
becomes of the answers after it. Python announces code before it runs; the child then says so and ends, and the answer gets
a child to itself, there to give itself any score, but no other. What a scorer loads on first use has been loaded before the
fork, by scoring there the right answer and a few fixed ones; a child that nevertheless reaches for a file or module says
so, and the score is 0.
"""

import copy
import json
import math
import os
import select
import signal
import sys
import time

RESULT_FD, LINE_CAP, TEXT_KEPT, SETUP_S = 3, 1 << 16, 100, 10.0
STARVED_FACTOR = 20       # wall time over the limit in which a child that never got the CPU may go on
# Each kind of text that some scorer reads; SymPy loads itself bit by bit, so those that run it need more of them.
WARM_UP = ("", "banana", "1", "-1.5", "1/2", "a, b", "[1, 2]", '["a"]', '{"a": 1}', "(x + X + 1)*2", "simplify(1/x)",
           "sin(x)*exp(x)*sin(X)*exp(X)", "integrate(sin(x)*exp(x), x)", "Matrix([[x, X]])", "Poly(x, x, domain=EX)", "solve(x)")
READY, RUNS = b"ready", b"runs"


def load_lazies(dataset, entry, gold):
    """Have the family's scorer load what it loads on first use; nothing but trusted text is scored here, unlocked."""
    for answer in (gold, *WARM_UP):
        score(dataset, entry, answer)


def score(dataset, entry, answer):
    """[score in 0..1, why there is none or ""] of one answer, in this very process."""
    try:
        value = float(dataset.score_answer(answer, copy.deepcopy(entry)))
    except BaseException as error:
        return [0.0, f"raised {type(error).__name__}"]
    return [0.0, "no number"] if math.isnan(value) else [min(max(value, 0.0), 1.0), ""]


def may_be_code(answer):
    """Whether the text could do something if it were run: without brackets an expression only computes."""
    return any(bracket in answer for bracket in "([{")


class Ear:
    """Hears, in a child, what the scoring of one answer does: `denied` "" or what it reached for, `ran` if it ran code."""

    def __init__(self, alone):
        """alone: no answer comes after this one, so that it may run code of its own."""
        self._alone = alone

    def listen(self, answer, gold):
        """Begin anew with this answer; `gold` is the right one, which scorers may run as well."""
        self._stops, self._gold, self.denied, self.ran = not self._alone and may_be_code(answer), gold, "", False

    def __call__(self, event, args):
        if event in ("import", "open"):
            self.denied = self.denied or f"denied {event}" + (f" of {args[0]}" if event == "import" else "")
        elif event == "exec" and not self._is_gold(args[0]):
            self.ran = True
            if self._stops:
                os.write(RESULT_FD, RUNS + b"\n")
                os._exit(0)

    def _is_gold(self, code):
        try:
            return code == compile(self._gold, "<string>", "eval")
        except (TypeError, ValueError, SyntaxError, MemoryError, RecursionError):
            return False


def _child(layers, jobs, results, alone):
    # Never returns. The jobs are in memory: what is scored is read from nowhere once the doors are shut.
    try:
        layers.limit_and_drop(layers.have)
        os.dup2(results, RESULT_FD)
        os.dup2(0, 2)
        layers.lock_down(layers.have, keep=RESULT_FD)
        ear = Ear(alone)
        os.write(RESULT_FD, READY + b"\n")
        for index, (dataset, entry, answer) in enumerate(jobs):
            ear.listen(answer, entry["answer"])
            if index == 0:
                sys.addaudithook(ear)
            value, failed = score(dataset, entry, answer)
            report = [0.0, ear.denied, ear.ran] if ear.denied else [value, failed, ear.ran]
            os.write(RESULT_FD, json.dumps(report).encode() + b"\n")
    finally:
        os._exit(0)


class Child:
    """A forked child that scores these jobs; `line` reads its reports one by one."""

    def __init__(self, layers, jobs, owner, alone):
        """owner: a descriptor that hangs up when there is nobody left to work for."""
        self.results, theirs = os.pipe()
        self.buffer, self.owner = b"", owner
        self.pid = os.fork()
        if self.pid == 0:
            _child(layers, jobs, theirs, alone)
        os.close(theirs)
        self.clock = (~self.pid << 3) | 2     # the kernel's name for the CPU clock of that process
        self.poll = select.poll()
        self.poll.register(self.results, select.POLLIN)
        self.poll.register(owner, 0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.results)

    def line(self, limit):
        """The next line; b"" when there will be none, None when it is late. limit: seconds of CPU time."""
        cpu, start = time.clock_gettime(self.clock), time.monotonic()
        while b"\n" not in self.buffer:
            left = self._time_left(cpu, start, limit)
            if left <= 0:
                return None
            for descriptor, _ in self.poll.poll(left * 1000 + 1):
                if descriptor == self.owner:
                    raise SystemExit    # the child dies with this process
                data = os.read(self.results, LINE_CAP)
                if not data or len(self.buffer) > LINE_CAP:
                    return b""
                self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    def _time_left(self, cpu, start, limit):
        used, wall = time.clock_gettime(self.clock) - cpu, time.monotonic() - start
        if wall < limit:
            return limit - wall
        # Out of wall time with CPU time left: asleep means late, still running means that the machine is busy elsewhere.
        starved = wall < STARVED_FACTOR * limit and self._is_running()
        return limit - used if starved else 0.0

    def _is_running(self):
        with open(f"/proc/{self.pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "RD"


class Scorer:
    """Scores answers in locked-down children; each has `seconds` of CPU time."""

    def __init__(self, book, layers, seconds, owner):
        self._book, self._layers, self._seconds, self._owner = book, layers, seconds, owner
        self._running = set()    # families whose scorers were seen to run an answer as code

    def score(self, jobs):
        """[score, why there is none or "", whether code was run] of each (family, config, seed, text, answer), in order."""
        loaded = [(*self._book.ready(*place), answer) for *place, answer in jobs]
        self._layers.freeze_memory()
        found, rest = {}, range(len(jobs))
        while rest:
            alone = [index for index in rest if jobs[index][0] in self._running and may_be_code(jobs[index][-1])]
            found |= {index: self._run([loaded[index]], alone=True)[0] for index in alone}
            together = [index for index in rest if index not in found]
            rows = self._run([loaded[index] for index in together], alone=False) if together else []
            for index, row in zip(together, rows, strict=False):
                if row is RUNS:
                    self._running.add(jobs[index][0])
                else:
                    found[index] = row
            rest = [index for index in together if index not in found]
        return [found[index] for index in range(len(jobs))]

    def _run(self, jobs, alone):
        """The rows of the first jobs, of one at least: up to one that broke its child, was late, or was to be run (RUNS)."""
        rows = []
        with Child(self._layers, jobs, self._owner, alone) as child:
            if child.line(SETUP_S) != READY:
                raise OSError("a child could not be locked down")
            for _ in jobs:
                line = child.line(self._seconds)
                row = [0.0, "timeout", False] if line is None else RUNS if line == RUNS and not alone else parsed(line)
                rows.append(row or [0.0, "crashed", False])
                if line is None or row is RUNS or row is None:
                    break
        return rows


def parsed(line):
    """A child's report, or None if it is none: what ran there may have written anything."""
    try:
        value, failed, ran = json.loads(line)
        return [min(max(float(value), 0.0), 1.0), str(failed)[:TEXT_KEPT], bool(ran)] if math.isfinite(value) else None
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
