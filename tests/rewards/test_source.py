"""Finding the program in a completion, and reading it without ever failing."""

import json

import pytest

from rl.rewards.base import Completion
from rl.rewards.lisp import ProgramGrader
from rl.rewards.source import MAX_SOURCE, extract_code, normalise, parse_source
from rl.sandbox import Sandbox
from rl.settings.declared import DataSettings
from rl.tasks import load_tasks

GCD = "def gcd(a, b):\n    return a if not b else gcd(b, a % b)\n"


@pytest.mark.parametrize("text", [
    f"```python\n{GCD}```",
    f"```\n{GCD}```",
    f"```py\n{GCD}```\n",
    f"~~~python\n{GCD}~~~",
    f"````python\n{GCD}````",
    f"Here it is: ```python\n{GCD}```\nIt works because of Euclid.",
    f"Text before.\n\n```python\n{GCD}```\n\nText after, with `code` and ``more``.",
    f"```python\n{GCD}",                                      # cut by the token limit
    f"```bash\npip install x\n```\n```python\n{GCD}```",
    f"```python\ndef helper(x):\n    return x\n```\n```python\n{GCD}```",
    f"```python\ndef gcd(a, b):\n    return 1\n```\nBetter:\n```python\n{GCD}```",
    f"```python\n{GCD}```\nAgain: ```python\ndef gcd(a, b):\n    return (",      # the second is cut
    f"```\nprint(gcd(4, 6))\n```\n```\n{GCD}```",
    GCD,
])
def test_the_block_that_defines_the_function_is_found(text):
    """Whatever the fence, its label, its company and its end, the program comes out to the letter."""
    assert extract_code(text, "gcd") == GCD


def indented(text, by):
    return "".join(by + line for line in text.splitlines(keepends=True))


QUOTING = """def gcd(a, b):
    '''As in

    ```python
    gcd(4, 6)
    ```
    and
    ```
    gcd(3, 6)
    ```
    '''
    return 1
"""
REMARK = "def gcd(a, b):\n    c = a % b    # not ```\n    return gcd(b, c) if c else b    # nor ~~~\n"
FENCED = f"```python\n{GCD}```\n"
WRONG = "```python\ndef gcd(a, b): return a\n```\n"


@pytest.mark.parametrize("text, program", [
    # fences that are part of the program
    (f"```python\n{QUOTING}```\nDone.", QUOTING),
    (f"Like this: ```python\n{QUOTING}", QUOTING),
    (f"~~~\n{QUOTING}~~~", QUOTING),
    (f"```python\n{REMARK}```\nText.\n```\n2\n```", REMARK),
    # lists, quotations, other indentation
    (f"1. This:\n\n{indented(FENCED, '   ')}2. Done.", GCD),
    (f"- ```python\n{indented(GCD, '  ')}  ```", GCD),
    (f"\t```\n{indented(GCD, chr(9))}\t```", GCD),
    (f"> ```python\n{indented(GCD, '> ')}> ```", GCD),
    (f"```python\n{indented(GCD, '    ')}```", GCD),
    # info strings
    *[(f"```{info}\n{GCD}```", GCD) for info in ('python title="a.py"', "{python}", "{.python .numberLines}", " python ",
                                               "python:solution.py", "python 3 (the answer)", "py3 linenums=1 lines='1 2'")],
    # outer fences
    (f"`````markdown\nText:\n\n{FENCED}`````", GCD),
    (f"````\n{FENCED}````\n\n````\n```python\ngcd(1, 2)\n```\n````", GCD),
    (f"```markdown\n~~~python\n{GCD}~~~\n```", GCD),
    (f"```markdown\n{FENCED}```", GCD),
    # stubs and earlier versions
    *[(f"```python\ndef gcd(a, b):\n    {stub}\n```\nSo:\n{FENCED}", GCD)
      for stub in ("pass", "...", "raise NotImplementedError", "raise NotImplementedError('later')", "'Doc.'", "return None")],
    (f"{FENCED}Fill in:\n```python\ndef gcd(a, b):\n    'Doc.'\n    pass\n```", GCD),
    (f"{WRONG}No:\n{FENCED}Use:\n```python\nprint(gcd(4, 6))\n```", GCD),
    # thinking
    (f"<think>\n{WRONG}or ```\n</think>\n{FENCED}", GCD),
    (f"<think>{WRONG}</think>\n{GCD}", f"\n{GCD}"),
    (f"def gcd(a, b): return a ...\n</think>\n\n{FENCED}", GCD),
    (f"<think>\n{FENCED}</think>\nAs above.", GCD),
    # prose around code, without a fence or with one
    (f"{GCD}\nThis is Euclid's algorithm.", f"{GCD}\n"),
    (f"Here:\n\n    import math\n{indented(GCD, '    ')}\nIt's Euclid's.", f"import math\n{GCD}\n"),
    (f"```python\n{GCD}\nThis is Euclid's (c. 300 BC) algorithm", f"{GCD}\n"),
    (f"```python\n{GCD}\nUsage:\n\n```python\nprint(gcd(4, 6))\n```", f"{GCD}\n"),
    (f"```python\n{GCD}\nprint(gcd(4,", f"{GCD}\n"),
])
def test_the_program_is_found_wherever_it_stands(text, program):
    """Fences in the program, indentation, info strings, outer fences, stubs, thinking and prose neither hide nor spoil it."""
    assert extract_code(text, "gcd") == program


def blocks(*sources):
    return "\nand\n".join(f"```python\n{source}```" for source in sources)


@pytest.mark.parametrize("text, program", [
    (blocks("from math import gcd\n", "def f(x): return gcd(*x)\n"), "from math import gcd\ndef f(x): return gcd(*x)\n"),
    (blocks("def f(x): return h(x)\n",
            "import os, math\nK = 2\n@cache\ndef h(x):\n    return g(x) + K\ndef unused(): pass\nprint(1)\n",
            "class g(int): pass\n"),
     "K = 2\n@cache\ndef h(x):\n    return g(x) + K\nclass g(int): pass\ndef f(x): return h(x)\n"),
    (blocks("def h(x): return 1\n", "def h(x): pass\n", "f = lambda x: h(x)\n"), "def h(x): return 1\nf = lambda x: h(x)\n"),
    # nothing is lacking, or nobody has it
    *[(blocks(other, program), program) for other, program in (
        ("import m\ndef h(x): return 1\n", "def f(x, h):\n    import math as m\n    return [m, h, len(x)]\n"),
        ("if True:\n    h = 1\nprint(h)\n", "def f(x): return h\n"))],
])
def test_what_the_program_lacks_comes_from_other_blocks(text, program):
    """Definitions and imports that it uses, or that these use, in their order; no other statement."""
    assert extract_code(text, "f") == program


def test_collected_completions(shared_dir):
    """Completions in the forms that models write, from text to verdict."""
    if not (file := shared_dir / "cases/completions.jsonl").is_file():
        pytest.skip(f"needs {file}")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
    tasks = {task.name: task for task in load_tasks(DataSettings(tasks="lc_easy", split="all"))}
    with Sandbox(workers=1, allow_weak=True) as box:
        grader = ProgramGrader(box, [tasks[name] for name in {row["task"] for row in rows}], 0.5, 0)
        grades = grader.grade([Completion(tasks[row["task"]], row["completion"]) for row in rows])
    assert not [(row["label"], row["expected"], grade.verdict, grade.detail) for row, grade in zip(rows, grades, strict=True)
                if grade.verdict == "internal_error" or row["expected"] == ("fail" if grade.correct else "pass")]


def test_a_fence_at_the_end_of_a_code_line_closes():
    """`return 1```` ends the block there, and the prose behind stays out."""
    assert extract_code("```python\ndef f():\n    return 1```\nDone.", "f") == "def f():\n    return 1"


def test_nothing_inside_is_stripped():
    """Blank lines, tabs and trailing blanks are the candidate's own."""
    inside = "\n\ndef f(): \n\treturn 1   \n\n"
    assert extract_code(f"```python\n{inside}```", "f") == inside


def test_without_the_function_a_def_is_preferred_to_other_blocks():
    """No block defines f: the first with a def comes out, then the first at all."""
    assert extract_code("```\nx = 1\n```\n```\ndef g(): pass\n```", "f") == "def g(): pass\n"
    assert extract_code("```\nx = 1\n```\n```\ny = 2\n```", "f") == "x = 1\n"


def test_a_call_or_a_longer_name_is_no_definition():
    """`f(1)`, `f == 1` and `def f2` do not define f; `f = lambda` does."""
    text = "```\nprint(f(1))\nf == 1\ndef f2(): pass\n```\n```\nf = lambda: 1\n```"
    assert extract_code(text, "f") == "f = lambda: 1\n"


@pytest.mark.parametrize("text", ["", "```", "``` ```", "```python", "```\n", "`" * 20_000, "```\n" * 5_000,
                                  "~`" * 20_000, "`" * 9 + "\n" + "`" * 20_000, "\x00\ud800```\n\ud800"])
def test_hostile_text_gives_a_string(text):
    """Text of nothing but fences, or of no characters at all, still gives a string, in time linear in its length."""
    assert isinstance(extract_code(text, "f"), str)


HOSTILE = {
    "nested 10,000 deep": "def f(x): return " + "f(" * 10_000 + "x" + ")" * 10_000,
    "chain of 60,000 operators": "def f(x): return " + "+".join(["x"] * 15_000),
    "minus signs": "def f(x): return " + "-" * 60_000 + "x",
    "attributes": "def f(x): return x" + ".a" * 20_000,
    "one megabyte": "def f(x): return '" + "a" * 1_000_000 + "'",
    "null byte": "def f(x): return 1\0",
    "lone surrogate": "def f(x): return '\ud800'",
    "syntax": "def f(x) return",
    "indentation": "def f(x):\n    return 1\n  return 2",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_unreadable_source_is_none(source):
    """What Python's parser cannot read is None and keeps its own spelling, and nothing is raised."""
    assert parse_source(source) is None
    assert normalise(source) == source


def test_size_limit_is_exact():
    """A source of MAX_SOURCE characters is read, one more is not."""
    source = "x = 1\n#".ljust(MAX_SOURCE, "a")
    assert parse_source(source) is not None
    assert parse_source(source + "a") is None


def test_reading_warns_of_nothing(recwarn):
    r"""A candidate's "\d" makes no warning in our log."""
    assert parse_source('x = "\\d"') is not None
    assert not recwarn.list


def test_byte_order_mark_is_no_error():
    """A leading byte order mark is not part of the program."""
    assert parse_source("\ufeffx = 1") is not None


def test_normalise_sees_the_program_and_not_its_spelling():
    """Comments, blanks, quotes and brackets do not tell two programs apart; names and order do."""
    assert normalise("def f(x):\n\n  return (x) # same\n") == normalise("def f( x ): return x")
    assert normalise("f = 'a'") == normalise('f = "a"')
    assert normalise("f = a + b") != normalise("f = b + a")


def test_normalise_survives_what_only_the_parser_takes():
    """A tree that the parser accepts and unparse cannot follow keeps its own spelling."""
    source = "x = " + "+".join(["y"] * 2_500)
    assert parse_source(source) is not None
    assert normalise(source) == source


def test_normalise_survives_long_integers():
    """Python reads hexadecimal digits without a limit and does not write the same number in decimals."""
    source = f"x = 0x{'f' * 10_000}"
    assert parse_source(source) is not None
    assert normalise(source) == source


def test_a_fence_that_is_closed_but_never_opened_does_not_spoil_the_code():
    """Code first, then a lone closing fence: the code is found without it; a block that defines the function still goes first."""
    code = "def f(x):\n    return x\n"
    assert extract_code(code + "```", "f") == extract_code(code + "```\nThis works because ...", "f") == code
    assert extract_code(f"def g(): pass\n```python\n{code}```", "f") == code
