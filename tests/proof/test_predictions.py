"""The file of predictions: it is read back as written, and refused if it was changed or belongs to another experiment."""

import hashlib
import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from rl.errors import InputError
from rl.proof import predictions
from rl.proof.predictions import Prediction, check_experiment, read_predictions, write_predictions
from rl.settings.declared import Settings

AUDIT = {"gold": 1.0, "floor": 0.1, "floor_strict": 0.0, "policy": "'1'", "farmable": False, "problems": []}
SCORES = {"score": [[1.0, 0.0], [0.0, 0.0]], "strict": [[1, 0], [0, 0]], "lenient": [[1, 0], [1, 0]]}
ENTRIES = [Prediction("chain_sum", AUDIT, "", SCORES),
           Prediction("broken", AUDIT, "its own gold answer scores 0.5", {})]
ABOUT = {"written_at": "2026-01-01T00:00:00+00:00", "model": "m", "weights": "abc", "package": "reasoning-gym 1"}


@pytest.fixture
def out(tmp_path):
    write_predictions(tmp_path, ABOUT, Settings(), ENTRIES)
    return tmp_path


def check(out, settings=None, weights="abc", package="reasoning-gym 1", families=("chain_sum",)):
    document, _ = read_predictions(out / predictions.NAME)
    return check_experiment(document, out / predictions.NAME, weights=weights, package=package, settings=settings or Settings(),
                            families=list(families))


def test_they_come_back_as_written(out):
    """The entries are read back unchanged, and the forecast in the file is the one that its scores give."""
    assert check(out, families=("chain_sum", "broken")) == ENTRIES
    document = json.loads((out / predictions.NAME).read_text())
    first, refused = document["predictions"]
    assert document["written_at"] == ABOUT["written_at"] and document["rule"] and document["settings"]
    assert {name: first[name] for name in ("pass@1", "pass@k", "mean", "grpo_signal", "improves", "reason")} == {
        "pass@1": 0.25, "pass@k": 0.5, "mean": 0.25, "grpo_signal": 0.5, "improves": True, "reason": ""}
    assert "improves" not in refused and refused["refused"] == ENTRIES[1].refused


def test_sha256sum_agrees(out):
    """sha256sum accepts the digest file."""
    assert subprocess.run(["sha256sum", "-c", predictions.DIGEST], cwd=out, capture_output=True).returncode == 0


@pytest.mark.parametrize("change", [lambda data: data.replace(b"true", b"false", 1), lambda data: data + b" ", lambda data: b""])
def test_one_changed_byte_is_refused(out, change):
    """Predictions that were changed afterwards prove nothing."""
    path = out / predictions.NAME
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match="has changed since it was written"):
        read_predictions(path)


@pytest.mark.parametrize("missing, way_on", [(predictions.NAME, "predict first, with --predict-only"),
                                             (predictions.DIGEST, "predictions.sha256: no digest .*Restore it; or else "
                                              "remove .*predictions.json and start with --predict-only")])
def test_both_files_are_needed(out, missing, way_on):
    """Neither file may be missing; the errors name different ways on."""
    (out / missing).unlink()
    with pytest.raises(InputError, match=way_on):
        read_predictions(out / predictions.NAME)


def rewritten(out, change):
    """Change predictions.json in place and write a digest that fits."""
    path = out / predictions.NAME
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    (out / predictions.DIGEST).write_text(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {predictions.NAME}\n")
    return path


@pytest.mark.parametrize("change, named", [
    (lambda document: document.pop("weights"), "lacks weights"),
    (lambda document: document.pop("written_at"), "lacks written_at"),
    (lambda document: document.update(settings=[], rule=None), "lacks rule, settings"),
    (lambda document: document["predictions"].append(7), "family 3 is not"),
    (lambda document: document["predictions"][0].pop("scores"), "family 1 is not"),
    (lambda document: document["predictions"][0]["scores"].pop("lenient"), "family 1 is not"),
    (lambda document: document["predictions"][0]["scores"].update(score=[[1, 2]]), "family 1 is not"),
    (lambda document: document["predictions"][1].update(audit=None), "family 2 is not .*its audit lacks farmable")])
def test_malformed_predictions_are_refused(out, change, named):
    """Even if the digest fits; one error names the file, what is wrong with it, and what to do."""
    path = rewritten(out, change)
    with pytest.raises(InputError, match=f"{predictions.NAME}: its digest fits, but .*{named}.*predict again"):
        read_predictions(path)


@pytest.mark.parametrize("change, named", [
    (lambda first: first.update(improves=False, reason="no"), "improves is False, by its scores True; reason is 'no'"),
    (lambda first: first["scores"].update(score=[[0, 0], [0, 0]]), "pass@1 is 0.25, by its scores 0.0; .*improves is True, by"),
    (lambda first: first.update({"pass@1": 0.3}), "pass@1 is 0.3, by its scores 0.25"),
    (lambda first: first.update({"grpo_signal": None}), "grpo_signal is None, by its scores 0.5"),
    (lambda first: first.pop("mean"), "mean is None, by its scores 0.25"),
    (lambda first: first.update(improves=1), "improves is 1, by its scores True"),
    (lambda first: first.update(unscorable=4), "unscorable is 4, but 3 samples have score 0"),
    (lambda first: first["scores"].update(lenient=[[1, 0]]), "not of the same samples"),
    (lambda first: first.update(refused="no gold"), "it is refused, but has scores"),
    (lambda first: first.update(refused="no gold", audit=AUDIT | {"refusal": ""}), "refused is 'no gold', by its audit ''")])
def test_what_does_not_follow_from_the_scores_is_refused(out, change, named):
    """Though the digest fits, since whoever edits the file can write the digest again."""
    path = rewritten(out, lambda document: change(document["predictions"][0]))
    with pytest.raises(InputError, match=f"its digest fits, but it contradicts itself about chain_sum: .*{named}"):
        read_predictions(path)


def test_rounding_in_the_last_place_is_no_contradiction(out):
    """Another version of NumPy may add up in another order."""
    path = rewritten(out, lambda document: document["predictions"][0].update(mean=0.25 + 1e-16, grpo_signal=0.5))
    assert read_predictions(path)


def test_another_experiment_is_refused_with_all_its_differences(out):
    """Model, package, settings and families that differ are named together, with both values and a near match."""
    settings = Settings()
    other = replace(settings, trainer=replace(settings.trainer, steps=7, learning_rate=0.5))
    with pytest.raises(InputError) as caught:
        check(out, other, weights="xyz", package="reasoning-gym 2", families=["chain_sums"])

    message = str(caught.value)
    for part in ("weights are xyz", "reasoning-gym 2", "STEPS=7: predicted with 600", "LEARNING_RATE=0.5",
                 "did you mean chain_sum"):
        assert part in message, part


def test_a_family_far_from_all_has_no_near_match(out):
    """The predicted families are listed, and none of them is suggested."""
    with pytest.raises(InputError, match="xyz was not predicted; predicted were") as caught:
        check(out, families=["xyz"])
    assert "did you mean" not in str(caught.value)


def test_a_rule_that_was_changed_is_refused(out, monkeypatch):
    """Predictions made with other constants are not this rule's, whatever they would have predicted."""
    monkeypatch.setattr(predictions.rule, "SIGNAL_MIN", 0.6)
    with pytest.raises(InputError, match="the rule: predicted with"):
        check(out)


def test_settings_without_effect_on_results_may_differ(out):
    """Memory, speed, paths and the choice among predicted families are free; other settings are not."""
    s = Settings()
    free = replace(s, model=replace(s.model, remat="mlp", model="elsewhere"), run=replace(s.run, out="x", save_every=3),
                   proof=replace(s.proof, families="chain_sum", control_arm=False),
                   generation=replace(s.generation, max_prompt_tokens=9), data=replace(s.data, tasks="reasoning_gym"),
                   storage=replace(s.storage, cache_dir="elsewhere"))
    assert check(out, free)
    for section, name, value in (("proof", "eval_n", 10), ("generation", "group", 4), ("model", "lora_rank", 4)):
        with pytest.raises(InputError, match=name.upper()):
            check(out, replace(s, **{section: replace(getattr(s, section), **{name: value})}))


def test_settings_that_are_newer_than_the_predictions(out):
    """At their defaults they are accepted, at other values they are not."""
    path, s = out / predictions.NAME, Settings()
    document, _ = read_predictions(path)
    del document["settings"]["lora_targets"]
    now = {"weights": "abc", "package": "reasoning-gym 1", "families": ["chain_sum"]}
    assert check_experiment(document, path, settings=s, **now)
    with pytest.raises(InputError, match="LORA_TARGETS=q_proj: predicted with q_proj,"):
        check_experiment(document, path, settings=replace(s, model=replace(s.model, lora_targets="q_proj")), **now)


OLD_FORECAST = {"pass_1": 0.25, "pass_k": 0.5, "mean": 0.25, "signal": 0.5, "improves": True, "reason": ""}


def as_in_the_first_format(document):
    """Other names, and the forecast in a part of its own."""
    document |= {"format": "predictions 1", "time": "2026-01-01T00:00:00"}
    entries = [{name: entry[name] for name in ("family", "audit", "refused", "scores", "unscorable")}
               for entry in document.pop("predictions")]
    document["families"] = [entries[0] | {"forecast": dict(OLD_FORECAST)}, entries[1]]
    del document["written_at"]


def test_the_first_format_is_still_read(out):
    """With today's names in the document, and the same checks."""
    path = rewritten(out, as_in_the_first_format)
    assert check(out, families=("chain_sum", "broken")) == ENTRIES
    assert read_predictions(path)[0]["written_at"] == "2026-01-01T00:00:00"
    rewritten(out, lambda document: document["families"][0]["forecast"].update(improves=False))
    with pytest.raises(InputError, match="chain_sum: improves is False, by its scores True"):
        read_predictions(path)


def test_older_predictions_still_hold(out):
    """They bind prompt length, paths and tokens, name another provider, and do not count unscorable samples."""
    def older(document):
        document["settings"] |= {"max_prompt_tokens": 512, "cache_dir": "there", "hf_token_env": "X", "wandb_key_env": "Y",
                                 "tasks": "lc_easy"}
        for entry in document["predictions"]:
            del entry["unscorable"]
    assert not {"max_prompt_tokens", "cache_dir", "tasks"} & set(predictions.bound_settings(Settings()))
    rewritten(out, older)
    assert check(out, families=("chain_sum", "broken")) == ENTRIES


def test_older_predictions_name_retired_settings(out):
    """Recorded at the value that is now fixed they are accepted, at another value they are not."""
    def older(document, **more):
        document["settings"] |= {"optimizer": "adamw", "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_eps": 1e-8} | more
    rewritten(out, older)
    assert check(out)
    rewritten(out, lambda document: older(document, adam_beta2=0.95))
    with pytest.raises(InputError, match="ADAM_BETA2=0.999: predicted with 0.95"):
        check(out)


def test_older_predictions_name_no_objective(out):
    """They recorded combine as lisp, a default that had no effect on them."""
    s = Settings()
    document, _ = read_predictions(out / predictions.NAME)
    document["settings"]["combine"] = "lisp"
    now = replace(s, objective=replace(s.objective, combine="reasoning_gym"))
    assert check_experiment(document, out, weights="abc", package="reasoning-gym 1", settings=now, families=["chain_sum"])


def test_the_fingerprint_identifies_weights():
    """A changed number in the first or last layer gives another fingerprint; the same numbers in half precision do not."""
    def params():
        layer = {"self_attn": {"q_proj": {"weight": np.ones((2, 2))}}, "mlp": {"down_proj": {"weight": np.ones((2, 2))}}}
        return {"norm": np.ones(2), "layers": [layer, {"mlp": {"down_proj": {"weight": np.ones((2, 2))}}}]}
    first = predictions.fingerprint(params())
    changed = params()
    changed["layers"][1]["mlp"]["down_proj"]["weight"][0, 0] = 2

    assert predictions.fingerprint(changed) != first
    assert predictions.fingerprint({**params(), "norm": np.ones(2, np.float16)}) == first
