"""HumanEval and MBPP, from the files in which they are published: problems to measure on, all of them held out of training.

    TASKS=humaneval SPLIT=heldout TASKS_FILE=HumanEval.jsonl.gz python run_probe.py
    TASKS=mbpp SPLIT=heldout TASKS_FILE=sanitized-mbpp.json python run_probe.py

The datasets' own checks compare inside the process that ran the answer, where the answer could have changed what `==` means.
So they are not used on answers. Their inputs are recorded instead: the dataset's own solution runs in the sandbox under the
dataset's own tests (which it has to pass), and what each call was given becomes a case. From there on it is as with every
other task: the solution's answers are the expected ones, and values are compared outside. Random tests draw with a fixed
seed. The cases do not depend on CASE_SEED, so a probe's second cases are its first ones over again.

A problem's preamble holds what the dataset lets answers lean on: HumanEval's prompt above the function (imports, helpers),
MBPP's test imports. MBPP's text does not name the function, so its prompt shows the tests, as is customary: unlike elsewhere
the model sees the cases it is graded on.

An adapter turns values without a plain form into plain ones (complex numbers) and does to the answer what all tests of the
problem do before they compare: `set(f(x)) == ...`, `tuple(f(x)) == ...`, or `assert f(x)`, which takes any truth. The
tolerance of `math.isclose(f(x), ..., rel_tol=...)` holds too. What remains is judged differently from the dataset's check:
- floats may be off by 1e-6 of the expected value where a test says `==`, or by that instead of 1e-6 (HumanEval/2, /4);
- a list may stand for a tuple, True for 1, 2.0 for 2, also where a test says `is True` (HumanEval/72);
- the solution's answer is the only right one, where a test takes several: any root of the polynomial in HumanEval/32;
- an answer has to be a plain value, so an iterator or an object of a class of its own is wrong wherever it is compared;
- a completion has to be the whole function, and imports no module but those that the sandbox knows;
- each case has CASE_SECONDS. An MBPP test in which the solution itself needs more is left out (the second of MBPP/123);
- at most 128 different inputs a problem are used; both files stay below."""

import ast
import gzip
import json
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from rl.errors import InputError
from rl.registry import register_data_provider
from rl.sandbox import ReferenceFails, SandboxError
from rl.sandbox.compare import RELATIVE
from rl.tasks import ADAPTED, Task

HUMANEVAL = {"task_id": str, "prompt": str, "entry_point": str, "canonical_solution": str, "test": str}
MBPP = {"task_id": int, "prompt": str, "code": str, "test_imports": list, "test_list": list}
PUBLISHED = {"humaneval": "HumanEval.jsonl.gz, in the repository openai/human-eval",
             "mbpp": "sanitized-mbpp.json, in the repository google-research/google-research, folder mbpp"}
MAX_CASES = 128
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

# Stands before the answer and holds on to the builtins it needs, since answers give names like `set` to things of their own.
TO_PLAIN = """\
def _plain(value, type=type, complex=complex, kinds=(list, tuple)):
    if type(value) is complex:
        return ("<complex>", value.real, value.imag)
    return type(value)([_plain(item) for item in value]) if type(value) in kinds else value


def _real(value, type=type, complex=complex, kinds=(list, tuple)):
    if type(value) is tuple and value[:1] == ("<complex>",):
        return complex(*value[1:])
    return type(value)([_real(item) for item in value]) if type(value) in kinds else value


def _adapted(function, view={view}):
    return lambda positional, named: _plain(view(function(*_real(positional), **named)))
"""

# A missing function leaves nothing to call, which the sandbox then says.
ADAPTER = """
try:
    {adapted} = _adapted({entry_point})
except NameError:
    pass
"""

# The tests run in a copy of the namespace, so that the solution's calls of itself are not recorded.
RECORDER = """
def _record(test):
    import copy, random
    seen, function = [], {entry_point}
    def recorder(*positional, **named):
        seen.append((_plain(copy.deepcopy(positional)), copy.deepcopy(named)))
        return function(*positional, **named)
    random.seed(0)
    exec(test, globals() | {{{name!r}: recorder}})
    return seen
"""


@register_data_provider("humaneval", thinking=False)
def provide_humaneval(tasks_file: str) -> tuple[list[Task], frozenset[str]]:
    """The problems of a HumanEval file, all held out of training."""
    return provide(tasks_file, "humaneval", HUMANEVAL, humaneval_task)


@register_data_provider("mbpp", thinking=False)
def provide_mbpp(tasks_file: str) -> tuple[list[Task], frozenset[str]]:
    """The problems of a sanitized MBPP file, all held out of training."""
    return provide(tasks_file, "mbpp", MBPP, mbpp_task)


def provide(tasks_file: str, provider: str, fields: dict, make: Callable[[dict], Task]):
    """Every row of the file as a task; InputError names all rows that cannot be one."""
    tasks, problems = [], []
    for number, row in enumerate(read_rows(tasks_file, provider, fields), 1):
        if wrong := [name for name, kind in fields.items() if not isinstance(row.get(name), kind)]:
            problems.append(f"row {number}: {', '.join(wrong)} missing or of another type")
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")     # "\w" in the datasets' strings is no news
                tasks.append(make(row))
        except (SyntaxError, ValueError, TypeError) as error:
            problems.append(f"{row['task_id']}: {error}")
    names = frozenset(task.name for task in tasks)
    if len(names) < len(tasks):
        problems.append(f"{len(tasks) - len(names)} names stand there twice")
    if problems:
        more = f"; and {len(problems) - 8} more" if len(problems) > 8 else ""
        raise InputError(f"TASKS_FILE={tasks_file}: {'; '.join(problems[:8])}{more}. {expected_file(provider, fields)}")
    return tasks, names


def expected_file(provider, fields):
    """What TASKS_FILE should be, for errors."""
    return (f"Set TASKS_FILE to a file of problems for TASKS={provider}, with the fields {', '.join(fields)}; it is published as "
            f"{PUBLISHED[provider]}")


def read_rows(tasks_file: str, provider: str, fields: dict) -> list[dict]:
    """The objects in a file of JSON lines or with one JSON list, gzipped or not."""
    if not tasks_file:
        raise InputError(f"TASKS_FILE is not set. {expected_file(provider, fields)}")
    try:
        data = Path(tasks_file).read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
        rows = json.loads(text) if text.lstrip()[:1] == "[" else [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(f"TASKS_FILE={tasks_file} cannot be read: {error}. {expected_file(provider, fields)}") from error
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"TASKS_FILE={tasks_file} holds no rows, or something else. {expected_file(provider, fields)}")
    return rows


def humaneval_task(row: dict) -> Task:
    """One HumanEval problem; ValueError where its solution lacks the entry point."""
    reference = row["prompt"] + row["canonical_solution"]
    function = definition(reference, row["entry_point"])
    first = min(node.lineno for node in (function, *function.decorator_list))
    return benchmark_task(
        row["task_id"], row["prompt"], function, reference, preamble="".join(row["prompt"].splitlines(True)[:first - 1]),
        tests=[f"{row['test']}\ncheck(candidate)\n"], tested="candidate",
        request=HUMANEVAL_REQUEST.format(prompt=row["prompt"].strip("\n")))


def mbpp_task(row: dict) -> Task:
    """One MBPP problem; ValueError where its tests call none of its functions, or several."""
    imports, called = "\n".join(row["test_imports"]), names_called("\n".join(row["test_list"]))
    defined = {node.name for node in ast.parse(row["code"]).body if isinstance(node, ast.FunctionDef)}
    if len(defined & called) != 1:
        raise ValueError(f"its tests call {' and '.join(sorted(defined & called)) or 'none'} of its functions, not one")
    function = definition(row["code"], *defined & called)
    tests = "\n".join(filter(None, [imports, *row["test_list"]]))
    return benchmark_task(
        f"MBPP/{row['task_id']}", row["prompt"], function, row["code"], preamble=f"{imports}\n", tests=row["test_list"],
        tested=function.name, request=MBPP_REQUEST.format(prompt=row["prompt"].strip(), tests=tests))


def benchmark_task(name, text, function: ast.FunctionDef, reference, preamble, tests: Sequence[str], tested, request) -> Task:
    """A task from one problem; `tested` is the function's name in the tests."""
    view, relative = leniency("\n".join(tests), tested)
    preamble = TO_PLAIN.format(view=view) + preamble
    recorder = preamble + reference + RECORDER.format(entry_point=function.name, name=tested)
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return Task(
        name=name, text=text, signature=f"def {function.name}({ast.unparse(function.args)}){returns}:", reference=reference,
        examples=(), generate=None, scalar=False, request=request, preamble=preamble, relative=relative,
        adapter=ADAPTER.format(adapted=ADAPTED, entry_point=function.name),
        record=lambda sandbox: record(sandbox, recorder, tests))


def definition(source: str, name: str) -> ast.FunctionDef:
    """The module-level function `name` of a source."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise ValueError(f"its solution defines no {name}")


def names_called(source: str) -> set[str]:
    """Names of all functions that a source calls by name."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)}


def leniency(tests: str, tested: str) -> tuple[str, float]:
    """(what all asserts do to an answer before they compare it, as source; how far off a float may be)."""
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


def record(sandbox, recorder: str, tests: Sequence[str]) -> list[tuple]:
    """The different inputs that the tests give to the solution, as (positional, named) for the adapter."""
    calls = [call for suite in _recorded(sandbox, recorder, tests) for answer in suite.expected for call in answer]
    if not calls:
        raise SandboxError("its tests never call the function")
    cases = {repr(call): tuple(_thawed(part) for part in call) for call in calls}
    return list(cases.values())[:MAX_CASES]


def _recorded(sandbox, recorder, tests):
    try:
        return [sandbox.expect(recorder, "_record", [(test,) for test in tests])]
    except ReferenceFails as failure:
        if failure.verdict != "timeout" or len(tests) == 1:
            raise
    # One by one, so that a test which takes too long is lost alone.
    found, late = [], None
    for test in tests:
        try:
            found.append(sandbox.expect(recorder, "_record", [(test,)]))
        except ReferenceFails as failure:
            if failure.verdict != "timeout":
                raise
            late = failure
    if not found:
        raise late
    return found


def _thawed(value):
    """With the sets that the sandbox gives back frozen, because they may lie in others, as sets."""
    if isinstance(value, frozenset):
        return set(value)
    if isinstance(value, dict):
        return {key: _thawed(item) for key, item in value.items()}
    return type(value)(map(_thawed, value)) if isinstance(value, list | tuple) else value
