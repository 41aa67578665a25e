"""`python -m rl.sandbox`: grade programs whose right verdicts are known; say where the sandbox differs and what it leaves.

    python -m rl.sandbox FILE.jsonl                      # the attempts of a file
    python -m rl.sandbox --soak 10000 [FILE.jsonl]       # so many mixed candidates, a tenth of them from the file
    python -m rl.sandbox --references [--repeats 5] [--humaneval HumanEval.jsonl.gz] [--mbpp sanitized-mbpp.json]
    python -m rl.sandbox --mutants                       # wrong programs made of our tasks: every one must fail
    python -m rl.sandbox --bench [--rounds 5] [--candidates 1000]        # beside other executors, on equal work

`--busy [N]` keeps N processes as busy as a trainer beside any of them. SANDBOX_WORKERS, CASE_SECONDS and
ALLOW_WEAK_SANDBOX count as everywhere.

The first line of FILE holds {"tasks": {name: {entry_point, reference, cases}}}, every other line one attempt {name, kind,
task, entry_point, code, expected: [verdicts], check: [side effects]}. Attempts may be hostile: they run only inside the
sandbox. Checks are no_leftover_process, grader_alive and no_file:PATH. Exit status: 0 all as expected and nothing left
behind (benchmarks/leftovers.py) and no fork server grown by more than GROWTH_KIB, 1 not, 2 bad input.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.leftovers import adopting_strays, descendants, memory_kib, settled, snapshot
from benchmarks.neighbours import busy
from benchmarks.sandbox_bench import bench
from benchmarks.sandbox_mixture import Candidate
from benchmarks.sandbox_soak import mutants, references, soak
from rl.sandbox import VERDICTS, Result, Sandbox, Suite
from rl.settings import config
from rl.settings.declared import SandboxSettings
from tasks import code_benchmarks, lc_easy_tasks

GROWTH_KIB = 1024   # of a server's RSS: in 10,000 candidates a tenth of a KiB each would already be seen
NEEDED = ("name", "kind", "task", "entry_point", "code", "expected")


def read(path: str) -> tuple[dict, list[dict]]:
    """(tasks by name, attempts); ValueError with every line that is not as the format asks."""
    lines = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines or not isinstance(lines[0].get("tasks"), dict):
        raise ValueError(f"{path}: the first line holds no tasks")
    tasks, attempts, trouble = lines[0]["tasks"], lines[1:], []
    for number, row in enumerate(attempts, 2):
        missing = [key for key in NEEDED if key not in row]
        unknown = [verdict for verdict in row.get("expected", ()) if verdict not in VERDICTS]
        if missing or unknown or row.get("task") not in tasks:
            trouble.append(f"line {number}: missing {missing}, unknown verdicts {unknown}, task {row.get('task')!r}")
    if trouble:
        raise ValueError(f"{path}: " + "; ".join(trouble))
    return tasks, attempts


def suites(box: Sandbox, tasks: dict) -> dict[str, Suite]:
    """The suite of each task, its answers made by running the task's reference."""
    return {
        name: box.expect(task["reference"], task["entry_point"], [tuple(case) for case in task["cases"]])
        for name, task in tasks.items()
    }


def side_effects(box: Sandbox, row: dict, probe: tuple[str, Suite], servers: list[int]) -> list[str]:
    """What the attempt left behind, for each of its checks that fails; `probe` is a right answer that must still pass."""
    problems = []
    for check in row.get("check") or ():
        name, _, path = check.partition(":")
        if name == "no_file":
            failed = os.path.exists(path)
        elif name == "grader_alive":  # the comment makes it a job that the cache does not know
            failed = box.grade([(f"{probe[0]}\n# after {row['name']}", probe[1])])[0].verdict != "pass"
        elif name == "no_leftover_process":
            failed = any(descendants(server) for server in servers)
        else:
            raise ValueError(f"{row['name']}: unknown check {check!r}")
        problems += [check] if failed else []
    return problems


def grade_file(box: Sandbox, tasks: dict, attempts: list[dict]) -> tuple[list[Result], list[list[str]]]:
    """(results, failed checks) of all attempts; one with side effects to check is graded by itself."""
    by_task = suites(box, tasks)
    jobs = [(row["code"], by_task[row["task"]]) for row in attempts]
    name = next(iter(tasks))
    probe = (tasks[name]["reference"], by_task[name])
    results, problems = [None] * len(jobs), [[] for _ in jobs]
    together = [index for index, row in enumerate(attempts) if not row.get("check")]
    for index, result in zip(together, box.grade([jobs[index] for index in together]), strict=True):
        results[index] = result
    for index, row in enumerate(attempts):
        if row.get("check"):
            results[index] = box.grade([jobs[index]])[0]
            problems[index] = side_effects(box, row, probe, box.server_pids())
    return results, problems


def summary(attempts: list[dict], results: list[Result]) -> list[str]:
    """Counts by kind and verdict, then the two numbers that must be zero."""
    counts = Counter((row["kind"], result.verdict) for row, result in zip(attempts, results, strict=True))
    lines = [f"{count:5d}  {kind:8s} {verdict}" for (kind, verdict), count in sorted(counts.items())]
    false_passes = sum(count for (kind, verdict), count in counts.items() if kind != "honest" and verdict == "pass")
    false_rejects = sum(count for (kind, verdict), count in counts.items() if kind == "honest" and verdict != "pass")
    return [*lines, f"{false_passes} false passes, {false_rejects} false rejects in {len(attempts)} attempts"]


def grade_attempts(box: Sandbox, tasks: dict, attempts: list[dict]) -> int:
    """Grades a file, prints the rows that differ and the counts; returns how many rows differ."""
    begun = time.perf_counter()
    results, problems = grade_file(box, tasks, attempts)
    wall_s, unexpected = time.perf_counter() - begun, 0
    for row, result, failed in zip(attempts, results, problems, strict=True):
        if result.verdict not in row["expected"] or failed:
            unexpected += 1
            print(f"{row['kind']} {row['name']}: {result.verdict}, expected {' or '.join(row['expected'])}"
                  f"{', failed ' + ' '.join(failed) if failed else ''} ({result.detail})")
    print(*summary(attempts, results), sep="\n")
    print(f"{unexpected} unexpected; {len(attempts) / wall_s:.0f} candidates/s, {wall_s:.1f} s")
    return unexpected


def candidates_of(box: Sandbox, tasks: dict, attempts: list[dict]) -> list[Candidate]:
    """The attempts of a file in the form of the mixture's candidates."""
    by_task = suites(box, tasks)
    return [Candidate(row["name"], row["code"], by_task[row["task"]], tuple(row["expected"]), 0.0) for row in attempts]


def who_leaves_it(tasks: dict, attempts: list[dict], box: Sandbox) -> list[str]:
    """Names of the attempts that leave something when they run again, each by itself."""
    names = []
    for one in candidates_of(box, tasks, attempts):
        before = snapshot(box.server_pids())
        box.grade([(f"{one.source}\n# alone", one.suite)])
        names += [one.name] if settled(before, box.server_pids()) else []
    return names


def watched(settings: SandboxSettings, work: Callable[[Sandbox], int], who: Callable[[Sandbox], list[str]]) -> int:
    """Opens a sandbox for `work`, which returns its number of troubles; prints what is left behind; the exit status."""
    with adopting_strays():
        outside = snapshot()
        with Sandbox(settings.sandbox_workers, settings.case_seconds, settings.allow_weak_sandbox) as box:
            print(box.description, flush=True)
            servers, inside = box.server_pids(), snapshot(box.server_pids())
            first = {pid: memory_kib(pid) for pid in servers}
            troubles = work(box)
            left = settled(inside, box.server_pids())
            names = who(box) if left else []
            left += growth(first, box.server_pids())
        left += [line for line in settled(outside) if line not in left]
    if unseen := [str(pid) for pid in servers if pid not in inside.descriptors]:
        print(f"this user may not see the descriptors of the fork servers {' '.join(unseen)}")
    print(*(f"left behind: {line}" for line in left or ["nothing"]), sep="\n")
    if left:
        print(f"left again when run alone: {', '.join(names) or 'by none'}")
    return 1 if troubles or left else 0


def growth(first: dict[int, tuple[int, int]], servers: list[int]) -> list[str]:
    """Prints (RSS, PSS) of the servers at first and now; a line for each that grew too much."""
    lines = []
    for pid in servers:
        if pid not in first:
            print(f"fork server {pid} replaced another one")
            continue
        now = memory_kib(pid)
        more = now[0] - first[pid][0]
        print(f"fork server {pid}: RSS {first[pid][0]} KiB at first, {now[0]} at last; PSS {first[pid][1]} and {now[1]}; "
              f"it may grow by {GROWTH_KIB}")
        lines += [f"fork server {pid} grew by {more} KiB, limit {GROWTH_KIB}"] if more > GROWTH_KIB else []
    return lines


def all_references(options) -> list:
    """The tasks of lc_easy, and of the published files that the command line names."""
    tasks = list(lc_easy_tasks.provide("")[0])
    if options.humaneval:
        tasks += code_benchmarks.provide_humaneval(options.humaneval)[0]
    if options.mbpp:
        tasks += code_benchmarks.provide_mbpp(options.mbpp)[0]
    return tasks


def run(options, settings: SandboxSettings) -> int:
    """Does what the command line asks; the exit status."""
    if options.bench:
        return 1 if bench(settings.sandbox_workers, settings.case_seconds, settings.allow_weak_sandbox, options.candidates,
                          options.rounds) else 0
    if options.references:
        return watched(settings, partial(references, tasks=all_references(options), repeats=options.repeats), lambda box: [])
    if options.mutants:
        return watched(settings, partial(mutants, tasks=lc_easy_tasks.TASKS), lambda box: [])
    tasks, attempts = read(options.file) if options.file else ({}, [])
    who = partial(who_leaves_it, tasks, attempts)
    if options.soak:
        return watched(settings, lambda box: soak(box, options.soak, candidates_of(box, tasks, attempts)), who)
    return watched(settings, partial(grade_attempts, tasks=tasks, attempts=attempts), who)


def parsed(arguments: list[str]) -> argparse.Namespace:
    """The command line; SystemExit with status 2 when it asks for nothing or for too much."""
    def number(text):
        if not text.isdecimal() or not int(text):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
        return int(text)

    parser = argparse.ArgumentParser("python -m rl.sandbox", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", metavar="FILE.jsonl", help="attempts with known verdicts")
    parser.add_argument("--soak", type=number, metavar="N", help="grade N mixed candidates")
    parser.add_argument("--references", action="store_true", help="grade all reference solutions, again and again")
    parser.add_argument("--mutants", action="store_true", help="grade wrong programs made of our tasks")
    parser.add_argument("--repeats", type=number, default=5, metavar="N", help="how often (5)")
    parser.add_argument("--humaneval", metavar="FILE", help="also HumanEval's solutions, from the published file")
    parser.add_argument("--mbpp", metavar="FILE", help="also MBPP's")
    parser.add_argument("--bench", action="store_true", help="speed beside other executors")
    parser.add_argument("--rounds", type=number, default=5, metavar="N", help="shares into which the candidates are cut (5)")
    parser.add_argument("--candidates", type=number, default=1000, metavar="N", help="of each kind (1000)")
    parser.add_argument("--busy", type=number, nargs="?", const=1, default=0, metavar="N", help="busy processes beside it (1)")
    options = parser.parse_args(arguments)
    alone = options.references + options.mutants + options.bench
    if (modes := bool(options.soak) + alone) > 1 or (modes == 0 and not options.file):
        parser.error("give a FILE.jsonl, or one of --soak, --references, --mutants and --bench")
    if options.file and alone:
        parser.error("a FILE.jsonl goes with --soak or alone")
    if options.candidates < options.rounds:
        parser.error(f"--candidates {options.candidates} cannot be cut into --rounds {options.rounds}")
    return options


def main(arguments: list[str]) -> int:
    """Do what the command line asks; returns the exit status."""
    try:
        options = parsed(arguments)
        settings = config.load(os.environ).settings.sandbox
        with busy(options.busy) as neighbours:
            if neighbours:
                print(f"beside it: {neighbours}", flush=True)
            return run(options, settings)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    except SystemExit as stop:  # of the argument parser, which has said why
        return stop.code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
