"""`python -m rl.sandbox FILE.jsonl`: grade attempts whose right verdicts are known, and say where the sandbox differs.

The first line of FILE holds {"tasks": {name: {entry_point, reference, cases}}}, every other line one attempt {name, kind,
task, entry_point, code, expected: [verdicts], check: [side effects]}. Attempts may be hostile: they run only inside the
sandbox. Checks are no_leftover_process, grader_alive and no_file:PATH. Exit status: 0 all as expected, 1 not, 2 bad
input.
"""

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

from rl import config
from rl.sandbox import VERDICTS, Result, Sandbox, Suite

USAGE = "usage: python -m rl.sandbox FILE.jsonl"
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


def descendants(pid: int) -> list[int]:
    """Processes, zombies too, that have `pid` among their ancestors."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue  # ended while we looked
    found, frontier = [], {pid}
    while frontier := {child for child, parent in parents.items() if parent in frontier}:
        found += sorted(frontier)
    return found


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


def main(arguments: list[str]) -> int:
    """Grade the file that the command line names; returns the exit status."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 2
    try:
        tasks, attempts = read(arguments[0])
        sandbox = config.load(os.environ).settings.sandbox
        with Sandbox(sandbox.sandbox_workers, sandbox.case_seconds, sandbox.allow_weak_sandbox) as box:
            print(box.description)
            begun = time.perf_counter()
            results, problems = grade_file(box, tasks, attempts)
            wall_s = time.perf_counter() - begun
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    unexpected = 0
    for row, result, failed in zip(attempts, results, problems, strict=True):
        if result.verdict not in row["expected"] or failed:
            unexpected += 1
            print(f"{row['kind']} {row['name']}: {result.verdict}, expected {' or '.join(row['expected'])}"
                  f"{', failed ' + ' '.join(failed) if failed else ''} ({result.detail})")
    print(*summary(attempts, results), sep="\n")
    print(f"{unexpected} unexpected; {len(attempts) / wall_s:.0f} candidates/s, {wall_s:.1f} s")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
