r"""Mathematical expressions: parse LaTeX or plain text into a tree, and decide whether two trees have exactly the same value.

    num(value)  sym(name)  neg(a)  pm(a)  mp(a)  add(a, b, ...)  mul(a, b, ...)  div(a, b)  pow(a, b)  root(a, k)
    fact(a)  binom(a, b)  abs(a)

**Parsing.** One expression: no lists, relations or units. \dfrac, \tfrac, \frac12, \sqrt3, mixed numbers (2\frac{1}{3} and
"2 1/3", if the fraction is proper) and 0.\overline{3} are understood. Anything ambiguous is Unreadable: "3 4", "x2", words,
functions, text. The length of the text and the depth of the tree are bounded, and so is the work.

**Comparing.** No floats, no tolerance, no simplification. A value is a fraction of two sums of terms
c * p1^(a1/b1) * p2^(a2/b2) * ..., with c rational, the p distinct primes (or -1, for i) and the exponents below 1. Such products
of roots are linearly independent over the rationals, so two sums are equal exactly if their terms are, and two fractions
if their cross products are: sqrt(8) = 2 sqrt(2), 2/sqrt(3) = 2 sqrt(3)/3. sqrt(a + b sqrt(c)) is denested if possible, else
treated as one more unknown. Unknowns, pi and e get rational values at several points: a difference that is not identically
zero vanishes at almost none. Roots are principal, odd roots real; unknowns may be negative, so sqrt(x^2) is not x. Where this
is not enough (other functions, numbers beyond MAX_BITS, roots with large prime factors) the result is None, "not comparable",
so nested powers cost little."""

import math
import random
import re
from decimal import Context, Decimal
from fractions import Fraction
from functools import cache, lru_cache
from typing import NamedTuple

# ---- trees ------------------------------------------------------------------------------------------------------------


class Node(NamedTuple):
    kind: str
    parts: tuple = ()
    value: object = None     # num: a Fraction; sym: its name
    decimal: bool = False    # num: written with a decimal point, so it may have been rounded


def walk(tree: Node):
    """Yield every node of a tree, in no particular order."""
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        todo += node.parts


# ---- parsing ----------------------------------------------------------------------------------------------------------


MAX_LENGTH, MAX_DEPTH, MAX_HEIGHT = 1000, 40, 150    # characters; nested brackets; levels of the tree

NAMES = {f"\\{name}" for name in (
    "alpha beta gamma delta epsilon varepsilon theta lambda mu nu rho sigma tau phi varphi omega pi infty ell Delta Gamma "
    "Omega").split()}
PLAIN_COMMANDS = {"sqrt": "\\sqrt", "pi": "\\pi", "infinity": "\\infty", "infty": "\\infty"}    # written without a backslash
SYNONYMS = {"\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\cfrac": "\\frac", "\\dbinom": "\\binom", "\\tbinom": "\\binom",
            "\\cdot": "*", "\\times": "*", "\\ast": "*", "\\div": "/", "\\lvert": "|", "\\rvert": "|", "\\vert": "|",
            "\\lbrack": "[", "\\rbrack": "]"}
FONTS = {"\\mathrm", "\\mathbf", "\\mathit", "\\mathbb", "\\mathcal", "\\rm", "\\bf", "\\displaystyle", "\\limits"}
CLOSING = {"(": ")", "[": "]", "{": "}"}
SIGNS = {"+": "", "-": "neg", "\\pm": "pm", "\\mp": "mp"}
AFTER_TERM = {None, *SIGNS, ")", "]", "}", "|"}
TOKEN = re.compile(r"\s*(?:([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:\\overline\{([0-9]+)\})?|(\\[A-Za-z]+|[A-Za-z]+)"
                   r"|([-+*/^_!|(){}\[\]]))")


class Unreadable(ValueError):
    """A text that cannot be parsed."""


def parse(text: str) -> Node:
    """The tree of the whole text; Unreadable if it is not one expression, or is too long or too deep."""
    if len(text) > MAX_LENGTH:
        raise Unreadable(f"{len(text)} characters")
    parser = _Parser(_tokens(text))
    tree = parser.expression(0)
    if parser.here is not None:
        raise Unreadable(f"{parser.here} after the end of an expression")
    level, height = [tree], 0
    while level := [part for node in level for part in node.parts]:    # 1/1/1/... is deep without a bracket
        if (height := height + 1) > MAX_HEIGHT:
            raise Unreadable("too many operations in a row")
    return tree


def _tokens(text):
    """Numbers as nodes; commands, letters and signs as text."""
    tokens, at, text = [], 0, text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise Unreadable(f"{text[at]!r} is not understood")
        at, (digits, repeating, name, sign) = match.end(), match.groups()
        if digits:
            if tokens[-1:] == ["\\frac"] and re.fullmatch("[0-9]{2}", digits):    # \frac12 holds two numbers
                tokens.append(_number(digits[0]))
                digits = digits[1]
            if repeating and "." not in digits:
                raise Unreadable("a line over digits before the decimal point")
            tokens.append(_number(digits, repeating))
        elif sign or name[0] == "\\":
            tokens.append(SYNONYMS.get(sign or name, sign or name))
        else:
            tokens += _letters(name)
    return [token for token in tokens if token not in FONTS]


def _number(digits, repeating=None):
    """A decimal as an exact number; `repeating` are the digits of its period."""
    value = Fraction(digits if digits[-1] != "." else digits[:-1] or "0")
    if repeating:
        places = len(digits.partition(".")[2])
        value += Fraction(int(repeating), 10**places * (10**len(repeating) - 1))
    return Node("num", value=value, decimal="." in digits and not repeating)


def _letters(word):
    if word in PLAIN_COMMANDS:
        return [PLAIN_COMMANDS[word]]
    if len(word) > 3:    # words are more common than products of four unknowns
        raise Unreadable(f"the word {word!r}")
    return list(word)


def _is_whole(token):
    return isinstance(token, Node) and token.value.denominator == 1 and not token.decimal


class _Parser:
    """A recursive-descent parser; each method consumes what its name says. depth: how many brackets are open."""

    def __init__(self, tokens):
        self._tokens, self._at = [*tokens, None], 0

    @property
    def here(self):
        """The next token, None at the end."""
        return self._tokens[self._at]

    def take(self):
        """Consume and return the next token."""
        token = self.here
        if token is None:
            raise Unreadable("ends too early")
        self._at += 1
        return token

    def _expect(self, sign):
        if self.here != sign:
            raise Unreadable(f"{sign} is missing")
        self.take()

    def expression(self, depth):
        """A sum of terms such as -a + b - c."""
        terms = [self._signed_term(depth) if self.here in SIGNS else self._term(depth)]
        while self.here in SIGNS:
            terms.append(self._signed_term(depth))
        return terms[0] if len(terms) == 1 else Node("add", tuple(terms))

    def _signed_term(self, depth):
        sign = SIGNS[self.take()]
        if self.here in SIGNS:
            raise Unreadable("two signs in a row")
        term = self._term(depth)
        if sign == "neg" and term.kind == "num":
            return term._replace(value=-term.value)
        return Node(sign, (term,)) if sign else term

    def _term(self, depth):
        tree = self._factor(depth)
        while self.here not in AFTER_TERM:
            if self.here in ("*", "/"):
                operator = self.take()
                factor = self._signed_factor(depth)
                tree = Node("div", (tree, factor)) if operator == "/" else _product(tree, factor)
            elif isinstance(self.here, Node):
                raise Unreadable("a number right after something else")
            else:
                tree = _product(tree, self._factor(depth))
        return tree

    def _signed_factor(self, depth):
        if self.here in ("+", "-"):
            return Node("neg", (self._factor(depth),)) if self.take() == "-" else self._factor(depth)
        return self._factor(depth)

    def _factor(self, depth):
        tree = self._atom(depth)
        while self.here in ("^", "!"):
            if self.take() == "!":
                tree = Node("fact", (tree,))
                continue
            tree = Node("pow", (tree, self._exponent(depth)))
            if self.here == "^":
                raise Unreadable("two exponents in a row")
        return tree

    def _atom(self, depth):
        token = self.take()
        if depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        if isinstance(token, Node):
            return self._mixed(token)
        if token in CLOSING:
            return self._until(CLOSING[token], depth)
        if token == "|":
            return Node("abs", (self._until("|", depth),))
        if token in ("\\frac", "\\binom"):
            return Node("div" if token == "\\frac" else "binom", (self._argument(depth, 1), self._argument(depth, 1)))
        if token == "\\sqrt":
            index = self._index(depth)
            return Node("root", (self._argument(depth), index))
        if token in NAMES or (len(token) == 1 and token.isalpha()):
            return Node("sym", value=token + self._subscript())
        raise Unreadable(f"{token} is not understood")

    def _until(self, closing, depth):
        inner = self.expression(depth + 1)
        self._expect(closing)
        return inner

    def _index(self, depth):
        if self.here != "[":
            return Node("num", value=Fraction(2))
        self.take()
        return self._until("]", depth)

    def _argument(self, depth, digits=MAX_LENGTH):
        """A group in braces or a single token; a number of more than `digits` digits is several tokens in TeX."""
        if isinstance(self.here, Node):
            if len(str(self.here.value)) > digits:
                raise Unreadable("a fraction without a clear end")
            return self.take()
        return self._atom(depth + 1)

    def _exponent(self, depth):
        if self.here == "-":    # 2^-3 means 2^{-3}, though TeX sets it differently
            self.take()
            return Node("neg", (self._argument(depth),))
        return self._argument(depth)

    def _mixed(self, whole):
        r"""2\frac{1}{3} or 2 1/3 as one number: a whole number followed by a proper fraction."""
        after = self._tokens[self._at:self._at + 7]
        parts = [token for token in after if isinstance(token, Node)][:2]
        if len(parts) == 2 and _is_whole(whole) and 0 < parts[0].value < parts[1].value and all(map(_is_whole, parts)):
            top, bottom = parts
            for written in (("\\frac", "{", top, "}", "{", bottom, "}"), ("\\frac", top, bottom), (top, "/", bottom)):
                if tuple(after[:len(written)]) == written:
                    self._at += len(written)
                    return Node("num", value=whole.value + top.value / bottom.value)
        return whole

    def _subscript(self):
        if self.here != "_":
            return ""
        self.take()
        token = self.take()
        if token == "{":
            token = self.take()
            self._expect("}")
        return f"_{token.value if isinstance(token, Node) else token}"


def _product(a, b):
    return Node("mul", (*(a.parts if a.kind == "mul" else (a,)), b))


# ---- comparing --------------------------------------------------------------------------------------------------------


MAX_BITS, MAX_TERMS, MAX_POWER, MAX_PRIME, MAX_FACTORIAL = 10_000, 16, 32, 30_000, 500
POINTS, ENOUGH = 6, 3      # points at which unknowns are evaluated; at how many both sides must be defined
POSITIVE = {"\\pi", "e", "\\infty"}
REAL = {"\\pi": Fraction("3.14159265358979323846264338327950288419716939937510"),
        "e": Fraction("2.71828182845904523536028747135266249775724709369995")}
DIGITS = Context(prec=60, Emax=10**6, Emin=-(10**6))
ONE = {(): Fraction(1)}


class NotComparable(ValueError):
    """A value that cannot be computed exactly, or only at too great a cost."""


def same_value(a: Node, b: Node) -> bool | None:
    """Whether two expressions are equal wherever they are defined; None if that is not certain."""
    names = sorted({node.value for tree in (a, b) for node in walk(tree) if node.kind == "sym"} - {"i"})
    verdicts = []
    for point in range(POINTS if names else 1):
        try:
            left, right = evaluate(a, _point(names, point)), evaluate(b, _point(names, point))
        except (NotComparable, ZeroDivisionError):
            continue
        try:
            verdicts.append(_same_fraction(left, right))
        except NotComparable:
            continue
        if verdicts[-1] is not True:
            return verdicts[-1]
    return True if len(verdicts) >= (ENOUGH if names else 1) else None


def decimal_value(tree: Node) -> Decimal | None:
    """A real number to about 50 digits; None if the tree has unknowns or no real value."""
    if any(node.kind == "sym" and node.value not in REAL for node in walk(tree)):
        return None
    try:
        top, bottom = (_decimal(part) for part in evaluate(tree, REAL))
        return DIGITS.divide(top, bottom)
    except (NotComparable, ArithmeticError):
        return None


def rational_value(tree: Node) -> Fraction | None:
    """The exact value of an expression without unknowns; None if it is irrational or cannot be computed."""
    try:
        return _rational(evaluate(tree, REAL))
    except (NotComparable, ArithmeticError, KeyError):
        return None


def evaluate(tree: Node, values: dict) -> tuple[dict, dict]:
    """(numerator, denominator) of the value at a point, both sums of terms; NotComparable or ZeroDivisionError if it has none."""
    if tree.kind == "num":
        return _constant(tree.value)
    if tree.kind == "sym":
        return ({((-1, Fraction(1, 2)),): Fraction(1)}, ONE) if tree.value == "i" else _constant(values[tree.value])
    return OPERATIONS[tree.kind](*(evaluate(part, values) for part in tree.parts))


def _point(names, point):
    """Rational values of the names, the same in every process; at odd points unknowns may be negative."""
    draw = random.Random(f"point/{point}")
    return {name: Fraction(draw.randint(2, 400), draw.randint(1, 7)) * (-1 if point % 2 and name not in POSITIVE
            and draw.random() < 0.5 else 1) for name in names}


def _same_fraction(left, right):
    one, other = _times(left[0], right[1]), _times(right[0], left[1])
    if one == other:
        return True
    opaque = any(not isinstance(base, int) for terms in (one, other) for roots in terms for base, _ in roots)
    return None if opaque else False


# ---- fractions of sums ------------------------------------------------------------------------------------------------


def _constant(value):
    return {(): value} if value else {}, ONE


def _fraction(top, bottom):
    """A fraction; a denominator of one term is divided out, so that most values are one sum."""
    if not bottom:
        raise ZeroDivisionError
    if len(bottom) == 1:
        (roots, c), = bottom.items()
        return _times(top, _times(ONE, {tuple((base, -e) for base, e in roots): 1 / c})), ONE
    return top, bottom


def _add(first, *others):
    for other in others:
        if first[1] == other[1]:
            first = _plus(first[0], other[0]), first[1]
        else:
            first = _fraction(_plus(_times(first[0], other[1]), _times(other[0], first[1])),
                              _times(first[1], other[1]))
    return first


def _mul(first, *others):
    for other in others:
        first = _fraction(_times(first[0], other[0]), _times(first[1], other[1]))
    return first


def _div(a, b):
    return _fraction(_times(a[0], b[1]), _times(a[1], b[0]))


def _neg(a):
    return {roots: -c for roots, c in a[0].items()}, a[1]


def _rational(a):
    """The value as a Fraction; NotComparable if it is irrational."""
    if a[1] != ONE or a[0].keys() - {()}:
        raise NotComparable("not rational")
    return a[0].get((), Fraction(0))


def _pow(a, b):
    exponent = _rational(b)
    if exponent.denominator != 1:
        a = _root(a, _constant(Fraction(exponent.denominator)))
    power = exponent.numerator
    if power < 0:
        a, power = _div((ONE, ONE), a), -power
    if power == 0 and not a[0]:
        raise ZeroDivisionError    # 0^0
    if len(a[0]) == 1 and a[1] == ONE:
        (roots, c), = a[0].items()
        _check_cost(power, max(c.numerator.bit_length(), c.denominator.bit_length()))
        return _times({tuple((base, e * power) for base, e in roots): c**power}, ONE), ONE
    if power > MAX_POWER:
        raise NotComparable("a sum to a large power")
    return _mul((ONE, ONE), *[a] * power)


def _root(a, k):
    index = _rational(k)
    if index.denominator != 1 or not 2 <= index <= MAX_POWER or a[1] != ONE:
        raise NotComparable("a root of an unusual kind")
    if not a[0]:
        return a
    if len(a[0]) == 1:
        (roots, c), = a[0].items()
        return _root_of_term(roots, c, index), ONE
    return _root_of_sum(a[0], index), ONE


def _root_of_term(roots, c, index):
    if any(not isinstance(base, int) or base < 0 for base, _ in roots):
        raise NotComparable("a root of a number that is not real")
    if c < 0 and index % 2 == 0 and index != 2:
        raise NotComparable("a root of a negative number")
    bases = [*_factors(abs(c.numerator)), *((p, -n) for p, n in _factors(c.denominator)), *roots]
    taken = [(base, Fraction(e) / index) for base, e in bases] + [(-1, Fraction(1, 2))] * (c < 0 and index == 2)
    return _times(ONE, {tuple(taken): Fraction(-1 if c < 0 and index % 2 else 1)})


def _root_of_sum(terms, index):
    """sqrt(a + b sqrt(c)) = sqrt((a+d)/2) +- sqrt((a-d)/2), d = sqrt(a^2 - b^2 c), if d is rational; else opaque."""
    a = terms.get((), Fraction(0))
    others = [roots for roots in terms if roots]
    if index == 2 and a > 0 and len(others) == 1 and all(isinstance(p, int) and p > 0 for p, _ in others[0]):
        rest = {others[0]: terms[others[0]]}
        square = _times(rest, rest)
        d = _square_root(a * a - square[()]) if square.keys() == {()} else None
        if d is not None:
            one, other = (_root_of_term((), half, 2) if half else {} for half in ((a + d) / 2, (a - d) / 2))
            return _plus(one, other if rest[others[0]] > 0 else _neg((other, ONE))[0])
    return {((tuple(sorted(terms.items(), key=repr)), Fraction(1) / index),): Fraction(1)}


def _square_root(value):
    if value < 0:
        return None
    top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
    return Fraction(top, bottom) if (top * top, bottom * bottom) == (value.numerator, value.denominator) else None


def _fact(a):
    n = _rational(a)
    if n.denominator != 1 or not 0 <= n <= MAX_FACTORIAL:
        raise NotComparable("not a factorial")
    return _constant(Fraction(math.factorial(int(n))))


def _binom(a, b):
    n, k = _rational(a), _rational(b)
    if n.denominator != 1 or k.denominator != 1 or not 0 <= k <= n <= MAX_FACTORIAL:
        raise NotComparable("not a binomial coefficient")
    return _constant(Fraction(math.comb(int(n), int(k))))


def _abs(a):
    return _constant(abs(_rational(a)))


OPERATIONS = {"neg": _neg, "add": _add, "mul": _mul, "div": _div, "pow": _pow, "root": _root, "fact": _fact, "binom": _binom,
              "abs": _abs}


# ---- sums of terms: {((prime, exponent), ...): coefficient} -----------------------------------------------------------


def _checked(terms):
    if len(terms) > MAX_TERMS or any(c.numerator.bit_length() + c.denominator.bit_length() > MAX_BITS for c in terms.values()):
        raise NotComparable("too large")
    return {roots: c for roots, c in terms.items() if c}


def _plus(a, b):
    return _checked({roots: a.get(roots, 0) + b.get(roots, 0) for roots in {**a, **b}})


def _times(a, b):
    total = {}
    for left, c in a.items():
        for right, d in b.items():
            roots, factor = _reduced([*left, *right])
            total[roots] = total.get(roots, 0) + c * d * factor
    return _checked(total)


def _reduced(roots):
    """(the roots with exponents from 0 to 1, the product of the whole powers taken out of them)."""
    exponents, factor = {}, Fraction(1)
    for base, exponent in roots:
        exponents[base] = exponents.get(base, 0) + exponent
    for base, exponent in exponents.items():
        if isinstance(base, int):
            whole = math.floor(exponent)
            _check_cost(abs(whole), base.bit_length())
            exponents[base], factor = exponent - whole, factor * Fraction(base)**whole
    return tuple(sorted(((base, e) for base, e in exponents.items() if e), key=_rank)), factor


def _rank(root):
    base, _ = root
    return (0, base, "") if isinstance(base, int) else (1, 0, repr(base))


def _check_cost(power, bits):
    if power * bits > MAX_BITS:
        raise NotComparable("a power too large")


def _decimal(terms):
    """A sum as a decimal; NotComparable if a root is not real or opaque."""
    total = Decimal(0)
    for roots, c in terms.items():
        value = DIGITS.divide(Decimal(c.numerator), Decimal(c.denominator))
        for base, exponent in roots:
            if not isinstance(base, int) or base < 0:
                raise NotComparable("not a known real number")
            power = DIGITS.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
            value = DIGITS.multiply(value, DIGITS.power(Decimal(base), power))
        total = DIGITS.add(total, value)
    return total


# ---- primes -----------------------------------------------------------------------------------------------------------


@cache
def _primes():
    sieve = bytearray([1]) * (MAX_PRIME + 1)
    for p in range(2, math.isqrt(MAX_PRIME) + 1):
        if sieve[p]:
            sieve[p * p::p] = bytes(len(range(p * p, MAX_PRIME + 1, p)))
    return [p for p in range(2, MAX_PRIME + 1) if sieve[p]]


@lru_cache(maxsize=4096)
def _factors(n):
    """((prime, exponent), ...) of a positive integer; NotComparable if two large primes remain."""
    found = []
    for p in _primes():
        if p * p > n:
            break
        times = 0
        while n % p == 0:
            n, times = n // p, times + 1
        if times:
            found.append((p, times))
    if n >= MAX_PRIME**2:
        raise NotComparable("large prime factors")
    return (*found, *([(n, 1)] if n > 1 else []))
