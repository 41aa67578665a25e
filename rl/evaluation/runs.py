"""Evaluating finished training: the lasting checkpoints of runs on the held-out tasks of each run's own provider.

`plan` finds the runs and checks everything that can be wrong before a model is read; `evaluate` does one checkpoint. Settings are
those of the run's config.yaml; the environment wins in how answers are sampled and graded, never in how the run was trained.
Answers are greedy, one a task, unless TEMPERATURE and N_SAMPLES are set.

The results are results.jsonl with a row a checkpoint, summary.csv and summary.json. Several processes may add rows to one folder:
rows are appended one process at a time, and a tail torn off by a kill is cut first. The summaries are rebuilt from all rows every
time. Accuracy has Wilson's interval where there is one answer a task, else one that resamples tasks, as the mean reward has.
Thinking is the text in the one thinking block, counted in words over the samples that have one; `malformed` is the share without.

Not here: training, evaluations during training (probe.py), curves (rl/pages/run_curves.py)."""

import csv
import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rl import command
from rl.errors import InputError
from rl.evaluation.probe import Probed, ProbeGrader, for_unseen_prompts, probe
from rl.evaluation.stats import Interval, bootstrap, wilson
from rl.models.hub import hub_name
from rl.models.pretrained import Source
from rl.pages.run_curves import PICTURES, picture
from rl.rewards.base import GradedGroup
from rl.rewards.setup import check_rewards, check_tasks, judge_of, objective_of_rewards, open_judge
from rl.rewards.words.rewards import thinking
from rl.run.files import LogError, append_rows, in_turn, jsonable, lasting_checkpoints, read_rows, write_aside
from rl.run.log import graded
from rl.settings import config
from rl.settings.declared import NAMES, Settings, values_of
from rl.tasks import Prompt, encode_prompts, first_held_out
from rl.training import lora
from rl.training.sampler import check_room, sampling_of

# ---- figures and files ------------------------------------------------------------------------------------------------


FORMAT = "evaluation 1"
RESULTS = "results.jsonl"
BASE = "base"    # the run name of a model without adapter
COLUMNS = ("run", "step", "model", "tasks", "samples", "accuracy", "accuracy_low", "accuracy_high", "reward", "reward_low",
           "reward_high", "thinking_mean", "thinking_median", "thinking_p90", "malformed", "cut", "tokens_mean", "ungraded",
           "trained_on", "seconds")


class Key(NamedTuple):
    """What tells one evaluation from another; `measured` is the digest of how it was measured."""
    run: str
    step: int
    measured: str


def key_of(row: dict) -> Key:
    """The key of a row of results.jsonl."""
    return Key(row["run"], row["step"], row["measured"])


def figures(groups: Sequence[GradedGroup], tag: str | None) -> dict[str, float | None]:
    """The numbers of one checkpoint's answers; without a tag (programs have no thinking) those of thinking are None."""
    kept = [graded(group.samples) for group in groups]
    samples = [sample for group in groups for sample in group.samples]
    accuracy, reward = accuracy_of(kept), means_over_tasks([[sample.reward for sample in part] for part in kept])
    lengths = [None if (block := thinking(sample.text, tag)) is None else len(block.split()) for sample in samples] if tag else []
    whole = [length for length in lengths if length is not None]
    return jsonable({
        "tasks": len(groups), "samples": len(samples), **_named("accuracy", accuracy), **_named("reward", reward),
        "thinking_mean": float(np.mean(whole)) if whole else None,
        "thinking_median": float(np.median(whole)) if whole else None,
        "thinking_p90": float(np.quantile(whole, 0.9)) if whole else None,
        "malformed": 1 - len(whole) / len(lengths) if lengths else None,
        "cut": sum(sample.finish == "length" for sample in samples) / len(samples),
        "tokens_mean": sum(sample.tokens for sample in samples) / len(samples),
        "ungraded": len(samples) - sum(map(len, kept))})


def accuracy_of(kept: Sequence[Sequence]) -> Interval:
    """Share of graded samples that are correct, tasks as given."""
    passed, counts = [sum(sample.correct for sample in part) for part in kept], [len(part) for part in kept]
    if max(counts, default=0) <= 1:
        return wilson(sum(passed), sum(counts))
    found = bootstrap(passed, counts)
    if found.value in (0, 1):    # resampling equal tasks shows no doubt at all; each task is one trial then
        tried = sum(count > 0 for count in counts)
        return wilson(tried * int(found.value), tried)
    return found


def means_over_tasks(values: Sequence[Sequence[float]]) -> Interval:
    """The mean of all values with the interval that resamples tasks."""
    if not any(values):
        return Interval(math.nan, math.nan, math.nan)
    return bootstrap([math.fsum(part) for part in values], [len(part) for part in values])


def _named(name, interval):
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


# ---- files -----------------------------------------------------------------------------------------------------------

def add_row(out: Path, row: dict) -> None:
    """Append the row to results.jsonl unless its key is there."""
    path = out / RESULTS
    with in_turn(out):
        cut_torn(path)
        if key_of(row) not in set(map(key_of, read_results(out))):
            append_rows(path, [row])


def cut_torn(path: Path) -> None:
    """Cut what stands behind the last whole row, which a kill left."""
    if path.exists() and not (data := path.read_bytes()).endswith(b"\n"):
        write_aside(path, data[: data.rfind(b"\n") + 1])


def read_results(out: Path) -> list[dict]:
    """The rows of results.jsonl, none where there is none; InputError where a row is no evaluation."""
    rows = read_rows(out / RESULTS)
    bad = [number for number, row in enumerate(rows, 1) if not isinstance(row, dict) or not {*Key._fields, *COLUMNS} <= set(row)]
    if bad:
        raise InputError(f"{out / RESULTS}: row {bad[0]} is no evaluation of this program; choose another --out")
    return rows


def jsonl(rows: Sequence[dict]) -> bytes:
    """The rows as JSON lines."""
    return b"".join(json.dumps(jsonable(row), allow_nan=False).encode() + b"\n" for row in rows)


def write_summary(out: Path, about: dict) -> list[dict]:
    """summary.csv, summary.json and curves/ from all rows; returns them, in order of run and step."""
    with in_turn(out):
        rows = sorted(read_results(out), key=lambda row: (row["run"] != BASE, row["run"], row["step"], row["measured"]))
        differing = differing_settings(rows)
        shown = [{name: row[name] for name in COLUMNS} | {"settings": said(row, differing)} for row in rows]
        write_aside(out / "summary.csv", csv_text(shown).encode())
        write_aside(out / "summary.json", json.dumps({"format": FORMAT, **about, "rows": shown}, indent=1).encode() + b"\n")
        (out / "curves").mkdir(exist_ok=True)
        for kind in PICTURES:
            lines = lines_of(rows, kind.metric)
            if (drawn := picture(kind, lines, frozenset(name for name in lines if name.split()[0] == BASE))) is not None:
                write_aside(out / "curves" / f"{kind.name}.svg", f"{drawn}\n".encode())
    return shown


def csv_text(rows: Sequence[dict]) -> str:
    """The rows as CSV, what is missing blank."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*COLUMNS, "settings"], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if value is None else value for name, value in row.items()} for row in rows)
    return text.getvalue()


def differing_settings(rows: Sequence[dict]) -> list[str]:
    """The settings in which the runs differ."""
    runs = [row["settings"] for row in rows if row["run"] != BASE]
    return [name for name in (runs[0] if runs else {}) if any(run.get(name) != runs[0][name] for run in runs)]


def said(row: dict, names: Sequence[str]) -> str:
    """Those settings of a row as one would type them."""
    return "" if row["run"] == BASE else " ".join(f"{name.upper()}={row['settings'].get(name)}" for name in names)


def lines_of(rows: Sequence[dict], metric: str) -> dict[str, list[tuple[int, float, float | None, float | None]]]:
    """Run -> (step, value, low, high) of the metric in order of steps, those that have a value; base models by digest."""
    lines, bases = {}, len({row["measured"] for row in rows if row["run"] == BASE})
    for row in rows:
        name = f"{BASE} {row['measured']}" if row["run"] == BASE and bases > 1 else row["run"]
        points = lines.setdefault(name, [])
        if row[metric] is not None:
            points.append((row["step"], row[metric], row.get(f"{metric}_low"), row.get(f"{metric}_high")))
    return lines


def table(rows: Sequence[dict]) -> str:
    """The rows for a terminal."""
    width = max(len(row["run"]) for row in rows)
    lines = [f"{'run':<{width}}   step  accuracy  95 % interval     reward  words of thinking: mean  median     p90  malformed"
             "    cut"]
    for row in rows:
        numbers = [_shown(row[name], digits) for name, digits in (
            ("accuracy", 3), ("accuracy_low", 3), ("accuracy_high", 3), ("reward", 3), ("thinking_mean", 1),
            ("thinking_median", 1), ("thinking_p90", 1), ("malformed", 3), ("cut", 3))]
        accuracy, low, high, reward, mean, median, p90, malformed, cut = numbers
        lines.append(f"{row['run']:<{width}} {row['step']:>6} {accuracy:>9}  [{low}, {high}]  {reward:>8}  {mean:>23} "
                     f"{median:>7} {p90:>7} {malformed:>10} {cut:>6}")
    return "\n".join(lines)


def _shown(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


# ---- what to evaluate, and evaluating it ------------------------------------------------------------------------------


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
    prompts = encode_prompts(tasks, source.chat, s.data.style_hint, s.generation.max_prompt_tokens)
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

def evaluate(job: Job, model, tell) -> tuple[dict, list[GradedGroup]]:
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


def answer_rows(groups: Sequence[GradedGroup]) -> list[dict]:
    """A row an answer."""
    return [{"task": group.task, "sample": number, **sample._asdict()}
            for group in groups for number, sample in enumerate(group.samples)]


def tag_of(settings: Settings) -> str | None:
    """The tag of the thinking block; None where answers are programs or only answers, which have none."""
    return None if judge_of(settings) else settings.data.thinking_tag
