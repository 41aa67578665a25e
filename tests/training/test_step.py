"""The step's parts that are not the sampler's, the grader's or the optimiser's own."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rl.errors import InputError
from rl.rewards.base import Completion, Grade, GradedGroup, Grader
from rl.run.signals import EXIT_CODES, Interrupted, Signals
from rl.settings.declared import DataSettings, GenerationSettings, ObjectiveSettings, Settings, TrainerSettings
from rl.tasks import Prompt, encode_prompts, load_tasks
from rl.training import step
from rl.training.advantages import advantages, batch_scaled, scaled_by_reward
from rl.training.loss import denominator, loss_of
from rl.training.sampler import Rollouts
from rl.training.step import advantages_of, extra_metrics, length_penalties, over_passes, rewards_of


def groups(*rewards):
    return [GradedGroup("t", [], [SimpleNamespace(reward=r) for r in row]) for row in rewards]


def test_rewards_are_the_grades():
    """One row a group; a failed grade stays NaN."""
    reward = rewards_of(groups([1.0, 0.0], [float("nan"), 1.5]))
    np.testing.assert_array_equal(reward, [[1, 0], [np.nan, 1.5]])


def test_shuffled_rewards_are_dealt_out_at_random():
    """The control arm keeps the step's rewards and breaks their tie to samples; the same (seed, step) deals the same."""
    graded = groups(np.arange(8.0), np.arange(8.0, 16))
    plain, one, again, other = (rewards_of(graded, by) for by in (None, (0, 1), (0, 1), (0, 2)))

    assert sorted(one.ravel()) == sorted(plain.ravel()) and one.shape == plain.shape
    assert (one == again).all() and (one != other).any() and (one != plain).any()
    assert set(one[0]) != set(plain[0]), "rewards cross from one task's group into another's"


def judgement(reward):
    """A grade of that reward; what is worth something is correct."""
    return Grade(code="", verdict="pass", correct=reward > 0, reward=reward, wall_s=0.01)


@pytest.fixture
def world(monkeypatch):
    """collect() with rewards by task name and every completion of given length: (a function of them, the rounds it sampled)."""
    rounds = []

    def fake_sample(model, adapter, prompts, samples, sampling, key, *, min_prompts=0, on_finished=None, hidden=False):
        rounds.append([p.task.name for p in prompts])
        B, T = len(prompts) * samples, sampling.max_new_tokens
        arrays = [np.full((B, T), len(rounds), kind) for kind in (np.int32, np.float32, np.float32)]
        lengths = np.array([n for p in prompts for n in p.ids])
        finish = ["length" if n == T else "stop" for n in lengths]
        prompt_B = np.repeat(np.arange(len(prompts)), samples)
        rollouts = Rollouts([p.ids for p in prompts], prompt_B, *arrays, lengths, finish)
        return rollouts, [Completion(prompts[p].task, "", n, end) for p, n, end in zip(prompt_B, lengths, finish, strict=True)]

    def collected(rewards, lengths=(3, 3, 3, 3), per_step=2, most=4, update_group=0, **sections):
        names = [*rewards]
        settings = Settings(generation=GenerationSettings(group=4, dynamic_sampling=most > per_step, max_sampled_groups=most,
                                                          update_group=update_group, max_new_tokens=20),
                            trainer=TrainerSettings(tasks_per_step=per_step))
        settings = replace(settings, **sections)
        left = {name: list(values) for name, values in rewards.items()}
        grader = Grader()
        grader.grade = lambda completions: [judgement(left[one.task.name].pop(0)) for one in completions]
        prompts = [Prompt(SimpleNamespace(name=name), [], list(lengths)) for name in names[:most]]
        return step.collect(None, None, prompts, grader, settings, 0)

    monkeypatch.setattr(step, "sample_completions", fake_sample)
    return collected, rounds


MIXED, RIGHT, WRONG = (1.0, 0.0, 1.5, 0.0), (1.0,) * 4, (0.0,) * 4


def test_groups_without_signal_are_replaced_in_the_order_of_the_tasks(world):
    """Each round samples as many groups as are missing; all that was sampled is there, in order, rows beside their groups."""
    collect, rounds = world
    batch = collect({"a": RIGHT, "b": MIXED, "c": WRONG, "d": MIXED, "e": MIXED}, per_step=2, most=5)

    assert rounds == [["a", "b"], ["c"], ["d"]], "e is left for the next step"
    assert [group.task for group in batch.groups] == ["a", "b", "c", "d"]
    assert batch.signal_P.tolist() == [False, True, False, True]
    assert batch.rollouts.prompt_B.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert batch.rollouts.ids_BT[:, 0].tolist() == [1] * 8 + [2] * 4 + [3] * 4
    assert batch.advantage_PN.shape == (4, 4) and len(batch.rollouts.finish_B) == len(batch.grading_s) == 16
    dynamic = Settings(generation=GenerationSettings(dynamic_sampling=True))
    metrics = extra_metrics(batch, loss_of(dynamic), dynamic)
    assert metrics == {"sampled_groups": 4, "discarded_groups": 2}


def test_joined_batches_keep_the_order_of_their_rows(world):
    """Lengths and the reasons for stopping belong to the same rows as the rewards."""
    collect, _ = world
    one, two = (collect({name: MIXED}, lengths=lengths, per_step=1, most=1)
                for name, lengths in (("a", (20, 3, 20, 7)), ("b", (2, 20, 5, 6))))
    rollouts = step.joined(one, two, Settings()).rollouts

    assert rollouts.length_B.tolist() == [20, 3, 20, 7, 2, 20, 5, 6]
    assert rollouts.finish_B == ["length", "stop", "length", "stop", "stop", "length", "stop", "stop"]


@pytest.mark.parametrize("rewards, rounds_wanted", [
    ({"a": MIXED, "b": MIXED, "c": MIXED}, [["a", "b"]]),
    ({"a": WRONG, "b": RIGHT, "c": WRONG, "d": RIGHT, "e": MIXED}, [["a", "b"], ["c", "d"]])])
def test_replacing_stops_when_there_is_enough_or_at_the_cap(world, rewards, rounds_wanted):
    """Nothing more than needed is sampled, and never more than MAX_SAMPLED_GROUPS, signal or not."""
    collect, rounds = world
    collect(rewards, per_step=2, most=4)
    assert rounds == rounds_wanted


def test_without_dynamic_sampling_there_is_one_round(world):
    """All prompts given, whatever their signal."""
    collect, rounds = world
    batch = collect({"a": WRONG, "b": WRONG}, per_step=2, most=2)
    assert rounds == [["a", "b"]] and not batch.signal_P.any() and extra_metrics(batch, 0, Settings()) == {}


def test_cut_samples_leave_the_loss_but_not_the_comparison(world):
    """OVERLONG=mask: the one that the limit cut is not trained on; the others' advantages still count its reward."""
    collect, _ = world
    kept, masked = (collect({"a": MIXED}, lengths=(3, 20, 5, 7), per_step=1, most=1,
                            objective=ObjectiveSettings(overlong=how)) for how in ("keep", "mask"))

    assert kept.trained_PN.all() and masked.trained_PN.tolist() == [[True, False, True, True]]
    assert (kept.advantage_PN == masked.advantage_PN).all()


@pytest.mark.known_bug(16)
def test_only_right_answers_pay_for_length(world):
    """OVERLONG=penalise: right ones lose up to OVERLONG_PENALTY over the last OVERLONG_TOKENS; wrong ones nothing, so a group
    without a right one has no signal whatever its lengths, and no wrong answer outranks a right one."""
    collect, _ = world
    o = ObjectiveSettings(overlong="penalise", overlong_tokens=10, overlong_penalty=0.5)
    batch = collect({"a": RIGHT, "b": WRONG}, lengths=(20, 15, 10, 3), per_step=2, most=2, objective=o)
    reward = np.array([1 - 0.5, 1 - 0.25, 1, 1])
    settings = Settings(generation=GenerationSettings(max_new_tokens=20), objective=o)

    np.testing.assert_allclose(batch.advantage_PN[0], (reward - reward.mean()) / reward.std(), rtol=1e-6)
    assert batch.signal_P.tolist() == [True, False]
    assert extra_metrics(batch, 1, settings) == {"rewards/overlong/mean": pytest.approx(-0.75 / 8)}
    hardest = replace(settings, objective=replace(o, overlong_penalty=1.0))
    least = rewards_of(batch.groups, None, length_penalties(batch.groups, hardest))
    assert least[0].min() >= least[1].max()


@pytest.mark.parametrize("o, kind, scaled", [
    ({}, "grpo", True), ({"loss": "dr_grpo"}, "grpo", False), ({"advantage": "rloo"}, "rloo", False),
    ({"advantage": "rloo", "advantage_scale": "std"}, "rloo", True), ({"advantage_scale": "none"}, "grpo", False),
    ({"loss": "dr_grpo", "advantage_scale": "std"}, "grpo", True), ({"advantage": "passk", "pass_k": 2}, "passk", True),
    ({"advantage": "passk", "pass_k": 2, "loss": "dr_grpo"}, "passk", False)])
def test_which_advantage_the_settings_mean(o, kind, scaled):
    """auto leaves the scale out where the loss or the advantage was defined without; std and none decide otherwise."""
    o = ObjectiveSettings(**o)
    reward = np.array([[0, 1.5, 0, 1.0]])
    got = advantages_of(reward, reward > 0, Settings(objective=o))
    np.testing.assert_array_equal(got, advantages(reward, kind, scaled, o.pass_k))


def test_scales_of_the_whole_step(world):
    """batch and reward compare over all groups of the step, those that replaced others included."""
    collect, _ = world
    rewards = {"a": WRONG, "b": MIXED, "c": RIGHT, "d": MIXED}
    for scale, want in (("batch", batch_scaled), ("reward", lambda r: scaled_by_reward((r > 0, r - (r > 0)), (1, 0.5)))):
        batch = collect(rewards, per_step=2, most=4, objective=ObjectiveSettings(advantage_scale=scale))

        np.testing.assert_array_equal(batch.advantage_PN, want(batch.reward_PN))
        assert batch.reward_PN.shape == (4, 4) and batch.signal_P.tolist() == [False, True, False, True]


def test_only_the_most_varied_samples_are_trained_on(world):
    """UPDATE_GROUP=2: one right and one wrong sample of a mixed group, compared with each other alone."""
    collect, _ = world
    batch = collect({"a": MIXED, "b": RIGHT}, per_step=2, most=2, update_group=2)

    assert batch.trained_PN.sum(1).tolist() == [2, 2] and batch.signal_P.tolist() == [True, False]
    assert sorted(batch.advantage_PN[0][batch.trained_PN[0]].tolist()) == [-1.0, 1.0]
    assert not batch.advantage_PN[~batch.trained_PN].any() and len(batch.groups[0].samples) == 4


def test_shuffled_rewards_take_their_correctness_along():
    """What is dealt out in place of a reward is the whole of it."""
    reward, right = np.array([[1.3, 0, 0], [1.1, 1.4, 0]]), np.array([[1.0, 0, 0], [1, 1, 0]])
    dealt = [step.dealt_out(values, (7, 3)) for values in (reward, right)]

    assert sorted(zip(*map(np.ravel, dealt), strict=True)) == sorted(zip(reward.ravel(), right.ravel(), strict=True))
    assert (dealt[0] != reward).any() and step.dealt_out(reward, None) is reward


def test_the_objective_has_the_bounds_of_its_ratio():
    """gspo takes its own; dr_grpo's constant is MAX_NEW_TOKENS times the samples of a step."""
    o = loss_of(Settings())
    assert (o.kind, o.eps_low, o.eps_high, o.entropy_bonus, o.kl_beta, o.needs_no_signal) == ("dapo", 0.2, 0.28, 0, 0, False)
    o = loss_of(Settings(objective=ObjectiveSettings(loss="gspo", kl_beta=0.1)))
    assert (o.eps_low, o.eps_high, o.needs_no_signal) == (3e-4, 4e-4, True)
    o = loss_of(Settings(objective=ObjectiveSettings(loss="dr_grpo")))
    assert denominator(o, 5, 2) == 192 * 8 * 8


def test_several_updates_make_one_row():
    """Counts add up, maxima stay maxima, the rest is averaged."""
    passes = [{"loss": 1.0, "x/max": 3.0, "skipped_steps": 1, "trained_tokens": 5},
              {"loss": 2.0, "x/max": 1.0, "skipped_steps": 0, "trained_tokens": 5}]
    assert over_passes(passes) == {"loss": 1.5, "x/max": 3.0, "skipped_steps": 1, "trained_tokens": 10}


def test_prompts_are_prepared_once_and_too_long_ones_named():
    """Each task becomes messages and ids; all that exceed the limit are listed with their length."""
    tasks = load_tasks(DataSettings(task_names="gcd,factorial"))
    chat = SimpleNamespace(encode=lambda said: list(range(len(said[1]["content"]))))
    prompts = encode_prompts(tasks, chat, False, 5000)

    assert {p.task.name for p in prompts} == {"gcd", "factorial"} and all(p.ids for p in prompts)
    with pytest.raises(InputError, match=r"2 prompts.*MAX_PROMPT_TOKENS=3.*gcd \(\d+\)"):
        encode_prompts(tasks, chat, False, 3)


def test_the_style_hint_reaches_the_prompt():
    """STYLE_HINT adds a sentence, and nothing about style is said without it."""
    tasks, chat = load_tasks(DataSettings(task_names="gcd")), SimpleNamespace(encode=lambda said: [0])
    plain, hinted = (encode_prompts(tasks, chat, hint, 10)[0].messages[1]["content"] for hint in (False, True))
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
