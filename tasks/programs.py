"""A program of the grammar: its types, its words, its code in two ways, and programs that are wrong by one mistake.

An operation is a tuple (name, constant, *operations inside); the constant is None where it has none."""

import ast
import functools
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tasks.grammar import INNER, OPS, RETURNED, SOURCES, Op
from tasks.mutants import ANSWER_CHANGES, ARGUMENT_CHANGES, changes, node_changes


class Program(NamedTuple):
    """What a task computes: the type it starts from, and its operations in order."""

    source: str
    operations: tuple[tuple, ...]

    def names(self) -> list[str]:
        """The names of all operations in the order of the text, those inside others included."""
        return [name for operation in self.operations for name in names_in(operation)]


def names_in(operation: tuple) -> list[str]:
    """An operation's name and those of the operations inside it."""
    return [operation[0], *(name for inner in operation[2:] for name in names_in(inner))]


# ---- types ------------------------------------------------------------------------------------------------------------


def fits(op: Op, kind: str) -> bool:
    """Whether the operation takes a value of that type."""
    return op.takes == kind or (op.takes, kind) == ("rows", "grid") or (
        (op.takes, kind) == ("text", "mixed") and op.name != "split")


def gives(op: Op, kind: str) -> str:
    """The type that the operation makes of a value of `kind`."""
    return "mixed" if (kind, op.gives) == ("mixed", "text") else op.gives


def kinds_of(program: Program) -> list[str] | None:
    """The type before each operation and after the last; None where they do not follow from each other."""
    kinds = [program.source]
    for i, operation in enumerate(program.operations):
        op = OPS[operation[0]]
        if not fits(op, kinds[-1]) or (op.is_result and i + 1 < len(program.operations)):
            return None
        kinds.append(gives(op, kinds[-1]))
    ends = OPS[program.operations[-1][0]].is_result if program.operations else False
    return kinds if ends or kinds[-1] in RETURNED else None


def draw_program(rng: random.Random) -> Program:
    """A well-typed program of one to six operations. Most have one or two: a model of 0.5B parameters solves few with more."""
    source = rng.choice(("ints",) * 7 + ("words",) * 5 + ("text",) * 4 + ("grid", "lists", "pairs") * 2
                        + ("mixed", "moves", "number", "count", "counts"))
    length, kind, operations = rng.choice((1,) * 8 + (2,) * 6 + (3, 3, 3, 4, 4, 5)), source, []
    while (left := length - sum(map(len, map(names_in, operations)))) > 0:
        able = [op for op in OPS.values() if fits(op, kind) and op.inner < left and (left == 1 + op.inner or not op.is_result)]
        # Small concepts come up more often than their share, but not as often as large ones.
        sizes = Counter(op.concept for op in able)
        concept, = rng.choices(sorted(sizes), [min(sizes[name], 5) for name in sorted(sizes)])
        operations.append(draw_operation(rng, [op for op in able if op.concept == concept]))
        kind = gives(OPS[operations[-1][0]], kind)
    return Program(source, tuple(operations))


def draw_operation(rng: random.Random, among: Sequence[Op]) -> tuple:
    """One of the operations, with a constant and with what it contains."""
    op = rng.choice(among)
    constant = rng.choice(op.constants) if op.constants else None
    return op.name, constant, *(draw_operation(rng, [OPS[name] for name in INNER]) for _ in range(op.inner))


# ---- words ------------------------------------------------------------------------------------------------------------


def text_of(program: Program, names: Sequence[str], rng: random.Random) -> str:
    """The task in words: one of many phrasings, all of which say the same."""
    last = OPS[program.operations[-1][0]]
    given = rng.choice(SOURCES[program.source][1]).replace("{a}", names[0]).replace("{b}", names[-1])
    steps = [_clause(operation, rng) for operation in program.operations if not OPS[operation[0]].is_result]
    if last.is_result:
        fitting = [phrase for phrase in last.phrases if steps or " now " not in phrase]
        result = rng.choice(fitting).replace("{k}", str(program.operations[-1][1]))
    else:
        result = RETURNED[kinds_of(program)[-1]][1]
    flat = not any({*":;"} & {*said} for said in (*steps, result))    # others are sentences of their own
    frame = rng.randrange(3)
    if not steps:
        return f"{given} Return {result}."
    if frame == 0 and len(steps) > 1:
        lines = [*steps, f"return {result}"]
        return f"{given} Do these steps in order:\n" + "\n".join(f"{i}. {_sentence(line)}" for i, line in enumerate(lines, 1))
    if frame == 1 and flat:
        if len(steps) == 1:
            return f"{given} {_sentence(steps[0] + (', and' if ',' in steps[0] else ' and') + f' return {result}')}"
        return f"{given} First, {', then '.join(steps)}, and finally return {result}."
    finally_ = "Finally, return" if len(steps) > 1 else "Then return"
    return " ".join((given, _sentence(steps[0]), *(f"Then{',' * step.startswith(('if ', 'in '))} {step}." for step in steps[1:]),
          f"{finally_} {result}."))


def _clause(operation, rng):
    name, constant, *inside = operation
    said = rng.choice(OPS[name].phrases).replace("{k}", str(constant))
    for i, inner in enumerate(inside):    # its first phrase, which holds of a row as of a list
        said = said.replace(f"{{{i}}}", OPS[inner[0]].phrases[0].replace("{k}", str(inner[1])))
    return said


def _sentence(clause):
    return f"{clause[0].upper()}{clause[1:]}."


# ---- code -------------------------------------------------------------------------------------------------------------


def signature(program: Program, function: str, names: Sequence[str]) -> str:
    """The line that a prompt shows."""
    op = OPS[program.operations[-1][0]]
    answer = op.gives if op.is_result else RETURNED[kinds_of(program)[-1]][0]
    return f"def {function}({', '.join(f'{name}: {SOURCES[program.source][0]}' for name in names)}) -> {answer}:"


def expression_source(program: Program, function: str, names: Sequence[str]) -> str:
    """The program as a function of one nested expression."""
    body = f"({', '.join(names)})" if program.source == "lists" else names[0]
    for operation in program.operations:
        body = _expression(operation, body)
    return f"{signature(program, function, names)}\n    return {body}\n"


def statement_source(program: Program, function: str, names: Sequence[str]) -> str:
    """The same program as statements, written independently."""
    before = names[0]
    lines = []
    if program.source == "lists":
        before = "both"
        lines.append(f"both = [{', '.join(names)}]")
    for i, operation in enumerate(program.operations, 1):
        lines += _statements(operation, before, f"step{i}")
        before = f"step{i}"
    body = "\n".join(f"    {line}" for line in [*lines, f"return {before}"])
    return f"{signature(program, function, names)}\n{body}\n"


def _expression(operation, value):
    name, constant, *inside = operation
    template = OPS[name].expression
    for i, inner in enumerate(inside):    # {0:r} is the first operation inside, applied to r
        template = re.sub(rf"\{{{i}:(\w+)\}}", lambda found, inner=inner: _expression(inner, found[1]).replace("{", "{{").replace(
              "}", "}}"),
                          template)
    return _filled(template, constant, x=value)


def _statements(operation, before, after):
    name, constant, *inside = operation
    lines = []
    for line in OPS[name].statements.split("\n"):
        if found := re.fullmatch(r"\{([01]):(\w+|\{x\})\}", line):
            value = before if found[2] == "{x}" else found[2]
            lines += [f"    {inner}" for inner in _statements(inside[int(found[1])], value, "inside")]
        else:
            lines.append(_filled(line, constant, x=before, y=after))
    return lines


def _filled(template, constant, **values):
    # Not str.format: the braces of an argument's own code would count.
    known = {"{{": "{", "}}": "}", "{k}": str(constant)} | {f"{{{name}}}": value for name, value in values.items()}
    return "".join(known.get(part, part) for part in re.split(r"(\{\{|\}\}|\{[xyk]\})", template))


def compiled(source: str) -> Callable:
    """The function of a source that was composed here."""
    scope: dict = {}
    exec(source, scope)
    return next(value for name, value in scope.items() if name != "__builtins__")


# ---- running, and wrong programs --------------------------------------------------------------------------------------


@functools.cache
def run_of(operation: tuple) -> Callable:
    """The function of one value that an operation is."""
    return _function(_expression(operation, "x"))


class Wrong(NamedTuple):
    """A wrong program: in place of the right one's operations from `first` up to `last` stand others."""

    first: int
    last: int
    operations: tuple    # of the kinds in SLIPS functions of one value
    kind: str


SLIPS = ("one node", "an answer changed", "an argument changed")


def wrong_programs(program: Program, rng: random.Random) -> list[Wrong]:
    """Programs one mistake away: one or two operations left out, one replaced, exchanged with the next or with another constant,
    a branch always taken or both exchanged. All are well typed."""
    made, operations = [], program.operations
    for i, operation in enumerate(operations):
        made.append(Wrong(i, i + 1, (), "left out"))
        if i + 1 < len(operations):
            made += [Wrong(i, i + 2, (), "left out"), Wrong(i, i + 2, (operations[i + 1], operation), "exchanged")]
        if len(operation) == 4:
            made += [Wrong(i, i + 1, (inner,), "one branch") for inner in operation[2:]]
        made += [Wrong(i, i + 1, (other,), kind) for other, kind in _other_operations(operation, rng)]
    return [wrong for wrong in made if changed(program, wrong) != program and kinds_of(changed(program, wrong)) is not None]


def slips(program: Program) -> list[Wrong]:
    """Programs in which one node of an operation's code, the answer or an argument is changed in a way that mutants.py knows."""
    size, annotation = len(program.operations), signature(program, "f", "ab").rpartition("-> ")[2][:-1]
    made = [Wrong(i, i + 1, (slip,), SLIPS[0]) for i, operation in enumerate(program.operations) for slip in _slips_of(operation)]
    made += [Wrong(size, size, (_function(change),), SLIPS[1]) for _, change in changes(ANSWER_CHANGES, annotation)]
    for _, change in changes(ARGUMENT_CHANGES, SOURCES[program.source][0]):
        of_lists = (f"((lambda x: {change})(x[0]), x[1])", f"(x[0], (lambda x: {change})(x[1]))")
        made += [Wrong(0, 0, (_function(way),), SLIPS[2]) for way in (of_lists if program.source == "lists" else (change,))]
    return made


@functools.cache
def _function(expression):
    return eval(f"lambda x: {expression}")


def changed(program: Program, wrong: Wrong) -> Program:
    """The program with that mistake."""
    return Program(program.source, program.operations[:wrong.first] + wrong.operations + program.operations[wrong.last:])


def _other_operations(operation, rng) -> Iterator[tuple[tuple, str]]:
    name, constant, *inside = operation
    op = OPS[name]
    for other in dict.fromkeys((*op.constants, *((constant + 1, constant - 1) if isinstance(constant, int) else ()))):
        if other != constant:
            yield (name, other, *inside), "constant"
    if op.inner == 2:
        yield (name, constant, *inside[::-1]), "negated"
    for i, inner in enumerate(inside):
        for other, kind in _other_operations(inner, rng):
            if other[0] in INNER:
                yield (name, constant, *inside[:i], other, *inside[i + 1:]), kind
    types = (op.takes, op.gives, op.is_result, op.inner)
    alike = [other for other in OPS.values()
             if other.name != name and (other.takes, other.gives, other.is_result, other.inner) == types]
    for other in rng.sample(alike, min(6, len(alike))):
        yield (other.name, rng.choice(other.constants) if other.constants else None, *inside), "replaced"


@functools.cache
def _slips_of(operation):
    tree = ast.parse(f"lambda x: {_expression(operation, 'x')}", mode="eval")
    found = {}
    for node in ast.walk(tree):
        for field, value in node_changes(node):
            kept = getattr(node, field)
            setattr(node, field, value)
            found.setdefault(ast.unparse(tree), None)
            setattr(node, field, kept)
    return tuple(eval(source) for source in found)
