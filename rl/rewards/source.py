"""The candidate's source text: found in a completion, read into a syntax tree, brought to one spelling.

Nothing here runs the text. A syntax tree is the only thing made of it, and a text that cannot become one is an ordinary
answer (None), never an exception: completions are free to be broken, huge or nested ten thousand deep.
"""

import ast
import re
import warnings

MAX_SOURCE = 64 * 1024    # characters; bounds the parser's time, and no honest answer is near it

# A fence opens anywhere in a line (models write "Here it is: ```python"), with nothing but a language name behind it.
# It closes where a line starts or ends with the same fence, or at the end of the text, when the completion was cut.
_FENCE = re.compile(r"(?<![`~])(`{3,9}|~{3,9})(?![`~])[ \t]*[\w+#.-]*[ \t]*\r?\n(.*?)(?:^[ \t]*\1|\1[ \t]*\r?$|\Z)",
                    re.MULTILINE | re.DOTALL)
_FENCE_LINE = re.compile(r"^[ \t]*(?:`{3,9}|~{3,9})[^\n]*$", re.MULTILINE)
_ANY_DEF = re.compile(r"^[ \t]*(?:async[ \t]+)?def[ \t]", re.MULTILINE)


def extract_code(text: str, entry_point: str = "") -> str:
    """The first fenced block defining entry_point, else the first with a def, else the first, else the text itself.

    What stands before the first fence counts as one more block: models forget to open a fence that they close."""
    blocks = [match[2] for match in _FENCE.finditer(text)]
    before = _FENCE_LINE.split(text, maxsplit=1)
    loose = [before[0]] if len(before) > 1 else []
    name = re.escape(entry_point)
    defines = re.compile(rf"^[ \t]*(?:(?:async[ \t]+)?def[ \t]+{name}[ \t]*\(|{name}[ \t]*=(?!=))", re.MULTILINE)
    for wanted in ([defines] if entry_point else []) + [_ANY_DEF]:
        for block in blocks + loose:
            if wanted.search(block):
                return block
    return blocks[0] if blocks else text


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
    except RecursionError:    # unparse stops earlier than the parser does
        return source
