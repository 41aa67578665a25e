"""grpo_proof.py as its users start it: what it refuses, and both commands from end to end, tampered with, killed, continued."""

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
from rl.proof.predictions import Predicted
from rl.proof.results import result_of
from rl.rewards import setup
from rl.rewards.base import GradedSample
from rl.rewards.gym.client import Family
from rl.rewards.gym.questions import Audit
from rl.run.signals import Interrupted
from rl.settings.declared import NAMES

ROOT = Path(__file__).resolve().parents[2]
# Random weights answer neither, but parts of an answer to the first are scored, so groups differ and there is something to learn.
SHAPE = {"FAMILIES": "propositional_logic,chain_sum", "STEPS": "4", "TASKS_PER_STEP": "2", "GROUP": "4", "MAX_NEW_TOKENS": "16",
         "EVAL_N": "6", "PREDICT_TASKS": "4", "SAVE_EVERY": "2", "LORA_RANK": "2", "LEARNING_RATE": "0.05"}


def start(out, *arguments, **settings):
    clean = {name: value for name, value in os.environ.items() if name.lower() not in NAMES}
    env = clean | SHAPE | {"OUT": str(out)} | settings
    return subprocess.Popen([sys.executable, "grpo_proof.py", *arguments], cwd=ROOT, env=env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def run(out, *arguments, code=0, **settings):
    process = start(out, *arguments, **settings)
    said = process.communicate(timeout=600)[0]
    assert process.returncode == code, said
    return said


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# What is refused

def test_flags_are_settings_by_another_name(monkeypatch):
    """A flag sets its setting, joined to its value or before it, and wins over the variable; the rest are this command's own."""
    monkeypatch.setenv("STEPS", "7")
    found = grpo_proof.settings_of(["--steps=9", "--families", "gcd", "--predict-only", "--lr", "0.5", "--max-new=8"]).settings

    assert (found.trainer.steps, found.trainer.learning_rate, found.generation.max_new_tokens) == (9, 0.5, 8)
    assert found.proof.families == "gcd"
    assert (found.model.model, found.trainer.tasks_per_step, found.run.out) == ("Qwen/Qwen3-0.6B", 4, "results")


@pytest.mark.parametrize("arguments, named", [(["--step=3"], "--step"), (["--out"], "--out needs a value"), (["gcd"], "gcd"),
                                              (["--steps", "many"], "STEPS")])
def test_flags_that_make_no_sense(arguments, named):
    """An unknown flag, one without its value, a stray word, and a value of the wrong type are named."""
    with pytest.raises(InputError, match=named):
        grpo_proof.settings_of(arguments)


def test_settings_that_have_no_meaning_here_are_named_together(monkeypatch):
    """Code's settings, other arms and other measurements are refused at once, with what they were set to."""
    for name, value in {"TASKS": "mbpp", "SHUFFLE_REWARDS": "1", "LORA": "x", "EVAL_EVERY": "5", "OVERLONG": "mask",
                        "COMBINE": "additive", "PROVIDER_KWARGS": "{a: 1}"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError) as caught:
        grpo_proof.settings_of([])

    for part in ("TASKS=mbpp", "SHUFFLE_REWARDS=true", "LORA=x", "EVAL_EVERY=5", "OVERLONG=mask", "COMBINE=additive",
                 "PROVIDER_KWARGS="):
        assert part in str(caught.value), part


def test_all_that_is_wrong_is_said_in_one_go_with_this_commands_defaults(monkeypatch):
    """Settings without a place here stand beside bad values, and the defaults that are named are this command's own."""
    monkeypatch.setenv("STYLE_WEIGHT", "2")
    monkeypatch.setenv("RESUME", "a-run")
    with pytest.raises(InputError) as caught:
        grpo_proof.settings_of(["--steps", "0", "--lr=abc", "--predict-tasks", "many"])

    for part in ("4 problem(s)", "STYLE_WEIGHT=2.0, RESUME=a-run: nothing here", "STEPS=0: ", "default, 100", "default, 5e-05",
                 "default, 24"):
        assert part in str(caught.value), part


def test_the_provider_is_the_families_own(monkeypatch):
    """What is recorded of the run names Reasoning Gym, may be said, and no other provider may."""
    monkeypatch.setenv("TASKS", "reasoning_gym")
    assert grpo_proof.settings_of([]).settings.data.tasks == "reasoning_gym"
    monkeypatch.setenv("TASKS", "lc_easy")
    with pytest.raises(InputError, match="TASKS=lc_easy: nothing here"):
        grpo_proof.settings_of([])


def test_without_predictions_nothing_is_trained(tiny_model, tmp_path):
    """No predictions: exit code 2, the way on, and no file written."""
    said = run(tmp_path / "out", code=2, MODEL=str(tiny_model))

    assert "predict first, with --predict-only" in said and not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made(tiny_model, tmp_path):
    """OUT inside a file: exit code 2 and one line."""
    (tmp_path / "file").write_text("")
    said = run(tmp_path / "file" / "out", "--predict-only", code=2, MODEL=str(tiny_model))

    assert "cannot be made" in said and "Traceback" not in said


def test_an_unknown_family_is_named_with_the_nearest(tiny_model, tmp_path):
    """Before anything is sampled, with exit code 2."""
    said = run(tmp_path / "out", "--predict-only", "--families", "chain_summ,leg_counting", code=2, MODEL=str(tiny_model))

    assert "chain_summ" in said and "chain_sum" in said.replace("chain_summ", "")
    assert not (tmp_path / "out").exists(), "nothing was to be written"


def test_scoring_has_the_time_that_was_set(monkeypatch, tmp_path):
    """SCORE_SECONDS is what the scorers' process is given; where that cannot start, there is no folder yet."""
    class Given(Exception):
        pass

    def gym(seconds):
        raise Given(seconds)
    monkeypatch.setattr(setup, "Gym", gym)
    monkeypatch.setattr(grpo_proof.command, "find_model", lambda settings: (None, None, {}))
    monkeypatch.setattr(sys, "argv", ["grpo_proof.py", "--predict-only", "--out", str(tmp_path / "out")])
    monkeypatch.setenv("SCORE_SECONDS", "7.5")
    with pytest.raises(Given, match="7.5"):
        grpo_proof.main()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("signum, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interruption_says_how_to_go_on(monkeypatch, tmp_path, capsys, signum, code):
    """The exit code is the signal's, and the last line says where things are and what to do."""
    def interrupted(text, gym):
        raise Interrupted(signum)
    monkeypatch.setattr(grpo_proof, "open_judge", lambda settings: nullcontext())
    monkeypatch.setattr(grpo_proof.command, "find_model", lambda settings: (None, None, {}))
    monkeypatch.setattr(grpo_proof, "parse_families", interrupted)
    monkeypatch.setattr(sys, "argv", ["grpo_proof.py", "--predict-only", "--out", str(tmp_path)])

    assert grpo_proof.main() == code
    said = capsys.readouterr().out
    assert signal.Signals(signum).name in said and str(tmp_path) in said and "the same command" in said


# Families one by one, without a model

FLOOR = {"gold": 1.0, "floor": 0.1, "floor_strict": 0.0, "policy": "always '1'", "farmable": False, "problems": []}
SCORES = [[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]


def predicted(family, refused=""):
    return Predicted(family, FLOOR, refused, {} if refused else dict.fromkeys(predictions.MEASURES, SCORES))


def part_of(entry, after=0.0):
    """A family's part of results.json: nothing right before, `after` right afterwards."""
    rows = [[{"seed": seed, "question": "q", "gold": "1", "answer": "1", "score": score, "strict": score, "lenient": score,
              "verdict": "right"} for seed in range(4)] for score in (0.0, after)]
    curve = [{"step": 1, "reward": 0.0, "step_time": 1.0, "frac_reward_zero_std": 0.0, "entropy": 1.0,
              "completions/mean_length": 2.0}]
    return result_of(entry, {"before": rows[0], "trained": rows[1]}, {"trained": curve})


class Alone:
    """grpo_proof.compare in a folder with predictions of families, `bad` of which are refused; training is made up."""

    def __init__(self, monkeypatch, out, names, bad=()):
        monkeypatch.setattr(predictions, "fingerprint", lambda params: "w")
        monkeypatch.setattr(grpo_proof, "tried", self.tried)
        self.out, self.failing, self.after = out, {}, {}
        self.loaded = grpo_proof.settings_of([])
        about = {"time": "2026-01-01", "git": "g", "model": "m", "weights": "w", "package": "reasoning-gym 1"}
        predictions.write(out, about, self.loaded.settings, [predicted(name, "no gold" * (name in bad)) for name in names])

    def tried(self, work, family, entry, digest, deadline):
        if family.text in self.failing:
            raise self.failing[family.text]
        return part_of(entry, self.after.get(family.text, 0.0))

    def run(self, *names):
        """(exit code, results.json, the page)"""
        gym, model = SimpleNamespace(version="1"), SimpleNamespace(params={}, name="m")
        work = grpo_proof.Work(self.loaded, None, gym, model, None, self.out)
        code = grpo_proof.compare(work, [Family(name) for name in names], *predictions.read(self.out / predictions.NAME))
        return code, json.loads((self.out / "results.json").read_text()), (self.out / "report.html").read_text()


def names_of(results):
    return [result["family"] for result in results["families"]]


def test_families_may_be_trained_one_after_another(monkeypatch, tmp_path):
    """A later run with another family keeps what is done, in the order of the predictions; the same family again replaces it."""
    alone = Alone(monkeypatch, tmp_path, ["chain_sum", "gcd", "lcm"])
    alone.run("gcd")
    code, results, page = alone.run("chain_sum")
    assert code == 0 and names_of(results) == ["chain_sum", "gcd"]
    assert all(f">{family}</h2>" in page for family in ("chain_sum", "gcd")) and ">lcm</h2>" not in page

    alone.after["gcd"] = 1.0
    _, results, _ = alone.run("gcd")
    assert names_of(results) == ["chain_sum", "gcd"]
    assert [part["arms"]["trained"]["outcome"]["after"] for part in results["families"]] == [0.0, 1.0]


@pytest.mark.parametrize("change, words", [
    (lambda text: text.replace('"predictions": "', '"predictions": "0'), "came of other predictions"),
    (lambda text: text.replace('"results 1"', '"results 9"'), "came of other predictions"),
    (lambda text: text.replace('"verdict": "undecided"', '"verdict": null'), "cannot be read"),
    (lambda text: text.replace('"outcome"', '"income"'), "cannot be read"), (lambda text: text[:99], "cannot be read"),
    (lambda text: "[]", "cannot be read")])
def test_results_that_are_none_of_these_predictions_stay(monkeypatch, tmp_path, change, words):
    """Another's results.json, or one that cannot be read, is named before anything is trained, and not overwritten."""
    alone = Alone(monkeypatch, tmp_path, ["chain_sum", "gcd"])
    alone.run("gcd")
    path = tmp_path / "results.json"
    path.write_text(change(path.read_text()))
    before = path.read_bytes()
    alone.failing = {"chain_sum": AssertionError("trained")}
    with pytest.raises(InputError, match=words) as caught:
        alone.run("chain_sum")
    assert str(path) in str(caught.value) and path.read_bytes() == before


@pytest.mark.parametrize("asked, failing, code", [
    ("good,also", {}, 0), ("good,bad", {}, 0), ("bad", {}, 2), ("good,also", {"good": "few"}, 1), ("good", {"good": "few"}, 2),
    ("good,bad", {"good": "few"}, 2), ("good,also", {"also": "late"}, 1), ("good", {"good": "late"}, 1),
    ("good,bad,also", {"good": "few", "also": "late"}, 1)])
def test_exit_codes(monkeypatch, tmp_path, capsys, asked, failing, code):
    """0: all done but the refused; 1: some not done, or time was over; 2: none could be done.  Each is told of, everywhere."""
    alone = Alone(monkeypatch, tmp_path, ["good", "also", "bad"], bad=["bad"])
    errors = {"few": InputError("too few questions"), "late": grpo_proof.OutOfTime("MAX_HOURS=1 reached")}
    alone.failing = {family: errors[why] for family, why in failing.items()}
    names = asked.split(",")
    done = [name for name in names if name != "bad" and name not in failing]

    ended, results, page = alone.run(*names)
    said = capsys.readouterr().out
    assert ended == code
    assert results["refused"] == {"bad": "no gold"} and sorted(names_of(results)) == sorted(done)
    assert results["undone"] == {family: str(error) for family, error in alone.failing.items()}
    assert f"{len(done)} of {len(names)} families done" in said and "refused: no gold" in page
    for family, error in alone.failing.items():
        assert f"not done: {family}: {error}" in said and str(error) in page


def test_what_was_left_is_done_later(monkeypatch, tmp_path):
    """Once the family can be done it is no longer among the undone; one that fails now keeps what it came to before."""
    alone = Alone(monkeypatch, tmp_path, ["chain_sum"])
    alone.failing = {"chain_sum": InputError("too few")}
    assert alone.run("chain_sum")[1]["undone"] == {"chain_sum": "too few"}
    alone.failing = {}
    code, results, page = alone.run("chain_sum")
    assert (code, results["undone"], names_of(results)) == (0, {}, ["chain_sum"]) and "too few" not in page
    alone.failing = {"chain_sum": InputError("no more")}
    code, results, _ = alone.run("chain_sum")
    assert (code, results["undone"], names_of(results)) == (2, {"chain_sum": "no more"}, ["chain_sum"])


def test_no_family_begins_after_the_deadline(tmp_path):
    """MAX_HOURS over: a family without answers is not begun at all."""
    settings = grpo_proof.settings_of([])
    work = grpo_proof.Work(settings, None, None, None, None, tmp_path)    # there is nothing to ask a question with
    with pytest.raises(grpo_proof.OutOfTime, match="the same command goes on"):
        grpo_proof.tried(work, Family("gcd"), None, "digest", 1e-9)


def test_samples_that_cannot_be_graded_are_counted(monkeypatch, tmp_path, capsys):
    """A prediction with samples that the grader failed on: each is worth 0, counted in the entry and told of."""
    def sample(verdict, reward, **scores):
        return GradedSample("t", 1, "stop", "t", verdict, reward == 1, reward, None, None, None, None, None, "", (), scores)
    right, timeout = sample("right", 1.0, strict=1.0, lenient=1.0), sample("unscorable", 0.0, strict=0.0, lenient=0.0)
    groups = [[right, sample("internal_error", math.nan)], [timeout, right]]
    for name, value in {"audit": Audit(1.0, 0.0, 0.0, "always ''", False, ()), "usable": [], "grader_of": None}.items():
        monkeypatch.setattr(grpo_proof, name, lambda *_, value=value: value)
    monkeypatch.setattr(grpo_proof, "sampled", lambda *_: groups)
    work = grpo_proof.Work(None, SimpleNamespace(predict=range(2)), None, None, None, tmp_path)
    monkeypatch.setattr(grpo_proof.Work, "settings", None)
    monkeypatch.setattr(grpo_proof.Work, "prompts", lambda self, questions: [])
    entry = grpo_proof.predicted(work, Family("gcd"))

    assert entry["scores"] == dict.fromkeys(predictions.MEASURES, [[1.0, 0.0], [0.0, 1.0]]) and entry["unscorable"] == 2
    assert "2 of 4 samples could not be scored" in capsys.readouterr().out
    assert Predicted.of(entry).forecast.pass_1 == 0.5


def test_predicting_only_refused_families_ends_with_2(monkeypatch, tmp_path, capsys):
    """The predictions are written, and it is said that there is nothing to train."""
    monkeypatch.setattr(predictions, "fingerprint", lambda params: "w")
    monkeypatch.setattr(grpo_proof, "predicted", lambda work, family: predicted(family.text, "no gold")._asdict())
    work = grpo_proof.Work(grpo_proof.settings_of([]), None, SimpleNamespace(version="1"), SimpleNamespace(params={}, name="m"),
                           None, tmp_path)
    assert grpo_proof.predict(work, [Family("gcd")]) == 2
    assert "every family is refused" in capsys.readouterr().out and (tmp_path / "predictions.sha256").exists()
    assert grpo_proof.predict(work, [Family("gcd")]) == 2    # and when they are there already


def test_lost_digests_are_written_again(monkeypatch, tmp_path):
    """predictions.sha256 lost: the error says which file to remove, and with that done both are there again, without sampling."""
    made = []
    monkeypatch.setattr(predictions, "fingerprint", lambda params: "w")
    monkeypatch.setattr(grpo_proof, "predicted", lambda work, family: made.append(1) or predicted(family.text)._asdict())
    work = grpo_proof.Work(grpo_proof.settings_of([]), None, SimpleNamespace(version="1"), SimpleNamespace(params={}, name="m"),
                           None, tmp_path)
    assert grpo_proof.predict(work, [Family("gcd")]) == 0
    (tmp_path / "predictions.sha256").unlink()
    with pytest.raises(InputError, match="remove .*predictions.json and start with --predict-only"):
        grpo_proof.predict(work, [Family("gcd")])
    (tmp_path / "predictions.json").unlink()
    assert grpo_proof.predict(work, [Family("gcd")]) == 0 and made == [1]
    assert predictions.read(tmp_path / "predictions.json")


def test_the_start_says_what_was_set_and_no_more(monkeypatch, tmp_path, capsys, tiny_model):
    """The command's own defaults are nobody's choice, DTYPE's neither; what a flag or a variable says is."""
    monkeypatch.setattr(grpo_proof, "open_judge", lambda settings: nullcontext(SimpleNamespace(version="1", families={})))
    monkeypatch.setattr(grpo_proof, "parse_families", lambda *_: [])
    monkeypatch.setattr(grpo_proof.predictions, "fingerprint", lambda params: "f")
    monkeypatch.setattr(grpo_proof, "predict", lambda work, families: 0)

    def said(**more):
        monkeypatch.setattr(sys, "argv", ["grpo_proof.py", "--predict-only", "--out", str(tmp_path), "--steps", "9"])
        for name, value in more.items():
            monkeypatch.setenv(name, value)
        assert grpo_proof.main() == 0
        return dict(line.strip().split(": ", 1) for line in capsys.readouterr().out.splitlines())

    monkeypatch.setenv("MODEL", str(tiny_model))
    lines = said()
    assert lines["set"] == f"MODEL={tiny_model} STEPS=9 OUT={tmp_path}"
    assert lines["dtype"] == "float32 (this command's default)"
    assert said(DTYPE="float32")["dtype"] == "float32 (DTYPE says so)"


# From end to end

@pytest.fixture(scope="module")
def whole(tiny_model, tmp_path_factory):
    """Both commands, undisturbed: the folder, and what they said."""
    out = tmp_path_factory.mktemp("proof") / "whole"
    said = run(out, "--predict-only", MODEL=str(tiny_model)), run(out, MODEL=str(tiny_model))
    return out, said


@pytest.mark.slow
def test_both_commands(whole):
    """Predictions with their digest, then for each family answers before and after both arms, results and a page."""
    out, (first, second) = whole
    results = json.loads((out / "results.json").read_text())

    assert subprocess.run(["sha256sum", "-c", "predictions.sha256"], cwd=out, capture_output=True).returncode == 0
    digest = (out / "predictions.sha256").read_text().split()[0]
    assert digest in first and digest in second and results["predictions"] == digest
    assert [family["family"] for family in results["families"]] == ["propositional_logic", "chain_sum"]
    for family in results["families"]:
        assert family["verdict"] in ("held", "did not hold", "undecided")
        assert set(family["arms"]) == {"trained", "control"} and set(family["answers"]) == {"before", "trained", "control"}
        assert [row["seed"] for row in family["answers"]["trained"]] == list(range(100_000, 100_006))
        assert [row["step"] for row in family["arms"]["trained"]["curve"]] == [1, 2, 3, 4]
    learnt = results["families"][0]["arms"]["trained"]["curve"]
    assert any(row["grad_norm"] > 0 for row in learnt), "nothing was trained, so nothing is shown"
    assert results["families"][0]["audit"]["farmable"] and "FARMABLE" in second
    assert "<svg" in (out / "report.html").read_text()


@pytest.mark.slow
def test_a_changed_prediction_is_refused(whole, tiny_model, tmp_path):
    """One word of predictions.json changed: exit code 2, and nothing of what was there is touched."""
    out = tmp_path / "out"
    out.mkdir()
    for name in ("predictions.json", "predictions.sha256"):
        (out / name).write_bytes((whole[0] / name).read_bytes())
    text = (out / "predictions.json").read_text()
    (out / "predictions.json").write_text(text.replace('"improves": false', '"improves": true', 1))
    before = files(out)

    assert "not what was predicted" in run(out, code=2, MODEL=str(tiny_model)) and files(out) == before


@pytest.mark.slow
def test_another_experiment_is_refused(whole, tiny_model, tmp_path):
    """Other settings than predicted with, and a family that was not predicted: named together, exit code 2."""
    said = run(tmp_path, "--predictions", str(whole[0] / "predictions.json"), "--steps", "5", "--families", "gcd", code=2,
               MODEL=str(tiny_model))

    assert "STEPS=5: predicted with 4" in said and "gcd was not predicted" in said and not (tmp_path / "results.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kill, code", [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_run_that_was_stopped_goes_on(whole, tiny_model, tmp_path, kill, code):
    """Stopped while it trains, then started again with the same command: the same answers, results and curves."""
    out = tmp_path / "out"
    run(out, "--predict-only", MODEL=str(tiny_model))
    options = {"MODEL": str(tiny_model), "PREDICTIONS": str(whole[0] / "predictions.json")}
    process, said = start(out, **options), []
    while "step 3/" not in "".join(said):
        said.append(process.stdout.readline())
        assert said[-1], "".join(said)
    process.send_signal(kill)
    last = process.communicate(timeout=600)[0]
    assert process.returncode == code and ("the same command" in last) == (kill == signal.SIGINT)
    run(out, **options)

    def lasting(folder):
        document = json.loads((folder / "results.json").read_text())
        for family in document["families"]:
            for arm in family["arms"].values():
                arm.pop("minutes")
        return document
    assert lasting(out) == lasting(whole[0])


@pytest.mark.slow
def test_answers_that_are_no_answers_are_named(whole, tiny_model, tmp_path):
    """before.json under the right digest and of wrong content: exit code 2, the file's name, what to do, and it stays."""
    digest = (whole[0] / "predictions.sha256").read_text().split()[0]
    path = tmp_path / "chain_sum" / "before.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"key": digest, "value": [{"seed": 100_000, "score": None}]}))
    before = path.read_bytes()
    said = run(tmp_path, code=2, MODEL=str(tiny_model), PREDICTIONS=str(whole[0] / "predictions.json"), FAMILIES="chain_sum")

    assert f"{path} cannot be read" in said and "remove it" in said and "Traceback" not in said and path.read_bytes() == before


@pytest.mark.slow
def test_the_control_arm_can_be_left_out(whole, tiny_model, tmp_path):
    """CONTROL_ARM=0 and one of the families: only the trained arm, with the same answers as beside a control arm."""
    options = {"PREDICTIONS": str(whole[0] / "predictions.json"), "CONTROL_ARM": "0", "FAMILIES": "chain_sum"}
    run(tmp_path, MODEL=str(tiny_model), **options)
    (alone,) = json.loads((tmp_path / "results.json").read_text())["families"]
    beside = json.loads((whole[0] / "results.json").read_text())["families"][1]

    assert set(alone["arms"]) == {"trained"} and alone["answers"]["trained"] == beside["answers"]["trained"]


@pytest.mark.slow
def test_the_same_command_again_does_nothing_twice(whole, tiny_model):
    """After the end both commands read what is there: predictions and answers stay byte for byte."""
    out, _ = whole
    before = {name: data for name, data in files(out).items() if "answer" in name.name or name.suffix != ".html"}
    assert "stays as it is" in run(out, "--predict-only", MODEL=str(tiny_model))
    run(out, MODEL=str(tiny_model))
    after = files(out)
    assert all(after[name] == data for name, data in before.items() if name.name != "config.yaml")
