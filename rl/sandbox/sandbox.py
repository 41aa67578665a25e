"""Runs untrusted Python functions on given inputs and says whether their answers are right.

    with Sandbox(workers=2) as box:
        suite = box.expect(reference_source, "gcd", [(4, 6), (0, 5)])
        results = box.grade([(candidate_source, suite), ...])

    python -m rl.sandbox FILE.jsonl    # grade a file of attempts with known verdicts (benchmarks/sandbox_report.py)

Candidates run in locked-down processes that never see an expected answer (rl/sandbox/inside/); plain values come out and are
compared here. A bad candidate never makes `grade` raise. Not covered: timing side channels between a candidate and this process;
candidates that need files, networks, threads or modules outside the whitelist; systems other than Linux on x86_64 and aarch64,
which are refused without `allow_weak`.
"""

import hashlib
import json
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from rl.sandbox.compare import RELATIVE, Rules, matches
from rl.sandbox.inside.kernel import ALL_LAYERS
from rl.sandbox.inside.values import TooLarge, encode
from rl.sandbox.pool import Job, Pool
from rl.sandbox.server import SandboxError
from rl.sandbox.wire import SMALL_FRAME, ResultReader, encode_job, native

VERDICTS = (
    "pass", "wrong_answer", "exception", "timeout", "memory", "forbidden_import", "syntax_error", "no_function",
    "output_too_large", "crash", "internal_error",
)
SOURCE_CAP = 64 << 10
CACHE_SIZE = 4096
# A case may take this many times as long as the reference took for all of them, but at least LEAST_CASE_S.
TIMES_REFERENCE, LEAST_CASE_S = 20, 0.1
# No right answer is longer: a float of 28 characters may stand for one expected digit, separators included.
LONGER_THAN_EXPECTED = 16
# Names that known attacks on graders use; reported for monitoring, they never change a verdict.
SUSPICIOUS = re.compile(
    r"(?<![A-Za-z0-9_])(__eq__|tb_frame|f_back|__subclasses__|__globals__|__builtins__|_os|SystemExit|sys\.exit|ctypes)"
    r"(?![A-Za-z0-9_])"
)


@dataclass(frozen=True)
class Suite:
    """Inputs with their expected answers, all plain values, and how to compare.

    case_cpu_s: CPU seconds that a case may take; proven_cpu_s: the same after the candidate's first right answer, 0 where
    case_cpu_s is fixed. arguments: for each input the arguments as the call has to leave them, where they are part of the
    answer."""

    entry_point: str
    inputs: tuple[tuple, ...]
    expected: tuple
    one_element_list: bool = False
    strict_types: bool = False
    case_cpu_s: float = 0.5
    relative: float = RELATIVE
    proven_cpu_s: float = 0.0
    arguments: tuple[list, ...] | None = None

    def __post_init__(self):
        if not self.inputs or len(self.inputs) != len(self.expected):
            raise SandboxError(
                f"{self.entry_point}: {len(self.inputs)} inputs with {len(self.expected)} expected answers; "
                "a suite needs at least one input and one answer per input"
            )
        if self.arguments is None and all(answer is None for answer in self.expected):
            raise SandboxError(f"{self.entry_point}: the reference returns None and leaves its arguments as they are in every "
                               "case, so a function that does nothing would pass; use inputs that it changes, or return a value")

    @cached_property
    def cases(self) -> list[str]:
        """Each input as the text that is sent to the candidate's process."""
        return _case_texts(self.entry_point, self.inputs)

    @cached_property
    def max_bytes(self) -> list[int]:
        """For each case a length that no right answer exceeds."""
        left = self.arguments or [None] * len(self.expected)
        return [SMALL_FRAME + LONGER_THAN_EXPECTED * (len(json.dumps(encode(answer))) + len(json.dumps(encode(arguments))))
                for answer, arguments in zip(self.expected, left, strict=True)]

    @cached_property
    def key(self) -> bytes:
        """Digest of everything that a verdict depends on besides the candidate."""
        parts = (self.entry_point, self.cases, [encode(answer) for answer in self.expected],
                 self.one_element_list, self.strict_types, self.case_cpu_s, self.relative, self.proven_cpu_s,
                 encode(self.arguments))
        return hashlib.sha256(json.dumps(parts).encode()).digest()

    def judge(self, index: int, answer, arguments=None) -> str | None:
        """None when the decoded answer to case `index` and the arguments after it are right, else what is wrong in words."""
        rules = Rules(self.one_element_list, self.strict_types, self.relative)
        if not matches(self.expected[index], answer, rules):
            return f"{_short(answer)} instead of {_short(self.expected[index])}"
        if self.arguments and not matches(self.arguments[index], arguments, rules):
            return f"leaves its arguments as {_short(arguments)} instead of {_short(self.arguments[index])}"
        return None


def case_limit(reference_cpu_s: float, cap: float) -> float:
    """CPU seconds that a case may take, from what the reference took for all cases; at most `cap`."""
    return min(cap, max(LEAST_CASE_S, TIMES_REFERENCE * reference_cpu_s))


class ReferenceFails(SandboxError):
    """A trusted reference did not answer all its inputs; `verdict`, one of VERDICTS, says how it ended."""

    def __init__(self, entry_point: str, verdict: str, detail: str):
        super().__init__(f"the reference of {entry_point} fails: {verdict}, {detail}")
        self.verdict = verdict


class Result(NamedTuple):
    """One candidate's verdict, one of VERDICTS; `passed` of `total` cases were right before it ended. Times in seconds."""

    verdict: str
    passed: int
    total: int
    detail: str
    cpu_s: float
    wall_s: float
    flags: tuple[str, ...]
    stdout: str = ""


class Sandbox:
    """A pool of fork servers with a cache of results; `level` and `description` say what the self-test found at the start."""

    def __init__(self, workers: int = 2, case_cpu_s: float = 0.5, allow_weak: bool = False, layers: int = ALL_LAYERS):
        """Starts and tests the servers. case_cpu_s: the most that any case may take; layers: mask of the kernel layers to use."""
        if workers < 1 or not case_cpu_s > 0:
            raise SandboxError(f"workers={workers}, case_cpu_s={case_cpu_s}: need at least 1 worker and a limit above 0")
        self.case_cpu_s, self._lock, self._cache = case_cpu_s, threading.Lock(), OrderedDict()
        if not sys.platform.startswith("linux"):
            raise SandboxError(f"{sys.platform}: the sandbox needs Linux; run this in a Linux virtual machine (macOS: Lima, "
                               "UTM), in WSL2 (Windows) or in a Linux container")
        self._pool = Pool(workers, layers)
        self.level, self.description = self._pool.level, self._pool.description
        if self.level in ("weak", "none") and not allow_weak:
            self.close()
            raise SandboxError(
                f"{self.description}: too weak for code written by a model. Use a Linux kernel with seccomp (x86_64 or "
                "aarch64), or set ALLOW_WEAK_SANDBOX=1 on a machine with nothing to lose"
            )
        if self.level in ("weak", "none"):
            self.description += "; WARNING: allowed by ALLOW_WEAK_SANDBOX=1, candidates can reach this machine"

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.close()

    def close(self) -> None:
        """Ends all servers and their children; safe to call twice."""
        self._pool.close()

    def server_pids(self) -> list[int]:
        """Process ids of the fork servers; once `grade` has returned none of them has a child."""
        return [server.process.pid for server in self._pool.servers if server]

    def expect(self, source: str, entry_point: str, inputs: Sequence[tuple], in_place: bool = True, **policy) -> Suite:
        """Runs a trusted reference like a candidate to make the suite; ReferenceFails when it fails on any input.

        in_place: where the reference changes its arguments, right answers have to change them in the same way; False: need not.
        policy: one_element_list, strict_types, relative (tolerance where a float is expected) and case_cpu_s, a fixed limit.
        Without the last, the limit of a case is 20 times the reference's CPU time for all cases, at least 0.1 s and at most the
        sandbox's own, so that endless loops, which dominate the time of grading, end early; after its first right answer a
        candidate has the sandbox's own limit. On a busy machine both grow (rl/sandbox/server.py)."""
        inputs, expected, left, changed = tuple(tuple(args) for args in inputs), {}, {}, False
        if not inputs:
            raise SandboxError(f"{entry_point}: no inputs; a suite without cases would pass everything")

        def keep(index, answer, arguments=None):
            nonlocal changed
            try:
                expected[index] = native(answer)
                if in_place:
                    left[index] = native(arguments)
                    changed |= not matches(list(inputs[index]), arguments, Rules(strict_types=True))
            except ValueError as error:
                return str(error)

        cases = _case_texts(entry_point, inputs)
        job = Job(encode_job(source, entry_point, cases, in_place),
                  lambda: ResultReader(len(cases), keep, with_arguments=in_place), self.case_cpu_s)
        outcome = self._pool.run([job])[0]
        if outcome.verdict != "pass":
            raise ReferenceFails(entry_point, outcome.verdict, outcome.detail)
        answers = tuple(expected[index] for index in range(len(inputs)))
        arguments = tuple(left[index] for index in range(len(inputs))) if changed else None
        if "case_cpu_s" not in policy:
            policy |= {"case_cpu_s": case_limit(outcome.cpu_s, self.case_cpu_s), "proven_cpu_s": self.case_cpu_s}
        return Suite(entry_point, inputs, answers, arguments=arguments, **policy)

    def grade(self, candidates: Sequence[tuple[str, Suite]]) -> list[Result]:
        """One Result per (source, suite), in order; equal pairs are run once, and results are cached."""
        keys = [(suite.key, source) for source, suite in candidates]
        with self._lock:
            known = {key: self._cache[key] for key in keys if key in self._cache}
        fresh = {key: candidate for key, candidate in zip(keys, candidates, strict=True) if key not in known}
        known.update(zip(fresh, self._grade_fresh(list(fresh.values())), strict=True))
        with self._lock:
            for key in fresh:
                if known[key].verdict != "internal_error":
                    self._cache[key] = known[key]
            while len(self._cache) > CACHE_SIZE:
                self._cache.popitem(last=False)
        return [known[key] for key in keys]

    def _grade_fresh(self, candidates):
        results = [_too_long(source, suite) for source, suite in candidates]
        rest = [index for index, result in enumerate(results) if result is None]
        # What may take long goes first: a batch ends with its last job, and while a late loop runs the other workers idle.
        rest.sort(key=lambda index: not _may_hang(candidates[index][0]))
        outcomes = self._pool.run([_job(*candidates[index]) for index in rest])
        for index, outcome in zip(rest, outcomes, strict=True):
            results[index] = _result(*candidates[index], outcome)
        return results


def _case_texts(entry_point, inputs):
    try:
        texts = [json.dumps([encode(value) for value in args]) for args in inputs]
    except TooLarge as error:
        raise SandboxError(f"{entry_point}: an input is too large to send: {error}") from error
    for index, text in enumerate(texts):
        if '{"u": ' in text and any(_has_unsupported(json.loads(text))):
            raise SandboxError(f"{entry_point}: input {index} is not made of plain values: {_short(inputs[index])}")
    return texts


def _has_unsupported(tree):
    if type(tree) is dict:
        yield from ["u"] if "u" in tree else _has_unsupported(list(tree.values()))
    elif type(tree) is list:
        for item in tree:
            yield from _has_unsupported(item)


def _job(source, suite):
    together = suite.arguments is not None
    return Job(encode_job(source, suite.entry_point, suite.cases, together),
               lambda: ResultReader(len(suite.cases), suite.judge, suite.max_bytes, together),
               suite.case_cpu_s, suite.proven_cpu_s)


def _may_hang(source):
    # Every endless loop seen in training contained this word, and one in ten of the programs that contain it hangs.
    return "while" in source


def _too_long(source, suite):
    size = len(source.encode("utf-8", "surrogatepass"))
    if size <= SOURCE_CAP:
        return None
    return Result("output_too_large", 0, len(suite.inputs), f"a source of {size} bytes, limit {SOURCE_CAP}", 0.0, 0.0,
                  suspicious_names(source))


def _result(source, suite, outcome):
    flags = suspicious_names(source) + (("blocked_imports",) if outcome.blocked else ())
    return Result(outcome.verdict, outcome.answered, len(suite.inputs), outcome.detail, outcome.cpu_s, outcome.wall_s,
                  flags, outcome.printed)


def suspicious_names(source: str) -> tuple[str, ...]:
    """The names in the source that known attacks on graders use, sorted; for monitoring only."""
    return tuple(sorted(set(SUSPICIOUS.findall(source))))


def _short(value):
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer with more digits than repr may write, or a value nested too deep
        return f"<a {type(value).__name__} that is too large to show>"
    return text if len(text) <= 80 else text[:77] + "..."


