r"""What an answer as a whole is: a number with its unit, a tuple, an interval, a set, a list of roots, an equation, words, ...

    expr(tree, unit)   text(words)   tuple((...), "(]")   set(...)   union(...)   relation(("=", "<"), (...))
    based("52", 8)     ratio(...)    matrix((...), shape)

Policies, each on purpose:
- a comma between groups of three digits belongs to a number, unless it stands directly in brackets: 1,080 but (1,080);
- "or" and "and" between answers are commas, and \pm is two answers;
- currency, %, degrees and a word behind a number are its unit. Words that make it another number (million, dozen, half) or a
  hedge (about, roughly) are no units: such an answer is wrong;
- "x =" and "x \in" in front of an answer say nothing;
- only text in \text{} and whole words of three letters or more are words; "xy" is a product."""

import contextlib
import re
from typing import NamedTuple

from rl.words.latex_expression import MAX_DEPTH, MAX_LENGTH, Node, Unreadable, parse, walk


class Hedged(Unreadable):
    """A number with words that make it another number, or none in particular."""


class Form(NamedTuple):
    kind: str
    parts: tuple = ()
    detail: object = None    # what else has to be the same: the words, the brackets, the signs, the base, the unit


SPACES = re.compile(r"(?<!\\)\\[,;:!> ]|\\q?quad(?![A-Za-z])|~|\s+")
DROPPED = re.compile(r"\\(?:left|right|[Bb]igg?[lr]?|displaystyle|textstyle)(?![A-Za-z])")
GROUPED = re.compile(r"(?<![0-9.,])[0-9]{1,3}(?:(?:,|\{,\}|,\\!\s*|\\,)[0-9]{3})+(?![0-9]|,[0-9])")
SIGNS = {"\u2212": "-", "\u2013": "-", "\u00d7": "\\times ", "\u00b7": "\\cdot ", "\u00f7": "\\div ", "\u03c0": "\\pi ",
         "\u221e": "\\infty ", "\u2264": "\\le ", "\u2265": "\\ge ", "\u2260": "\\ne ", "\u00b1": "\\pm ", "\u222a": "\\cup ",
         "\u2208": "\\in ", "\u221a": "\\sqrt ", "\u00b0": "^\\circ ", "\u00b2": "^2", "\u00b3": "^3"}
RELATIONS = {"\\leq": "\\le", "\\leqslant": "\\le", "\\geq": "\\ge", "\\geqslant": "\\ge", "\\neq": "\\ne", "\\lt": "<",
             "\\gt": ">", "<=": "\\le", ">=": "\\ge"}
RELATION = re.compile(r"\\(?:leqslant|geqslant|leq|geq|neq|le|ge|ne|lt|gt)(?![A-Za-z])|<=|>=|[<>=]")
TURNED = {">": "<", "\\ge": "\\le"}
TEXT = r"\\(?:text(?:rm|bf|it|normal)?|mbox|mathrm|rm)\s*\{([^{}]*)\}"
POWER = r"(?:\^\s*\{?\s*([23])\s*\}?)?"
# One pattern a kind of unit; what stands before it is group 1.
UNITS = [re.compile(r"^(.*\S)\s*" + TEXT + r"\s*" + POWER + r"$", re.S),
         re.compile(r"^(.*[0-9})])\s+([A-Za-z][A-Za-z]*(?:[ /.-]+[A-Za-z]+)*)" + POWER + r"$")]
SUFFIXES = {"\\%": "percent", "%": "percent", "^\\circ": "degree", "^{\\circ}": "degree", "\\degree": "degree"}
PREFIXES = {"\\$": "dollar", "$": "dollar", "\u20ac": "euro", "\u00a3": "pound"}
NOT_UNITS = set("or and to about around not than more less plus minus times over under between half quarter third hundred "
                "thousand million billion trillion dozen dozens hundreds thousands millions squared cubed roughly ago".split())
SHORT_UNITS = set("cm mm km kg mg ml ft in oz lb hr mi yd sq am pm".split())
MATRIX = re.compile(r"^\\begin\{([pb]?matrix)\}(.*)\\end\{\1\}$", re.S)
HEDGE = r"(?i)(?:about|around|roughly|approximately|nearly|almost|over|under|at (?:least|most)|(?:more|less) than)\s"


def read(answer: str, depth: int = 0) -> Form:
    """The form of an answer; Unreadable where it has none that is known here."""
    if len(answer) > MAX_LENGTH or depth > MAX_DEPTH:
        raise Unreadable("too long or too deep")
    text = tidy(answer) if depth == 0 else answer.strip()
    for reader in (_words, _matrix, _union, _relation, _list, _bracketed, _based, _ratio):
        if (form := reader(text, depth)) is not None:
            return form
    return _number(text, depth)


def tidy(answer: str) -> str:
    """The same answer with one way to write signs, spaces and grouped numbers."""
    text = answer.strip().translate(str.maketrans(SIGNS))
    for opening, closing in (("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) + len(closing):
            text = text[len(opening):-len(closing)].strip()
    text = GROUPED.sub(_ungrouped, DROPPED.sub("", text))
    text = re.sub(r"\\text\s*\{\s*,?\s*(?:and|or)\s*\}|(?<![A-Za-z])(?:and|or)(?![A-Za-z])", ",", text)
    text = re.sub(r",(\s*,)+", ",", SPACES.sub(" ", text)).strip()
    return text[:-1].rstrip() if text.endswith(".") else text


def plain_words(answer: str) -> str:
    r"""An answer in words without what only sets them: \text{(B)} and B are the same."""
    text = re.sub(TEXT, r"\1", answer)
    return " ".join(re.sub(r"[(){}\\$.]", " ", text).casefold().split())


def split(text: str, separator: str) -> list[str]:
    """Parts between separators (a pattern) that stand outside of all brackets; one part where there is none."""
    parts, start, depth = [], 0, 0
    for match in re.finditer(rf"(?P<cut>{separator})|\\?[(\[{{]|\\?[)\]}}]", text):
        if match["cut"] is None:
            depth += 1 if match[0][-1] in "([{" else -1
        elif depth == 0:
            parts.append(text[start:match.start()].strip())
            start = match.end()
    return [*parts, text[start:].strip()]


def _ungrouped(match):
    before, after = match.string[:match.start()].rstrip(), match.string[match.end():].lstrip()
    if before.endswith(("(", "[", "\\{")) and after.startswith((")", "]", "\\}")):
        return match[0]
    return re.sub(r"[^0-9]", "", match[0])


def _words(text, depth):
    inner = re.fullmatch(TEXT + r"\.?", text)
    if inner and re.search(r"[0-9]", inner[1]):
        with contextlib.suppress(Unreadable):    # \text{13} is a number, \text{June 20} is not
            return read(inner[1], depth + 1)
    if inner or re.fullmatch(r"\(?[A-Za-z]{3,}(?:[ -][A-Za-z]+)*\)?", text) and text not in ("sqrt", "infinity"):
        return Form("text", detail=plain_words(text))
    return None


def _matrix(text, depth):
    found = MATRIX.match(text)
    if not found:
        return None
    rows = [[read(cell, depth + 1) for cell in split(row, "&")] for row in re.split(r"\\\\", found[2]) if row.strip()]
    return Form("matrix", tuple(cell for row in rows for cell in row), tuple(map(len, rows)))


def _union(text, depth):
    parts = split(text, r"\\cup(?![A-Za-z])")
    return Form("union", tuple(read(part, depth + 1) for part in parts)) if len(parts) > 1 else None


def _relation(text, depth):
    if re.match(r"[A-Za-z]\s*\\in(?![A-Za-z])", text):
        return read(text.partition("\\in")[2], depth + 1)
    signs = RELATION.findall(text)
    sides = split(text, RELATION.pattern)
    if len(sides) < 2:
        return None
    if len(split(text, ",")) > 1:    # x = 1, y = 2
        return None
    if len(signs) != len(sides) - 1:
        raise Unreadable("a relation in brackets")
    signs = [RELATIONS.get(sign, sign) for sign in signs]
    if all(sign in TURNED for sign in signs):
        sides, signs = sides[::-1], [TURNED[sign] for sign in reversed(signs)]
    return Form("relation", tuple(read(side, depth + 1) for side in sides), tuple(signs))


def _list(text, depth):
    parts = split(text, ",")
    return _set_of(parts, depth) if len(parts) > 1 else None


def _set_of(parts, depth):
    forms = [read(part, depth + 1) for part in parts]
    return Form("set", tuple(part for form in forms for part in (form.parts if form.kind == "set" else (form,))))


def _bracketed(text, depth):
    if text in ("\\emptyset", "\\varnothing"):
        return Form("set")
    if text.startswith("\\{") and text.endswith("\\}"):
        inner = text[2:-2].strip()
        return _set_of(split(inner, ","), depth) if inner else Form("set")
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and len(text) > 2:
        parts = split(text[1:-1], ",")
        if len(parts) > 1:
            return Form("tuple", tuple(read(part, depth + 1) for part in parts), text[0] + text[-1])
    return None


def _based(text, depth):
    found = re.fullmatch(r"([0-9][0-9A-Za-z]*)\s*_\s*\{?\s*([0-9]+)\s*\}?", text)
    return Form("based", detail=(found[1].upper(), found[2])) if found else None


def _ratio(text, depth):
    parts = split(text, ":")
    return Form("ratio", tuple(read(part, depth + 1) for part in parts)) if len(parts) > 1 else None


def _number(text, depth):
    text, unit = _without_unit(text)
    tree = parse(text)
    if not any(node.kind in ("pm", "mp") for node in walk(tree)):
        return Form("expr", (tree,), unit)
    return Form("set", tuple(Form("expr", (_signed(tree, sign),), unit) for sign in ("pm", "mp")))


def _signed(node, plus):
    """The tree with one of the two signs for \\pm and \\mp."""
    parts = tuple(_signed(part, plus) for part in node.parts)
    if node.kind in ("pm", "mp"):
        return parts[0] if node.kind == plus else Node("neg", parts)
    return node._replace(parts=parts)


def _without_unit(text):
    """(the rest, the unit or "")."""
    if re.match(HEDGE, text):
        raise Hedged(f"{text!r} is no answer in particular")
    for prefix, unit in PREFIXES.items():
        sign, rest = ("-", text[1:].lstrip()) if text.startswith("-") else ("", text)
        if rest.startswith(prefix):
            return sign + _without_unit(rest[len(prefix):].strip())[0], unit
    for suffix, unit in SUFFIXES.items():
        if text.endswith(suffix):
            return text[:-len(suffix)].rstrip(), unit
    for pattern in UNITS:
        if found := pattern.match(text):
            words = found[2].casefold().replace(".", "").split()
            if pattern is UNITS[1] and len(words[0]) < 3 and words[0] not in SHORT_UNITS:
                continue    # 2 xy
            if NOT_UNITS & {part for word in words for part in re.split(r"[/-]", word)}:
                raise Hedged(f"{found[2]!r} is no unit")
            return found[1], _unit(" ".join(words)) + (found[3] or "")
    return text, ""


def _unit(words):
    return words[:-1] if len(words) > 2 and words.endswith("s") else words
