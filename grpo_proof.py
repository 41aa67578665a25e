"""Can one predict what GRPO will improve? Write the predictions down, then train, then compare.

    python grpo_proof.py --predict-only --out results     # sample each family, apply the rule, write predictions and their digest
    python grpo_proof.py --out results                    # check the digest, train each family, measure again, compare
    python grpo_proof.py --families chain_sum,gcd --model 0.5B --steps 50 --out other --predict-only

Families are Reasoning Gym's (pip install reasoning-gym==0.1.25); the model is Qwen/Qwen3-0.6B unless MODEL is set. Every flag is
a setting: --families FAMILIES, --model MODEL, --steps STEPS, --group GROUP, --prompts-per-step TASKS_PER_STEP, --max-new
MAX_NEW_TOKENS, --eval-n EVAL_N, --predict-tasks PREDICT_TASKS, --lr LEARNING_RATE, --out OUT, --predictions PREDICTIONS. All
other settings of train_grpo.py apply too. This command's own defaults: STEPS=100 TASKS_PER_STEP=4 LEARNING_RATE=5e-5
MAX_NEW_TOKENS=64 DTYPE=float32 OUT=results.

For each family, GROUP samples of PREDICT_TASKS questions decide the prediction; EVAL_N held-out questions are answered greedily
before and after STEPS steps of GRPO on other questions. A control arm trains on the same questions with shuffled rewards.

Writes OUT/predictions.json and predictions.sha256 (check them with `sha256sum -c`), then OUT/results.json, report.html, and a
folder for each family with its answers, metrics, completions and checkpoints. However it was stopped, the same command goes on
from there. FAMILIES may name some of the predicted families now and others later: results.json and the page keep those that are
done. An answer that cannot be graded is worth 0 and is counted in the tables.

Exits with 0 if every family is done or was refused by the prediction; with 1 if some are not done, because MAX_HOURS was over or
they cannot be trained (results.json says why); with 2 if none could be done, and on bad input; with 130, 143 or 129 after
Ctrl-C, SIGTERM or a closed terminal."""

import datetime
import os
import re
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rl import command
from rl.errors import InputError
from rl.models import pretrained
from rl.pages import proof_page
from rl.proof import predictions
from rl.proof.predictions import Prediction, check_experiment, predictions_in, read_predictions, write_predictions
from rl.proof.results import (
    calibration_text,
    check_answers,
    family_result,
    load_or_make,
    prediction_line,
    read_results,
    result_text,
    rules_text,
    write_results,
)
from rl.proof.steps import (
    Seeds,
    answer_greedily,
    control_settings,
    measures_of,
    sample_prompts,
    seeds_of,
    train_family,
    verdict_of,
)
from rl.rewards.gym.client import UNSCORABLE, Family, Gym, parse_families
from rl.rewards.gym.questions import audit, make_questions, training_questions
from rl.rewards.setup import grader_of, open_judge
from rl.run.files import claimed, read_rows
from rl.run.progress import ProgressDisplay
from rl.run.signals import Interrupted, Signals
from rl.settings import config
from rl.tasks import Prompt, encode_prompts
from rl.training.device import explain_memory
from rl.training.run import deadline_after
from rl.training.sampler import check_room

FLAGS = {"--families": "FAMILIES", "--model": "MODEL", "--steps": "STEPS", "--group": "GROUP",
         "--prompts-per-step": "TASKS_PER_STEP", "--max-new": "MAX_NEW_TOKENS", "--eval-n": "EVAL_N",
         "--predict-tasks": "PREDICT_TASKS", "--lr": "LEARNING_RATE", "--out": "OUT", "--predictions": "PREDICTIONS"}
DEFAULTS = {"model": "Qwen/Qwen3-0.6B", "steps": 100, "tasks_per_step": 4, "learning_rate": 5e-5, "max_new_tokens": 64,
            "dtype": "float32", "out": "results", "tasks": "reasoning_gym", "combine": "reasoning_gym"}
# Meaningless here: questions come from families, no code is run, and the arms and measurements are this command's own.
UNUSED = ("tasks", "split", "n_tasks", "tasks_file", "task_names", "style_hint", "case_seed", "lora", "lora_scale", "sft_file",
          "dynamic_sampling", "shuffle_rewards", "style_weight", "style_depth", "eval_every", "recheck_share", "overlong",
          "resume", "tracker", "run_name", "n_samples", "combine", "combine_kwargs", "reward_kwargs", "provider_kwargs",
          "plugins")
SOME_LEFT, NOTHING_DONE = 1, 2    # exit codes


def main() -> int:
    """Predict, or train and compare; returns the exit code."""
    loaded, predict_only = parse_arguments(sys.argv[1:])
    settings, out = loaded.settings, Path(loaded.settings.run.out)
    seeds, found = seeds_of(settings), command.find_model(settings)
    document, digest = ({}, "") if predict_only else read_predictions(predictions_path(settings))
    try:
        with Signals() as signals, open_judge(settings) as gym:
            families = parse_families(settings.proof.families, gym)    # first, so that a wrong name leaves no empty folder
            command.make_folder(out)
            with claimed(out):
                work = prepare(loaded, *found, seeds=seeds, gym=gym, signals=signals, out=out)
                return predict(work, families) if predict_only else train_and_compare(work, families, document, digest)
    except Interrupted as stop:
        print(f"{stop}: finished work is kept in {out}; the same command, with the same settings, goes on from there", flush=True)
        return stop.exit_code


def parse_arguments(arguments: list[str]) -> tuple[config.Loaded, bool]:
    """(settings from environment and flags, whether to predict only); InputError names all settings without meaning here."""
    environ, rest = dict(os.environ), list(arguments)
    while rest:
        name, joined, value = rest.pop(0).partition("=")
        if name in FLAGS:
            if not joined and not rest:
                raise InputError(f"{name} needs a value")
            environ[FLAGS[name]] = value if joined else rest.pop(0)
        elif name != "--predict-only":
            raise InputError(f"{name}: takes {', '.join(FLAGS)}, --predict-only, and settings as environment variables")
    return config.load(environ, training=True, defaults=DEFAULTS, unused=UNUSED), "--predict-only" in arguments


def predictions_path(settings: config.Settings) -> Path:
    """The predictions that training is bound to."""
    return Path(settings.proof.predictions or Path(settings.run.out) / predictions.NAME)


@dataclass(frozen=True)
class Work:
    """What all families share."""

    loaded: config.Loaded
    seeds: Seeds
    gym: Gym
    model: pretrained.Model
    signals: Signals
    out: Path

    @property
    def settings(self) -> config.Settings:
        """The settings without their origins."""
        return self.loaded.settings

    @property
    def package(self) -> str:
        """Where questions and scores come from."""
        return f"reasoning-gym {self.gym.version}"

    def folder(self, family: Family) -> Path:
        """The folder of a family's own files."""
        return self.out / re.sub(r"[^\w.-]", "_", family.text)

    def prompts(self, questions) -> list[Prompt]:
        """The questions as the model sees them; InputError if one is too long."""
        g = self.settings.generation
        prompts = encode_prompts(questions, self.model.chat, False, g.max_prompt_tokens)
        check_room([prompt.ids for prompt in prompts], g.max_new_tokens, self.model.cfg)
        return prompts


def prepare(loaded: config.Loaded, source, dtype, facts: dict[str, str], *, seeds: Seeds, gym: Gym, signals: Signals,
            out: Path) -> Work:
    """Plan the memory, load the model and announce the run."""
    if loaded.origins["dtype"] == config.OWN_DEFAULT:
        facts = facts | {"dtype": f"{dtype} ({config.OWN_DEFAULT})"}
    loaded = command.with_memory(loaded, source.cfg, dtype, loaded.settings.generation.max_prompt_tokens // 4)
    model = pretrained.load(source, dtype)
    work = Work(loaded=loaded, seeds=seeds, gym=gym, model=model, signals=signals, out=out)
    command.announce(loaded, {"out": str(out), **facts, "questions": work.package})
    return work


# ---- predict ----------------------------------------------------------------------------------------------------------


def predict(work: Work, families: list[Family]) -> int:
    """Predict each family and write all predictions together; returns the exit code."""
    path, weights = work.out / predictions.NAME, predictions.fingerprint(work.model.params)
    if path.exists():
        document, digest = read_predictions(path)
        predicted = check_experiment(document, path, weights=weights, package=work.package, settings=work.settings,
                                     families=[family.text for family in families])
        print(f"{path} was written at {document['written_at']} and stays as it is:", *map(prediction_line, predicted), sep="\n")
    else:
        key = predictions.experiment_key(work.settings, weights, work.package)
        predicted = [load_or_make(work.folder(family) / "prediction.json", key, make=partial(predict_family, work, family),
                                  read=Prediction.from_entry) for family in families]
        about = {"written_at": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
                 "git": command.git_revision(), "model": work.model.name, "weights": weights, "package": work.package}
        digest = write_predictions(work.out, about, work.settings, predicted)
    if all(prediction.refused for prediction in predicted):
        print(f"\n{path}, SHA-256 {digest}; every family is refused, so there is nothing to train")
        return NOTHING_DONE
    print(f"\n{path}, SHA-256 {digest}: keep a copy where nobody can change it, results.json will name it too; to train, start "
          "again with the same settings without --predict-only")
    return 0


def predict_family(work: Work, family: Family) -> dict:
    """One family's entry in predictions.json."""
    audited, scores, unscorable = audit(work.gym, family, work.seeds.predict), {}, 0
    if not audited.refusal:
        questions = make_questions(work.gym, family, work.seeds.predict)
        grader = grader_of(work.gym, questions, work.settings)
        groups = sample_prompts(work.model, work.prompts(questions), grader, work.settings)
        measured = [[measures_of(sample) for sample in group] for group in groups]
        scores = {name: [[measures[name] for measures in group] for group in measured] for name in predictions.MEASURES}
        unscorable = sum(verdict_of(sample) == UNSCORABLE for group in groups for sample in group)
    prediction = Prediction(family=family.text, audit=audited._asdict(), refused=audited.refusal, scores=scores,
                            unscorable=unscorable)
    print(prediction_line(prediction), flush=True)
    return prediction._asdict()


# ---- train and compare ------------------------------------------------------------------------------------------------


class OutOfTime(InputError):
    """MAX_HOURS was over before a family was done."""


def train_and_compare(work: Work, families: list[Family], document: dict, digest: str) -> int:
    """Train and measure each family; writes results.json and the page after each one, and returns the exit code."""
    predicted = check_experiment(document, predictions_path(work.settings), settings=work.settings, package=work.package,
                                 weights=predictions.fingerprint(work.model.params), families=[one.text for one in families])
    every, results, failed = predictions_in(document), read_results(work.out, digest), {}
    print(f"{'predictions':>15}: {document['written_at']}, SHA-256 {digest}", flush=True)
    command.write_config(work.out, work.loaded, work.package)
    deadline = deadline_after(work.settings.trainer.max_hours)
    for family, prediction in zip(families, predicted, strict=True):
        message = f"refused: {with_name(family.text, prediction.refused)}"
        try:
            if not prediction.refused:
                results = results.with_done(train_and_measure(work, family, prediction, digest, deadline))
                message = result_text(results.done[family.text])
        except InputError as error:    # of this family only; the others can still be done
            results, failed[family.text] = results.with_not_done(family.text, str(error)), error
            message = f"not done: {with_name(family.text, error)}"
        write_results(work.out, digest, every, results)
        proof_page.write(work.out, facts_of(work, digest), every, results)
        print(message, flush=True)
    in_order = results.in_order(every)
    print("", rules_text(in_order), "", calibration_text(every, in_order), "", sep="\n")
    return report_rest(work.out, predicted, failed, total=len(in_order))


def train_and_measure(work: Work, family: Family, prediction: Prediction, digest: str, deadline: float) -> dict:
    """One family's part of results.json; OutOfTime if time is over before it is done, InputError if it cannot be done."""
    folder, seeds, settings = work.folder(family), work.seeds, work.settings
    out_of_time = OutOfTime(f"MAX_HOURS={settings.trainer.max_hours:g} reached; the same command goes on")
    if deadline and time.monotonic() >= deadline and not (folder / "before.json").exists():
        raise out_of_time
    held_out, predicted_on = (make_questions(work.gym, family, part) for part in (seeds.evaluate, seeds.predict))
    questions = training_questions(work.gym, family, seeds.train, held_out + predicted_on, seeds.predict)
    grader = grader_of(work.gym, questions, settings)
    held_out_prompts, training_prompts = work.prompts(held_out), work.prompts(questions)

    def held_out_answers(name, adapter):
        return load_or_make(folder / name, digest, read=lambda rows: check_answers(rows, [one.seed for one in held_out]),
                            make=lambda: answer_greedily(work.model, adapter, held_out_prompts, grader, settings))

    answers, arms = {"before": held_out_answers("before.json", None)}, {"trained": settings}
    if settings.proof.control_arm:
        arms["control"] = control_settings(settings)
    for arm, arm_settings in arms.items():
        with ProgressDisplay(settings.trainer.steps) as display:
            print(f"{family.text}, {arm}", flush=True)
            adapter, done = train_family(folder / arm, work.model, training_prompts, grader, arm_settings, signals=work.signals,
                                         display=display, deadline=deadline)
        if not done:
            raise out_of_time
        answers[arm] = held_out_answers(f"{arm}_after.json", adapter)
    return family_result(prediction, answers, {arm: read_rows(folder / arm / "metrics.jsonl") for arm in arms})


def report_rest(out: Path, predicted: list[Prediction], failed: dict[str, InputError], total: int) -> int:
    """Print which families are not done and why; returns the exit code. total: families in results.json."""
    for prediction in predicted:
        if prediction.refused:
            print(f"refused: {with_name(prediction.family, prediction.refused)}")
    for family, error in failed.items():
        print(f"not done: {with_name(family, error)}")
    done = sum(not prediction.refused for prediction in predicted) - len(failed)
    print(f"{done} of {len(predicted)} families done: {out / 'results.json'} holds {total}, report.html is beside it")
    if failed and (done or any(isinstance(error, OutOfTime) for error in failed.values())):
        return SOME_LEFT
    return 0 if done else NOTHING_DONE


def with_name(family: str, why) -> str:
    """A message that begins with the family's name."""
    return str(why) if str(why).startswith(f"{family}:") else f"{family}: {why}"


def facts_of(work: Work, digest: str) -> list[str]:
    """The first lines of the page."""
    t, g = work.settings.trainer, work.settings.generation
    return [f"{work.model.name}; {work.package}; {t.steps} steps of {t.tasks_per_step} questions x {g.group} samples, at most "
            f"{g.max_new_tokens} tokens, learning rate {t.learning_rate:g}; predictions' SHA-256 {digest}"]


if __name__ == "__main__":
    command.run(main, __doc__, flags=("--predict-only", *(f"{flag}=" for flag in FLAGS)), explain=explain_memory)
