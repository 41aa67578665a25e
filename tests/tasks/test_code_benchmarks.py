"""HumanEval and MBPP: cases are recorded from the datasets' own tests, and verdicts agree with the datasets' own checks.

The oracle is the dataset's check, run in this process on programs of ours. Some tests need the published files.
"""
import copy
import gzip
import json
import random

import pytest

from rl.errors import InputError
from rl.rewards.base import Completion
from rl.rewards.lisp import ProgramGrader, score_style
from rl.sandbox import Sandbox
from rl.settings.declared import DataSettings
from rl.tasks import load_tasks, messages
from tasks.code_benchmarks import leniency

PLAIN = "lambda answer: answer"


@pytest.fixture(scope="module")
def box():
    with Sandbox(workers=2, allow_weak=True) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def files(shared_dir):
    """The published files, by provider."""
    found = {"humaneval": shared_dir / "data/humaneval/HumanEval.jsonl.gz",
             "mbpp": shared_dir / "data/mbpp_sanitized/sanitized-mbpp.json"}
    if missing := [str(path) for path in found.values() if not path.is_file()]:
        pytest.skip(f"needs the published files {', '.join(missing)}")
    return found


def humaneval_row(solution, test, prompt="def f(x):\n", name="HumanEval/0"):
    return {"task_id": name, "prompt": prompt, "entry_point": "f", "canonical_solution": solution,
            "test": "METADATA = {}\n\ndef check(candidate):\n" + "".join(f"    {line}\n" for line in test.split("\n"))}


def mbpp_row(code, *tests, imports=(), number=1):
    return {"source_file": "-", "task_id": number, "prompt": "Write a function f.", "code": code,
            "test_imports": list(imports), "test_list": list(tests)}


def load(folder, *rows, **changes):
    """The tasks of a file with these rows."""
    provider = "humaneval" if "entry_point" in rows[0] else "mbpp"
    file = folder / "rows.json"
    file.write_text("\n".join(map(json.dumps, rows)) if provider == "humaneval" else json.dumps(rows))
    return load_tasks(DataSettings(**{"tasks": provider, "split": "heldout", "tasks_file": str(file)} | changes))


def verdict(box, task, code):
    return ProgramGrader(box, [task], 0.5, 0).grade([Completion(task, f"```python\n{code}\n```")])[0].verdict


# Recording

def test_the_inputs_are_what_the_tests_give(box, tmp_path):
    """In order, without duplicates, as they were before the call, by position or name, and no recursive calls."""
    task, = load(tmp_path, humaneval_row(
        "    if not x: return y\n    return f(x[1:], y) + x.pop()\n",
        "assert candidate([1, 2]) == 4\nfor n in (5, 5, 6):\n    assert candidate([n], y=n) == 2 * n\nassert f([7]) == 7\n"
        "assert candidate([True]) == 1 and candidate([1]) == 1", prompt="def f(x, y=0):\n"))

    assert repr(task.record(box)) == repr(([
        (([1, 2],), {}), (([5],), {"y": 5}), (([6],), {"y": 6}), (([True],), {}), (([1],), {})], False))


def test_recording_copies_inputs_and_skips_recursive_calls(box, tmp_path):
    """MBPP's tests call the function by its name, as the solution does itself; only their calls count, unmodified."""
    task, = load(tmp_path, mbpp_row("def f(x):\n    return len(x) and 1 + f({k: x.pop(k) for k in list(x)[1:]})",
                                    "assert f({1: [2], 3: []}) == 2", "assert f({}) == 0"))

    assert task.record(box) == ([(({1: [2], 3: []},), {}), (({},), {})], False)


def test_inputs_arrive_as_the_tests_made_them(box, tmp_path):
    """Sets, complex numbers and containers of them reach the answer as they reach the dataset's check."""
    kinds = "def f(x):\n    return [type(x).__name__, repr(x)]"
    task, = load(tmp_path, mbpp_row(kinds, *(f"assert f({x})[0]" for x in (
        "{3}", "2j", "[(1+2j, 'a')]", "{'a': {1}}", "(1, [2.5, None])", "float('inf')", "10**30"))))

    assert verdict(box, task, kinds) == "pass"
    assert [arguments for arguments, _ in task.record(box)[0]][:1] == [({3},)]
    for wrong in ("frozenset", "tuple", "list"):
        assert verdict(box, task, f"def f(x):\n    return [type(x).__name__, repr(x)] if type(x) is not {wrong} else 0") in (
            "pass" if wrong == "frozenset" else "wrong_answer", )


def test_random_tests_give_the_same_cases_every_time(box, tmp_path):
    """The global generator is seeded for each recording, so grades of two runs are comparable."""
    task, = load(tmp_path, humaneval_row("    return x\n", "import random\nfor _ in range(20):\n"
                                         "    x = random.randint(0, 10**9)\n    assert candidate(x) == x"))
    first = task.record(box)

    assert len(first[0]) == 20 and task.record(box) == first


def test_many_cases_are_capped(box, tmp_path):
    """A test with a long loop makes a suite of bounded size."""
    task, = load(tmp_path, humaneval_row("    return x\n", "for x in range(1000):\n    assert candidate(x) == x"))

    assert [arguments for arguments, _ in task.record(box)[0]] == [(x,) for x in range(128)]


IN_PLACE = {
    "nums.sort()": ("    x.sort()\n", "given = [3, 1, 2]\ncandidate(given)\nassert given == [1, 2, 3]"),
    "nested": ("    x[0].append(len(x))\n", "given = [[], 2]\ncandidate(given)\nassert given == [[2], 2]"),
    "dict by name": ("    x['a'] = 1\n", "given = {'b': 2}\ncandidate(x=given)\nassert given == {'a': 1, 'b': 2}"),
    "set": ("    x.add(3)\n", "given = {1}\ncandidate(given)\nassert given == {1, 3}"),
    "complex": ("    x.append(2j)\n", "given = [1j]\ncandidate(given)\nassert given == [1j, 2j]"),
    "answer too": ("    x.sort()\n    return len(x)\n", "given = [2, 1]\nassert candidate(given) == 2 and given == [1, 2]"),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_the_tests_see_of_an_argument_is_graded(box, tmp_path, name):
    """Where the tests look at what the solution does to its arguments, answers that do nothing to them are wrong."""
    solution, test = IN_PLACE[name]
    task, = load(tmp_path, humaneval_row(solution, test))
    returns = "    return len(x)\n" * (name == "answer too")

    assert task.record(box)[1] is True
    assert verdict(box, task, "def f(x):\n" + solution) == "pass"
    for nothing in ("    pass\n", "    x.clear()\n", "    return None\n", "    x = sorted(x, key=str)\n"):
        assert verdict(box, task, "def f(x):\n" + nothing + returns) == "wrong_answer"


def test_in_place_by_mbpp_tests(box, tmp_path):
    """A helper of the tests that looks at the argument counts too."""
    task, = load(tmp_path, mbpp_row("def f(x):\n    x.reverse()", "y = [1, 2]; f(y); assert y == [2, 1]",
                                    "y = [1, 2, 3]; assert f(y) is None; assert y == [3, 2, 1]"))

    assert verdict(box, task, "def f(x):\n    x[:] = x[::-1]") == "pass"
    assert verdict(box, task, "def f(x):\n    pass") == "wrong_answer"
    assert verdict(box, task, "def f(x):\n    return x[::-1]") == "wrong_answer"


def test_a_change_that_the_tests_do_not_see_is_not_asked_for(box, tmp_path):
    """A solution that happens to use up its argument asks no other answer to do so."""
    task, = load(tmp_path, humaneval_row("    total = 0\n    while x: total += x.pop()\n    return total\n",
                                         "assert candidate([1, 2]) == 3\nassert candidate([]) == 0"))

    assert task.record(box)[1] is False
    assert verdict(box, task, "def f(x):\n    return sum(x)") == "pass" == verdict(
        box, task, "def f(x):\n    x.append(0)\n    return sum(x)")


def test_tests_that_say_nothing_are_refused(box, tmp_path):
    """A problem on which a function that does nothing would pass cannot be graded."""
    task, = load(tmp_path, humaneval_row("    print(x)\n", "candidate([1])\nassert candidate([2]) is None"))

    with pytest.raises(InputError, match="HumanEval/0: .*does nothing would pass"):
        ProgramGrader(box, [task], 0.5, 0)


SLOW = "def f(x):\n    while x < 0: pass\n    return x"


def test_a_test_that_takes_too_long_is_left_out(tmp_path):
    """The solution has CASE_SECONDS, as answers do; if it needs more for one test, the problem's other tests remain."""
    task, hopeless = load(tmp_path, mbpp_row(SLOW, "assert f(1) == 1", "assert f(-1) == 1", "assert f(2) == 2"),
                          mbpp_row(SLOW, "assert f(-1) == 1", "assert f(-2) == 1", number=2))
    task, hopeless = sorted((task, hopeless), key=lambda task: task.name)
    with Sandbox(workers=1, case_cpu_s=0.05, allow_weak=True) as box:
        assert task.record(box) == ([((1,), {}), ((2,), {})], False)
        with pytest.raises(InputError, match=r"1 of 2 tasks cannot be graded: MBPP/2: .*timeout.*CASE_SECONDS.*TASK_NAMES"):
            ProgramGrader(box, [task, hopeless], 0.5, 0)


@pytest.mark.parametrize("code, test, why", [
    ("def f(x):\n    return x", "assert f(1) == 2", "AssertionError"),
    ("def f(x):\n    return list(x)", "assert f(n for n in (1, 2)) == [1, 2]", "generator"),
    ("def f(x):\n    return {'z': x * 1j}", "assert f(1) == {'z': 1j}", "complex"),
    ("import os\ndef f(x):\n    return os.getpid() and x", "assert f(1) == 1", "'os' cannot be imported"),
    ("def f(x):\n    return x", "assert 1 or f(1)", "never call"),
])
def test_problems_that_cannot_be_graded_are_named(box, tmp_path, code, test, why):
    """A solution that fails its own tests, or a value that cannot be transferred, stops the run before it starts."""
    fine = mbpp_row("def f(x):\n    return x", "assert f(1) == 1")
    tasks = load(tmp_path, fine, mbpp_row(code, test, number=2), mbpp_row(code, test, number=3))

    with pytest.raises(InputError, match="2 of 3 tasks cannot be graded") as refused:
        ProgramGrader(box, tasks, 0.5, 0)
    assert "MBPP/2: " in str(refused.value) and "MBPP/3: " in str(refused.value) and str(refused.value).count(why) == 2
    others = load(tmp_path, fine, mbpp_row(code, test, number=2), mbpp_row(code, test, number=3),
                  task_names=str(refused.value).rpartition("TASK_NAMES=")[2])
    assert [task.name for task in others] == ["MBPP/1"] and verdict(box, *others, "def f(x): return x") == "pass"


def test_line_ends_that_are_none_and_a_byte_order_mark(box, tmp_path):
    """Raw U+2028, U+0085 and form feeds stand inside a row's text: rows end at line feeds, and so do the prompt's lines."""
    row = humaneval_row("    return given + ONE\n", "assert candidate(1) == 2",
                        prompt="# a\u2028b\x85c\x0cd\nONE = 1\ndef f(given):\n")
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(row, ensure_ascii=False).encode() + b"\r\n")
    task, = load_tasks(DataSettings(tasks="humaneval", split="heldout", tasks_file=str(file)))
    assert task.preamble.endswith("ONE = 1\n") and "def f" not in task.preamble
    assert verdict(box, task, "def f(given):\n    return given + ONE") == "pass"


# As HumanEval+ and MBPP+ compare.
PLUS = """import numpy as np
from math import inf

def is_floats(x) -> bool:
    if isinstance(x, (list, tuple)) and x:
        return all(isinstance(i, float) for i in x)
    if isinstance(x, np.ndarray):
        return x.dtype == np.float64 or x.dtype == np.float32
    return isinstance(x, float)

def assertion(out, exp, atol):
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if out != exp and atol != 0:
        assert np.allclose(out, exp, rtol=1e-07, atol=atol)
    else:
        assert out == exp, f"out: {out}, exp: {exp}"

"""
LOOP = """inputs = [[[1.0]], [[2.5, -inf]], [[]]]
results = [[0.1], [0.25, -inf], []]
for i, (inp, exp) in enumerate(zip(inputs, results)):
    assertion(CALLED(*inp), exp, 0)
"""
TENTH = "def f(x):\n    return [y * 0.1 for y in x]"


def test_the_program_test_of_mbpp_plus_gives_cases_too(box, tmp_path):
    """An answer that is right only for the tests in the prompt fails; the prompt shows no more than before."""
    row = mbpp_row(TENTH, "assert f([10.0]) == [1.0]")
    plain, plus = load(tmp_path, row)[0], load(tmp_path, row | {"test": PLUS + LOOP.replace("CALLED", "f")})[0]
    lucky = "def f(x):\n    return [1.0]"

    assert (verdict(box, plain, lucky), verdict(box, plus, lucky)) == ("pass", "wrong_answer")
    assert verdict(box, plus, TENTH) == verdict(box, plus, "def f(x):\n    return [y / 10 for y in x]") == "pass"
    assert [arguments for (arguments, _) in plus.record(box)[0]] == [([10.0],), ([1.0],), ([2.5, -float("inf")],), ([],)]
    assert messages(plus, ()) == messages(plain, ())


def test_humaneval_plus_needs_no_numpy(box, tmp_path):
    """Its `check` compares with np.allclose; a solution that differs from its results is still refused."""
    test = PLUS + "def check(candidate):\n" + "".join(f"    {line}\n" for line in LOOP.replace("CALLED", "candidate").split("\n"))
    row = humaneval_row("    return [y * 0.1 for y in x]\n", "") | {"test": test}
    task, = load(tmp_path, row)

    assert verdict(box, task, TENTH) == "pass" and verdict(box, task, "def f(x): return x") == "wrong_answer"
    with pytest.raises(InputError, match="AssertionError"):
        ProgramGrader(box, load(tmp_path, row | {"test": test.replace("0.25", "0.26")}), 0.5, 0)


def test_a_program_test_that_takes_too_long_is_left_out_and_named(tmp_path, capsys):
    """The tests of the list remain."""
    task, = load(tmp_path, mbpp_row(SLOW, "assert f(1) == 1") | {"test": "for x in (3, -1):\n    assert f(x) == x\n"})
    with Sandbox(workers=1, case_cpu_s=0.05, allow_weak=True) as box:
        assert task.record(box)[0] == [((1,), {})]
    assert "MBPP/1: left out a test of 39 characters: timeout" in capsys.readouterr().err


def test_nothing_runs_for_tasks_that_are_not_chosen(tmp_path):
    """Choosing tasks only reads the file; failures of other problems do not matter."""
    rows = [mbpp_row("def f(x):\n    return 1 / 0", "assert f(1) == 1", number=n) for n in range(5)]

    assert [task.name for task in load(tmp_path, *rows, task_names="MBPP/3")] == ["MBPP/3"]
    assert len(load(tmp_path, *rows, n_tasks=2)) == 2


# Verdicts

def own_check(row, code) -> bool:
    """Whether the dataset's own check accepts a program of ours."""
    scope = {}
    try:
        if "entry_point" in row:
            exec(f"{row['prompt']}    pass\n{code}\n{row['test']}\ncheck(f)", scope)
        else:
            exec("\n".join([code, *row["test_imports"], *row["test_list"]]), scope)
    except Exception:
        return False
    return True


SET = mbpp_row("def f(x):\n    return tuple(set(x))", "assert set(f([1, 2, 2])) == {1, 2}", "assert set(f('ab')) == set('ba')")
CLOSE = mbpp_row("def f(x):\n    return 3.1415 * x", "assert math.isclose(f(2), 6.283, rel_tol=0.001)",
                 imports=["import math"])
TRUTH = mbpp_row("import re\ndef f(x):\n    return re.search('^a', x)", "assert f('ab')", "assert not f('b')")
TUPLE = humaneval_row("    return sorted(x)\n", "assert tuple(candidate([2, 1])) == (1, 2)\nassert tuple(candidate([])) == ()")
ROOT = mbpp_row("import cmath\ndef f(x):\n    return (cmath.sqrt(x), 1)", "assert f(-4) == (2j, 1)")
MIXED = mbpp_row("def f(x):\n    return [x]", "assert set(f(1)) == {1}", "assert f(2) == [2]")
HELPED = humaneval_row("    return helper(x)\n", "assert candidate(3) == 4",
                       prompt="from typing import List\nimport math\n\ndef helper(x):\n    return x + 1\n\n\n"
                              "def f(x: int) -> int:\n")

AGREE = [
    (SET, "def f(x): return list(dict.fromkeys(reversed(x)))", True), (SET, "def f(x): return set(x)", True),
    (SET, "def f(x): return x[:1]", False), (SET, "def f(x): return None", False),
    (CLOSE, "def f(x): return 3.14159265 * x", True), (CLOSE, "def f(x): return math.pi * x", True),
    (CLOSE, "def f(x): return 3.1515 * x", False),
    (TRUTH, "def f(x): return x.startswith('a')", True), (TRUTH, "def f(x): return x.count('a')", True),
    (TRUTH, "import re\ndef f(x): return re.match('a', x)", True), (TRUTH, "def f(x): return 'no'", False),
    (TUPLE, "def f(x): return (y for y in sorted(x))", True), (TUPLE, "def f(x): return x", False),
    (ROOT, "def f(x): return (2j, 1)", True), (ROOT, "def f(x): return (2j, 2)", False),
    (ROOT, "def f(x): return (-2j, 1)", False),
    (MIXED, "def f(x): return [x]", True), (MIXED, "def f(x): return [x, x]", False), (MIXED, "def f(x): return {x}", False),
    (HELPED, "def f(x: int) -> int:\n    return helper(x)", True),
    (HELPED, "def f(x: List[int]): return math.floor(x) + 1", True),
    (HELPED, "def helper(x):\n    return x + 1.0\ndef f(x):\n    return helper(x)", True),
    (HELPED, "def helper(x):\n    return x\ndef f(x):\n    return helper(x)", False),
]


@pytest.mark.parametrize("asserts, view, relative", [
    (["set(f(1)) == {1}", "{2} == set(f(2))", "True"], "set", 1e-6), (["f(1)", "not f(2)"], "bool", 1e-6),
    (["math.isclose(f(1), 2, rel_tol=0.01)"], PLAIN, 0.01), (["math.isclose(f(1), 2)"], PLAIN, 1e-6),
    (["f(1) == 2"], PLAIN, 1e-6), ([], PLAIN, 1e-6), (["set(f) == set(g(f(1)))"], PLAIN, 1e-6),
    (["set(f(1)) == {1}", "f(2) == [2]"], PLAIN, 1e-6), (["f(1)", "f(2) is True"], PLAIN, 1e-6),
    (["sorted(f(1)) == [1]", "list(f(2)) == [2]"], PLAIN, 1e-6), (["sorted(f(1), key=abs) == [1]"], PLAIN, 1e-6),
    (["f(1) == 2", "math.isclose(f(2), 2, rel_tol=0.01)"], PLAIN, 1e-6),
])
def test_leniency_is_what_all_asserts_share(asserts, view, relative):
    """One stricter assert makes the whole problem strict; asserts that are not about the answer do not count."""
    assert leniency("\n".join(f"assert {test}" for test in asserts), "f") == (view, relative)


@pytest.mark.parametrize("row, code, right", AGREE)
def test_verdicts_are_those_of_the_datasets_own_check(box, tmp_path, row, code, right):
    """Order under set(), tolerance, truth, iterators under tuple(), complex values, helpers."""
    task, = load(tmp_path, row)

    assert (verdict(box, task, code) == "pass") is own_check(row, code) is right


FLOAT = mbpp_row("def f(x):\n    return [x / 3, x > 0]", "assert f(1) == [1 / 3, True]")
IS = humaneval_row("    return x > 0\n", "assert candidate(2) is True\nassert candidate(-2) is False")
DIFFER = [      # row, program, whether it is right here
    (HELPED, "class f:\n    def __init__(self, x): pass\n    def __eq__(self, other): return True", False),
    (SET, "def set(x): return 1\ndef f(x): return list(x)", True),
    (TUPLE, "list = tuple = type = len = None\ndef f(x):\n    x.sort()\n    return x", True),
    (ROOT, "def f(x): return ((-4) ** .5, 1)", True), (FLOAT, "def f(x): return (x * 0.33333333333, 1)", True),
    (IS, "def f(x): return int(x > 0)", True),
]


@pytest.mark.parametrize("row, code, right", DIFFER)
def test_verdicts_that_differ_on_purpose(box, tmp_path, row, code, right):
    """Answers that redefine `==` are wrong; redefined builtins, rounding, tuples for lists and 1 for True do not matter."""
    task, = load(tmp_path, row)

    assert (verdict(box, task, code) == "pass") is right
    assert own_check(row, code) is not right


def test_the_answer_may_use_the_prompt_but_is_scored_alone(box, tmp_path):
    """Helpers and imports above the function are available; style is that of the answer's own code."""
    task, = load(tmp_path, HELPED)
    code = "from __future__ import annotations\ndef f(x: Unknown) -> int:\n    return abs(helper(int(x)))\n"
    grade, = ProgramGrader(box, [task], 0.5, 0).grade([Completion(task, f"Here:\n```python\n{code}```")])

    assert (grade.verdict, grade.code) == ("pass", code)
    assert (grade.style, grade.depth, grade.pure) == (score_style(code, "f", scalar=False)[:2] + (True,)) and grade.depth == 3


def test_a_missing_function_is_reported_as_missing(box, tmp_path):
    """The adapter does not turn it into an exception, and a truncated answer stays a syntax error."""
    task, = load(tmp_path, HELPED)

    assert [verdict(box, task, code) for code in ("def g(x): return x + 1", "x = 1", "def f(x):", "def f(x):\n    return (")
            ] == ["no_function", "no_function", "syntax_error", "syntax_error"]


# The prompt

def test_humaneval_asks_to_complete_the_prompt(tmp_path):
    """The published prompt is shown once, and nothing of the tests."""
    task, = load(tmp_path, HELPED)
    prompt = messages(task, ())[1]["content"]

    assert f"```python\n{HELPED['prompt'].strip()}\n```" in prompt and prompt.count("def f(") == 1
    assert prompt.endswith("Answer with the whole function in one ```python block.") and "candidate" not in prompt
    assert messages(task, (), style_hint=True)[1]["content"].startswith(prompt + "\n")
    assert (task.entry_point, task.signature) == ("f", "def f(x: int) -> int:")


def test_mbpp_shows_text_and_tests(tmp_path):
    """The text does not name the function, so the tests are shown, with their imports; the solution is not."""
    task, = load(tmp_path, CLOSE)
    prompt = messages(task, ())[1]["content"]

    assert "Write a function f.\n" in prompt
    assert "```python\nimport math\nassert math.isclose(f(2), 6.283, rel_tol=0.001)\n```" in prompt
    assert "3.1415" not in prompt and "block." in prompt


# Bad input

def test_both_are_for_evaluation_only(tmp_path):
    """Training on them by mistake is refused, with the way on; SPLIT=all is taken as meant."""
    with pytest.raises(InputError, match=r"SPLIT=train: of the 1 tasks of mbpp all are held out.*SPLIT=heldout"):
        load(tmp_path, SET, split="train")
    assert len(load(tmp_path, SET, split="all")) == len(load(tmp_path, SET)) == 1


@pytest.mark.parametrize("provider, words", [
    ("humaneval", ["task_id, prompt, entry_point, canonical_solution, test", "HumanEval.jsonl.gz", "openai/human-eval"]),
    ("mbpp", ["task_id, prompt, code, test_imports, test_list", "sanitized-mbpp.json", "google-research"]),
])
@pytest.mark.parametrize("content, problem", [
    (None, "TASKS_FILE is not set"), ("", "has no rows"), ("[1]", "has no rows, or bad ones"),
    ("{\"task_id\"", "cannot be read"), (b"\x1f\x8b\x08 and then no gzip", "cannot be read"), (b"\xff\xfe", "cannot be read"),
    ('{"task_id": "a"}\n{"task_id": 2}', "row 1: "), ("folder", "cannot be read"),
])
def test_an_unusable_file_is_refused(tmp_path, provider, words, content, problem):
    """The message names the variable, the problem, the expected fields and where such a file is published."""
    file = tmp_path / "tasks"
    if content == "folder":
        file.mkdir()
    elif content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    settings = DataSettings(tasks=provider, split="heldout", tasks_file="" if content is None else str(file))

    with pytest.raises(InputError) as refused:
        load_tasks(settings)
    assert all(word in str(refused.value) for word in ["TASKS_FILE", problem, *words]), refused.value


def test_all_bad_rows_are_named(tmp_path, capsys):
    """One message for the whole file: an error if no row can be used, otherwise a line on stderr."""
    bad = [SET | {"code": None}, mbpp_row("def f(x):", "assert f(1)", number=2),
            mbpp_row("def g(x): return 1", "assert f(1)", number=3),
            mbpp_row("def f(x): return g(x)\ndef g(x): return 1", "assert f(1) == g(1)", number=4),
            SET | {"test": ["assert"]}, SET | {"test": "assert ("}]

    with pytest.raises(InputError) as refused:
        load(tmp_path, *bad)
    assert [task.name for task in load(tmp_path, *bad, SET, SET)] == ["MBPP/1"]
    message, line = str(refused.value), capsys.readouterr().err
    assert "row 8: MBPP/1 occurs twice. Left out; 1 rows can be used" in line and line.count("\n") == 1
    for word in ("row 1: code missing", "2: expected an indented block", "3: its tests call none", "4: its tests call f and g",
                 "1: test is not text", "1: '(' was never closed"):
        assert word in message and word in line, word
    with pytest.raises(InputError, match="HumanEval/0: its solution defines no f"):
        load(tmp_path, humaneval_row("    return x", "assert candidate(1)", prompt="def other(x):\n"))


# The published files

def read(path):
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]


def different_calls(row, name) -> list[str]:
    """The arguments of the dataset's own check, recorded in this process: an oracle for the sandbox's recording."""
    human, seen, scope = "entry_point" in row, {}, {}
    random.seed(0)
    exec(row["prompt"] + row["canonical_solution"] if human else "\n".join([*row["test_imports"], row["code"]]), scope)
    function = scope[name]

    def stand_in(*arguments):
        seen.setdefault(repr(arguments), copy.deepcopy(arguments))
        return function(*arguments)

    exec(f"{row['test']}\ncheck(stand_in)" if human else "\n".join(row["test_list"]),
         scope | {"stand_in": stand_in} | ({} if human else {name: stand_in}))
    return list(seen)


@pytest.mark.parametrize("provider, count", [("humaneval", 164), ("mbpp", 427)])
def test_a_few_published_problems(box, files, provider, count):
    """All problems load; for a few of them the solution passes, and an answer of the wrong type does not."""
    settings = DataSettings(tasks=provider, split="heldout", tasks_file=str(files[provider]))
    tasks = load_tasks(settings)
    few = tasks[:6]
    grader = ProgramGrader(box, few, 0.5, 0)

    assert len(tasks) == count == len({task.name for task in tasks})
    assert all(grade.correct for grade in grader.grade([Completion(task, f"```python\n{task.reference}\n```") for task in few]))
    assert not any(grade.correct for grade in grader.grade([
        Completion(task, f"```python\ndef {task.entry_point}(*given):\n    return object()\n```") for task in few]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@pytest.mark.parametrize("provider, count", [("humaneval", 164), ("mbpp", 427)])
def test_every_published_problem(box, files, provider, count):
    """Every solution passes the whole grader; its cases are the different calls of its own tests, with two exceptions."""
    rows = {f"MBPP/{row['task_id']}" if provider == "mbpp" else row["task_id"]: row for row in read(files[provider])}
    tasks = load_tasks(DataSettings(tasks=provider, split="heldout", tasks_file=str(files[provider])))
    grader = ProgramGrader(box, tasks, 0.5, 0)
    grades = grader.grade([Completion(task, f"```python\n{task.reference}\n```") for task in tasks])
    none = grader.grade([Completion(task, f"```python\ndef {task.entry_point}(*given):\n    return None\n```") for task in tasks])

    odd = {"MBPP/123": -1, "MBPP/124": 0}     # a test that takes seconds; complex numbers, which are converted
    assert len(tasks) == count
    assert [(task.name, grade) for task, grade in zip(tasks, grades, strict=True) if not grade.correct] == []
    assert [task.name for task, grade in zip(tasks, none, strict=True) if grade.correct] == []
    for task in tasks:
        calls = different_calls(rows[task.name], task.entry_point)
        inputs = [positional for positional, _ in task.record(box)[0]]
        if task.name in odd:
            assert len(inputs) == len(calls) + odd[task.name]
        else:
            assert list(map(repr, inputs)) == calls, task.name
