"""Fine-tune a LoRA adapter on right answers (rejection fine-tuning): cross-entropy of given answers to given prompts.

    SFT_FILE=runs/<name>/sft_pool.jsonl STEPS=50 LEARNING_RATE=1e-4 python train_sft.py     # what a run got right
    SFT_FILE=mine.jsonl STEPS=50 python train_sft.py                                        # any prompts and answers
    RESUME=runs/<name> python train_sft.py                                                  # go on where it stopped
    LORA=runs/<name>/checkpoints/step_00050 python train_grpo.py                            # GRPO goes on with the adapter

A row has `prompt` (text or messages) with `completion`, `response`, `output` or `answer`, or with the `code` of a run's pool; or
it has `messages`, of which the last is the answer. Equal rows count once. A step takes TASKS_PER_STEP prompts, and of each up to
GROUP answers, drawn by SEED; the loss is the mean over their tokens, the end of the turn included. Settings of sampling and
reward have no effect.

Writes runs/<date>-<name>/: config.yaml, metrics.jsonl, checkpoints/. Ctrl-C saves a checkpoint and ends with 130."""

import json
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rl import command
from rl.errors import InputError, NotFinite
from rl.models import pretrained
from rl.run.files import claimed
from rl.run.log import RunLog
from rl.run.signals import Interrupted, Signals
from rl.settings import config
from rl.settings.declared import Settings
from rl.tasks import tasks_of_step
from rl.text_files import read_text, split_lines
from rl.training import checkpoint, lora
from rl.training.device import explain_memory
from rl.training.loss import Loss, loss_of
from rl.training.optimiser import optimiser_of
from rl.training.packing import PackedGroup, pack
from rl.training.run import Progress, check_finite, deadline_after, save, start
from rl.training.update import update

ANSWERS = ("completion", "response", "output", "answer")
LOGGED = ("loss", "grad_norm", "learning_rate", "trained_tokens", "skipped_steps")
SHOWN = 6    # problems in a message


class Example(NamedTuple):
    """A prompt and its right answers as ids, each answer with the id that ends the turn."""

    prompt_ids: list[int]
    answers: list[list[int]]


def main() -> int:
    """The whole run, from the file to the last checkpoint; returns the exit code."""
    loaded = command.with_adapter(config.load(os.environ))
    settings = loaded.settings
    if not settings.data.sft_file:
        raise InputError("SFT_FILE is not set: name a file of prompts and answers, such as a run's sft_pool.jsonl")

    # Everything that can be wrong is found before the weights are read.
    source, dtype, facts = command.find_model(settings)
    command.check_adapter(settings, source.cfg)
    examples = encoded(read_rows(Path(settings.data.sft_file)), source.chat, settings)
    loaded = command.with_memory(loaded, source.cfg, dtype, max(len(example.prompt_ids) for example in examples))
    settings = loaded.settings
    run = command.run_folder(settings)
    command.check_disk(run, source.cfg, settings)

    with Signals() as signals, claimed(run):
        progress = start(run, source.cfg, settings)
        model = pretrained.load(source, dtype)
        log = RunLog.resume(run, progress.step) if settings.run.resume else RunLog(run)
        answers = sum(len(example.answers) for example in examples)
        command.announce(loaded, {"run": str(run), **facts, "file": f"{len(examples)} prompts, {answers} answers",
                                  **command.memory_facts(loaded)})
        command.write_config(run, loaded, "none: nothing is run")
        try:
            progress = fine_tune(progress, model, examples, settings, run, log, signals)
        except Interrupted as stop:
            print(f"{stop}: saved step {checkpoint.steps(run)[-1]}; go on with RESUME={run}", flush=True)
            return stop.exit_code
    print(f"adapter: {checkpoint.checkpoints(run)[progress.step]}")
    return 0


# ---- the file --------------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[tuple[list[dict], str]]:
    """(messages, answer) of each row, equal ones once; InputError names every row that cannot be used."""
    try:
        lines = split_lines(read_text(path))
    except (OSError, ValueError) as error:
        raise InputError(f"SFT_FILE={path} cannot be read: {error}") from None
    rows, problems = {}, []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                messages, answer = of_row(json.loads(line))
                rows.setdefault((json.dumps(messages), answer), (messages, answer))
            except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
                problems.append(f"line {number}: {error if isinstance(error, ValueError) else 'no prompt and answer'}")
    if problems or not rows:
        raise refused(path, problems or ["it is empty"])
    return [*rows.values()]


def of_row(row: dict) -> tuple[list[dict], str]:
    """The conversation up to the answer, and the answer; ValueError says what is missing."""
    said = row.get("messages")
    prompt, answer = (said[:-1], said[-1:]) if said else (row.get("prompt"), None)
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    if answer is None:
        answer = next((row[name] for name in ANSWERS if row.get(name)), None)
        answer = f"```python\n{row['code'].strip()}\n```" if answer is None and row.get("code") else answer
    if isinstance(answer, list) and answer:
        answer = answer[0]["content"]
    if not prompt or not isinstance(prompt, list) or not isinstance(answer, str) or not answer.strip():
        raise ValueError(f"it needs prompt, and one of {', '.join(ANSWERS)} or code; or messages that end with the answer")
    return prompt, answer


def encoded(rows: Sequence[tuple[list[dict], str]], chat, settings: Settings) -> list[Example]:
    """The rows as ids, by prompt; InputError where one is too long or the template does not take it."""
    g, examples, problems = settings.generation, {}, []
    for messages, answer in rows:
        try:
            prompt_ids, ids = chat.encode(messages), chat.encode_answer(answer)
        except ValueError as error:
            problems.append(f"{json.dumps(messages)[:60]}: {error}")
            continue
        if len(prompt_ids) > g.max_prompt_tokens or len(ids) > g.max_new_tokens:
            problems.append(f"{answer[:40]!r}: {len(prompt_ids)} tokens of prompt and {len(ids)} of answer; raise "
                            f"MAX_PROMPT_TOKENS={g.max_prompt_tokens} or MAX_NEW_TOKENS={g.max_new_tokens}, or leave it out")
        examples.setdefault(tuple(prompt_ids), Example(prompt_ids, [])).answers.append(ids)
    if problems:
        raise refused(settings.data.sft_file, problems)
    return [*examples.values()]


def refused(path: Path | str, problems: list[str]) -> InputError:
    """The error that names the first problems and says how many more there are."""
    more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return InputError(f"SFT_FILE={path}: {'; '.join(problems[:SHOWN])}{more}")


# ---- training --------------------------------------------------------------------------------------------------------


def fine_tune(progress: Progress, model, examples: Sequence[Example], settings: Settings, run: Path, log: RunLog,
              signals: Signals) -> Progress:
    """From `progress` to STEPS or MAX_HOURS; returns how far it came, saved. An interruption saves first and is raised again."""
    t, loss, optimiser = settings.trainer, cross_entropy(settings), optimiser_of(settings)
    deadline, saved = deadline_after(t.max_hours), None
    try:
        while progress.step < t.steps and not (deadline and time.monotonic() >= deadline):
            begun = time.perf_counter()
            groups = batch(examples, progress.step, settings, loss)
            state, metrics = update(model.params, progress.state, groups, model.cfg, loss, optimiser, model.chat.vocab_used)
            metrics = {name: metrics[name] for name in LOGGED} | {"lora_delta_norm": lora.delta_norm(state.adapter),
                                                                  "step_time": time.perf_counter() - begun}
            check_finite(metrics)
            with signals.held():
                progress = Progress(state, progress.step + 1)
                log.step(progress.step, metrics)
                print(f"step {progress.step}/{t.steps}: loss {metrics['loss']:.4f}, {metrics['step_time']:.1f} s", flush=True)
                if progress.step % settings.run.save_every == 0:
                    saved = save(progress, run, settings)
    except Interrupted:
        if saved != progress.step:
            save(progress, run, settings)
        raise
    except NotFinite as error:
        folder = checkpoint.checkpoints(run)[save(progress, run, settings)]
        raise InputError(f"it ended after {progress.step} steps: {error}. The last good adapter is {folder}: start again from it "
                         "with LORA and a lower LEARNING_RATE, or with DTYPE=float32") from error
    if saved != progress.step:
        with signals.held():
            save(progress, run, settings)
    return progress


def cross_entropy(settings: Settings) -> Loss:
    """The settings' loss turned into the mean of -log p: CISPO whose weight is clipped to 1, with advantage 1."""
    return loss_of(settings)._replace(kind="cispo", eps_low=0.0, eps_high=0.0, entropy_bonus=0.0, kl_beta=0.0, temperature=1.0)


def batch(examples: Sequence[Example], step: int, settings: Settings, loss: Loss) -> list[PackedGroup]:
    """The step's prompts and answers, packed; a function of SEED and step alone."""
    t, N = settings.trainer, settings.generation.group
    at_once, packed = min(settings.model.update_samples or N, N), []
    for i in tasks_of_step(len(examples), step, min(t.tasks_per_step, len(examples)), t.seed):
        example = examples[i]
        answers = random.Random(f"sft/{t.seed}/{step}/{i}").sample(example.answers, min(N, len(example.answers)))
        for start_at in range(0, len(answers), at_once):
            part = [np.array(ids, np.int32) for ids in answers[start_at:start_at + at_once]]
            part += [np.zeros(0, np.int32)] * (at_once - len(part))    # so that all parts have one shape
            unused = [np.zeros(len(ids), np.float32) for ids in part]    # the sampler's log-probabilities
            packed.append(pack(example.prompt_ids, part, unused, np.ones(at_once), loss))
    return packed


if __name__ == "__main__":
    command.run(main, __doc__, flags=(), explain=explain_memory, words=False)
