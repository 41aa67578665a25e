"""Ask the base model one question and, with LORA, the adapter too.

    python query.py --task gcd                                               # N_SAMPLES=8 samples, graded
    LORA=runs/<name>/checkpoints/step_00600 python query.py --task gcd       # and those of the adapter
    python query.py "Write a function that reverses the words of a sentence." # free text: one answer each, no grade
    python query.py --list                                                   # the names of the tasks with their split
    python query.py --help                                                   # every setting; MODEL names the model

A task is asked, sampled and graded as in training, on the fresh cases and with the random numbers of a probe: with equal
settings the samples are those that run_probe.py counts. The program shown is the first sample, not the best. Writes no file; the
answers go to stdout, progress to stderr. Not covered: conversations, several tasks (run_probe.py)."""

import argparse
import os
import sys
from dataclasses import replace

from rl import command
from rl.errors import InputError
from rl.evaluation.probe import PROBE_STEP, ProbeGrader, probe
from rl.evaluation.probe_report import LABELS
from rl.evaluation.stats import number_text
from rl.models import pretrained
from rl.pages.samples import grade_text, safe_code
from rl.registry import nearest
from rl.rewards.base import GradedGroup
from rl.rewards.setup import open_judge
from rl.run.log import sample_metrics
from rl.settings import config
from rl.settings.declared import DataSettings, Settings
from rl.tasks import SYSTEM, encode_prompts, load_tasks
from rl.training import lora
from rl.training.device import explain_memory
from rl.training.sampler import check_room, generate, row_keys, sampling_of, step_key


def main() -> int:
    """One question and its answers; returns the exit code."""
    given = parse_arguments(sys.argv[1:])
    loaded = config.load(os.environ)
    settings = loaded.settings
    tasks = all_tasks(settings.data)
    if given.list:
        print("\n".join(f"{name:<{max(map(len, tasks))}}  {split}" for name, (_, split) in sorted(tasks.items())))
        return 0
    if given.text in tasks:
        raise InputError(f"{given.text} is the name of a task: ask for it with --task {given.text}")
    chosen = [] if given.task is None else [task_named(given.task, tasks)]

    # All checks come before the weights are read.
    source, dtype, facts = command.find_model(settings)
    sides = {f"base, {source.name}": None}
    if adapter := lora.to_measure(settings.model, source.cfg):
        sides[f"adapter, {lora.label(settings.model)}"] = adapter
    prompts = encode_prompts(chosen, source.chat, settings.data.style_hint, settings.generation.max_prompt_tokens)
    messages = prompts[0].messages if prompts else [{"role": "system", "content": SYSTEM},
                                                    {"role": "user", "content": given.text}]
    ids = encoded(messages, source.chat, settings.generation.max_prompt_tokens)
    check_room([ids], settings.generation.max_new_tokens, source.cfg)
    question = "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in messages)

    if not chosen:
        command.announce(loaded, facts, file=sys.stderr)
        model = pretrained.load(source, dtype)
        print(question, flush=True)
        for name, adapter in sides.items():
            print(f"\n==== {name}\n{answer(model, adapter, ids, given.text, settings)}", flush=True)
        return 0
    with open_judge(settings) as judge:
        graders = ProbeGrader.on(judge, chosen, settings)
        command.announce(loaded, {**facts, "sandbox": judge.description}, file=sys.stderr)
        model = pretrained.load(source, dtype)
        print(question, flush=True)
        for name, adapter in sides.items():
            probed = probe(model, adapter, prompts, graders, samples=settings.generation.n_samples,
                           sampling=sampling_of(settings), seed=settings.trainer.seed, tasks_at_once=1)
            print(f"\n==== {name}\n{graded_text(probed.groups[0], probed.weak)}", flush=True)
    return 0


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """The command line: task, list, and the free text, which need not be quoted."""
    parser = argparse.ArgumentParser("query.py", usage='query.py --task NAME | "free text" | --list', add_help=False)
    parser.add_argument("--task")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("text", nargs="*")
    given = parser.parse_args(arguments)
    given.text = " ".join(given.text).strip()
    if (given.task is not None) + given.list + bool(given.text) != 1:
        raise InputError("give one of --task NAME, a question as free text, or --list; see --help")
    return given


def all_tasks(data: DataSettings) -> dict[str, tuple]:
    """Name -> (task, split) of every task of the provider, whatever SPLIT, N_TASKS and TASK_NAMES say."""
    return {task.name: (task, split) for split in ("train", "heldout")
            for task in load_tasks(replace(data, split=split, n_tasks=0, task_names=""))}


def task_named(name: str, tasks: dict[str, tuple]):
    """The task of that name; InputError suggests a similar name, if there is one."""
    if name not in tasks:
        raise InputError(f"--task {name}: unknown task{nearest(name, tasks)}; --list shows all {len(tasks)}")
    return tasks[name][0]


def encoded(messages: list[dict], chat, limit: int) -> list[int]:
    """The prompt's ids; InputError where there are more than `limit`."""
    ids = chat.encode(messages)
    if len(ids) > limit:
        raise InputError(f"the question has {len(ids)} tokens, more than MAX_PROMPT_TOKENS={limit}: shorten it or raise the "
                         "limit")
    return ids


def answer(model, adapter, ids: list[int], text: str, settings: Settings) -> str:
    """One answer to a free question, as text."""
    key_B = row_keys(step_key(settings.trainer.seed, PROBE_STEP), [text], 1)
    rollouts = generate(model, adapter, [ids], 1, sampling_of(settings), key_B)
    length, cut = int(rollouts.length_B[0]), " (cut at MAX_NEW_TOKENS)" if rollouts.finish_B[0] == "length" else ""
    return f"{safe_code(model.chat.decode(rollouts.ids_BT[0, :length]))}\n\n{length} tokens{cut}"


def graded_text(group: GradedGroup, weak: int) -> str:
    """The first sample with its grade, and the means over all samples."""
    first, metrics = group.samples[0], sample_metrics(group.samples)
    means = ", ".join(f"{LABELS[name]} {number_text(metrics[name])}" for name in ("pass_rate", "reward", "style", "depth")
                      if name in metrics)
    return (f"{safe_code(first.code)}\n\nthe first of {len(group.samples)} samples, {grade_text(first)}"
            f"{f'; {safe_code(first.detail)}' if first.detail else ''}\nall of them: {means}; {weak} passes fail on second cases")


if __name__ == "__main__":
    command.run(main, __doc__, flags=("--task=", "--list"), explain=explain_memory)
