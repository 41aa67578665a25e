"""Scores answers with the families' own scorers, in forked children that lock themselves down first.

rl/rewards/gym/worker.py loads this file by path; standard library only. The scorers of some families run the answer as Python
or SymPy, and swallow exceptions; so the parent keeps time and kills a child that is late. One child scores many answers in
a row, except where an answer with a bracket (without one, an expression only computes) is about to be run as code: that could
change the scores after it. Python's audit events announce code before it runs. The child then reports this and exits, and the
answer gets a child to itself, where it can forge its own score but no other. Whatever a scorer loads on first use is loaded
before the fork, by scoring the right answer and a few fixed ones; if a child still opens a file or imports a module, it
reports that, and the score is 0.
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
STARVED_FACTOR = 20       # a child that is still waiting for the CPU may take this many times the limit in wall time
# One text for each kind that some scorer parses, and several for those that run SymPy, which loads itself in many small parts.
WARM_UP = ("", "banana", "1", "-1.5", "1/2", "a, b", "[1, 2]", '["a"]', '{"a": 1}', "(x + X + 1)*2", "simplify(1/x)",
           "sin(x)*exp(x)*sin(X)*exp(X)", "integrate(sin(x)*exp(x), x)", "Matrix([[x, X]])", "Poly(x, x, domain=EX)", "solve(x)")
READY, RUNS = b"ready", b"runs"


class Scorer:
    """Scores answers in locked-down children, each with `seconds` of CPU time."""

    def __init__(self, questions, layers, seconds, owner):
        """questions: the worker's store; owner: a descriptor that hangs up when the trainer is gone."""
        self._questions, self._layers, self._seconds, self._owner = questions, layers, seconds, owner
        self._running = set()    # families whose scorers have been seen to run an answer as code

    def score(self, jobs):
        """[score, why there is none or "", whether code was run] of each (family, config, seed, text, answer), in order."""
        loaded = [(*self._questions.ready(*place), answer) for *place, answer in jobs]
        self._layers.freeze_memory()
        rows, rest = {}, range(len(jobs))
        while rest:
            alone = [index for index in rest if jobs[index][0] in self._running and may_be_code(jobs[index][-1])]
            rows |= {index: self._run([loaded[index]], alone=True)[0] for index in alone}
            together = [index for index in rest if index not in rows]
            done = self._run([loaded[index] for index in together], alone=False) if together else []
            for index, row in zip(together, done, strict=False):
                if row is RUNS:
                    self._running.add(jobs[index][0])
                else:
                    rows[index] = row
            rest = [index for index in together if index not in rows]
        return [rows[index] for index in range(len(jobs))]

    def _run(self, jobs, alone):
        """The rows of the first jobs, at least one: up to the first that crashes its child, is late, or would run code (RUNS)."""
        rows = []
        with Child(self._layers, jobs, self._owner, alone) as child:
            if child.line(SETUP_S) != READY:
                raise OSError("a child could not be locked down")
            for _ in jobs:
                line = child.line(self._seconds)
                row = [0.0, "timeout", False] if line is None else RUNS if line == RUNS and not alone else parse_report(line)
                rows.append(row or [0.0, "crashed", False])
                if line is None or row is RUNS or row is None:
                    break
        return rows


def parse_report(line):
    """A child's report, None if it is malformed: code that ran there may have written anything."""
    try:
        value, failed, ran = json.loads(line)
        return [min(max(float(value), 0.0), 1.0), str(failed)[:TEXT_KEPT], bool(ran)] if math.isfinite(value) else None
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


# ------------------------------------------------------------------ the parent's side of a child


class Child:
    """A forked child that scores these jobs; `line` reads its reports one by one."""

    def __init__(self, layers, jobs, owner, alone):
        """owner: a descriptor that hangs up when the trainer is gone."""
        self.results, write_end = os.pipe()
        self.buffer, self.owner = b"", owner
        self.pid = os.fork()
        if self.pid == 0:
            _score_in_child(layers, jobs, write_end, alone)
        os.close(write_end)
        self.clock = (~self.pid << 3) | 2     # the kernel's id for the CPU clock of that process
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
        """The next line; b"" if there will be none, None if it is late. limit: seconds of CPU time."""
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
        # Wall time is up with CPU time left: a sleeping child is late, a runnable one is being starved by other processes.
        starved = wall < STARVED_FACTOR * limit and self._is_running()
        return limit - used if starved else 0.0

    def _is_running(self):
        with open(f"/proc/{self.pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "RD"


# ------------------------------------------------------------------ inside the child


def _score_in_child(layers, jobs, results, alone):
    # Never returns. The jobs are in memory already: after the lockdown nothing can be read.
    try:
        layers.limit_and_drop(layers.have)
        os.dup2(results, RESULT_FD)
        os.dup2(0, 2)
        layers.lock_down(layers.have, keep=RESULT_FD)
        hook = AuditHook(alone)
        os.write(RESULT_FD, READY + b"\n")
        for index, (dataset, entry, answer) in enumerate(jobs):
            hook.reset(answer, entry["answer"])
            if index == 0:
                sys.addaudithook(hook)
            value, failed = score(dataset, entry, answer)
            report = [0.0, hook.denied, hook.ran] if hook.denied else [value, failed, hook.ran]
            os.write(RESULT_FD, json.dumps(report).encode() + b"\n")
    finally:
        os._exit(0)


class AuditHook:
    """Watches the scoring of one answer: `denied` is what it tried to open or import, or ""; `ran`, whether it ran code."""

    def __init__(self, alone):
        """alone: the child scores no other answer, so this one may run code."""
        self._alone = alone

    def reset(self, answer, gold):
        """Start over for this answer; `gold` is the right one, which scorers may run as well."""
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


def may_be_code(answer):
    """Whether running the text could have an effect: without brackets an expression only computes."""
    return any(bracket in answer for bracket in "([{")


def score(dataset, entry, answer):
    """[score in 0..1, why there is none or ""] of one answer, in this very process."""
    try:
        value = float(dataset.score_answer(answer, copy.deepcopy(entry)))
    except BaseException as error:
        return [0.0, f"raised {type(error).__name__}"]
    return [0.0, "not a number"] if math.isnan(value) else [min(max(value, 0.0), 1.0), ""]


def warm_up(dataset, entry, gold):
    """Make the family's scorer load all that it loads on first use; scores only trusted text, in the worker itself."""
    for answer in (gold, *WARM_UP):
        score(dataset, entry, answer)
