"""How fast the sandbox is beside other executors, on equal work: the report of `python -m rl.sandbox --bench`.

All executors (sandbox_peers.py) get the same candidates (sandbox_mixture.py) and the same number of workers. In each round
they take a share of the candidates, one executor after the other, so that other load on the machine meets them all. Each
runs in a process of its own, so that its memory does not depend on the others. Start-up is not timed. Verdicts are compared
word for word for ours only; the others say pass or not.
"""

import contextlib
import importlib.metadata
import os
import pickle
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.leftovers import descendants, memory_kib, process_table
from benchmarks.sandbox_mixture import RIGHT_ONLY, Candidate, mixture
from benchmarks.sandbox_peers import PEERS, Rows, installed
from rl.settings.paths import ROOT

SEED, WARM_UP, SAMPLE_S, END_S = 0, 8, 0.25, 20.0
KINDS = ("mixture", "right only")


class Reading(NamedTuple):
    """One executor on one share of the candidates; CPU and memory are those of all its processes."""

    wall_s: float
    cpu_s: float
    peak_kib: int
    candidates: Sequence[Candidate]
    rows: Rows


class Total(NamedTuple):
    """The report's line for one executor and one kind of work."""

    per_s: float
    median_ms: float
    p99_ms: float
    cpu_s: float
    peak_mib: float
    false_passes: int
    false_rejects: int


class Runner:
    """A process in which one executor waits for candidates; see sandbox_peers.serve."""

    def __init__(self, name: str, workers: int, allow_weak: bool):
        """Starts it in a session of its own, so that all its processes can be killed."""
        arguments = [name, str(workers), str(int(allow_weak))]
        self.name, self.process = name, subprocess.Popen(
            [sys.executable, "-m", "benchmarks.sandbox_peers", *arguments], cwd=ROOT, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, start_new_session=True)

    def run(self, candidates: Sequence[Candidate]) -> Reading:
        """Grades the candidates; ChildProcessError when the executor ends instead."""
        before = family_cpu_s(self.process.pid)
        with watched_memory(self.process.pid) as peak:
            try:
                pickle.dump(list(candidates), self.process.stdin)
                self.process.stdin.flush()
                wall_s, rows = pickle.load(self.process.stdout)
            except (EOFError, BrokenPipeError) as error:
                raise ChildProcessError(f"{self.name} ended with status {self.process.wait()}; its output is above") from error
        return Reading(wall_s, family_cpu_s(self.process.pid) - before, peak[0], candidates, rows)

    def __enter__(self):
        return self

    def __exit__(self, error, *_rest):
        """Lets it end by itself unless there was an error, then kills what is left."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0 if error else END_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


def family_cpu_s(pid: int) -> float:
    """CPU seconds so far of a process, its living descendants, and the children that any of them has reaped."""
    table = process_table()
    return sum(table[one].cpu_s for one in (pid, *descendants(pid, table)) if one in table)


@contextlib.contextmanager
def watched_memory(pid: int) -> Iterator[list[int]]:
    """A list of one item, which becomes the peak of the summed PSS of the process and its descendants, in KiB."""
    peak, over = [0], threading.Event()

    def watch():
        while True:
            peak[0] = max(peak[0], sum(memory_kib(one)[1] for one in (pid, *descendants(pid))))
            if over.wait(SAMPLE_S):
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def measure(runners: Sequence[Runner], case_seconds: float, count: int, rounds: int) -> dict[tuple[str, str], list[Reading]]:
    """The readings of each (executor, kind), one per round; the executors take turns in going first."""
    work = {"mixture": mixture(count, SEED, most_s=case_seconds),
            "right only": mixture(count, SEED, RIGHT_ONLY, first=count, most_s=case_seconds)}
    for runner in runners:
        runner.run(mixture(WARM_UP, SEED, RIGHT_ONLY, first=2 * count))
    readings = {(runner.name, kind): [] for runner in runners for kind in KINDS}
    for number in range(rounds):
        turn = number % len(runners)
        for runner in (*runners[turn:], *runners[:turn]):
            for kind in KINDS:
                reading = runner.run(work[kind][number::rounds])
                readings[runner.name, kind].append(reading)
                print(f"round {number + 1}: {runner.name}, {kind}: {len(reading.rows) / reading.wall_s:.0f}/s", flush=True)
    return readings


def total(readings: Sequence[Reading]) -> Total:
    """All rounds of one executor and kind together."""
    pairs = [pair for reading in readings for pair in zip(reading.candidates, reading.rows, strict=True)]
    times = sorted(seconds for _, (_, seconds) in pairs)
    wrong = [verdict == "pass" for one, (verdict, _) in pairs if (verdict == "pass") != ("pass" in one.verdicts)]
    return Total(
        per_s=len(pairs) / sum(reading.wall_s for reading in readings), median_ms=statistics.median(times) * 1e3,
        p99_ms=times[-(-99 * len(times) // 100) - 1] * 1e3, cpu_s=sum(reading.cpu_s for reading in readings),
        peak_mib=max(reading.peak_kib for reading in readings) / 1024, false_passes=sum(wrong),
        false_rejects=len(wrong) - sum(wrong))


def table(readings: dict[tuple[str, str], list[Reading]]) -> list[str]:
    """The totals as a table."""
    lines = [f"{'executor':14s} {'work':10s} {'cand./s':>8s} {'median ms':>10s} {'p99 ms':>8s} {'CPU s':>8s} "
             f"{'CPU ms/cand.':>12s} {'peak MiB':>9s} {'false passes':>12s} {'false rejects':>13s}"]
    for (name, kind), found in readings.items():
        sums, count = total(found), sum(len(reading.rows) for reading in found)
        lines.append(f"{name:14s} {kind:10s} {sums.per_s:8.1f} {sums.median_ms:10.2f} {sums.p99_ms:8.1f} {sums.cpu_s:8.2f} "
                     f"{sums.cpu_s / count * 1e3:12.2f} {sums.peak_mib:9.1f} {sums.false_passes:12d} {sums.false_rejects:13d}")
    return lines


def ratios(readings: dict[tuple[str, str], list[Reading]]) -> list[str]:
    """Ours against each other executor: the ratio of candidates/s over all rounds, and its range over single rounds."""
    lines = []
    for name, kind in readings:
        if name != "ours":
            mine, theirs = readings["ours", kind], readings[name, kind]
            single = [other.wall_s / own.wall_s for own, other in zip(mine, theirs, strict=True)]
            lines.append(f"ours / {name}, {kind}: {total(mine).per_s / total(theirs).per_s:.2f} "
                         f"(rounds {min(single):.2f} to {max(single):.2f})")
    return lines


def unexpected(readings: Sequence[Reading]) -> list[str]:
    """A line for each verdict that is not the known one."""
    return [f"{one.name}: {verdict}, expected {' or '.join(one.verdicts)}" for reading in readings
            for one, (verdict, _) in zip(reading.candidates, reading.rows, strict=True) if verdict not in one.verdicts]


def load_average() -> str:
    """The machine's load over 1, 5 and 15 minutes, in words."""
    return "load average " + " ".join(f"{load:.2f}" for load in os.getloadavg())


def bench(workers: int, case_seconds: float, allow_weak: bool, count: int, rounds: int) -> int:
    """Measures, prints the report, and returns how many of our verdicts are unexpected."""
    names = [name for name, peer in PEERS.items() if installed(peer)]
    for name, peer in PEERS.items():
        version = f" {importlib.metadata.version(name)}" if peer.package and name in names else ""
        limits = f"{workers} workers, limit: {peer.limits}" if name in names else f"skipped, {peer.package} is not installed"
        print(f"{name}{version}: {limits}")
    print(f"{count} candidates of each kind in {rounds} rounds, CASE_SECONDS={case_seconds:g}")
    print(f"{load_average()} before", flush=True)
    with contextlib.ExitStack() as stack:
        runners = [stack.enter_context(Runner(name, workers, allow_weak)) for name in names]
        readings = measure(runners, case_seconds, count, rounds)
        print(f"{load_average()} after")
    print(*table(readings), *ratios(readings), sep="\n")
    wrong = [line for kind in KINDS for line in unexpected(readings["ours", kind])]
    print(*wrong, f"{len(wrong)} of our {2 * count} verdicts unexpected", sep="\n")
    return len(wrong)
