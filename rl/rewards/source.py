"""The candidate's source text: found in a completion, read into a syntax tree, brought to one spelling.

Nothing here runs the text. A syntax tree is the only thing made of it, and a text that cannot become one is an ordinary
answer (None), never an exception: completions are free to be broken, huge or nested ten thousand deep.

A fence is one of CommonMark's: any length, backticks or tildes, any info string, in lists and quotations too. Besides, a fence
may open behind prose and close behind code, as models write. Fences may also stand inside docstrings and comments, so a block
ends at the first possible fence that leaves readable Python. The time for a text is linear in its length.
"""

import ast
import builtins
import os
import re
import warnings
from collections.abc import Sequence
from typing import NamedTuple

MAX_SOURCE = 64 * 1024    # characters; bounds the parser's time, and no honest answer is near it
CLOSINGS = 16             # fences after an opening that are tried as its end
PARSES = 8                # characters parsed per character of a text while ends are tried

_RUN = re.compile(r"`{3,}|~{3,}")
_LIST_MARKER = re.compile(r"(?:[-*+]|[0-9]{1,9}[.)])?")
_MARGIN = " \t>"          # what may stand before every line of a block: indentation and the mark of quotations
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_REUSABLE = (*_FUNCTIONS, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
_FIRST_WORDS = {"def", "async", "class", "import", "from"}


class Block(NamedTuple):
    """A piece of a completion that may be code; the tree is None if Python cannot read it."""

    source: str
    tree: ast.Module | None


# ---- the program in a completion --------------------------------------------------------------------------------------

def extract_code(text: str, entry_point: str) -> str:
    """The last program that defines entry_point and is no stub, behind what it lacks and other blocks define.

    Fenced blocks go before the text around them, and thinking counts only if no program follows it. Without such a program:
    the last block that seems to define entry_point, the first with a def, the first at all, or the text itself."""
    for part in dict.fromkeys((text.rpartition("</think>")[2], text)):
        fenced, loose = find_blocks(part)
        readable = [block for block in (*loose, *fenced) if block.tree]
        programs = [block for block in readable if _defines(block.tree, entry_point)]
        if programs:
            chosen = ([block for block in programs if not _is_stub(block.tree, entry_point)] or programs)[-1]
            return _completed(chosen, [block for block in readable if block is not chosen])
        if broken := [block for block in fenced if f"def {entry_point}(" in block.source]:
            return broken[-1].source
    with_def = [block for block in fenced if "def " in block.source]
    return (with_def or fenced or [Block(text, None)])[0].source


def _defines(tree: ast.Module, name: str) -> bool:
    """Whether a function or a module-level assignment has that name."""
    return bool(_functions(tree, name)) or any(isinstance(node, ast.Assign | ast.AnnAssign) and name in _bound(node)
                                               for node in tree.body)


def _functions(tree: ast.Module, name: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS) and node.name == name]


def _is_stub(tree: ast.Module, name: str) -> bool:
    """Whether all functions of that name are empty."""
    functions = _functions(tree, name)
    return bool(functions) and all(map(_is_empty, functions))


def _is_empty(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return all(map(_does_nothing, function.body))


def _does_nothing(statement: ast.stmt) -> bool:
    match statement:
        case ast.Pass() | ast.Expr(ast.Constant()) | ast.Return(None | ast.Constant(None)):
            return True
        case ast.Raise(ast.Name("NotImplementedError") | ast.Call(ast.Name("NotImplementedError"))):
            return True
    return False


# ---- blocks -----------------------------------------------------------------------------------------------------------

class _Fence(NamedTuple):
    start: int     # where a block that it closes ends
    end: int       # behind its line
    run: str       # its backticks or tildes
    alone: bool    # whether nothing but indentation and marks precedes it in its line
    info: str      # what follows it in its line

    def opens(self) -> bool:
        return self.alone or len(self.info.split()) <= 1

    def closes(self, opening: "_Fence") -> bool:
        return self.run.startswith(opening.run) and (self.alone or not self.info)


def find_blocks(text: str) -> tuple[list[Block], list[Block]]:
    """(the fenced blocks, the code in each text around them), in order and without common indentation."""
    fences, fenced, around, at, budget = _fences(text), [], [], 0, PARSES * len(text)
    end_of_text = _Fence(len(text), len(text), "", alone=True, info="")
    for number, opening in enumerate(fences):
        if opening.start < at or not opening.opens():
            continue
        around.append(text[at:opening.start])
        at = opening.end
        following = fences[number + 1:number + 1 + CLOSINGS]
        closings = [fence for fence in following if fence.closes(opening)]
        closings.sort(key=lambda fence: not fence.alone or fence.info != "")    # CommonMark's first
        for closing in [*closings, end_of_text]:
            if closing.start - at <= budget:
                budget -= closing.start - at
                if (block := _block(text[at:closing.start])).tree:
                    break
        else:
            # Unreadable. If it holds fences it is a block around others, and they are looked at next.
            if not closings or closings[0] is not following[0]:
                continue
            closing = closings[0]
            block = Block(_dedented(text[at:closing.start]), None)
        if block.source.strip():
            fenced.append(block)
        at = closing.start if closing.info else closing.end    # a fence with an info string opens the next block
    return fenced, [_code_in(part) for part in [*around, text[at:]]]


def _fences(text: str) -> list[_Fence]:
    """The lines with one fence; two in a line enclose code within prose."""
    fences, at = [], 0
    for line in text.split("\n"):
        runs = list(_RUN.finditer(line))
        if len(runs) == 1:
            run, = runs
            alone = _LIST_MARKER.fullmatch(line[:run.start()].strip(_MARGIN)) is not None
            fences.append(_Fence(at if alone else at + run.start(), min(at + len(line) + 1, len(text)), run[0], alone,
                                 line[run.end():].strip()))
        at += len(line) + 1
    return fences


def _block(text: str) -> Block:
    source = _dedented(text)
    return Block(source, parse_source(source))


def _dedented(text: str) -> str:
    """The text without what all its lines start with; blank lines may be shorter."""
    lines = text.split("\n")
    margin = os.path.commonprefix([line[:len(line) - len(line.lstrip(_MARGIN))] for line in lines
                                   if line.strip(_MARGIN + "\r")])
    return "\n".join(line[len(os.path.commonprefix([margin, line])):] for line in lines) if margin else text


def _code_in(text: str) -> Block:
    """The text if it is code, otherwise its definitions, imports and assignments, without the prose between them."""
    block = _block(text)
    if block.tree:
        return block
    chunks, chunk, margin = [], [], 0
    for line in text.split("\n"):
        code = line.lstrip()
        indentation = len(line) - len(code)
        decorated = chunk and chunk[-1].lstrip().startswith("@")
        if chunk and (not code or indentation > margin or code[0] in ")]}" or decorated):
            chunk.append(line)
        else:
            begins = code.startswith("@") or "=" in code or code.partition(" ")[0] in _FIRST_WORDS
            chunk, margin = [line] if begins else [], indentation
            chunks.append(chunk)    # stays empty for prose
    blocks = [_block("\n".join(lines) + "\n") for lines in chunks if lines]
    return _block("".join(block.source for block in blocks
                          if block.tree and all(isinstance(statement, _REUSABLE) for statement in block.tree.body)))


# ---- names of other blocks --------------------------------------------------------------------------------------------

def _completed(chosen: Block, others: Sequence[Block]) -> str:
    """The block's source, behind those statements of others that bind names which it uses and lacks."""
    offered = {}    # name -> (its block, its statement); the last that is no stub
    for number, block in enumerate(others):
        for statement in block.tree.body:
            if isinstance(statement, _REUSABLE) and not (isinstance(statement, _FUNCTIONS) and _is_empty(statement)):
                offered |= dict.fromkeys(_module_names(statement), (number, statement))
    lines = [block.source.split("\n") for block in others]
    taken, bound, lacking = {}, _bound(chosen.tree), [*_lacking(chosen.tree)]
    for name in lacking:    # grows while it is read
        number, statement = offered.pop(name, (None, None))
        first = statement and min(node.lineno for node in (statement, *getattr(statement, "decorator_list", ())))
        if statement and (number, first) not in taken:
            taken[number, first] = "\n".join(lines[number][first - 1:statement.end_lineno])
            lacking += _lacking(statement) - bound
    joined = "\n".join([*(taken[place] for place in sorted(taken)), chosen.source])
    # An import from __future__ has to stay first.
    return joined if "__future__" not in chosen.source and parse_source(joined) else chosen.source


def _lacking(tree: ast.AST) -> set[str]:
    """The names that the code reads and neither it nor Python binds."""
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return read - _bound(tree) - set(dir(builtins))


def _bound(tree: ast.AST) -> set[str]:
    """The names that the code binds anywhere."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(name, ast.Store()) | ast.arg(name) | ast.ExceptHandler(_, name) | ast.MatchAs(_, name):
                names.add(name)
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name) | ast.MatchStar(name):
                names.add(name)
            case ast.alias(name, renamed):
                names.add((renamed or name).partition(".")[0])
    return names


def _module_names(statement: ast.stmt) -> set[str]:
    """The names that a module-level statement binds in the module."""
    return {statement.name} if hasattr(statement, "name") else _bound(statement)


# ---- reading ----------------------------------------------------------------------------------------------------------

def parse_source(source: str) -> ast.Module | None:
    """The syntax tree, or None for whatever Python cannot read: bad syntax, over MAX_SOURCE, nested too deep."""
    if len(source) > MAX_SOURCE:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")    # "\d" in a candidate's string is no news for our log
        try:
            return ast.parse(source.removeprefix("\ufeff"))
        except (SyntaxError, ValueError, RecursionError, MemoryError):    # the last two: nested beyond the parser
            return None


def normalise(source: str) -> str:
    """The same program in Python's own spelling, without comments or spacing; the text as it is where that fails."""
    tree = parse_source(source)
    try:
        return source if tree is None else ast.unparse(tree)
    except Exception:    # unparse stops where the parser does not: deep trees, integers of thousands of digits, some f-strings
        return source
