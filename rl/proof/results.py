"""What became of predictions: outcomes with their intervals, the printed tables, results.json.

Training is rewarded with, and judged by, the family's own score of the stripped answer. Strict and lenient accuracy are reported
beside it: a gain in score without a gain in lenient accuracy is a gain in format. Nothing here runs a model."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError
from rl.evaluation.stats import Gain, paired_bootstrap
from rl.proof.forecast import Forecast, Outcome, Tally, outcome_of, resolution, tally, verdict
from rl.proof.predictions import FORECAST_NAMES, MEASURES, Prediction, forecast_entry, missing_fields, renamed
from rl.rewards.gym.client import UNSCORABLE
from rl.run.files import jsonable, write_aside

FORMAT, OLD_FORMAT = "results 2", "results 1"
EXAMPLES = 5
ANSWER_FIELDS = {"seed": int, "question": str, "answer": str, **dict.fromkeys(MEASURES, int | float)}
CURVE = ("step", "reward", "rewards/strict/mean", "rewards/lenient/mean", "frac_reward_zero_std", "grad_norm", "entropy",
         "completions/mean_length")


# ---- files of one family ----------------------------------------------------------------------------------------------


def load_or_make(path: Path, key: str, make: Callable[[], object], read: Callable):
    """read(the value in `path`), which is first made by `make` and written under the key if there is no such file.

    InputError if the file has another key, or if `read` raises ValueError, KeyError or TypeError."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_aside(path, json.dumps({"key": key, "value": jsonable(make())}, allow_nan=False).encode() + b"\n")
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["key"] == key:
            return read(stored["value"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be read ({error!r}): remove it to have it made again") from error
    raise InputError(f"{path} belongs to another model, other settings or other predictions: choose another OUT, or remove that "
                     "folder")


def check_answers(rows: list[dict], seeds: Sequence[int]) -> list[dict]:
    """The rows, unchanged; ValueError unless they are complete answers to the questions of these seeds."""
    for row in rows:
        if (missing := missing_fields(row, ANSWER_FIELDS)) or "gold" not in row:
            raise ValueError(f"an answer lacks {missing or 'gold'}")
        if not all(0 <= row[name] <= 1 for name in MEASURES):
            raise ValueError(f"the answer to seed {row['seed']} has a score out of range")
    if [row["seed"] for row in rows] != list(seeds):
        raise ValueError(f"its {len(rows)} answers are to other questions than the {len(seeds)} of this run")
    return rows


# ---- the result of one family -----------------------------------------------------------------------------------------


def family_result(prediction: Prediction, answers: dict[str, list[dict]], metrics: dict[str, list[dict]]) -> dict:
    """A family's part of results.json, from its answers before training and after each arm, and the arms' metrics rows."""
    before, forecast, arms = answers["before"], prediction.forecast, {}
    for arm, rows in metrics.items():
        sides = {name: [[row[name] for row in side] for side in (before, answers[arm])] for name in MEASURES}
        outcome = outcome_of(*sides["score"])
        arms[arm] = {**outcome._asdict(), "gain": gain_entry(outcome.gain),
                     **{name: gain_part(*sides[name]) for name in MEASURES[1:]},
                     "minutes": math.fsum(row["step_time"] for row in rows) / 60,
                     "reward_curve": [{name: row.get(name) for name in CURVE} for row in rows]}
    trained = outcome_in(arms["trained"])
    result = {"family": prediction.family, "audit": prediction.audit, "forecast": forecast_entry(forecast), "tasks": len(before),
              "held": trained.improved == forecast.improves, "verdict": verdict(forecast.improves, trained), **arms["trained"],
              "answers": answers, "examples": examples_of(answers)}
    if "control" in arms:
        over = gain_part(*([row["score"] for row in answers[arm]] for arm in ("control", "trained")))
        result |= {"control": arms["control"], "over_control": over}
    return result


def arms_of(result: dict) -> dict[str, dict]:
    """The figures of each arm: those of the trained one are the result's own, beside the control arm's if there is one."""
    return {"trained": result} | ({"control": result["control"]} if "control" in result else {})


def gain_part(before: Sequence[float], after: Sequence[float]) -> dict:
    """Both means and the paired gain, as results.json has them."""
    return {"before": math.fsum(before) / len(before), "after": math.fsum(after) / len(after),
            "gain": gain_entry(paired_bootstrap(before, after))}


def gain_entry(gain: Gain) -> dict:
    """A gain as results.json has it."""
    return {"value": gain.value, "ci95": [gain.low, gain.high], "p": gain.p}


def gain_in(part: dict) -> Gain:
    """The gain of a part of results.json."""
    gain = part["gain"]
    low, high = gain["ci95"]
    return Gain(value=gain["value"], low=low, high=high, p=gain["p"])


def outcome_in(arm: dict) -> Outcome:
    """The outcome of an arm of results.json."""
    return Outcome(**{name: arm[name] for name in Outcome._fields} | {"gain": gain_in(arm)})


def examples_of(answers: dict[str, list[dict]]) -> list[dict]:
    """The first questions in seed order, whatever their scores, with their answers."""
    return [{"question": row["question"], "gold": row["gold"], **{side: rows[i]["answer"] for side, rows in answers.items()},
             **{f"{side} score": rows[i]["score"] for side, rows in answers.items()}}
            for i, row in enumerate(answers["before"][:EXAMPLES])]


def unscorable_text(answers: Mapping[str, list[dict]]) -> str:
    """How many answers of each side could not be scored, in words; "" if all could."""
    counts = {side: sum(row.get("verdict") == UNSCORABLE for row in rows) for side, rows in answers.items()}
    return ", ".join(f"{count} of {len(answers[side])} {side}" for side, count in counts.items() if count)


# ---- the results of all families --------------------------------------------------------------------------------------


class Results(NamedTuple):
    """The families that are done and those that are not."""

    done: dict[str, dict]       # family -> its part of results.json
    not_done: dict[str, str]    # family -> why it is not done, or why its last attempt failed

    def with_done(self, result: dict) -> "Results":
        """Also this family's result, which may replace an earlier one."""
        not_done = {name: why for name, why in self.not_done.items() if name != result["family"]}
        return Results(done=self.done | {result["family"]: result}, not_done=not_done)

    def with_not_done(self, family: str, why: str) -> "Results":
        """Also the reason why this family is not done; an earlier result of it stays."""
        return self._replace(not_done=self.not_done | {family: why})

    def in_order(self, predictions: Sequence[Prediction]) -> list[dict]:
        """The results in the order of the predictions."""
        return [self.done[prediction.family] for prediction in predictions if prediction.family in self.done]


def read_results(out: Path, digest: str) -> Results:
    """The results of earlier runs by these predictions; InputError if results.json is of others, or cannot be read."""
    path = out / "results.json"
    if not path.exists():
        return Results({}, {})
    try:
        document = json.loads(path.read_bytes())
        if document["format"] == OLD_FORMAT:
            document = _from_old(document)
        recorded = document["predictions_sha256"]
        results = Results(done={result["family"]: result for result in document["families"]},
                          not_done=dict(document.get("undone", {})))
        for result in results.done.values():    # both raise if a part is malformed
            result_text(result)
            tallies([result])
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise InputError(f"{path} cannot be read ({error!r}): remove it; families that are done are added again by the command "
                         "that trained them") from error
    if document["format"] != FORMAT or recorded != digest:
        raise InputError(f"{path} belongs to other predictions (SHA-256 {recorded}): choose another OUT, or remove it")
    return results


def _from_old(document: dict) -> dict:
    """A document of OLD_FORMAT in today's form."""
    def part(old):
        low, high = old["gain"]["low"], old["gain"]["high"]
        return old | {"gain": {"value": old["gain"]["value"], "ci95": [low, high], "p": old["gain"]["p"]}}

    def arm(old):
        return {**part(old["outcome"]), **{name: part(old[name]) for name in MEASURES[1:]}, "minutes": old["minutes"],
                "reward_curve": old["curve"]}

    families = []
    for old in document["families"]:
        arms = {name: arm(figures) for name, figures in old["arms"].items()}
        result = {name: value for name, value in old.items() if name != "arms"} | arms.pop("trained") | arms
        result["forecast"] = renamed(old["forecast"], FORECAST_NAMES)
        families.append(result | ({"over_control": part(old["over_control"])} if "over_control" in old else {}))
    return renamed(document, {"predictions": "predictions_sha256"}) | {"format": FORMAT, "families": families}


def write_results(out: Path, digest: str, predictions: Sequence[Prediction], results: Results) -> None:
    """Write results.json: every family that is done, why others are not, and how each rule did."""
    done = results.in_order(predictions)
    rules = [line._asdict() | {"right": {"value": line.right.value, "ci95": line.right[1:]}} for line in tallies(done)]
    document = {"format": FORMAT, "predictions_sha256": digest, "families": done,
                "refused": {prediction.family: prediction.refused for prediction in predictions if prediction.refused},
                "undone": results.not_done, "rules": rules}
    write_aside(out / "results.json", json.dumps(jsonable(document), indent=1, allow_nan=False).encode() + b"\n")


def tallies(results: Sequence[dict]) -> list[Tally]:
    """Each rule against the outcomes."""
    fields = {name: field for field, name in FORECAST_NAMES.items()}
    return tally([(Forecast(**renamed(result["forecast"], fields)), outcome_in(result)) for result in results])


class Calibration(NamedTuple):
    """A prediction's figures beside its outcome."""

    family: str
    pass_1: float
    mean: float
    signal: float
    spread: float            # pass@1 (1 - pass@1)
    predicted: str
    gain: Gain | None        # of the score; None if not trained
    control: Gain | None     # the control arm's
    verdict: str             # "-" if not trained


def calibration(predictions: Sequence[Prediction], results: Sequence[dict]) -> list[Calibration]:
    """A line for each predicted family, most signal first; refused families are left out."""
    done, lines = {result["family"]: result for result in results}, []
    for prediction in predictions:
        if not prediction.refused:
            forecast, result = prediction.forecast, done.get(prediction.family)
            gains = {arm: gain_in(part) for arm, part in arms_of(result).items()} if result else {}
            lines.append(Calibration(
                family=prediction.family, pass_1=forecast.pass_1, mean=forecast.mean, signal=forecast.signal,
                spread=forecast.pass_1 * (1 - forecast.pass_1), predicted="improves" if forecast.improves else "does not",
                gain=gains.get("trained"), control=gains.get("control"), verdict=result["verdict"] if result else "-"))
    return sorted(lines, key=lambda line: (-line.signal, -line.mean, line.family))


# ---- as text ----------------------------------------------------------------------------------------------------------


def prediction_line(prediction: Prediction) -> str:
    """One family's prediction."""
    if prediction.refused:
        return f"{prediction.family:<28} refused: {prediction.refused}"
    forecast, lenient = prediction.forecast, [value for row in prediction.scores["lenient"] for value in row]
    predicted = "improves" if forecast.improves else f"does not: {forecast.reason}"
    lost = f"  ({prediction.unscorable} of {len(lenient)} samples could not be scored, worth 0)" if prediction.unscorable else ""
    return (f"{prediction.family:<28} pass@1 {forecast.pass_1:.3f}  pass@k {forecast.pass_k:.3f}  mean {forecast.mean:.3f}  "
            f"signal {forecast.signal:.3f}  lenient {sum(lenient) / len(lenient):.3f}  {predicted}"
            f"{farmable_text(prediction.audit)}{lost}")


def result_text(result: dict) -> str:
    """One family's prediction and outcome."""
    outcome, least = outcome_in(result), resolution(result["tasks"])
    predicted = "improves" if result["forecast"]["improves"] else f"does not ({result['forecast']['reason']})"
    lines = [f"{result['family']}: predicted {predicted}; {result['verdict'].upper()}{farmable_text(result['audit'])}"]
    for arm, part in arms_of(result).items():
        lines += [f"  {arm:<8} {name:<8} {side['before']:.3f} -> {side['after']:.3f}  {gain_text(gain_in(side))}"
                  for name, side in (("score", part), *((name, part[name]) for name in MEASURES[1:]))]
    if "over_control" in result:
        lines.append(f"  trained over control       {gain_text(gain_in(result['over_control']))}")
    if counts := unscorable_text(result["answers"]):
        lines.append(f"  answers that could not be scored, each worth 0: {counts}")
    if not outcome.decided:
        lines.append(f"  undecided: a gain below {least:.3f}, the least that {result['tasks']} tasks can resolve")
    elif abs(outcome.gain.value) < least:
        lines.append(f"  decided: the interval ends below {least:.3f}, the least that {result['tasks']} tasks can resolve")
    return "\n".join(lines)


def farmable_text(audit: dict) -> str:
    """A mark on families that earn much without skill, "" for others."""
    return f" FARMABLE: {audit['policy']} earns {audit['floor']:.2f}" if audit["farmable"] else ""


def gain_text(gain: Gain) -> str:
    """A gain with its interval and p-value."""
    return f"{gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]  p {gain.p:.4f}"


def rules_text(results: Sequence[dict]) -> str:
    """The table of rules over all decided families."""
    lines = [f"{'rule':<24}predicted yes: improved, not   predicted no: improved, not   right"]
    for line in tallies(results):
        share = "-" if math.isnan(line.right.value) else f"{line.right.value:.2f}"
        lines.append(f"{line.rule:<24}{line.yes_improved:>23}, {line.yes_not:<3}{line.no_improved:>25}, {line.no_not:<3}   "
                     f"{share} [{line.right.low:.2f}, {line.right.high:.2f}]")
    undecided = [result["family"] for result in results if result["verdict"] == "undecided"]
    return "\n".join(lines + ([f"undecided, so not counted: {', '.join(undecided)}"] if undecided else []))


def calibration_text(predictions: Sequence[Prediction], results: Sequence[dict]) -> str:
    """The table of `calibration`; "" without predictions."""
    table = calibration(predictions, results)
    width = max([28, *(len(line.family) + 2 for line in table)])
    lines = [f"{'family':<{width}}pass@1   mean  signal  p(1-p)  predicted  gain of the score"] if table else []
    for line in table:
        gain = f"{gain_text(line.gain)}  {line.verdict}" if line.gain else "not trained"
        lines.append(f"{line.family:<{width}}{line.pass_1:>6.3f} {line.mean:>6.3f}  {line.signal:>6.3f}  {line.spread:>6.3f}  "
                     f"{line.predicted:<9}  {gain}")
    return "\n".join(lines)
