"""Train a LoRA adapter with GRPO: sample answers, grade them, move the adapter towards the better ones.

    python train_grpo.py                          # Qwen2.5-Coder-0.5B-Instruct, 600 steps of 8 tasks x 8 samples
    STEPS=20 TASKS_PER_STEP=4 python train_grpo.py
    RESUME=runs/<name> python train_grpo.py       # go on where a run stopped
    python train_grpo.py --dry-run                # settings with their origin, predicted memory and disk; then stop
    python train_grpo.py --help                   # every setting

Writes runs/<date>-<name>/: config.yaml, metrics.jsonl, completions/, sft_pool.jsonl, hard_pool.jsonl, checkpoints/, report.html,
and with EVAL_EVERY eval.jsonl.
Ctrl-C, SIGTERM or a closed terminal saves a checkpoint and ends with 130, 143 or 129; a second signal ends at once.  Not
covered: full-weight training, more than one device."""

import os
import sys

from rl import command
from rl.evaluation.probe import HeldOutEvaluation
from rl.models import pretrained
from rl.rewards.setup import grader_of, open_judge, trainable
from rl.run import tracker
from rl.run.files import claimed
from rl.run.log import RunLog
from rl.run.progress import ProgressDisplay
from rl.run.signals import Interrupted, Signals
from rl.settings import config
from rl.settings.declared import values_of
from rl.tasks import encode_prompts
from rl.training import checkpoint, lora
from rl.training.device import explain_memory
from rl.training.run import RunContext, deadline_after, start, train
from rl.training.sampler import check_room


def main() -> int:
    """The whole run, from settings to the last checkpoint; returns the exit code."""
    loaded = command.with_adapter(config.load(os.environ, training=True))
    settings = loaded.settings
    tasks, unseen = trainable(settings)
    if "--dry-run" in sys.argv[1:]:
        return command.dry_run(loaded)

    # Everything that can be wrong is found before the weights are read.
    tracker.check(settings.run.tracker)
    source, dtype, facts = command.find_model(settings)
    command.check_adapter(settings, source.cfg)
    rules = source.chat, settings.data.style_hint, settings.generation.max_prompt_tokens
    prompts, unseen_prompts = encode_prompts(tasks, *rules), encode_prompts(unseen, *rules)
    check_room([prompt.ids for prompt in prompts + unseen_prompts], settings.generation.max_new_tokens, source.cfg)
    loaded = command.with_memory(loaded, source.cfg, dtype, max(len(prompt.ids) for prompt in prompts))
    settings = loaded.settings
    run = command.run_folder(settings)
    command.check_disk(run, source.cfg, settings)

    with (Signals() as signals, claimed(run), open_judge(settings) as judge,
          ProgressDisplay(settings.trainer.steps, settings.evaluation.eval_every) as display,
          tracker.Tracker(settings.run.tracker, run) as tracked):
        grader = grader_of(judge, tasks, settings)
        evaluation = HeldOutEvaluation.on(judge, unseen_prompts, settings)
        progress = start(run, source.cfg, settings)
        model = pretrained.load(source, dtype)
        log = RunLog.resume(run, progress.step) if settings.run.resume else RunLog(run)
        command.announce(loaded, {"run": str(run), **facts, "sandbox": judge.description, "clip": command.clip_fact(settings),
                                  **command.memory_facts(loaded),
                                  "trained values": f"{lora.count(progress.state.adapter):,}"})
        command.write_config(run, loaded, judge.description)
        tracked.begin(values_of(settings), config.recorded(run)["started"], progress.step, bool(settings.run.resume))
        context = RunContext(run, log, signals, display, tracked, evaluation,
                             deadline_after(settings.trainer.max_hours), tasks.order)
        try:
            # Step by step: sample, grade, update, log, save.
            progress = train(progress, model, prompts, grader, settings, context)
        except Interrupted as stop:
            print(f"{stop}: saved step {checkpoint.steps(run)[-1]}; go on with RESUME={run} python train_grpo.py", flush=True)
            return stop.exit_code
        command.report_end(run, progress.step, settings)
    return 0


if __name__ == "__main__":
    command.run(main, __doc__, explain=explain_memory, words=False)
