"""The file of predictions: what was said, of what model, under which settings, and the proof that it was not changed since.

    OUT/predictions.json      rule, model, settings, a forecast and an audit for each family
    OUT/predictions.sha256    its digest, in sha256sum's own format: `sha256sum -c predictions.sha256`

Training refuses to begin without both, where they disagree, and where it would be of another model or under other settings than
was predicted.  What may differ is listed in FREE and changes no result but memory, speed and where things are written."""

import difflib
import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rl.errors import InputError
from rl.proof import forecast as proof_forecast
from rl.proof.forecast import Forecast
from rl.run.files import jsonable, write_aside
from rl.settings.declared import LEAVES, Settings, text_of, values_of

FORMAT = "predictions 1"
NAME, DIGEST = "predictions.json", "predictions.sha256"
# Which of the predicted families to train may be chosen later, and whether the control arm is: neither changes a trained result.
# The model is told by its weights, the questions by package and family; older files call provider and objective by other names.
# MAX_PROMPT_TOKENS only refuses; where files lie and which variables hold tokens is the user's; the rest is memory and speed.
FREE = {name for name, leaf in LEAVES.items() if leaf.section in ("run", "sandbox", "evaluation", "storage", "auth")} | {
    "families", "predictions", "control_arm", "max_hours", "remat", "update_samples", "memory_gb", "attention", "logit_chunk",
    "decode_block", "max_prompt_tokens", "model", "tasks", "combine"}
# What a file of predictions says beside its format, and an audit of what the tables show.
HOLDS = {"time": str, "model": str, "weights": str, "package": str, "rule": dict, "settings": dict, "families": list}
AUDITED = {"farmable": bool, "policy": str, "floor": int | float}
MEASURES = ("score", "strict", "lenient")


class Predicted(NamedTuple):
    """One family's entry."""

    family: str
    audit: dict           # what gold and garbage earn (audit.py)
    refused: str          # why nothing is predicted; "" otherwise
    scores: dict[str, list]    # MEASURES of each sample of each task; empty where refused
    unscorable: int = 0   # how many of the samples had no score, each worth 0

    @property
    def forecast(self) -> Forecast:
        """What the rule says of the scores; of a family that was refused it says nothing, and this raises."""
        return proof_forecast.forecast(self.scores["score"])

    @classmethod
    def of(cls, entry: dict) -> "Predicted":
        """The entry as it was read back; ValueError, KeyError or TypeError where it is none. Older ones count no `unscorable`."""
        found = cls(**{name: entry[name] for name in cls._fields if name in entry})
        if not isinstance(found.family, str) or not isinstance(found.refused, str) or not isinstance(found.unscorable, int):
            raise ValueError("family and refused have to be text, unscorable a count")
        if lacking := lacks(found.audit, AUDITED):
            raise ValueError(f"its audit lacks {lacking}")
        for name in () if found.refused else MEASURES:
            proof_forecast.forecast(found.scores[name])    # raises where they are no scores
        return found


def lacks(found: dict, holds: dict) -> str:
    """The names of `holds` that are missing, or not of the type that it gives."""
    return ", ".join(name for name, kind in holds.items() if not isinstance(found, dict) or not isinstance(found.get(name), kind))


def fingerprint(params: dict) -> str:
    """A digest of some of the weights, enough to tell one model from another whatever its folder is called."""
    digest = hashlib.sha256()
    last = params["layers"][-1]["mlp"]["down_proj"]["weight"]
    for weight in (params["norm"], params["layers"][0]["self_attn"]["q_proj"]["weight"], last):
        digest.update(np.ascontiguousarray(np.asarray(weight, np.float32)))
    return digest.hexdigest()


def rule_text() -> dict[str, float]:
    """The rule's constants, as they were when the predictions were made."""
    names = ("PASS_MIN", "PASS_MAX", "SIGNAL_MIN", "ALPHA", "RESOLUTION", "RESOLVED_AT")
    return {name: getattr(proof_forecast, name) for name in names}


def measured(settings: Settings) -> dict:
    """The settings that a prediction is bound to."""
    return {name: value for name, value in values_of(settings).items() if name not in FREE}


def key(settings: Settings, weights: str, package: str) -> str:
    """What a prediction is bound to as one word, so that one made before an interruption can be told from another's."""
    return hashlib.sha256(json.dumps(jsonable([measured(settings), weights, package, rule_text()])).encode()).hexdigest()


def write(out: Path, about: dict, settings: Settings, predicted: list[Predicted]) -> str:
    """Write both files, the digest last; returns the digest."""
    entries = [found._asdict() | ({} if found.refused else {"forecast": found.forecast._asdict()}) for found in predicted]
    document = {"format": FORMAT, **about, "rule": rule_text(), "settings": measured(settings), "families": entries}
    data = json.dumps(jsonable(document), indent=1, allow_nan=False).encode() + b"\n"
    digest = hashlib.sha256(data).hexdigest()
    write_aside(out / NAME, data)
    write_aside(out / DIGEST, f"{digest}  {NAME}\n".encode())
    return digest


def read(path: Path) -> tuple[dict, str]:
    """(document, digest) of predictions that stand as they were written; InputError says what is wrong with them."""
    beside = path.parent / DIGEST
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: no predictions ({error.strerror}): predict first, with --predict-only, or name them with "
                         "--predictions") from error
    try:
        recorded = beside.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or error
        raise InputError(f"{beside}: no digest to check {path} by ({why}). Put that file back; or else remove {path} and start "
                         "with --predict-only, which writes both again from what it kept of each family (what was trained by "
                         "the lost ones then needs another OUT)") from error
    digest = hashlib.sha256(data).hexdigest()
    if recorded[:1] != [digest]:
        raise InputError(f"{path} is not what was predicted: its SHA-256 is {digest}, {DIGEST} says "
                         f"{' '.join(recorded[:1]) or 'nothing'}. Put the original back; what was changed afterwards proves "
                         "nothing")
    try:
        document = json.loads(data)
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}); predict anew into another folder") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{path}: not {FORMAT!r}; predict anew into another folder")
    if lacking := lacks(document, HOLDS):
        raise InputError(f"{path}: its digest fits, but it lacks {lacking}; predict anew into another folder")
    for number, entry in enumerate(document["families"], 1):
        try:
            Predicted.of(entry)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: its digest fits, but family {number} of it is no prediction ({error!r}); predict anew "
                             "into another folder") from error
    return document, digest


def entries_of(document: dict) -> list[Predicted]:
    """All its families, in order."""
    return [Predicted.of(entry) for entry in document["families"]]


def check(document: dict, path: Path, weights: str, package: str, settings: Settings, families: list[str]) -> list[Predicted]:
    """The entries of these families; InputError names everything in which this run would not be the one that was predicted."""
    problems = []
    if document["weights"] != weights:
        problems.append(f"the model: predicted was {document['model']} (weights {document['weights'][:12]}), these weights are "
                        f"{weights[:12]}")
    if document["package"] != package:
        problems.append(f"the questions: predicted with {document['package']}, this is {package}")
    if document["rule"] != rule_text():
        problems.append(f"the rule: predicted with {document['rule']}, it is now {rule_text()}")
    # A setting that did not exist when the predictions were made was then what its default does.
    now, recorded = jsonable(measured(settings)), jsonable(measured(Settings())) | document["settings"]
    then = {name: value for name, value in recorded.items() if name not in FREE}
    problems += [f"{name.upper()}={text_of(now.get(name))}: predicted with {text_of(then.get(name))}"
                 for name in sorted(now.keys() | then.keys()) if now.get(name) != then.get(name)]
    entries = {entry.family: entry for entry in entries_of(document)}
    for family in families:
        if family not in entries:
            near = difflib.get_close_matches(family, entries, n=1)
            problems.append(f"{family} was not predicted; predicted were {', '.join(entries)}"
                            + (f" (nearest: {near[0]})" if near else ""))
    if problems:
        raise InputError(f"{path} predicts another experiment: {'; '.join(problems)}. Train what was predicted, or predict anew "
                         "into another folder")
    return [entries[family] for family in families]
