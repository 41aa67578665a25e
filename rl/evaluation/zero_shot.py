"""A frozen model's answers to the training tasks, for token_utilisation_reward: rows of prompt, completion, correct.

`prompt` is a task's question, as in the samples of a training run, so that the reward finds its rows. Answers are appended to
FILE.part as they come, and the file is written whole at the end; the same command continues where it was stopped."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rl.errors import InputError
from rl.evaluation.probe import ProbeGrader, probe
from rl.models.hub import hub_name
from rl.registry import check_kwargs, declared
from rl.rewards.setup import check_tasks, checked_combiner, combiner_of, grader_of, kwargs_of, unasked
from rl.rewards.words.rewards import read_zero_shot
from rl.run.files import append_rows, drop_torn_row, json_lines, read_rows, write_aside
from rl.settings.declared import Kwargs, Settings
from rl.tasks import Prompt
from rl.training.lora import label
from rl.training.sampler import sampling_of

CORRECTNESS = "gsm8k_correctness_reward"


def correctness_alone(settings: Settings) -> Settings:
    """The settings with two rewards only, format and the run's correctness, since others may need the file being made.

    InputError for wrong names in COMBINE_KWARGS or REWARD_KWARGS, including those of the other rewards."""
    combiner = declared("objective", settings.objective.combine)
    if combiner and getattr(combiner.made, "unchanged", False):    # pays for programs or by a scorer: the file is for other runs
        settings = replace(settings, objective=replace(settings.objective, combine="additive"))
    check_names(settings)
    name = json.loads(settings.objective.combine_kwargs).get("correctness", CORRECTNESS)
    given = json.loads(settings.reward.reward_kwargs)
    kwargs = {known: given[known] for known in ("format_tag_reward", name) if known in given}
    objective = replace(settings.objective, combine="additive", combine_kwargs=Kwargs(json.dumps(
        {"correctness": name, "enable_length_penalty": False})))
    return replace(settings, objective=objective, reward=replace(settings.reward, reward_kwargs=Kwargs(json.dumps(kwargs))))


def check_names(settings: Settings) -> None:
    """InputError for names in COMBINE_KWARGS or REWARD_KWARGS that nothing takes; builds no reward, as one may need the file."""
    combiner = combiner_of(settings)
    given, problems = json.loads(settings.reward.reward_kwargs), unasked(combiner, settings)
    for name in given.keys() & {*combiner.reward_names()}:
        try:
            check_kwargs("reward", name, kwargs_of(name, settings))
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError(f"REWARD_KWARGS: {'; '.join(problems)}")


def check(path: Path, tasks: Sequence, settings: Settings) -> None:
    """InputError where the file exists or the tasks have no answer in words; prints a note where tasks share a prompt."""
    if path.exists():
        raise InputError(f"{path} exists and is finished; remove it, or name another file")
    check_tasks(tasks, checked_combiner(settings), settings)
    by_prompt = {}
    for task in tasks:
        by_prompt.setdefault(task.question, []).append(task.name)
    if shared := [names for names in by_prompt.values() if len(names) > 1]:
        print(f"note: {len(shared)} prompts belong to several tasks, such as {', '.join(shared[0][:3])}; their rows are pooled")


def write(path: Path, model, adapter, prompts: Sequence[Prompt], settings: Settings, tell) -> list[dict]:
    """Answer the tasks that have no answer yet, then write the file; returns its rows."""
    part = path.with_name(path.name + ".part")
    drop_torn_row(part)
    how = {"how": _digest(model, prompts, settings)}
    kept = read_rows(part)
    if kept and kept[0] != how:
        raise InputError(f"{part} was started with another model, other prompts or other sampling settings; remove it, or name "
                         "another file")
    if not kept:
        append_rows(part, [how])
    N = settings.generation.n_samples
    rows = kept[1:][: len(kept[1:]) // N * N]    # whole tasks only: a full disk may have taken a part of the last one
    at_once = max(1, settings.trainer.tasks_per_step * settings.generation.group // N)
    graders = ProbeGrader(grader_of(None, [prompt.task for prompt in prompts], settings), None)
    for start in range(len(rows) // N, len(prompts), at_once):
        batch = prompts[start : start + at_once]
        probed = probe(model, adapter, batch, graders, samples=N, sampling=sampling_of(settings),
                       seed=settings.trainer.seed, tasks_at_once=at_once)
        new = [{"prompt": prompt.task.question, "completion": sample.text, "correct": bool(sample.correct),
                "task": prompt.task.name}
               for prompt, group in zip(batch, probed.groups, strict=True) for sample in group.samples]
        append_rows(part, new)
        rows += new
        tell(f"{len(rows) // N}/{len(prompts)} tasks, {sum(row['correct'] for row in rows)}/{len(rows)} correct")
    write_aside(path, json_lines(rows))
    read_zero_shot(str(path))    # raises where the reward could not read the file
    part.unlink()
    return rows


def _digest(model, prompts, settings) -> str:
    g = settings.generation
    how = [hub_name(settings.model.model), label(settings.model), [[prompt.task.name, prompt.messages] for prompt in prompts],
           g.temperature, g.n_samples, g.top_k, g.top_p, g.max_new_tokens, settings.trainer.seed, settings.reward.reward_kwargs,
           settings.objective.combine_kwargs]
    return hashlib.sha256(json.dumps(how, sort_keys=True).encode()).hexdigest()[:12]
