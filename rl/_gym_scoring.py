"""Scores answers with the families' own scorers, in forked children that lock themselves down first.

Loaded by path into rl/_gym_worker.py, standard library only. The scorers of some families run the answer as Python or
SymPy, and swallow exceptions; so time is kept outside, and a late child is killed. One child scores many answers in a row,
but what may be code (code that does anything needs a bracket) gets a child to itself: it could change what becomes of the
answers after it. It can still give itself any score; the report says whether words of it ran as code. What a scorer loads
on first use has been loaded before the fork, by scoring there the right answer and a few fixed ones; a child that
nevertheless reaches for a file or module says so, and the score is 0.
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
HEARD, CODE = {}, set()   # since an answer's scoring began, in children: audit events with a detail; words of code that ran
READY = b"ready\n"


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


def _listen(event, args):
    HEARD.setdefault(event, f" of {args[0]}" if event == "import" else "")
    if event == "exec":
        CODE.update(part for part in (*args[0].co_names, *args[0].co_consts) if type(part) is str and part)


def _child(layers, jobs, results):
    # Never returns. The jobs are in memory: what is scored is read from nowhere once the doors are shut.
    try:
        layers.limit_and_drop(layers.have)
        os.dup2(results, RESULT_FD)
        os.dup2(0, 2)
        layers.close(layers.have, keep=RESULT_FD)
        sys.addaudithook(_listen)
        os.write(RESULT_FD, READY)
        for dataset, entry, answer in jobs:
            HEARD.clear()
            CODE.clear()
            value, failed = score(dataset, entry, answer)
            if denied := [event for event in ("import", "open") if event in HEARD]:
                value, failed = 0.0, f"denied {denied[0]}{HEARD[denied[0]]}"
            os.write(RESULT_FD, json.dumps([value, failed, any(word in answer for word in CODE)]).encode() + b"\n")
    finally:
        os._exit(0)


class Child:
    """A forked child that scores these jobs; `line` reads its reports one by one."""

    def __init__(self, layers, jobs, owner):
        """owner: a descriptor that hangs up when there is nobody left to work for."""
        self.results, theirs = os.pipe()
        self.buffer, self.owner = b"", owner
        self.pid = os.fork()
        if self.pid == 0:
            _child(layers, jobs, theirs)
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

    def score(self, jobs, ours):
        """[score, why there is none or "", whether words of it ran as code] of each (family, config, seed, text, answer).

        ours: no answer is a stranger's, so that they all may share a child."""
        loaded = [(*self._book.ready(*place), answer) for *place, answer in jobs]
        self._layers.freeze_memory()
        tame = [index for index, (_, _, answer) in enumerate(loaded) if ours or not may_be_code(answer)]
        batches, found = [[index] for index in range(len(jobs)) if index not in set(tame)], {}
        while batches or tame:
            batch = batches.pop() if batches else tame
            rows = self._run([loaded[index] for index in batch])
            found.update(zip(batch, rows, strict=False))
            tame = [index for index in tame if index not in found]
        return [found[index] for index in range(len(jobs))]

    def _run(self, jobs):
        """The rows of the first jobs, one at least: up to the one that was late or broke its child."""
        rows = []
        with Child(self._layers, jobs, self._owner) as child:
            if child.line(SETUP_S) != READY.strip():
                raise OSError("a child could not be locked down")
            for _ in jobs:
                line = child.line(self._seconds)
                if line is None:
                    return [*rows, [0.0, "timeout", False]]
                row = parsed(line)
                if row is None:
                    return [*rows, [0.0, "crashed", False]]
                rows.append(row)
        return rows


def parsed(line):
    """A child's report, or None if it is none: what ran there may have written anything."""
    try:
        value, failed, ran = json.loads(line)
        return [min(max(float(value), 0.0), 1.0), str(failed)[:TEXT_KEPT], bool(ran)] if math.isfinite(value) else None
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
