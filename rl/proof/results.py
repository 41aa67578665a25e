"""What came of predictions: outcomes with their intervals, the tables, results.json.

A family's own score, stripped of white space, is what was trained on and what is compared; strict and lenient accuracy stand
beside it, since a gain in the first that the last does not share is a gain in format.  Nothing here runs a model."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError
from rl.evaluation.stats import Gain, paired_bootstrap
from rl.proof import forecast
from rl.proof.forecast import Forecast, Outcome, outcome, resolution, tally
from rl.proof.predictions import MEASURES, Predicted, lacks
from rl.rewards.gym.client import UNSCORABLE
from rl.run.files import jsonable, write_aside

FORMAT = "results 1"
EXAMPLES = 5
ANSWER = {"seed": int, "question": str, "answer": str, **dict.fromkeys(MEASURES, int | float)}    # what each answer holds
CURVE = ("step", "reward", "rewards/strict/mean", "rewards/lenient/mean", "frac_reward_zero_std", "grad_norm", "entropy",
         "completions/mean_length")


def kept(path: Path, key: str, make: Callable[[], object], read: Callable):
    """What `path` holds under this key as `read` reads it, or what `make` makes, written there.

    InputError where another experiment wrote it, and where `read` raises ValueError, KeyError or TypeError: it cannot be read."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_aside(path, json.dumps({"key": key, "value": jsonable(make())}, allow_nan=False).encode() + b"\n")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["key"] == key:
            return read(found["value"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be read ({error!r}): remove it to have it made again") from error
    raise InputError(f"{path} belongs to another model, other settings or other predictions: choose another OUT, or remove that "
                     "folder")


def answers_of(rows: list[dict], seeds: Sequence[int]) -> list[dict]:
    """The rows, which are answers to the questions of these seeds; ValueError where they are not, or lack what is compared."""
    for row in rows:
        if (lacking := lacks(row, ANSWER)) or "gold" not in row:
            raise ValueError(f"an answer lacks {lacking or 'gold'}")
        if not all(0 <= row[name] <= 1 for name in MEASURES):
            raise ValueError(f"the answer to seed {row['seed']} has a score that is none")
    if [row["seed"] for row in rows] != list(seeds):
        raise ValueError(f"it answers {len(rows)} other questions than the {len(seeds)} that are asked")
    return rows


# ---- one family ------------------------------------------------------------------------------------------------------


def result_of(entry: Predicted, answers: dict[str, list[dict]], rows: dict[str, list[dict]]) -> dict:
    """A family's part of results.json, from its answers before and after each arm and the arms' metrics rows."""
    before, found = answers["before"], {}
    for arm in rows:
        sides = {name: [[row[name] for row in side] for side in (before, answers[arm])] for name in MEASURES}
        came_of_it = outcome(*sides["score"])
        found[arm] = {"outcome": came_of_it._asdict() | {"gain": came_of_it.gain._asdict()},
                      **{name: gain_of(*sides[name]) for name in MEASURES[1:]},
                      "minutes": math.fsum(row["step_time"] for row in rows[arm]) / 60,
                      "curve": [{name: row.get(name) for name in CURVE} for row in rows[arm]]}
    result = {"family": entry.family, "audit": entry.audit, "forecast": entry.forecast._asdict(), "tasks": len(before),
              "held": found["trained"]["outcome"]["improved"] == entry.forecast.improves,
              "arms": found, "verdict": forecast.verdict(entry.forecast.improves, outcome_of(found["trained"])),
              "answers": answers, "examples": examples_of(answers)}
    if "control" in found:
        result["over_control"] = gain_of(*([row["score"] for row in answers[arm]] for arm in ("control", "trained")))
    return result


def gain_of(before: Sequence[float], after: Sequence[float]) -> dict:
    """Means and the paired gain."""
    return {"before": math.fsum(before) / len(before), "after": math.fsum(after) / len(after),
            "gain": paired_bootstrap(before, after)._asdict()}


def outcome_of(arm: dict) -> Outcome:
    """The outcome of an arm of results.json."""
    return Outcome(**arm["outcome"] | {"gain": Gain(**arm["outcome"]["gain"])})


def examples_of(answers: dict[str, list[dict]]) -> list[dict]:
    """The first questions in the order of their seeds, whatever became of them."""
    return [{"question": row["question"], "gold": row["gold"], **{side: rows[i]["answer"] for side, rows in answers.items()},
             **{f"{side} score": rows[i]["score"] for side, rows in answers.items()}}
            for i, row in enumerate(answers["before"][:EXAMPLES])]


def unscorable(answers: Mapping[str, list[dict]]) -> str:
    """How many answers of each side had no score and were worth 0, in words; "" where all had one."""
    counts = {side: sum(row.get("verdict") == UNSCORABLE for row in rows) for side, rows in answers.items()}
    return ", ".join(f"{count} of {len(answers[side])} {side}" for side, count in counts.items() if count)


# ---- all families ----------------------------------------------------------------------------------------------------


class Standing(NamedTuple):
    """How far all families have come."""

    done: dict[str, dict]    # family -> its part of results.json
    undone: dict[str, str]   # family -> why it has none, or none of what was asked for last

    def with_done(self, result: dict) -> "Standing":
        """The same with this family's part, which may take the place of an earlier one."""
        undone = {name: why for name, why in self.undone.items() if name != result["family"]}
        return Standing(self.done | {result["family"]: result}, undone)

    def with_undone(self, family: str, why: str) -> "Standing":
        """The same with the reason for which the family is not done; an earlier part of it stays."""
        return self._replace(undone=self.undone | {family: why})

    def results(self, entries: Sequence[Predicted]) -> list[dict]:
        """The parts of results.json, in the order of the predictions."""
        return [self.done[entry.family] for entry in entries if entry.family in self.done]


def earlier(out: Path, digest: str) -> Standing:
    """What results.json holds of earlier runs by these predictions; InputError where it is of others, or cannot be read."""
    path = out / "results.json"
    if not path.exists():
        return Standing({}, {})
    try:
        document = json.loads(path.read_bytes())
        digest_there = document["predictions"]
        found = Standing({result["family"]: result for result in document["families"]}, dict(document.get("undone", {})))
        text_of_all(list(found.done.values()))    # raises where a part is none of ours
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise InputError(f"{path} cannot be read ({error!r}): remove it; a family that is done is told of again by the command "
                         "that trained it") from error
    if document.get("format") != FORMAT or digest_there != digest:
        raise InputError(f"{path} came of other predictions (SHA-256 {digest_there}): choose another OUT, or remove it")
    return found


def write_results(out: Path, digest: str, entries: Sequence[Predicted], standing: Standing) -> None:
    """results.json: every family that is done, why others are not, and how each rule did."""
    results = standing.results(entries)
    document = {"format": FORMAT, "predictions": digest, "families": results,
                "refused": {entry.family: entry.refused for entry in entries if entry.refused}, "undone": standing.undone,
                "rules": [line._asdict() | {"right": line.right._asdict()} for line in tallies(results)]}
    write_aside(out / "results.json", json.dumps(jsonable(document), indent=1, allow_nan=False).encode() + b"\n")


def tallies(results: Sequence[dict]):
    """Each rule against the outcomes."""
    return tally([(Forecast(**result["forecast"]), outcome_of(result["arms"]["trained"])) for result in results])


# ---- as text ---------------------------------------------------------------------------------------------------------


def farmable(audit: dict) -> str:
    """The mark of a family whose score can be had without solving it."""
    return f" FARMABLE: {audit['policy']} earns {audit['floor']:.2f}" if audit["farmable"] else ""


def prediction_line(entry: Predicted) -> str:
    """One family's prediction."""
    if entry.refused:
        return f"{entry.family:<28} refused: {entry.refused}"
    found, lenient = entry.forecast, [value for row in entry.scores["lenient"] for value in row]
    says = "improves" if found.improves else f"does not: {found.reason}"
    lost = f"  ({entry.unscorable} of {len(lenient)} samples could not be scored, worth 0)" if entry.unscorable else ""
    return (f"{entry.family:<28} pass@1 {found.pass_1:.3f}  pass@k {found.pass_k:.3f}  mean {found.mean:.3f}  "
            f"signal {found.signal:.3f}  lenient {sum(lenient) / len(lenient):.3f}  {says}{farmable(entry.audit)}{lost}")


def predictions_text(entries: Sequence[Predicted]) -> str:
    """All predictions, a line each."""
    return "\n".join(map(prediction_line, entries))


def result_text(result: dict) -> str:
    """What came of one family's prediction."""
    found, least, lines = outcome_of(result["arms"]["trained"]), resolution(result["tasks"]), []
    said = "improves" if result["forecast"]["improves"] else f"does not ({result['forecast']['reason']})"
    lines.append(f"{result['family']}: predicted {said}; {result['verdict'].upper()}{farmable(result['audit'])}")
    for arm, part in result["arms"].items():
        lines += [f"  {arm:<8} {name:<8} {side['before']:.3f} -> {side['after']:.3f}  {gain_text(side['gain'])}"
                  for name, side in (("score", part["outcome"]), *((name, part[name]) for name in MEASURES[1:]))]
    if "over_control" in result:
        lines.append(f"  trained over control       {gain_text(result['over_control']['gain'])}")
    if counts := unscorable(result["answers"]):
        lines.append(f"  answers that could not be scored, each worth 0: {counts}")
    if not found.decided:
        lines.append(f"  undecided: a difference under {least:.3f} on {result['tasks']} tasks")
    elif abs(found.gain.value) < least:
        lines.append(f"  decided: the interval ends below {least:.3f}, the least that {result['tasks']} tasks can tell")
    return "\n".join(lines)


def text_of_all(results: Sequence[dict]) -> str:
    """What came of each prediction, and how each rule did over them."""
    return "\n".join([*map(result_text, results), results_text(results)])


def gain_text(gain: dict) -> str:
    """A gain with its interval."""
    return f"{gain['value']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]  p {gain['p']:.4f}"


def results_text(results: Sequence[dict]) -> str:
    """How each rule did over all families that are decided."""
    lines = ["", f"{'rule':<24}said yes: improved, not   said no: improved, not   right"]
    for line in tallies(results):
        share = "-" if math.isnan(line.right.value) else f"{line.right.value:.2f}"
        lines.append(f"{line.rule:<24}{line.yes_improved:>18}, {line.yes_not:<3}{line.no_improved:>21}, {line.no_not:<3}   "
                     f"{share} [{line.right.low:.2f}, {line.right.high:.2f}]")
    undecided = [result["family"] for result in results if result["verdict"] == "undecided"]
    return "\n".join(lines + ([f"undecided, counted nowhere: {', '.join(undecided)}"] if undecided else []))


class Calibration(NamedTuple):
    """A prediction's figures beside what came of it."""

    family: str
    pass_1: float
    mean: float
    signal: float
    spread: float            # pass@1 (1 - pass@1)
    said: str
    gain: dict | None        # of the score; None where it was not trained
    control: dict | None     # the control arm's
    verdict: str             # "-" where it was not trained


def calibration(entries: Sequence[Predicted], results: Sequence[dict]) -> list[Calibration]:
    """A line for each predicted family, those with most signal first; refused families have no figures."""
    done, lines = {result["family"]: result for result in results}, []
    for entry in entries:
        if not entry.refused:
            found, result = entry.forecast, done.get(entry.family, {"arms": {}, "verdict": "-"})
            gains = [result["arms"][arm]["outcome"]["gain"] if arm in result["arms"] else None for arm in ("trained", "control")]
            lines.append(Calibration(entry.family, found.pass_1, found.mean, found.signal, found.pass_1 * (1 - found.pass_1),
                                     "improves" if found.improves else "does not", *gains, result["verdict"]))
    return sorted(lines, key=lambda line: (-line.signal, -line.mean, line.family))


def calibration_text(entries: Sequence[Predicted], results: Sequence[dict]) -> str:
    """The table of `calibration`."""
    found = calibration(entries, results)
    width = max([28, *(len(line.family) + 2 for line in found)])
    lines = [f"{'family':<{width}}pass@1   mean  signal  p(1-p)  said      gain of the score"] if found else []
    for line in found:
        came_of_it = f"{gain_text(line.gain)}  {line.verdict}" if line.gain else "not trained"
        lines.append(f"{line.family:<{width}}{line.pass_1:>6.3f} {line.mean:>6.3f}  {line.signal:>6.3f}  {line.spread:>6.3f}  "
                     f"{line.said:<8}  {came_of_it}")
    return "\n".join(lines)
