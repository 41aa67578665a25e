"""HTML and SVG from parts, and the style sheet of the pages. Whatever is not Html is text, and text never becomes markup.

Models write what ends up on a page, so everything is escaped in one place, with control characters and lone surrogates spelt
out. The result is well-formed as HTML and as XML.
"""

import builtins
import html
import keyword
import re

VOID = {"meta", "br"}  # HTML elements without an end tag
MAX_TEXT = 5_000       # characters of one text, so that a browser can open the page


# ---- elements --------------------------------------------------------------------------------------------------------

class Html(str):
    """Markup, already escaped."""


def escaped(text) -> Html:
    """Anything as escaped text: invisible characters spelt out, long text cut with a note; Html unchanged."""
    if isinstance(text, Html):
        return text
    text = str(text)
    cut = f" ... {len(text) - MAX_TEXT} more characters" if len(text) > MAX_TEXT else ""
    return Html(html.escape(printable(text[:MAX_TEXT]) + cut))


def joined(*children) -> Html:
    """The children one after another, without None."""
    return Html("".join(escaped(child) for child in children if child is not None))


def element(tag: str, /, *children, **attributes) -> Html:
    """One element; class_ becomes class, aria_label aria-label; attributes that are None are left out."""
    attributes = "".join(f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"' for key, value in attributes.items()
                         if value is not None)
    return Html(f"<{tag}{attributes}>") if tag in VOID else Html(f"<{tag}{attributes}>{joined(*children)}</{tag}>")


def printable(text: str) -> str:
    """The text with every character spelt out that could steer a terminal or hide on a page."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


# ---- Python ----------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"""
    (?P<comment>\#[^\n]*)
  | (?P<string>[rRbBuUfF]{0,2}(?:'''.*?(?:'''|\Z)|\"\"\".*?(?:\"\"\"|\Z)|'(?:\\.|[^'\\\n])*'?|"(?:\\.|[^"\\\n])*"?))
  | (?P<number>\d[\w.]*)
  | (?P<name>[^\W\d]\w*)
    """, re.VERBOSE | re.DOTALL)
_BUILTINS = {name for name in dir(builtins) if not name.startswith("_")}


def highlighted(code: str) -> Html:
    """Python, valid or not, with a span around each token that has a colour; the text is unchanged."""
    parts, end, before = [], 0, ""
    for token in _TOKEN.finditer(code):
        kind = _kind(token, before)
        parts += [code[end:token.start()], element("span", token[0], class_=kind) if kind else token[0]]
        end, before = token.end(), token[0]
    return joined(*parts, code[end:])


def _kind(token: re.Match, before: str) -> str | None:
    """The class of a token: its group's initial; for names k (keyword), b (built-in), d (defined here)."""
    if token.lastgroup != "name":
        return token.lastgroup[0]
    return ("d" if before in ("def", "class") else "k" if keyword.iskeyword(token[0])
            else "b" if token[0] in _BUILTINS else None)


# ---- the style sheet -------------------------------------------------------------------------------------------------

# Colours that are told apart also differ in lightness, and nothing is said by colour alone. One sheet for windows of 360 to 1600
# pixels, light and dark, screen and paper.
SHEET = """
:root{color-scheme:light dark;--paper:#fcfbf8;--ink:#24231f;--faint:#65635a;--rule:#dedbd2;--well:#f3f1eb;
  --up:#0064a0;--down:#a84300;--keyword:#0064a0;--string:#2e6b2e;--number:#8a4b08;--comment:#6f6d64;--builtin:#7a3e6b;
  --sans:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
  --mono:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
@media screen and (prefers-color-scheme:dark){
  :root{--paper:#17181a;--ink:#e4e2da;--faint:#a09e94;--rule:#37373a;--well:#1f2023;
    --up:#74bcf0;--down:#f2a065;--keyword:#74bcf0;--string:#93c98a;--number:#e3b071;--comment:#95938a;--builtin:#d99bc4}}

/* text */
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:1560px;padding:1.2rem clamp(12px,2.5vw,40px) 3rem;background:var(--paper);color:var(--ink);
  font:15px/1.45 var(--sans);font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.2;margin:0 0 .2rem}
h2{font-size:1.15rem;margin:2.2rem 0 .6rem;padding-top:.5rem;border-top:1px solid var(--rule)}
h3{font-size:1rem;margin:1.3rem 0 .2rem}
h4{font-size:.95rem;margin:.8rem 0 .4rem;font-weight:600}
p,ul,ol,dl{margin:.3rem 0 .6rem}
p,.signs{max-width:84ch}
header p{max-width:none}
a{color:var(--up)}
code{font:.92em var(--mono)}
.faint,.meta,caption{color:var(--faint);font-size:.87rem}
.meta{margin:0 0 .25rem}
nav{margin:.4rem 0 0;font-size:.9rem;display:flex;flex-wrap:wrap;gap:.1rem 1rem}
.signs{padding-left:1.1rem}
.signs li{margin:.15rem 0}
.alarm{list-style:"! ";font-weight:600}
.alarm::marker{color:var(--down)}
.missing{border-left:3px solid var(--down);padding:.4rem .8rem .1rem;margin:1rem 0;background:var(--well);max-width:88ch}
.missing ul{padding-left:1.1rem}
details{margin:.5rem 0}
summary{cursor:pointer;font-weight:600}
summary:focus-visible,a:focus-visible,pre:focus-visible{outline:2px solid var(--up)}
footer{margin-top:2.5rem;border-top:1px solid var(--rule);padding-top:.5rem}

/* figures */
.big{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(180px,100%),1fr));gap:.8rem 1.6rem;margin:1rem 0}
.big div{border-top:2px solid var(--ink);padding-top:.3rem}
.big dt{color:var(--faint);font-size:.87rem}
.big dd{margin:0;font-size:1.45rem;line-height:1.3;white-space:nowrap}
.big dd.meta{font-size:.82rem;line-height:1.35;white-space:normal}
.tables{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(430px,100%),1fr));gap:.6rem 2.6rem;align-items:start}
.tables>:only-child{max-width:46rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem}
caption{text-align:left;padding:.2rem 0 .4rem}
caption b{color:var(--ink);font-size:1rem}
th,td{text-align:right;padding:.16rem .6rem .16rem 0;vertical-align:top;border-bottom:1px solid var(--rule);
  font-weight:400;overflow-wrap:normal}
thead th{font-weight:600;vertical-align:bottom}
th:first-child{text-align:left}
td:last-child,th:last-child{padding-right:0}
td span{white-space:nowrap}
td .faint,th .faint{font-size:inherit}
.numbers{width:auto}
.numbers td{padding-left:.5rem}
.numbers th:first-child{white-space:nowrap}
.text th,.text td{text-align:left;overflow-wrap:anywhere}

/* curves */
.curves{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(310px,100%),1fr));gap:1.1rem 1.6rem}
figure{margin:0;break-inside:avoid}
figure svg{display:block;width:100%;height:auto;max-width:440px}

/* tasks: name, rates and change, and below them the picture and the interval */
.changes{list-style:none;padding:0;columns:340px auto;column-gap:2.6rem;font-size:.88rem}
.changes li{display:grid;grid-template-columns:minmax(0,1fr) auto 3.4rem;gap:0 .8rem;align-items:center;
  break-inside:avoid;border-bottom:1px solid var(--rule);padding:.12rem 0}
.changes .num{text-align:right;white-space:nowrap}
.changes .ci{grid-column:2/-1;grid-row:2;text-align:right;color:var(--faint);font-size:.92em}
.changes svg{grid-row:2;grid-column:1/2;width:100%;height:18px;overflow:visible;padding:0 6px;display:block}
.changes .scale{stroke:var(--rule)}
.changes .gap{stroke-width:2.5}
.changes circle{stroke-width:2}
.up{stroke:var(--up);fill:var(--up)}
.down{stroke:var(--down);fill:var(--down)}
.same{stroke:var(--faint);fill:var(--faint)}
.changes .from{fill:var(--paper)}

/* programs */
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:.6rem 1.6rem;margin:.2rem 0 1rem}
.pair>div{min-width:0}
pre{margin:0;padding:.55rem .7rem;background:var(--well);border:1px solid var(--rule);border-radius:3px;
  overflow:auto;max-height:26rem;font:13px/1.45 var(--mono);white-space:pre;overflow-wrap:normal;tab-size:4}
pre .k{color:var(--keyword);font-weight:600}
pre .s{color:var(--string)}
pre .n{color:var(--number)}
pre .c{color:var(--comment);font-style:italic}
pre .b{color:var(--builtin)}
pre .d{font-weight:700}

@media (max-width:520px){
  table{font-size:.82rem}
  .numbers th:first-child{white-space:normal;min-width:7rem}
  th,td{padding-right:.3rem}
  .big{grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:.6rem 1rem}
  .big dd{font-size:1.2rem}}
@media print{
  body{max-width:none;padding:0;font-size:10pt}
  nav{display:none}
  pre{max-height:none;white-space:pre-wrap;overflow-wrap:anywhere}
  .scroll{overflow:visible}
  .numbers{font-size:6.5pt}
  .curves{grid-template-columns:1fr 1fr}
  h2,h3,h4{break-after:avoid}
  .pair,tr,.missing{break-inside:avoid}}
"""
