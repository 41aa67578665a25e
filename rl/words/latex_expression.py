r"""A mathematical expression, as LaTeX or plain text has it, as a tree. Reads one expression: no lists, relations or units.

    num(value)  sym(name)  neg(a)  pm(a)  mp(a)  add(a, b, ...)  mul(a, b, ...)  div(a, b)  pow(a, b)  root(a, k)
    fact(a)  binom(a, b)  abs(a)

\dfrac, \tfrac, \frac12, \sqrt3, 2\frac{1}{3} and "2 1/3" (mixed numbers, where the fraction is proper) and 0.\overline{3} are
understood. What could be read in two ways, or only by guessing, is Unreadable: "3 4", "x2", words, functions, text. Nothing is
evaluated here, and the work is bounded: a text has a longest length, a tree a greatest depth."""

import re
from fractions import Fraction
from typing import NamedTuple

MAX_LENGTH, MAX_DEPTH, MAX_HEIGHT = 1000, 40, 150    # characters; brackets in brackets; levels of the tree


class Unreadable(ValueError):
    """A text that is no expression known here."""


class Node(NamedTuple):
    kind: str
    parts: tuple = ()
    value: object = None     # num: a Fraction; sym: its name
    decimal: bool = False    # num: written with a decimal point, so it may have been rounded


NAMES = {f"\\{name}" for name in (
    "alpha beta gamma delta epsilon varepsilon theta lambda mu nu rho sigma tau phi varphi omega pi infty ell Delta Gamma "
    "Omega").split()}
WORDS = {"sqrt": "\\sqrt", "pi": "\\pi", "infinity": "\\infty", "infty": "\\infty"}
SAME = {"\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\cfrac": "\\frac", "\\dbinom": "\\binom", "\\tbinom": "\\binom",
        "\\cdot": "*", "\\times": "*", "\\ast": "*", "\\div": "/", "\\lvert": "|", "\\rvert": "|", "\\vert": "|",
        "\\lbrack": "[", "\\rbrack": "]"}
FONTS = {"\\mathrm", "\\mathbf", "\\mathit", "\\mathbb", "\\mathcal", "\\rm", "\\bf", "\\displaystyle", "\\limits"}
CLOSING = {"(": ")", "[": "]", "{": "}"}
TOKEN = re.compile(r"\s*(?:([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:\\overline\{([0-9]+)\})?|(\\[A-Za-z]+|[A-Za-z]+)"
                   r"|([-+*/^_!|(){}\[\]]))")


def parse(text: str) -> Node:
    """The tree of a whole text; Unreadable where it is none, or too long or deep."""
    if len(text) > MAX_LENGTH:
        raise Unreadable(f"{len(text)} characters")
    reader = _Reader(_tokens(text))
    tree = reader.sum(0)
    if reader.here is not None:
        raise Unreadable(f"{reader.here} after the end of an expression")
    level, height = [tree], 0
    while level := [part for node in level for part in node.parts]:    # 1/1/1/... is deep without a bracket
        if (height := height + 1) > MAX_HEIGHT:
            raise Unreadable("too many operations in a row")
    return tree


def walk(tree: Node):
    """Every node of a tree, in no particular order."""
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        todo += node.parts


def number(whole: str, repeating: str | None = None) -> Node:
    """A decimal as an exact number; `repeating` are the digits that come again for ever."""
    value = Fraction(whole if whole[-1] != "." else whole[:-1] or "0")
    if repeating:
        places = len(whole.partition(".")[2])
        value += Fraction(int(repeating), 10**places * (10**len(repeating) - 1))
    return Node("num", value=value, decimal="." in whole and not repeating)


def _tokens(text):
    """Numbers as nodes, everything else as text: a command, a letter or a sign."""
    found, at, text = [], 0, text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise Unreadable(f"{text[at]!r} is not understood")
        at, (digits, repeating, name, sign) = match.end(), match.groups()
        if digits:
            if found[-1:] == ["\\frac"] and re.fullmatch("[0-9]{2}", digits):    # \frac12 holds two numbers
                found.append(number(digits[0]))
                digits = digits[1]
            if repeating and "." not in digits:
                raise Unreadable("a line over digits that are no decimals")
            found.append(number(digits, repeating))
        elif sign or name[0] == "\\":
            found.append(SAME.get(sign or name, sign or name))
        else:
            found += _letters(name)
    return [token for token in found if token not in FONTS]


def _letters(word):
    if word in WORDS:
        return [WORDS[word]]
    if len(word) > 3:    # a product of four unknowns is rarer than a word
        raise Unreadable(f"the word {word!r}")
    return list(word)


def _is_whole(token):
    return isinstance(token, Node) and token.value.denominator == 1 and not token.decimal


class _Reader:
    """Goes through the tokens once, from left to right; each method reads what its name says."""

    def __init__(self, tokens):
        self._tokens, self._at = [*tokens, None], 0

    @property
    def here(self):
        """The next token; None at the end."""
        return self._tokens[self._at]

    def take(self):
        """The next token, which is then behind us."""
        token = self.here
        if token is None:
            raise Unreadable("ends too early")
        self._at += 1
        return token

    def _expect(self, sign):
        if self.here != sign:
            raise Unreadable(f"{sign} is missing")
        self.take()

    def sum(self, depth):
        """a + b - c, down to a sign in front."""
        terms = [self._signed(depth) if self.here in _SIGNS else self._product(depth)]
        while self.here in _SIGNS:
            terms.append(self._signed(depth))
        return terms[0] if len(terms) == 1 else Node("add", tuple(terms))

    def _signed(self, depth):
        sign = _SIGNS[self.take()]
        if self.here in _SIGNS:
            raise Unreadable("two signs in a row")
        term = self._product(depth)
        if sign == "neg" and term.kind == "num":
            return term._replace(value=-term.value)
        return Node(sign, (term,)) if sign else term

    def _product(self, depth):
        tree = self._factor(depth)
        while self.here not in _AFTER_PRODUCT:
            if self.here in ("*", "/"):
                operator = self.take()
                factor = self._signed_factor(depth)
                tree = Node("div", (tree, factor)) if operator == "/" else _times(tree, factor)
            elif isinstance(self.here, Node):
                raise Unreadable("a number right after something else")
            else:
                tree = _times(tree, self._factor(depth))
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
        inner = self.sum(depth + 1)
        self._expect(closing)
        return inner

    def _index(self, depth):
        if self.here != "[":
            return Node("num", value=Fraction(2))
        self.take()
        return self._until("]", depth)

    def _argument(self, depth, digits=MAX_LENGTH):
        """A group in braces, or the next token alone; a number of more than so many digits is not one token in TeX."""
        if isinstance(self.here, Node):
            if len(str(self.here.value)) > digits:
                raise Unreadable("a fraction of which one cannot tell where it ends")
            return self.take()
        return self._atom(depth + 1)

    def _exponent(self, depth):
        if self.here == "-":    # 2^-3 is what is meant, though TeX would set it otherwise
            self.take()
            return Node("neg", (self._argument(depth),))
        return self._argument(depth)

    def _mixed(self, whole):
        r"""2\frac{1}{3} or 2 1/3 as one number, where a proper fraction follows a whole number."""
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


_SIGNS = {"+": "", "-": "neg", "\\pm": "pm", "\\mp": "mp"}
_AFTER_PRODUCT = {None, "+", "-", "\\pm", "\\mp", ")", "]", "}", "|"}


def _times(a, b):
    return Node("mul", (*(a.parts if a.kind == "mul" else (a,)), b))
