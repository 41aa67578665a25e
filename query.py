"""Ask one question of the base model and, with LORA, of the adapter: both answers together.

    python query.py --task gcd                                               # N_SAMPLES=8 samples, graded
    LORA=runs/<name>/checkpoints/step_00600 python query.py --task gcd       # and those of the adapter
    python query.py "Write a function that reverses the words of a sentence." # free text: one answer each, no grade
    python query.py --list                                                   # the names of the tasks and their split
    python query.py --help                                                   # every setting; MODEL names the model

A task is asked, sampled and graded as in training, on the fresh cases and with the random numbers of a probe: for equal
settings the samples are those that run_probe.py counts. The program shown is the first sample, not the best. Writes no
file; what it says goes to stdout, progress to stderr. Not covered: conversations, several tasks (run_probe.py)."""

import argparse
import difflib
import os
import sys
from dataclasses import replace

from rl import command
from rl.errors import InputError
from rl.evaluation.probe import PROBE_STEP, ProbeGrader, probe
from rl.models import pretrained
from rl.pages.samples import grade_text, shown
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
    """One question from the command line to both answers; returns the exit code."""
    asked = parsed(sys.argv[1:])
    loaded = config.load(os.environ)
    settings = loaded.settings
    tasks = all_tasks(settings.data)
    if asked.list:
        print("\n".join(f"{name:<{max(map(len, tasks))}}  {split}" for name, (_, split) in sorted(tasks.items())))
        return 0
    if asked.text in tasks:
        raise InputError(f"{asked.text} is the name of a task: ask for it with --task {asked.text}")
    chosen = [] if asked.task is None else [task_named(asked.task, tasks)]

    # Everything that can be wrong is found before the weights are read.
    source, dtype, facts = command.find_model(settings)
    sides = {f"base, {source.name}": None}
    if path := settings.model.lora:
        sides[f"adapter, {path}"] = lora.load(path, source.cfg, model=settings.model.model)
    prompts = encode_prompts(chosen, source.chat, settings.data.style_hint, settings.generation.max_prompt_tokens)
    said = prompts[0].messages if prompts else [{"role": "system", "content": SYSTEM}, {"role": "user", "content": asked.text}]
    ids = encoded(said, source.chat, settings.generation.max_prompt_tokens)
    check_room([ids], settings.generation.max_new_tokens, source.cfg)
    question = "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in said)

    if not chosen:
        command.announce(loaded, facts, file=sys.stderr)
        model = pretrained.load(source, dtype)
        print(question, flush=True)
        for name, adapter in sides.items():
            print(f"\n==== {name}\n{answer(model, adapter, ids, asked.text, settings)}", flush=True)
        return 0
    with open_judge(settings) as judge:
        graders = ProbeGrader.on(judge, chosen, settings)
        command.announce(loaded, {**facts, "sandbox": judge.description}, file=sys.stderr)
        model = pretrained.load(source, dtype)
        print(question, flush=True)
        for name, adapter in sides.items():
            found = probe(model, adapter, prompts, graders, settings.generation.n_samples, sampling_of(settings),
                          settings.trainer.seed, tasks_at_once=1)
            print(f"\n==== {name}\n{graded_text(found.groups[0], found.weak)}", flush=True)
    return 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    """The command line: task, list, and the free text, which may come unquoted."""
    parser = argparse.ArgumentParser("query.py", usage='query.py --task NAME | "free text" | --list', add_help=False)
    parser.add_argument("--task")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("text", nargs="*")
    found = parser.parse_args(arguments)
    found.text = " ".join(found.text).strip()
    if (found.task is not None) + found.list + bool(found.text) != 1:
        raise InputError("give one of --task NAME, a question as free text, or --list; --help says more")
    return found


def all_tasks(data: DataSettings) -> dict[str, tuple]:
    """Name -> (task, split) of every task of the provider, whatever SPLIT, N_TASKS and TASK_NAMES say."""
    return {task.name: (task, split) for split in ("train", "heldout")
            for task in load_tasks(replace(data, split=split, n_tasks=0, task_names=""))}


def task_named(name: str, tasks: dict[str, tuple]):
    """The task of that name; InputError tells one that is near, where there is one."""
    if name not in tasks:
        near = difflib.get_close_matches(name, tasks, 1)
        nearest = f"the nearest name is {near[0]}; " if near else ""
        raise InputError(f"--task {name}: there is no such task; {nearest}--list shows all {len(tasks)}")
    return tasks[name][0]


def encoded(messages: list[dict], chat, limit: int) -> list[int]:
    """The prompt's ids; InputError where there are too many."""
    ids = chat.encode(messages)
    if len(ids) > limit:
        raise InputError(f"the question has {len(ids)} tokens, more than MAX_PROMPT_TOKENS={limit}: shorten it or raise that")
    return ids


def answer(model, adapter, ids: list[int], text: str, settings: Settings) -> str:
    """One answer to a free question, as the checkpoint's own words."""
    key_B = row_keys(step_key(settings.trainer.seed, PROBE_STEP), [text], 1)
    rollouts = generate(model, adapter, [ids], 1, sampling_of(settings), key_B)
    length, cut = int(rollouts.length_B[0]), " (cut at MAX_NEW_TOKENS)" if rollouts.finish_B[0] == "length" else ""
    return f"{shown(model.chat.decode(rollouts.ids_BT[0, :length]))}\n\n{length} tokens{cut}"


def graded_text(group: GradedGroup, weak: int) -> str:
    """The first sample with its grade, and the means over all."""
    first, found = group.samples[0], sample_metrics(group.samples)
    means = ", ".join(f"{label} {'-' if found[name] is None else format(found[name], '.3f')}" for label, name in (
        ("pass rate", "pass_rate"), ("mean reward", "reward"), ("style of correct", "style"), ("depth of correct", "depth"))
        if name in found)
    return (f"{shown(first.code)}\n\nthe first of {len(group.samples)} samples, {grade_text(first)}"
            f"{f'; {shown(first.detail)}' if first.detail else ''}\nall of them: {means}; {weak} passes fail on second cases")


if __name__ == "__main__":
    command.run(main, __doc__, flags=("--task=", "--list"), explain=explain_memory)
