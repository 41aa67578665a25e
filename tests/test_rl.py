"""The core of GRPO in one file: `pytest tests/test_rl.py`. The tests of each part are in the folders named like those of rl/:
tests/training, tests/rewards and tests/sandbox took the place of the reference's single file."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from rl.rewards.base import Grade, Grader
from rl.settings import config
from rl.tasks import Prompt
from rl.training import lora
from rl.training.advantages import advantages
from rl.training.optimiser import init_state
from rl.training.step import train_step
from tests import small_model

SETTINGS = {"GROUP": "16", "MAX_NEW_TOKENS": "8", "DECODE_BLOCK": "4", "RECHECK_SHARE": "0", "LOGIT_CHUNK": "16",
            "LEARNING_RATE": "0.1", "WARMUP_STEPS": "0"}


class LowIds(Grader):
    """Pays the share of a completion's tokens whose id is below 100, a third of the vocabulary."""

    def grade(self, completions):
        return [Grade(one.text, "pass", True, float(np.mean([int(token) < 100 for token in one.text.split()] or [0])))
                for one in completions]


def rewards_of(steps, **changes):
    """The mean reward of each step of a small random model that is trained on two prompts, and the adapter."""
    model = small_model.model()
    model.chat.decode = lambda ids: " ".join(map(str, ids))
    prompts = [Prompt(SimpleNamespace(name=f"t{n}"), [], small_model.prompt(n)) for n in (5, 9)]
    settings = config.load(SETTINGS | changes).settings
    state, rewards = init_state(lora.init(jax.random.key(0), small_model.CFG, 4, 8.0)), []
    for step in range(steps):
        state, groups, _ = train_step(model, state, prompts, LowIds(), settings, step)
        rewards.append(np.mean([sample.reward for group in groups for sample in group.samples]))
    return rewards, state.adapter


def test_training_earns_more_reward():
    """Sampling, grading, advantages, loss and AdamW together: what is paid for is sampled more often."""
    rewards, _ = rewards_of(10)
    assert np.mean(rewards[-3:]) > np.mean(rewards[:3]) + 0.2


def test_the_same_seed_trains_the_same_adapter():
    """Bit for bit; another seed, another adapter."""
    (_, one), (_, same), (_, other) = rewards_of(2), rewards_of(2), rewards_of(2, SEED="1")
    equal = lambda a, b: all((x == y).all() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))  # noqa: E731
    assert equal(one, same) and not equal(one, other)


def test_advantages_compare_the_samples_of_a_prompt():
    """Reward minus the group's mean over its standard deviation; equal rewards have no signal."""
    found = advantages(np.array([[1.0, 0.0, 0.0, 1.0], [0.5] * 4, [3.0, 0.0, 0.0, 0.0]]))
    assert found[0].tolist() == [1, -1, -1, 1] and found[1].tolist() == [0] * 4
    assert found[2] == pytest.approx([3**0.5, *[-(3**-0.5)] * 3])
