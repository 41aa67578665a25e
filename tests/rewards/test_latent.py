"""Hidden states for rewards: which they are, what the hook's objective pays, and that such a reward trains."""

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rl.errors import InputError
from rl.models import pretrained
from rl.registry import build_objective
from rl.rewards.base import EXTRA, Completion, TrainingSample
from rl.rewards.combining import LatentObjective, check_scores
from rl.rewards.setup import RewardGrader, checked_combiner, grader_of
from rl.settings import config
from rl.tasks import Prompt
from rl.training import lora
from rl.training.lora import adapter_key
from rl.training.optimiser import init_state
from rl.training.sampler import Rollouts, SamplingParams, generate, row_keys, step_key
from rl.training.step import train_step
from rl.training.update import AT_ONCE, hidden_of
from tasks.word_problems import TextTask
from tests import oracles, small_model
from validate_forward import float64_run

ROOT = Path(__file__).resolve().parents[2]
TASKS = [TextTask("a", "1 + 2 = ?", "3", "svamp"), TextTask("b", "5 + 1 = ?", "6", "svamp")]
RIGHT, LOOSE = "<think>so</think>\\boxed{3}", "\\boxed{4}"


class Widths(LatentObjective):
    """Pays the number of states and their width."""

    def extra_reward(self, samples):
        return [float(len(sample.hidden_TD)) + sample.hidden_TD.shape[1] / 1000 for sample in samples]


def graded(objective, texts, hidden):
    settings = config.load({"COMBINE": "latent"}).settings
    grader = grader_of(None, TASKS, settings)
    grader = RewardGrader(objective, grader._rewards)
    return grader.grade([Completion(TASKS[0], text, 4, "stop", states)
                         for text, states in zip(texts, hidden or [None] * len(texts), strict=True)])


# ---- which states ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def states(tiny_model):
    """(prompt, ids, hidden states) of rows of different lengths, more of them than go into one pass."""
    source = pretrained.resolve(str(tiny_model))
    model = pretrained.load(source, np.float32)
    prompts, N = [model.chat.encode(task.messages()) for task in TASKS], AT_ONCE + 3
    rollouts = generate(model, None, prompts, N, SamplingParams(max_new_tokens=12), row_keys(step_key(0, 0), ["a", "b"], N))
    rollouts = rollouts._replace(length_B=1 + np.arange(2 * N) % 12)    # as if rows had stopped there
    found = hidden_of(model, None, rollouts)
    assert len(found) == 2 * N and len({len(hidden) for hidden in found}) > 1
    ids = [row[:length].tolist() for row, length in zip(rollouts.ids_BT, rollouts.length_B, strict=True)]
    return [(prompts[row // N], ids[row], hidden) for row, hidden in enumerate(found)]


def test_the_states_are_those_of_float64(tiny_model, states):
    """Of each sampled token the last hidden state one place before it, in a pass of its own over prompt and answer."""
    source = pretrained.resolve(str(tiny_model))
    exact = float64_run(source.tensors.__getitem__, source.cfg, [prompt + ids for prompt, ids, _ in states]).hidden[-1]
    for (prompt, ids, found), whole in zip(states, exact, strict=True):
        assert found.shape == (len(ids), source.cfg.hidden_size)
        np.testing.assert_allclose(found, whole[len(prompt) - 1 : -1], atol=2e-4, rtol=1e-3)


@pytest.mark.slow
def test_the_states_are_those_that_transformers_has(tiny_model, states):
    """The same."""
    torch, theirs = oracles.package("torch"), oracles.opened(tiny_model).model
    for prompt, ids, found in states:
        with torch.no_grad():
            whole = theirs(torch.tensor([prompt + ids])).last_hidden_state[0].numpy()
        np.testing.assert_allclose(found, whole[len(prompt) - 1 : -1], atol=2e-4, rtol=1e-3)


def test_the_adapter_is_in_them():
    """They are the policy's own states, not the frozen model's."""
    model, ids = small_model.model(), np.array([small_model.prompt(6, seed=seed) for seed in (1, 2)])
    rollouts = Rollouts([small_model.prompt(5)], np.zeros(2, int), ids, np.zeros((2, 6)), np.zeros((2, 6)), np.array([6, 4]), [])
    without, adapted = hidden_of(model, None, rollouts), hidden_of(model, small_model.adapter(), rollouts)
    assert max(np.abs(a - b).max() for a, b in zip(without, adapted, strict=True)) > 0.01


# ---- what is paid ----------------------------------------------------------------------------------------------------


def test_by_default_nothing_is_added_and_no_states_are_computed():
    """Format alone is paid; correctness is told, not paid."""
    objective = build_objective("latent")
    found = graded(objective, [RIGHT, LOOSE], None)
    assert not objective.wants_hidden and [grade.reward for grade in found] == [1.0, 0.0]
    assert [grade.correct for grade in found] == [True, False] and found[0].scores[EXTRA] == 0.0


def test_the_hook_sees_states_and_is_added():
    """Format 1 or 0, plus rows + width / 1000, by hand; the extra is among the recorded scores."""
    found = graded(Widths(), [RIGHT, LOOSE], [np.zeros((4, 8), np.float32), np.zeros((3, 8), np.float32)])
    assert Widths().wants_hidden and [grade.reward for grade in found] == pytest.approx([5.008, 3.008])
    assert [grade.scores[EXTRA] for grade in found] == pytest.approx([4.008, 3.008])


def test_a_hook_that_fails_costs_its_samples_alone():
    """Raising, or another number of values: as for any reward."""
    class Fails(LatentObjective):
        def extra_reward(self, samples):
            raise KeyError("state")

    class Short(LatentObjective):
        def extra_reward(self, samples):
            return [1.0]
    assert {grade.verdict for grade in graded(Fails(), [RIGHT, LOOSE], None)} == {"internal_error"}
    with pytest.raises(InputError, match="extra_reward gave 1 values"):
        graded(Short(), [RIGHT, LOOSE], None)


def test_no_reward_no_total():
    """A sample that correctness cannot judge is masked, and a missing entry is named."""
    objective, f, c = LatentObjective(), "format_tag_reward", "gsm8k_correctness_reward"
    assert math.isnan(objective.combine_rewards({f: [1.0], c: [math.nan], EXTRA: [0.0]})[0])
    with pytest.raises(InputError, match="extra_reward is missing"):
        objective.combine_rewards({f: [1.0], c: [1.0]})
    check_scores({f: [1.0], c: [0.0]}, objective.reward_names())


@pytest.mark.parametrize(("length", "by_hand"), [(1, 0.0), (2, 0.0), (3, 2**0.5 / 8)])
def test_the_example_in_configs(length, by_hand):
    """States (1, 0), (0, 2), (3, 3): neighbours' cosines are 0 and 1/sqrt(2), and half of their mean is sqrt(2)/8."""
    steady = build_objective(f"{ROOT / 'configs' / 'latent_steady.py'}:Steady")
    states = np.array([[1, 0], [0, 2], [3, 3]], np.float32)[:length]
    assert steady.extra_reward([TrainingSample("", "", "", length, "stop", {}, states)]) == pytest.approx([by_hand])


# ---- class paths -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "named"), [
    ("class Mine:\n    pass", "no reward_names and no combine_rewards"),
    ("class Mine:\n    def __init__(self, scale): pass\n    reward_names = combine_rewards = lambda self: None", "needs 'scale'"),
    ("class Other:\n    pass", "has no Mine")])
def test_code_that_is_no_objective_is_refused(tmp_path, text, named):
    """With what it lacks, before anything is loaded."""
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(InputError, match=named):
        checked_combiner(config.load({"COMBINE": f"{tmp_path / 'mine.py'}:Mine"}).settings)


def test_outside_code_says_so_once(tmp_path):
    """The command names it on stderr, and gives exit code 2 where it is not there."""
    run = [sys.executable, "train_grpo.py", "--dry-run"]
    env = os.environ | {"CLASS_PATH": str(tmp_path / "none.py") + ":Mine", "MODEL": "tiny"}
    done = subprocess.run(run, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "there is no file" in done.stderr and "Traceback" not in done.stderr


# ---- it trains -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_reward_on_states_trains():
    """Paid for the states' component along a fixed direction, the model moves its samples' mean of it, over steps of the real
    loop, by more than the samples of a step differ; with rewards dealt out at random it does not."""
    direction = np.random.default_rng(0).standard_normal(small_model.CFG.hidden_size).astype(np.float32)
    direction /= np.linalg.norm(direction)

    class Along(LatentObjective):
        def reward_names(self):
            return ("zero",)

        def extra_reward(self, samples):
            return [float((sample.hidden_TD @ direction).mean()) for sample in samples]

        def combine_rewards(self, scores):
            return scores[EXTRA]

    def course(shuffle):
        model, settings = small_model.model(), config.load({
            "TASKS_PER_STEP": "2", "GROUP": "16", "MAX_NEW_TOKENS": "8", "LEARNING_RATE": "2e-2", "REMAT": "none",
            "SHUFFLE_REWARDS": str(shuffle), "RECHECK_SHARE": "0", "COMBINE": "latent"}).settings
        settings = replace(settings, model=replace(settings.model, remat="none"))
        model.chat.decode = lambda ids: "x"
        grader = RewardGrader(Along(), {"zero": lambda samples: [0.0] * len(samples)})
        prompts = [Prompt(task, task.messages(), small_model.prompt(5, seed=i)) for i, task in enumerate(TASKS)]
        state, means = init_state(lora.init(adapter_key(0), small_model.CFG, 4, 8.0)), []
        for step in range(20):
            state, groups, _ = train_step(model, state, prompts, grader, settings, step)
            means.append(np.mean([sample.reward for group in groups for sample in group.samples]))
        return np.mean(means[-4:]) - np.mean(means[:4])
    gained, by_chance = course(False), course(True)
    assert gained > 0.15 and gained > 3 * abs(by_chance), (gained, by_chance)
