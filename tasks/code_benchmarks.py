"""HumanEval and MBPP from their published files: problems for evaluation, all held out of training.

    TASKS=humaneval SPLIT=heldout TASKS_FILE=HumanEval.jsonl.gz python run_probe.py
    TASKS=mbpp SPLIT=heldout TASKS_FILE=sanitized-mbpp.json python run_probe.py

The datasets' own checks compare in the process that ran the answer, where the answer could have redefined `==`, so answers are
not graded by them. Instead their inputs are recorded: the dataset's solution runs in the sandbox under the dataset's tests
(which it must pass), and the arguments of each call become a case. From there on these tasks are like all others: the
solution's results are the expected ones (and, where the tests fail on copies of the arguments, what it does to these), and values
are compared outside. Random tests use a fixed seed. The cases do not depend on CASE_SEED, so a probe's second cases repeat its
first ones.

A problem's preamble holds what the dataset lets answers use: HumanEval's prompt above the function (imports, helpers), MBPP's
test imports. MBPP's text does not name the function, so its prompt shows the tests, as is customary; the model therefore sees
the cases it is graded on, unlike in other tasks.

An adapter makes complex numbers plain values, and applies to the answer whatever all tests of the problem apply before they
compare: `set(f(x)) == ...`, `tuple(f(x)) == ...`, or `assert f(x)`, which accepts any true value. The tolerance of
`math.isclose(f(x), ..., rel_tol=...)` applies too. Other differences from the datasets' checks:
- floats may be off by 1e-6 of the expected value even where a test uses `==` or an absolute 1e-6 (HumanEval/2, /4);
- a list may replace a tuple, True 1, and 2.0 2, even where a test uses `is True` (HumanEval/72);
- only the solution's answer is right, even where a test accepts several: any root of the polynomial in HumanEval/32;
- an answer must be a plain value, so an iterator or an object of a user-defined class is wrong wherever it is compared;
- a completion must be the whole function, and may import only the modules that the sandbox allows;
- each case has CASE_SECONDS. An MBPP test in which the solution itself takes longer, or whose inputs are too large, is left out
  (the second of MBPP/123), which stderr says;
- at most 128 different inputs are used per problem; both files stay below that.

MBPP+ rows have a program `test` besides `test_list`: its inputs are cases too, though the prompt does not show them. HumanEval+
and MBPP+ compare with NumPy, which the sandbox does not have; a few lines stand in for what they use of it. Rows that cannot be
used are left out, and named on stderr."""

import ast
import gzip
import json
import sys
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from rl.errors import InputError
from rl.registry import register_data_provider
from rl.sandbox import ReferenceFails, SandboxError
from rl.sandbox.compare import RELATIVE
from rl.tasks import ADAPTED, Provided, Task
from rl.text_files import split_lines

HUMANEVAL = {"task_id": str, "prompt": str, "entry_point": str, "canonical_solution": str, "test": str}
MBPP = {"task_id": int, "prompt": str, "code": str, "test_imports": list, "test_list": list}
PUBLISHED = {"humaneval": "HumanEval.jsonl.gz, in the repository openai/human-eval",
             "mbpp": "sanitized-mbpp.json, in the repository google-research/google-research, folder mbpp"}
MAX_CASES = 128
TOO_MUCH = ("timeout", "output_too_large", "memory")    # verdicts on the solution that cost only the test
VIEWS = {"set", "frozenset", "tuple", "list", "sorted"}

HUMANEVAL_REQUEST = """Complete this Python function:

```python
{prompt}
```

Answer with the whole function in one ```python block."""

MBPP_REQUEST = """Write a Python function.

{prompt}

It has to pass these tests:

```python
{tests}
```

Answer with the function only, in one ```python block."""

# Comes before the answer and binds the builtins that it needs, since answers may redefine names like `set`.
TO_PLAIN = """\
def _plain(value, type=type, complex=complex, kinds=(list, tuple)):
    if type(value) is complex:
        return ("<complex>", value.real, value.imag)
    return type(value)([_plain(item) for item in value]) if type(value) in kinds else value


def _real(value, type=type, complex=complex, list=list, tuple=tuple):
    if type(value) is tuple and value[:1] == ("<complex>",):
        return complex(*value[1:])
    if type(value) is list:     # stays the same object, in which the function may give its answer
        value[:] = [_real(item) for item in value]
    return tuple([_real(item) for item in value]) if type(value) is tuple else value


def _adapted(function, view={view}, list=list, type=type):
    def adapted(positional, named):
        answer = _plain(view(function(*_real(positional), **named)))
        for given in positional:
            if type(given) is list:
                given[:] = _plain(given)
        return answer
    return adapted
"""

# If the function is missing there is nothing to call, which the sandbox reports.
ADAPTER = """
try:
    {adapted} = _adapted({entry_point})
except NameError:
    pass
"""

# What the tests of HumanEval+ and MBPP+ use of NumPy.
NUMPY = """
class np:
    ndarray, float32, float64 = type("ndarray", (), {}), float, float

    @staticmethod
    def allclose(one, other, rtol=1e-05, atol=1e-08):
        if isinstance(other, (list, tuple)):
            return len(one) == len(other) and all(np.allclose(*pair, rtol, atol) for pair in zip(one, other))
        return one == other or abs(one - other) <= atol + rtol * abs(other)
"""

# The tests run in a copy of the namespace, so that the solution's recursive calls are not recorded. Where the solution changes
# its arguments, the tests run again on copies of them: if they fail then, the change is part of the answer.
RECORDER = """
def _record(test):
    import copy, random
    seen, changed, function = [], [], {entry_point}
    def recorder(*positional, **named):
        seen.append((_plain(copy.deepcopy(positional)), copy.deepcopy(named)))
        answer = function(*positional, **named)
        if (_plain(positional), named) != seen[-1]:
            changed.append(len(seen))
        return answer
    def on_copies(*positional, **named):
        return function(*copy.deepcopy(positional), **copy.deepcopy(named))
    def run(called):
        random.seed(0)
        exec(test, globals() | {{{name!r}: called}})
    run(recorder)
    if not changed:
        return seen, False
    try:
        run(on_copies)
    except Exception:
        return seen, True
    return seen, False
"""


@register_data_provider("humaneval", thinking=False)
def provide_humaneval(tasks_file: str) -> Provided:
    """The problems of a HumanEval file, all held out of training."""
    return provide(tasks_file, "humaneval", HUMANEVAL, make=humaneval_task)


@register_data_provider("mbpp", thinking=False)
def provide_mbpp(tasks_file: str) -> Provided:
    """The problems of a sanitized MBPP file, all held out of training."""
    return provide(tasks_file, "mbpp", MBPP, make=mbpp_task)


def provide(tasks_file: str, provider: str, fields: dict, make: Callable[[dict], Task]) -> Provided:
    """A task for every usable row of the file, all held out; stderr names the others, an InputError if there are only such."""
    tasks, problems = {}, []
    for number, row in enumerate(read_rows(tasks_file, provider, fields), 1):
        if wrong := [name for name, kind in fields.items() if not isinstance(row.get(name), kind)]:
            problems.append(f"row {number}: {', '.join(wrong)} missing or of the wrong type")
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")     # of "\w" and the like in the datasets' strings
                task = make(row)
        except (SyntaxError, ValueError, TypeError, RecursionError) as error:
            problems.append(f"{row['task_id']}: {error}")
            continue
        if task.name in tasks:
            problems.append(f"row {number}: {task.name} occurs twice")
        tasks.setdefault(task.name, task)
    more = f"; and {len(problems) - 8} more" if len(problems) > 8 else ""
    said = f"TASKS_FILE={tasks_file}: {'; '.join(problems[:8])}{more}"
    if not tasks:
        raise InputError(f"{said}. {expected_file(provider, fields)}")
    if problems:
        print(f"{said}. Left out; {len(tasks)} rows can be used", file=sys.stderr, flush=True)
    return Provided([*tasks.values()], frozenset(tasks), {"unusable row": len(problems)} if problems else {})


def expected_file(provider, fields):
    """A description of the expected TASKS_FILE, for errors."""
    return (f"Set TASKS_FILE to a file of problems for TASKS={provider}, with the fields {', '.join(fields)}; it is published as "
            f"{PUBLISHED[provider]}")


def read_rows(tasks_file: str, provider: str, fields: dict) -> list[dict]:
    """The objects in a file of JSON lines or of one JSON list, gzipped or not."""
    if not tasks_file:
        raise InputError(f"TASKS_FILE is not set. {expected_file(provider, fields)}")
    try:
        data = Path(tasks_file).read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
        rows = (json.loads(text) if text.lstrip()[:1] == "[" else
                [json.loads(line) for line in split_lines(text) if line.strip()])
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(f"TASKS_FILE={tasks_file} cannot be read: {error}. {expected_file(provider, fields)}") from error
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"TASKS_FILE={tasks_file} has no rows, or bad ones. {expected_file(provider, fields)}")
    return rows


def humaneval_task(row: dict) -> Task:
    """One HumanEval problem; ValueError if its solution does not define the entry point."""
    reference = row["prompt"] + row["canonical_solution"]
    function = definition(reference, row["entry_point"])
    first = min(node.lineno for node in (function, *function.decorator_list))
    return benchmark_task(
        name=row["task_id"], text=row["prompt"], function=function, reference=reference,
        preamble="".join(f"{line}\n" for line in row["prompt"].split("\n")[:first - 1]), tested="candidate",
        tests=[f"{without_numpy(row['test'])}\ncheck(candidate)\n"],
        request=HUMANEVAL_REQUEST.format(prompt=row["prompt"].strip("\n")))


def mbpp_task(row: dict) -> Task:
    """One MBPP problem; ValueError unless its tests call exactly one of its functions."""
    imports, called = "\n".join(row["test_imports"]), names_called("\n".join(row["test_list"]))
    defined = {node.name for node in ast.parse(row["code"]).body if isinstance(node, ast.FunctionDef)}
    if len(defined & called) != 1:
        raise ValueError(f"its tests call {' and '.join(sorted(defined & called)) or 'none'} of its functions, not one")
    function = definition(row["code"], *defined & called)
    tests = "\n".join(filter(None, [imports, *row["test_list"]]))
    hidden = [without_numpy(row["test"])] if row.get("test") else []
    return benchmark_task(
        name=f"MBPP/{row['task_id']}", text=row["prompt"], function=function, reference=row["code"], preamble=f"{imports}\n",
        tests=row["test_list"] + hidden, tested=function.name,
        request=MBPP_REQUEST.format(prompt=row["prompt"].strip(), tests=tests))


def benchmark_task(*, name: str, text: str, function: ast.FunctionDef, reference: str, preamble: str, tests: Sequence[str],
                   tested: str, request: str) -> Task:
    """A task from one problem; `tested` is the function's name in the tests."""
    view, relative = leniency("\n".join(tests), tested)
    preamble = TO_PLAIN.format(view=view) + preamble
    recorder = preamble + reference + RECORDER.format(entry_point=function.name, name=tested)
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return Task(
        name=name, text=text, signature=f"def {function.name}({ast.unparse(function.args)}){returns}:", reference=reference,
        examples=(), generate=None, scalar=False, request=request, preamble=preamble, relative=relative,
        adapter=ADAPTER.format(adapted=ADAPTED, entry_point=function.name),
        record=lambda sandbox: record_inputs(sandbox, name, recorder, tests))


def without_numpy(test: str) -> str:
    """The test with NUMPY in place of the import; TypeError if it is not text."""
    if not isinstance(test, str):
        raise TypeError("test is not text")
    return "\n".join(NUMPY if line.strip() == "import numpy as np" and line[0] == "i" else line for line in test.split("\n"))


def definition(source: str, name: str) -> ast.FunctionDef:
    """The module-level function `name` of a source."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise ValueError(f"its solution defines no {name}")


def names_called(source: str) -> set[str]:
    """All names that a source calls as functions."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)}


def leniency(tests: str, tested: str) -> tuple[str, float]:
    """(source of what all asserts apply to an answer before they compare it, relative tolerance of floats)."""
    asserts = [node.test for node in ast.walk(ast.parse(tests)) if isinstance(node, ast.Assert)]
    found = {_leniency_of(test, tested) for test in asserts if tested in names_called(ast.unparse(test))}
    return found.pop() if len(found) == 1 else ("lambda answer: answer", RELATIVE)


def _leniency_of(test, tested):
    def is_answer(node):
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == tested

    if is_answer(test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test):
        return "bool", RELATIVE
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and node.args and is_answer(node.args[0]):
            outer = ast.unparse(node.func)
            if outer in VIEWS and len(node.args) == 1 and not node.keywords:
                return outer, RELATIVE
            if outer in ("math.isclose", "isclose"):
                return "lambda answer: answer", max([RELATIVE, *_constants(node.keywords, "rel_tol")])
    return "lambda answer: answer", RELATIVE


def _constants(keywords, name):
    return [keyword.value.value for keyword in keywords if keyword.arg == name and isinstance(keyword.value, ast.Constant)]


def record_inputs(sandbox, name: str, recorder: str, tests: Sequence[str]) -> tuple[list[tuple], bool]:
    """(the different inputs that the tests give the solution, as (positional, named) for the adapter; whether the tests look at
    what it does to them)."""
    runs = [answer for suite in _run_tests(sandbox, name, recorder, tests) for answer in suite.expected]
    cases = {repr(call): tuple(_with_sets(part) for part in call) for seen, _ in runs for call in seen}
    if not cases:
        raise SandboxError("its tests never call the function")
    return list(cases.values())[:MAX_CASES], any(in_place for _, in_place in runs)


def _run_tests(sandbox, name, recorder, tests):
    try:
        return [sandbox.expect(recorder, "_record", [(test,) for test in tests])]
    except ReferenceFails as failure:
        if failure.verdict not in TOO_MUCH or len(tests) == 1:
            raise
    # One by one, so that only a test that takes too long or gives too much is lost.
    suites, late = [], None
    for test in tests:
        try:
            suites.append(sandbox.expect(recorder, "_record", [(test,)]))
        except ReferenceFails as failure:
            if failure.verdict not in TOO_MUCH:
                raise
            late = failure
            print(f"{name}: left out a test of {len(test)} characters: {failure.verdict}", file=sys.stderr, flush=True)
    if not suites:
        raise late
    return suites


def _with_sets(value):
    """The value with sets again; the sandbox returns them frozen, since they may be elements of others."""
    if isinstance(value, frozenset):
        return set(value)
    if isinstance(value, dict):
        return {key: _with_sets(item) for key, item in value.items()}
    return type(value)(map(_with_sets, value)) if isinstance(value, list | tuple) else value
