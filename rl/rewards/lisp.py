"""The reward of programs: correctness from the sandbox, style from the syntax tree, one number for both.

reward = 0 if wrong, 1 + style_weight * style if correct, nan where the grader failed (masked, never learnt from).
style in [0, 1] = ((pure + depth + wrap) / scale - penalty) * bearing, never below 0:

    pure     0.4   apart from docstrings the body is one `return` of one expression
    depth    0.3 * min(depth, 5) / 5, the deepest nesting of calls and comprehension clauses in the entry function's body
    wrap     0.3   a scalar returned as a one-element list
    scale    1, or 0.7 where wrap cannot be earned: the answer is a list, or the task's grader refuses `[x]` for x
    bearing  1, or less where nesting does nothing

The choices made here:
- The whole program must be pure: besides imports and docstrings the module holds only functions (a named lambda is one), each
  of them pure, so that a loop cannot hide in a helper. Nor can it hide in text: no `exec`, no `eval`.
- A program that is not pure earns half its depth and neither pure nor wrap.
- 0.02 off for each code line beyond two (def and return), 0.1 at most; blank lines, comments, docstrings and imports are free.
  0.05 off for a tab in the indentation of any code line. Both come after the scale: the same price everywhere.
- A source that does not parse, or lacks the function, has style 0.
So a statement body never outranks a pure program: the first has at most 0.15 (0.15 / 0.7 on a list task), the second at
least 0.4 - 0.15 (0.4 / 0.7 - 0.15), whatever their depth, length and tabs.

STYLE_DEPTH=bearing: only nesting that does something is paid. Calls and clauses are taken out of a right program for as long as
it stays right (bearing.py); the nesting of what is left is its bearing depth. One level more is paid all the same, because most
of those that come out of real programs are a copy, a shortcut or an equal way. Two more halve the style, three leave nothing,
nor does a program that hides what it runs. `idle` counts the calls and clauses that came out.
STYLE_DEPTH=written: nesting is paid as it stands, and `idle` is 0. The reference run was paid so."""

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rl.errors import InputError
from rl.registry import register_objective, register_reward
from rl.rewards.base import Combiner, Completion, Grade, Grader
from rl.rewards.bearing import COMPREHENSIONS, entry_function, hides, lightest_of, weight
from rl.rewards.source import extract_code, parse_source
from rl.sandbox import Result, Sandbox, SandboxError
from rl.settings.declared import Settings
from rl.tasks import Task, make_suite

PURE, DEPTH, WRAP = 0.4, 0.3, 0.3
FULL_DEPTH = 5                # deeper nesting earns no more
IMPURE_DEPTH_SHARE = 0.5
FREE_LINES = 2                # `def` and `return`
LINE_PENALTY, MAX_LINE_PENALTY, TAB_PENALTY = 0.02, 0.1, 0.05
RECHECK_CASES = 2**33    # added to CASE_SEED; the seeds of probes end below

BEARING = (1.0, 1.0, 0.5)     # what is left of a style by the levels of nesting that do nothing; beyond them nothing
SPARE = 1                     # levels that do nothing and are paid


class Style(NamedTuple):
    """What the syntax tree of a program shows."""

    style: float    # in [0, 1]
    depth: int      # as written
    calls: int      # calls in the entry function's body
    pure: bool
    idle: int       # calls and comprehension clauses that the program is right without


@register_reward("lisp_reward", reads=("style_weight", "style_depth", "recheck_share"))
class ProgramGrader(Grader):
    """Grades programs on hidden cases that are made once, here, from case_seed (probes use other seeds)."""

    needs = "reference"
    has_cases = True

    def __init__(self, sandbox: Sandbox, tasks: Sequence[Task], style_weight: float, case_seed: int,
                 settings: Settings | None = None, style_depth: str = "written"):
        """settings: what a second grader is made from; without it there is none. style_depth: STYLE_DEPTH."""
        self._sandbox, self._style_weight, self._settings, self._style_depth = sandbox, style_weight, settings, style_depth
        self._suites, problems = {}, {}
        for task in tasks:
            try:
                self._suites[task.name] = make_suite(sandbox, task, case_seed)
            except SandboxError as failure:
                problems[task.name] = f"{task.name}: {failure}"
        if problems:
            more = f"; and {len(problems) - 8} more" if len(problems) > 8 else ""
            without = f"-{',-'.join(problems)}" if len(problems) < len(tasks) else "<others>"
            shown = "; ".join([*problems.values()][:8]) + more
            raise InputError(f"{len(problems)} of {len(tasks)} tasks cannot be graded: {shown}. Raise "
                             f"CASE_SECONDS if they need more time, or go without them: TASK_NAMES={without}")

    @classmethod
    def open_judge(cls, settings: Settings, workers: int = 0) -> Sandbox:
        """The sandbox that runs the programs; workers: 0 for SANDBOX_WORKERS."""
        s = settings.sandbox
        return Sandbox(workers or s.sandbox_workers, s.case_seconds, s.allow_weak_sandbox)

    @classmethod
    def for_run(cls, judge: Sandbox, tasks: Sequence[Task], settings: Settings, case_shift: int = 0) -> "ProgramGrader":
        """The grader of these tasks; case_shift is added to CASE_SEED."""
        reward = settings.reward
        return cls(judge, tasks, reward.style_weight, settings.data.case_seed + case_shift, settings, reward.style_depth)

    @contextmanager
    def second_grader(self, tasks: Sequence[Task]) -> Iterator["ProgramGrader"]:
        """A grader of correctness on other cases, in a sandbox of its own."""
        with self.open_judge(self._settings, workers=1) as sandbox:
            yield type(self)(sandbox, tasks, self._style_weight, self._settings.data.case_seed + RECHECK_CASES)

    def grade(self, completions: Sequence[Completion]) -> list[Grade]:
        """One Grade for each completion, in order."""
        tasks = [completion.task for completion in completions]
        codes = [extract_code(completion.text, task.entry_point) for completion, task in zip(completions, tasks, strict=True)]
        results = self._run(tasks, codes)
        lightest: list[str | None] = [None] * len(codes)
        if self._style_depth == "bearing":
            right = [i for i, result in enumerate(results) if result.verdict == "pass"]
            found = lightest_of([(codes[i], tasks[i].entry_point) for i in right], lambda tried: self._pass(
                [tasks[right[which]] for which, _ in tried], [code for _, code in tried]))
            for i, source in zip(right, found, strict=True):
                lightest[i] = source
        return [self._combine(*one) for one in zip(tasks, codes, results, lightest, strict=True)]

    def _run(self, tasks: Sequence[Task], codes: Sequence[str]) -> list[Result]:
        """What the sandbox says of each program, all in one call."""
        return self._sandbox.grade([(task.program(code), self._suites[task.name])
                                    for task, code in zip(tasks, codes, strict=True)])

    def _pass(self, tasks, codes):
        return [result.verdict == "pass" for result in self._run(tasks, codes)]

    def _combine(self, task: Task, code: str, result: Result, lightest: str | None) -> Grade:
        style = score_style(code, task.entry_point, task.scalar and task.one_element_list, lightest)
        return Grade(code=code, verdict=result.verdict, correct=result.verdict == "pass",
                     reward=reward_of(result.verdict, style.style, self._style_weight),
                     detail=result.detail, flags=result.flags, wall_s=result.wall_s, **style._asdict())


@register_objective("lisp")
class Lisp(Combiner):
    """Pays the reward of programs unchanged."""

    unchanged = True

    def reward_names(self) -> tuple[str, ...]:
        """The sandbox's reward alone."""
        return ("lisp_reward",)

    def combine_rewards(self, scores: dict[str, list[float]]) -> list[float]:
        """That reward."""
        return scores["lisp_reward"]


def reward_of(verdict: str, style: float, style_weight: float) -> float:
    """0 for a wrong answer, 1 + style_weight * style for a right one, nan where the grader itself failed."""
    if verdict == "internal_error":
        return float("nan")
    return 1.0 + style_weight * style if verdict == "pass" else 0.0


def score_style(source: str, entry_point: str, scalar: bool, lightest: str | None = None) -> Style:
    """Style of one program; scalar says that wrap can be had (a scalar answer that may come as a one-element list).

    lightest: the program without its idle calls (bearing.py), to pay for nesting that does something; None: as written."""
    tree = parse_source(source)
    body = None if tree is None else _entry_body(tree, entry_point)
    if body is None:
        return Style(style=0.0, depth=0, calls=0, pure=False, idle=0)
    pure = _is_pure(tree)
    depth = nesting_depth(body)
    bearing, idle, share = depth, 0, 1.0
    if lightest is not None:
        least = tree if lightest == source else parse_source(lightest) or tree
        bearing, idle = nesting_depth(_entry_body(least, entry_point) or []), weight(tree) - weight(least)
        share = 0.0 if hides(tree, entry_point) else (*BEARING, 0.0)[max(0, min(depth - bearing, len(BEARING)))]
    paid = min(depth, bearing + SPARE, FULL_DEPTH)
    earned = DEPTH * paid / FULL_DEPTH * (1 if pure else IMPURE_DEPTH_SHARE)
    if pure:
        earned += PURE + WRAP * (scalar and _is_wrapped(body))
    style = earned / (1 if scalar else PURE + DEPTH) - _penalty(source, tree)
    calls = sum(isinstance(node, ast.Call) for statement in body for node in ast.walk(statement))
    return Style(max(0.0, style) * share, depth, calls, pure, idle)


def nesting_depth(body: Sequence[ast.AST]) -> int:
    """Calls and comprehension clauses along the deepest path; function and arguments alike are inside their call."""
    deepest, todo = 0, [(node, 0) for node in body]
    while todo:    # not recursive: the parser takes trees deeper than Python's own stack
        node, above = todo.pop()
        if isinstance(node, COMPREHENSIONS):
            todo += _clauses(node, above)
            continue
        depth = above + isinstance(node, ast.Call)
        deepest = max(deepest, depth)
        todo += [(child, depth) for child in ast.iter_child_nodes(node)]
    return deepest


def _clauses(node: ast.AST, depth: int) -> list[tuple[ast.AST, int]]:
    """A comprehension's parts with the depth each stands at: clauses nest in order, the element is innermost."""
    inner = depth + len(node.generators)
    parts = [(clause, depth + level) for level, clause in enumerate(node.generators, 1)]
    elements = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
    return parts + [(element, inner) for element in elements]


def _entry_body(tree: ast.Module, name: str) -> list[ast.stmt] | None:
    """The statements of the function that runs under that name."""
    function = entry_function(tree, name)
    return [ast.Return(function.body)] if isinstance(function, ast.Lambda) else getattr(function, "body", None)


def _is_pure(tree: ast.Module) -> bool:
    functions_only = all(isinstance(node, (ast.FunctionDef, ast.Import, ast.ImportFrom)) or _is_named_lambda(node)
                         for node in _without_docstrings(tree.body))
    return functions_only and all(_returns_one_expression(node) and not _runs_text(node) for node in ast.walk(tree))


def _returns_one_expression(node: ast.AST) -> bool:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return True
    body = _without_docstrings(node.body)
    return len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None


def _runs_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("exec", "eval")


def _is_named_lambda(node: ast.AST) -> bool:
    return (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Lambda))


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _without_docstrings(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    return [node for node in body if not _is_docstring(node)]


def _is_wrapped(body: Sequence[ast.stmt]) -> bool:
    """True when a pure body returns `[x]`."""
    value = _without_docstrings(body)[0].value
    return isinstance(value, ast.List) and len(value.elts) == 1 and not isinstance(value.elts[0], ast.Starred)


def _penalty(source: str, tree: ast.Module) -> float:
    lines = _code_lines(source, tree)
    tabs = any("\t" in line[:len(line) - len(line.lstrip())] for line in lines)
    return min(MAX_LINE_PENALTY, LINE_PENALTY * max(0, len(lines) - FREE_LINES)) + TAB_PENALTY * tabs


def _code_lines(source: str, tree: ast.Module) -> list[str]:
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")    # the parser's own idea of a line
    free = {line for node in ast.walk(tree) if _is_docstring(node) or isinstance(node, (ast.Import, ast.ImportFrom))
            for line in range(node.lineno, node.end_lineno + 1)}
    return [line for number, line in enumerate(lines, 1)
            if number not in free and line.strip() and not line.lstrip().startswith("#")]
