"""The file of predictions: written whole, read back, refused when it was touched or is of another experiment."""

import hashlib
import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from rl.errors import InputError
from rl.proof import predictions
from rl.proof.predictions import Predicted
from rl.settings.declared import Settings

AUDIT = {"gold": 1.0, "floor": 0.1, "floor_strict": 0.0, "policy": "'1'", "farmable": False, "problems": []}
SCORES = {"score": [[1.0, 0.0], [0.0, 0.0]], "strict": [[1, 0], [0, 0]], "lenient": [[1, 0], [1, 0]]}
ENTRIES = [Predicted("chain_sum", AUDIT, "", SCORES),
           Predicted("broken", AUDIT, "its own gold answer scores 0.5", {})]
ABOUT = {"time": "2026-01-01T00:00:00", "model": "m", "weights": "abc", "package": "reasoning-gym 1"}


@pytest.fixture
def out(tmp_path):
    predictions.write(tmp_path, ABOUT, Settings(), ENTRIES)
    return tmp_path


def check(out, settings=None, weights="abc", package="reasoning-gym 1", families=("chain_sum",)):
    document, _ = predictions.read(out / predictions.NAME)
    return predictions.check(document, out / predictions.NAME, weights, package, settings or Settings(), list(families))


def test_they_come_back_as_written(out):
    """What is read are the entries, and the forecast that the file shows is the one its scores give."""
    assert check(out, families=("chain_sum", "broken")) == ENTRIES
    stored = json.loads((out / predictions.NAME).read_text())["families"]
    assert stored[0]["forecast"] == ENTRIES[0].forecast._asdict() and "forecast" not in stored[1]


def test_sha256sum_agrees(out):
    """The digest's file is what sha256sum checks."""
    assert subprocess.run(["sha256sum", "-c", predictions.DIGEST], cwd=out, capture_output=True).returncode == 0


@pytest.mark.parametrize("change", [lambda data: data.replace(b"true", b"false", 1), lambda data: data + b" ", lambda data: b""])
def test_one_changed_byte_is_refused(out, change):
    """Predictions that were touched afterwards prove nothing."""
    path = out / predictions.NAME
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match="not what was predicted"):
        predictions.read(path)


@pytest.mark.parametrize("missing, way_on", [(predictions.NAME, "predict first, with --predict-only"),
                                             (predictions.DIGEST, "predictions.sha256: no digest .*Put that file back; or else "
                                              "remove .*predictions.json and start with --predict-only")])
def test_both_files_are_needed(out, missing, way_on):
    """Without the predictions, or without their digest, there is nothing to train by; the way on is not the same."""
    (out / missing).unlink()
    with pytest.raises(InputError, match=way_on):
        predictions.read(out / predictions.NAME)


def rewritten(out, change):
    """predictions.json changed in place by `change`, with a digest that fits."""
    path = out / predictions.NAME
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    (out / predictions.DIGEST).write_text(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {predictions.NAME}\n")
    return path


@pytest.mark.parametrize("change, named", [
    (lambda document: document.pop("weights"), "lacks weights"), (lambda document: document.pop("time"), "lacks time"),
    (lambda document: document.update(settings=[], rule=None), "lacks rule, settings"),
    (lambda document: document["families"].append(7), "family 3 of it"),
    (lambda document: document["families"][0].pop("scores"), "family 1 of it"),
    (lambda document: document["families"][0]["scores"].pop("lenient"), "family 1 of it"),
    (lambda document: document["families"][0]["scores"].update(score=[[1, 2]]), "family 1 of it"),
    (lambda document: document["families"][1].update(audit=None), "family 2 of it .*its audit lacks farmable")])
def test_a_digest_that_fits_is_not_enough(out, change, named):
    """What is no whole file of predictions is refused in one error that names the file, what it lacks, and what to do."""
    path = rewritten(out, change)
    with pytest.raises(InputError, match=f"{predictions.NAME}: its digest fits, but .*{named}.*predict anew"):
        predictions.read(path)


def test_another_experiment_is_refused_with_all_its_differences(out):
    """Model, package, settings and families that differ are named together, with both values and the nearest family."""
    settings = Settings()
    other = replace(settings, trainer=replace(settings.trainer, steps=7, learning_rate=0.5))
    with pytest.raises(InputError) as caught:
        check(out, other, weights="xyz", package="reasoning-gym 2", families=["chain_sums"])

    said = str(caught.value)
    for part in ("weights are xyz", "reasoning-gym 2", "STEPS=7: predicted with 600", "LEARNING_RATE=0.5", "nearest: chain_sum"):
        assert part in said, part


def test_a_family_far_from_all_has_no_nearest(out):
    """What was predicted is listed; a name that has nothing in common with it would only mislead."""
    with pytest.raises(InputError, match="xyz was not predicted; predicted were") as caught:
        check(out, families=["xyz"])
    assert "nearest" not in str(caught.value)


def test_a_rule_that_was_changed_is_refused(out, monkeypatch):
    """Predictions made under other constants are not this rule's."""
    monkeypatch.setattr(predictions.proof_forecast, "SIGNAL_MIN", 0.2)
    with pytest.raises(InputError, match="the rule: predicted with"):
        check(out)


def test_what_changes_no_result_may_differ(out):
    """Memory, speed, places and the choice among predicted families are free; what is measured is not."""
    s = Settings()
    free = replace(s, model=replace(s.model, remat="mlp", model="elsewhere"), run=replace(s.run, out="x", save_every=3),
                   proof=replace(s.proof, families="chain_sum", control_arm=False),
                   generation=replace(s.generation, max_prompt_tokens=9), data=replace(s.data, tasks="reasoning_gym"),
                   storage=replace(s.storage, cache_dir="elsewhere"),
                   auth=replace(s.auth, hf_token_env="MINE", wandb_key_env="MINE"))
    assert check(out, free)
    for section, name, value in (("proof", "eval_n", 10), ("generation", "group", 4), ("model", "lora_rank", 4)):
        with pytest.raises(InputError, match=name.upper()):
            check(out, replace(s, **{section: replace(getattr(s, section), **{name: value})}))


def test_settings_that_are_newer_than_the_predictions(out):
    """At their default they change nothing that was predicted; at another value they do."""
    path, s = out / predictions.NAME, Settings()
    document, _ = predictions.read(path)
    del document["settings"]["lora_targets"]
    asked = document, path, "abc", "reasoning-gym 1"
    assert predictions.check(*asked, s, ["chain_sum"])
    with pytest.raises(InputError, match="LORA_TARGETS=q_proj: predicted with q_proj,"):
        predictions.check(*asked, replace(s, model=replace(s.model, lora_targets="q_proj")), ["chain_sum"])


def test_older_predictions_still_hold(out):
    """Made when prompts' length, places and tokens were bound, another provider was named, and nothing unscorable counted."""
    def older(document):
        document["settings"] |= {"max_prompt_tokens": 512, "cache_dir": "there", "hf_token_env": "X", "wandb_key_env": "Y",
                                 "tasks": "lc_easy"}
        for entry in document["families"]:
            del entry["unscorable"]
    assert not {"max_prompt_tokens", "cache_dir", "tasks"} & set(predictions.measured(Settings()))
    rewritten(out, older)
    assert check(out, families=("chain_sum", "broken")) == ENTRIES


def test_older_predictions_name_no_objective(out):
    """What such runs are paid is the family's score, recorded once as lisp, a default that they never looked at."""
    s = Settings()
    document, _ = predictions.read(out / predictions.NAME)
    document["settings"]["combine"] = "lisp"
    now = replace(s, objective=replace(s.objective, combine="reasoning_gym"))
    assert predictions.check(document, out, "abc", "reasoning-gym 1", now, ["chain_sum"])


def test_the_fingerprint_tells_weights_apart():
    """One changed number in the first or the last layer is another model; the same numbers in half precision are the same."""
    def params():
        layer = {"self_attn": {"q_proj": {"weight": np.ones((2, 2))}}, "mlp": {"down_proj": {"weight": np.ones((2, 2))}}}
        return {"norm": np.ones(2), "layers": [layer, {"mlp": {"down_proj": {"weight": np.ones((2, 2))}}}]}
    first = predictions.fingerprint(params())
    changed = params()
    changed["layers"][1]["mlp"]["down_proj"]["weight"][0, 0] = 2

    assert predictions.fingerprint(changed) != first
    assert predictions.fingerprint({**params(), "norm": np.ones(2, np.float16)}) == first
