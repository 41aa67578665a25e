r"""Answers to word problems and mathematics: finding the final one in a completion, and whether it is the right one.

An answer counts only at a fixed final marker, `#### N` or \boxed{...}: paying for the last number of free text would pay for
lists of guesses. Two answers are equal when they have the same form and exactly the same value; Python evaluates nothing, no
library simplifies anything, and hostile text costs little. An answer's form is one of

    expr(tree, unit)   text(words)   tuple((...), "(]")   set(...)   union(...)   relation(("=", "<"), (...))
    based("52", 8)     ratio(...)    matrix((...), shape)

How answers are read, each policy on purpose:
- a comma between groups of three digits belongs to the number, unless it stands directly in brackets: 1,080 but (1,080);
- "or" and "and" between answers are commas, and \pm is two answers;
- currency, %, degrees and a word after a number are its unit. Words that change the number (million, dozen, half) and hedges
  (about, roughly) are not units: such an answer is wrong;
- "x =" and "x \in" in front of an answer say nothing;
- only text in \text{} and whole words of three letters or more are words; "xy" is a product.

How they are compared:
- a unit counts only where both answers have one, and % does not divide by 100: 25\% is 25, not 0.25;
- an unreduced fraction is right, an unexpanded product too, unless the task asks for a form: `same_form`;
- an answer has to be worked out: 48 + 24 is not 72, nor is 2^3 8, unless the reference has such operations itself. Fractions,
  roots and a * 10^n are worked out; where the reference is a whole number, only a number in digits is;
- a decimal may be off by 1e-6 of its value where the reference is not a whole number; never where it is one, and never between
  two exact values;
- tuples and intervals have an order and brackets; sets and lists of roots have neither, but multiplicity counts;
- equations are equal where one is a multiple of the other; "x = 5" is 5 where the other has no "=".

Not judged: whether the derivation was right."""

import contextlib
import re
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from rl.rewards.words.expressions import DIGITS, MAX_DEPTH, MAX_LENGTH, Node, Unreadable, decimal_value, parse, same_value, walk

# ---- what an answer is ------------------------------------------------------------------------------------------------


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


# ---- the final answer in a completion ---------------------------------------------------------------------------------


POLICIES = ("one", "last")
TOLERANCE = Decimal("1e-6")
MARK = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*(\{)?|\\.|[{}]", re.S)
# The line has to begin like a number: "#### Step 2" is a heading.
HASHES = re.compile(r"(?<!#)####(?!#)[ \t]*((?:\\boxed|[-+\u2212$\u20ac\u00a3\\.(]{0,4}[0-9])[^\n]*)")
LITERAL = re.compile(r"(-?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
WORDS, HEDGED = Form("text"), Form("hedged")
FUNCTIONS = set("fghpqPQV")
SUM_LIKE = ("add", "mul", "pow", "fact", "binom")


def gsm8k_gold(text: str) -> int:
    """The number behind the one `####` of a GSM8K solution; ValueError where there is not exactly one whole number."""
    parts = text.split("####")
    digits = parts[-1].strip()
    if len(parts) != 2 or not re.fullmatch(r"-?(?:[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)", digits):
        raise ValueError(f"a GSM8K answer ends with one line '#### N', N a whole number; this one ends with {text[-40:]!r}")
    return int(digits.replace(",", ""))


def final_answer(completion: str, tag: str = "", policy: str = "one") -> str | None:
    r"""What stands at the final marker; None where there is none, or it is unclosed or empty.

    policy "one": None too where there are several markers, so that nobody can hedge; "last": the last of them. With a tag,
    a marker before the end of the thinking block </tag> is never the answer, though it counts as one of several."""
    if policy not in POLICIES:
        raise ValueError(f"policy {policy!r}: use {' or '.join(POLICIES)}")
    found = _markers(completion)
    if not found or (policy == "one" and len(found) > 1):
        return None
    start, answer = found[-1]
    if tag and start < completion.rfind(f"</{tag}>"):
        return None
    return answer


def boxes(text: str) -> list[tuple[int, str | None]]:
    r"""(where it starts, what is in it) of every outermost \boxed or \fbox, in order; None for one that is not closed."""
    found, open_braces, bare_end = [], [], 0
    for match in MARK.finditer(text):
        token = match[0]
        if match.start() < bare_end:
            continue
        if token == "}":
            if open_braces:
                start, inside = open_braces.pop()
                if start is not None and all(outer is None for outer, _ in open_braces):
                    found.append((start, text[inside:match.start()]))
        elif match[1] or token == "{":
            open_braces.append((match.start() if match[1] else None, match.end()))
        elif token.lstrip("\\")[:4] in ("boxe", "fbox") and all(outer is None for outer, _ in open_braces):
            bare = re.compile(r"[^\s$]*").match(text, match.end())
            bare_end = bare.end()
            found.append((match.start(), bare[0].rstrip(".,;") or None))
    unclosed = [(start, None) for start, _ in open_braces if start is not None]
    return sorted([*found, *unclosed[:1]], key=lambda box: box[0])


def boxed_answer(text: str) -> str | None:
    """What is in the last box, without boxes inside that hold all of it; None where there is none, or it is empty or unclosed."""
    found = boxes(text)
    return _unboxed(found[-1][1]) if found else None


def _markers(completion):
    """(start, answer or None) of all final markers; a line with #### and a box in it is one."""
    found = [(start, _unboxed(answer)) for start, answer in boxes(completion)]
    for match in HASHES.finditer(completion):
        if not any(match.start() < start < match.end() for start, _ in found):
            found.append((match.start(), match[1].strip(" *`_")))
    return sorted(found, key=lambda marker: marker[0])


def _unboxed(answer):
    """The innermost content of boxes that hold nothing but a box; None where it is empty."""
    for _ in range(8):
        inner = boxes(answer) if answer and answer.lstrip().startswith(("\\boxed", "\\fbox")) else []
        if len(inner) != 1 or re.sub(r"^\\[a-z]+\s*\{?|\}$", "", answer.strip()) != inner[0][1]:
            break
        answer = inner[0][1]
    return (answer or "").strip() or None


def equal(prediction: str | None, reference: str, same_form: bool = False) -> bool:
    """Whether a prediction is certainly the reference's value; same_form: written as the reference is, too."""
    return compare(prediction, reference, same_form) is True


def compare(prediction: str | None, reference: str, same_form: bool = False) -> bool | None:
    """True, False, or None where the two cannot be compared here (unreadable, or beyond exact arithmetic)."""
    if not prediction or not prediction.strip() or not reference.strip():
        return False
    if len(prediction) > MAX_LENGTH or len(reference) > MAX_LENGTH:
        return None
    one, other = tidy(prediction), tidy(reference)
    if one == other:
        return True
    literals = _literal(one), _literal(other)
    if None not in literals and not same_form:
        return _same_literal(*literals)
    wanted, given = _read(reference), _read(prediction)
    if wanted in (WORDS, HEDGED) or given == WORDS:
        return plain_words(one) == plain_words(other)
    if None in (wanted, given):
        return None
    return given != HEDGED and _same(given, wanted, same_form)


def _read(answer):
    """The form of an answer, WORDS or HEDGED without what they say, or None."""
    try:
        form = read(answer)
    except Hedged:
        return HEDGED
    except Unreadable:
        return None
    return WORDS if form.kind == "text" else form


def _literal(text):
    text = text.removeprefix("\\$").removeprefix("$")
    found = LITERAL.fullmatch(text)
    return Fraction(found[1] + found[2].rstrip(".")) if found else None


def _same_literal(value, reference):
    tolerance = 0 if reference.denominator == 1 else abs(reference) * Fraction(TOLERANCE)
    return abs(value - reference) <= tolerance


def _same(a: Form, b: Form, same_form) -> bool | None:
    if a.kind != b.kind:
        return _without_name(a, b, same_form)
    if a.kind == "expr":
        return _same_expression(a, b, same_form)
    if a.kind == "relation" and len(a.parts) == 2 and a.detail == b.detail == ("=",):
        return _same_equation(a, b, same_form)
    if len(a.parts) != len(b.parts) or a.detail != b.detail:
        return False
    if a.kind in ("set", "union"):
        return _same_multiset(a.parts, b.parts, same_form)
    return _all(_same(x, y, same_form) for x, y in zip(a.parts, b.parts, strict=True))


def _without_name(a, b, same_form):
    """Compare "x = 5" with 5; other forms of different kinds are never equal."""
    for form in (a, b):
        if form.kind == "relation" and form.detail == ("=",) and _is_name(form.parts[0]):
            return _same(*((form.parts[1], b) if form is a else (a, form.parts[1])), same_form)
    return None if {a.kind, b.kind} in ({"relation", "tuple"}, {"relation", "union"}) else False


def _is_name(form):
    if form.kind != "expr":
        return form.kind == "tuple" and all(map(_is_name, form.parts))
    tree, = form.parts
    function = tree.kind == "mul" and len(tree.parts) == 2 and tree.parts[0].value in FUNCTIONS    # f(x) reads as a product
    return all(node.kind == "sym" for node in (tree.parts if function else (tree,)))


def _all(verdicts):
    verdicts = list(verdicts)
    return False if False in verdicts else None if None in verdicts else True


def _same_multiset(ours, theirs, same_form):
    left, unsure = list(ours), False
    for wanted in theirs:
        verdicts = [_same(form, wanted, same_form) for form in left]
        if True in verdicts:
            left.pop(verdicts.index(True))
        elif None in verdicts:
            unsure = True
        else:
            return False
    return None if unsure else True


def _same_equation(a, b, same_form):
    sides = [side for form in (a, b) for side in form.parts]
    if all(_is_name(form.parts[0]) for form in (a, b)) or any(side.kind != "expr" for side in sides):
        return _all(_same(x, y, same_form) for x, y in zip(a.parts, b.parts, strict=True))
    if same_form:
        return all(_shape(x.parts[0]) == _shape(y.parts[0]) for x, y in zip(a.parts, b.parts, strict=True))
    # L1 = R1 and L2 = R2 are multiples of each other where (L1 - R1) / (L2 - R2) is the same at any two points.
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
        return None
    if same_form and _shape(ours) != _shape(theirs):
        return False
    whole = theirs.kind == "num" and theirs.value.denominator == 1
    if (not _is_worked_out(theirs) or _is_worked_out(ours)) and (not whole or _is_in_digits(ours)):
        same = same_value(ours, theirs)
        return same if same or whole else _is_near(ours, theirs, same)
    return False


def _is_near(ours, theirs, same):
    """True where one of two real numbers is a decimal and they are closer than TOLERANCE of the second; else `same`."""
    if not any(node.decimal for tree in (ours, theirs) for node in walk(tree)):
        return same
    value, reference = decimal_value(ours), decimal_value(theirs)
    if value is None or reference is None:
        return same
    return abs(DIGITS.subtract(value, reference)) <= DIGITS.multiply(TOLERANCE, abs(reference))


def _is_rational(node):
    return node.kind == "num" or node.kind in ("neg", "div") and all(map(_is_rational, node.parts))


def _is_worked_out(tree):
    """False where an operation between plain numbers was left to the reader."""
    for node in walk(tree):
        plain = sum(map(_is_rational, node.parts))
        if node.kind in SUM_LIKE and plain > 1 or node.kind == "fact" and plain:
            if not (node.kind == "pow" and node.parts[0].value == 10):
                return False
    return True


def _is_in_digits(tree):
    if tree.kind == "mul" and len(tree.parts) == 2 and tree.parts[1].kind == "pow":
        tree, power = tree.parts
        return tree.kind == "num" and all(map(_is_rational, power.parts)) and power.parts[0].value == 10
    return _is_rational(tree)


def _shape(node):
    """The tree without the order of sums and products, and with a fraction's sign in front of it."""
    if node.kind == "div" and node.parts[0].kind == "num" and node.parts[0].value < 0:
        top = node.parts[0]._replace(value=-node.parts[0].value)
        return ("neg", (_shape(node._replace(parts=(top, node.parts[1]))),), "None")
    parts = tuple(map(_shape, node.parts))
    return node.kind, tuple(sorted(parts, key=repr)) if node.kind in ("add", "mul") else parts, str(node.value)
