"""A frozen model's answers to the training tasks, for token_utilisation_reward: rows of prompt, completion, correct.

`prompt` is what the samples of a training run have there (rl/graders.question), so that the reward finds its rows. Answers are
kept in FILE.part as they come, and the file itself appears whole at the end; the same command goes on where it was stopped."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rl.errors import InputError
from rl.evaluation.probe import ProbeGrader, probe
from rl.evaluation.runs import cut_torn, jsonl
from rl.models.hub import hub_name
from rl.registry import check_kwargs
from rl.rewards.setup import AS_IT_IS, check_tasks, grader_of, kwargs_of, objective_alone, objective_of_rewards, question, unasked
from rl.rewards.words.rewards import read_zero_shot
from rl.run.files import append_rows, read_rows, write_aside
from rl.settings.declared import Kwargs, Settings
from rl.tasks import Prompt
from rl.training.sampler import sampling_of

CORRECTNESS = "gsm8k_correctness_reward"


def correctness_alone(settings: Settings) -> Settings:
    """The settings with no reward but format and the run's own correctness: the others may need the file that is to be made.

    InputError where names of COMBINE_KWARGS or REWARD_KWARGS are wrong, in what is left out too."""
    if settings.objective.combine in AS_IT_IS:    # which compares no answers, so it is not for what the file is
        settings = replace(settings, objective=replace(settings.objective, combine="additive"))
    check_names(settings)
    name = json.loads(settings.objective.combine_kwargs).get("correctness", CORRECTNESS)
    given = json.loads(settings.reward.reward_kwargs)
    kwargs = {known: given[known] for known in ("format_tag_reward", name) if known in given}
    objective = replace(settings.objective, combine="additive", combine_kwargs=Kwargs(json.dumps(
        {"correctness": name, "enable_length_penalty": False})))
    return replace(settings, objective=objective, reward=replace(settings.reward, reward_kwargs=Kwargs(json.dumps(kwargs))))


def check_names(settings: Settings) -> None:
    """InputError where COMBINE_KWARGS or REWARD_KWARGS have what nothing takes; no reward is made, for one may need the file."""
    objective = objective_alone(settings)
    given, problems = json.loads(settings.reward.reward_kwargs), unasked(objective, settings)
    for name in given.keys() & {*objective.reward_names()}:
        try:
            check_kwargs("reward", name, kwargs_of(name, settings))
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError(f"REWARD_KWARGS: {'; '.join(problems)}")


def check(path: Path, tasks: Sequence, settings: Settings) -> None:
    """InputError where the file is there, two tasks have one prompt, or the tasks have no answer in words."""
    if path.exists():
        raise InputError(f"{path} exists: it is finished; remove it, or name another file")
    check_tasks(tasks, objective_of_rewards(settings), settings)
    by_prompt = {}
    for task in tasks:
        by_prompt.setdefault(question(task), []).append(task.name)
    if twice := [names for names in by_prompt.values() if len(names) > 1]:
        print(f"note: {len(twice)} prompts belong to several tasks, such as {', '.join(twice[0][:3])}; their rows count together")


def write(path: Path, model, adapter, prompts: Sequence[Prompt], settings: Settings, tell) -> list[dict]:
    """Answer what has no answer yet, then write the file whole; returns its rows."""
    part = path.with_name(path.name + ".part")
    cut_torn(part)
    how = {"how": _digest(model, prompts, settings)}
    kept = read_rows(part)
    if kept and kept[0] != how:
        raise InputError(f"{part} was begun with another model, other prompts or another way of sampling; remove it, or name "
                         "another file")
    if not kept:
        append_rows(part, [how])
    N = settings.generation.n_samples
    rows = kept[1:][: len(kept[1:]) // N * N]    # rows of a task are appended at once, but a full disk takes a part
    at_once = max(1, settings.trainer.tasks_per_step * settings.generation.group // N)
    graders = ProbeGrader(grader_of(None, [prompt.task for prompt in prompts], settings), None)
    for start in range(len(rows) // N, len(prompts), at_once):
        found = probe(model, adapter, prompts[start : start + at_once], graders, N, sampling_of(settings), settings.trainer.seed,
                      at_once, slots=at_once)
        new = [{"prompt": question(prompt.task), "completion": sample.text, "correct": bool(sample.correct),
                "task": prompt.task.name}
               for prompt, group in zip(prompts[start : start + at_once], found.groups, strict=True) for sample in group.samples]
        append_rows(part, new)
        rows += new
        tell(f"{len(rows) // N}/{len(prompts)} tasks, {sum(row['correct'] for row in rows)}/{len(rows)} correct")
    write_aside(path, jsonl(rows))
    read_zero_shot(str(path))    # what the reward could not read must not be handed out
    part.unlink()
    return rows


def _digest(model, prompts, settings) -> str:
    g = settings.generation
    said = [hub_name(settings.model.model), settings.model.lora, [[prompt.task.name, prompt.messages] for prompt in prompts],
            g.temperature, g.n_samples, g.top_k, g.top_p, g.max_new_tokens, settings.trainer.seed, settings.reward.reward_kwargs,
            settings.objective.combine_kwargs]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]
