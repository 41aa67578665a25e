"""From settings to a run's rewards: which are asked, what they are given, and what they combine to (COMBINE).

lisp, the default, has one reward, the sandbox's; reasoning_gym has one, the family's own score. Both judge answers one by one
while others are still being sampled. Any other COMBINE names rewards that look at whole groups, so they are asked once a batch.
All of them are registered (rl/registry.py): the built-in ones here, others by PLUGINS.

REWARD_KWARGS can only hold what YAML can write, so some names stand for objects:

    tokenizer_name: 0.5B             a model's name or a folder with a tokenizer.json: lengths in tokens, not words
    second_opinion: math-verify      asked where answers cannot be compared exactly (rl/rewards/words/second_opinion.py)

THINKING_TAG, which the prompt asks for as well, goes to every reward that takes a `tag`."""

import functools
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from numbers import Real
from types import SimpleNamespace

import numpy as np

from rl.errors import InputError, together
from rl.models.chat import read_tokenizer
from rl.models.hub import tokenizer_file
from rl.registry import OBJECTIVE_METHODS, build_objective, build_reward, load_plugins, nearest, run_outside, takes
from rl.rewards.base import Combiner, Grade, Reward, TrainingSample
from rl.rewards.combining import EXTRA, check_scores
from rl.rewards.gym.client import Gym
from rl.rewards.gym.questions import GymGrader
from rl.rewards.lisp import ProgramGrader
from rl.rewards.words.answers import final_answer
from rl.rewards.words.rewards import LENGTH
from rl.rewards.words.second_opinion import SecondOpinion
from rl.sandbox import Sandbox
from rl.settings.declared import Settings
from rl.tasks import START, Tasks, evaluation_tasks, load_tasks, next_tasks

# ---- what a reward is given -------------------------------------------------------------------------------------------


SECOND_OPINIONS = {"math-verify": SecondOpinion}


def kwargs_of(name: str, settings: Settings) -> dict:
    """What the reward of that name is built with; InputError for a name in it that stands for nothing, or another tag."""
    given = json.loads(settings.reward.reward_kwargs).get(name, {})
    if not isinstance(given, dict):
        raise InputError(f"{name}={given!r} should be a mapping")
    tag = settings.data.thinking_tag
    if takes("reward", name, "tag"):
        if given.get("tag", tag) != tag:
            raise InputError(f"{name}: tag={given['tag']!r}, but the prompt asks for THINKING_TAG={tag}; set that instead")
        given["tag"] = tag
    if takes("reward", name, "tokenizer"):
        if "tokenizer" in given:    # something to call, which YAML cannot write
            raise InputError(f"{name}: tokenizer={given['tokenizer']!r} cannot be given; give tokenizer_name, a model's name")
        if "tokenizer_name" in given:
            given["tokenizer"] = tokenizer_named(given.pop("tokenizer_name"), os.environ.get(settings.auth.hf_token_env))
    if takes("reward", name, "second_opinion") and (asked := given.get("second_opinion")) is not None:
        if asked not in [*SECOND_OPINIONS]:    # a list, for what YAML gives may have no hash
            raise InputError(f"{name}: second_opinion={asked!r} should be {' or '.join(SECOND_OPINIONS)}, or be left out")
        given["second_opinion"] = SECOND_OPINIONS[asked]()
    return given


@functools.cache
def tokenizer_named(name: str, token: str | None = None) -> Callable[[str], list[int]]:
    """Text -> ids, control tokens left out, by the tokenizer of a model or of a folder; InputError where there is none.

    token: the hub's."""
    if not isinstance(name, str) or not name:
        raise InputError(f"tokenizer_name={name!r} should be a model's name, or a folder with a tokenizer.json")
    try:
        tokenizer = read_tokenizer(tokenizer_file(name, token))
    except ValueError as error:
        raise InputError(f"tokenizer_name={name}: {error}") from error
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


# ---- the rewards of a run ---------------------------------------------------------------------------------------------


PROGRAM, FAMILY = "lisp_reward", "reasoning_gym_reward"    # the rewards that a judge gives: what open_judge opens
JUDGES = {"reference": "lisp", "family": "reasoning_gym", "answer": "additive or weighted_length_penalty"}    # of what a task has
CHECK = "check_prompts"    # what a reward may have besides being called
AS_IT_IS = {"lisp": PROGRAM, "reasoning_gym": FAMILY}    # the objectives that pay one of them and nothing else


def objective_alone(settings: Settings) -> Combiner:
    """What the rewards come to, without a look at the rewards, some of which read files; InputError for COMBINE or its kwargs."""
    load_plugins(settings.data.plugins)
    combine = settings.objective.combine
    objective = build_objective(combine, **json.loads(settings.objective.combine_kwargs))
    optional = [EXTRA] * hasattr(objective, EXTRA)
    if lacking := [method for method in (*OBJECTIVE_METHODS, *optional) if not callable(getattr(objective, method, None))]:
        raise InputError(f"COMBINE={combine} has no {' and no '.join(lacking)} to call, which objectives need (rl/registry.py)")
    names = run_outside(f"COMBINE={combine}: reward_names", objective.reward_names)
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise InputError(f"COMBINE={combine}: reward_names gives {names!r}; it must give names of rewards, each once, such as "
                         "('format_tag_reward', 'gsm8k_correctness_reward')")
    return objective


def objective_of_rewards(settings: Settings) -> Combiner:
    """The same once every reward was tried; InputError where a name or kwargs of rewards are wrong, all problems together."""
    objective = objective_alone(settings)
    names, problems = objective.reward_names(), unasked(objective, settings)
    group = settings.generation.group
    for name in names:
        try:
            if name not in (PROGRAM, FAMILY):
                built = build_reward(name, **kwargs_of(name, settings))
                if name == LENGTH and (size := built.keywords.get("group_size", 0)) not in (0, group):
                    problems.append(f"{name}: group_size={size} would compare parts of a group, or samples of several prompts; "
                                    f"give GROUP={group}, or leave it out for groups of one prompt")
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError(f"REWARD_KWARGS: {'; '.join(problems)}")
    # On made-up scores, so that an objective that cannot combine is found before a model is read.
    extra = [EXTRA] * hasattr(objective, EXTRA)
    combined(objective, {name: [0.0] * group for name in (*names, *extra)})
    return objective


def unasked(objective: Combiner, settings: Settings) -> list[str]:
    """What is wrong with the names of REWARD_KWARGS."""
    names, given = objective.reward_names(), json.loads(settings.reward.reward_kwargs)
    asked_for = f"COMBINE={settings.objective.combine} asks for {', '.join(names)}"
    problems = [f"{name} is given to no reward{nearest(name, names)}; {asked_for}" for name in given if name not in names]
    return problems + [f"{name} takes nothing" for name in (PROGRAM, FAMILY) if name in names and given.get(name)]


def judge_of(settings: Settings) -> str | None:
    """The reward that a judge gives: the sandbox's or that of Reasoning Gym's worker; None where answers are compared."""
    return next((name for name in (PROGRAM, FAMILY) if name in objective_alone(settings).reward_names()), None)


def runs_code(settings: Settings) -> bool:
    """Whether a sandbox is needed."""
    return judge_of(settings) == PROGRAM


def open_judge(settings: Settings):
    """The processes that the rewards ask, a context manager with a `description`; where none are, something that only says so."""
    judge, s = judge_of(settings), settings.sandbox
    if judge == PROGRAM:
        return Sandbox(s.sandbox_workers, s.case_seconds, s.allow_weak_sandbox)
    if judge == FAMILY:
        return Gym(settings.proof.score_seconds)
    return nullcontext(SimpleNamespace(description="none: answers are compared, not run"))


def grader_of(judge, tasks: Sequence, settings: Settings, case_shift: int = 0):
    """The grader of these tasks; `case_shift` is added to CASE_SEED, for other hidden cases of programs."""
    objective = objective_alone(settings)
    check_tasks(tasks, objective, settings)
    rewards = {}
    for name in objective.reward_names():
        if name == PROGRAM:
            rewards[name] = ProgramGrader(judge, tasks, settings.reward.style_weight, settings.data.case_seed + case_shift)
        elif name == FAMILY:
            rewards[name] = GymGrader(judge)
    rewards |= compared(objective, settings)
    rewards = {name: rewards[name] for name in objective.reward_names()}
    paid = AS_IT_IS.get(settings.objective.combine)
    return rewards[paid] if paid else RewardGrader(objective, rewards)


def check_tasks(tasks: Sequence, objective: Combiner, settings: Settings) -> None:
    """InputError where the tasks are not what the rewards judge: programs, a family's questions, or answers to compare with."""
    names, combine = objective.reward_names(), f"COMBINE={settings.objective.combine}"
    judged = {PROGRAM: ("reference", "pays for programs", "asks for none"),
              FAMILY: ("family", "pays what a family's scorer says", "is of no family")}
    asked = [judged[name] for name in judged if name in names] or [("answer", "compares answers", "has none to compare with")]
    for needed, does, lacks in asked:
        if wrong := [task for task in tasks if getattr(task, needed, None) is None]:
            ways = [f"COMBINE={way}" for has, way in JUDGES.items() if getattr(wrong[0], has, None) is not None]
            raise InputError(f"{combine} {does}, and {wrong[0].name} of TASKS={settings.data.tasks} {lacks}: set "
                             f"{', or '.join([*ways, 'another TASKS'])}")


def trainable(settings: Settings, load=load_tasks) -> tuple[Tasks, list]:
    """The tasks to train on and those of the evaluations, all of which the run's rewards can pay for; else InputError.

    `load` gives the tasks of data settings."""
    tasks, unseen, objective = together(lambda: load(settings.data), lambda: evaluation_tasks(settings),
                                        lambda: objective_of_rewards(settings))
    next_tasks(tasks, 0, START, settings)    # raises where there are too few for a step
    check_tasks(tasks, objective, settings)
    check_rewards(tasks, objective, settings)
    return tasks, unseen


def compared(objective: Combiner, settings: Settings) -> dict[str, Reward]:
    """The rewards that ask no judge, built, by their names."""
    return {name: build_reward(name, **kwargs_of(name, settings)) for name in objective.reward_names()
            if name not in (PROGRAM, FAMILY)}


def check_rewards(tasks: Sequence, objective: Combiner, settings: Settings) -> None:
    """InputError where a reward cannot pay for all of these tasks, or gives no number a sample for made-up answers to one.

    Rewards that run programs or ask a worker are left out. What one raises on made-up answers is judged in training, on real
    ones; but not an InputError, which would end it."""
    prompts = {task.name: question(task) for task in getattr(tasks, "in_training", tasks)}
    rows, problems = made_up(tasks[0], objective, settings), []
    for name, reward in with_extra(objective, compared(objective, settings)).items():
        try:
            if hasattr(reward, CHECK):
                run_outside(f"the reward {name}: {CHECK}", getattr(reward, CHECK), prompts)
            problems += wrong_values(name, reward, rows)
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError(f"rewards: {'; '.join(problems)}")


def wrong_values(name: str, reward, rows: Sequence[TrainingSample]) -> list[str]:
    """What is wrong with the values of a reward, in words; nothing where it raised. Some may be None, for nan."""
    try:
        given = reward(rows)
        values = list(given) if isinstance(given, Iterable) else None
    except InputError:
        raise
    except (Exception, SystemExit):
        return []
    if values is None:
        return [f"{name} gave {given!r:.40}, no list of numbers"]
    if len(values) != len(rows):
        return [f"{name} gave {len(values)} values for {len(rows)} samples. Each must give one number a sample, in order"]
    allowed = Real if all(value is None for value in values) else Real | None
    wrong = [value for value in values if not isinstance(value, allowed)]
    return [f"{name} gave no number but {wrong[0]!r:.40}"] if wrong else []


def made_up(task, objective: Combiner, settings: Settings) -> list[TrainingSample]:
    """GROUP samples of a task as a step might have them, in turn right, without form, wrong and empty; hidden states are 0."""
    tag, answer = settings.data.thinking_tag, getattr(task, "answer", "") or getattr(task, "reference", "")
    said = (f"<{tag}>so it is</{tag}>\\boxed{{{answer}}}", f"{answer}", f"<{tag}>so it is not</{tag}>\\boxed{{-1}}", "")
    texts = [said[i % len(said)] for i in range(settings.generation.group)]
    tokens = [len(text.split()) + 1 for text in texts]
    hidden = [np.zeros((n, 8), np.float32) for n in tokens] if getattr(objective, "wants_hidden", False) else None
    return samples_of([task] * len(texts), texts, tokens, ["stop"] * len(texts), hidden)


def samples_of(task_B: Sequence, text_B: Sequence[str], tokens_B: Sequence[int], finish_B: Sequence[str],
               hidden_B: Sequence | None = None) -> list[TrainingSample]:
    """What rewards see of completions."""
    hidden_B = [None] * len(text_B) if hidden_B is None else hidden_B
    return [TrainingSample(question(task), text, getattr(task, "answer", ""), int(tokens), finish,
                           {"task": task, **getattr(task, "metadata", {})}, hidden_TD)
            for task, text, tokens, finish, hidden_TD in zip(task_B, text_B, tokens_B, finish_B, hidden_B, strict=True)]


def with_extra(objective: Combiner, rewards: dict[str, Reward]) -> dict[str, Reward]:
    """The rewards and the objective's own hook, where it has one."""
    hook = getattr(objective, EXTRA, None)
    return rewards | ({EXTRA: hook} if hook else {})


class RewardGrader:
    """Grades whole batches by several rewards and what an objective makes of them."""

    whole_groups = True

    def __init__(self, objective: Combiner, rewards: dict[str, Reward]):
        self._objective, self._rewards = objective, rewards
        self.wants_hidden = getattr(objective, "wants_hidden", False)
        self._right = getattr(objective, "correctness", next((name for name in rewards if "correct" in name), None))

    def grade_samples(self, task_B: Sequence, text_B: Sequence[str], tokens_B: Sequence[int],
                      finish_B: Sequence[str], hidden_B: Sequence | None = None) -> list[Grade]:
        """One Grade a row; a reward that raises, or gives no number, leaves the row without one, to be masked and counted.

        InputError where a reward gives another number of values than there are rows."""
        rows = samples_of(task_B, text_B, tokens_B, finish_B, hidden_B)
        rewards = with_extra(self._objective, self._rewards)
        scores, base, why = {}, None, {}
        for name, reward in rewards.items():
            scores[name], grades, why[name] = asked(name, reward, rows)
            base = base or grades
        check_scores(scores, list(rewards))
        totals = combined(self._objective, scores)
        return [self._grade(i, row, totals[i], {name: values[i] for name, values in scores.items()}, base and base[i], why)
                for i, row in enumerate(rows)]

    def _grade(self, i, row, total, scores, base, why) -> Grade:
        if not isinstance(total, Real) or not math.isfinite(total):
            failed = next((said for name, said in why.items() if said and not math.isfinite(scores[name])),
                          f"the total is {total!r}")
            return Grade("", "internal_error", False, math.nan, None, None, None, None, None, failed, ())
        if base:
            return base._replace(reward=float(total), scores=base.scores | scores)    # what is right, the judge knows
        correct = scores[self._right] > 0.5 if self._right in scores else total > 0
        answer = final_answer(row.completion)
        verdict = "right" if correct else "no_answer" if answer is None else "wrong"
        return Grade(answer or "", verdict, correct, float(total), None, None, None, None, None, "", (), scores=scores)


def combined(objective: Combiner, scores: dict[str, list[float]]) -> list:
    """What the objective makes of the scores, one total a row; InputError where it raises or gives another number of them."""
    totals = run_outside("combine_rewards", lambda: list(objective.combine_rewards(scores)))
    check_scores({"combine_rewards": totals, **scores}, ["combine_rewards", *scores])
    return totals


def question(task) -> str:
    """What the user says in the task's prompt: what tells one prompt from another."""
    return task.messages()[-1]["content"]


def asked(name: str, reward, rows: Sequence[TrainingSample]) -> tuple[list[float], list[Grade] | None, str]:
    """(a reward's values, its grades where it is a grader, why there is no value where it raised)."""
    try:
        if hasattr(reward, "grade"):
            grades = reward.grade([(row.metadata["task"], row.completion) for row in rows])
            return [grade.reward for grade in grades], grades, ""
        values = [float(value) if isinstance(value, Real) else math.nan for value in reward(rows)]
        return values, None, f"{name} gave no number"
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        return [math.nan] * len(rows), None, f"{name}: {type(error).__name__}: {error}"
