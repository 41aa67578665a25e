"""From settings to the grader of a run: which rewards are asked, and what they come to (COMBINE).

lisp, the default, has one reward, the sandbox's: programs are graded one by one while others are still being sampled. Any other
objective names rewards that look at whole groups, so they are asked once a batch. All of them are registered (rl/registry.py):
the built-in ones here, others by PLUGINS."""

import json
import math
from collections.abc import Sequence
from contextlib import nullcontext
from numbers import Real
from types import SimpleNamespace

from rl import combining, latent, text_rewards
from rl.answers import final_answer
from rl.combining import check_scores
from rl.errors import InputError
from rl.registry import Objective, Reward, TrainingSample, build_objective, build_reward, load_plugins, nearest
from rl.reward import Grade, Grader
from rl.reward_kwargs import kwargs_of
from rl.sandbox import Sandbox
from rl.settings import Settings

__all__ = ["RewardGrader", "combining", "grader_of", "latent", "objective_of_rewards", "open_sandbox", "runs_code",
           "text_rewards"]
PROGRAM = "lisp_reward"    # the one reward that needs the sandbox


def objective_alone(settings: Settings) -> Objective:
    """What the rewards come to, without a look at the rewards, some of which read files; InputError for COMBINE or its kwargs."""
    load_plugins(settings.data.plugins)
    return build_objective(settings.objective.combine, **json.loads(settings.objective.combine_kwargs))


def objective_of_rewards(settings: Settings) -> Objective:
    """The same once every reward was tried; InputError where a name or kwargs of rewards are wrong, all problems together."""
    objective = objective_alone(settings)
    names, given = objective.reward_names(), json.loads(settings.reward.reward_kwargs)
    asked_for = f"COMBINE={settings.objective.combine} asks for {', '.join(names)}"
    problems = [f"{name} is given to no reward{nearest(name, names)}; {asked_for}" for name in given if name not in names]
    for name in names:
        try:
            if name != PROGRAM:
                build_reward(name, **kwargs_of(name, settings))
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError(f"REWARD_KWARGS: {'; '.join(problems)}")
    return objective


def runs_code(settings: Settings) -> bool:
    """Whether a sandbox is needed."""
    return PROGRAM in objective_alone(settings).reward_names()


def open_sandbox(settings: Settings):
    """The sandbox that the settings ask for, a context manager; where no answer is run, something that only says so."""
    if not runs_code(settings):
        return nullcontext(SimpleNamespace(description="none: answers are compared, not run"))
    s = settings.sandbox
    return Sandbox(s.sandbox_workers, s.case_seconds, s.allow_weak_sandbox)


def grader_of(sandbox, tasks: Sequence, settings: Settings, case_shift: int = 0):
    """The grader of these tasks; `case_shift` is added to CASE_SEED, for other hidden cases of programs."""
    objective = objective_alone(settings)
    check_tasks(tasks, objective, settings)
    rewards = {}
    for name in objective.reward_names():
        if name == PROGRAM:
            rewards[name] = Grader(sandbox, tasks, settings.reward.style_weight, settings.data.case_seed + case_shift)
        else:
            rewards[name] = build_reward(name, **kwargs_of(name, settings))
    return rewards[PROGRAM] if settings.objective.combine == "lisp" else RewardGrader(objective, rewards)


def check_tasks(tasks: Sequence, objective: Objective, settings: Settings) -> None:
    """InputError where the tasks are not what the rewards judge: programs for the sandbox, answers for all others."""
    needs_code = PROGRAM in objective.reward_names()
    wrong = [task.name for task in tasks if needs_code and not hasattr(task, "reference")]
    if wrong:
        raise InputError(f"COMBINE={settings.objective.combine} pays for programs, and {wrong[0]} of TASKS={settings.data.tasks} "
                         "asks for none: set COMBINE=additive or weighted_length_penalty")
    wrong = [task.name for task in tasks if not needs_code and not hasattr(task, "answer")]
    if wrong:
        raise InputError(f"COMBINE={settings.objective.combine} compares answers, and {wrong[0]} of TASKS={settings.data.tasks} "
                         "has none to compare with: set COMBINE=lisp, or another TASKS")


class RewardGrader:
    """Grades whole batches by several rewards and what an objective makes of them."""

    whole_groups = True

    def __init__(self, objective: Objective, rewards: dict[str, Reward]):
        self._objective, self._rewards = objective, rewards
        self.wants_hidden = getattr(objective, "wants_hidden", False)
        self._right = getattr(objective, "correctness", next((name for name in rewards if "correct" in name), None))

    def grade_samples(self, task_B: Sequence, text_B: Sequence[str], tokens_B: Sequence[int],
                      finish_B: Sequence[str], hidden_B: Sequence | None = None) -> list[Grade]:
        """One Grade a row; a reward that raises, or gives no number, leaves the row without one, to be masked and counted.

        InputError where a reward gives another number of values than there are rows."""
        hidden_B = [None] * len(text_B) if hidden_B is None else hidden_B
        rows = [TrainingSample(question(task), text, getattr(task, "answer", ""), int(tokens), finish,
                               {"task": task, **getattr(task, "metadata", {})}, hidden_TD)
                for task, text, tokens, finish, hidden_TD in zip(task_B, text_B, tokens_B, finish_B, hidden_B, strict=True)]
        hook = getattr(self._objective, latent.EXTRA, None)
        rewards = self._rewards | ({latent.EXTRA: hook} if hook else {})
        scores, base, why = {}, None, {}
        for name, reward in rewards.items():
            scores[name], grades, why[name] = asked(name, reward, rows)
            base = base or grades
        check_scores(scores, list(rewards))
        totals = list(self._objective.combine_rewards(scores))
        check_scores({"combine_rewards": totals, **scores}, ["combine_rewards", *scores])
        return [self._grade(i, row, totals[i], {name: values[i] for name, values in scores.items()}, base and base[i], why)
                for i, row in enumerate(rows)]

    def _grade(self, i, row, total, scores, base, why) -> Grade:
        if not isinstance(total, Real) or not math.isfinite(total):
            failed = next((said for name, said in why.items() if said and not math.isfinite(scores[name])),
                          f"the total is {total!r}")
            return Grade("", "internal_error", False, math.nan, None, None, None, None, None, failed, ())
        correct = scores[self._right] > 0.5 if self._right in scores else total > 0
        if base:
            return base._replace(reward=float(total), correct=correct, scores=scores)
        answer = final_answer(row.completion)
        verdict = "right" if correct else "no_answer" if answer is None else "wrong"
        return Grade(answer or "", verdict, correct, float(total), None, None, None, None, None, "", (), scores=scores)


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
    except Exception as error:
        return [math.nan] * len(rows), None, f"{name}: {type(error).__name__}: {error}"
