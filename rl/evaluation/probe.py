"""Probing: samples of whole tasks on cases that training never used, graded as in training.

Probes of two models with equal settings see the same tasks, the same hidden cases and the same random numbers, so their
difference is the models' own. What the samples say is worked out in rl/evaluation/probe_report.py.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from rl.datalog import Group
from rl.generate import Sampling, step_key
from rl.graders import grader_of, runs_code
from rl.loop import Prompt, grade, sample, wants_hidden
from rl.safe_grading import weak_passes
from rl.settings import Kwargs, Settings
from rl.words.text_rewards import LENGTH

# A probe samples as a step of its own that no run reaches, and its cases come from seeds beyond those of training.
PROBE_STEP = 2**31 - 1
EVAL_STEP = PROBE_STEP - 1    # of evaluations on the way, so that a probe of the run that they judged draws afresh
UTILISATION = "token_utilisation_reward"
PROBE_CASES, SECOND_CASES = 2**31, 2**32    # added to CASE_SEED, which ends below 2**31


class Probed(NamedTuple):
    """What a probe gathered: a group a task, the tasks' entropy sums, and how its passes did on second cases."""
    groups: list[Group]
    entropy: list[float]       # nats, summed over the task's sampled tokens
    rechecked: int             # passes graded again on cases of yet another seed
    weak: int                  # those that fail there: the first cases let wrong code pass
    seconds: float


class ProbeGrader(NamedTuple):
    """The grader of a probe, on fresh cases, and a second one on other fresh cases to check the first."""
    first: object
    second: object | None    # None where answers are compared and there are no cases to be fresh

    @classmethod
    def on(cls, judge, tasks: Sequence, settings: Settings) -> "ProbeGrader":
        """Both graders of what the settings pay for."""
        settings = for_unseen_prompts(settings)
        first, again = grader_of(judge, tasks, settings, PROBE_CASES), runs_code(settings)
        return cls(first, grader_of(judge, tasks, settings, SECOND_CASES) if again else None)


def probe(model, adapter, prompts: Sequence[Prompt], graders: ProbeGrader, samples: int, sampling: Sampling, seed: int,
          tasks_at_once: int, tell: Callable[[str], None] = lambda line: None, step: int = PROBE_STEP, slots: int = 0) -> Probed:
    """`samples` graded completions of every prompt; tasks_at_once bounds the memory, slots are rl.generate's: neither changes
    anything else."""
    started = time.perf_counter()
    groups, entropy, rechecked, weak = [], [], 0, 0
    for start in range(0, len(prompts), tasks_at_once):
        part = prompts[start:start + tasks_at_once]
        rollouts, texts = sample(model, adapter, part, samples, sampling, step_key(seed, step), slots,
                                 hidden=wants_hidden(graders.first))
        new, _ = grade(graders.first, part, rollouts, texts)
        groups += new
        entropy += rollouts.entropy_BT.sum(-1).reshape(len(part), samples).sum(-1).tolist()
        again, failed = weak_passes(graders.second, *_graded(part, new)) if graders.second else (0, [])
        rechecked, weak = rechecked + again, weak + len(failed)
        tell(_progress(groups, len(prompts), time.perf_counter() - started))
    return Probed(groups, entropy, rechecked, weak, time.perf_counter() - started)


def for_unseen_prompts(settings: Settings) -> Settings:
    """With 0 for what a file of the frozen model's answers lacks, for it has training prompts, and others are measured here; and
    with groups of one prompt, whatever size they had in training."""
    given = json.loads(settings.reward.reward_kwargs)
    if isinstance(utilisation := given.get(UTILISATION), dict):
        given[UTILISATION] = {"missing": "zero"} | utilisation
    if isinstance(length := given.get(LENGTH), dict):
        given[LENGTH] = {name: value for name, value in length.items() if name != "group_size"}
    return replace(settings, reward=replace(settings.reward, reward_kwargs=Kwargs(json.dumps(given, sort_keys=True))))


def _graded(prompts: Sequence[Prompt], groups: Sequence[Group]) -> tuple[list, list]:
    """(task, text) of every sample, and the sample itself, which carries its grade."""
    rows = [(prompt.task, row) for prompt, group in zip(prompts, groups, strict=True) for row in group.samples]
    return [(task, row.text) for task, row in rows], [row for _, row in rows]


def _progress(groups: Sequence[Group], tasks: int, seconds: float) -> str:
    correct = [row.correct for group in groups for row in group.samples]
    left = seconds / len(groups) * (tasks - len(groups))
    return f"{len(groups)}/{tasks} tasks, {sum(correct)}/{len(correct)} pass, {seconds:.0f} s, {left:.0f} s to go"
