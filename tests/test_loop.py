"""The step's parts that are not the sampler's, the grader's or the optimiser's own."""

from types import SimpleNamespace

import numpy as np
import pytest

from rl import loop
from rl.datalog import Group
from rl.errors import InputError
from rl.settings import DataSettings
from rl.signals import EXIT_CODES, Interrupted, Signals
from rl.taskset import load_tasks


def groups(*rewards):
    return [Group("t", [], [SimpleNamespace(reward=r) for r in row]) for row in rewards]


def test_rewards_are_the_grades():
    """One row a group; a failed grade stays NaN."""
    reward = loop.rewards_of(groups([1.0, 0.0], [float("nan"), 1.5]))
    np.testing.assert_array_equal(reward, [[1, 0], [np.nan, 1.5]])


def test_shuffled_rewards_are_dealt_out_at_random():
    """The control arm keeps the step's rewards and breaks their tie to samples; the same (seed, step) deals the same."""
    graded = groups(np.arange(8.0), np.arange(8.0, 16))
    plain, one, again, other = (loop.rewards_of(graded, by) for by in (None, (0, 1), (0, 1), (0, 2)))

    assert sorted(one.ravel()) == sorted(plain.ravel()) and one.shape == plain.shape
    assert (one == again).all() and (one != other).any() and (one != plain).any()
    assert set(one[0]) != set(plain[0]), "rewards cross from one task's group into another's"


def test_several_updates_make_one_row():
    """Counts add up, maxima stay maxima, the rest is averaged."""
    passes = [{"loss": 1.0, "x/max": 3.0, "skipped_steps": 1, "trained_tokens": 5},
              {"loss": 2.0, "x/max": 1.0, "skipped_steps": 0, "trained_tokens": 5}]
    assert loop.over_passes(passes) == {"loss": 1.5, "x/max": 3.0, "skipped_steps": 1, "trained_tokens": 10}


def test_prompts_are_prepared_once_and_too_long_ones_named():
    """Each task becomes messages and ids; all that exceed the limit are listed with their length."""
    tasks = load_tasks(DataSettings(task_names="gcd,factorial"))
    chat = SimpleNamespace(encode=lambda said: list(range(len(said[1]["content"]))))
    prompts = loop.prepare(tasks, chat, False, 5000)

    assert {p.task.name for p in prompts} == {"gcd", "factorial"} and all(p.ids for p in prompts)
    with pytest.raises(InputError, match=r"2 prompts.*MAX_PROMPT_TOKENS=3.*gcd \(\d+\)"):
        loop.prepare(tasks, chat, False, 3)


def test_the_style_hint_reaches_the_prompt():
    """STYLE_HINT adds a sentence, and nothing about style is said without it."""
    tasks, chat = load_tasks(DataSettings(task_names="gcd")), SimpleNamespace(encode=lambda said: [0])
    plain, hinted = (loop.prepare(tasks, chat, hint, 10)[0].messages[1]["content"] for hint in (False, True))
    assert hinted.startswith(plain[:50]) and len(hinted) > len(plain) and "nested" in hinted and "nested" not in plain


@pytest.mark.parametrize("signum", sorted(EXIT_CODES))
def test_a_signal_is_an_exception_at_once_or_after_the_block(signum):
    """Outside `held` it interrupts where it is; inside, the block runs to its end first; the exit code is the shell's."""
    import os
    with Signals(), pytest.raises(Interrupted) as caught:
        os.kill(os.getpid(), signum)
    assert caught.value.exit_code == 128 + signum
    done = []
    with Signals() as signals, pytest.raises(Interrupted):
        with signals.held():
            os.kill(os.getpid(), signum)
            done.append("rest of the block")
        done.append("beyond it")
    assert done == ["rest of the block"]
