"""grpo_proof.py as a command: what it refuses, and both commands from end to end, tampered with, killed and resumed."""

import datetime
import json
import math
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

import grpo_proof
from rl.errors import InputError
from rl.proof import predictions
from rl.proof.predictions import Prediction
from rl.proof.results import family_result
from rl.rewards.base import GradedSample
from rl.rewards.gym import questions
from rl.rewards.gym.client import Family
from rl.rewards.gym.questions import Audit
from rl.run.signals import Interrupted
from rl.settings.declared import NAMES
from tests import processes

ROOT = Path(__file__).resolve().parents[2]
# Random weights solve neither, but the first gives partial credit, so groups differ and there is something to learn.
SHAPE = {"FAMILIES": "propositional_logic,chain_sum", "STEPS": "4", "TASKS_PER_STEP": "2", "GROUP": "4", "MAX_NEW_TOKENS": "16",
         "EVAL_N": "6", "PREDICT_TASKS": "4", "SAVE_EVERY": "2", "LORA_RANK": "2", "LEARNING_RATE": "0.05"}


def start(out, *arguments, **settings):
    clean = {name: value for name, value in os.environ.items() if name.lower() not in NAMES}
    env = clean | SHAPE | {"OUT": str(out)} | settings
    return processes.start([sys.executable, "grpo_proof.py", *arguments], cwd=ROOT, env=env, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def run(out, *arguments, code=0, **settings):
    process = start(out, *arguments, **settings)
    output = process.communicate(timeout=600)[0]
    assert process.returncode == code, output
    return output


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# What is refused

def test_flags_are_settings_by_another_name(monkeypatch):
    """A flag, with = or a space before its value, overrides the variable; the other defaults are this command's own."""
    monkeypatch.setenv("STEPS", "7")
    arguments = ["--steps=9", "--families", "gcd", "--predict-only", "--lr", "0.5", "--max-new=8"]
    loaded, predict_only = grpo_proof.parse_arguments(arguments)
    found = loaded.settings

    assert predict_only and (found.trainer.steps, found.trainer.learning_rate, found.generation.max_new_tokens) == (9, 0.5, 8)
    assert found.proof.families == "gcd"
    assert (found.model.model, found.trainer.tasks_per_step, found.run.out) == ("Qwen/Qwen3-0.6B", 4, "results")


@pytest.mark.parametrize("arguments, named", [(["--step=3"], "--step"), (["--out"], "--out needs a value"), (["gcd"], "gcd"),
                                              (["--steps", "many"], "STEPS")])
def test_bad_flags_are_named(arguments, named):
    """An unknown flag, one without a value, a stray word, and a value of the wrong type."""
    with pytest.raises(InputError, match=named):
        grpo_proof.parse_arguments(arguments)


def test_settings_without_meaning_here_are_named_together(monkeypatch):
    """Settings for code, other arms and other measurements are refused in one error, with their values."""
    for name, value in {"TASKS": "mbpp", "SHUFFLE_REWARDS": "1", "LORA": "x", "EVAL_EVERY": "5", "OVERLONG": "mask",
                        "COMBINE": "additive", "PROVIDER_KWARGS": "{a: 1}"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError) as caught:
        grpo_proof.parse_arguments([])

    for part in ("TASKS=mbpp", "SHUFFLE_REWARDS=true", "LORA=x", "EVAL_EVERY=5", "OVERLONG=mask", "COMBINE=additive",
                 "PROVIDER_KWARGS="):
        assert part in str(caught.value), part


def test_all_problems_are_named_at_once_with_this_commands_defaults(monkeypatch):
    """One error names settings without meaning here and bad values, and the defaults in it are this command's own."""
    monkeypatch.setenv("STYLE_WEIGHT", "2")
    monkeypatch.setenv("RESUME", "a-run")
    with pytest.raises(InputError) as caught:
        grpo_proof.parse_arguments(["--steps", "0", "--lr=abc", "--predict-tasks", "many"])

    for part in ("4 problem(s)", "STYLE_WEIGHT=2.0, RESUME=a-run: no effect in this command", "STEPS=0: ", "default, 100",
                 "default, 5e-05", "default, 24"):
        assert part in str(caught.value), part


def test_the_provider_is_always_reasoning_gym(monkeypatch):
    """A run's config.yaml names it, so it may be given; no other provider may."""
    monkeypatch.setenv("TASKS", "reasoning_gym")
    assert grpo_proof.parse_arguments([])[0].settings.data.tasks == "reasoning_gym"
    monkeypatch.setenv("TASKS", "lc_easy")
    with pytest.raises(InputError, match="TASKS=lc_easy: no effect in this command"):
        grpo_proof.parse_arguments([])


def test_without_predictions_nothing_is_trained(tiny_model, tmp_path):
    """Exit code 2, the way on, and no file is written."""
    output = run(tmp_path / "out", code=2, MODEL=str(tiny_model))

    assert "predict first, with --predict-only" in output and not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made(tiny_model, tmp_path):
    """With OUT inside a file: exit code 2 and one line."""
    (tmp_path / "file").write_text("")
    output = run(tmp_path / "file" / "out", "--predict-only", code=2, MODEL=str(tiny_model))

    assert "cannot be made" in output and "Traceback" not in output


def test_an_unknown_family_is_named_with_the_nearest(tiny_model, tmp_path):
    """Before anything is sampled, with exit code 2."""
    output = run(tmp_path / "out", "--predict-only", "--families", "chain_summ,leg_counting", code=2, MODEL=str(tiny_model))

    assert "chain_summ" in output and "chain_sum" in output.replace("chain_summ", "")
    assert not (tmp_path / "out").exists(), "nothing was to be written"


def test_scoring_has_the_time_that_was_set(monkeypatch, tmp_path):
    """SCORE_SECONDS reaches the scorers' process; if that cannot start, no folder is made."""
    class Given(Exception):
        pass

    def gym(seconds):
        raise Given(seconds)
    monkeypatch.setattr(questions, "Gym", gym)
    monkeypatch.setattr(grpo_proof.command, "find_model", lambda settings: (None, None, {}))
    monkeypatch.setattr(sys, "argv", ["grpo_proof.py", "--predict-only", "--out", str(tmp_path / "out")])
    monkeypatch.setenv("SCORE_SECONDS", "7.5")
    with pytest.raises(Given, match="7.5"):
        grpo_proof.main()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("signum, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interruption_says_how_to_go_on(monkeypatch, tmp_path, capsys, signum, code):
    """The exit code is the signal's; the last line names the folder and what to do."""
    def interrupted(text, gym):
        raise Interrupted(signum)
    monkeypatch.setattr(grpo_proof, "open_judge", lambda settings: nullcontext())
    monkeypatch.setattr(grpo_proof.command, "find_model", lambda settings: (None, None, {}))
    monkeypatch.setattr(grpo_proof, "parse_families", interrupted)
    monkeypatch.setattr(sys, "argv", ["grpo_proof.py", "--predict-only", "--out", str(tmp_path)])

    assert grpo_proof.main() == code
    output = capsys.readouterr().out
    assert signal.Signals(signum).name in output and str(tmp_path) in output and "the same command" in output


# Families one by one, without a model

FLOOR = {"gold": 1.0, "floor": 0.1, "floor_strict": 0.0, "policy": "always '1'", "farmable": False, "problems": []}
SCORES = [[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]


def prediction(family, refused=""):
    return Prediction(family, FLOOR, refused, {} if refused else dict.fromkeys(predictions.MEASURES, SCORES))


def result_of(predicted, after=0.0):
    """A family's part of results.json: every score 0 before training and `after` afterwards."""
    rows = [[{"seed": seed, "question": "q", "gold": "1", "answer": "1", "score": score, "strict": score, "lenient": score,
              "verdict": "right"} for seed in range(4)] for score in (0.0, after)]
    curve = [{"step": 1, "reward": 0.0, "step_time": 1.0, "frac_reward_zero_std": 0.0, "entropy": 1.0,
              "completions/mean_length": 2.0}]
    return family_result(predicted, {"before": rows[0], "trained": rows[1]}, {"trained": curve})


class WithoutModel:
    """train_and_compare in a folder with predictions of families, `bad` of which are refused; training is faked."""

    def __init__(self, monkeypatch, out, names, bad=()):
        monkeypatch.setattr(predictions, "fingerprint", lambda params: "w")
        monkeypatch.setattr(grpo_proof, "train_and_measure", self.train_and_measure)
        self.out, self.failing, self.after = out, {}, {}
        self.loaded, _ = grpo_proof.parse_arguments([])
        about = {"written_at": "2026-01-01", "git": "g", "model": "m", "weights": "w", "package": "reasoning-gym 1"}
        entries = [prediction(name, "no gold" * (name in bad)) for name in names]
        predictions.write_predictions(out, about, self.loaded.settings, entries)

    def train_and_measure(self, work, family, predicted, digest, deadline):
        if family.text in self.failing:
            raise self.failing[family.text]
        return result_of(predicted, self.after.get(family.text, 0.0))

    def run(self, *names):
        """(exit code, results.json, the page)"""
        gym, model = SimpleNamespace(version="1"), SimpleNamespace(params={}, name="m")
        work = grpo_proof.Work(self.loaded, None, gym, model, None, self.out)
        stored = predictions.read_predictions(self.out / predictions.NAME)
        code = grpo_proof.train_and_compare(work, [Family(name) for name in names], *stored)
        return code, json.loads((self.out / "results.json").read_text()), (self.out / "report.html").read_text()


def work_in(folder):
    """Work without a model, a gym or signals."""
    loaded, _ = grpo_proof.parse_arguments([])
    return grpo_proof.Work(loaded, None, SimpleNamespace(version="1"), SimpleNamespace(params={}, name="m"), None, folder)


def names_of(results):
    return [result["family"] for result in results["families"]]


def test_families_may_be_trained_one_after_another(monkeypatch, tmp_path):
    """A later run with other families keeps the results, in the order of the predictions; the same family replaces its own."""
    trainer = WithoutModel(monkeypatch, tmp_path, ["chain_sum", "gcd", "lcm"])
    trainer.run("gcd")
    code, results, page = trainer.run("chain_sum")
    assert code == 0 and names_of(results) == ["chain_sum", "gcd"]
    assert all(f">{family}</h2>" in page for family in ("chain_sum", "gcd")) and ">lcm</h2>" not in page

    trainer.after["gcd"] = 1.0
    _, results, _ = trainer.run("gcd")
    assert names_of(results) == ["chain_sum", "gcd"]
    assert [part["after"] for part in results["families"]] == [0.0, 1.0]


@pytest.mark.parametrize("change, words", [
    (lambda text: text.replace('"predictions_sha256": "', '"predictions_sha256": "0'), "belongs to other predictions"),
    (lambda text: text.replace('"results 2"', '"results 9"'), "belongs to other predictions"),
    (lambda text: text.replace('"verdict": "undecided"', '"verdict": null'), "cannot be read"),
    (lambda text: text.replace('"ci95"', '"ci90"'), "cannot be read"), (lambda text: text[:99], "cannot be read"),
    (lambda text: "[]", "cannot be read")])
def test_results_of_other_predictions_are_not_overwritten(monkeypatch, tmp_path, change, words):
    """Such a results.json, or one that cannot be read, is an error before anything is trained."""
    trainer = WithoutModel(monkeypatch, tmp_path, ["chain_sum", "gcd"])
    trainer.run("gcd")
    path = tmp_path / "results.json"
    path.write_text(change(path.read_text()))
    before = path.read_bytes()
    trainer.failing = {"chain_sum": AssertionError("trained")}
    with pytest.raises(InputError, match=words) as caught:
        trainer.run("chain_sum")
    assert str(path) in str(caught.value) and path.read_bytes() == before


@pytest.mark.parametrize("asked, failing, code", [
    ("good,also", {}, 0), ("good,bad", {}, 0), ("bad", {}, 2), ("good,also", {"good": "few"}, 1), ("good", {"good": "few"}, 2),
    ("good,bad", {"good": "few"}, 2), ("good,also", {"also": "late"}, 1), ("good", {"good": "late"}, 1),
    ("good,bad,also", {"good": "few", "also": "late"}, 1)])
def test_exit_codes(monkeypatch, tmp_path, capsys, asked, failing, code):
    """0: all done or refused; 1: some not done, or out of time; 2: none could be done. Output, results and page name each."""
    trainer = WithoutModel(monkeypatch, tmp_path, ["good", "also", "bad"], bad=["bad"])
    errors = {"few": InputError("too few questions"), "late": grpo_proof.OutOfTime("MAX_HOURS=1 reached")}
    trainer.failing = {family: errors[why] for family, why in failing.items()}
    names = asked.split(",")
    done = [name for name in names if name != "bad" and name not in failing]

    ended, results, page = trainer.run(*names)
    output = capsys.readouterr().out
    assert ended == code
    assert results["refused"] == {"bad": "no gold"} and sorted(names_of(results)) == sorted(done)
    assert results["undone"] == {family: str(error) for family, error in trainer.failing.items()}
    assert f"{len(done)} of {len(names)} families done" in output and "refused: no gold" in page
    for family, error in trainer.failing.items():
        assert f"not done: {family}: {error}" in output and str(error) in page


def test_what_was_left_is_done_later(monkeypatch, tmp_path):
    """A family that succeeds later is no longer listed as not done; one that fails later keeps its earlier result."""
    trainer = WithoutModel(monkeypatch, tmp_path, ["chain_sum"])
    trainer.failing = {"chain_sum": InputError("too few")}
    assert trainer.run("chain_sum")[1]["undone"] == {"chain_sum": "too few"}
    trainer.failing = {}
    code, results, page = trainer.run("chain_sum")
    assert (code, results["undone"], names_of(results)) == (0, {}, ["chain_sum"]) and "too few" not in page
    trainer.failing = {"chain_sum": InputError("no more")}
    code, results, _ = trainer.run("chain_sum")
    assert (code, results["undone"], names_of(results)) == (2, {"chain_sum": "no more"}, ["chain_sum"])


def test_no_family_begins_after_the_deadline(tmp_path):
    """After MAX_HOURS a family without answers is not begun."""
    loaded, _ = grpo_proof.parse_arguments([])
    work = grpo_proof.Work(loaded, None, None, None, None, tmp_path)    # without a gym it could make no question
    with pytest.raises(grpo_proof.OutOfTime, match="the same command goes on"):
        grpo_proof.train_and_measure(work, Family("gcd"), None, "digest", 1e-9)


def test_samples_that_cannot_be_graded_are_counted(monkeypatch, tmp_path, capsys):
    """Each is worth 0, counted in the prediction, and reported."""
    def sample(verdict, reward, **scores):
        return GradedSample("t", 1, "stop", "t", verdict, reward == 1, reward, None, None, None, None, None, "", (), scores)
    right, timeout = sample("right", 1.0, strict=1.0, lenient=1.0), sample("unscorable", 0.0, strict=0.0, lenient=0.0)
    groups = [[right, sample("internal_error", math.nan)], [timeout, right]]
    for name, value in {"audit": Audit(1.0, 0.0, 0.0, "always ''", False, ()), "make_questions": [], "grader_of": None}.items():
        monkeypatch.setattr(grpo_proof, name, lambda *_, value=value: value)
    monkeypatch.setattr(grpo_proof, "sample_prompts", lambda *_: groups)
    work = grpo_proof.Work(None, SimpleNamespace(predict=range(2)), None, None, None, tmp_path)
    monkeypatch.setattr(grpo_proof.Work, "settings", None)
    monkeypatch.setattr(grpo_proof.Work, "prompts", lambda self, questions: [])
    entry = grpo_proof.predict_family(work, Family("gcd"))

    assert entry["scores"] == dict.fromkeys(predictions.MEASURES, [[1.0, 0.0], [0.0, 1.0]]) and entry["unscorable"] == 2
    assert "2 of 4 samples could not be scored" in capsys.readouterr().out
    assert Prediction.from_entry(entry).forecast.pass_1 == 0.5


def test_predicting_only_refused_families_ends_with_2(monkeypatch, tmp_path, capsys):
    """The predictions are written, and the output says that there is nothing to train."""
    monkeypatch.setattr(predictions, "fingerprint", lambda params: "w")
    monkeypatch.setattr(grpo_proof, "predict_family", lambda work, family: prediction(family.text, "no gold")._asdict())
    work = work_in(tmp_path)
    assert grpo_proof.predict(work, [Family("gcd")]) == 2
    assert "every family is refused" in capsys.readouterr().out and (tmp_path / "predictions.sha256").exists()
    assert grpo_proof.predict(work, [Family("gcd")]) == 2    # also if they already exist


def test_lost_digests_are_written_again(monkeypatch, tmp_path, capsys):
    """The output names the digest; without its file the error names what to remove; then both are made without sampling."""
    made = []
    monkeypatch.setattr(predictions, "fingerprint", lambda params: "w")
    monkeypatch.setattr(grpo_proof, "predict_family", lambda work, family: made.append(1) or prediction(family.text)._asdict())
    work = work_in(tmp_path)
    assert grpo_proof.predict(work, [Family("gcd")]) == 0
    document, digest = predictions.read_predictions(tmp_path / "predictions.json")
    assert datetime.datetime.fromisoformat(document["written_at"]).utcoffset() is not None, "without its time zone"
    assert f"SHA-256 {digest}: keep a copy" in capsys.readouterr().out
    (tmp_path / "predictions.sha256").unlink()
    with pytest.raises(InputError, match="remove .*predictions.json and start with --predict-only"):
        grpo_proof.predict(work, [Family("gcd")])
    (tmp_path / "predictions.json").unlink()
    assert grpo_proof.predict(work, [Family("gcd")]) == 0 and made == [1]
    assert predictions.read_predictions(tmp_path / "predictions.json")


def test_the_start_names_only_what_was_set(monkeypatch, tmp_path, capsys, tiny_model):
    """Flags and variables, but not the command's own defaults."""
    monkeypatch.setattr(grpo_proof, "open_judge", lambda settings: nullcontext(SimpleNamespace(version="1", families={})))
    monkeypatch.setattr(grpo_proof, "parse_families", lambda *_: [])
    monkeypatch.setattr(grpo_proof.predictions, "fingerprint", lambda params: "f")
    monkeypatch.setattr(grpo_proof, "predict", lambda work, families: 0)

    def announced(**more):
        monkeypatch.setattr(sys, "argv", ["grpo_proof.py", "--predict-only", "--out", str(tmp_path), "--steps", "9"])
        for name, value in more.items():
            monkeypatch.setenv(name, value)
        assert grpo_proof.main() == 0
        return dict(line.strip().split(": ", 1) for line in capsys.readouterr().out.splitlines())

    monkeypatch.setenv("MODEL", str(tiny_model))
    lines = announced()
    assert lines["set"] == f"MODEL={tiny_model} STEPS=9 OUT={tmp_path}"
    assert lines["dtype"] == "float32 (this command's default)"
    assert announced(DTYPE="float32")["dtype"] == "float32 (DTYPE says so)"


# From end to end

@pytest.fixture(scope="module")
def whole(tiny_model, tmp_path_factory):
    """Both commands, undisturbed: the folder and their output."""
    out = tmp_path_factory.mktemp("proof") / "whole"
    output = run(out, "--predict-only", MODEL=str(tiny_model)), run(out, MODEL=str(tiny_model))
    return out, output


@pytest.mark.slow
def test_both_commands(whole):
    """Predictions with their digest, then answers before and after both arms for each family, results and a page."""
    out, (first, second) = whole
    results = json.loads((out / "results.json").read_text())

    assert subprocess.run(["sha256sum", "-c", "predictions.sha256"], cwd=out, capture_output=True).returncode == 0
    digest = (out / "predictions.sha256").read_text().split()[0]
    assert digest in first and digest in second and results["predictions_sha256"] == digest
    assert [family["family"] for family in results["families"]] == ["propositional_logic", "chain_sum"]
    for family in results["families"]:
        assert family["verdict"] in ("held", "did not hold", "undecided")
        assert "control" in family and set(family["answers"]) == {"before", "trained", "control"}
        assert [row["seed"] for row in family["answers"]["trained"]] == list(range(100_000, 100_006))
        assert [row["step"] for row in family["reward_curve"]] == [1, 2, 3, 4]
    learnt = results["families"][0]["reward_curve"]
    assert any(row["grad_norm"] > 0 for row in learnt), "no step had a gradient"
    assert results["families"][0]["audit"]["farmable"] and "FARMABLE" in second
    assert "<svg" in (out / "report.html").read_text()


@pytest.mark.slow
def test_a_changed_prediction_is_refused(whole, tiny_model, tmp_path):
    """After one word of predictions.json was changed: exit code 2, and no file is touched."""
    out = tmp_path / "out"
    out.mkdir()
    for name in ("predictions.json", "predictions.sha256"):
        (out / name).write_bytes((whole[0] / name).read_bytes())
    text = (out / "predictions.json").read_text()
    (out / "predictions.json").write_text(text.replace('"improves": false', '"improves": true', 1))
    before = files(out)

    assert "has changed since it was written" in run(out, code=2, MODEL=str(tiny_model)) and files(out) == before


@pytest.mark.slow
def test_another_experiment_is_refused(whole, tiny_model, tmp_path):
    """Settings that differ from the prediction's, and a family that was not predicted: named together, exit code 2."""
    output = run(tmp_path, "--predictions", str(whole[0] / "predictions.json"), "--steps", "5", "--families", "gcd", code=2,
               MODEL=str(tiny_model))

    assert "STEPS=5: predicted with 4" in output and "gcd was not predicted" in output
    assert not (tmp_path / "results.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kill, code", [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_run_that_was_stopped_goes_on(whole, tiny_model, tmp_path, kill, code):
    """Stopped in training and started again with the same command, it gives the same answers, results and curves."""
    out = tmp_path / "out"
    run(out, "--predict-only", MODEL=str(tiny_model))
    options = {"MODEL": str(tiny_model), "PREDICTIONS": str(whole[0] / "predictions.json")}
    process, output = start(out, **options), []
    while "step 3/" not in "".join(output):
        output.append(process.stdout.readline())
        assert output[-1], "".join(output)
    process.send_signal(kill)
    last = process.communicate(timeout=600)[0]
    assert process.returncode == code and ("the same command" in last) == (kill == signal.SIGINT)
    run(out, **options)

    def lasting(folder):
        document = json.loads((folder / "results.json").read_text())
        for family in document["families"]:
            for arm in (family, family["control"]):
                arm.pop("minutes")
        return document
    assert lasting(out) == lasting(whole[0])


@pytest.mark.slow
def test_malformed_answers_are_named(whole, tiny_model, tmp_path):
    """before.json with the right digest and bad content: exit code 2, its name and what to do, and it is left unchanged."""
    digest = (whole[0] / "predictions.sha256").read_text().split()[0]
    path = tmp_path / "chain_sum" / "before.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"key": digest, "value": [{"seed": 100_000, "score": None}]}))
    before = path.read_bytes()
    output = run(tmp_path, code=2, MODEL=str(tiny_model), PREDICTIONS=str(whole[0] / "predictions.json"), FAMILIES="chain_sum")

    assert f"{path} cannot be read" in output and "remove it" in output and "Traceback" not in output
    assert path.read_bytes() == before


@pytest.mark.slow
def test_the_control_arm_can_be_left_out(whole, tiny_model, tmp_path):
    """With CONTROL_ARM=0 and one of the families there is only the trained arm, with the same answers as beside a control arm."""
    options = {"PREDICTIONS": str(whole[0] / "predictions.json"), "CONTROL_ARM": "0", "FAMILIES": "chain_sum"}
    run(tmp_path, MODEL=str(tiny_model), **options)
    (alone,) = json.loads((tmp_path / "results.json").read_text())["families"]
    beside = json.loads((whole[0] / "results.json").read_text())["families"][1]

    assert "control" not in alone and alone["answers"]["trained"] == beside["answers"]["trained"]


@pytest.mark.slow
def test_the_same_command_again_does_nothing_twice(whole, tiny_model):
    """After the end both commands read the files that exist: predictions and answers stay byte for byte."""
    out, _ = whole
    before = {name: data for name, data in files(out).items() if "answer" in name.name or name.suffix != ".html"}
    assert "stays as it is" in run(out, "--predict-only", MODEL=str(tiny_model))
    run(out, MODEL=str(tiny_model))
    after = files(out)
    assert all(after[name] == data for name, data in before.items() if name.name != "config.yaml")
