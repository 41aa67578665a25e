"""Evaluate trained runs on held-out tasks: the lasting checkpoints of one run, or of all runs of a sweep.

    python eval_runs.py runs/<name>                         # every permanent checkpoint (KEEP_EVERY) and the latest
    python eval_runs.py sweeps/<name> --base                # every run_* folder, and the model without adapter
    EVAL_TASKS=100 python eval_runs.py sweeps/<name>        # the first 100 held-out tasks
    N_SAMPLES=8 TEMPERATURE=1 python eval_runs.py runs/<name> --out eval8
    python eval_runs.py sweeps/<name> --shards 2 --shard 0 & python eval_runs.py sweeps/<name> --shards 2 --shard 1
    CONFIG=configs/gsm8k_length.yaml python eval_runs.py --zero-shot zero_shot.jsonl
    TASKS=math TASKS_FILE=<MATH> PROVIDER_KWARGS='{levels: [1]}' SPLIT=heldout python eval_runs.py --zero-shot math_test.jsonl
    python eval_runs.py --help                              # every setting

Each run is measured on the held-out tasks of its own provider, with the settings of its config.yaml. The environment overrides
how answers are sampled and graded, never how a run was trained. Answers are greedy, one per task, unless TEMPERATURE and
N_SAMPLES are set. Writes to --out (default: the folder eval inside the given one; with CACHE_DIR artifacts/eval/<name>):
results.jsonl with a row per checkpoint, answers/, summary.csv, summary.json and curves/*.svg. Checkpoints with a row are skipped.
--zero-shot writes a frozen model's answers to the training tasks, or with SPLIT=heldout to the test split, in the form that
token_utilisation_reward reads. Not covered: training, comparing two models by task (run_probe.py)."""

import argparse
import datetime
import os
import sys
from functools import partial
from pathlib import Path

from rl import command
from rl.errors import InputError
from rl.evaluation import zero_shot
from rl.evaluation.runs import (
    BASE,
    OF_TRAINING,
    add_row,
    answer_rows,
    evaluate,
    greedy_environ,
    plan,
    read_results,
    table,
    to_do,
    write_summary,
)
from rl.models import pretrained
from rl.pages.run_curves import write_curves
from rl.run.files import in_turn, json_lines, write_aside
from rl.settings import config
from rl.settings.paths import cache_folder, resolved_path
from rl.tasks import encode_prompts, load_tasks
from rl.training import lora
from rl.training.device import explain_memory
from rl.training.sampler import check_room

# Variables that are refused, with the reason.
NOT_HERE = {"RESUME": "the same command continues an evaluation", "OUT": "give --out", "OUTPUT_DIR": "give --out"}
OF_A_RUN = {"CONFIG": "each run has its own config.yaml", "LORA": "the checkpoints are the run's own",
            **dict.fromkeys(OF_TRAINING, "how a run was trained is in its own config.yaml")}


def main() -> int:
    """The missing evaluations and a summary of all, or the zero-shot file; returns the exit code."""
    given = parse_arguments(sys.argv[1:])
    refuse(NOT_HERE if given.zero_shot else NOT_HERE | OF_A_RUN)
    cache = config.load({name: value for name, value in os.environ.items() if name != "CONFIG"}).settings.storage.cache_dir
    if given.zero_shot:
        return write_zero_shot(resolved_path(cache, "eval", given.zero_shot))

    top = next((folder for kind in ("sweeps", "runs") if (folder := resolved_path(cache, kind, given.folder)).is_dir()),
               Path(given.folder))
    out = (resolved_path(cache, "eval", given.out) if given.out
           else cache_folder(cache, "eval") / top.name if cache else top / "eval")
    jobs, skipped = plan(top, os.environ, with_base=given.base, open_model=command.find_model)
    todo = to_do(jobs, read_results(out), (given.shard, given.shards))
    command.make_folder(out / "answers")
    for line in skipped:
        tell(f"skipped {line}")
    for name, split in {job.run: job.trained.data.split for job in jobs if job.adapter}.items():
        if split != "train":
            tell(f"warning: {name} was trained with SPLIT={split}, so also on these held-out tasks")

    model = loaded = None
    for number, job in enumerate(todo, 1):
        tell(f"[{number}/{len(todo)}] {job.run}, step {job.step}: {len(job.prompts)} tasks")
        wanted = job.source.path, job.source.cfg, job.dtype
        if loaded != wanted:
            model = None    # memory might not hold two models
            model, loaded = pretrained.load(job.source, job.dtype), wanted
        row, groups = evaluate(job, model, tell)
        name = f"{job.run}-{job.key.measured}" if job.adapter is None else f"{job.run}-step_{job.step:05d}"
        write_aside(out / "answers" / f"{name}.jsonl", json_lines(answer_rows(groups)))
        add_row(out, row | {"time": now()})

    about = {"folder": str(top), "time": now(), "git": command.git_revision(), "skipped": skipped}
    with in_turn(out):    # whichever shard comes last writes all rows
        rows = write_summary(out, about)
        write_curves(out / "curves", rows, base=BASE)
    print(f"{table(rows) if rows else 'nothing was evaluated yet'}\n\nwritten: {out}")
    return 0


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """The command line; InputError lists everything wrong with it."""
    parser = argparse.ArgumentParser("eval_runs.py", add_help=False, exit_on_error=False)
    parser.add_argument("folder", nargs="*")
    parser.add_argument("--base", action="store_true")
    for flag, kind, default in (("--out", str, ""), ("--zero-shot", str, ""), ("--shards", int, 1), ("--shard", int, 0)):
        parser.add_argument(flag, type=kind, default=default)
    try:
        given = parser.parse_args(arguments)
    except argparse.ArgumentError as error:
        raise InputError(str(error)) from error
    problems = []
    if len(given.folder) != (not given.zero_shot):
        problems.append("--zero-shot takes no folder" if given.zero_shot else "give one folder, of a run or of a sweep")
    if given.zero_shot and (given.base or given.out or given.shards > 1):
        problems.append("--zero-shot cannot be combined with --base, --out or --shards")
    if not (given.shards >= 1 and 0 <= given.shard < given.shards):
        problems.append(f"--shards {given.shards} --shard {given.shard}: --shard must be from 0 to --shards minus 1")
    if problems:
        raise InputError(f"{'; '.join(problems)}; see --help")
    given.folder = given.folder[0] if given.folder else ""
    return given


def refuse(reasons: dict[str, str]) -> None:
    """InputError, with its reason, for each of these variables that is set."""
    if wrong := [f"{name}={os.environ[name]}: {why}" for name, why in reasons.items() if os.environ.get(name)]:
        raise InputError(f"{'; '.join(wrong)}; unset what does not apply here")


def write_zero_shot(path: Path) -> int:
    """Write the file for token_utilisation_reward; returns the exit code."""
    loaded = config.load(greedy_environ(os.environ))
    s = zero_shot.correctness_alone(loaded.settings)
    source, dtype, facts = command.find_model(s)
    adapter = lora.to_measure(s.model, source.cfg)
    tasks = load_tasks(s.data)
    zero_shot.check(path, tasks, s)
    prompts = encode_prompts(tasks, source.chat, s.data.style_hint, s.generation.max_prompt_tokens)
    check_room([prompt.ids for prompt in prompts], s.generation.max_new_tokens, source.cfg)
    command.make_folder(path.parent)
    command.announce(loaded, facts, file=sys.stderr)
    rows = zero_shot.write(path, pretrained.load(source, dtype), adapter, prompts, s, tell)
    print(f"{len(rows)} answers to {len(prompts)} tasks, {sum(row['correct'] for row in rows)} correct; written: {path}")
    return 0


def now() -> str:
    """The time, for a record."""
    return datetime.datetime.now().isoformat(timespec="seconds")


# Progress goes to stderr, so that stdout is the summary alone.
tell = partial(print, file=sys.stderr, flush=True)

if __name__ == "__main__":
    command.run(main, __doc__, flags=("--base", "--out=", "--shards=", "--shard=", "--zero-shot="), explain=explain_memory)
