"""Whatever reads what a model wrote does so in time linear in its length, or a completion could stall the trainer.

Time is this thread's own, without garbage collection, and only its growth counts: four times the text may take eight times as
long.
"""

import time

import pytest

from rl.pages.markup import highlighted
from rl.pages.samples import fenced
from rl.rewards.gym.client import readings
from rl.rewards.gym.questions import _copies
from rl.rewards.lisp import score_style
from rl.rewards.source import extract_code, normalise
from rl.rewards.words.answers import boxed_answer, compare, final_answer, reference_answer
from rl.rewards.words.rewards import is_well_formed
from rl.sandbox.sandbox import SUSPICIOUS
from tasks.lc_easy_tasks import provide
from tasks.word_problems import ASKS_FOR_FORM

CHARACTERS = " \t\n\r`~\\{}[](\"'#$-.,:=<>@*/0aA_\0\u2028é"
PAIRS = ["```\n", "~~~\n", "```python\n", "x ```\n", " ```\n", "> ```\n", "- ```\n", "```\n(\n", "'''\n", "'''\n```\n", "@a\n",
         "a\n", "import a\n", "def f(x):\n return g\n", "```\ndef g(x): return h(x)\n```\n", "\\boxed{", "\\boxed ", "{\\boxed ",
         "{\\boxed{}", "\\fbox{}", "#### 1\n", "#### \\boxed{1}\n", "<think>", "</think>", "<think></think>", "<answer>",
         "</answer>", "answer: ", "answer is", "1,000", "-1/2", ". ", "from __future__ import a\n", "\\text{", "__eq__", "\\ "]
pytestmark = pytest.mark.usefixtures("no_garbage_collection")
TASK = provide("")[0][0]
READERS = {
    "extract_code": lambda text: extract_code(text, "f"),
    "open block": lambda text: extract_code(f"```{text}", "f"),
    "open string": lambda text: extract_code(f"```python\ns = '''{text}", "f"),
    "normalise": normalise,
    "score_style": lambda text: score_style(text, "f", True),
    "program": TASK.__class__.program.__get__(TASK),
    "suspicious names": SUSPICIOUS.findall,
    "final_answer": lambda text: final_answer(text, "think", "last"),
    "boxed_answer": boxed_answer,
    "reference_answer": lambda text: reference_answer(text.replace("####", "# ")),
    "compare": lambda text: [compare(text, "12"), compare("12", text)],
    "is_well_formed": lambda text: [is_well_formed(text), is_well_formed(f"<think></think>\\boxed{{{text}}}")],
    "readings": readings,
    "copies of a question": lambda text: _copies(f"a\n{text}"),
    "asks for form": ASKS_FOR_FORM.search,
    "highlighted": highlighted,
    "fenced": fenced,
}


def seconds(read, unit, size):
    text = unit * (size // len(unit))
    start = time.thread_time()
    read(text)
    return time.thread_time() - start


def check(read, units, size):
    """No unit for which the size takes over eight times as long as a quarter of it, in three tries; below 0.05 s none counts."""
    def grows(unit):
        return (long := seconds(read, unit, size)) > 0.05 and long > 8 * seconds(read, unit, size // 4)

    for unit in units:
        assert not all(grows(unit) for _ in range(3)), unit


@pytest.mark.parametrize("reader", READERS)
def test_time_is_linear(reader):
    """Each character, and short strings that mean something to a reader; what is quadratic fails before it takes minutes."""
    check(READERS[reader], [*CHARACTERS, *PAIRS], 8_000)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_time_is_linear_for_long_texts(reader):
    """Again, for longer texts than any completion: a quarter, too, is longer than MAX_SOURCE, so that both go the same way."""
    check(READERS[reader], [*CHARACTERS, *PAIRS], 280_000)
