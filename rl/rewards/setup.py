"""From settings to a run's rewards: which are asked, what they are given, and what they combine to (COMBINE).

lisp, the default, has one reward, the sandbox's; reasoning_gym has one, the family's own score. Both judge answers one by one
while others are still being sampled. Any other COMBINE names rewards that look at whole groups, so they are asked once a batch.
All of them are registered (rl/registry.py): the built-in ones here, others by PLUGINS.

REWARD_KWARGS can only hold what YAML can write, so some names stand for objects:

    tokenizer_name: 0.5B             a model's name or a folder with a tokenizer.json: lengths in tokens, not words
    second_opinion: math-verify      asked where answers cannot be compared exactly (rl/rewards/words/second_opinion.py)

THINKING_TAG, which the prompt asks for as well, goes to every reward that takes a `tag`."""

import functools
import inspect
import json
import math
from collections.abc import Callable, Iterable, Sequence
from numbers import Real

import numpy as np

from rl.errors import InputError, together
from rl.models.chat import read_tokenizer
from rl.models.hub import tokenizer_file
from rl.registry import OBJECTIVE_METHODS, build_objective, build_reward, declared, load_plugins, nearest, run_outside, takes
from rl.rewards.base import (
    EXTRA,
    RIGHT,
    Combiner,
    Completion,
    FunctionReward,
    Grade,
    Grader,
    Reward,
    TrainingSample,
    no_judge,
)
from rl.rewards.combining import check_scores
from rl.rewards.grading import ungraded
from rl.rewards.words.answers import final_answer
from rl.rewards.words.second_opinion import SecondOpinion
from rl.settings.declared import Settings
from rl.tasks import START, BaseTask, Tasks, evaluation_tasks, load_tasks, next_tasks

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
            given["tokenizer"] = tokenizer_named(given.pop("tokenizer_name"))
    if takes("reward", name, "second_opinion") and (asked := given.get("second_opinion")) is not None:
        if asked not in [*SECOND_OPINIONS]:    # a list, for what YAML gives may have no hash
            raise InputError(f"{name}: second_opinion={asked!r} should be {' or '.join(SECOND_OPINIONS)}, or be left out")
        given["second_opinion"] = SECOND_OPINIONS[asked]()
    return given


@functools.cache
def tokenizer_named(name: str) -> Callable[[str], list[int]]:
    """Text -> ids, control tokens left out, by the tokenizer of a model or of a folder; InputError where there is none."""
    if not isinstance(name, str) or not name:
        raise InputError(f"tokenizer_name={name!r} should be a model's name, or a folder with a tokenizer.json")
    try:
        tokenizer = read_tokenizer(tokenizer_file(name))
    except ValueError as error:
        raise InputError(f"tokenizer_name={name}: {error}") from error
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def built(name: str, settings: Settings) -> Reward:
    """The reward of that name with its kwargs; InputError for an unknown name or kwargs that it does not take."""
    kwargs, group = kwargs_of(name, settings), settings.generation.group
    reward = build_reward(name, **kwargs)
    if (size := float(kwargs.get("group_size", 0))) not in (0, group):    # build_reward has checked it
        raise InputError(f"{name}: group_size={size:g} would compare parts of a group, or samples of several prompts; give "
                         f"GROUP={group}, or leave it out for groups of one prompt")
    return reward if isinstance(reward, Reward) else FunctionReward(reward)


# ---- which rewards a run asks -----------------------------------------------------------------------------------------

# What a task must have for a reward to judge it: what such rewards do, what a wrong task lacks, and the COMBINE that fits.
NEEDS = {"reference": ("pays for programs", "asks for none", "lisp"),
         "family": ("pays what a family's scorer says", "is of no family", "reasoning_gym"),
         "answer": ("compares answers", "has none to compare with", "additive or weighted_length_penalty")}


def combiner_of(settings: Settings) -> Combiner:
    """COMBINE's combiner, before any reward is built, some of which read files; InputError for COMBINE or its kwargs."""
    load_plugins(settings.data.plugins)
    combine = settings.objective.combine
    made = build_objective(combine, **json.loads(settings.objective.combine_kwargs))
    combiner = made if isinstance(made, Combiner) else _ForeignCombiner(made)
    optional = [EXTRA] * (combiner.extra_reward is not None)
    if lacking := [method for method in (*OBJECTIVE_METHODS, *optional) if not callable(getattr(combiner, method))]:
        raise InputError(f"COMBINE={combine} has no {' and no '.join(lacking)} to call, which a combiner needs "
                         "(rl/rewards/base.py)")
    names = run_outside(f"COMBINE={combine}: reward_names", combiner.reward_names)
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise InputError(f"COMBINE={combine}: reward_names gives {names!r}; it must give names of rewards, each once, such as "
                         "('format_tag_reward', 'gsm8k_correctness_reward')")
    return combiner


class _ForeignCombiner(Combiner):
    """A combiner whose class does not derive from Combiner: its own attributes, and Combiner's defaults for what it lacks."""

    def __init__(self, made):
        for name in (*OBJECTIVE_METHODS, EXTRA, "wants_hidden", "correctness"):
            setattr(self, name, getattr(made, name, None if name in OBJECTIVE_METHODS else getattr(Combiner, name)))


def checked_combiner(settings: Settings) -> Combiner:
    """The same once every reward was built; InputError where names or kwargs of rewards are wrong, all problems together."""
    combiner = combiner_of(settings)
    names, problems = combiner.reward_names(), unasked(combiner, settings)
    for name in names:
        try:
            if not _judging(name):
                built(name, settings)
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError(f"REWARD_KWARGS: {'; '.join(problems)}")
    # On made-up scores, so that a combiner that cannot combine is found before a model is read.
    extra = [EXTRA] * (combiner.extra_reward is not None)
    combined(combiner, {name: [0.0] * settings.generation.group for name in (*names, *extra)})
    return combiner


def unasked(combiner: Combiner, settings: Settings) -> list[str]:
    """What is wrong with the names of REWARD_KWARGS."""
    names, given = combiner.reward_names(), json.loads(settings.reward.reward_kwargs)
    asked_for = f"COMBINE={settings.objective.combine} asks for {', '.join(names)}"
    problems = [f"{name} is given to no reward{nearest(name, names)}; {asked_for}" for name in given if name not in names]
    return problems + [f"{name} takes nothing" for name in names if given.get(name) and _judging(name)]


def _judging(name: str) -> type[Grader] | None:
    """The class of a reward that is a grader of its own, with a process to ask; None for rewards that look at samples."""
    found = declared("reward", name)
    return found.made if found and inspect.isclass(found.made) and issubclass(found.made, Grader) else None


def judge_of(settings: Settings) -> type[Grader] | None:
    """The reward whose process the run needs: the sandbox or Reasoning Gym's worker; None where answers are compared."""
    return next(filter(None, map(_judging, combiner_of(settings).reward_names())), None)


def runs_code(settings: Settings) -> bool:
    """Whether the run needs a sandbox."""
    judge = judge_of(settings)
    return judge is not None and judge.has_cases


def open_judge(settings: Settings):
    """The process that the rewards ask: a context manager with a `description`, also where there is none."""
    judge = judge_of(settings)
    return judge.open_judge(settings) if judge else no_judge()


def grader_of(judge, tasks: Sequence[BaseTask], settings: Settings, case_shift: int = 0) -> Grader:
    """The grader of these tasks; `case_shift` is added to CASE_SEED, for other hidden cases of programs."""
    combiner = combiner_of(settings)
    check_tasks(tasks, combiner, settings)
    rewards = {name: made.for_run(judge, tasks, settings, case_shift) if (made := _judging(name)) else built(name, settings)
               for name in combiner.reward_names()}
    return next(iter(rewards.values())) if combiner.unchanged else RewardGrader(combiner, rewards)


# ---- whether tasks and rewards fit ------------------------------------------------------------------------------------


def trainable(settings: Settings, load: Callable = load_tasks) -> tuple[Tasks, list[BaseTask]]:
    """The tasks to train on and those of evaluations, all of which the run's rewards can judge; else InputError.

    `load` gives the tasks of data settings."""
    tasks, unseen, combiner = together(lambda: load(settings.data), lambda: evaluation_tasks(settings),
                                       lambda: checked_combiner(settings))
    next_tasks(len(tasks), 0, START, settings, tasks.order)    # raises where there are too few for a step
    check_tasks(tasks, combiner, settings)
    check_rewards(tasks.in_training, combiner, settings)
    return tasks, unseen


def check_tasks(tasks: Sequence[BaseTask], combiner: Combiner, settings: Settings) -> None:
    """InputError where the tasks are not what the rewards judge: programs, a family's questions, or answers to compare with."""
    judges = [made.needs for name in combiner.reward_names() if (made := _judging(name))]
    for needed in judges or ["answer"]:
        does, lacks, _ = NEEDS[needed]
        if wrong := [task for task in tasks if getattr(task, needed) is None]:
            ways = [f"COMBINE={fits}" for has, (_, _, fits) in NEEDS.items() if getattr(wrong[0], has) is not None]
            raise InputError(f"COMBINE={settings.objective.combine} {does}, and {wrong[0].name} of TASKS={settings.data.tasks} "
                             f"{lacks}: set {', or '.join([*ways, 'another TASKS'])}")


def check_rewards(tasks: Sequence[BaseTask], combiner: Combiner, settings: Settings) -> None:
    """InputError where a reward cannot pay for all of these tasks, or does not give a number for each of some made-up answers.

    Rewards that ask a judge are left out. What a reward raises on made-up answers proves nothing; but an InputError does."""
    prompts = {task.name: task.question for task in tasks}
    samples, problems = [TrainingSample.of(one) for one in made_up(tasks[0], combiner, settings)], []
    rewards = {name: built(name, settings) for name in combiner.reward_names() if not _judging(name)}
    for name, reward in with_extra(combiner, rewards).items():
        try:
            run_outside(f"the reward {name}: check_prompts", reward.check_prompts, prompts)
            problems += wrong_values(name, reward, samples)
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError(f"rewards: {'; '.join(problems)}")


def wrong_values(name: str, reward: Reward, samples: Sequence[TrainingSample]) -> list[str]:
    """What is wrong with the values of a reward; nothing where it raised. Some may be None, for nan."""
    try:
        given = reward(samples)
        values = list(given) if isinstance(given, Iterable) else None
    except InputError:
        raise
    except (Exception, SystemExit):
        return []
    if values is None:
        return [f"{name} gave {given!r:.40}, not a list of numbers"]
    if len(values) != len(samples):
        return [f"{name} gave {len(values)} values for {len(samples)} samples. Each must give one number a sample, in order"]
    allowed = Real if all(value is None for value in values) else Real | None
    wrong = [value for value in values if not isinstance(value, allowed)]
    return [f"{name} gave {wrong[0]!r:.40}, not a number"] if wrong else []


def made_up(task: BaseTask, combiner: Combiner, settings: Settings) -> list[Completion]:
    """GROUP completions of a task, by turns right, without form, wrong and empty; their hidden states are 0."""
    tag, answer = settings.data.thinking_tag, task.answer or task.reference or ""
    texts = (f"<{tag}>so it is</{tag}>\\boxed{{{answer}}}", f"{answer}", f"<{tag}>so it is not</{tag}>\\boxed{{-1}}", "")
    found = []
    for i in range(settings.generation.group):
        text = texts[i % len(texts)]
        tokens = len(text.split()) + 1
        hidden_TD = np.zeros((tokens, 8), np.float32) if combiner.wants_hidden else None
        found.append(Completion(task, text, tokens, "stop", hidden_TD))
    return found


# ---- several rewards as one grader ------------------------------------------------------------------------------------


def with_extra(combiner: Combiner, rewards: dict[str, Reward]) -> dict[str, Reward]:
    """The rewards and the combiner's own hook, where it has one."""
    return rewards | ({EXTRA: FunctionReward(combiner.extra_reward)} if combiner.extra_reward else {})


class RewardGrader(Grader):
    """Grades whole batches by several rewards and what a combiner makes of them."""

    whole_groups = True

    def __init__(self, combiner: Combiner, rewards: dict[str, Reward | Grader]):
        self._combiner, self._rewards = combiner, rewards
        self.wants_hidden = combiner.wants_hidden
        self._right = combiner.correctness or next((name for name in rewards if "correct" in name), None)
        judges = [reward for reward in rewards.values() if isinstance(reward, Grader)]
        self.has_cases = any(judge.has_cases for judge in judges)
        self.second_grader = next((judge.second_grader for judge in judges if judge.has_cases), None)

    def grade(self, completions: Sequence[Completion]) -> list[Grade]:
        """One Grade for each completion; a reward that raises, or gives no number, leaves the sample ungraded.

        InputError where a reward gives another number of values than there are samples."""
        samples = [TrainingSample.of(completion) for completion in completions]
        scores, base, why = {}, None, {}
        for name, reward in with_extra(self._combiner, self._rewards).items():
            scores[name], grades, why[name] = asked(name, reward, completions, samples)
            base = base or grades
        check_scores(scores, list(scores))
        totals = combined(self._combiner, scores)
        return [self._grade(one.text, totals[i], {name: values[i] for name, values in scores.items()}, base and base[i], why)
                for i, one in enumerate(completions)]

    def _grade(self, text: str, total, scores: dict[str, float], base: Grade | None, why: dict[str, str]) -> Grade:
        if not isinstance(total, Real) or not math.isfinite(total):
            failed = next((said for name, said in why.items() if said and not math.isfinite(scores[name])),
                          f"the total is {total!r}")
            return ungraded(failed)
        if base:    # what is right, the judge knows
            return base._replace(reward=float(total), scores=base.scores | scores)
        correct = scores[self._right] > RIGHT if self._right in scores else total > 0
        answer = final_answer(text)
        verdict = "right" if correct else "no_answer" if answer is None else "wrong"
        return Grade(code=answer or "", verdict=verdict, correct=correct, reward=float(total), scores=scores)


def combined(combiner: Combiner, scores: dict[str, list[float]]) -> list:
    """What the combiner makes of the scores, one total a sample; InputError where it raises or gives another number of them."""
    totals = run_outside("combine_rewards", lambda: list(combiner.combine_rewards(scores)))
    check_scores({"combine_rewards": totals, **scores}, ["combine_rewards", *scores])
    return totals


def asked(name: str, reward: Reward | Grader, completions: Sequence[Completion],
          samples: Sequence[TrainingSample]) -> tuple[list[float], list[Grade] | None, str]:
    """(a reward's values, its grades where it is a grader, why there is no value where it raised)."""
    try:
        if isinstance(reward, Grader):
            grades = reward.grade(completions)
            return [grade.reward for grade in grades], grades, ""
        values = [float(value) if isinstance(value, Real) else math.nan for value in reward(samples)]
        return values, None, f"{name} did not give a number"
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        return [math.nan] * len(samples), None, f"{name}: {type(error).__name__}: {error}"
