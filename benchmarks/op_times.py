"""Where the time of compiled programs goes: a profiler trace of the CPU, by operation and by kind of operation.

It measures whole operations, not what is inside of them, and when they run, not on how many cores."""

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
HOW = f"""Time in which several threads run operations is divided equally among them; time without any is '{HOST}': Python, and
the runtime between two operations. An operation that contains a matrix product counts as that product, with all that is fused to
it; one that only moves values is '{MOVED}'; any other is counted by the file of this repo that asked for it: attention.py;
qwen2_jax.py (norms, rotation, activation); rl/training/sampler.py; rl/training/loss.py, update.py and optimiser.py. '{UNKNOWN}'
are operations that the compiler adds, and those whose name means different things in programs that the trace cannot tell
apart."""

OWN = {"attention.py": MIXING, "qwen2_jax.py": TOKENWISE, "rl/training/sampler.py": SAMPLING, "rl/training/loss.py": LOSS,
       "rl/training/update.py": LOSS, "rl/training/optimiser.py": LOSS}  # kind by the file that asked for an operation
PRODUCT_OF = {MIXING: ATTENTION, TOKENWISE: LAYERS}
MOVES = {"bitcast", "broadcast", "concatenate", "constant", "copy", "dynamic-slice", "dynamic-update-slice", "gather",
         "get-tuple-element", "iota", "pad", "parameter", "reshape", "reverse", "slice", "transpose", "tuple"}
HOLDERS = {"call", "conditional", "while"}  # they run as long as the operations in them


class Run(NamedTuple):
    """One execution of an operation, in one execution of its program."""

    thread: int
    start: float  # ns
    end: float
    op: str
    program: tuple[str, str]  # its name, and the id of this execution


class Span(NamedTuple):
    """A span of a thread's time, and what it was for."""

    thread: int
    start: float
    end: float
    purpose: tuple[str | None, str]  # kind, operation without its number; the kind is None for HOLDERS


class Instruction(NamedTuple):
    """One instruction of a compiled program."""

    opcode: str
    calls: list[str]  # computations that it runs
    frame: int  # its stack frame in the program's table; 0: none


class Program(NamedTuple):
    """A compiled program."""

    name: str
    computations: dict[str, dict[str, Instruction]]
    frames: dict[int, tuple[str, str]]  # stack frame -> innermost file of OWN and its function


class Profile(NamedTuple):
    """The time of some work, in seconds."""

    wall: float
    by_kind: dict[str, float]  # adds up to `wall`
    by_op: Counter  # by purpose


def profile(work: Callable[[], object]) -> Profile:
    """The profile of `work`, whose programs must be compiled already."""
    with tempfile.TemporaryDirectory() as folder:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        with jax.profiler.trace(folder, profiler_options=options):
            started = time.perf_counter()
            jax.block_until_ready(work())
            wall = time.perf_counter() - started
        runs = list(read_runs(folder))
    by_op = seconds_of(spans_of(runs, live_programs()))
    by_kind = {kind: sum(seconds for (found, _), seconds in by_op.items() if found == kind) for kind in KINDS}
    return Profile(wall, by_kind | {HOST: wall - by_op.total()}, by_op)


# ---- the trace -------------------------------------------------------------------------------------------------------


def read_runs(folder: str) -> Iterator[Run]:
    """Every execution of an operation in the folder's trace."""
    (path,) = Path(folder).rglob("*.xplane.pb")
    lines = [line for plane in jax.profiler.ProfileData.from_file(str(path)).planes for line in plane.lines]
    for thread, line in enumerate(lines):
        for event in line.events:
            stats = dict(event.stats)
            if "hlo_op" in stats:
                yield Run(thread, event.start_ns, event.start_ns + event.duration_ns, stats["hlo_op"],
                          (stats["hlo_module"], str(stats.get("run_id"))))


def spans_of(runs: Iterable[Run], programs: Iterable[Program]) -> Iterator[Span]:
    """The executions and what they were for.

    Several programs may have the name that the trace gives: those with all operations of the execution are considered.  If they
    disagree on the kind of an operation, it is unknown."""
    executions, kinds, purposes = defaultdict(list), [(program.name, kinds_in(program)) for program in programs], {}
    for run in runs:
        executions[run.program].append(run)
    for (name, _), execution in executions.items():
        ops = frozenset(run.op for run in execution)
        if (name, ops) not in purposes:
            candidates = [known for program, known in kinds if program == name and ops <= known.keys()]
            found = {op: {known[op] for known in candidates} for op in ops}
            purposes[name, ops] = {op: (one.pop() if len(one) == 1 else UNKNOWN, re.sub(r"[.\d]+$", "", op))
                                   for op, one in found.items()}
        yield from (Span(run.thread, run.start, run.end, purposes[name, ops][run.op]) for run in execution)


def seconds_of(spans: Iterable[Span]) -> Counter:
    """Seconds of each purpose: time is divided equally among the innermost spans of all threads; HOLDERS get none."""
    threads = defaultdict(list)
    for span in spans:
        threads[span.thread].append(span)
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


def innermost(spans: Iterable[Span]) -> Iterator[tuple[float, float, tuple]]:
    """(start, end, purpose) of the time of one thread's spans outside of the spans inside of them."""
    stack, at = [], 0.0
    for span in [*sorted(spans, key=lambda span: (span.start, -span.end)), None]:
        while stack and (span is None or stack[-1].end <= span.start):
            if stack[-1].end > at:
                yield at, stack[-1].end, stack[-1].purpose
            at = max(at, stack.pop().end)
        if span:
            if stack and span.start > at:
                yield at, span.start, stack[-1].purpose
            stack.append(span)
            at = span.start


# ---- the programs ----------------------------------------------------------------------------------------------------


def live_programs() -> list[Program]:
    """Every compiled program of this process."""
    return [read_program(module.to_string()) for loaded in jax.devices()[0].client.live_executables()
            for module in loaded.hlo_modules()]


def kinds_in(program: Program) -> dict[str, str | None]:
    """The kind of each operation; None for HOLDERS."""
    return {name: kind_of(instruction, program) for instructions in program.computations.values()
            for name, instruction in instructions.items()}


def kind_of(instruction: Instruction, program: Program) -> str | None:
    """The kind of an instruction, by what it contains and by the file that asked for it."""
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
    """The kind of a matrix product."""
    file, function = program.frames.get(part.frame, ("", ""))
    return HEAD if function == "head_logits" else PRODUCT_OF.get(OWN.get(file), UNKNOWN)


def inside(instruction: Instruction, program: Program) -> Iterator[Instruction]:
    """All instructions of the computations that an instruction runs."""
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
    """Parse a program as XLA prints it."""
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
    """(file, function) of the innermost frame, from each stack frame outwards, that is in a file of OWN."""
    number = lambda name, row: int((re.search(rf"{name}=(\d+)", row) or "00")[1])  # noqa: E731
    found = {}
    for start in tables["StackFrames"]:
        seen, frame = set(), start
        while frame not in seen and (row := tables["StackFrames"].get(frame)):
            seen.add(frame)
            place = tables["FileLocations"].get(number("file_location_id", row), "")
            path = "/" + tables["FileNames"].get(number("file_name_id", place), "")
            if file := next((name for name in OWN if path.endswith("/" + name)), None):
                found[start] = file, tables["FunctionNames"].get(number("function_name_id", place), "")
                break
            frame = number("parent_frame_id", row)
    return found
