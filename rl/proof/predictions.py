"""The file of predictions: for which model and settings they were made, and a digest that proves they have not changed since.

    OUT/predictions.json      rule, model, settings, and a forecast and an audit for each family
    OUT/predictions.sha256    its digest in the format of sha256sum: `sha256sum -c predictions.sha256`

Training needs both files. It refuses to start if they disagree, or if its model or settings are not those of the predictions.
Settings in FREE may differ: they affect memory, speed and paths, but no result."""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rl.errors import InputError
from rl.proof import forecast as rule
from rl.proof.forecast import Forecast, make_forecast
from rl.registry import nearest
from rl.run.files import jsonable, write_aside
from rl.settings.declared import FIXED, LEAVES, RETIRED, Settings, text_of, values_of

FORMAT = "predictions 1"
NAME, DIGEST = "predictions.json", "predictions.sha256"
# FAMILIES and CONTROL_ARM: which of the predicted families to train may be chosen later, and neither changes a trained result.
# MODEL is identified by its weights, the questions by package and family; older files name provider and objective differently.
# MAX_PROMPT_TOKENS only rejects prompts. The others affect memory, speed and paths.
FREE_SECTIONS = ("run", "sandbox", "evaluation", "storage", "auth")
FREE = {name for name, setting in (LEAVES | RETIRED).items() if setting.section in FREE_SECTIONS} | {
    "families", "predictions", "control_arm", "max_hours", "remat", "update_samples", "memory_gb", "attention", "logit_chunk",
    "decode_block", "max_prompt_tokens", "model", "tasks", "combine"}
# Required fields of the document beside its format, and of each audit.
DOCUMENT_FIELDS = {"time": str, "model": str, "weights": str, "package": str, "rule": dict, "settings": dict, "families": list}
AUDIT_FIELDS = {"farmable": bool, "policy": str, "floor": int | float}
MEASURES = ("score", "strict", "lenient")


class Prediction(NamedTuple):
    """One family's entry."""

    family: str
    audit: dict           # rl/rewards/gym/questions.py's Audit
    refused: str          # why there is no prediction; "" if there is one
    scores: dict[str, list]    # each of MEASURES for every sample of every task; empty if refused
    unscorable: int = 0   # how many of the samples had no score, each worth 0

    @property
    def forecast(self) -> Forecast:
        """The rule applied to the scores; ValueError for a refused family."""
        return make_forecast(self.scores["score"])

    @classmethod
    def from_entry(cls, entry: dict) -> "Prediction":
        """The prediction in a JSON entry; ValueError, KeyError or TypeError if it is malformed. Older ones lack `unscorable`."""
        prediction = cls(**{name: entry[name] for name in cls._fields if name in entry})
        if not (isinstance(prediction.family, str) and isinstance(prediction.refused, str)
                and isinstance(prediction.unscorable, int)):
            raise ValueError("family and refused must be text, unscorable a count")
        if missing := missing_fields(prediction.audit, AUDIT_FIELDS):
            raise ValueError(f"its audit lacks {missing}")
        for name in () if prediction.refused else MEASURES:
            make_forecast(prediction.scores[name])    # raises if the scores are malformed
        return prediction


def missing_fields(row: dict, fields: dict) -> str:
    """The names of `fields` (name -> type) that are missing in the row, or of another type."""
    return ", ".join(name for name, kind in fields.items() if not isinstance(row, dict) or not isinstance(row.get(name), kind))


# ---- what predictions are bound to ------------------------------------------------------------------------------------


def fingerprint(params: dict) -> str:
    """A digest of some of the weights, enough to tell one model from another whatever its folder is called."""
    digest = hashlib.sha256()
    last = params["layers"][-1]["mlp"]["down_proj"]["weight"]
    for weight in (params["norm"], params["layers"][0]["self_attn"]["q_proj"]["weight"], last):
        digest.update(np.ascontiguousarray(np.asarray(weight, np.float32)))
    return digest.hexdigest()


def rule_constants() -> dict[str, float]:
    """The constants of the rule and of its outcomes."""
    return {"PASS_MIN": rule.PASS_MIN, "PASS_MAX": rule.PASS_MAX, "SIGNAL_MIN": rule.SIGNAL_MIN, "ALPHA": rule.ALPHA,
            "RESOLUTION": rule.RESOLUTION, "RESOLVED_AT": rule.RESOLVED_AT}


def bound_settings(settings: Settings) -> dict:
    """The settings that must be the same in prediction and training; retired ones have the value that is now fixed."""
    return {name: value for name, value in (FIXED | values_of(settings)).items() if name not in FREE}


def experiment_key(settings: Settings, weights: str, package: str) -> str:
    """A digest of all that a prediction is bound to, to recognise one that was made before an interruption."""
    bound = [bound_settings(settings), weights, package, rule_constants()]
    return hashlib.sha256(json.dumps(jsonable(bound)).encode()).hexdigest()


# ---- the files --------------------------------------------------------------------------------------------------------


def write_predictions(out: Path, about: dict, settings: Settings, predictions: list[Prediction]) -> str:
    """Write both files, the digest last; returns the digest. about: time, model, weights, package and other facts."""
    entries = [found._asdict() | ({} if found.refused else {"forecast": found.forecast._asdict()}) for found in predictions]
    document = {"format": FORMAT, **about, "rule": rule_constants(), "settings": bound_settings(settings), "families": entries}
    data = json.dumps(jsonable(document), indent=1, allow_nan=False).encode() + b"\n"
    digest = hashlib.sha256(data).hexdigest()
    write_aside(out / NAME, data)
    write_aside(out / DIGEST, f"{digest}  {NAME}\n".encode())
    return digest


def read_predictions(path: Path) -> tuple[dict, str]:
    """(document, digest) of predictions that are unchanged since they were written; otherwise an InputError."""
    digest_file = path.parent / DIGEST
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: no predictions ({error.strerror}): predict first, with --predict-only, or name them with "
                         "--predictions") from error
    try:
        recorded = digest_file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{digest_file}: no digest to check {path} by ({why}). Restore it; or else remove {path} and start with "
                         "--predict-only, which writes both again from each family's own file (what was trained by the lost "
                         "ones then needs another OUT)") from error
    digest = hashlib.sha256(data).hexdigest()
    if recorded[:1] != [digest]:
        raise InputError(f"{path} has changed since it was written: its SHA-256 is {digest}, {DIGEST} says "
                         f"{' '.join(recorded[:1]) or 'nothing'}. Restore the original; predictions that were changed afterwards "
                         "prove nothing")
    try:
        document = json.loads(data)
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}); predict again into another folder") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{path}: not {FORMAT!r}; predict again into another folder")
    if missing := missing_fields(document, DOCUMENT_FIELDS):
        raise InputError(f"{path}: its digest fits, but it lacks {missing}; predict again into another folder")
    for number, entry in enumerate(document["families"], 1):
        try:
            Prediction.from_entry(entry)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: its digest fits, but its family {number} is not a prediction ({error!r}); predict again "
                             "into another folder") from error
    return document, digest


def predictions_in(document: dict) -> list[Prediction]:
    """All predictions of a document, in order."""
    return [Prediction.from_entry(entry) for entry in document["families"]]


def check_experiment(document: dict, path: Path, *, weights: str, package: str, settings: Settings,
                     families: list[str]) -> list[Prediction]:
    """The predictions for these families; InputError names everything in which this run differs from what was predicted."""
    problems = []
    if document["weights"] != weights:
        problems.append(f"the model: predicted with {document['model']} (weights {document['weights'][:12]}), now the weights "
                        f"are {weights[:12]}")
    if document["package"] != package:
        problems.append(f"the questions: predicted with {document['package']}, now it is {package}")
    if document["rule"] != rule_constants():
        problems.append(f"the rule: predicted with {document['rule']}, now it is {rule_constants()}")
    # Settings newer than the predictions had the effect of their defaults.
    now, recorded = jsonable(bound_settings(settings)), jsonable(bound_settings(Settings())) | document["settings"]
    then = {name: value for name, value in recorded.items() if name not in FREE}
    problems += [f"{name.upper()}={text_of(now.get(name))}: predicted with {text_of(then.get(name))}"
                 for name in sorted(now.keys() | then.keys()) if now.get(name) != then.get(name)]
    predictions = {prediction.family: prediction for prediction in predictions_in(document)}
    problems += [f"{family} was not predicted{nearest(family, predictions)}; predicted were {', '.join(predictions)}"
                 for family in families if family not in predictions]
    if problems:
        raise InputError(f"{path} predicts another experiment: {'; '.join(problems)}. Train what was predicted, or predict again "
                         "into another folder")
    return [predictions[family] for family in families]
