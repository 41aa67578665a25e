"""Nesting that does nothing: what is taken out of a right program, and what is paid for the rest."""

import ast
import json
import random
import time

import pytest

from rl.rewards.base import Completion
from rl.rewards.bearing import MAX_VARIANTS, entry_function, hides, lightest_of, variants, weight
from rl.rewards.lisp import ProgramGrader, score_style
from rl.rewards.source import parse_source
from rl.sandbox import Sandbox
from rl.settings import config
from tasks.lc_easy_tasks import TASKS

BY_NAME = {task.name: task for task in TASKS}
WORDS = "def count_words(s):\n    return {}\n"
EVENS = "def keep_even(nums):\n    return {}\n"

# program: what is left of its expression once idle calls are out
GAMED = {
    WORDS.format("len(list(list(s.split())))"): "len(s.split())",
    WORDS.format("max([min([len(s.split())])])"): "len(s.split())",
    WORDS.format("(lambda n: n)((lambda k: k)(len(s.split())))"): "len(s.split())",
    WORDS.format("len(s.split()) or 0 * len(sorted(set(map(str, s))))"): "len(s.split())",
    WORDS.format("len(s.split()) if len(s) > 0 else sum(map(int, sorted(s)))"): "len(s.split())",
    WORDS.format("[n for n in [len(s.split())]][0]"): "len(s.split())",
    WORDS.format("sum(sum([len(s.split())]) for _ in range(1))"): "len(s.split())",
    WORDS.format("max(len(s.split()), -1, *map(len, sorted(s.split()[:0])))"): "len(s.split())",
    "from operator import methodcaller\n" + WORDS.format("len(methodcaller('split')(s))"): "len(s.split())",
    EVENS.format("list(filter(lambda n: n % 2 == 0, list(list(nums))))"): "list(filter(lambda n: n % 2 == 0, nums))",
    EVENS.format("[n for n in sorted(nums, key=lambda x: 0) if n % 2 == 0]"): "[n for n in nums if n % 2 == 0]",
    EVENS.format("sum([[n for n in nums if n % 2 == 0]], [])"): "[n for n in nums if n % 2 == 0]",
}
HONEST = [
    WORDS.format("len(s.split())"), WORDS.format("[sum(1 for word in s.split(' ') if word)]"),
    EVENS.format("list(filter(lambda n: n % 2 == 0, nums))"), EVENS.format("[n for n in nums if n % 2 == 0]"),
    "def digit_sum(n):\n    return sum(map(int, str(abs(n))))\n",
    "def running_sum(nums):\n    return [sum(nums[:i + 1]) for i in range(len(nums))]\n",
    "def median(nums):\n    return (lambda xs: (xs[len(xs) // 2] + xs[~(len(xs) // 2)]) / 2)(sorted(nums))\n",
]
HIDING = [
    "def f(s):\n    return eval('len(s)')", "def f(s):\n    return __builtins__['len'](s)",
    "def f(s):\n    return getattr(s, 'a' + s)()", "def f(s):\n    return s\n(f := len)",
    "import builtins\ndef f(s):\n    return builtins.len(s)", "from builtins import len as g\ndef f(s):\n    return g(s)",
    "def f(s):\n    return len(s)\nfrom math import isqrt as f", "def f(s):\n    return len(s)\nf = len",
    "def g(h):\n    return len\n@g\ndef f(s):\n    return sorted(s)", "def f(s):\n    return len(s)\nclass f(int):\n    pass",
    "def f(s):\n    return (lambda: 0).__globals__['len'](s)", "def f(s):\n    return [f for f in [len]]",
    "def f(s):\n    return __import__('os').getpid()",
]
PLAIN = [
    "def f(s):\n    return len(s)", "f = lambda s: len(s)", "class Solution:\n    def f(self, s):\n        return len(s)",
    "from functools import cache\n@cache\ndef f(n):\n    return f(n - 1) if n else 0",
    "def f(s):\n    return getattr(s, 'lower')()", "import functools\n@functools.lru_cache()\ndef f(n):\n    return n",
    "def f(s):\n    return 1\ndef f(s):\n    return 2",
]


@pytest.fixture(scope="module")
def box():
    with Sandbox(workers=2, allow_weak=True) as box:
        yield box


def task_of(source):
    return BY_NAME[source.partition("def ")[2].partition("(")[0]]


def graded(box, sources, style_depth="bearing"):
    tasks = [task_of(source) for source in sources]
    grader = ProgramGrader(box, [*dict.fromkeys(tasks)], 0.5, 1, style_depth=style_depth)
    return grader.grade([Completion(task, f"```python\n{source}\n```") for task, source in zip(tasks, sources, strict=True)])


# ---- what is left ----------------------------------------------------------------------------------------------------

def test_idle_calls_are_taken_out(box):
    """All programs at once; `idle` is the calls and clauses that came out, counted here on what is known to be left."""
    for (source, left), grade in zip(GAMED.items(), graded(box, GAMED), strict=True):
        before, after = (weight(ast.parse(text)) for text in (source, left))

        assert grade.correct, (source, grade)
        assert (grade.idle, grade.depth) == (before - after, score_style(source, task_of(source).name, True).depth), source


def test_honest_programs_are_left_alone(box):
    """Their style is the one as written, and nothing is idle."""
    for source, paid, written in zip(HONEST, graded(box, HONEST), graded(box, HONEST, "written"), strict=True):
        assert paid == written._replace(wall_s=paid.wall_s) and paid.correct and paid.idle == 0, source


def test_only_needed_nesting_is_paid(box):
    """One level more is paid as written, two halve the style of what one more would earn, three leave none."""
    wrapped = [WORDS.format(text) for text in ("len(s.split())", "abs(len(s.split()))", "abs(abs(len(s.split())))",
                                               "abs(abs(abs(len(s.split()))))")]
    styles = [grade.style for grade in graded(box, wrapped)]

    assert styles == pytest.approx([0.4 + 0.12, 0.4 + 0.18, (0.4 + 0.18) / 2, 0.0])
    assert [grade.style for grade in graded(box, wrapped, "written")] == pytest.approx([0.52, 0.58, 0.64, 0.7])


def test_a_value_put_in_may_nest_deeper():
    """A called lambda whose body takes a nested value is lighter with the value put in, and deeper: it is paid as written."""
    source = "def f(s):\n    return (lambda x: len(list(set(x))))(sorted(map(str, s)))"
    lightest = "def f(s):\n    return len(list(set(sorted(map(str, s)))))"

    assert lightest in variants(source, "f")
    assert score_style(source, "f", True, lightest) == score_style(source, "f", True)._replace(idle=1)


def test_what_a_program_hides_is_not_paid():
    """Run text, the interpreter's tables and an entry that is bound otherwise; a cache around it is no disguise."""
    for source in HIDING:
        assert hides(ast.parse(source), "f") and score_style(source, "f", True, source).style == 0, source
    for source in PLAIN:
        assert not hides(ast.parse(source), "f") and score_style(source, "f", True, source) == score_style(source, "f", True)


def test_the_setting_reaches_the_grader(box):
    """STYLE_DEPTH decides what a run pays for, and the default is what the program needs."""
    source = WORDS.format("abs(abs(abs(len(s.split()))))")
    completion = Completion(task_of(source), f"```python\n{source}\n```")
    paid = [ProgramGrader.for_run(box, [completion.task], config.load(environ).settings).grade([completion])[0].style
            for environ in ({}, {"STYLE_DEPTH": "bearing"}, {"STYLE_DEPTH": "written"})]

    assert paid == [0, 0, pytest.approx(0.7)]


def test_written_style_runs_nothing_more():
    """STYLE_DEPTH=written asks the sandbox once, for the programs themselves."""
    class Box:
        asked = 0

        def expect(self, *_, **__):
            return "suite"

        def grade(self, jobs):
            self.asked += 1
            return [type("Result", (), {"verdict": "pass", "detail": "", "flags": (), "wall_s": 0.0})() for _ in jobs]

    for style_depth, idle in (("written", 0), ("bearing", 2)):    # here everything passes, so all calls come out
        box = Box()
        [grade] = graded(box, [WORDS.format("len(s.split())")], style_depth)
        assert (box.asked > 1, grade.idle) == (idle > 0, idle)


# ---- variants --------------------------------------------------------------------------------------------------------

def test_a_variant_is_a_program_with_fewer_calls():
    """Each is readable, has the same function, and comes once; the lightest are first."""
    for source in (*GAMED, *HONEST, *(task.reference for task in TASKS)):
        name = task_of(source).name
        found = variants(source, name)
        weights = [weight(ast.parse(text)) for text in found]

        assert len(found) == len({*found}) <= MAX_VARIANTS and weights == sorted(weights)
        assert all(entry_function(ast.parse(text), name) for text in found)
        assert max(weights, default=-1) < weight(ast.parse(source))


def test_bound_names_stay_where_they_are_bound():
    """No variant takes an expression out of the lambda or comprehension that binds a name in it."""
    source = "def f(xs):\n    return [g(x) for x in xs if h(x)] + list(map(lambda y: k(y), xs))"

    free = [node.id for text in variants(source, "f") for node in _free_names(text)]

    assert {*free} <= {"g", "h", "k", "xs", "list", "map"}


def _free_names(text):
    tree = ast.parse(text)
    bound = {node.target.id for node in ast.walk(tree) if isinstance(node, ast.comprehension)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id not in bound]


@pytest.mark.parametrize("source", [
    "def f(s):\n    return " + "g(" * 90 + "s" + ")" * 90, "def f(s):\n    return " + "+".join(["g(s)"] * 3000),
    f"def f(s):\n    return g(0x{'f' * 9000}, h(s))", "def f(s):\n    return f'{g(s)!r:>{h(s)}}'", "x = 1", "def f(s) return",
    "def f(s):\n    match g(s):\n        case [a, *b] if h(a): return k(b)", "async def f(s):\n    return await g(s)", "",
    "def f(s):\n    return [*g(s), {**h(s)}, *(yield)]", "f = lambda s, *a, k=g(), **d: g(*a, **d)[h(s):k:1, ...]"])
def test_any_source_has_variants_or_none(source):
    """Nothing that can be parsed raises, however it is written, and what has no function has none."""
    found = variants(source, "f")

    assert len(found) <= MAX_VARIANTS and (parse_source(source) or not found)


@pytest.mark.parametrize("expression", ["+".join(["g(s)"] * 84), "-".join(["g(s - 1)"] * 50), "g(" * 90 + "s" + ")" * 90,
                                        "(lambda x: " * 40 + "g(x)" + ")(s)" * 40, "[" * 80 + "g(s)" + "]" * 80,
                                        "g(-" * 90 + "s" + ")" * 90, "(lambda x: " * 60 + "g(-x)" + ")(s)" * 60])
def test_no_program_stalls_the_trainer(expression):
    """The largest that are looked at take a second of this thread, not minutes; larger ones are taken as they are."""
    source, begun = f"def f(s):\n    return {expression}", time.thread_time()
    variants(source, "f")

    assert sum(1 for _ in ast.walk(ast.parse(source))) > 150 and time.thread_time() - begun < 5
    assert variants(f"def f(s):\n    return {'+'.join(['g(s)'] * 400)}", "f") == []


def test_the_lightest_that_passes_is_taken():
    """Rounds go on while something passes; a program with none keeps its own source, and each is asked about for itself."""
    sources = [("def f(s):\n    return a(b(c(s)))", "f"), ("def f(s):\n    return d(s)", "f")]
    rounds = []

    def passes(tried):
        rounds.append(tried)
        return ["b(" in text and "s)" in text.split("return")[1] and i == 0 for i, text in tried]

    first, second = lightest_of(sources, passes)
    assert first == "def f(s):\n    return b(s)" and second == sources[1][0]
    assert {i for i, _ in rounds[0]} == {0, 1} and all({i for i, _ in tried} <= {0} for tried in rounds[1:])
    assert lightest_of([], passes) == []


def test_values_stand_in_for_parameters():
    """A called lambda becomes its body, a comprehension over one element that element: the answers stay what they were."""
    rng, checked = random.Random(0), 0
    for expression in ("(lambda a, b: a * 2 + abs(b))(x + 1, x)", "[abs(a) + x for a in [x * 3]]", "getattr(x, 'real')",
                       "(lambda a: (lambda b: b + a)(a))(abs(x))"):
        kept = [text for text in variants(f"def f(x):\n    return {expression}", "f")
                if all(_value(text, x) == eval(expression, {"x": x}) for x in (rng.randint(-9, 9) for _ in range(20)))]
        checked += bool(kept)
    assert checked == 4


def _value(text, x):
    scope = {}
    exec(text, scope)
    try:
        return scope["f"](x)
    except Exception:
        return None


# ---- collected programs ----------------------------------------------------------------------------------------------

def test_collected_gaming_programs_earn_little(box, shared_dir):
    """Their mean style is below half of the honest ones', and none of the right ones earns more than the best honest one."""
    if not (file := shared_dir / "cases/style_gaming.jsonl").is_file():
        pytest.skip(f"needs {file}")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
    grades = graded(box, [row["source"] for row in rows])
    written = graded(box, [row["source"] for row in rows], "written")
    gaming = [grade.style for row, grade in zip(rows, grades, strict=True) if not row["honest"] and grade.correct]
    honest = [grade.style for row, grade in zip(rows, grades, strict=True) if row["honest"]]

    assert honest == [grade.style for row, grade in zip(rows, written, strict=True) if row["honest"]]
    assert sum(gaming) / len(gaming) < 0.5 * sum(honest) / len(honest) and max(gaming) <= max(honest)
