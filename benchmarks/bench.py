"""How fast a training step is on this machine, where its time goes, and how close it comes to the machine's limit.

    python benchmarks/bench.py                                  # MODEL and other settings are variables, as for train_grpo.py
    python benchmarks/bench.py --parts sampler --rounds 3       # of load, prompts, sampler, update, step, grading (of programs)
    python benchmarks/bench.py --parts profile                  # time of sampling and of an update, by operation
    python benchmarks/bench.py --grow                           # how cost grows with GROUP, MAX_NEW_TOKENS, TASKS_PER_STEP
    python benchmarks/bench.py --workload work.py               # a file with P prompts, G samples each, N tokens, SYSTEM, USER
    python benchmarks/bench.py --beside 'python other.py model' # runs that command between two rounds and shows its output

Every completion has exactly MAX_NEW_TOKENS tokens and every group has signal (real grading, random rewards), so all rounds do
the same work. Compilation is timed separately. The sampler's time includes the prompts'. The share beside a time is that of its
matrix products at the rate of one large fp32 product, which is measured first; padding does not count. Loading and grading
multiply no matrices and have no share.
"""

import argparse
import os
import resource
import runpy
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import op_times
from benchmarks.flops import prompts_flop, sampler_flop, update_flop
from qwen2_jax import prefill
from rl import command
from rl.errors import InputError
from rl.models import pretrained
from rl.registry import run_outside
from rl.rewards.base import Completion, Grader
from rl.rewards.lisp import ProgramGrader
from rl.rewards.setup import check_tasks, checked_combiner, grader_of, open_judge, runs_code
from rl.settings import config
from rl.settings.declared import Settings
from rl.tasks import Prompt, encode_prompts, load_tasks
from rl.training import lora
from rl.training.device import Compiling
from rl.training.lora import adapter_key
from rl.training.loss import loss_of
from rl.training.optimiser import init_state, optimiser_of
from rl.training.packing import pack
from rl.training.sampler import PREFILL_BUCKET, generate, left_pad, prompt_slots, row_keys, sampling_of, step_key
from rl.training.step import train_step
from rl.training.update import update

PARTS = ("load", "prompts", "sampler", "update", "step", "grading")
EXTRA = ("profile",)  # on request only
SHOWN = 6  # operations of a profile besides products
SQUARE = 2048  # rows of the square matrices whose product measures the machine's limit
GRADED = 400  # programs
GROWTH = {"GROUP": (4, 8, 16, 32), "MAX_NEW_TOKENS": (64, 128, 256), "TASKS_PER_STEP": (2, 4, 8)}


class Bench(NamedTuple):
    """What is measured."""

    model: pretrained.Model
    prompts: list[Prompt]
    settings: Settings
    limit: float  # FLOP a second

    @property
    def tokens(self) -> int:
        """Tokens sampled in a step."""
        return len(self.prompts) * self.settings.generation.group * self.settings.generation.max_new_tokens


class EndlessChat:
    """A model's chat without stop ids, so that every completion has full length."""

    stop_ids = ()

    def __init__(self, chat):
        self.vocab_used, self.decode, self.encode = chat.vocab_used, chat.decode, chat.encode


class RandomRewards(Grader):
    """A grader with real grades and random rewards, so that every group has signal."""

    def __init__(self, grader):
        self._grader, self._rng = grader, np.random.default_rng(0)
        self.whole_groups, self.wants_hidden = grader.whole_groups, grader.wants_hidden

    def grade(self, completions):
        """The grader's grades, with random rewards."""
        return [grade._replace(reward=float(self._rng.random())) for grade in self._grader.grade(completions)]


def main(arguments=None) -> int:
    """Measure the parts asked for; returns the exit code."""
    given = parse_arguments(arguments)
    work = workload(given.workload) if given.workload else {}
    shape = dict(zip(("TASKS_PER_STEP", "GROUP", "MAX_NEW_TOKENS"), map(work.get, "PGN"), strict=True)) if work else {}
    settings = first_settings(given.workload, shape)
    parts = parts_of(given, settings)
    limit = machine_limit()
    print(f"{'machine':>9}: {limit / 1e9:.0f} GFLOP/s in an fp32 product of {SQUARE} rows, cubed", flush=True)
    bench = bench_of(load_model(settings), limit, work, shape)
    settings = bench.settings
    print(f"{'work':>9}: {len(bench.prompts)} prompts of {min(len(p.ids) for p in bench.prompts)} to "
          f"{max(len(p.ids) for p in bench.prompts)} tokens x {settings.generation.group} samples of "
          f"{settings.generation.max_new_tokens}, remat {settings.model.remat}", flush=True)
    if given.grow:
        grow(bench, shape, work)
        return 0
    measures = {"prompts": measure_prompts, "sampler": measure_sampler, "update": measure_update, "step": measure_step,
                "grading": measure_grading, "profile": measure_profile}
    for round_ in range(given.rounds):
        for part in parts:
            if part in measures:
                measures[part](bench)
        if given.beside and round_ + 1 < given.rounds:
            run_beside(given.beside)
    return 0


def run_beside(words: list[str]) -> None:
    """Run the other command; InputError if it fails."""
    try:
        code = subprocess.run(words).returncode
    except OSError as error:
        raise InputError(f"--beside {shlex.join(words)}: {error.strerror}") from error
    if code:
        raise InputError(f"--beside {shlex.join(words)} ended with {code}; see above")


def parse_arguments(arguments):
    """The command line; exits with 2 on errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", metavar="A,B")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--grow", action="store_true")
    parser.add_argument("--workload", type=Path)
    parser.add_argument("--beside", metavar="COMMAND")
    given = parser.parse_args(arguments)
    if idle := [f"--{name}" for name in ("parts", "rounds", "beside") if given.grow and getattr(given, name) is not None]:
        parser.error(f"--grow measures prompts, sampler and update once for each size: leave out {', '.join(idle)}")
    given.rounds = 2 if given.rounds is None else given.rounds
    given.parts = given.parts and given.parts.split(",")
    if unknown := sorted(set(given.parts or ()) - {*PARTS, *EXTRA}):
        parser.error(f"unknown part {unknown[0]!r}; known are {', '.join(PARTS + EXTRA)}")
    if given.rounds < 1:
        parser.error(f"--rounds {given.rounds}: at least 1")
    if given.workload and not given.workload.is_file():
        parser.error(f"--workload {given.workload}: no such file")
    if given.beside is not None:
        try:
            said, given.beside = given.beside, shlex.split(given.beside)
        except ValueError as error:
            parser.error(f"--beside {given.beside}: {error}")
        if not given.beside or not shutil.which(given.beside[0]):
            parser.error(f"--beside {said!r}: no such command")
        if given.rounds < 2:
            parser.error(f"--beside runs between two rounds, and --rounds is {given.rounds}: at least 2")
    return given


def workload(file: Path) -> dict:
    """The names that the file defines; InputError if it raises or is not a workload."""
    found = run_outside(f"--workload {file}", runpy.run_path, str(file))
    wanted = {"P": int, "G": int, "N": int, "SYSTEM": str, "USER": str}
    if wrong := [name for name, kind in wanted.items() if type(found.get(name)) is not kind]:
        raise InputError(f"--workload {file}: {', '.join(wrong)} missing or of the wrong type: P prompts, G samples of each and "
                         "N tokens a sample are whole numbers, SYSTEM and USER texts")
    return found


def first_settings(file: Path | None, shape: dict) -> Settings:
    """The settings with a workload's shape; errors name its file."""
    try:
        return settings_with(**shape).settings
    except InputError as error:
        if not file:
            raise
        raise InputError(f"with P, G and N of --workload {file} as TASKS_PER_STEP, GROUP and MAX_NEW_TOKENS:\n{error}") from error


def parts_of(given, settings: Settings) -> list[str]:
    """The parts to measure, by default all; InputError if the settings' tasks do not suit them."""
    tasks = load_tasks(settings.data)
    check_tasks(tasks, checked_combiner(settings), settings)
    needed = max(settings.trainer.tasks_per_step, *(GROWTH["TASKS_PER_STEP"] if given.grow else (1,)))
    if len(tasks) < needed:
        raise InputError(f"{needed} tasks a step, but there are {len(tasks)}: " + (
            "--grow needs more, see SPLIT and N_TASKS" if given.grow else "lower TASKS_PER_STEP"))
    programs = runs_code(settings)
    if "grading" in (given.parts or ()) and not programs:
        raise InputError(f"--parts grading measures the sandbox, but COMBINE={settings.objective.combine} runs no programs: "
                         "leave it out")
    return given.parts or [part for part in PARTS if part != "grading" or programs]


def settings_with(**shape) -> config.Loaded:
    """The settings of the environment, some replaced."""
    environ = {**os.environ, **{name: str(value) for name, value in shape.items()}}
    return command.with_adapter(config.load(environ, training=True))


def bench_of(model: pretrained.Model, limit: float, work: dict, shape: dict) -> Bench:
    """The model with work of that shape."""
    loaded = settings_with(**shape)
    prompts = prompts_of(model, loaded.settings, work)
    dtype = model.params["embed_tokens"].dtype
    settings = command.with_memory(loaded, model.cfg, dtype, max(len(p.ids) for p in prompts)).settings
    return Bench(model._replace(chat=EndlessChat(model.chat)), prompts, settings, limit)


# ---- the machine's limit ---------------------------------------------------------------------------------------------


def machine_limit() -> float:
    """FLOP a second of one large fp32 product."""
    x = jnp.ones((SQUARE, SQUARE), jnp.float32)
    product = jax.jit(jnp.matmul)
    product(x, x).block_until_ready()
    took = []
    for _ in range(5):
        started = time.perf_counter()
        product(x, x).block_until_ready()
        took.append(time.perf_counter() - started)
    return 2 * SQUARE**3 / min(took)


# ---- the parts -------------------------------------------------------------------------------------------------------


def load_model(settings: Settings) -> pretrained.Model:
    """The model, read from its files; prints the time."""
    source, dtype, _ = command.find_model(settings)
    before, started = peak_rss(), time.perf_counter()
    model = jax.block_until_ready(pretrained.load(source, dtype))
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(model.params))
    print(f"{'load':>9}: {time.perf_counter() - started:.1f} s for {held / 1e9:.2f} GB of weights ({dtype}); peak RSS "
          f"{before:.2f} -> {peak_rss():.2f} GB", flush=True)
    return model


def prompts_of(model, settings: Settings, work: dict) -> list[Prompt]:
    """The first tasks' prompts, or under the same names the workload's prompt."""
    tasks = load_tasks(settings.data)[: settings.trainer.tasks_per_step]
    prompts = encode_prompts(tasks, model.chat, settings.data.style_hint, settings.generation.max_prompt_tokens)
    if not work:
        return prompts
    messages = [{"role": "system", "content": work["SYSTEM"]}, {"role": "user", "content": work["USER"]}]
    return [Prompt(task, messages, model.chat.encode(messages)) for task in tasks]


def measure_sampler(bench: Bench) -> float:
    """Seconds to sample every prompt's group."""
    return timed("sampler", bench, sampler_flop(bench), sampling_work(bench), lambda s: f", {bench.tokens / s:.1f} tok/s")[1]


def measure_update(bench: Bench) -> float:
    """Seconds of one update on all groups, with random ids and advantages."""
    return timed("update", bench, update_flop(bench), update_work(bench))[1]


def sampling_work(bench: Bench):
    """A function that samples every prompt's group."""
    sampling, names, N = sampling_of(bench.settings), [p.task.name for p in bench.prompts], bench.settings.generation.group
    adapter, ids = adapter_of(bench), [p.ids for p in bench.prompts]
    return lambda: generate(bench.model, adapter, ids, N, sampling, row_keys(step_key(0, 0), names, N))


def update_work(bench: Bench):
    """A function that makes one update on groups of random ids."""
    rng, N, T = np.random.default_rng(0), bench.settings.generation.group, bench.settings.generation.max_new_tokens
    loss, vocab = loss_of(bench.settings), bench.model.chat.vocab_used
    at_once = bench.settings.model.update_samples or N
    parts = [min(at_once, N - start) for start in range(0, N, at_once)]
    groups = [pack(p.ids, list(rng.integers(0, vocab, (n, T))), [np.full(T, -1.0)] * n, rng.standard_normal(n), loss)
              for p in bench.prompts for n in parts]
    state, optimiser = init_state(adapter_of(bench)), optimiser_of(bench.settings)
    return lambda: update(bench.model.params, state, groups, bench.model.cfg, loss, optimiser, vocab)


def measure_profile(bench: Bench) -> None:
    """Trace sampling and an update: seconds and share of each kind of operation."""
    for name, flop, work in (("sampler", sampler_flop(bench), sampling_work(bench)),
                             ("update", update_flop(bench), update_work(bench))):
        untraced = timed(name, bench, flop, work)[1]
        found = op_times.profile(work)
        products = sum(found.by_kind[kind] for kind in op_times.PRODUCTS)
        print(f"{'profile':>9}: {name}, {found.wall:.1f} s traced (untraced {untraced:.1f} s), matrix products "
              f"{products / found.wall:.1%}; then the largest of the rest")
        for kind, seconds in found.by_kind.items():
            print(f"{seconds:>12.2f} s {seconds / found.wall:>6.1%}  {kind}")
        rest = [(op, seconds) for op, seconds in found.by_op.most_common() if op[0] not in op_times.PRODUCTS][:SHOWN]
        for (kind, op), seconds in rest:
            print(f"{'':>14} {seconds / found.wall:>6.1%}  {op} ({kind})")
    print(op_times.HOW, flush=True)


def measure_step(bench: Bench) -> float:
    """Seconds of a whole training step: sampling, grading, update."""
    with open_judge(bench.settings) as judge:
        grader = RandomRewards(grader_of(judge, [p.task for p in bench.prompts], bench.settings))
        state = init_state(adapter_of(bench))
        return timed("step", bench, sampler_flop(bench) + update_flop(bench), lambda: train_step(
            bench.model, state, bench.prompts, grader, bench.settings, 0))[1]


def measure_grading(bench: Bench) -> float:
    """Seconds to grade the tasks' reference solutions in the sandbox, all sources different."""
    tasks = load_tasks(bench.settings.data)
    completions = [Completion(task, f"{task.reference}\n# {i}")
                   for i, task in zip(range(GRADED), tasks * (GRADED // len(tasks) + 1), strict=False)]
    with open_judge(bench.settings) as sandbox:
        grader = ProgramGrader(sandbox, tasks, 0.5, bench.settings.data.case_seed)
        grades, seconds = timed("grading", bench, 0, lambda: grader.grade(completions),
                                lambda s: f", {GRADED / s:.0f} candidates/s")
    if wrong := sum(not grade.correct for grade in grades):
        raise InputError(f"{wrong} of {GRADED} reference solutions failed: the sandbox does not work here")
    return seconds


def grow(bench: Bench, shape: dict, work: dict) -> None:
    """Vary each of the three sizes by itself: seconds of prompts, sampler and update, and their growth."""
    for name, values in GROWTH.items():
        before = None
        for value in values:
            now = bench_of(bench.model, bench.limit, work, shape | {name: value})
            print(f"{name}={value}", flush=True)
            seconds = {"prompts": measure_prompts(now), "sampler": measure_sampler(now), "update": measure_update(now)}
            if before:
                growth = ", ".join(f"{part} x {seconds[part] / before[part]:.2f}" for part in seconds)
                print(f"{'growth':>9}: {growth}", flush=True)
            before = seconds


def measure_prompts(bench: Bench) -> float:
    """Seconds of prefill, the part of sampling that does not grow with the group."""
    tokens_PS, mask_PS = left_pad([p.ids[:-1] for p in bench.prompts], PREFILL_BUCKET)
    adapter, slots = adapter_of(bench), prompt_slots(mask_PS.shape[1])
    return timed("prompts", bench, prompts_flop(bench), lambda: prefill(bench.model.params, adapter, tokens_PS, mask_PS, slots,
                                                                        bench.model.cfg))[1]


def adapter_of(bench: Bench):
    """A new adapter, as at the start of training."""
    m = bench.settings.model
    return lora.init(adapter_key(0), bench.model.cfg, m.lora_rank, m.lora_alpha, m.lora_targets.split(","))


def timed(name: str, bench: Bench, flop: float, work, more=lambda seconds: ""):
    """Run `work` and print its time: (its result, seconds without compilation)."""
    started = time.perf_counter()
    with Compiling() as compiling:
        result = jax.block_until_ready(work())
    seconds = time.perf_counter() - started - compiling.seconds
    share = f", {flop / seconds / bench.limit:.0%} of the machine" if flop else ""
    compiled = f", compiling {compiling.programs} programs took another {compiling.seconds:.1f} s" if compiling.programs else ""
    print(f"{name:>9}: {seconds:.1f} s{more(seconds)}{share}, peak RSS {peak_rss():.2f} GB{compiled}", flush=True)
    return result, seconds


def peak_rss() -> float:
    """Peak memory of this process in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        print(f"bench.py: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
