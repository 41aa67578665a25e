"""The style scorer against the published figures and hand counts; the grader with a double and the real sandbox."""

import math
import sys
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl.errors import InputError
from rl.rewards.base import Completion, Grade, GradedSample
from rl.rewards.grading import weak_passes
from rl.rewards.lisp import (
    DEPTH,
    IMPURE_DEPTH_SHARE,
    MAX_LINE_PENALTY,
    PURE,
    TAB_PENALTY,
    ProgramGrader,
    Style,
    reward_of,
    score_style,
)
from rl.sandbox import Sandbox, SandboxError
from rl.tasks import Task


def style_of(expression, scalar=True, parameters="s"):
    return score_style(f"def f({parameters}):\n    return {expression}\n", "f", scalar)


PUBLISHED = [    # body, answer is scalar, correct, style, depth, reward
    ("def gcd(a, b):\n    while b:\n        a, b = b, a % b\n    return a", "gcd", True, True, 0.000, 0, 1.000),
    ("def gcd(a, b):\n    return a if not b else gcd(a, b - a)", "gcd", True, True, 0.460, 1, 1.230),
    ("def count_vowels(s):\n    return len([char for char in s if char in 'aeiouAEIOU'])", "count_vowels", True, True,
     0.520, 2, 1.260),
    ("def count_vowels(s):\n    return sum(1 for char in s.strip().lower() if char in 'aeiou')", "count_vowels", True,
     True, 0.640, 4, 1.320),
    ("def flatten(nested):\n    return [item for sublist in nested for item in sublist]", "flatten", False, True,
     0.743, 2, 1.371),
    ("def flatten(nested):\n    return list(item for item in nested if not isinstance(item, list))", "flatten", False,
     False, 0.829, 3, 0.0),
]


@pytest.mark.parametrize(("source", "entry_point", "scalar", "correct", "style", "depth", "paid"), PUBLISHED)
def test_published_figures(source, entry_point, scalar, correct, style, depth, paid):
    """The reference scorer's six published figures: style and depth of the code, reward with what the grader said."""
    got = score_style(source, entry_point, scalar)
    assert (round(got.style, 3), got.depth) == (style, depth)
    assert round(reward_of("pass" if correct else "wrong_answer", got.style, 0.5), 3) == paid


@pytest.mark.parametrize(("expression", "depth", "calls"), [
    ("s", 0, 0),
    ("s + 1", 0, 0),
    ("f(s)", 1, 1),
    ("f(g(s))", 2, 2),
    ("f(g(s), h(s))", 2, 3),
    ("s.a().b().c()", 3, 3),
    ("f(s.a())", 2, 2),
    ("f(s)(s)(s)", 3, 3),
    ("f(*g(s), **h(s))", 2, 3),
    ("f(key=g(s))", 2, 2),
    ("[x for x in s]", 1, 0),
    ("[x for x in f(s)]", 2, 1),                      # the first iterable is inside its clause
    ("[f(x) for x in s]", 2, 1),
    ("[x for x in s if f(x)]", 2, 1),
    ("[x for y in s for x in y]", 2, 0),
    ("[x for y in f(s) for x in y]", 2, 1),           # f is inside the first clause only
    ("[x for y in s for x in f(y)]", 3, 1),
    ("[x for y in s if f(y) for x in y]", 2, 1),
    ("[f(x) for y in s for x in y]", 3, 1),
    ("{x: f(x) for x in s}", 2, 1),
    ("{f(x): x for x in s}", 2, 1),
    ("{x for x in s}", 1, 0),
    ("f(x for x in [y for y in s])", 3, 1),
    ("(lambda x: f(g(x)))(s)", 3, 3),                 # what the lambda holds is inside the call of the lambda
    ("f'{g(h(s))}'", 2, 2),
    ("f(s) if g(h(s)) else s", 2, 3),
    ("f(s)[g(s)]", 1, 2),
])
def test_depth_and_calls_by_hand(expression, depth, calls):
    """Calls nest through function and arguments, clauses nest in order; what stands side by side does not add up."""
    got = style_of(expression)
    assert (got.depth, got.calls) == (depth, calls)


def test_depth_stops_paying_at_five():
    """Six nested calls earn what five do, and the report still says six."""
    five, six = style_of("f(f(f(f(f(s)))))"), style_of("f(f(f(f(f(f(s))))))")
    assert five.style == six.style == pytest.approx(0.7)
    assert (five.depth, six.depth) == (5, 6)


def test_the_best_possible_style_is_one():
    """Pure, deep and wrapped is exactly 1; on a list task pure and deep is."""
    assert style_of("[f(f(f(f(f(s)))))]").style == 1.0
    assert style_of("f(f(f(f(f(s)))))", scalar=False).style == 1.0


@pytest.mark.parametrize(("expression", "wrapped"), [
    ("[s]", True), ("[[s]]", True), ("[*s]", False), ("[s, s]", False), ("[]", False), ("(s,)", False), ("{s}", False),
    ("[x for x in s]", False), ("list(s)", False), ("s or [s]", False)])
def test_wrap_is_a_list_of_one_element(expression, wrapped):
    """Only a list display of exactly one element that is not starred is the wrap, and only for a scalar answer."""
    depth = style_of(expression).depth
    assert style_of(expression).style == pytest.approx(0.4 + 0.06 * depth + 0.3 * wrapped)
    assert style_of(expression, scalar=False).style == pytest.approx((0.4 + 0.06 * depth) / 0.7)


@pytest.mark.parametrize("source", [
    "def f(s):\n    return g(s)",
    'def f(s):\n    """Doc."""\n    return g(s)',
    "f = lambda s: g(s)",
    "import math\nfrom functools import reduce\n\ndef f(s):\n    # why\n    return g(s)\n",
    '"""Module doc."""\ndef f(s: str) -> int: return g(s)',
    "\ufeffdef f(s):\r\n    return g(s)\r\n",
])
def test_pure_programs(source):
    """A docstring, a comment, imports, line ends and a lambda leave a program pure and cost nothing."""
    assert score_style(source, "f", True) == Style(pytest.approx(0.46), 1, 1, True, 0)


@pytest.mark.parametrize("source", [
    "def f(s):\n    x = g(s)\n    return x",
    "def f(s):\n    return",
    "def f(s):\n    pass",
    "def f(s):\n    g(s)",
    "def f(s):\n    if s: return 1\n    return 0",
    "def h(s):\n    for x in s: y = x\n    return y\ndef f(s):\n    return h(s)",        # a loop hides in a helper
    "def f(s):\n    def h(x):\n        return x\n    return h(s)",
    "x = 1\ndef f(s):\n    return s",
    "def f(s):\n    return s\nprint(f(1))",
    "class A:\n    pass\ndef f(s):\n    return s",
    "class Solution:\n    def f(self, s):\n        return s",
    "def f(s):\n    return [exec('for x in s: pass'), s][1]",
    "def f(s):\n    return s\nasync def h(s):\n    x = 1\n    return x",
    "def f(s):\n    return s\ndef f(s):\n    x = s\n    return x",                      # the last one is what runs
])
def test_impure_programs(source):
    """Statements in the body, in a helper, at module level or in text: not pure, no wrap, half the depth at most."""
    got = score_style(source, "f", True)
    assert not got.pure and got.style <= 0.03 * got.depth


def test_a_pure_helper_keeps_the_program_pure():
    """A second function of one expression is fine; it costs its two lines."""
    source = "def h(s):\n    return g(s)\n\n\ndef f(s):\n    return h(h(s))\n"
    assert score_style(source, "f", True) == Style(pytest.approx(0.4 + 0.12 - 0.04), 2, 2, True, 0)


def test_the_last_definition_counts():
    """As at run time, a later function, lambda or method of the same name is the one that is scored."""
    assert score_style("def f(s): return s\ndef f(s): return g(h(s))", "f", True).depth == 2
    assert score_style("def f(s): return g(h(s))\nf = lambda s: s", "f", True).depth == 0
    solution = "class Solution:\n    def f(self, s): return s\n    def f(self, s): return g(s)\n"
    assert score_style(solution, "f", True).depth == 1
    assert score_style(solution + "def f(s): return g(h(s))", "f", True).depth == 2


def test_extra_lines_and_tabs_cost():
    """0.02 for each code line beyond two, 0.1 at most; 0.05 for a tab in an indentation; tabs elsewhere are free."""
    def of(source):
        return score_style(source, "f", True).style

    assert of("def f(s):\n    return (s +\n\n            # why\n            1)") == pytest.approx(0.38)
    assert of("def f(s):\n    return (" + "\n    s +" * 50 + " s)") == pytest.approx(0.3)
    assert of("def f(s):\n\treturn s") == pytest.approx(0.35)
    assert of("def f(s):\n  \treturn s") == pytest.approx(0.35)
    assert of("def f(s):\n    return s +\t1") == pytest.approx(0.4)
    assert of("def f(s):\n    x = g(s)\n\treturn x") == 0.0                              # does not even parse
    assert of("def f(s):\n    x = g(s)\n    y = x\n    return y") == 0.0                 # never below 0


@pytest.mark.parametrize("source", ["", "def g(s):\n    return s", "f", "def f(s) return s", "f = g", "\0",
                                    "x" * 1_000_000, "def f(s): return " + "g(" * 10_000 + "s" + ")" * 10_000])
def test_no_function_no_style(source):
    """What does not parse, is too long or too deep, or lacks the function has no style and raises nothing."""
    assert score_style(source, "f", True) == Style(0.0, 0, 0, False, 0)


def test_deep_trees_do_not_overflow_the_stack():
    """A tree deeper than Python's recursion limit, which the parser still takes, is scored like any other."""
    source = "def f(s): return " + "+".join(["g(s)"] * 2_000)
    assert sys.getrecursionlimit() < 2_000
    assert score_style(source, "f", True)[1:] == (1, 2_000, True, 0)


AS_STATEMENTS_AND_AS_EXPRESSION = [
    ("total = 0\n    for c in s:\n        if c in 'aeiou':\n            total += 1\n    return total",
     "sum(1 for c in s if c in 'aeiou')"),
    ("x = a(b(c(d(e(s)))))\n    return x", "a(b(c(d(e(s)))))"),
    ("unused = a(b(c(d(e(s)))))\n    return s", "s"),
    ("x = [y for y in a(b(c(d(s))))]\n    return [x]", "s"),
    ("if not s:\n        return 0\n    return len(s)", "len(s) if s else 0"),
]


@pytest.mark.parametrize("scalar", [True, False])
@pytest.mark.parametrize(("statements", "expression"), AS_STATEMENTS_AND_AS_EXPRESSION)
def test_statements_never_outrank_the_expression(statements, expression, scalar):
    """The same program written as statements earns less, however deep its statements nest."""
    assert score_style(f"def f(s):\n    {statements}\n", "f", scalar).style < style_of(expression, scalar).style


EXPRESSIONS = st.recursive(
    st.sampled_from(["s", "1", "[s]", "'a'"]),
    lambda inner: st.one_of(
        st.builds("g({})".format, inner), st.builds("h({}, {})".format, inner, inner),
        st.builds("({}).lower()".format, inner), st.builds("[{} for x in {} if {}]".format, inner, inner, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner), st.builds("(\n{}\n)".format, inner),
        st.builds("(lambda x: {})(s)".format, inner)), max_leaves=12)


@settings(max_examples=200, deadline=None)
@given(statements=st.lists(EXPRESSIONS, min_size=1, max_size=3), returned=EXPRESSIONS, pure=EXPRESSIONS,
       lines=st.integers(0, 40), indent=st.sampled_from(["    ", "\t"]), scalar=st.booleans())
def test_no_statement_body_outranks_any_pure_one(statements, returned, pure, lines, indent, scalar):
    """Stronger than asked: the best statement body stays below the worst pure program; style stays within [0, 1]."""
    body = "".join(f"    x = {e}\n" for e in statements) + f"    return {returned}\n"
    impure = score_style(f"def f(s):\n{body}", "f", scalar)
    worst = score_style(f"def f(s):\n{indent}return (" + "\n" * lines + f"{pure}" + "\n+ s" * lines + ")", "f", scalar)
    assert worst.pure and not impure.pure
    assert 0.0 <= impure.style < worst.style <= 1.0


def test_the_constants_keep_statements_below():
    """The argument in the module's docstring, from its constants: the best impure is below the worst pure program."""
    penalty = MAX_LINE_PENALTY + TAB_PENALTY
    for scale in (1, PURE + DEPTH):
        assert IMPURE_DEPTH_SHARE * DEPTH / scale < PURE / scale - penalty


# ---- the grader ------------------------------------------------------------------------------------------------------

class FakeResult(NamedTuple):
    verdict: str
    passed: int = 0
    total: int = 1
    detail: str = "detail"
    cpu_s: float = 0.0
    wall_s: float = 0.0
    flags: tuple = ()


class FakeSandbox:
    """Says of a code what `verdicts` says; remembers what it was asked."""

    def __init__(self, verdicts):
        self.verdicts, self.expected, self.batches = verdicts, [], []

    def expect(self, source, entry_point, inputs, in_place, **policy):
        self.in_place = in_place
        self.expected.append((source, entry_point, inputs, policy))
        return f"suite {entry_point} {inputs}"

    def grade(self, jobs):
        self.batches.append(list(jobs))
        return [FakeResult(self.verdicts.get(code, "pass")) for code, _ in jobs]


def task(name, scalar=True, one_element_list=True):
    return Task(name=name, text="", signature=f"def {name}(s: int) -> int:", reference=f"def {name}(s): return s",
                examples=((1,),), generate=lambda rng: [(rng.randrange(10**9),) for _ in range(5)], scalar=scalar,
                one_element_list=one_element_list)


def test_the_grader_makes_cases_once_and_grades_in_one_call():
    """Two steps of several completions: one suite a task, one sandbox call a step, grades in the order asked."""
    f, g = task("f"), task("g", scalar=False)
    box = FakeSandbox({"def f(s): return 0": "wrong_answer"})
    grader = ProgramGrader(box, [f, g], style_weight=0.5, case_seed=1)
    texts = [Completion(f, "```python\ndef f(s): return [s]\n```"), Completion(g, "def g(s): return s"),
             Completion(f, "def f(s): return 0")]
    grades = grader.grade(texts)
    grader.grade(texts[:1])

    assert [e[1] for e in box.expected] == ["f", "g"] and box.expected[0][3] == {
        "one_element_list": True, "relative": 1e-6}
    assert [len(batch) for batch in box.batches] == [3, 1]
    assert [(x.code, x.correct) for x in grades] == [
        ("def f(s): return [s]\n", True), ("def g(s): return s", True), ("def f(s): return 0", False)]
    assert [x.reward for x in grades] == pytest.approx([1 + 0.5 * 0.7, 1 + 0.5 * 0.4 / 0.7, 0.0])
    assert grades[2].style == pytest.approx(0.4), "wrong code keeps its style on record, but is paid nothing"


def test_tasks_that_cannot_be_graded_are_all_named():
    """One message for all references that fail, with the ways on; it stays readable when everything fails."""
    class Broken(FakeSandbox):
        def expect(self, *arguments, **policy):
            raise SandboxError("no")

    with pytest.raises(InputError, match=r"^12 of 12 tasks cannot be graded: t0: no; t1: no; .*t7: no; and 4 more\. .*TASK_N"):
        ProgramGrader(Broken({}), [task(f"t{n}") for n in range(12)], 0.5, 0)


def test_what_surrounds_an_answer_is_run_and_not_scored():
    """Preamble and adapter go to the sandbox with the answer, whose code alone is on record; recorded inputs stay as is."""
    f = replace(task("f", scalar=False), preamble="import math", adapter="_graded = f", generate=None,
                record=lambda box: ([(7,)], False), relative=1e-3)
    box = FakeSandbox({})
    grade, = ProgramGrader(box, [f], 0.5, 0).grade([Completion(f, "def f(s): return s")])

    assert box.expected == [(f.program(f.reference), "_graded", [(7,)], {"one_element_list": True, "relative": 1e-3})]
    assert box.in_place is False
    assert box.batches[0][0][0] == "import math\ndef f(s): return s\n_graded = f"
    assert grade.code == "def f(s): return s" and grade.style == pytest.approx(0.4 / 0.7)


def test_a_case_seed_is_other_cases():
    """The probe's seed grades on inputs that training has not seen, and on the prompt's examples."""
    boxes = [FakeSandbox({}), FakeSandbox({}), FakeSandbox({})]
    for box, seed in zip(boxes, (1, 1, 2), strict=True):
        ProgramGrader(box, [task("f")], 0.5, seed)
    inputs = [box.expected[0][2] for box in boxes]
    assert inputs[0] == inputs[1] and {*inputs[0]} & {*inputs[2]} == {*task("f").examples}


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_correctness_gates(weight):
    """No wrong answer is paid, whatever its style; the weight scales the style of a right one; failure is nan."""
    best = "```python\ndef f(s): return [g(g(g(g(g(s)))))]\n```"
    verdicts = ["wrong_answer", "exception", "timeout", "memory", "forbidden_import", "syntax_error", "no_function",
                "output_too_large", "crash"]
    code = "def f(s): return [g(g(g(g(g(s)))))]\n"
    for verdict in verdicts:
        [grade] = ProgramGrader(FakeSandbox({code: verdict}), [task("f")], weight, 0).grade([Completion(task("f"), best)])
        assert (grade.correct, grade.reward, grade.style) == (False, 0.0, 1.0)
    [grade] = ProgramGrader(FakeSandbox({}), [task("f")], weight, 0).grade([Completion(task("f"), best)])
    assert (grade.correct, grade.reward) == (True, 1.0 + weight)
    [grade] = ProgramGrader(FakeSandbox({code: "internal_error"}), [task("f")], weight, 0).grade([Completion(task("f"), best)])
    assert not grade.correct and math.isnan(grade.reward)


def test_no_wrap_where_the_grader_refuses_it():
    """A scalar task whose grader does not take [x] is scored without the component: full style stays within reach."""
    plain = task("f", scalar=True, one_element_list=False)
    [grade] = ProgramGrader(FakeSandbox({}), [plain], 0.5, 0).grade([Completion(plain, "def f(s): return g(g(g(g(g(s)))))")])
    assert grade.style == 1.0


def test_weak_passes_are_graded_again():
    """Only passes are graded again; those that fail on the second cases are counted, grader failures are not."""
    f = task("f")
    completions = [Completion(f, text) for text in ("a = 1", "b = 2", "c = 3", "d = 4")]
    first = ProgramGrader(FakeSandbox({"a = 1": "timeout"}), [f], 0.5, 1)
    second_box = FakeSandbox({"b = 2": "wrong_answer", "c = 3": "internal_error"})
    second = ProgramGrader(second_box, [f], 0.5, 2)
    looked, failed = weak_passes(second, completions, first.grade(completions))
    assert looked == 2 and [(name, grade.correct) for name, grade in failed] == [("f", False)]
    assert [code for code, _ in second_box.batches[0]] == ["b = 2", "c = 3", "d = 4"]


def test_a_grade_is_a_sample_of_the_log():
    """The log's Sample takes a grade field by field, but for the time, which no two runs share."""
    assert (*GradedSample._fields, "wall_s") == ("text", "tokens", "finish", *Grade._fields)


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=1) as box:
        yield box


def gcd_task():
    return Task(name="gcd", text="", signature="def gcd(a: int, b: int) -> int:",
                reference="def gcd(a, b):\n    while b:\n        a, b = b, a % b\n    return a", examples=((12, 18),),
                generate=lambda rng: [(4, 6), (0, 5), *((rng.randrange(99), rng.randrange(99)) for _ in range(5))],
                scalar=True, one_element_list=True)


def test_grading_for_real(sandbox):
    """Right, wrapped, never ending, broken and cut completions through the real sandbox, in one batch."""
    gcd = gcd_task()
    texts = ["```python\ndef gcd(a, b):\n    return a if not b else gcd(b, a % b)\n```",
             "```python\ndef gcd(a, b):\n    return [a if not b else gcd(b, a % b)[0]]\n```",
             "```python\ndef gcd(a, b):\n    return a if not b else gcd(a, b - a)\n```",
             "```python\ndef gcd(a, b):\n    return a if not b else gcd(b,",
             "I do not know.",
             "```python\nimport math\n\ndef gcd(a, b):\n    return math.gcd(a, b)"]
    grades = ProgramGrader(sandbox, [gcd], style_weight=0.5, case_seed=3).grade([Completion(gcd, text) for text in texts])

    assert [grade.correct for grade in grades] == [True, True, False, False, False, True]
    assert [grade.reward for grade in grades] == pytest.approx([1.23, 1.38, 0, 0, 0, 1.23])
    assert grades[3].verdict == "syntax_error" and grades[2].verdict in ("exception", "timeout")


def test_every_task_has_cases_that_its_reference_passes(sandbox):
    """The shipped tasks' own references pass under a seed that nobody tuned, and score a style in range."""
    taskset = pytest.importorskip("tasks.lc_easy_tasks", reason="tasks/lc_easy_tasks.py is not there")
    tasks = list(taskset.TASKS)[::8]
    grader = ProgramGrader(sandbox, tasks, 0.5, case_seed=77)
    grades = grader.grade([Completion(task, f"```python\n{task.reference}\n```") for task in tasks])
    assert {grade.verdict for grade in grades} == {"pass"}
    assert all(0.0 <= grade.style <= 1.0 for grade in grades)
