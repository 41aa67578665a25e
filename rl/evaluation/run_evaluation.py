"""Measuring what training came to: the lasting checkpoints of runs on the held-out tasks of each run's own provider.

`plan` finds the runs and checks everything that can be wrong before a model is read; `evaluate` does one checkpoint. Settings are
those of the run's config.yaml, and the environment wins in how is measured; what is recorded of the training is the run's alone.
Answers are greedy, one a task, unless TEMPERATURE and N_SAMPLES are set there. Numbers and files: run_summary.py. Not here:
training, and evaluations on the way (rl/held_out.py)."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rl import command, config, lora
from rl.datalog import Group, LogError
from rl.errors import InputError
from rl.evaluation.probe import Probed, ProbeGrader, for_unseen_prompts, probe
from rl.evaluation.run_summary import BASE, Key, figures
from rl.generate import check_room
from rl.graders import check_rewards, check_tasks, judge_of, objective_of_rewards, open_judge
from rl.loop import Prompt, prepare, sampling_of
from rl.models.hub import hub_name
from rl.models.pretrained import Source
from rl.settings import NAMES, Settings, values_of
from rl.storage import lasting_checkpoints
from rl.taskset import first_held_out

GREEDY = {"TEMPERATURE": "0", "N_SAMPLES": "1"}
# What an evaluation is of or how it is measured, and where runs lie: no difference between runs that explains another figure.
NO_DIFFERENCE = {"run_name", "out", "resume", "temperature", "n_samples", "eval_tasks", "remat", "update_samples"}
# What may be set of the sections that say how a run was trained: SEED draws samples too, two are for the memory of this machine.
MEASURED_BY = {"trainer": {"seed", "tasks_per_step"}, "objective": {"combine", "combine_kwargs", "logit_chunk"}}
# The variables that say how a run was trained and nothing of how it is measured.
OF_TRAINING = tuple(name.upper() for name, leaf in NAMES.items() if leaf.name in ("split", "n_tasks", "task_names") or (
    leaf.section in MEASURED_BY and leaf.name not in MEASURED_BY[leaf.section]))


class Job(NamedTuple):
    """One evaluation: of a checkpoint, or of the model without adapter where `adapter` is None."""
    run: str
    step: int
    adapter: Path | None
    settings: Settings    # measured with
    trained: Settings     # trained with
    prompts: list[Prompt]
    source: Source
    dtype: object
    how: dict         # all that the figures depend on besides run and step

    @property
    def key(self) -> Key:
        """What tells it from other evaluations."""
        return Key(self.run, self.step, hashlib.sha256(json.dumps(self.how, sort_keys=True).encode()).hexdigest()[:12])


class Run(NamedTuple):
    """A run's folder, read."""
    folder: Path
    name: str
    settings: Settings    # to measure with
    trained: Settings     # those of its config.yaml alone
    checkpoints: dict[int, Path]
    count: int        # of held-out tasks; 0: all
    started: str


def greedy_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with greedy answers, one a task, where it does not say otherwise."""
    return GREEDY | {name: value for name, value in environ.items() if value.strip() or name not in GREEDY}


# ---- before a model is read ------------------------------------------------------------------------------------------

def find_runs(top: Path) -> list[Path]:
    """`top` where it is a run's folder, else the folders in it that are one or are called run_*; InputError where none is."""
    if (top / "config.yaml").is_file():
        return [top]
    found = sorted(path for path in top.glob("*") if path.is_dir() and (
        path.name.startswith("run_") or (path / "config.yaml").is_file() and (path / "checkpoints").is_dir()))
    if not found:
        raise InputError(f"{top}: {'no run is in this folder' if top.is_dir() else 'there is no such folder'}; give a run's "
                         "folder (with config.yaml and checkpoints/), or one that holds such folders")
    return found


def read_run(folder: Path, environ: Mapping[str, str]) -> Run:
    """The run in the folder; InputError where its config.yaml cannot be used."""
    own = {"CONFIG": str(folder / "config.yaml")}
    trained, loaded = config.load(own).settings, config.load(greedy_environ(environ) | own)
    asked = loaded.origins["eval_tasks"].startswith("env ")
    s = loaded.settings
    return Run(folder, folder.resolve().name, s, trained, lasting_checkpoints(folder, s.run.keep_every),
               s.evaluation.eval_tasks if asked else 0, str(config.recorded(folder).get("started", "")))


def plan(top: Path, environ: Mapping[str, str], with_base: bool) -> tuple[list[Job], list[str]]:
    """The evaluations of all runs, base models first, and what was skipped; InputError names all that is wrong."""
    jobs, bases, skipped, problems = [], {}, [], []
    opened = cache(lambda model, dtype, attention: command.find_model(settings_of[model, dtype, attention]))
    settings_of = {}
    for folder in find_runs(top):
        try:
            run = read_run(folder, environ) if (folder / "config.yaml").is_file() else None
            if run is None or not run.checkpoints:
                skipped.append(f"{folder.name}: no {'complete checkpoint' if run else 'config.yaml'}")
                continue
            m = run.settings.model
            settings_of.setdefault((m.model, m.dtype, m.attention), run.settings)
            source, dtype, _ = opened(m.model, m.dtype, m.attention)
            found, wrong = jobs_of(run, source, dtype)
            jobs, problems = jobs + found, problems + wrong
            if with_base:
                base = base_job(found[0])
                bases.setdefault(base.key, base)
        except (InputError, LogError) as error:
            problems.append(f"{folder.name}: {error}")
    if problems or not jobs:
        raise InputError("\n".join([f"{len(problems)} problem(s), nothing was evaluated:", *problems] if problems else
                                   [f"{top}: no run has a checkpoint to evaluate:", *skipped]))
    return [*bases.values(), *jobs], skipped


def jobs_of(run: Run, source: Source, dtype) -> tuple[list[Job], list[str]]:
    """The evaluations of a run's checkpoints, and what is wrong with checkpoints; InputError for data and rewards."""
    s, graded = run.settings, for_unseen_prompts(run.settings)
    tasks, objective = first_held_out(s, run.count), objective_of_rewards(graded)
    check_tasks(tasks, objective, s)
    check_rewards(tasks, objective, graded)
    prompts = prepare(tasks, source.chat, s.data.style_hint, s.generation.max_prompt_tokens)
    check_room([prompt.ids for prompt in prompts], s.generation.max_new_tokens, source.cfg)
    how = measured(run, prompts)
    jobs, problems = [], []
    for step, folder in run.checkpoints.items():
        jobs.append(Job(run.name, step, folder, s, run.trained, prompts, source, dtype, how))
        try:
            lora.load(folder, source.cfg, model=s.model.model)
        except InputError as error:
            problems.append(f"{run.name}: {error}")
    return jobs, problems


def measured(run: Run, prompts: Sequence[Prompt]) -> dict:
    """What a figure of the run rests on, besides the checkpoint."""
    s = run.settings
    asked = hashlib.sha256(json.dumps([[prompt.task.name, prompt.messages] for prompt in prompts]).encode()).hexdigest()
    g, chance = s.generation, {"top_k": s.generation.top_k, "top_p": s.generation.top_p, "seed": s.trainer.seed}
    return {"started": run.started, "model": hub_name(s.model.model), "tasks": f"{len(prompts)} of {s.data.tasks}",
            "prompts": asked[:12], "case_seed": s.data.case_seed, "temperature": g.temperature, "n_samples": g.n_samples,
            "max_new_tokens": g.max_new_tokens, **(chance if g.temperature else {}),
            "rewards": [s.objective.combine, s.objective.combine_kwargs, s.reward.reward_kwargs, s.reward.style_weight]}


def base_job(job: Job) -> Job:
    """The same without adapter; runs of one model on the same tasks share it, their rewards apart."""
    how = {name: value for name, value in job.how.items() if name not in ("started", "rewards")}
    return job._replace(run=BASE, step=0, adapter=None, how=how)


def to_do(jobs: Sequence[Job], done: Sequence[dict], shard: tuple[int, int] = (0, 1)) -> list[Job]:
    """The jobs of this shard (i of k) without a row yet; InputError where rows of a job were measured otherwise."""
    keys = {Key(row["run"], row["step"], row["measured"]): row for row in done}
    before = {(key.run, key.step): row for key, row in keys.items() if key.run != BASE}
    problems = []
    for job in jobs:
        row = before.get((job.run, job.step))
        if row and row["measured"] != job.key.measured:
            differs = [f"{name} {row['how'].get(name)} / {job.how.get(name)}" for name in job.how
                       if row["how"].get(name) != job.how[name]]
            problems.append(f"{job.run}, step {job.step} was measured otherwise: {'; '.join(differs)}")
    if problems:
        raise InputError("\n".join([*problems[:8], *[f"and {len(problems) - 8} more"] * (len(problems) > 8),
                                    "Give another --out for another measurement"]))
    i, k = shard
    return [job for at, job in enumerate(jobs) if at % k == i and job.key not in keys]


# ---- one evaluation --------------------------------------------------------------------------------------------------

def evaluate(job: Job, model, tell) -> tuple[dict, list[Group]]:
    """The job's row of results.jsonl and the graded answers behind it."""
    s = job.settings
    adapter = lora.load(job.adapter, model.cfg) if job.adapter else None
    with open_judge(s) as judge:
        graders = ProbeGrader.on(judge, [prompt.task for prompt in job.prompts], s)
        found = answers(job.prompts, model, adapter, graders, s, tell)
    row = {"run": job.run, "step": job.step, "measured": job.key.measured, "model": job.source.name,
           "adapter": str(job.adapter or ""), **figures(found.groups, tag_of(s)), "trained_on": job.trained.data.split != "train",
           "seconds": found.seconds, "how": job.how,
           "settings": {name: value for name, value in values_of(job.trained).items() if name not in NO_DIFFERENCE}}
    if not job.adapter:    # whose rewards? the runs that share a base model may have different ones
        row |= dict.fromkeys(("reward", "reward_low", "reward_high"))
    return row, found.groups


def answers(prompts: Sequence[Prompt], model, adapter, graders: ProbeGrader, settings: Settings, tell) -> Probed:
    """N_SAMPLES graded answers to each prompt, as many rows at a time as a training step has."""
    N, rows = settings.generation.n_samples, settings.trainer.tasks_per_step * settings.generation.group
    return probe(model, adapter, prompts, graders, N, sampling_of(settings), settings.trainer.seed, max(1, rows // N), tell)


def answer_rows(groups: Sequence[Group]) -> list[dict]:
    """A row an answer."""
    return [{"task": group.task, "sample": number, **sample._asdict()}
            for group in groups for number, sample in enumerate(group.samples)]


def tag_of(settings: Settings) -> str | None:
    """The tag of the thinking block; None where answers are programs or only answers, which have none."""
    return None if judge_of(settings) else settings.data.thinking_tag

