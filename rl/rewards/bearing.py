"""How much of a program's nesting its answer needs, found by taking calls out and running the hidden cases again.

A call or comprehension clause is idle if the program passes without it. `variants` makes programs with one change each:

- an expression that holds a call or a comprehension becomes one of the expressions inside it, as it is or with one operand of
  its arithmetic left out, or None;
- a lambda that is called becomes its body, a comprehension over one element that element, each with the value put in;
- `getattr(x, "name")` becomes `x.name`, `methodcaller("name", a)(x)` becomes `x.name(a)`;
- an argument, an operand of `and` and `or`, an element of a display, a clause or a condition is dropped.

The lightest variant that passes is changed again, until none passes. Nothing here runs a program: the caller does.

Not found: calls that only together do nothing and stand in different expressions. Found, though they do something: what only
makes a right answer faster, a defensive copy, one of two equal ways."""

import ast
import copy
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple

from rl.rewards.source import parse_source

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Bounds on the time for one program, whatever it is built to do.
MAX_NODES = 600         # of a syntax tree; a larger program is taken as it is, and no honest answer is near it
MAX_CHANGES = 20_000    # in one round: looked at,
MAX_MADE = 256          # made, the lightest of them, among which some are equal,
MAX_VARIANTS = 64       # and run
MAX_ROUNDS = 8
REFLECTION = frozenset("exec eval compile globals locals vars __import__ __builtins__".split())

# The lists from which an item may be dropped, and how many have to stay.
_LEAST = {(ast.Call, "args"): 0, (ast.Call, "keywords"): 0, (ast.comprehension, "ifs"): 0, (ast.BoolOp, "values"): 1,
          (ast.List, "elts"): 0, (ast.Tuple, "elts"): 0, (ast.Set, "elts"): 1,
          **{(kind, "generators"): 1 for kind in COMPREHENSIONS}}


def lightest_of(programs: Sequence[tuple[str, str]], passes: Callable[[list[tuple[int, str]]], Sequence[bool]]) -> list[str]:
    """For each right program, a pair of source and entry point, the lightest variant that is right too, or its own source.

    passes: whether each pair of a program's index and a variant's source passes all hidden cases."""
    best, changing = [source for source, _ in programs], range(len(programs))
    for _ in range(MAX_ROUNDS):
        tried = [(i, variant) for i in changing for variant in variants(best[i], programs[i][1])]
        passed = [pair for pair, right in zip(tried, passes(tried) if tried else (), strict=True) if right]
        changing = list(dict.fromkeys(i for i, _ in passed))
        for i, variant in reversed(passed):    # the lightest of each comes first, so it is set last
            best[i] = variant
    return best


def variants(source: str, entry_point: str) -> list[str]:
    """The program's source with one change each, for changes that leave it fewer calls and clauses; the lightest first."""
    tree = parse_source(source)
    function = tree and entry_function(tree, entry_point)
    if not function or sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        return []
    found: dict[str, None] = {}
    with suppress(RecursionError):    # nested too deep to be copied: what has been made by then
        changes = [change for change in islice(_changes(function), MAX_CHANGES) if change.saved > 0]
        for change in sorted(changes, key=lambda change: -change.saved)[:MAX_MADE]:
            change.put(change.new())
            if text := _text(tree):
                found.setdefault(text)
            change.put(change.old)
            if len(found) == MAX_VARIANTS:
                break
    return [*found]


def weight(node: ast.AST) -> int:
    """Calls and comprehension clauses in a piece of code."""
    return sum(isinstance(part, ast.Call | ast.comprehension) for part in ast.walk(node))


def entry_function(tree: ast.Module, name: str) -> ast.FunctionDef | ast.Lambda | None:
    """What runs under that name: the last function or lambda of the module, as at run time, else a method of Solution."""
    for node in [*reversed(tree.body), *reversed(_methods(tree))]:
        match node:
            case ast.FunctionDef(name=found) if found == name:
                return node
            case ast.Assign(targets=[ast.Name(id=found)], value=ast.Lambda() as function) if found == name:
                return function
    return None


def _methods(tree):
    return [node for cls in tree.body if isinstance(cls, ast.ClassDef) and cls.name == "Solution" for node in cls.body]


def hides(tree: ast.Module, entry_point: str) -> bool:
    """Whether what runs under that name may not be what stands there: text is run, the interpreter's tables are used, or the
    name is bound in any other way than by a plain function or lambda of the module."""
    functions = [*tree.body, *_methods(tree)]
    plain = {id(node) for node in functions if isinstance(node, ast.FunctionDef) and all(map(_keeps, node.decorator_list))}
    plain |= {id(node.targets[0]) for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if name in REFLECTION:
                return True
            case ast.Attribute(attr=name) if name in REFLECTION or name in ("__dict__", "__globals__", "__code__"):
                return True
            case ast.Call(ast.Name("getattr"), [_, name, *_]) if not isinstance(name, ast.Constant):
                return True
            case ast.Import(names) | ast.ImportFrom(names=names):
                if "builtins" in (getattr(node, "module", None), *(one.name for one in names)):
                    return True
                if entry_point in (one.asname or one.name for one in names):
                    return True
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                if name == entry_point and id(node) not in plain:
                    return True
            case ast.Name(id=name, ctx=ast.Store()) if name == entry_point and id(node) not in plain:
                return True
    return False


def _keeps(decorator: ast.expr) -> bool:
    """Whether a decorator is `cache` or `lru_cache` of functools, which leave a function's answers as they are."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) in ("cache", "lru_cache")


def _text(tree: ast.Module) -> str:
    """The tree as source; "" where that cannot be: an integer of thousands of digits, a name where an f-string takes none."""
    try:
        return ast.unparse(tree)
    except (ValueError, RecursionError):
        return ""


# ---- changes ----------------------------------------------------------------------------------------------------------


class _Change(NamedTuple):
    """One place in the tree, what stands there, what to try there, and how much lighter that makes the program."""

    put: Callable[[object], None]
    old: object
    saved: int
    new: Callable[[], object]    # made only for those that are tried


def _changes(function: ast.AST) -> Iterator[_Change]:
    """All changes, those of outer expressions first."""
    nodes = [*ast.walk(function)]
    weights = {}
    for node in reversed(nodes):    # children come after their parents there
        own = isinstance(node, ast.Call | ast.comprehension)
        weights[id(node)] = own + sum(weights[id(child)] for child in ast.iter_child_nodes(node))
    for parent in nodes:
        for field, value in ast.iter_fields(parent):
            places = [(partial(value.__setitem__, i), item) for i, item in enumerate(value)] if isinstance(value, list) else [
                (partial(setattr, parent, field), value)]
            if isinstance(value, list) and len(value) > _LEAST.get((type(parent), field), len(value)):
                for i, item in enumerate(value):
                    yield _Change(partial(setattr, parent, field), value, weights[id(item)],
                                  partial(list, value[:i] + value[i + 1:]))
            for put, item in places:
                if isinstance(item, ast.expr) and weights[id(item)]:
                    yield from (_Change(put, item, weights[id(item)] - left, new) for left, new in _replacements(item, weights))


def _replacements(node: ast.expr, weights: Mapping[int, int]) -> Iterator[tuple[int, Callable[[], ast.expr]]]:
    """What may stand in the place of an expression that holds a call or a comprehension: (weight, a function that makes it)."""
    yield 0, partial(ast.Constant, None)
    for part in _inside(node):
        yield weights[id(part)], lambda part=part: part
        yield from _with_an_operand_less(part, weights)
    match node:
        case ast.Call(ast.Name("getattr"), [value, ast.Constant(str(name))]) if name.isidentifier():
            yield _made(ast.Attribute(value, name, ast.Load()))
        case ast.Call(ast.Call(ast.Name("methodcaller") | ast.Attribute(attr="methodcaller"), [ast.Constant(str(name)), *given]),
                      [value]) if name.isidentifier():
            yield _made(ast.Call(ast.Attribute(value, name, ast.Load()), given, []))
        case ast.Call(ast.Lambda(ast.arguments(posonlyargs=[], args=taken, vararg=None, kwonlyargs=[], kwarg=None), body),
                      given, []):
            if len(taken) == len(given):
                yield _made(_filled(body, {parameter.arg: value for parameter, value in zip(taken, given, strict=True)}))
        case ast.ListComp(element, [clause]) | ast.SetComp(element, [clause]) | ast.GeneratorExp(element, [clause]):
            match clause:
                case ast.comprehension(ast.Name(name), ast.List([value]) | ast.Tuple([value]), []):
                    yield _made(ast.List([_filled(element, {name: value})], ast.Load()))


def _made(node: ast.expr) -> tuple[int, Callable[[], ast.expr]]:
    return weight(node), lambda: node


def _inside(node: ast.expr) -> Iterator[ast.expr]:
    """The expressions inside it, outer ones first, but for those with a name that is bound in between."""
    todo = deque((child, _binds(node)) for child in ast.iter_child_nodes(node))
    while todo:
        part, bound = todo.popleft()
        if isinstance(part, ast.expr) and not isinstance(part, ast.Starred | ast.Slice):
            if not isinstance(getattr(part, "ctx", None), ast.Store) and not (bound and _uses(part, bound)):
                yield part
        inner = bound | _binds(part)
        todo += ((child, inner) for child in ast.iter_child_nodes(part))


def _uses(node: ast.expr, names: Collection[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))


def _binds(node: ast.AST) -> frozenset[str]:
    """The names that an expression binds for what is inside it."""
    if isinstance(node, ast.Lambda):
        return frozenset(part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg))
    if isinstance(node, COMPREHENSIONS):
        return frozenset(part.id for clause in node.generators for part in ast.walk(clause.target) if isinstance(part, ast.Name))
    return frozenset()


def _with_an_operand_less(node: ast.expr, weights: Mapping[int, int]) -> Iterator[tuple[int, Callable[[], ast.expr]]]:
    """The expression with one `a + b` as a or as b, or one `-a` as a: what an offset elsewhere takes back."""
    for i, part in enumerate(ast.walk(node)):
        operands = ("left", "right") if isinstance(part, ast.BinOp) else ("operand",) if isinstance(part, ast.UnaryOp) else ()
        for operand in operands:
            gone = weights[id(part)] - weights[id(getattr(part, operand))]
            yield weights[id(node)] - gone, partial(_with_operand, node, i, operand)


def _with_operand(node: ast.expr, i: int, operand: str) -> ast.expr:
    copied = copy.deepcopy(node)
    found = [*ast.walk(copied)][i]
    return _Exchange(found, getattr(found, operand)).visit(copied)


class _Exchange(ast.NodeTransformer):
    def __init__(self, old, new):
        self._old, self._new = old, new

    def visit(self, node):
        return self._new if node is self._old else self.generic_visit(node)


class _Fill(ast.NodeTransformer):
    def __init__(self, values):
        self._values = values

    def visit_Name(self, node):
        known = isinstance(node.ctx, ast.Load) and node.id in self._values
        return copy.deepcopy(self._values[node.id]) if known else node


def _filled(body: ast.expr, values: Mapping[str, ast.expr]) -> ast.expr:
    """A copy of an expression with values in the place of names."""
    return _Fill(values).visit(copy.deepcopy(body))
