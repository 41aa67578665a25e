"""HTML and SVG put together from parts: whatever is not Html already is text, and text never becomes markup.

Models write what ends up on a page, so control characters and lone surrogates are spelt out and the rest is escaped, in
one place. What comes out is well-formed as HTML and as XML. No layout, no colours.
"""

import builtins
import html
import keyword
import re

from rl.pages.samples import printable

VOID = {"meta", "br"}  # HTML's elements that have no end tag; SVG's are all closed
MAX_TEXT = 5_000       # characters of one text: a page must stay one that a browser opens

_TOKEN = re.compile(r"""
    (?P<comment>\#[^\n]*)
  | (?P<string>[rRbBuUfF]{0,2}(?:'''.*?(?:'''|\Z)|\"\"\".*?(?:\"\"\"|\Z)|'(?:\\.|[^'\\\n])*'?|"(?:\\.|[^"\\\n])*"?))
  | (?P<number>\d[\w.]*)
  | (?P<name>[^\W\d]\w*)
    """, re.VERBOSE | re.DOTALL)
_BUILTINS = {name for name in dir(builtins) if not name.startswith("_")}


class Html(str):
    """Markup as it stands on the page."""


def escaped(text) -> Html:
    """Anything as text: escaped, what a reader cannot see spelt out, a very long one cut, and that said."""
    if isinstance(text, Html):
        return text
    text = str(text)
    cut = f" ... {len(text) - MAX_TEXT} more characters" if len(text) > MAX_TEXT else ""
    return Html(html.escape(printable(text[:MAX_TEXT]) + cut))


def joined(*children) -> Html:
    """The children one after another; None is nothing."""
    return Html("".join(escaped(child) for child in children if child is not None))


def element(tag: str, /, *children, **attributes) -> Html:
    """One element; class_ is class, aria_label is aria-label, an attribute that is None is left out."""
    said = "".join(f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"' for key, value in attributes.items()
                   if value is not None)
    return Html(f"<{tag}{said}>") if tag in VOID else Html(f"<{tag}{said}>{joined(*children)}</{tag}>")


def highlighted(code: str) -> Html:
    """Python, or what a model took for it, with a span around each token that has a colour; the text stays as it is."""
    parts, end, before = [], 0, ""
    for token in _TOKEN.finditer(code):
        kind = _kind(token, before)
        parts += [code[end:token.start()], element("span", token[0], class_=kind) if kind else token[0]]
        end, before = token.end(), token[0]
    return joined(*parts, code[end:])


def _kind(token: re.Match, before: str) -> str | None:
    """The class of a token: its group's initial, or for names k (keyword), b (builtin), d (being defined)."""
    if token.lastgroup != "name":
        return token.lastgroup[0]
    return ("d" if before in ("def", "class") else "k" if keyword.iskeyword(token[0])
            else "b" if token[0] in _BUILTINS else None)
