"""Measure a model, or an adapter against its model, on a bank of held-out tasks: generated ones, lc_easy's, HumanEval, MBPP.

    scripts/bank.sh MODEL                                       # one table: greedy answers and N_SAMPLES=8 samples a task
    scripts/bank.sh MODEL ADAPTER                               # and the paired gain; the base is measured once and reused
    HUMANEVAL_FILE=HumanEval.jsonl.gz MBPP_FILE=sanitized-mbpp.json scripts/bank.sh MODEL
    BANK_SETS=lc_easy BANK_TASKS=4 N_SAMPLES=2 scripts/bank.sh tiny      # a small one, to try it
    scripts/bank.sh --help                                      # every setting

MODEL and ADAPTER are what the settings MODEL and LORA may be. Writes every sample with its grade, and the figures, to OUT
(default: runs/bank). Called again it measures only what is missing: after an interruption, of another adapter, of one more set.
Exit code 0: all parts are done; 2: bad input, found before the weights are read; 130: interrupted."""

import datetime
import hashlib
import json
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import jax
import numpy as np

from rl import command
from rl.errors import InputError, together
from rl.evaluation import bank
from rl.evaluation.probe import ProbeGrader, for_unseen_prompts, probe
from rl.evaluation.probe_report import document
from rl.models import pretrained
from rl.rewards.setup import check_rewards, check_tasks, checked_combiner, open_judge
from rl.run.files import claimed, write_aside
from rl.settings import config
from rl.settings.declared import Settings, values_of
from rl.tasks import Prompt, encode_prompts, load_tasks
from rl.training import lora
from rl.training.device import explain_memory
from rl.training.sampler import check_room, sampling_of

DEFAULTS = {"max_new_tokens": 512}    # HumanEval's and MBPP's longest answers need more than training's 192
GREEDY_AT_ONCE = 4    # times the tasks that are sampled at once: single answers fill no batch, but prompts take memory too
UNUSED = ("tasks", "provider_kwargs", "tasks_file", "split", "n_tasks", "task_names", "resume")


class TaskSet(NamedTuple):
    """A set of tasks, checked and ready to be asked."""

    settings: Settings
    prompts: list[Prompt]
    digest: str    # of the tasks and their hidden cases


def main() -> int:
    """Measure what is missing, then print and write the table; returns the exit code."""
    loaded = config.load(os.environ | named(sys.argv[1:]), defaults=DEFAULTS, unused=UNUSED)
    settings = loaded.settings
    if loaded.origins["model"] == "default":
        raise InputError("no model: give MODEL, or MODEL and ADAPTER; see --help")
    check_sampling(settings)

    # All checks come before the weights are read.
    source, dtype, facts = command.find_model(settings)
    adapter = lora.to_measure(settings.model, source.cfg)
    chosen, left_out = bank.sets_of(settings)
    opened = together(*(partial(open_set, name, own, source) for name, own in chosen.items()))
    sets = dict(zip(chosen, opened, strict=True))
    out = Path(settings.run.out or command.default_out(settings, "").parent / "bank")
    command.make_folder(out / bank.MEASURED)

    with claimed(out):
        sides = {"base": None} | ({"adapter": adapter} if adapter else {})
        weights = bank.file_digest(source.path)
        parts = {(side, name, mode): bank.part_of(name, mode, one.settings, model=weights, adapter=adapter_digest(sides[side]),
                                                  tasks=one.digest, n_tasks=len(one.prompts), dtype=str(dtype))
                 for side in sides for name, one in sets.items() for mode in bank.MODES}
        for line in left_out:
            tell(line)
        if missing := {key: part for key, part in parts.items() if not reused(key[0], part, out)}:
            command.announce(loaded, facts, file=sys.stderr)
            try:
                measure(missing, sides, sets, pretrained.load(source, dtype), settings, out)
            except KeyboardInterrupt:
                tell("interrupted: what was measured is kept, and the same command goes on with the rest")
                raise
        docs = {key: bank.found(part, out) for key, part in parts.items()}
        measured = [{"side": side, "set": name, "mode": mode, "seconds": docs[side, name, mode]["seconds"],
                     "file": str(part.path(out).relative_to(out))} for (side, name, mode), part in parts.items()]
        about = {"model": source.name, "lora": lora.label(settings.model), "samples": settings.generation.n_samples,
                 "time": now(), "git": command.git_revision(), "settings": values_of(settings), "left_out": left_out,
                 "measured": measured}
        report = bank.summary(about, docs)
        path = out / report_name(settings, [part.key for part in parts.values()])
        write_aside(path, json.dumps(report, indent=1, allow_nan=False).encode() + b"\n")
    print(f"{bank.text(report)}\n\nwritten: {path}")
    return 0


def named(arguments: list[str]) -> dict[str, str]:
    """The model and the adapter of the command line as settings; InputError where it has more words."""
    if len(arguments) > 2:
        raise InputError(f"{len(arguments)} arguments; give MODEL, or MODEL and ADAPTER, and other settings as variables")
    return dict(zip(("MODEL", "LORA"), arguments, strict=False))


def check_sampling(settings: Settings) -> None:
    """InputError where the samples of a task would be equal, or there is but one."""
    g, problems = settings.generation, []
    if g.temperature == 0 or g.top_k == 1:
        problems.append(f"TEMPERATURE={g.temperature:g}, TOP_K={g.top_k}: all samples would be the greedy answer, which is "
                        "measured anyway; leave both out")
    if g.n_samples == 1:
        problems.append("N_SAMPLES=1: the bank samples each task several times, beside its greedy answer; give 2 or more")
    if problems:
        raise InputError("\n".join(problems))


def open_set(name: str, settings: Settings, source) -> TaskSet:
    """The set's tasks as prompts; InputError where they cannot be loaded, graded, or asked within the model's limits."""
    try:
        tasks = bank.at_most(name, load_tasks(settings.data), settings)
        grading = for_unseen_prompts(settings)
        combiner = checked_combiner(grading)
        check_tasks(tasks, combiner, settings)
        check_rewards(tasks, combiner, grading)
        prompts = encode_prompts(tasks, source.chat, settings.data.style_hint, settings.generation.max_prompt_tokens)
        check_room([prompt.ids for prompt in prompts], settings.generation.max_new_tokens, source.cfg)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    prompts.sort(key=lambda prompt: len(prompt.ids))    # those of a batch are padded to its longest
    return TaskSet(settings, prompts, bank.tasks_digest(tasks, settings))


def reused(side: str, part: bank.Part, out: Path) -> bool:
    """Whether the part was measured before; says so, or why another measurement of it will not do."""
    if doc := bank.found(part, out):
        tell(f"{side}, {part.set}, {part.mode}: measured {doc['time']}, reused")
    elif differs := bank.other_settings(part, out):
        tell(f"{side}, {part.set}, {part.mode}: measured again, for the settings differ from the last time ({differs})")
    return doc is not None


def measure(missing: dict[tuple[str, str, str], bank.Part], sides: dict, sets: dict[str, TaskSet], model, settings: Settings,
            out: Path) -> None:
    """Measure the parts, by (side, set, mode), and write each as soon as it is done."""
    graders = {}
    with open_judge(settings) as judge:
        for number, ((side, *_), part) in enumerate(missing.items(), 1):
            chosen, g = sets[part.set], bank.in_mode(settings, part.mode).generation
            tell(f"part {number} of {len(missing)}: {side}, {part.set}, {part.mode}, {len(chosen.prompts)} tasks x {g.n_samples}")
            if part.set not in graders:
                graders[part.set] = ProbeGrader.on(judge, [prompt.task for prompt in chosen.prompts], chosen.settings)
            own = bank.in_mode(chosen.settings, part.mode)
            at_once = settings.trainer.tasks_per_step * (GREEDY_AT_ONCE if part.mode == "greedy" else 1)
            probed = probe(model, sides[side], chosen.prompts, graders[part.set], samples=g.n_samples, sampling=sampling_of(own),
                           seed=settings.trainer.seed, tasks_at_once=min(at_once, len(chosen.prompts)), tell=tell)
            about = {"model": model.name, "lora": lora.label(settings.model) if side == "adapter" else "", "time": now(),
                     "seconds": probed.seconds, "git": command.git_revision(), "sandbox": judge.description,
                     "dtype": part.how["dtype"], "how": part.how, "settings": values_of(own)}
            doc = document(about, groups=probed.groups, entropy=probed.entropy, rechecked=probed.rechecked, weak=probed.weak)
            write_aside(part.path(out), json.dumps(doc, allow_nan=False).encode() + b"\n")


def adapter_digest(adapter) -> str:
    """A digest of the adapter's values, "" without one."""
    if adapter is None:
        return ""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(adapter):
        digest.update(np.ascontiguousarray(np.asarray(leaf, np.float32)))
    return digest.hexdigest()[:16]


def report_name(settings: Settings, keys: list[str]) -> str:
    """The name of the table's file: of model and adapter, and of what was measured."""
    names = [re.sub(r"[^\w.-]+", "-", Path(path).name) for path in (settings.model.model, settings.model.lora) if path]
    return f"{'+'.join(names)}-{hashlib.sha256(''.join(keys).encode()).hexdigest()[:8]}.json"


def now() -> str:
    """The time, to the second."""
    return datetime.datetime.now().isoformat(timespec="seconds")


def tell(line: str) -> None:
    """Print progress to stderr, so that stdout has the table only."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    command.run(main, __doc__, flags=(), explain=explain_memory)
