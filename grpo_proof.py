"""Can one predict what GRPO will improve?  Write the predictions down first, then train, then look.

    python grpo_proof.py --predict-only --out results     # sample each family, apply the rule, write predictions and their digest
    python grpo_proof.py --out results                    # check the digest, train each family, measure again, compare
    python grpo_proof.py --families chain_sum,gcd --model 0.5B --steps 50 --out other --predict-only

Families are Reasoning Gym's (pip install reasoning-gym==0.1.25), the trainee is Qwen/Qwen3-0.6B unless MODEL says otherwise.
Every flag is a setting by another name: --families FAMILIES, --model MODEL, --steps STEPS, --group GROUP, --prompts-per-step
TASKS_PER_STEP, --max-new MAX_NEW_TOKENS, --eval-n EVAL_N, --predict-tasks PREDICT_TASKS, --lr LEARNING_RATE, --out OUT,
--predictions PREDICTIONS; all other settings of train_grpo.py hold too.  This command's own defaults: STEPS=100 TASKS_PER_STEP=4
LEARNING_RATE=5e-5 MAX_NEW_TOKENS=64 DTYPE=float32 OUT=results.

Per family: GROUP samples of PREDICT_TASKS questions decide the prediction; EVAL_N held-out questions are answered greedily
before and after STEPS steps of GRPO on other questions.  A control arm trains on the same questions with rewards dealt out at
random.

Writes OUT/predictions.json and predictions.sha256 (`sha256sum -c` checks them), then OUT/results.json, report.html, and a folder
a family with its answers, metrics, completions and checkpoints.  Whatever ended it, the same command goes on where it stopped.
FAMILIES may name some of the predicted families now and others later: results.json and the page keep those that are done.  An
answer that cannot be graded is worth 0 and is counted in the tables.

Ends with 0 where every family is done, but for those whose prediction was refused; 1 where some are not, since MAX_HOURS was
over or they cannot be trained (results.json says why); 2 where none could be done, and on bad input; 130, 143 or 129 after
Ctrl-C, SIGTERM or a closed terminal."""

import dataclasses
import datetime
import os
import re
import sys
import time
from functools import partial
from pathlib import Path

from rl import command
from rl.errors import InputError
from rl.models import pretrained
from rl.pages import proof_page
from rl.proof import predictions
from rl.proof.results import (
    answers_of,
    calibration_text,
    earlier,
    kept,
    prediction_line,
    predictions_text,
    result_of,
    result_text,
    results_text,
    write_results,
)
from rl.proof.steps import Seeds, control_of, greedy, measures_of, sampled, seeds_of, train_family, verdict_of
from rl.rewards.gym.client import UNSCORABLE, Gym, parse_families
from rl.rewards.gym.questions import audit, refused, training_questions, usable
from rl.rewards.setup import grader_of, open_judge
from rl.run.files import claimed, read_rows
from rl.run.progress import ProgressDisplay
from rl.run.signals import Interrupted, Signals
from rl.settings import config
from rl.tasks import encode_prompts
from rl.training.device import explain_memory
from rl.training.run import deadline_after
from rl.training.sampler import check_room

FLAGS = {"--families": "FAMILIES", "--model": "MODEL", "--steps": "STEPS", "--group": "GROUP",
         "--prompts-per-step": "TASKS_PER_STEP", "--max-new": "MAX_NEW_TOKENS", "--eval-n": "EVAL_N",
         "--predict-tasks": "PREDICT_TASKS", "--lr": "LEARNING_RATE", "--out": "OUT", "--predictions": "PREDICTIONS"}
OWN = {"model": "Qwen/Qwen3-0.6B", "steps": 100, "tasks_per_step": 4, "learning_rate": 5e-5, "max_new_tokens": 64,
       "dtype": "float32", "out": "results", "recheck_share": 0.0, "tasks": "reasoning_gym", "combine": "reasoning_gym"}
SOME_LEFT, NOTHING_DONE = 1, 2    # exit codes
# What has no meaning here: questions come from families, code is not run, and the arms and measurements are this command's own.
NOT_HERE = ("tasks", "split", "n_tasks", "tasks_file", "task_names", "style_hint", "case_seed", "lora", "dynamic_sampling",
            "shuffle_rewards", "style_weight", "eval_every", "recheck_share", "overlong", "resume", "tracker", "run_name",
            "n_samples", "combine", "combine_kwargs", "reward_kwargs", "provider_kwargs", "plugins")


def main() -> int:
    """Predictions, or what came of them; returns the exit code."""
    loaded = settings_of(sys.argv[1:])
    settings = loaded.settings
    seeds = seeds_of(settings)
    predicting = "--predict-only" in sys.argv[1:]
    source, dtype, facts = command.find_model(settings)
    if loaded.origins["dtype"] == config.OWN_DEFAULT:
        facts["dtype"] = f"{dtype} ({config.OWN_DEFAULT})"
    out = Path(settings.run.out)
    document, digest = ({}, "") if predicting else predictions.read(predictions_file(settings))
    try:
        with Signals() as signals, open_judge(settings) as gym:
            families = parse_families(settings.proof.families, gym)    # before there is a folder, which would stay empty
            command.make_folder(out)
            with claimed(out):
                loaded = command.with_memory(loaded, source.cfg, dtype, settings.generation.max_prompt_tokens // 4)
                work = Work(loaded, seeds, gym, pretrained.load(source, dtype), signals, out)
                command.announce(loaded, {"out": str(out), **facts, "questions": package_of(gym)})
                return predict(work, families) if predicting else compare(work, families, document, digest)
    except Interrupted as stop:
        print(f"{stop}: what was done is kept in {out}; the same command, with the same settings, goes on from there", flush=True)
        return stop.exit_code


def settings_of(arguments: list[str]) -> config.Loaded:
    """The settings that environment and flags give; InputError names all that have no meaning here."""
    environ = dict(os.environ)
    rest = list(arguments)
    while rest:
        name, joined, value = rest.pop(0).partition("=")
        if name in FLAGS:
            if not joined and not rest:
                raise InputError(f"{name} needs a value")
            environ[FLAGS[name]] = value if joined else rest.pop(0)
        elif name != "--predict-only":
            raise InputError(f"{name}: takes {', '.join(FLAGS)}, --predict-only, and settings as environment variables")
    return config.load(environ, training=True, own=OWN, nowhere=NOT_HERE)


def package_of(gym: Gym) -> str:
    """Where the questions and their scores come from."""
    return f"reasoning-gym {gym.version}"


def predictions_file(settings) -> Path:
    """Where the predictions to train by are."""
    return Path(settings.proof.predictions or Path(settings.run.out) / predictions.NAME)


@dataclasses.dataclass(frozen=True)
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

    def folder(self, family) -> Path:
        """Where a family's own files are."""
        return self.out / re.sub(r"[^\w.-]", "_", family.text)

    def prompts(self, questions):
        """The questions as the model sees them; InputError where one is too long."""
        g = self.settings.generation
        made = encode_prompts(questions, self.model.chat, False, g.max_prompt_tokens)
        check_room([prompt.ids for prompt in made], g.max_new_tokens, self.model.cfg)
        return made


# ---- predict ---------------------------------------------------------------------------------------------------------


def predict(work: Work, families) -> int:
    """A prediction for each family, written together once all are made; returns the exit code."""
    path, names = work.out / predictions.NAME, [family.text for family in families]
    weights = predictions.fingerprint(work.model.params)
    if path.exists():
        document, digest = predictions.read(path)
        entries = predictions.check(document, path, weights, package_of(work.gym), work.settings, names)
        print(f"{path} was written at {document['time']} and stays as it is:\n{predictions_text(entries)}")
    else:
        key = predictions.key(work.settings, weights, package_of(work.gym))
        entries = [kept(work.folder(family) / "prediction.json", key, partial(predicted, work, family), predictions.Predicted.of)
                   for family in families]
        about = {"time": datetime.datetime.now().isoformat(timespec="seconds"), "git": command.git_revision(),
                 "model": work.model.name, "weights": weights, "package": package_of(work.gym)}
        digest = predictions.write(work.out, about, work.settings, entries)
    if all(entry.refused for entry in entries):
        print(f"\n{path}, SHA-256 {digest}; every family is refused, so there is none to train")
        return NOTHING_DONE
    print(f"\n{path}, SHA-256 {digest}; train with the same settings without --predict-only")
    return 0


def predicted(work: Work, family) -> dict:
    """One family's entry in predictions.json."""
    found = audit(work.gym, family, work.seeds.predict)
    entry = predictions.Predicted(family.text, found._asdict(), refused(found), {})
    if not entry.refused:
        questions = usable(work.gym, family, work.seeds.predict)
        grader = grader_of(work.gym, questions, work.settings)
        samples = sampled(work.model, work.prompts(questions), grader, work.settings)
        measured = [[measures_of(sample) for sample in group] for group in samples]
        scores = {name: [[one[name] for one in group] for group in measured] for name in predictions.MEASURES}
        lost = sum(verdict_of(sample) == UNSCORABLE for group in samples for sample in group)
        entry = entry._replace(scores=scores, unscorable=lost)
    print(prediction_line(entry), flush=True)
    return entry._asdict()


# ---- train and compare -----------------------------------------------------------------------------------------------


def compare(work: Work, families, document: dict, digest: str) -> int:
    """Every family trained and measured again, results.json and the page written after each; returns the exit code."""
    asked = predictions.check(document, predictions_file(work.settings), predictions.fingerprint(work.model.params),
                              package_of(work.gym), work.settings, [family.text for family in families])
    entries, standing, left = predictions.entries_of(document), earlier(work.out, digest), {}
    print(f"{'predictions':>15}: {document['time']}, SHA-256 {digest}", flush=True)
    command.write_config(work.out, work.loaded, package_of(work.gym))
    deadline = deadline_after(work.settings.trainer.max_hours)
    for family, entry in zip(families, asked, strict=True):
        said = f"refused: {named(family.text, entry.refused)}"
        try:
            if not entry.refused:
                standing = standing.with_done(tried(work, family, entry, digest, deadline))
                said = result_text(standing.done[family.text])
        except InputError as error:    # of this family alone: the others are still to be had
            standing, left[family.text] = standing.with_undone(family.text, str(error)), error
            said = f"not done: {named(family.text, error)}"
        write_results(work.out, digest, entries, standing)
        proof_page.write(work.out, facts_of(work, digest), entries, standing)
        print(said, flush=True)
    results = standing.results(entries)
    print("\n".join(["", results_text(results), "", calibration_text(entries, results), "", *left_text(asked, left)]))
    done = sum(not entry.refused for entry in asked) - len(left)
    print(f"{done} of {len(families)} families done: {work.out / 'results.json'} holds {len(results)}, report.html beside it")
    late = any(isinstance(error, OutOfTime) for error in left.values())
    return SOME_LEFT if left and (done or late) else 0 if done else NOTHING_DONE


def left_text(asked, left: dict[str, InputError]) -> list[str]:
    """A line for each family that is not done."""
    return ([f"refused: {named(entry.family, entry.refused)}" for entry in asked if entry.refused]
            + [f"not done: {named(name, error)}" for name, error in left.items()])


def named(family: str, why) -> str:
    """What is said of a family, beginning with its name."""
    return str(why) if str(why).startswith(f"{family}:") else f"{family}: {why}"


def facts_of(work: Work, digest: str) -> list[str]:
    """What stands at the top of the page."""
    t, g = work.settings.trainer, work.settings.generation
    return [f"{work.model.name}; {package_of(work.gym)}; {t.steps} steps of {t.tasks_per_step} questions x {g.group} samples, at "
            f"most {g.max_new_tokens} tokens, learning rate {t.learning_rate:g}; predictions' SHA-256 {digest}"]


class OutOfTime(InputError):
    """MAX_HOURS were over before a family was done."""


def tried(work: Work, family, entry, digest: str, deadline: float) -> dict:
    """One family's part of results.json; OutOfTime where time is over before it is done, InputError where it cannot be done."""
    folder, seeds = work.folder(family), work.seeds
    late = OutOfTime(f"MAX_HOURS={work.settings.trainer.max_hours:g} reached; the same command goes on")
    if deadline and time.monotonic() >= deadline and not (folder / "before.json").exists():
        raise late
    held_out, predicted_on = (usable(work.gym, family, part) for part in (seeds.evaluate, seeds.predict))
    questions = training_questions(work.gym, family, seeds.train, held_out + predicted_on, seeds.predict)
    grader = grader_of(work.gym, questions, work.settings)
    prompts = work.prompts(held_out)
    answer = partial(greedy, work.model, prompts=prompts, grader=grader, settings=work.settings)
    sound = partial(answers_of, seeds=[question.seed for question in held_out])
    answers = {"before": kept(folder / "before.json", digest, lambda: answer(None), sound)}
    trained_on = work.prompts(questions)
    arms = {"trained": work.settings}
    if work.settings.proof.control_arm:
        arms["control"] = control_of(work.settings)
    for arm, settings in arms.items():
        with ProgressDisplay(settings.trainer.steps) as progress:
            print(f"{family.text}, {arm}", flush=True)
            adapter, done = train_family(folder / arm, work.model, trained_on, grader, settings, work.signals, progress, deadline)
        if not done:
            raise late
        answers[arm] = kept(folder / f"{arm}_after.json", digest, lambda adapter=adapter: answer(adapter), sound)
    return result_of(entry, answers, {arm: read_rows(folder / arm / "metrics.jsonl") for arm in arms})


if __name__ == "__main__":
    command.run(main, __doc__, flags=("--predict-only", *(f"{flag}=" for flag in FLAGS)), explain=explain_memory)
