"""Where the time of compiled programs goes: a profiler's trace, read operation by operation and sorted by purpose.

It reads traces of the CPU.  It knows operations and not what is inside of one, and when one ran, not on how many cores."""

import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax

LAYERS, HEAD, ATTENTION = "products of layers", "product of the head", "products in attention"
PRODUCTS = (LAYERS, HEAD, ATTENTION)
MIXING, SAMPLING, LOSS, TOKENWISE = "attention but products", "sampling", "loss and optimiser", "layers but products"
MOVED, UNKNOWN, HOST = "copies and transposes", "unknown", "no operation"
KINDS = (*PRODUCTS, MIXING, TOKENWISE, SAMPLING, LOSS, MOVED, UNKNOWN, HOST)
HOW = f"""A moment belongs to the operations that run in it, in equal parts where threads run several; where none does it is
'{HOST}': Python, and the runtime between two operations. An operation that holds a matrix product, alone or fused with
others, is all product, what is fused to it included; one that only moves values is '{MOVED}'; any other goes by the
file whose code asked for it: attention.py; qwen2_jax.py, that is norms, rotation, activation; rl/training/sampler.py; rl/training/update.py or
rl/training/loss.py. '{UNKNOWN}' are operations of the compiler's own making, and such whose name stands for different things in
programs that the trace cannot tell apart."""

OWN = {"attention.py": MIXING, "qwen2_jax.py": TOKENWISE, "generate.py": SAMPLING, "grpo.py": LOSS, "objectives.py": LOSS}
PRODUCT_OF = {MIXING: ATTENTION, TOKENWISE: LAYERS}
MOVES = {"bitcast", "broadcast", "concatenate", "constant", "copy", "dynamic-slice", "dynamic-update-slice", "gather",
         "get-tuple-element", "iota", "pad", "parameter", "reshape", "reverse", "slice", "transpose", "tuple"}
HOLDERS = {"call", "conditional", "while"}  # they run as long as what is in them


class Run(NamedTuple):
    """One run of an operation, within one run of its program."""

    thread: int
    start: float  # ns
    end: float
    op: str
    program: tuple[str, str]  # its name, and which run of it


class Step(NamedTuple):
    """A stretch of a thread's time, and what it was for."""

    thread: int
    start: float
    end: float
    purpose: tuple[str | None, str]  # kind, operation without its number; the kind None is of those that only hold others


class Instruction(NamedTuple):
    """One instruction of a compiled program."""

    opcode: str
    calls: list[str]  # computations that it runs
    frame: int  # in the program's table; 0 where no code of ours asked for it


class Program(NamedTuple):
    """A compiled program, as far as it matters here."""

    name: str
    computations: dict[str, dict[str, Instruction]]
    frames: dict[int, tuple[str, str]]  # the innermost of our files in a stack of calls, and its function


class Profile(NamedTuple):
    """What one piece of work took, in seconds."""

    wall: float
    by_kind: dict[str, float]  # they add up to `wall`
    by_op: Counter  # by purpose


def profile(work: Callable[[], object]) -> Profile:
    """The profile of `work`, of which everything must have been compiled before."""
    with tempfile.TemporaryDirectory() as folder:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        with jax.profiler.trace(folder, profiler_options=options):
            started = time.perf_counter()
            jax.block_until_ready(work())
            wall = time.perf_counter() - started
        runs = list(read_runs(folder))
    by_op = seconds_of(steps_of(runs, live_programs()))
    by_kind = {kind: sum(seconds for (found, _), seconds in by_op.items() if found == kind) for kind in KINDS}
    return Profile(wall, by_kind | {HOST: wall - by_op.total()}, by_op)


# ---- the trace -------------------------------------------------------------------------------------------------------


def read_runs(folder: str) -> Iterator[Run]:
    """Every run of an operation in the trace in that folder."""
    (path,) = Path(folder).rglob("*.xplane.pb")
    lines = [line for plane in jax.profiler.ProfileData.from_file(str(path)).planes for line in plane.lines]
    for thread, line in enumerate(lines):
        for event in line.events:
            stats = dict(event.stats)
            if "hlo_op" in stats:
                yield Run(thread, event.start_ns, event.start_ns + event.duration_ns, stats["hlo_op"],
                          (stats["hlo_module"], str(stats.get("run_id"))))


def steps_of(runs: Iterable[Run], programs: Iterable[Program]) -> Iterator[Step]:
    """The runs and what they were for.

    A trace names a program without saying which of its name: it is one of those that have all operations of the run.  Where
    these differ on what an operation is for, it stays unknown."""
    together, kinds, purposes = defaultdict(list), [(program.name, kinds_in(program)) for program in programs], {}
    for run in runs:
        together[run.program].append(run)
    for (name, _), own in together.items():
        ops = frozenset(run.op for run in own)
        if (name, ops) not in purposes:
            able = [known for program, known in kinds if program == name and ops <= known.keys()]
            found = {op: {known[op] for known in able} for op in ops}
            purposes[name, ops] = {op: (one.pop() if len(one) == 1 else UNKNOWN, re.sub(r"[.\d]+$", "", op))
                                   for op, one in found.items()}
        yield from (Step(run.thread, run.start, run.end, purposes[name, ops][run.op]) for run in own)


def seconds_of(steps: Iterable[Step]) -> Counter:
    """Seconds of each purpose: of each moment an equal part to the innermost step of every thread; holders get none."""
    threads = defaultdict(list)
    for step in steps:
        threads[step.thread].append(step)
    edges = sorted((at, change, purpose) for own in threads.values() for start, end, purpose in innermost(own) if purpose[0]
                   for at, change in ((start, 1), (end, -1)))
    spent, running, before = Counter(), Counter(), 0.0
    for at, change, purpose in edges:
        for name, count in running.items():
            spent[name] += (at - before) * count / running.total() / 1e9
        running[purpose] += change
        running += Counter()  # drops those at zero
        before = at
    return spent


def innermost(steps: Iterable[Step]) -> Iterator[tuple[float, float, tuple]]:
    """(start, end, purpose) of each stretch of one thread's time in which a step runs and none inside of it."""
    stack, at = [], 0.0
    for step in [*sorted(steps, key=lambda step: (step.start, -step.end)), None]:
        while stack and (step is None or stack[-1].end <= step.start):
            if stack[-1].end > at:
                yield at, stack[-1].end, stack[-1].purpose
            at = max(at, stack.pop().end)
        if step:
            if stack and step.start > at:
                yield at, step.start, stack[-1].purpose
            stack.append(step)
            at = step.start


# ---- the programs ----------------------------------------------------------------------------------------------------


def live_programs() -> list[Program]:
    """Every compiled program that this process holds."""
    return [read_program(module.to_string()) for loaded in jax.devices()[0].client.live_executables()
            for module in loaded.hlo_modules()]


def kinds_in(program: Program) -> dict[str, str | None]:
    """The kind of each operation, None where it only holds others."""
    return {name: kind_of(instruction, program) for instructions in program.computations.values()
            for name, instruction in instructions.items()}


def kind_of(instruction: Instruction, program: Program) -> str | None:
    """What the instruction is for, by what it holds and by the code that asked for it."""
    if instruction.opcode in HOLDERS:
        return None
    parts = [instruction, *inside(instruction, program)]
    if products := [part for part in parts if part.opcode in ("dot", "convolution")]:
        kinds = {product_kind(part, program) for part in products}
        return kinds.pop() if len(kinds) == 1 else UNKNOWN
    if all(part.opcode in MOVES | {"fusion"} for part in parts):
        return MOVED
    asked = [OWN[program.frames[part.frame][0]] for part in parts if part.frame in program.frames]
    return asked[0] if asked else UNKNOWN


def product_kind(part: Instruction, program: Program) -> str:
    """Whose matrix product that is."""
    file, function = program.frames.get(part.frame, ("", ""))
    return HEAD if function == "head_logits" else PRODUCT_OF.get(OWN.get(file), UNKNOWN)


def inside(instruction: Instruction, program: Program) -> Iterator[Instruction]:
    """All instructions of the computations that it runs."""
    for name in instruction.calls:
        for part in program.computations.get(name, {}).values():
            yield part
            yield from inside(part, program)


# ---- a program's text ------------------------------------------------------------------------------------------------

INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?([\w.-]+) = .*?[\s)}\]]([a-z][a-z0-9-]*)\(")
COMPUTATION = re.compile(r"(?:ENTRY )?%?([\w.-]+) (?:\(.*)?\{$")
CALLS = re.compile(r"(?:calls|to_apply|body|condition)=%?([\w.-]+)")
ROW = re.compile(r"(\d+) (.*)")
TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")


def read_program(text: str) -> Program:
    """The program of what XLA prints of it."""
    head, *lines = text.splitlines()
    computations, tables, table, current = {}, {name: {} for name in TABLES}, {}, None
    for line in lines:
        if line in tables:
            table = tables[line]
        elif row := ROW.match(line):
            table[int(row[1])] = row[2].strip('"')
        elif computation := COMPUTATION.match(line):
            current = computations.setdefault(computation[1], {})
        elif instruction := INSTRUCTION.match(line):
            frame = re.search(r"stack_frame_id=(\d+)", line)
            current[instruction[1]] = Instruction(instruction[2], CALLS.findall(line), int(frame[1]) if frame else 0)
    return Program(re.match(r"HloModule ([\w.-]+)", head)[1], computations, own_frames(tables))


def own_frames(tables: dict[str, dict[int, str]]) -> dict[int, tuple[str, str]]:
    """Of each stack frame the innermost one that lies in a file of ours: (file, function)."""
    number = lambda name, row: int((re.search(rf"{name}=(\d+)", row) or "00")[1])  # noqa: E731
    found = {}
    for start in tables["StackFrames"]:
        seen, frame = set(), start
        while frame not in seen and (row := tables["StackFrames"].get(frame)):
            seen.add(frame)
            place = tables["FileLocations"].get(number("file_location_id", row), "")
            file = Path(tables["FileNames"].get(number("file_name_id", place), "")).name
            if file in OWN:
                found[start] = file, tables["FunctionNames"].get(number("function_name_id", place), "")
                break
            frame = number("parent_frame_id", row)
    return found
