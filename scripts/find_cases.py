"""Find out which wrong programs get through a task's hidden cases, and look for an input that would stop each of them.

    python scripts/find_cases.py wrong.jsonl                 # rows {"task": "gcd", "source": "def gcd(a, b): ..."}
    TASKS=generated PROVIDER_KWARGS='{count: 500}' python scripts/find_cases.py wrong.jsonl
    python scripts/find_cases.py wrong.jsonl --seeds 100 --inputs 2000

The rows may be samples of a probe, mutants, or what a person thought of. Each program meets the suites of that many case seeds
(20). For one that passes any of them, that many inputs (600) are tried on it and on the task's reference: those of other seeds,
inputs of other tasks with the same types, and changed copies of both: longer ones, sorted ones, huge numbers, other alphabets.
An input on which they differ is made as small as possible and printed. Whether the task's text decides that input is for a
person to judge; if it does, it belongs in tasks/hard_cases.py.

Exit code 0: every program failed under every seed. 1: some passed. 2: the file cannot be used.
"""
import ast
import copy
import json
import os
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rl import command
from rl.errors import InputError
from rl.sandbox import Sandbox, SandboxError
from rl.settings import config
from rl.tasks import Task, hidden_inputs, load_tasks, make_suite, suite_of
from rl.text_files import read_text, split_lines

BATCH = 16         # inputs per run of the sandbox while an input is looked for
SHRINKING = 200    # smaller inputs that are tried
MOST = 100_000
LETTERS = "aZ 0_-.,'!éßİ\u00a0\n(["


def main() -> int:
    """Read the programs, judge them under all seeds, look for inputs, print."""
    path, seeds, inputs = arguments(sys.argv[1:])
    settings = config.load(os.environ).settings
    tasks = {task.name: task for task in load_tasks(replace(settings.data, split="all")) if getattr(task, "generate", None)}
    if not tasks:
        raise InputError(f"TASKS={settings.data.tasks}: these tasks draw no inputs; set TASKS to lc_easy or generated")
    rows = read_programs(path, tasks)
    passed = 0
    with Sandbox() as sandbox:
        for (name, source), seeds_passed in zip(rows, survived(sandbox, rows, tasks, seeds), strict=True):
            if not seeds_passed:
                continue
            passed += 1
            found = witness(sandbox, tasks[name], source, [*tasks.values()], inputs)
            print(f"{name}: passes under {seeds_passed} of {seeds} seeds; "
                  + (f"fails on {shown(found)}" if found else f"as right as the reference on {inputs} other inputs"))
            print("".join(f"    {line}\n" for line in source.strip().split("\n")), flush=True)
    print(f"{len(rows)} programs, {len(rows) - passed} fail under each of {seeds} seeds, {passed} pass under some")
    return 1 if passed else 0


def arguments(given: list[str]) -> tuple[Path, int, int]:
    """FILE, --seeds and --inputs; InputError for anything else."""
    paths, numbers = command.options(given, {"--seeds": "20", "--inputs": "600"})
    for name, text in numbers.items():
        if not text.isdecimal() or not 1 <= int(text) <= MOST:
            raise InputError(f"{name} {text}: give a whole number from 1 to {MOST}")
    if len(paths) != 1:
        raise InputError(f"expected FILE, got {len(paths)} arguments; see --help")
    return Path(paths[0]), *map(int, numbers.values())


def read_programs(path: Path, tasks: dict[str, Task]) -> list[tuple[str, str]]:
    """(task, source) of each row; InputError names every row that cannot be used."""
    try:
        lines = split_lines(read_text(path))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
    rows, problems = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            name, source = row["task"], row["source"]
        except (ValueError, TypeError, KeyError):
            problems.append(f"line {number}: no object with task and source")
            continue
        if name not in tasks:
            problems.append(f"line {number}: no task is called {name}")
        rows.append((name, source))
    if problems or not rows:
        raise InputError(f"{path}: " + ("; ".join(problems) or "it is empty"))
    return rows


def survived(sandbox, rows, tasks, seeds: int) -> list[int]:
    """Under how many of the case seeds each program passes."""
    passes = [0] * len(rows)
    for seed in range(seeds):
        suites = {name: make_suite(sandbox, tasks[name], seed) for name in {name for name, _ in rows}}
        found = sandbox.grade([(tasks[name].program(source), suites[name]) for name, source in rows])
        passes = [count + (result.verdict == "pass") for count, result in zip(passes, found, strict=True)]
    return passes


# ---- inputs ------------------------------------------------------------------------------------------------------------

def witness(sandbox, task: Task, source: str, others: list[Task], count: int) -> tuple | None:
    """The smallest input found on which the program and the reference differ, or None."""
    rng = random.Random(f"{task.name}/witness")
    tried: dict[str, tuple] = {}
    for arguments in candidates(task, others, rng):
        tried.setdefault(repr(arguments), arguments)
        if len(tried) >= count:
            break
    inputs = [*tried.values()]
    found = next((differing for at in range(0, len(inputs), BATCH)
                  if (differing := first_difference(sandbox, task, source, inputs[at:at + BATCH])) is not None), None)
    left = SHRINKING
    while found is not None and left > 0:
        smaller = sorted(smaller_inputs(found), key=lambda arguments: len(repr(arguments)))[:left]
        left -= max(1, len(smaller))
        better = first_difference(sandbox, task, source, smaller) if smaller else None
        if better is None:
            break
        found = better
    return found


def candidates(task: Task, others: list[Task], rng: random.Random) -> Iterator[tuple]:
    """Inputs of other seeds and of other tasks with the same types, in turn with changed copies of them."""
    alike = [other for other in others if types_of(other) == types_of(task)]
    for seed in range(1000, 1_000_000):
        for origin in (task, rng.choice(alike or [task])):
            drawn = hidden_inputs(origin, seed)
            for arguments in rng.sample(drawn, min(len(drawn), 12)):
                yield arguments
                yield tuple(changed(copy.deepcopy(value), rng) for value in arguments)


def types_of(task: Task) -> list[str]:
    """The annotations of the task's arguments."""
    return [ast.unparse(argument.annotation) if argument.annotation else ""
            for argument in ast.parse(f"{task.signature} ...").body[0].args.args]


def changed(value, rng: random.Random):
    """The value, or another of its type that its author may not have thought of."""
    match value:
        case _ if rng.random() < 0.2:
            return value
        case bool():
            return not value
        case int():
            return rng.choice((-value, value + 1, value * 10**rng.randint(1, 20) + rng.randint(0, 9), 2**rng.randint(1, 64), 0))
        case str():
            at = rng.randint(0, len(value))
            return rng.choice((value[:at] + rng.choice(LETTERS) + value[at:], value * rng.randint(2, 20), value[::-1],
                               value.swapcase(), "".join(sorted(value)), value[:at], f" {value} ", value + value[::-1]))
        case list() if value:
            at = rng.randrange(len(value))
            return rng.choice((value * rng.randint(2, 8), value[::-1], value[at:] + value[:at], value[:at], value + value[::-1],
                               [*value[:at], changed(value[at], rng), *value[at:]], [changed(item, rng) for item in value]))
        case dict() if value:
            key = rng.choice([*value])
            return value | {key: changed(value[key], rng), changed(key, rng): value[key]}
    return value


def smaller_inputs(arguments: tuple) -> Iterator[tuple]:
    """Inputs with one argument made smaller."""
    for place, value in enumerate(arguments):
        for less in smaller(value):
            yield (*arguments[:place], less, *arguments[place + 1:])


def smaller(value) -> Iterator:
    """Smaller values of the same type."""
    match value:
        case bool():
            return
        case int() if value:
            sign = 1 if value > 0 else -1
            yield from (sign * less for less in (0, abs(value) // 10, abs(value) // 2, abs(value) - 1))
        case str() | list() if value:
            half = len(value) // 2
            yield from [value[:half], value[half:]] if half else []
            yield from (value[:at] + value[at + 1:] for at in range(min(len(value), 30)))
            if isinstance(value, list):
                yield from ([*value[:at], less, *value[at + 1:]]
                            for at in range(min(len(value), 8)) for less in smaller(value[at]))
        case dict():
            yield from ({name: kept for name, kept in value.items() if name != key} for key in value)


def first_difference(sandbox, task: Task, source: str, inputs: list[tuple]) -> tuple | None:
    """The first of the inputs to which the reference gives an answer and the program does not give the same."""
    try:
        suite = suite_of(sandbox, task, inputs)
    except SandboxError:    # not meant for one of these inputs: each half by itself
        if len(inputs) == 1:
            return None
        half = len(inputs) // 2
        first = first_difference(sandbox, task, source, inputs[:half])
        return first if first is not None else first_difference(sandbox, task, source, inputs[half:])
    result, = sandbox.grade([(task.program(source), suite)])
    return None if result.verdict == "pass" else inputs[min(result.passed, len(inputs) - 1)]


def shown(arguments: tuple) -> str:
    """An input as it would stand in tasks/hard_cases.py."""
    return repr(arguments[0] if len(arguments) == 1 else arguments)


if __name__ == "__main__":
    command.run(main, __doc__, flags=("--seeds=", "--inputs="))
