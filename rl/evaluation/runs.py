"""Evaluates finished training: the lasting checkpoints of runs, each run on the held-out tasks of its own provider.

`plan` finds the runs and makes all checks before a model is loaded; `evaluate` measures one checkpoint. The settings are those of
the run's config.yaml. The environment overrides how answers are sampled and graded, never how the run was trained. Answers are
greedy, one per task, unless TEMPERATURE and N_SAMPLES are set.

results.jsonl gets a row per checkpoint; summary.csv and summary.json are rebuilt from all rows every time. Several processes may
add rows to one folder: they take turns, and the next one cuts off a row that a kill left incomplete. Accuracy has Wilson's
interval with one answer per task, otherwise one that resamples tasks, as the mean reward has. Thinking is the text in the one
thinking block, counted in words over the samples that have such a block; `malformed` is the share without.

Not here: training, evaluations during training (probe.py), curves (rl/pages/run_curves.py)."""

import csv
import hashlib
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rl.errors import InputError
from rl.evaluation.probe import Probed, ProbeGrader, for_unseen_prompts, probe
from rl.evaluation.stats import UNKNOWN, Interval, bootstrap, number_text, pass_rate, wilson
from rl.models.hub import hub_name
from rl.models.pretrained import Source
from rl.rewards.base import GradedGroup
from rl.rewards.setup import check_rewards, check_tasks, checked_combiner, judge_of, open_judge
from rl.rewards.words.rewards import thinking
from rl.run.files import LogError, append_rows, drop_torn_row, in_turn, jsonable, lasting_checkpoints, read_rows, write_aside
from rl.run.log import graded
from rl.settings import config
from rl.settings.declared import FIXED, NAMES, Settings, values_of
from rl.tasks import Prompt, encode_prompts, first_held_out
from rl.training import lora
from rl.training.sampler import check_room, sampling_of

FORMAT = "evaluation 1"
RESULTS = "results.jsonl"
BASE = "base"    # the run name of a model without adapter
COLUMNS = ("run", "step", "model", "tasks", "samples", "accuracy", "accuracy_low", "accuracy_high", "reward", "reward_low",
           "reward_high", "thinking_mean", "thinking_median", "thinking_p90", "malformed", "cut", "tokens_mean", "ungraded",
           "trained_on", "seconds")

GREEDY = {"TEMPERATURE": "0", "N_SAMPLES": "1"}
# Settings that say what is evaluated, how it is measured or where runs are stored: they explain no difference between runs.
NO_DIFFERENCE = {"run_name", "out", "resume", "temperature", "n_samples", "eval_tasks", "remat", "update_samples"}
# In the sections about training, the settings that an evaluation may change: SEED also seeds the sampling, and TASKS_PER_STEP
# and LOGIT_CHUNK bound the memory.
MEASURED_BY = {"trainer": {"seed", "tasks_per_step"}, "objective": {"combine", "combine_kwargs", "logit_chunk"}}
# The variables that say how a run was trained and do not affect how it is measured.
OF_TRAINING = tuple(name.upper() for name, leaf in NAMES.items() if leaf.name in ("split", "n_tasks", "task_names") or (
    leaf.section in MEASURED_BY and leaf.name not in MEASURED_BY[leaf.section]))


class Key(NamedTuple):
    """Identifies an evaluation; `measured` is the digest of all that its figures depend on besides run and step."""
    run: str
    step: int
    measured: str


class Run(NamedTuple):
    """A run's folder, read."""
    folder: Path
    name: str
    settings: Settings    # to measure with
    trained: Settings     # trained with: its config.yaml alone
    checkpoints: dict[int, Path]
    eval_tasks: int       # the number of held-out tasks; 0: all
    started: str


class Job(NamedTuple):
    """One evaluation, of a checkpoint or, where `adapter` is None, of the model without adapter."""
    run: str
    step: int
    adapter: Path | None
    settings: Settings    # to measure with
    trained: Settings     # trained with
    prompts: list[Prompt]
    source: Source
    dtype: object
    how: dict             # all that the figures depend on besides run and step

    @property
    def key(self) -> Key:
        """What identifies it."""
        return Key(self.run, self.step, hashlib.sha256(json.dumps(self.how, sort_keys=True).encode()).hexdigest()[:12])


# ---- what to evaluate ------------------------------------------------------------------------------------------------

def greedy_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with greedy answers, one per task, unless it sets TEMPERATURE and N_SAMPLES."""
    return GREEDY | {name: value for name, value in environ.items() if value.strip() or name not in GREEDY}


def find_runs(top: Path) -> list[Path]:
    """`top` itself if it is a run's folder, else its subfolders that are runs or are named run_*; InputError without any."""
    if (top / "config.yaml").is_file():
        return [top]
    runs = sorted(path for path in top.glob("*") if path.is_dir() and (
        path.name.startswith("run_") or (path / "config.yaml").is_file() and (path / "checkpoints").is_dir()))
    if not runs:
        raise InputError(f"{top}: {'no run in this folder' if top.is_dir() else 'no such folder'}; give the folder of a run "
                         "(with config.yaml and checkpoints/), or one that contains such folders")
    return runs


def read_run(folder: Path, environ: Mapping[str, str]) -> Run:
    """The run in the folder; InputError where its config.yaml cannot be used."""
    own = {"CONFIG": str(folder / "config.yaml")}
    trained, loaded = config.load(own).settings, config.load(greedy_environ(environ) | own)
    s, from_environ = loaded.settings, loaded.origins["eval_tasks"].startswith("env ")
    return Run(folder, name=folder.resolve().name, settings=s, trained=trained,
               checkpoints=lasting_checkpoints(folder, s.run.keep_every),
               eval_tasks=s.evaluation.eval_tasks if from_environ else 0,
               started=str(config.recorded(folder).get("started", "")))


def plan(top: Path, environ: Mapping[str, str], *, with_base: bool, open_model: Callable[[Settings], tuple]
         ) -> tuple[list[Job], list[str]]:
    """The evaluations of all runs, base models first, and the runs skipped; InputError lists everything wrong.

    `open_model` gives the checked files of a model without its weights: (source, dtype, facts)."""
    jobs, bases, skipped, problems, models = [], {}, [], [], {}
    for folder in find_runs(top):
        try:
            run = read_run(folder, environ) if (folder / "config.yaml").is_file() else None
            if run is None or not run.checkpoints:
                skipped.append(f"{folder.name}: no {'complete checkpoint' if run else 'config.yaml'}")
                continue
            m = run.settings.model
            name = m.model, m.dtype, m.attention
            if name not in models:
                models[name] = open_model(run.settings)
            source, dtype, _ = models[name]
            run_jobs, wrong = jobs_of(run, source, dtype)
            jobs, problems = jobs + run_jobs, problems + wrong
            if with_base:
                base = base_job(run_jobs[0])
                bases.setdefault(base.key, base)
        except (InputError, LogError) as error:
            problems.append(f"{folder.name}: {error}")
    if problems:
        raise InputError("\n".join([f"{len(problems)} problem(s), nothing was evaluated:", *problems]))
    if not jobs:
        raise InputError("\n".join([f"{top}: no run has a checkpoint to evaluate:", *skipped]))
    return [*bases.values(), *jobs], skipped


def jobs_of(run: Run, source: Source, dtype) -> tuple[list[Job], list[str]]:
    """The evaluations of a run's checkpoints, and the checkpoints that cannot be used; InputError for data and rewards."""
    s, grading = run.settings, for_unseen_prompts(run.settings)
    tasks, combiner = first_held_out(s, run.eval_tasks), checked_combiner(grading)
    check_tasks(tasks, combiner, s)
    check_rewards(tasks, combiner, grading)
    prompts = encode_prompts(tasks, source.chat, s.data.style_hint, s.generation.max_prompt_tokens)
    check_room([prompt.ids for prompt in prompts], s.generation.max_new_tokens, source.cfg)
    how = measured_how(run, prompts)
    jobs, problems = [], []
    for step, folder in run.checkpoints.items():
        jobs.append(Job(run.name, step, adapter=folder, settings=s, trained=run.trained, prompts=prompts, source=source,
                        dtype=dtype, how=how))
        try:
            lora.load(folder, source.cfg, model=s.model.model)
        except InputError as error:
            problems.append(f"{run.name}: {error}")
    return jobs, problems


def measured_how(run: Run, prompts: Sequence[Prompt]) -> dict:
    """All that the run's figures depend on besides the checkpoint."""
    s, g = run.settings, run.settings.generation
    messages = json.dumps([[prompt.task.name, prompt.messages] for prompt in prompts])
    sampling = {"top_k": g.top_k, "top_p": g.top_p, "seed": s.trainer.seed} if g.temperature else {}
    return {"started": run.started, "model": hub_name(s.model.model), "tasks": f"{len(prompts)} of {s.data.tasks}",
            "prompts": hashlib.sha256(messages.encode()).hexdigest()[:12], "case_seed": s.data.case_seed,
            "temperature": g.temperature, "n_samples": g.n_samples, "max_new_tokens": g.max_new_tokens, **sampling,
            "rewards": [s.objective.combine, s.objective.combine_kwargs, s.reward.reward_kwargs, s.reward.style_weight,
                        s.reward.style_depth]}


def base_job(job: Job) -> Job:
    """The same without adapter: shared by the runs of one model on the same tasks, whatever their rewards."""
    how = {name: value for name, value in job.how.items() if name not in ("started", "rewards")}
    return job._replace(run=BASE, step=0, adapter=None, how=how)


def to_do(jobs: Sequence[Job], rows: Sequence[dict], shard: tuple[int, int] = (0, 1)) -> list[Job]:
    """The jobs of shard i of k that have no row; InputError where a job's checkpoint has a row measured another way."""
    done = set(map(key_of, rows))
    row_of = {(row["run"], row["step"]): row for row in rows if row["run"] != BASE}
    problems = []
    for job in jobs:
        row = row_of.get((job.run, job.step))
        if row and row["measured"] != job.key.measured:
            differs = [f"{name} {row['how'].get(name)} / {value}" for name, value in job.how.items()
                       if row["how"].get(name) != value]
            problems.append(f"{job.run}, step {job.step} was measured with other settings: {'; '.join(differs)}")
    if problems:
        raise InputError("\n".join([*problems[:8], *[f"and {len(problems) - 8} more"] * (len(problems) > 8),
                                    "Give another --out for another measurement"]))
    i, k = shard
    return [job for number, job in enumerate(jobs) if number % k == i and job.key not in done]


# ---- one evaluation --------------------------------------------------------------------------------------------------

def evaluate(job: Job, model, tell: Callable[[str], None]) -> tuple[dict, list[GradedGroup]]:
    """The job's row of results.jsonl and the graded answers behind it."""
    s = job.settings
    adapter = lora.load(job.adapter, model.cfg) if job.adapter else None
    with open_judge(s) as judge:
        graders = ProbeGrader.on(judge, [prompt.task for prompt in job.prompts], s)
        probed = answers(job.prompts, model, adapter, graders, s, tell)
    row = {"run": job.run, "step": job.step, "measured": job.key.measured, "model": job.source.name,
           "adapter": str(job.adapter or ""), **figures(probed.groups, thinking_tag(s)),
           "trained_on": job.trained.data.split != "train", "seconds": probed.seconds, "how": job.how,
           "settings": {name: value for name, value in values_of(job.trained).items() if name not in NO_DIFFERENCE}}
    if not job.adapter:    # the runs that share a base model may have different rewards
        row |= dict.fromkeys(("reward", "reward_low", "reward_high"))
    return row, probed.groups


def answers(prompts: Sequence[Prompt], model, adapter, graders: ProbeGrader, settings: Settings,
            tell: Callable[[str], None]) -> Probed:
    """N_SAMPLES graded answers to each prompt, with no more rows at a time than in a training step."""
    N, rows = settings.generation.n_samples, settings.trainer.tasks_per_step * settings.generation.group
    return probe(model, adapter, prompts, graders, samples=N, sampling=sampling_of(settings), seed=settings.trainer.seed,
                 tasks_at_once=max(1, rows // N), tell=tell)


def thinking_tag(settings: Settings) -> str | None:
    """The tag of the thinking block; None for programs, which have none."""
    return None if judge_of(settings) else settings.data.thinking_tag


def answer_rows(groups: Sequence[GradedGroup]) -> list[dict]:
    """A row per answer."""
    return [{"task": group.task, "sample": number, **sample._asdict()}
            for group in groups for number, sample in enumerate(group.samples)]


def figures(groups: Sequence[GradedGroup], tag: str | None) -> dict[str, float | None]:
    """The figures of one checkpoint's answers; those of thinking are None without a tag."""
    counting = [graded(group.samples) for group in groups]
    samples = [sample for group in groups for sample in group.samples]
    blocks = [thinking(sample.text, tag) for sample in samples] if tag else []
    words = [len(block.split()) for block in blocks if block is not None]
    return jsonable({
        "tasks": len(groups), "samples": len(samples),
        **_columns("accuracy", accuracy_of(counting)), **_columns("reward", mean_reward(counting)),
        "thinking_mean": float(np.mean(words)) if words else None,
        "thinking_median": float(np.median(words)) if words else None,
        "thinking_p90": float(np.quantile(words, 0.9)) if words else None,
        "malformed": 1 - len(words) / len(blocks) if blocks else None,
        "cut": sum(sample.finish == "length" for sample in samples) / len(samples),
        "tokens_mean": sum(sample.tokens for sample in samples) / len(samples),
        "ungraded": len(samples) - sum(map(len, counting))})


def accuracy_of(tasks: Sequence[Sequence]) -> Interval:
    """The share of correct samples, given the graded samples of each task."""
    passed, counts = [sum(sample.correct for sample in task) for task in tasks], [len(task) for task in tasks]
    one_each = max(counts, default=0) <= 1
    return wilson(sum(passed), sum(counts)) if one_each else pass_rate(passed, counts)


def mean_reward(tasks: Sequence[Sequence]) -> Interval:
    """The mean reward, given the graded samples of each task; the interval resamples tasks."""
    if not any(tasks):
        return UNKNOWN
    return bootstrap([math.fsum(sample.reward for sample in task) for task in tasks], [len(task) for task in tasks])


def _columns(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


# ---- results.jsonl ---------------------------------------------------------------------------------------------------

def key_of(row: dict) -> Key:
    """The key of a row."""
    return Key(row["run"], row["step"], row["measured"])


def add_row(out: Path, row: dict) -> None:
    """Append the row unless results.jsonl has its key already."""
    path = out / RESULTS
    with in_turn(out):
        drop_torn_row(path)
        if key_of(row) not in set(map(key_of, read_results(out))):
            append_rows(path, [row])


def read_results(out: Path) -> list[dict]:
    """The rows of results.jsonl; InputError where one is not an evaluation."""
    rows = read_rows(out / RESULTS)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not {*Key._fields, *COLUMNS} <= set(row):
            raise InputError(f"{out / RESULTS}: row {number} is not an evaluation of this program; choose another --out")
    return rows


# ---- the summary -----------------------------------------------------------------------------------------------------

def write_summary(out: Path, about: dict) -> list[dict]:
    """Write summary.csv and summary.json; returns all rows, base models first, by run and step.

    The caller holds in_turn(out)."""
    rows = sorted(read_results(out), key=lambda row: (row["run"] != BASE, row["run"], row["step"], row["measured"]))
    names = differing_settings(rows)
    lines = [{name: row[name] for name in COLUMNS} | {"settings": settings_text(row, names)} for row in rows]
    write_aside(out / "summary.csv", csv_text(lines).encode())
    write_aside(out / "summary.json", json.dumps({"format": FORMAT, **about, "rows": lines}, indent=1).encode() + b"\n")
    return rows


def differing_settings(rows: Sequence[dict]) -> list[str]:
    """The settings in which the runs differ."""
    runs = [FIXED | row["settings"] for row in rows if row["run"] != BASE]    # older rows still have what is now fixed
    return [name for name in (runs[0] if runs else {}) if any(run.get(name) != runs[0][name] for run in runs)]


def settings_text(row: dict, names: Sequence[str]) -> str:
    """Those settings of a row as one would type them."""
    return "" if row["run"] == BASE else " ".join(f"{name.upper()}={row['settings'].get(name)}" for name in names)


def csv_text(lines: Sequence[dict]) -> str:
    """The summary as CSV, blank for None."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*COLUMNS, "settings"], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if value is None else value for name, value in line.items()} for line in lines)
    return text.getvalue()


def table(rows: Sequence[dict]) -> str:
    """The rows for a terminal."""
    width = max(len(row["run"]) for row in rows)
    lines = [f"{'run':<{width}}   step  accuracy  95 % interval     reward  words of thinking: mean  median     p90  malformed"
             "    cut"]
    for row in rows:
        accuracy, low, high, reward, malformed, cut = (number_text(row[name]) for name in (
            "accuracy", "accuracy_low", "accuracy_high", "reward", "malformed", "cut"))
        mean, median, p90 = (number_text(row[name], 1) for name in ("thinking_mean", "thinking_median", "thinking_p90"))
        lines.append(f"{row['run']:<{width}} {row['step']:>6} {accuracy:>9}  [{low}, {high}]  {reward:>8}  {mean:>23} "
                     f"{median:>7} {p90:>7} {malformed:>10} {cut:>6}")
    return "\n".join(lines)
