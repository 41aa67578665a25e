"""`python -m rl.sandbox`: grade programs with known verdicts; report where the sandbox differs and what it leaves behind.

    python -m rl.sandbox FILE.jsonl                      # the attempts of a file
    python -m rl.sandbox --soak 10000 [FILE.jsonl]       # N candidates of the mixture, a tenth of them from the file
    python -m rl.sandbox --references [--repeats 5] [--humaneval HumanEval.jsonl.gz] [--mbpp sanitized-mbpp.json]
    python -m rl.sandbox --mutants                       # wrong programs made from our tasks: all must fail
    python -m rl.sandbox --bench [--rounds 5] [--candidates 1000]        # speed beside other executors

`--busy [N]` runs N processes as busy as a trainer beside any of them. SANDBOX_WORKERS, CASE_SECONDS and ALLOW_WEAK_SANDBOX
apply as usual.

The first line of FILE holds {"tasks": {name: {entry_point, reference, cases}}}, every other line one attempt {name, kind,
task, entry_point, code, expected: [verdicts], check: [side effects]}. Attempts may be hostile: they run only inside the
sandbox. Checks are no_leftover_process, grader_alive and no_file:PATH. Exit status: 0 when all verdicts are as expected,
nothing is left behind (benchmarks/leftovers.py) and no fork server grew by more than GROWTH_KIB; 1 otherwise; 2 for bad input.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.leftovers import adopting_strays, descendants, memory_kib, settled, snapshot
from benchmarks.neighbours import busy
from benchmarks.sandbox_bench import bench
from benchmarks.sandbox_mixture import Candidate, mixture
from rl.sandbox import VERDICTS, Result, Sandbox, SandboxError, Suite
from rl.settings import config
from rl.settings.declared import SandboxSettings
from rl.tasks import Task, make_suite
from rl.text_files import read_text, split_lines
from tasks import code_benchmarks, lc_easy_tasks
from tasks.mutants import make_mutants

GROWTH_KIB = 1024   # of a server's RSS: a tenth of a KiB per candidate would show in 10,000 of them
NEEDED = ("name", "kind", "task", "entry_point", "code", "expected")
MIXTURE_SEED, CASE_SEED = 1, 0
CHUNK = 1000            # candidates of a soak between two reports
EVERY_TENTH = 10        # candidate of a soak comes from the file, where there is one

# ---- a file of attempts ----------------------------------------------------------------------------------------------


def read(path: str) -> tuple[dict, list[dict]]:
    """(tasks by name, attempts); ValueError lists every malformed line."""
    lines = [json.loads(line) for line in split_lines(read_text(path)) if line.strip()]
    if not lines or not isinstance(lines[0].get("tasks"), dict):
        raise ValueError(f"{path}: the first line has no tasks")
    tasks, attempts, problems = lines[0]["tasks"], lines[1:], []
    for number, row in enumerate(attempts, 2):
        missing = [key for key in NEEDED if key not in row]
        unknown = [verdict for verdict in row.get("expected", ()) if verdict not in VERDICTS]
        if missing or unknown or row.get("task") not in tasks:
            problems.append(f"line {number}: missing {missing}, unknown verdicts {unknown}, task {row.get('task')!r}")
    if problems:
        raise ValueError(f"{path}: " + "; ".join(problems))
    return tasks, attempts


def suites(box: Sandbox, tasks: dict) -> dict[str, Suite]:
    """The suite of each task, with the answers of the task's reference."""
    return {
        name: box.expect(task["reference"], task["entry_point"], [tuple(case) for case in task["cases"]])
        for name, task in tasks.items()
    }


def side_effects(box: Sandbox, row: dict, right: tuple[str, Suite], servers: list[int]) -> list[str]:
    """The attempt's checks that fail; `right` is a candidate that must still pass."""
    problems = []
    for check in row.get("check") or ():
        name, _, path = check.partition(":")
        if name == "no_file":
            failed = os.path.exists(path)
        elif name == "grader_alive":  # the comment makes it a candidate that is not cached
            failed = box.grade([(f"{right[0]}\n# after {row['name']}", right[1])])[0].verdict != "pass"
        elif name == "no_leftover_process":
            failed = any(descendants(server) for server in servers)
        else:
            raise ValueError(f"{row['name']}: unknown check {check!r}")
        problems += [check] if failed else []
    return problems


def grade_file(box: Sandbox, tasks: dict, attempts: list[dict]) -> tuple[list[Result], list[list[str]]]:
    """(results, failed checks) of all attempts; those with checks are graded one at a time."""
    by_task = suites(box, tasks)
    candidates = [(row["code"], by_task[row["task"]]) for row in attempts]
    name = next(iter(tasks))
    right = (tasks[name]["reference"], by_task[name])
    results, problems = [None] * len(candidates), [[] for _ in candidates]
    together = [index for index, row in enumerate(attempts) if not row.get("check")]
    for index, result in zip(together, box.grade([candidates[index] for index in together]), strict=True):
        results[index] = result
    for index, row in enumerate(attempts):
        if row.get("check"):
            results[index] = box.grade([candidates[index]])[0]
            problems[index] = side_effects(box, row, right, box.server_pids())
    return results, problems


def summary(attempts: list[dict], results: list[Result]) -> list[str]:
    """Counts by kind and verdict, then the two numbers that must be zero."""
    counts = Counter((row["kind"], result.verdict) for row, result in zip(attempts, results, strict=True))
    lines = [f"{count:5d}  {kind:8s} {verdict}" for (kind, verdict), count in sorted(counts.items())]
    false_passes = sum(count for (kind, verdict), count in counts.items() if kind != "honest" and verdict == "pass")
    false_rejects = sum(row["kind"] == "honest" and result.verdict not in row["expected"]
                        for row, result in zip(attempts, results, strict=True))
    return [*lines, f"{false_passes} false passes, {false_rejects} false rejects in {len(attempts)} attempts"]


def grade_attempts(box: Sandbox, tasks: dict, attempts: list[dict]) -> int:
    """Grades a file, prints the attempts that differ and the counts; returns how many differ."""
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
    """The attempts of a file as candidates of the mixture."""
    by_task = suites(box, tasks)
    return [Candidate(row["name"], row["code"], by_task[row["task"]], tuple(row["expected"]), 0.0) for row in attempts]


# ---- long runs -------------------------------------------------------------------------------------------------------


def soak(box: Sandbox, count: int, attempts: Sequence[Candidate]) -> int:
    """Grades `count` candidates, a tenth of them from `attempts` in turn; returns how many verdicts were unexpected."""
    candidates = _with_attempts(mixture(count, MIXTURE_SEED), attempts)
    verdicts, unexpected = Counter(), 0
    print(f"at the start: {server_memory(box)}", flush=True)
    for start in range(0, count, CHUNK):
        chunk, begun = candidates[start:start + CHUNK], time.perf_counter()
        results = box.grade([(one.source, one.suite) for one in chunk])
        rate = len(chunk) / (time.perf_counter() - begun)
        verdicts.update(result.verdict for result in results)
        wrong = [(one, result) for one, result in zip(chunk, results, strict=True) if result.verdict not in one.verdicts]
        for one, result in wrong:
            print(f"{one.name}: {result.verdict}, expected {' or '.join(one.verdicts)} ({result.detail})")
        unexpected += len(wrong)
        print(f"after {start + len(chunk)}: {server_memory(box)}; {rate:.0f} candidates/s, {unexpected} unexpected", flush=True)
    print(*(f"{number:6d}  {verdict}" for verdict, number in verdicts.most_common()), sep="\n")
    return unexpected


def _with_attempts(candidates, attempts):
    mixed = list(candidates)
    for turn, index in enumerate(range(0, len(mixed), EVERY_TENTH) if attempts else ()):
        one = attempts[turn % len(attempts)]
        mixed[index] = one._replace(name=f"{one.name} {index}", source=f"{one.source}\n# {index}")
    return mixed


def server_memory(box: Sandbox) -> str:
    """RSS and PSS of each fork server, in words."""
    return ", ".join("server {} RSS {} PSS {} KiB".format(pid, *memory_kib(pid)) for pid in box.server_pids())


def references(box: Sandbox, tasks: Sequence[Task], repeats: int) -> int:
    """Grades every reference `repeats` times, each time as a new source; returns how many tasks did not always pass."""
    suites_of, outcomes = {}, {}
    for task in tasks:
        try:
            suites_of[task] = make_suite(box, task, CASE_SEED)
        except SandboxError as error:
            outcomes[task] = [str(error)]
    for repeat in range(1, repeats + 1):
        begun = time.perf_counter()
        results = box.grade([(f"{task.program(task.reference)}\n# {repeat}\n", suite) for task, suite in suites_of.items()])
        wall_s = time.perf_counter() - begun
        passed = sum(result.verdict == "pass" for result in results)
        print(f"repeat {repeat}: {passed} of {len(tasks)} references pass, {len(results) / wall_s:.0f}/s", flush=True)
        for task, result in zip(suites_of, results, strict=True):
            outcomes.setdefault(task, []).append("pass" if result.verdict == "pass" else f"{result.verdict} ({result.detail})")
    failing = {task: found for task, found in outcomes.items() if set(found) != {"pass"}}
    for task, found in failing.items():
        print(f"{task.name}: {'; '.join(found)}")
    return len(failing)


def mutants(box: Sandbox, tasks: Sequence[Task]) -> int:
    """Grades every wrong program that can be made from the tasks (tasks/mutants.py); returns how many were not caught."""
    made = {task: [mutant for mutant in make_mutants(task) if not mutant.equivalent] for task in tasks}
    suites_of = {task: make_suite(box, task, CASE_SEED) for task in tasks}
    rows = [(task, mutant) for task in tasks for mutant in made[task]]
    results = box.grade([(mutant.source, suites_of[task]) for task, mutant in rows])
    missed = [f"{task.name}: {mutant.label}: {result.verdict}" for (task, mutant), result in zip(rows, results, strict=True)
              if result.verdict in ("pass", "internal_error")]
    print(*missed, *(f"{count:6d}  {verdict}" for verdict, count in Counter(r.verdict for r in results).most_common()), sep="\n")
    print(f"{len(rows) - len(missed)} of {len(rows)} mutants fail, {(len(rows) - len(missed)) / len(rows):.2%}; "
          f"at least {min(map(len, made.values()))} of each of {len(tasks)} tasks")
    return len(missed)


def all_references(options) -> list:
    """The tasks of lc_easy and of the published files that the command line names."""
    tasks = list(lc_easy_tasks.provide("")[0])
    if options.humaneval:
        tasks += code_benchmarks.provide_humaneval(options.humaneval).tasks
    if options.mbpp:
        tasks += code_benchmarks.provide_mbpp(options.mbpp).tasks
    return tasks


# ---- leftovers -------------------------------------------------------------------------------------------------------


def watch(settings: SandboxSettings, work: Callable[[Sandbox], int], culprits: Callable[[Sandbox], list[str]]) -> int:
    """Opens a sandbox for `work`, which returns its number of problems; prints what is left behind; the exit status.

    culprits: names the candidates that leave something; called only if something is left."""
    with adopting_strays():
        outside = snapshot()
        with Sandbox(settings.sandbox_workers, settings.case_seconds, settings.allow_weak_sandbox) as box:
            print(box.description, flush=True)
            servers, inside = box.server_pids(), snapshot(box.server_pids())
            first = {pid: memory_kib(pid) for pid in servers}
            problems = work(box)
            left = settled(inside, box.server_pids())
            names = culprits(box) if left else []
            left += growth(first, box.server_pids())
        left += [line for line in settled(outside) if line not in left]
    if unseen := [str(pid) for pid in servers if pid not in inside.descriptors]:
        print(f"not checked, because this user may not see them: descriptors of the fork servers {' '.join(unseen)}")
    print(*(f"left behind: {line}" for line in left or ["nothing"]), sep="\n")
    if left:
        print(f"left again when run alone: {', '.join(names) or 'by none'}")
    return 1 if problems or left else 0


def find_culprits(tasks: dict, attempts: list[dict], box: Sandbox) -> list[str]:
    """Names of the attempts that leave something when they run again, one at a time."""
    names = []
    for one in candidates_of(box, tasks, attempts):
        before = snapshot(box.server_pids())
        box.grade([(f"{one.source}\n# alone", one.suite)])
        names += [one.name] if settled(before, box.server_pids()) else []
    return names


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


# ---- the command -----------------------------------------------------------------------------------------------------


def run(options, settings: SandboxSettings) -> int:
    """Does what the command line asks; the exit status."""
    if options.bench:
        return 1 if bench(settings.sandbox_workers, settings.case_seconds, settings.allow_weak_sandbox, options.candidates,
                          options.rounds) else 0
    if options.references:
        return watch(settings, partial(references, tasks=all_references(options), repeats=options.repeats), lambda box: [])
    if options.mutants:
        return watch(settings, partial(mutants, tasks=lc_easy_tasks.TASKS), lambda box: [])
    tasks, attempts = read(options.file) if options.file else ({}, [])
    culprits = partial(find_culprits, tasks, attempts)
    if options.soak:
        return watch(settings, lambda box: soak(box, options.soak, candidates_of(box, tasks, attempts)), culprits)
    return watch(settings, partial(grade_attempts, tasks=tasks, attempts=attempts), culprits)


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """The command line; SystemExit with status 2 when it is wrong."""
    def number(text):
        if not text.isdecimal() or not int(text):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
        return int(text)

    parser = argparse.ArgumentParser("python -m rl.sandbox", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", metavar="FILE.jsonl", help="attempts with known verdicts")
    parser.add_argument("--soak", type=number, metavar="N", help="grade N candidates of the mixture")
    parser.add_argument("--references", action="store_true", help="grade all reference solutions, repeatedly")
    parser.add_argument("--mutants", action="store_true", help="grade wrong programs made from our tasks")
    parser.add_argument("--repeats", type=number, default=5, metavar="N", help="of --references (5)")
    parser.add_argument("--humaneval", metavar="FILE", help="HumanEval's solutions too, from the published file")
    parser.add_argument("--mbpp", metavar="FILE", help="MBPP's too")
    parser.add_argument("--bench", action="store_true", help="speed beside other executors")
    parser.add_argument("--rounds", type=number, default=5, metavar="N", help="of --bench, over which candidates are split (5)")
    parser.add_argument("--candidates", type=number, default=1000, metavar="N", help="of each kind in --bench (1000)")
    parser.add_argument("--busy", type=number, nargs="?", const=1, default=0, metavar="N", help="busy processes beside it (1)")
    options = parser.parse_args(arguments)
    alone = options.references + options.mutants + options.bench
    if (modes := bool(options.soak) + alone) > 1 or (modes == 0 and not options.file):
        parser.error("give a FILE.jsonl, or one of --soak, --references, --mutants and --bench")
    if options.file and alone:
        parser.error("give a FILE.jsonl alone or with --soak")
    if options.candidates < options.rounds:
        parser.error(f"--candidates {options.candidates} is fewer than --rounds {options.rounds}")
    return options


def main(arguments: list[str]) -> int:
    """Do what the command line asks; returns the exit status."""
    try:
        options = parse_arguments(arguments)
        settings = config.load(os.environ).settings.sandbox
        with busy(options.busy) as neighbours:
            if neighbours:
                print(f"beside it: {neighbours}", flush=True)
            return run(options, settings)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    except SystemExit as stop:  # of the argument parser, which has printed why
        return stop.code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
