"""Evaluations during training: which tasks, when, how many at once, and a row by hand. Runs with them: test_train.py."""

from types import SimpleNamespace

import numpy as np
import pytest

from rl.errors import InputError
from rl.evaluation import probe
from rl.evaluation.probe import EVAL_STEP, PROBE_STEP, HeldOutEvaluation, Probed, ProbeGrader, eval_metrics
from rl.rewards.base import Completion, Grade, Grader
from rl.run.progress import evaluations
from rl.settings import config
from rl.settings.declared import DataSettings
from rl.tasks import Prompt, evaluation_tasks, load_tasks
from rl.training.sampler import Rollouts
from tests.evaluation.test_probe import ENTROPY, GROUPS, sample


def settings(**values):
    """The default settings except these."""
    return config.load({name.upper(): str(value) for name, value in values.items()}).settings


def test_evaluations_are_on_tasks_that_are_not_trained_on():
    """All held-out tasks or the first EVAL_TASKS, whatever N_TASKS and TASK_NAMES choose; none without EVAL_EVERY."""
    every = load_tasks(DataSettings(split="heldout"))
    names = lambda **values: [task.name for task in evaluation_tasks(settings(**values))]  # noqa: E731

    assert names(eval_every=5, task_names="gcd", n_tasks=1) == [task.name for task in every]
    assert names(eval_every=5, eval_tasks=3) == [task.name for task in every[:3]]
    assert not set(names(eval_every=5)) & {task.name for task in load_tasks(DataSettings())}
    assert names() == []


def test_more_tasks_than_are_held_out_are_refused():
    """The message names EVAL_TASKS, not N_TASKS, and the number of held-out tasks."""
    with pytest.raises(InputError, match="EVAL_TASKS=25, but 24 tasks of lc_easy are held out"):
        evaluation_tasks(settings(eval_every=1, eval_tasks=25))


@pytest.mark.parametrize("steps, every", [(1, 1), (6, 4), (6, 3), (7, 10), (80, 20)])
def test_evaluations_are_due_before_the_first_step_at_multiples_and_at_the_end(steps, every):
    """The steps, and the number of evaluations left from each step on, from which the remaining time is estimated."""
    evaluation = HeldOutEvaluation([None], None, settings(steps=steps, eval_every=every))
    due = [step for step in range(steps + 1) if evaluation.due(step)]

    assert due == sorted({*range(0, steps + 1, every), steps})
    for step in range(steps + 1):
        assert evaluations(step, steps, every) == sum(later >= step for later in due)
    assert evaluations(0, steps, 0) == 0 and not HeldOutEvaluation([], None, settings(steps=steps)).due(steps)


def test_a_row_by_hand():
    """Under eval/: the means of the grades, entropy over all tokens, tasks solved, passes that failed on second cases."""
    row = eval_metrics(Probed(GROUPS, ENTROPY, 3, 1, 2.5))
    assert (row["eval/pass_rate"], row["eval/tasks"], row["eval/samples"], row["eval/solved_at_least_once"]) == (3 / 5, 3, 6, 2)
    assert row["eval/reward"] == pytest.approx((1.1 + 1.3 + 1.5) / 5) and row["eval/style"] == pytest.approx(1.8 / 3)
    assert row["eval/entropy"] == pytest.approx(12 / 60) and row["eval/time"] == 2.5
    assert (row["eval/weak_passes"], row["eval/passes_rechecked"]) == (1, 3)
    assert all(name.startswith("eval/") for name in row)


@pytest.mark.parametrize("samples, parts", [(2, [3, 2]), (4, [3, 2]), (5, [2, 2, 1]), (12, [1] * 5)])
def test_a_batch_is_no_larger_than_in_a_step(monkeypatch, samples, parts):
    """A step has 3 prompts and 12 rows; EVAL_SAMPLES decides how many tasks go together, within both limits. The keys are those
    of a step that neither training nor a probe has, and the compiled programs those of the largest batch."""
    batches, keys = [], []

    def fake_sample(model, adapter, prompts, count, sampling, key, min_prompts, hidden):
        batches.append((len(prompts), count, min_prompts))
        B = len(prompts) * count
        arrays = [np.zeros((B, 2), kind) for kind in (np.int32, np.float32, np.float32)]
        completions = [Completion(prompt.task, "x", 2) for prompt in prompts for _ in range(count)]
        return Rollouts([p.ids for p in prompts], np.repeat(np.arange(len(prompts)), count), *arrays, np.full(B, 2),
                        ["stop"] * B), completions

    class AllAlike(Grader):
        def grade(self, completions):
            values = sample()._asdict()
            return [Grade(**{name: values[name] for name in Grade._fields if name in values}) for _ in completions]

    monkeypatch.setattr(probe, "sample_completions", fake_sample)
    monkeypatch.setattr(probe, "step_key", lambda seed, step: keys.append((seed, step)))
    monkeypatch.setattr(ProbeGrader, "on", lambda *_: ProbeGrader(AllAlike(), AllAlike()))
    prompts = [Prompt(SimpleNamespace(name=f"t{n}"), [], [1]) for n in range(5)]
    chosen = settings(eval_every=1, eval_samples=samples, tasks_per_step=3, group=4, seed=7)
    row = HeldOutEvaluation.on(None, prompts, chosen).of(None, None)

    assert [count for count, *_ in batches] == parts
    assert {(n, min_prompts) for _, n, min_prompts in batches} == {(samples, parts[0])}
    assert max(count * samples for count in parts) <= 12 and row["eval/samples"] == 5 * samples
    assert set(keys) == {(7, EVAL_STEP)} and EVAL_STEP not in (PROBE_STEP, *range(100)) and EVAL_STEP > 10_000_000
