"""Long runs of one sandbox: thousands of mixed candidates, and all reference solutions again and again.

Both print as they go and return how many verdicts were not the ones known; what is left behind is watched by their caller.
"""

import time
from collections import Counter
from collections.abc import Sequence

from benchmarks.leftovers import memory_kib
from benchmarks.sandbox_mixture import Candidate, mixture
from rl.sandbox import Sandbox, SandboxError
from rl.tasks import Task, make_suite
from tasks.mutants import make_mutants

SEED, CASE_SEED = 1, 0
CHUNK = 1000            # candidates between two readings
EVERY_TENTH = 10        # is one of the file's attempts, where there is a file


def soak(box: Sandbox, count: int, attempts: Sequence[Candidate]) -> int:
    """Grades `count` candidates, a tenth of them from `attempts` in turn; returns how many verdicts were unexpected."""
    candidates = _with_attempts(mixture(count, SEED), attempts)
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
    """Grades every reference `repeats` times, each time as a new source; returns how many tasks had anything but passes."""
    suites, words = {}, {}
    for task in tasks:
        try:
            suites[task] = make_suite(box, task, CASE_SEED)
        except SandboxError as error:
            words[task] = [str(error)]
    for repeat in range(1, repeats + 1):
        begun = time.perf_counter()
        results = box.grade([(f"{task.program(task.reference)}\n# {repeat}\n", suite) for task, suite in suites.items()])
        wall_s = time.perf_counter() - begun
        passed = sum(result.verdict == "pass" for result in results)
        print(f"repeat {repeat}: {passed} of {len(tasks)} references pass, {len(results) / wall_s:.0f}/s", flush=True)
        for task, result in zip(suites, results, strict=True):
            words.setdefault(task, []).append("pass" if result.verdict == "pass" else f"{result.verdict} ({result.detail})")
    failing = {task: said for task, said in words.items() if set(said) != {"pass"}}
    for task, said in failing.items():
        print(f"{task.name}: {'; '.join(said)}")
    return len(failing)


def mutants(box: Sandbox, tasks: Sequence[Task]) -> int:
    """Grades every wrong program that can be made of the tasks (tasks/mutants.py); returns how many were not caught."""
    made = {task: [mutant for mutant in make_mutants(task) if not mutant.excuse] for task in tasks}
    suites = {task: make_suite(box, task, CASE_SEED) for task in tasks}
    rows = [(task, mutant) for task in tasks for mutant in made[task]]
    results = box.grade([(mutant.source, suites[task]) for task, mutant in rows])
    missed = [f"{task.name}: {mutant.label}: {result.verdict}" for (task, mutant), result in zip(rows, results, strict=True)
              if result.verdict in ("pass", "internal_error")]
    print(*missed, *(f"{count:6d}  {verdict}" for verdict, count in Counter(r.verdict for r in results).most_common()), sep="\n")
    print(f"{len(rows) - len(missed)} of {len(rows)} mutants fail, {(len(rows) - len(missed)) / len(rows):.2%}; "
          f"at least {min(map(len, made.values()))} of each of {len(tasks)} tasks")
    return len(missed)
