"""Finding the program in a completion, and reading it without ever failing."""

import pytest

from rl.rewards.source import MAX_SOURCE, extract_code, normalise, parse_source

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
    f"```python\n{GCD}```\n```python\ndef gcd(a, b):\n    return 1\n```",
    f"```\nprint(gcd(4, 6))\n```\n```\n{GCD}```",
    GCD,
])
def test_the_block_that_defines_the_function_is_found(text):
    """Whatever the fence, its label, its company and its end, the program comes out to the letter."""
    assert extract_code(text, "gcd") == GCD


def test_a_fence_at_the_end_of_a_code_line_closes():
    """`return 1```` ends the block there, and the prose behind stays out."""
    assert extract_code("```python\ndef f():\n    return 1```\nDone.", "f") == "def f():\n    return 1"


def test_nothing_inside_is_stripped():
    """Blank lines, tabs and trailing blanks are the candidate's own."""
    inside = "\n\n\tdef f(): \n\t\treturn 1   \n\n"
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


def test_a_fence_that_is_closed_but_never_opened_does_not_spoil_the_code():
    """Code first, then a lone closing fence: the code is found without it; a block that defines the function still goes first."""
    code = "def f(x):\n    return x\n"
    assert extract_code(code + "```", "f") == extract_code(code + "```\nThis works because ...", "f") == code
    assert extract_code(f"def g(): pass\n```python\n{code}```", "f") == code
