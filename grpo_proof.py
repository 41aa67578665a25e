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
a family with its answers, metrics, completions and checkpoints.  Whatever ended it, the same command goes on where it stopped."""

import dataclasses
import datetime
import os
import re
import sys
from functools import partial
from pathlib import Path

from rl import command, config, training
from rl.datalog import read_rows
from rl.device import explain_memory
from rl.errors import InputError
from rl.generate import check_room
from rl.graders import grader_of, open_judge
from rl.gym import predictions, proof, proof_page
from rl.gym.audit import audit, refused
from rl.gym.client import Gym
from rl.gym.families import parse_families
from rl.gym.proof_results import (
    MEASURES,
    kept,
    prediction_line,
    predictions_text,
    result_of,
    result_text,
    results_text,
    write_results,
)
from rl.gym.tasks import training_questions, usable
from rl.lock import claimed
from rl.loop import prepare
from rl.models import pretrained
from rl.progress import Progress
from rl.settings import LEAVES, text_of, value_of
from rl.signals import Signals

FLAGS = {"--families": "FAMILIES", "--model": "MODEL", "--steps": "STEPS", "--group": "GROUP",
         "--prompts-per-step": "TASKS_PER_STEP", "--max-new": "MAX_NEW_TOKENS", "--eval-n": "EVAL_N",
         "--predict-tasks": "PREDICT_TASKS", "--lr": "LEARNING_RATE", "--out": "OUT", "--predictions": "PREDICTIONS"}
OWN = {"model": "Qwen/Qwen3-0.6B", "steps": 100, "tasks_per_step": 4, "learning_rate": 5e-5, "max_new_tokens": 64,
       "dtype": "float32", "out": "results", "recheck_share": 0.0, "combine": "reasoning_gym"}
# What has no meaning here: questions come from families, code is not run, and the arms and measurements are this command's own.
NOT_HERE = ("tasks", "split", "n_tasks", "tasks_file", "task_names", "style_hint", "case_seed", "lora", "dynamic_sampling",
            "shuffle_rewards", "style_weight", "eval_every", "recheck_share", "overlong", "resume", "tracker", "run_name",
            "n_samples", "combine", "combine_kwargs", "reward_kwargs", "provider_kwargs", "plugins")


def main() -> int:
    """Predictions, or what came of them; returns the exit code."""
    loaded = settings_of(sys.argv[1:])
    settings = loaded.settings
    seeds = proof.seeds_of(settings)
    predicting = "--predict-only" in sys.argv[1:]
    source, dtype, facts = command.find_model(settings)
    if loaded.origins["dtype"] == config.OWN_DEFAULT:
        facts["dtype"] = f"{dtype} ({config.OWN_DEFAULT})"
    out = Path(settings.run.out)
    if not predicting:
        document, digest = predictions.read(predictions_file(settings))
    command.make_folder(out)
    with Signals() as signals, claimed(out), open_judge(settings) as gym:
        families = parse_families(settings.proof.families, gym)
        loaded = command.with_memory(loaded, source.cfg, dtype, settings.generation.max_prompt_tokens // 4)
        work = Work(loaded, seeds, gym, pretrained.load(source, dtype), signals, out)
        command.announce(loaded, {"out": str(out), **facts, "questions": package_of(gym)})
        if predicting:
            return predict(work, families)
        entries = predictions.check(document, predictions_file(settings), predictions.fingerprint(work.model.params),
                                    package_of(gym), work.settings, [family.text for family in families])
        print(f"{'predictions':>15}: {document['time']}, SHA-256 {digest}", flush=True)
        return compare(work, families, entries, digest)


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
    loaded = config.load(environ, training=True, own=OWN)
    wrong = [f"{name.upper()}={text_of(value_of(loaded.settings, name))}" for name in NOT_HERE
             if value_of(loaded.settings, name) != OWN.get(name, LEAVES[name].default)]
    if wrong:
        raise InputError(f"{', '.join(wrong)}: nothing here for such settings to act on; unset them, or use train_grpo.py")
    return loaded


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
    seeds: proof.Seeds
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
        made = prepare(questions, self.model.chat, False, g.max_prompt_tokens)
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
        entries = [predictions.Predicted.of(kept(work.folder(family) / "prediction.json", key, partial(predicted, work, family)))
                   for family in families]
        about = {"time": datetime.datetime.now().isoformat(timespec="seconds"), "git": command.git_revision(),
                 "model": work.model.name, "weights": weights, "package": package_of(work.gym)}
        digest = predictions.write(work.out, about, work.settings, entries)
    print(f"\n{path}, SHA-256 {digest}; train with the same settings without --predict-only")
    return 0


def predicted(work: Work, family) -> dict:
    """One family's entry in predictions.json."""
    found = audit(work.gym, family, work.seeds.predict)
    why = refused(found)
    scores = {}
    if not why:
        questions = usable(work.gym, family, work.seeds.predict)
        grader = grader_of(work.gym, questions, work.settings)
        samples = proof.sampled(work.model, work.prompts(questions), grader, work.settings)
        scores = {"score": [[s.reward for s in group] for group in samples],
                  **{name: [[s.scores[name] for s in group] for group in samples] for name in MEASURES[1:]}}
    entry = predictions.Predicted(family.text, found._asdict(), why, scores)
    print(prediction_line(entry), flush=True)
    return entry._asdict()


# ---- train and compare -----------------------------------------------------------------------------------------------


def compare(work: Work, families, entries, digest: str) -> int:
    """Every family trained and measured again, results.json and the page written after each; returns the exit code."""
    hours, results = work.settings.trainer.max_hours, []
    deadline = training.deadline_after(hours)
    command.write_config(work.out, work.loaded, package_of(work.gym))
    for family, entry in zip(families, entries, strict=True):
        if entry.refused:
            print(f"{family.text}: refused: {entry.refused}", flush=True)
            continue
        if (found := tried(work, family, entry, digest, deadline)) is None:
            print(f"MAX_HOURS={hours:g} reached in {family.text}; the same command goes on")
            break
        results.append(found)
        write_results(work.out, digest, entries, results)
        proof_page.write(work.out, facts_of(work, digest), entries, results)
        print(result_text(found), flush=True)
    print(f"{results_text(results)}\n\n{len(results)} of {len(families)} families: {work.out / 'results.json'}, report.html")
    return 0


def facts_of(work: Work, digest: str) -> list[str]:
    """What stands at the top of the page."""
    t, g = work.settings.trainer, work.settings.generation
    return [f"{work.model.name}; {package_of(work.gym)}; {t.steps} steps of {t.tasks_per_step} questions x {g.group} samples, at "
            f"most {g.max_new_tokens} tokens, learning rate {t.learning_rate:g}; predictions' SHA-256 {digest}"]


def tried(work: Work, family, entry, digest: str, deadline: float) -> dict | None:
    """One family's part of results.json; None where time ran out before it was done."""
    folder, seeds = work.folder(family), work.seeds
    held_out, predicted_on = (usable(work.gym, family, part) for part in (seeds.evaluate, seeds.predict))
    questions = training_questions(work.gym, family, seeds.train, held_out + predicted_on, seeds.predict)
    grader = grader_of(work.gym, questions, work.settings)
    prompts = work.prompts(held_out)
    answer = partial(proof.greedy, work.model, prompts=prompts, grader=grader, settings=work.settings)
    answers = {"before": kept(folder / "before.json", digest, lambda: answer(None))}
    trained_on = work.prompts(questions)
    arms = {"trained": work.settings}
    if work.settings.proof.control_arm:
        arms["control"] = proof.control_of(work.settings)
    for arm, settings in arms.items():
        with Progress(settings.trainer.steps) as progress:
            print(f"{family.text}, {arm}", flush=True)
            adapter, done = proof.train(folder / arm, work.model, trained_on, grader, settings, work.signals, progress, deadline)
        if not done:
            return None
        answers[arm] = kept(folder / f"{arm}_after.json", digest, lambda adapter=adapter: answer(adapter))
    return result_of(entry, answers, {arm: read_rows(folder / arm / "metrics.jsonl") for arm in arms})


if __name__ == "__main__":
    command.run(main, __doc__, flags=("--predict-only", *(f"{flag}=" for flag in FLAGS)), explain=explain_memory)
