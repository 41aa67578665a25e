"""grpo_proof.py as its users start it: what it refuses, and both commands from end to end, tampered with, killed, continued."""

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

import grpo_proof
from rl import graders
from rl.errors import InputError
from rl.settings import NAMES

ROOT = Path(__file__).resolve().parent.parent
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
    said = run(tmp_path, "--predict-only", "--families", "chain_summ,leg_counting", code=2, MODEL=str(tiny_model))

    assert "chain_summ" in said and "chain_sum" in said.replace("chain_summ", "")
    assert not (tmp_path / "predictions.json").exists()


def test_scoring_has_the_time_that_was_set(monkeypatch, tmp_path):
    """SCORE_SECONDS is what the scorers' process is given."""
    class Given(Exception):
        pass

    def gym(seconds):
        raise Given(seconds)
    monkeypatch.setattr(graders, "Gym", gym)
    monkeypatch.setattr(grpo_proof.command, "find_model", lambda settings: (None, None, {}))
    monkeypatch.setattr(sys, "argv", ["grpo_proof.py", "--predict-only", "--out", str(tmp_path)])
    monkeypatch.setenv("SCORE_SECONDS", "7.5")
    with pytest.raises(Given, match="7.5"):
        grpo_proof.main()


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
    process.communicate(timeout=600)
    assert process.returncode == code
    run(out, **options)

    def lasting(folder):
        document = json.loads((folder / "results.json").read_text())
        for family in document["families"]:
            for arm in family["arms"].values():
                arm.pop("minutes")
        return document
    assert lasting(out) == lasting(whole[0])


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
