r"""Answers to word problems and mathematics: find the final one in a completion, and decide whether it is right.

An answer counts only at a final marker, `#### N` or \boxed{...}: paying for the last number in free text would reward lists of
guesses. Two answers are equal if they have the same form and exactly the same value. Python evaluates nothing, no library
simplifies anything, and hostile text costs little. The form of an answer is one of

    expr(tree, unit)   text(words)   tuple((...), "(]")   set(...)   union(...)   relation(("=", "<"), (...))
    based("52", 8)     ratio(...)    matrix((...), shape)

How answers are read, each a deliberate choice:
- a comma between groups of three digits belongs to the number, unless brackets directly enclose it: 1,080 but (1,080);
- "or" and "and" between answers are commas, and \pm is two answers;
- currency, %, degrees and a word after a number are its unit. Words that change the number (million, dozen, half) and hedges
  (about, roughly) are not units: such an answer is wrong;
- a leading "x =" or "x \in" is ignored;
- only text in \text{} and whole words of three or more letters are words; "xy" is a product.

How they are compared:
- units count only if both answers have one, and % does not divide by 100: 25\% is 25, not 0.25. Different units are wrong, but
  undecided if one only adds words to the other (red apples, apples);
- unreduced fractions and unexpanded products are right, unless the task asks for a form: `same_form`;
- an answer must be worked out: 48 + 24 is not 72, nor is 2^3 8, unless the reference contains such operations itself.
  Fractions, roots (5^{1/2} too) and a * 10^n are worked out; if the reference is a whole number, only digits are;
- a decimal may be off by 1e-6 of the reference, but not if that is a whole number, and never between two exact values;
- tuples and intervals have an order and brackets; sets and lists of roots have neither, but multiplicity counts;
- equations are equal if one is a multiple of the other; "x = 5" is 5 if the other answer has no "=";
- inequalities are equal if their sides are; otherwise they are undecided unless both are solved for an unknown.

Not judged: the derivation."""

import contextlib
import re
from bisect import bisect_left
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from rl.rewards.words.expressions import (
    DIGITS,
    MAX_DEPTH,
    MAX_LENGTH,
    REAL,
    Node,
    Unreadable,
    decimal_value,
    parse,
    rational_value,
    same_value,
    walk,
)

# ---- answers in texts -------------------------------------------------------------------------------------------------


POLICIES = ("one", "last")
BOX_TOKEN = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*(\{)?|\\.|[{}]", re.S)
# The line must begin like a number: "#### Step 2" is a heading.
HASH_LINE = re.compile(r"(?<!#)####(?!#)[ \t]*((?:\\boxed|[-+\u2212$\u20ac\u00a3\\.(]{0,4}[0-9])[^\n]*)")


def final_answer(completion: str, tag: str = "", policy: str = "one") -> str | None:
    r"""The answer at the final marker; None if there is no marker, or it is unclosed or empty.

    policy: if there are several markers, "one" gives None, so that hedging does not pay, and "last" the last of them. With a
    tag, a marker before the end of the thinking block </tag> is never the answer, though it counts as one of several."""
    if policy not in POLICIES:
        raise ValueError(f"policy {policy!r}: use {' or '.join(POLICIES)}")
    markers = _markers(completion)
    if not markers or (policy == "one" and len(markers) > 1):
        return None
    start, answer = markers[-1]
    if tag and start < completion.rfind(f"</{tag}>"):
        return None
    return answer


def reference_answer(reference: str) -> str:
    r"""The answer in a reference: after #### as in GSM8K, in the last \boxed as in MATH, or the whole text."""
    if "####" in reference:
        return str(gsm8k_gold(reference))
    return boxed_answer(reference) or "" if boxes(reference) else reference


def gsm8k_gold(text: str) -> int:
    """The number after the `####` of a GSM8K solution; ValueError unless there is exactly one, and it is whole."""
    parts = text.split("####")
    digits = parts[-1].strip()
    if len(parts) != 2 or not re.fullmatch(r"-?(?:[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)", digits):
        raise ValueError(f"a GSM8K answer ends with one line '#### N', N a whole number, not with {text[-40:]!r}")
    return int(digits.replace(",", ""))


def boxed_answer(text: str) -> str | None:
    """The content of the last box, boxes directly inside it removed; None if there is no box, or it is empty or unclosed."""
    found = boxes(text)
    return _unboxed(found[-1][1]) if found else None


def boxes(text: str) -> list[tuple[int, str | None]]:
    r"""(start, content) of every outermost \boxed or \fbox, in order; the content is None if it is not closed."""
    found, open_braces, open_boxes, bare_end = [], [], 0, 0
    for match in BOX_TOKEN.finditer(text):
        token = match[0]
        if match.start() < bare_end:
            continue
        if token == "}":
            if open_braces:
                start, inside = open_braces.pop()
                open_boxes -= start is not None
                if start is not None and not open_boxes:
                    found.append((start, text[inside:match.start()]))
        elif match[1] or token == "{":
            open_braces.append((match.start() if match[1] else None, match.end()))
            open_boxes += match[1] is not None
        elif token.lstrip("\\")[:4] in ("boxe", "fbox") and not open_boxes:
            bare = re.compile(r"[^\s$]*").match(text, match.end())
            bare_end = bare.end()
            found.append((match.start(), bare[0].rstrip(".,;") or None))
    unclosed = [(start, None) for start, _ in open_braces if start is not None]
    return sorted([*found, *unclosed[:1]], key=lambda box: box[0])


def _markers(completion):
    """(start, answer or None) of all final markers; a #### line with a box in it is one marker."""
    found = [(start, _unboxed(answer)) for start, answer in boxes(completion)]
    starts = [start for start, _ in found]
    lines = [(match.start(), match[1].strip(" *`_")) for match in HASH_LINE.finditer(completion)
             if bisect_left(starts, match.start()) == bisect_left(starts, match.end())]
    return sorted([*found, *lines], key=lambda marker: marker[0])


def _unboxed(answer):
    """The content of the innermost of boxes that hold nothing but a box; None if it is empty."""
    for _ in range(8):
        inner = boxes(answer) if answer and answer.lstrip().startswith(("\\boxed", "\\fbox")) else []
        if len(inner) != 1 or re.sub(r"^\\[a-z]+\s*\{?|\}$", "", answer.strip()) != inner[0][1]:
            break
        answer = inner[0][1]
    return (answer or "").strip() or None


# ---- forms ------------------------------------------------------------------------------------------------------------


class Hedged(Unreadable):
    """A number with words that change it or leave it open."""


class Form(NamedTuple):
    kind: str
    parts: tuple = ()
    detail: object = None    # what must be equal besides the parts: words, brackets, signs, the base, the unit


# ---- whether two answers are equal ------------------------------------------------------------------------------------


TOLERANCE = Decimal("1e-6")
LITERAL = re.compile(r"(-?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
FUNCTION_NAMES = set("fghpqPQV")
KNOWN = {*REAL, "i", "\\infty"}    # names that are no unknowns
SUM_LIKE = ("add", "mul", "pow", "fact", "binom")


def compare(prediction: str | None, reference: str, same_form: bool = False) -> bool | None:
    """Whether a prediction equals the reference; None if that cannot be decided: unreadable, or beyond exact arithmetic.

    same_form: it must also be written as the reference is."""
    if not prediction or not prediction.strip() or not reference.strip():
        return False
    if len(prediction) > MAX_LENGTH or len(reference) > MAX_LENGTH:
        return None
    one, other = _normalise(prediction), _normalise(reference)
    if one == other:
        return True
    literals = _literal(one), _literal(other)
    if None not in literals and not same_form:
        return _same_literal(*literals)
    given, wanted = _form_of(prediction), _form_of(reference)
    if wanted.kind in ("text", "hedged") or given.kind == "text":
        return _plain_words(one) == _plain_words(other)
    if "unreadable" in (given.kind, wanted.kind):
        return None
    return given.kind != "hedged" and _same(given, wanted, same_form)


# Words, perhaps with numbers (June 20), which are compared as they are written.
PLAIN_TEXT = re.compile(r"(?!(?:arc)?(?:sin|cos|tan|cot|sec|csc|log|exp)h?\b)[A-Za-z]{3,}[A-Za-z0-9 ,.:'/-]*")
UNIT_IN_BRACKETS = re.compile(r"[0-9}]\s*\(([A-Za-z]{2,})\)$")


def can_be_hit(reference: str) -> bool:
    """Whether an answer can be right by what it says: the reference can be written in a box, and its form can be read."""
    if compare(final_answer(rf"\boxed{{{reference}}}"), reference) is not True:
        return False
    bracketed = UNIT_IN_BRACKETS.search(reference.strip())
    if bracketed and (len(bracketed[1]) > 2 or bracketed[1].casefold() in SHORT_UNITS):    # the same as 3 * apples
        return False
    return bool(PLAIN_TEXT.fullmatch(reference.strip())) or _form_of(reference).kind != "unreadable"


def _form_of(answer):
    """Like parse_form, but with the kinds "hedged" and "unreadable" instead of exceptions."""
    try:
        return parse_form(answer)
    except Hedged:
        return Form("hedged")
    except Unreadable:
        return Form("unreadable")


def _literal(text):
    text = text.removeprefix("\\$").removeprefix("$")
    found = LITERAL.fullmatch(text)
    return Fraction(found[1] + found[2].rstrip(".")) if found else None


def _same_literal(value, reference):
    tolerance = 0 if reference.denominator == 1 else abs(reference) * Fraction(TOLERANCE)
    return abs(value - reference) <= tolerance


def _same(a: Form, b: Form, same_form) -> bool | None:
    if a.kind != b.kind:
        return _same_but_for_name(a, b, same_form)
    if a.kind == "expr":
        return _same_expression(a, b, same_form)
    if a.kind == "relation" and len(a.parts) == 2 and a.detail == b.detail == ("=",):
        return _same_equation(a, b, same_form)
    alike = len(a.parts) == len(b.parts) and a.detail == b.detail
    if a.kind in ("set", "union"):
        return alike and _same_multiset(a.parts, b.parts, same_form)
    same = alike and _all_parts_same(a, b, same_form)
    return None if same is False and all(map(_is_inequality, (a, b))) and not all(map(_is_solved, (a, b))) else same


def _is_inequality(form):
    return form.kind == "relation" and set(form.detail) != {"="}


def _is_solved(form):
    """Whether the relation compares one unknown with numbers only."""
    if any(side.kind != "expr" for side in form.parts):
        return False
    trees = [side.parts[0] for side in form.parts]
    unknowns = [node.value for tree in trees for node in walk(tree) if node.kind == "sym" and node.value not in KNOWN]
    return len(unknowns) == 1 and any(tree.value == unknowns[0] for tree in trees)


def _same_but_for_name(a, b, same_form):
    """Compare "x = 5" with 5; other forms of different kinds are never equal."""
    for form in (a, b):
        if form.kind == "relation" and form.detail == ("=",) and _is_name(form.parts[0]):
            return _same(*((form.parts[1], b) if form is a else (a, form.parts[1])), same_form)
    return None if {a.kind, b.kind} in ({"relation", "tuple"}, {"relation", "union"}) else False


def _is_name(form):
    if form.kind != "expr":
        return form.kind == "tuple" and all(map(_is_name, form.parts))
    tree, = form.parts
    function = tree.kind == "mul" and len(tree.parts) == 2 and tree.parts[0].value in FUNCTION_NAMES    # f(x) reads as a product
    return all(node.kind == "sym" for node in (tree.parts if function else (tree,)))


def _all_parts_same(a, b, same_form):
    verdicts = [_same(x, y, same_form) for x, y in zip(a.parts, b.parts, strict=True)]
    return False if False in verdicts else None if None in verdicts else True


def _same_multiset(ours, theirs, same_form):
    remaining, unsure = list(ours), False
    for wanted in theirs:
        verdicts = [_same(form, wanted, same_form) for form in remaining]
        if True in verdicts:
            remaining.pop(verdicts.index(True))
        elif None in verdicts:
            unsure = True
        else:
            return False
    return None if unsure else True


def _same_equation(a, b, same_form):
    sides = [side for form in (a, b) for side in form.parts]
    if all(_is_name(form.parts[0]) for form in (a, b)) or any(side.kind != "expr" for side in sides):
        return _all_parts_same(a, b, same_form)
    if same_form:
        return all(_shape(x.parts[0]) == _shape(y.parts[0]) for x, y in zip(a.parts, b.parts, strict=True))
    # L1 = R1 and L2 = R2 are multiples of each other if (L1 - R1) / (L2 - R2) is the same at any two points.
    one, other = (Node("add", (form.parts[0].parts[0], Node("neg", form.parts[1].parts))) for form in (a, b))
    zero = Node("num", value=Fraction(0))
    if same_value(one, zero) is not False or same_value(other, zero) is not False:
        return None
    return same_value(Node("mul", (one, _renamed(other))), Node("mul", (other, _renamed(one))))


def _renamed(tree):
    if tree.kind == "sym" and tree.value not in ("i", "e", "\\pi"):
        return tree._replace(value=f"{tree.value}'")
    return tree._replace(parts=tuple(map(_renamed, tree.parts)))


def _same_expression(a, b, same_form):
    ours, theirs = a.parts[0], b.parts[0]
    if a.detail and b.detail and a.detail != b.detail:
        one, other = set(a.detail.split()), set(b.detail.split())
        return None if one < other or other < one else False
    if same_form and _shape(ours) != _shape(theirs):
        return False
    whole = theirs.kind == "num" and theirs.value.denominator == 1
    if (not _is_worked_out(theirs) or _is_worked_out(ours)) and (not whole or _is_in_digits(ours)):
        same = same_value(ours, theirs)
        return same if same or whole else _is_near(ours, theirs, same)
    return False


def _is_near(ours, theirs, same):
    """Whether two reals, one of them a decimal, are within TOLERANCE of the second; `same` for anything else."""
    if not any(node.decimal for tree in (ours, theirs) for node in walk(tree)):
        return same
    value, reference = decimal_value(ours), decimal_value(theirs)
    if value is None or reference is None:
        return same
    return abs(DIGITS.subtract(value, reference)) <= DIGITS.multiply(TOLERANCE, abs(reference))


def _is_rational(node):
    return node.kind == "num" or node.kind in ("neg", "div") and all(map(_is_rational, node.parts))


def _is_worked_out(tree):
    """Whether no operation between plain numbers is left to do."""
    for node in walk(tree):
        plain = sum(map(_is_rational, node.parts))
        if node.kind in SUM_LIKE and plain > 1 or node.kind == "fact" and plain:
            if not (node.kind == "pow" and (node.parts[0].value == 10 or _is_root(node))):
                return False
    return True


def _is_root(power):
    exponent = rational_value(power.parts[1])
    return exponent is not None and exponent.denominator != 1


def _is_in_digits(tree):
    if tree.kind == "mul" and len(tree.parts) == 2 and tree.parts[1].kind == "pow":
        tree, power = tree.parts
        return tree.kind == "num" and all(map(_is_rational, power.parts)) and power.parts[0].value == 10
    return _is_rational(tree)


def _shape(node):
    """The tree with sums and products in a fixed order, and with a fraction's sign in front of it."""
    if node.kind == "div" and node.parts[0].kind == "num" and node.parts[0].value < 0:
        top = node.parts[0]._replace(value=-node.parts[0].value)
        return ("neg", (_shape(node._replace(parts=(top, node.parts[1]))),), "None")
    parts = tuple(map(_shape, node.parts))
    return node.kind, tuple(sorted(parts, key=repr)) if node.kind in ("add", "mul") else parts, str(node.value)


# ---- parsing an answer's form -----------------------------------------------------------------------------------------


SPACES = re.compile(r"(?<!\\)\\[,;:!> ]|\\q?quad(?![A-Za-z])|~|\s+")
DROPPED = re.compile(r"\\(?:left|right|[Bb]igg?[lr]?|displaystyle|textstyle)(?![A-Za-z])")
GROUPED = re.compile(r"(?<![0-9.,])[0-9]{1,3}(?:(?:,|\{,\}|,\\!\s*|\\,)[0-9]{3})+(?![0-9]|,[0-9])")
SIGNS = {"\u2212": "-", "\u2013": "-", "\u00d7": "\\times ", "\u00b7": "\\cdot ", "\u00f7": "\\div ", "\u03c0": "\\pi ",
         "\u22c5": "\\cdot ", "\u2219": "\\cdot ", "\u2217": "\\ast ", "\u2215": "/", "\u2044": "/", "\u2010": "-",
         "\u2011": "-", "\u2213": "\\mp ", "\u2a7d": "\\le ", "\u2a7e": "\\ge ", "\u2205": "\\emptyset ",
         "\u00b9": "^1", **{chr(0x2070 + digit): f"^{digit}" for digit in (0, *range(4, 10))},
         **{sign: rf"\frac{{{top}}}{{{bottom}}}" for sign, top, bottom in (
             ("\u00bd", 1, 2), ("\u00bc", 1, 4), ("\u00be", 3, 4), ("\u2153", 1, 3), ("\u2154", 2, 3), ("\u215b", 1, 8))},
         "\u221e": "\\infty ", "\u2264": "\\le ", "\u2265": "\\ge ", "\u2260": "\\ne ", "\u00b1": "\\pm ", "\u222a": "\\cup ",
         "\u2208": "\\in ", "\u221a": "\\sqrt ", "\u00b0": "^\\circ ", "\u00b2": "^2", "\u00b3": "^3"}
RELATIONS = {"\\leq": "\\le", "\\leqslant": "\\le", "\\geq": "\\ge", "\\geqslant": "\\ge", "\\neq": "\\ne", "\\lt": "<",
             "\\gt": ">", "<=": "\\le", ">=": "\\ge"}
RELATION = re.compile(r"\\(?:leqslant|geqslant|leq|geq|neq|le|ge|ne|lt|gt)(?![A-Za-z])|<=|>=|[<>=]")
MIRRORED = {">": "<", "\\ge": "\\le"}
TEXT = r"\\(?:text(?:rm|bf|it|normal)?|mbox|mathrm|rm)\s*\{([^{}]*)\}"
POWER = r"(?:\^\s*\{?\s*([23])\s*\}?)?"
# Groups: the number, the unit, its power.
UNIT_IN_TEXT = re.compile(r"^(.*\S)\s*" + TEXT + r"\s*" + POWER + r"$", re.S)
UNIT_AS_WORD = re.compile(r"^(.*[0-9})])\s+([A-Za-z][A-Za-z]*(?:[ /.-]+[A-Za-z]+)*)" + POWER + r"$")
SUFFIXES = {"\\%": "percent", "%": "percent", "^\\circ": "degree", "^{\\circ}": "degree", "\\degree": "degree"}
PREFIXES = {"\\$": "dollar", "$": "dollar", "\u20ac": "euro", "\u00a3": "pound"}
NOT_UNITS = set("or and to about around not than more less plus minus times over under between half quarter third hundred "
                "thousand million billion trillion dozen dozens hundreds thousands millions squared cubed roughly ago".split())
SAME_UNITS = {
    "millimeter": "mm", "millimetre": "mm", "centimeter": "cm", "centimetre": "cm", "meter": "m", "metre": "m", "kilometer": "km",
    "kilometre": "km", "milligram": "mg", "gram": "g", "kilogram": "kg", "milliliter": "ml", "millilitre": "ml", "liter": "l",
    "litre": "l", "foot": "ft", "feet": "ft", "inch": "in", "inche": "in", "ounce": "oz", "lb": "pound", "hour": "hr",
    "mile": "mi", "yard": "yd", "minute": "min", "sec": "second"}
SHORT_UNITS = set("cm mm km kg mg ml ft in oz lb hr mi yd sq am pm".split())
POWERS = {"square": "2", "sq": "2", "cubic": "3"}
MATRIX = re.compile(r"^\\begin\{([pb]?matrix)\}(.*)\\end\{\1\}$", re.S)
HEDGE = r"(?i)(?:about|around|roughly|approximately|nearly|almost|over|under|at (?:least|most)|(?:more|less) than)\s"


def parse_form(answer: str, depth: int = 0) -> Form:
    """The form of an answer; Unreadable if it has none of the known ones, Hedged if it is not a definite number."""
    if len(answer) > MAX_LENGTH or depth > MAX_DEPTH:
        raise Unreadable("too long or too deep")
    text = _normalise(answer) if depth == 0 else answer.strip()
    for parse_kind in (_parse_words, _parse_matrix, _parse_union, _parse_relation, _parse_list, _parse_bracketed, _parse_based,
                       _parse_ratio):
        if (form := parse_kind(text, depth)) is not None:
            return form
    return _parse_number(text, depth)


def _normalise(answer: str) -> str:
    """The same answer with uniform signs, spaces and grouped numbers."""
    text = answer.strip().translate(str.maketrans(SIGNS))
    for opening, closing in (("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) + len(closing):
            text = text[len(opening):-len(closing)].strip()
    text = GROUPED.sub(_without_commas, DROPPED.sub("", text))
    text = re.sub(r"\\text\s*\{\s*,?\s*(?:and|or)\s*\}|(?<![A-Za-z])(?:and|or)(?![A-Za-z])", ",", text)
    text = re.sub(r",(\s*,)+", ",", SPACES.sub(" ", text)).strip()
    return text[:-1].rstrip() if text.endswith(".") else text


def _plain_words(answer: str) -> str:
    r"""An answer in words without its markup: \text{(B)} and B are the same."""
    text = re.sub(TEXT, r"\1", answer)
    return " ".join(re.sub(r"[(){}\\$.]", " ", text).casefold().split())


def _split_outside_brackets(text: str, separator: str) -> list[str]:
    """The parts between those matches of the separator (a pattern) that are outside all brackets."""
    parts, start, depth = [], 0, 0
    for match in re.finditer(rf"(?P<cut>{separator})|\\?[(\[{{]|\\?[)\]}}]", text):
        if match["cut"] is None:
            depth += 1 if match[0][-1] in "([{" else -1
        elif depth == 0:
            parts.append(text[start:match.start()].strip())
            start = match.end()
    return [*parts, text[start:].strip()]


def _without_commas(match):
    before, after = match.string[:match.start()].rstrip(), match.string[match.end():].lstrip()
    if before.endswith(("(", "[", "\\{")) and after.startswith((")", "]", "\\}")):
        return match[0]
    return re.sub(r"[^0-9]", "", match[0])


def _parse_words(text, depth):
    inner = re.fullmatch(TEXT + r"\.?", text)
    if inner and re.search(r"[0-9]", inner[1]):
        with contextlib.suppress(Unreadable):    # \text{13} is a number, \text{June 20} is not
            return parse_form(inner[1], depth + 1)
    if inner or re.fullmatch(r"\(?[A-Za-z]{3,}(?:[ -][A-Za-z]+)*\)?", text) and text not in ("sqrt", "infinity"):
        return Form("text", detail=_plain_words(text))
    return None


def _parse_matrix(text, depth):
    found = MATRIX.match(text)
    if not found:
        return None
    rows = [[parse_form(cell, depth + 1) for cell in _split_outside_brackets(row, "&")]
            for row in re.split(r"\\\\", found[2]) if row.strip()]
    return Form("matrix", tuple(cell for row in rows for cell in row), tuple(map(len, rows)))


def _parse_union(text, depth):
    parts = _split_outside_brackets(text, r"\\cup(?![A-Za-z])")
    return Form("union", tuple(parse_form(part, depth + 1) for part in parts)) if len(parts) > 1 else None


def _parse_relation(text, depth):
    if re.match(r"[A-Za-z]\s*\\in(?![A-Za-z])", text):
        return parse_form(text.partition("\\in")[2], depth + 1)
    signs = RELATION.findall(text)
    sides = _split_outside_brackets(text, RELATION.pattern)
    if len(sides) < 2:
        return None
    if len(_split_outside_brackets(text, ",")) > 1:    # x = 1, y = 2
        return None
    if len(signs) != len(sides) - 1:
        raise Unreadable("a relation in brackets")
    signs = [RELATIONS.get(sign, sign) for sign in signs]
    if all(sign in MIRRORED for sign in signs):
        sides, signs = sides[::-1], [MIRRORED[sign] for sign in reversed(signs)]
    return Form("relation", tuple(parse_form(side, depth + 1) for side in sides), tuple(signs))


def _parse_list(text, depth):
    parts = _split_outside_brackets(text, ",")
    return _set_of(parts, depth) if len(parts) > 1 else None


def _set_of(parts, depth):
    forms = [parse_form(part, depth + 1) for part in parts]
    return Form("set", tuple(part for form in forms for part in (form.parts if form.kind == "set" else (form,))))


def _parse_bracketed(text, depth):
    if text in ("\\emptyset", "\\varnothing"):
        return Form("set")
    if text.startswith("\\{") and text.endswith("\\}"):
        inner = text[2:-2].strip()
        return _set_of(_split_outside_brackets(inner, ","), depth) if inner else Form("set")
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and len(text) > 2:
        parts = _split_outside_brackets(text[1:-1], ",")
        if len(parts) > 1:
            return Form("tuple", tuple(parse_form(part, depth + 1) for part in parts), text[0] + text[-1])
    return None


def _parse_based(text, depth):
    found = re.fullmatch(r"([0-9][0-9A-Za-z]*)\s*_\s*\{?\s*([0-9]+)\s*\}?", text)
    return Form("based", detail=(found[1].upper(), found[2])) if found else None


def _parse_ratio(text, depth):
    parts = _split_outside_brackets(text, ":")
    return Form("ratio", tuple(parse_form(part, depth + 1) for part in parts)) if len(parts) > 1 else None


def _parse_number(text, depth):
    text, unit = _without_unit(text)
    tree = parse(text)
    if not any(node.kind in ("pm", "mp") for node in walk(tree)):
        return Form("expr", (tree,), unit)
    return Form("set", tuple(Form("expr", (_with_sign(tree, sign),), unit) for sign in ("pm", "mp")))


def _with_sign(node, plus):
    r"""The tree with \pm and \mp resolved to one of their two signs."""
    parts = tuple(_with_sign(part, plus) for part in node.parts)
    if node.kind in ("pm", "mp"):
        return parts[0] if node.kind == plus else Node("neg", parts)
    return node._replace(parts=parts)


def _without_unit(text):
    """(the text without its unit, the unit or "")."""
    if re.match(HEDGE, text):
        raise Hedged(f"{text!r} is not a definite number")
    for prefix, unit in PREFIXES.items():
        sign, rest = ("-", text[1:].lstrip()) if text.startswith("-") else ("", text)
        if rest.startswith(prefix):
            return sign + _without_unit(rest[len(prefix):].strip())[0], unit
    for suffix, unit in SUFFIXES.items():
        if text.endswith(suffix):
            return text[:-len(suffix)].rstrip(), unit
    for pattern in (UNIT_IN_TEXT, UNIT_AS_WORD):
        if match := pattern.match(text):
            words = match[2].casefold().replace(".", "").split()
            if pattern is UNIT_AS_WORD and len(words[0]) < 3 and words[0] not in SHORT_UNITS:
                continue    # 2 xy is a product
            if NOT_UNITS & {part for word in words for part in re.split(r"[/-]", word)}:
                raise Hedged(f"{match[2]!r} is not a unit")
            return match[1], _unit(words, match[3] or "")
    return text, ""


def _unit(words, power):
    """One name for a unit however it is written: square feet and ft^2 are the same."""
    words = [SAME_UNITS.get(singular := _singular(word), singular) for word in words]
    if len(words) > 1 and words[0] in POWERS:
        words, power = words[1:], power or POWERS[words[0]]
    return " ".join(words) + power


def _singular(words):
    return words[:-1] if len(words) > 2 and words.endswith("s") else words
