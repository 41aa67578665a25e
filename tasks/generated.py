"""Thousands of programming tasks from a seed, composed of the operations in grammar.py: TASKS=generated.

    PROVIDER_KWARGS='{count: 3000, seed: 0, difficulty: [1, 4], concepts: [filter, sort]}'

A candidate is drawn from (seed, number) alone: a program, one of many phrasings of its text, names. It becomes a task if

- its text reads back (reader.py) to its program and to no other,
- its two references, one nested expression and one of statements, agree on 200 inputs,
- its answers vary, are short, and are mostly not the argument,
- no operation follows itself, and no operation, branch or constant is idle: without it other answers come out,
- no earlier task, no reference of lc_easy and, where their files are given, no solution of HumanEval or MBPP gives its answers.

Inputs that tell it from wrong programs near it are among its hidden cases under every seed, so that each of these programs fails.

Held out is every task with one of HELD_OUT_OPS, or with two neighbouring operations that a fixed hash picks: what is held out was
never seen in training, not merely with other numbers. A larger count keeps the earlier tasks. Which candidates are accepted takes
a minute to find out and is kept in the user's cache folder."""

import ast
import contextlib
import functools
import hashlib
import json
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError
from rl.registry import build_data_provider, nearest, register_data_provider
from rl.rewards.lisp import score_style
from rl.run.files import write_aside
from rl.sandbox import Sandbox, SandboxError
from rl.tasks import Provided, Task
from tasks.grammar import HELD_OUT_OPS, OPS, SOURCES
from tasks.lc_easy_tasks import TASKS as LC_EASY
from tasks.programs import (
    SLIPS,
    Program,
    changed,
    compiled,
    draw_program,
    expression_source,
    run_of,
    signature,
    slips,
    statement_source,
    text_of,
    wrong_programs,
)
from tasks.reader import read

MAX_COUNT, MAX_DIFFICULTY, MAX_CANDIDATES = 5_000, 5, 40_000
DRAWS, POOL, FIRST = 14, 200, 50    # random cases of a suite; inputs that judge a candidate, the first of them before the others
HELD_OUT_PAIRS = 8                  # of 256 values of the first byte of a pair's hash
CONCEPTS = tuple(sorted({op.concept for op in OPS.values()}))

ARGUMENTS = {"ints": ("nums", "values", "numbers", "items", "data"), "words": ("words", "names", "tokens", "terms"),
             "text": ("s", "text", "line", "phrase"), "mixed": ("s", "code", "label", "entry"), "moves": ("moves", "path",
             "steps"),
             "number": ("n", "number", "value"), "count": ("n", "limit", "size"), "pairs": ("pairs", "records", "entries"),
             "counts": ("counts", "stock", "scores"), "grid": ("grid", "matrix", "table", "cells"),
             "lists": ("a b", "first second", "left right", "one other")}
NOUNS = {"ints": ("numbers", "values", "list"), "words": ("words", "names", "terms"), "text": ("text", "string", "line"),
         "mixed": ("code", "label", "string"), "moves": ("moves", "path"), "number": ("number", "value"), "count": ("number",
         "limit"),
         "pairs": ("pairs", "records"), "counts": ("counts", "scores"), "grid": ("grid", "table"), "lists": ("lists", "both")}
VERBS = {"int": ("measure", "compute", "evaluate", "score", "find_in"), "bool": ("check", "examine", "judge"),
         "str": ("format", "encode", "rewrite", "render", "convert"), "list": ("process", "transform", "select_from", "arrange",
         "derive_from"),
         "dict": ("summarize", "tabulate", "index", "group", "map")}


@dataclass(frozen=True, eq=False)
class GeneratedTask(Task):
    """A task with the program that it was made from."""

    program_of: Program | None = None

    @functools.cached_property
    def metadata(self) -> dict:
        """difficulty (the count of operations), nesting (of the reference, as the reward counts depth), operations, concepts."""
        names = self.program_of.names()
        return {"difficulty": len(names), "nesting": score_style(self.reference, self.entry_point, self.scalar).depth,
                "operations": names, "concepts": sorted({OPS[name].concept for name in names})}


class Candidate(NamedTuple):
    """A drawn program with its words and names, not yet accepted."""

    name: str
    program: Program
    text: str
    function: str
    arguments: tuple[str, ...]


class Accepted(NamedTuple):
    """What judging an accepted candidate found; plain values, for the cache."""

    number: int
    examples: list[int]     # places in the pool of inputs
    kept: list[int]         # those of inputs that wrong programs fail on
    harmless: list[int]     # wrong programs, of `wrong_programs`, that are right on all of the pool
    answers: str            # digest


@register_data_provider("generated", thinking=False)
def provide(tasks_file: str, count: int = 1000, seed: int = 0, difficulty: Sequence[int] = (1, MAX_DIFFICULTY),
            concepts: Sequence[str] = (), humaneval_path: str = "", mbpp_path: str = "") -> Provided:
    """The seed's first `count` tasks with at least `difficulty[0]` and at most `difficulty[1]` operations and, where concepts are
    named, at least one of them; without those that equal a problem in the files of HumanEval and MBPP."""
    problems = []
    if tasks_file:
        problems.append(f"TASKS_FILE={tasks_file}: these tasks are made from a seed and read no file; unset TASKS_FILE")
    if not 1 <= count <= MAX_COUNT:
        problems.append(f"count: {count}; ask for 1 to {MAX_COUNT} tasks")
    if len(difficulty) != 2 or not 1 <= difficulty[0] <= difficulty[1] <= MAX_DIFFICULTY:
        problems.append(f"difficulty: {list(difficulty)}; give the fewest and the most operations, from 1 to {MAX_DIFFICULTY}")
    for concept in concepts:
        if concept not in CONCEPTS:
            problems.append(f"concepts: {concept}{nearest(concept, CONCEPTS)} is none; there are {', '.join(CONCEPTS)}")
    if problems:
        raise InputError("TASKS=generated: " + "; ".join(problems))

    files, solved = {"humaneval": humaneval_path, "mbpp": mbpp_path}, {}
    for name in filter(files.get, files):
        solved |= _answers_of_benchmark(name, files[name])
    if missing := [name for name in files if not files[name]]:
        print(f"TASKS=generated: not compared with {' and '.join(missing)}; PROVIDER_KWARGS names their files as "
              f"{' and '.join(f'{name}_path' for name in missing)}", file=sys.stderr, flush=True)
    found, equal = [], Counter()
    for accepted in accepted_of(seed):
        candidate = draw(seed, accepted.number)
        names = candidate.program.names()
        if difficulty[0] <= len(names) <= difficulty[1] and (not concepts or {OPS[name].concept for name in names} & {*concepts}):
            if accepted.answers in solved:
                equal[f"equals {solved[accepted.answers]}"] += 1
                continue
            found.append(task_of(candidate, accepted))
            if len(found) == count:
                return Provided(found, {task.name for task in found if is_held_out(task.program_of)}, dict(equal))
    raise InputError(f"TASKS=generated: seed {seed} has {len(found)} tasks of these kinds, not {count}; ask for at most "
                     f"{len(found)}, or "
                     "allow more difficulties or concepts")


def is_held_out(program: Program) -> bool:
    """Whether it has an operation, or two neighbouring ones, that never occur in training."""
    names = program.names()
    return bool(HELD_OUT_OPS & {*names}) or any(
        hashlib.sha256(f"{a} {b}".encode()).digest()[0] < HELD_OUT_PAIRS for a, b in pairwise(names))


# ---- inputs -----------------------------------------------------------------------------------------------------------

LONG = ("ints", "words", "text", "mixed", "moves")    # of these an example of one item says little
LETTERS = "abcdefghijklmnopqrstuvwxyz"
_TEXTS = ["", "a", " ", "hello world", "  two  spaces  ", "aaabbbccca", "never odd or even", "zebra xyz", "level"]
# Values of one argument, or pairs of two, that every suite holds.
EDGES = {
    "ints": [[], [5], [-3], [0], [4, 4, 4], [1, 2, 3, 4, 5, 6], [9, 6, 3, 1], [-2, 7, -2, 7, 7], [2, -1, 0, 12, 12, -8, 3],
             [10, 20, 30], [-7, -14, 21, 1, 11], [100, 5, -100]],
    "words": [[], ["level"], ["a"], ["tree", "egg", "tree", "apple"], ["noon", "on", "to", "otto", "ease"], ["bb", "aa", "ab",
    "ba"],
              ["under", "red", "dune", "end", "nut"]],
    "text": _TEXTS, "mixed": [*_TEXTS, "a1b22 333", "007", "4 x 4"], "moves": ["", "L", "R", "LLRRR", "RLRLLL", "RRRR"],
    "number": [0, 7, 10, 99, 100, 1024, 12321, 990099], "count": [1, 2, 3, 4, 6, 7, 12, 25, 36],
    "pairs": [[], [("ann", 3)], [("bob", 2), ("ann", 2), ("bob", 7)], [("eve", -1), ("eve", -1), ("dan", 11), ("abigail", 11)]],
    "counts": [{}, {"ann": 2}, {"bob": 3, "ann": 3, "cy": 1}, {"x": 0, "y": -4, "z": 7, "w": 7}],
    "grid": [[], [[3]], [[1, 2], [3, 4]], [[1, 2, 3]], [[5], [-6], [7]], [[0, -1, 9], [9, 8, 0], [2, 2, 2]]],
    "lists": [([], []), ([1], []), ([], [2, 3]), ([1, 2, 2, 3], [3, 2, 5]), ([4, 1], [1, 4, 9, 9]), ([-5, 6, 7], [5, 6, -7])],
}


def draw_value(source: str, rng: random.Random):
    """One random value: short ones and long ones, with ties, runs, order and large numbers among them."""
    match source:
        case "ints":
            return _ints(rng)
        case "words":
            words = [_word(rng) for _ in range(rng.choice((1, 2, 3, 4, 5, 6, 8, 14)))]
            return words + rng.sample(words, len(words) // 2) if rng.random() < 0.3 else words
        case "text" | "mixed":
            pool = rng.choice((LETTERS, "aeiouxyz", "ab")) + ("0123456789" if source == "mixed" else "")
            pieces = ["".join(rng.choices(pool, k=rng.randint(1, 7))) for _ in range(rng.choice((1, 2, 3, 4, 6, 12)))]
            if rng.random() < 0.25:
                pieces += [piece[::-1] for piece in reversed(pieces)]
            return rng.choice((" ", " ", "  ", "")).join(pieces)
        case "moves":
            return "".join(rng.choices("LR", weights=rng.choice(((1, 1), (1, 2), (2, 1))), k=rng.choice((3, 6, 10, 20, 40))))
        case "number":
            return rng.choice((rng.randint(0, 99), rng.randint(100, 99_999), rng.randint(10**6, 10**15)))
        case "count":
            return rng.randint(1, rng.choice((20, 60, 300)))
        case "pairs":
            names = [_word(rng) for _ in range(rng.randint(1, 4))]
            return [(rng.choice(names), rng.randint(-5, 15)) for _ in range(rng.choice((1, 3, 5, 8, 15)))]
        case "counts":
            return {_word(rng): rng.randint(-3, 9) for _ in range(rng.randint(1, 8))}
        case "grid":
            columns, low = rng.randint(1, 6), rng.choice((-9, 0))
            return [[rng.randint(low, 12) for _ in range(columns)] for _ in range(rng.randint(1, 6))]
    one = _ints(rng)
    return one, rng.choice((_ints(rng), rng.sample(one, len(one)), one[:3] + _ints(rng)))


def _ints(rng):
    low, high, most = rng.choice(((-9, 9, 8), (0, 15, 10), (-20, 30, 14), (0, 3, 10), (-3, 3, 9), (1, 40, 40),
                                  (-10**6, 10**6, 6)))
    values = [rng.randint(low, high) for _ in range(rng.randint(1, most))]
    match rng.randrange(6):
        case 0:
            values.sort()
        case 1:
            values = [*sorted(values)[1:], low]
        case 2:
            values = [v for v in values for _ in range(rng.randint(1, 3))]
    return values


def _word(rng):
    word = "".join(rng.choices(rng.choice((LETTERS, "aeioust", "abn")), k=rng.randint(1, 8)))
    return word + word[::-1][rng.randrange(2):] if rng.random() < 0.15 else word


@functools.cache
def pool_of(source: str) -> tuple:
    """The 200 different values that judge candidates, EDGES first. They are never changed."""
    rng, values = random.Random(f"pool/{source}"), {repr(value): value for value in EDGES[source]}
    while len(values) < POOL:
        value = draw_value(source, rng)
        values[repr(value)] = value
    return tuple(values.values())


def given(source: str, value) -> tuple:
    """The value as the arguments of a call, a fresh copy since a candidate may change it."""
    return tuple(map(list, value)) if source == "lists" else (_fresh(value),)


def _fresh(value):
    return {**value} if isinstance(value, dict) else [*map(_fresh, value)] if isinstance(value, list) else value


# ---- from candidate to task -------------------------------------------------------------------------------------------


def draw(seed: int, number: int) -> Candidate:
    """The candidate of that number: the same in every process and Python version."""
    rng = random.Random(f"generated/{seed}/{number}")
    program = draw_program(rng)
    arguments = tuple(rng.choice(ARGUMENTS[program.source]).split())
    answer = re.match(r"\w+", signature(program, "f", arguments).rpartition("-> ")[2]).group()
    function = f"{rng.choice(VERBS[answer])}_{rng.choice(NOUNS[program.source])}"
    name = "_".join((f"gen{seed}", f"{number:05d}", *(OPS[each].concept for each in program.names())))
    return Candidate(name, program, text_of(program, arguments, rng), function, arguments)


def task_of(candidate: Candidate, accepted: Accepted) -> GeneratedTask:
    """The task of an accepted candidate."""
    program, names = candidate.program, candidate.arguments
    reference = expression_source(program, candidate.function, names)
    failing = [changed(program, wrong) for i, wrong in enumerate(wrong_programs(program, random.Random(candidate.name)))
               if i not in accepted.harmless]
    shown = [pool_of(program.source)[i] for i in accepted.examples]
    return GeneratedTask(
        name=candidate.name, text=candidate.text, signature=reference.split("\n")[0], reference=reference,
        examples=tuple(given(program.source, value) for value in shown),
        example_results=tuple(_run(program.operations, value) for value in shown),
        generate=functools.partial(_inputs, program.source, tuple(accepted.kept)),
        scalar=re.search(r"-> (?:int|str|bool):", reference) is not None,
        mutants=tuple(expression_source(wrong, candidate.function, names) for wrong in failing if wrong.operations),
        program_of=program)


def _inputs(source, kept, rng):
    values = [*EDGES[source], *(pool_of(source)[i] for i in kept), *(draw_value(source, rng) for _ in range(DRAWS))]
    return [given(source, value) for value in values]


def _run(operations, value):
    for operation in operations:
        value = run_of(operation)(value)
    return value


# ---- acceptance -------------------------------------------------------------------------------------------------------


class Judge:
    """Judges the candidates of one seed in their order; knows the answers of the accepted ones."""

    def __init__(self, accepted: Sequence[Accepted] = (), rejected: Mapping[str, int] | None = None):
        """What was accepted and rejected before, if anything."""
        self.known = {one.answers for one in accepted}
        self.rejected = Counter(rejected)

    def judge(self, candidate: Candidate, number: int) -> Accepted | None:
        """What makes the candidate a task, or None; `rejected` counts the reasons."""
        found = self._judge(candidate, number)
        if isinstance(found, str):
            self.rejected[found] += 1
            return None
        self.known.add(found.answers)
        return found

    def _judge(self, candidate, number):
        program = candidate.program
        if any(one[0] == after[0] for one, after in pairwise(program.operations)):
            return "an operation follows itself"
        wrong = wrong_programs(program, random.Random(candidate.name))
        for inputs in (pool_of(program.source)[:FIRST], pool_of(program.source)):    # most fall with the first
            steps = _steps(program, inputs)
            if reason := _dull(program, inputs, steps[-1]) or _idle(program, wrong, steps):
                return reason
        everywhere, edges = range(len(inputs)), len(EDGES[program.source])
        differing = [_first_difference(program, one, steps, everywhere) for one in wrong]
        if any(at is None and one.kind in ("constant", "negated") for one, at in zip(wrong, differing, strict=True)):
            return "a constant or condition is idle"
        examples = _examples(candidate, steps, [one for one in wrong if one.kind in ("left out", "one branch")])
        if len(examples) < 2:
            return "no two short telling examples"
        if read(candidate.text) != [program]:
            return "the text reads as another program"
        twins = [compiled(source(program, candidate.function, candidate.arguments))
                 for source in (expression_source, statement_source)]
        for value, answer in zip(inputs, steps[-1], strict=True):
            if any(_shown(twin(*given(program.source, value))) != _shown(answer) for twin in twins):
                return "its two references differ"
        common = pool_of(COMMON.get(program.source, program.source))
        shared = [_run(program.operations, value) for value in common]
        answers = _digest(program.source, shared)
        if answers in self.known:
            return "equals another generated task"
        if _is_in_lc_easy(program, common, shared):
            return "equals a task of lc_easy"
        kept: list[int] = []
        for one in (*wrong, *slips(program)):
            if _first_difference(program, one, steps, (*range(edges), *kept)) is None:
                at = _first_difference(program, one, steps, [i for i in everywhere if i not in examples])
                kept += [] if at is None else [at]
        return Accepted(number, examples, kept, [i for i, at in enumerate(differing) if at is None], answers)


def _steps(program, inputs):
    """The values before each operation and after the last: one list per place, one item per input."""
    steps = [list(inputs)]
    for operation in program.operations:
        run = run_of(operation)
        steps.append([run(value) for value in steps[-1]])
    return steps


def _dull(program, inputs, answers):
    """Why such answers make no good task, or nothing."""
    shown = Counter(map(_shown, answers))
    if max(map(len, shown)) > 1500:
        return "answers are too long"
    if all(isinstance(answer, bool) for answer in answers):
        if min(shown[str(value)] for value in (True, False)) < 0.15 * len(answers):
            return "answers hardly vary"
    elif len(shown) < 6 or max(shown.values()) > 0.4 * len(answers):
        return "answers hardly vary"
    parts = [value if program.source == "lists" else (value,) for value in inputs]
    if sum(answer in part for answer, part in zip(answers, parts, strict=True)) > 0.4 * len(answers):
        return "the answer is mostly an argument"
    return ""


def _idle(program, wrong, steps):
    for one in wrong:
        if one.kind in ("left out", "one branch"):
            differing = sum(_differs(program, one, steps, i) for i in range(len(steps[0])))
            if differing < 0.1 * len(steps[0]):
                return "an operation or branch is nearly idle"
    return ""


def _differs(program, one, steps, i):
    """Whether the wrong program gives another answer to input i."""
    value = steps[one.first][i]
    try:
        for each in one.operations:
            value = (each if one.kind in SLIPS else run_of(each))(value)
        if value == steps[one.last][i]:
            return False
        return bool(_run(program.operations[one.last:], value) != steps[-1][i])
    except Exception:    # a wrong program may fail in any way
        return True


def _first_difference(program, one, steps, places):
    """The first of the places in the pool at which the wrong program gives another answer, or None."""
    return next((i for i in places if _differs(program, one, steps, i)), None)


def _examples(candidate, steps, wrong):
    """Places of two or three short inputs with different answers that notice most of the wrong programs and hold most."""
    program, inputs, answers = candidate.program, steps[0], steps[-1]
    least = 8 if program.source in LONG else 0
    fitting = [i for i in range(len(EDGES[program.source]), len(inputs))
               if least <= len(repr(inputs[i])) <= 70 and len(repr(answers[i])) <= 80]
    random.Random(f"{candidate.name}/examples").shuffle(fitting)
    noticed = {i: sum(_differs(program, one, steps, i) for one in wrong) for i in fitting[:40]}
    fitting = sorted(noticed, key=lambda i: (-noticed[i], -min(6, len({*repr(answers[i])}))))
    chosen: dict[str, int] = {}
    for i in fitting:
        if len(chosen) < 3:
            chosen.setdefault(_shown(answers[i]), i)
    return [*chosen.values()]


def _shown(value):
    """The value as text; equal values give equal text, and a tuple looks like a list."""
    text = repr(sorted(value.items()) if isinstance(value, dict) else value)
    return text.replace("(", "[").replace(")", "]")


# Sources whose functions may be one and the same: all are compared on the inputs of one of them.
COMMON = {"text": "mixed", "number": "count"}


def _digest(source, answers):
    """A digest of a function's answers to the pool that its source has in common with others."""
    text = "\n".join((COMMON.get(source, source), *map(_shown, answers)))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@functools.cache
def _lc_easy(source):
    """The references of lc_easy that take what the source gives."""
    types = [SOURCES[source][0]] * (2 if source == "lists" else 1)
    taken = re.compile(r"\w+: (.+?)(?:, (?=\w+:)|\) ->)")
    return [compiled(task.reference) for task in LC_EASY if taken.findall(task.signature) == types]


def _is_in_lc_easy(program, inputs, answers):
    """Whether a reference of lc_easy gives these answers; each is asked up to its first difference only, as some take long."""
    def equal(reference, value, answer):
        with contextlib.suppress(Exception):    # it may not be meant for this input
            return _shown(reference(*given(program.source, value))) == _shown(answer)
        return False
    return any(all(equal(reference, *one) for one in zip(inputs, answers, strict=True)) for reference in _lc_easy(program.source))


def _answers_of_benchmark(name, file):
    """Digest of a solution's answers to a pool -> the problem, for all of the file's problems and the pools that they take."""
    tasks = build_data_provider(name)(file).tasks    # InputError for a file that is none
    cache = _cache_file(f"{name}-{hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]}")
    if cache.exists():
        return json.loads(cache.read_text())
    print(f"TASKS=generated: running the solutions of {name}; their answers are kept in {cache}", file=sys.stderr, flush=True)
    found = {}
    sources = sorted({COMMON.get(source, source) for source in SOURCES})
    with Sandbox() as sandbox:
        for task in tasks:
            takes = len(ast.parse(f"{task.signature} ...").body[0].args.args)
            for source in sources:
                calls = [(given(source, value), {}) for value in pool_of(source)]
                if len(calls[0][0]) == takes:
                    with contextlib.suppress(SandboxError, TypeError, ValueError):    # not meant for such inputs
                        suite = sandbox.expect(task.program(task.reference), task.called, calls, in_place=False)
                        found[_digest(source, suite.expected)] = task.name
    _keep(cache, found)
    return found


# ---- the cache --------------------------------------------------------------------------------------------------------


def accepted_of(seed: int) -> Iterator[Accepted]:
    """The seed's accepted candidates in order: those that the cache knows, then new ones, which go into it."""
    file = _cache_file(f"seed-{seed}")
    cached = json.loads(file.read_text()) if file.exists() else {"tried": 0, "rejected": {}, "accepted": []}
    accepted = [Accepted(*one) for one in cached["accepted"]]
    yield from accepted
    judge, tried = Judge(accepted, cached["rejected"]), cached["tried"]
    if tried < MAX_CANDIDATES:
        print(f"TASKS=generated: judging candidates of seed {seed}; what is accepted is kept in {file}",
              file=sys.stderr, flush=True)
    try:
        while tried < MAX_CANDIDATES:
            found = judge.judge(draw(seed, tried), tried)
            tried += 1
            if found:
                accepted.append(found)
                yield found
    finally:    # also where the caller has enough
        if tried > cached["tried"]:
            _keep(file, {"tried": tried, "rejected": judge.rejected, "accepted": accepted})


def _keep(file, content):
    with contextlib.suppress(OSError):    # without a cache the next start only takes longer
        file.parent.mkdir(parents=True, exist_ok=True)
        write_aside(file, json.dumps(content).encode())


def _cache_file(what):
    """Named also by all that decides what is accepted, so that a change of the code begins anew."""
    sources = [Path(__file__).with_name(name).read_text() for name in ("generated.py", "grammar.py", "programs.py", "reader.py",
          "mutants.py")]
    digest = hashlib.sha256("".join([*sources, *(task.reference for task in LC_EASY)]).encode()).hexdigest()[:16]
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "rl-lisp-python" / "generated" / f"{digest}-{what}.json"
