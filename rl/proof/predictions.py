"""The file of predictions: for which model and settings they were made, and a digest that proves they have not changed since.

    OUT/predictions.json      written_at, model, rule, settings, and a forecast and an audit for each family
    OUT/predictions.sha256    its digest in the format of sha256sum: `sha256sum -c predictions.sha256`

Training needs both files. It refuses to start if they disagree, if a forecast is not what its own scores give, or if its model
or settings are not those of the predictions. Settings in FREE may differ: they affect memory, speed and paths, but no result.
Whoever can write to OUT can change both files: the digest is printed, so that it can be kept elsewhere, and results.json names
it."""

import hashlib
import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rl.errors import InputError
from rl.proof import forecast as rule
from rl.proof.forecast import Forecast, make_forecast
from rl.registry import nearest
from rl.run.files import jsonable, write_aside
from rl.settings.declared import FIXED, LEAVES, RETIRED, Settings, text_of, values_of

FORMAT, OLD_FORMAT = "predictions 2", "predictions 1"
NAME, DIGEST = "predictions.json", "predictions.sha256"
# FAMILIES and CONTROL_ARM: which of the predicted families to train may be chosen later, and neither changes a trained result.
# MODEL is identified by its weights, the questions by package and family; older files name provider and objective differently.
# MAX_PROMPT_TOKENS only rejects prompts. The others affect memory, speed and paths.
FREE_SECTIONS = ("run", "sandbox", "evaluation", "storage", "auth")
FREE = {name for name, setting in (LEAVES | RETIRED).items() if setting.section in FREE_SECTIONS} | {
    "families", "predictions", "control_arm", "max_hours", "remat", "update_samples", "memory_gb", "attention", "logit_chunk",
    "decode_block", "max_prompt_tokens", "model", "tasks", "combine"}
# Required fields of the document beside its format, and of each audit.
DOCUMENT_FIELDS = {"written_at": str, "model": str, "weights": str, "package": str, "rule": dict, "settings": dict,
                   "predictions": list}
AUDIT_FIELDS = {"farmable": bool, "policy": str, "floor": int | float}
MEASURES = ("score", "strict", "lenient")
FORECAST_NAMES = {"pass_1": "pass@1", "pass_k": "pass@k", "signal": "grpo_signal"}    # of Forecast's fields in JSON
OLD_NAMES = {"time": "written_at", "families": "predictions"}    # the names in OLD_FORMAT


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

    def entry(self) -> dict:
        """The prediction as predictions.json has it, with its forecast."""
        return {"family": self.family, "refused": self.refused, **({} if self.refused else forecast_entry(self.forecast)),
                "unscorable": self.unscorable, "audit": self.audit, "scores": self.scores}


def forecast_entry(forecast: Forecast) -> dict:
    """A forecast by its names in JSON."""
    return renamed(forecast._asdict(), FORECAST_NAMES)


def renamed(row: dict, names: dict[str, str]) -> dict:
    """The row with some of its keys renamed."""
    return {names.get(name, name): value for name, value in row.items()}


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
    """Write both files, the digest last; returns the digest. about: written_at, model, weights, package and other facts."""
    document = {"format": FORMAT, **about, "rule": rule_constants(), "settings": bound_settings(settings),
                "predictions": [found.entry() for found in predictions]}
    data = json.dumps(jsonable(document), indent=1, allow_nan=False).encode() + b"\n"
    digest = hashlib.sha256(data).hexdigest()
    write_aside(out / NAME, data)
    write_aside(out / DIGEST, f"{digest}  {NAME}\n".encode())
    return digest


def read_predictions(path: Path) -> tuple[dict, str]:
    """(document, digest) of predictions that are unchanged since they were written; otherwise an InputError.

    A document of OLD_FORMAT is returned with today's names."""
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
    if isinstance(document, dict) and document.get("format") == OLD_FORMAT:
        document = renamed(document, OLD_NAMES) | {"format": FORMAT}
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{path}: not {FORMAT!r}; predict again into another folder")
    if missing := missing_fields(document, DOCUMENT_FIELDS):
        raise InputError(f"{path}: its digest fits, but it lacks {missing}; predict again into another folder")
    for number, entry in enumerate(document["predictions"], 1):
        try:
            prediction = Prediction.from_entry(entry)
            # A forecast by another rule is refused by check_experiment.
            wrong = contradictions(prediction, entry, same_rule=document["rule"] == rule_constants())
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: its digest fits, but its family {number} is not a prediction ({error!r}); predict again "
                             "into another folder") from error
        if wrong:
            raise InputError(f"{path}: its digest fits, but it contradicts itself about {prediction.family}: {'; '.join(wrong)}. "
                             "Restore the original; predictions that were changed afterwards prove nothing")
    return document, digest


def contradictions(prediction: Prediction, entry: dict, same_rule: bool = True) -> list[str]:
    """Where an entry of predictions.json says something else than its own scores and audit give."""
    wrong, refusal = [], prediction.audit.get("refusal", prediction.refused)    # older audits have none
    if prediction.refused != refusal:
        wrong.append(f"refused is {prediction.refused!r}, by its audit {refusal!r}")
    if prediction.refused:
        return wrong + ["it is refused, but has scores"] * bool(prediction.scores)
    sizes = {name: [len(row) for row in prediction.scores[name]] for name in MEASURES}
    if len(set(map(str, sizes.values()))) > 1:
        wrong.append(f"{', '.join(MEASURES)} are not of the same samples")
    zeros = sum(score == 0 for row in prediction.scores["score"] for score in row)
    if not 0 <= prediction.unscorable <= zeros:
        wrong.append(f"unscorable is {prediction.unscorable}, but {zeros} samples have score 0")
    stored = renamed(entry.get("forecast", entry), FORECAST_NAMES)    # a part of its own in OLD_FORMAT
    for name, value in forecast_entry(prediction.forecast).items():
        follows = same_rule or name not in ("improves", "reason")
        if follows and not _equal(stored.get(name), value):
            wrong.append(f"{name} is {stored.get(name)!r}, by its scores {value!r}")
    return wrong


def _equal(stored, value):
    if isinstance(value, float):
        return isinstance(stored, int | float) and math.isclose(stored, value, abs_tol=1e-9)
    return stored == value and type(stored) is type(value)


def predictions_in(document: dict) -> list[Prediction]:
    """All predictions of a document, in order."""
    return [Prediction.from_entry(entry) for entry in document["predictions"]]


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
