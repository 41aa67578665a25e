"""The optional second opinion: it decides more than we do, and no question can hang or kill the trainer."""
import importlib.util
import threading

import pytest

from rl.errors import InputError
from rl.rewards.base import TrainingSample
from rl.rewards.words.answers import compare
from rl.rewards.words.rewards import gsm8k_correctness_reward
from rl.rewards.words.second_opinion import SecondOpinion


@pytest.fixture(scope="module")
def opinion():
    if importlib.util.find_spec("math_verify") is None:
        pytest.skip("needs the extra package math-verify")
    with SecondOpinion(cpu_s=1) as asked:
        yield asked


def test_it_decides_more_than_we_do(opinion):
    """Functions are beyond our exact arithmetic; it answers in any thread, where the library's own time limit would raise."""
    pairs = {(r"\sin(\frac{\pi}{6})", r"\frac{1}{2}"): True, (r"\log_2 8", "3"): True, (r"\cos 0", "0"): False}
    found = {}
    thread = threading.Thread(target=lambda: found.update({pair: opinion(*pair) for pair in pairs}))
    thread.start()
    thread.join()

    assert found == pairs and all(compare(*pair) is None for pair in pairs)
    sample = TrainingSample("p", r"\boxed{\log_2 8}", "#### 3", 5, "stop", {})
    assert gsm8k_correctness_reward([sample]) == [0.0]
    assert gsm8k_correctness_reward([sample], second_opinion=opinion) == [1.0]


@pytest.mark.slow
def test_it_can_be_killed(opinion):
    """A question beyond its limits, or a dead process, counts as no; the next question is answered."""
    before = opinion.unanswered

    assert not opinion("9^{9^{9^{9}}}", "7") and opinion("1", "1") and opinion.unanswered == before + 1
    opinion._process.kill()
    opinion._process.wait()
    assert not opinion("1", "1") and opinion.unanswered == before + 2
    assert opinion("1", "1")


@pytest.mark.parametrize("text", ["1} \\boxed{7", "\\boxed{7}", "7" * 2000, "}{7", "\\"])
def test_text_that_would_leave_its_box_is_not_asked(opinion, text):
    """A prediction cannot smuggle in a second answer."""
    assert not opinion(text, "7")


def test_without_the_package(monkeypatch):
    """The error names the command that installs it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(InputError, match="pip install math-verify"):
        SecondOpinion()
