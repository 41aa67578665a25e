"""Score a model, with or without an adapter, on tasks with hidden cases that training never used; or compare two scores.

    N_TASKS=40 python run_probe.py 0.5B                        # the base model, N_SAMPLES=8 samples per task
    LORA=runs/<name>/checkpoints/step_00600 N_TASKS=40 python run_probe.py 0.5B
    SPLIT=heldout python run_probe.py tiny                     # MODEL= names the model as well
    python run_probe.py --compare base.json adapter.json       # paired: gains with intervals, tasks gained and lost
    python run_probe.py --help                                 # every setting

Writes every sample with its grade, and all figures, to OUT (default: runs/probe-<date>-<model>.json). LORA is a PEFT folder,
a checkpoint folder or an .npz. Not covered: training (train_grpo.py), single questions (query.py)."""

import datetime
import json
import os
import re
import sys
from functools import partial
from pathlib import Path

from rl import command
from rl.errors import InputError
from rl.evaluation.probe import ProbeGrader, for_unseen_prompts, probe
from rl.evaluation.probe_report import compare, comparison_text, document, probe_text, read
from rl.models import pretrained
from rl.rewards.setup import check_rewards, check_tasks, checked_combiner, open_judge
from rl.run.files import write_aside
from rl.settings import config
from rl.settings.declared import Settings, values_of
from rl.tasks import encode_prompts, load_tasks
from rl.training import lora
from rl.training.device import explain_memory
from rl.training.sampler import check_room, sampling_of


def main() -> int:
    """One probe, or the comparison of two; returns the exit code."""
    arguments = sys.argv[1:]
    if "--compare" in arguments:
        return compare_files([argument for argument in arguments if argument != "--compare"])
    loaded = config.load(os.environ | config.named_model(arguments))
    settings = loaded.settings

    # All checks come before the weights are read.
    source, dtype, facts = command.find_model(settings)
    adapter = lora.to_measure(settings.model, source.cfg)
    tasks = load_tasks(settings.data)
    grading = for_unseen_prompts(settings)
    combiner = checked_combiner(grading)
    check_tasks(tasks, combiner, settings)
    check_rewards(tasks, combiner, grading)
    prompts = encode_prompts(tasks, source.chat, settings.data.style_hint, settings.generation.max_prompt_tokens)
    check_room([prompt.ids for prompt in prompts], settings.generation.max_new_tokens, source.cfg)
    out = report_file(settings)

    with open_judge(settings) as judge:
        graders = ProbeGrader.on(judge, tasks, settings)
        command.announce(loaded, {**facts, "sandbox": judge.description}, file=sys.stderr)
        model = pretrained.load(source, dtype)
        probed = probe(model, adapter, prompts, graders, samples=settings.generation.n_samples, sampling=sampling_of(settings),
                       seed=settings.trainer.seed, tasks_at_once=settings.trainer.tasks_per_step, tell=tell)

    about = {"model": model.name, "lora": lora.label(settings.model),
             "time": datetime.datetime.now().isoformat(timespec="seconds"), "seconds": probed.seconds,
             "git": command.git_revision(), "sandbox": judge.description, "dtype": str(dtype),
             "settings": values_of(settings)}
    report = document(about, groups=probed.groups, entropy=probed.entropy, rechecked=probed.rechecked, weak=probed.weak)
    write_aside(out, json.dumps(report, indent=1, allow_nan=False).encode() + b"\n")
    print(f"{probe_text(report)}\n\nwritten: {out}")
    return 0


def report_file(settings: Settings) -> Path:
    """Where the probe is written; its folder is made now, so that a wrong OUT fails before the probe."""
    model = re.sub(r"[^\w.-]+", "-", Path(settings.model.model).name)
    out = Path(settings.run.out or command.default_out(settings, f"{model}.json", "probe-"))
    if out.is_dir():
        raise InputError(f"OUT={out} is a folder: name the JSON file to write, such as OUT={out / 'probe.json'}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"OUT={out}: its folder cannot be made ({error.strerror}); choose one that you can write to") from error
    if not os.access(out.parent, os.W_OK):
        raise InputError(f"OUT={out}: its folder cannot be written to; choose another")
    return out


def compare_files(paths: list[str]) -> int:
    """Print the paired comparison of two probes' files; returns the exit code."""
    if len(paths) != 2:
        raise InputError(f"--compare takes two files of probes, before and after; {len(paths)} given")
    reports = [read(path) for path in paths]
    names = [" ".join(filter(None, [f"{path}:", report["model"], report["lora"] and f"with {report['lora']}"]))
             for path, report in zip(paths, reports, strict=True)]
    print(comparison_text(compare(*reports), names))
    return 0


# Progress goes to stderr, so that stdout has the report only.
tell = partial(print, file=sys.stderr, flush=True)

if __name__ == "__main__":
    command.run(main, __doc__, flags=("--compare",), explain=explain_memory)
