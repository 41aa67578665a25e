"""What came of predictions: outcomes with their intervals, the tables, results.json.

A family's own score, stripped of white space, is what was trained on and what is compared; strict and lenient accuracy stand
beside it, since a gain in the first that the last does not share is a gain in format.  Nothing here runs a model."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from rl.datalog import plain, write_aside
from rl.errors import InputError
from rl.evaluation.stats import Gain, paired_bootstrap
from rl.gym.forecast import Forecast, Outcome, outcome, resolution, tally, verdict
from rl.gym.predictions import Predicted

FORMAT = "results 1"
MEASURES = ("score", "strict", "lenient")
EXAMPLES = 5
CURVE = ("step", "reward", "rewards/strict/mean", "rewards/lenient/mean", "frac_reward_zero_std", "grad_norm", "entropy",
         "completions/mean_length")


def kept(path: Path, key: str, make: Callable[[], object]):
    """What `path` holds under this key, or what `make` makes, written there; InputError where another experiment wrote it."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_aside(path, json.dumps({"key": key, "value": plain(make())}, allow_nan=False).encode() + b"\n")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["key"] == key:
            return found["value"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be read ({error}): remove it to have it made again") from error
    raise InputError(f"{path} belongs to another model, other settings or other predictions: choose another OUT, or remove that "
                     "folder")


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
              "arms": found, "verdict": verdict(entry.forecast.improves, outcome_of(found["trained"])),
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


def write_results(out: Path, digest: str, entries: Sequence[Predicted], results: Sequence[dict]) -> None:
    """results.json: every family that is done, and how each rule did over them."""
    document = {"format": FORMAT, "predictions": digest, "families": list(results),
                "refused": {entry.family: entry.refused for entry in entries if entry.refused},
                "rules": [line._asdict() | {"right": line.right._asdict()} for line in tallies(results)]}
    write_aside(out / "results.json", json.dumps(plain(document), indent=1, allow_nan=False).encode() + b"\n")


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
    return (f"{entry.family:<28} pass@1 {found.pass_1:.3f}  pass@k {found.pass_k:.3f}  mean {found.mean:.3f}  "
            f"signal {found.signal:.3f}  lenient {sum(lenient) / len(lenient):.3f}  {says}{farmable(entry.audit)}")


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
    if not found.decided:
        lines.append(f"  undecided: a difference under {least:.3f} on {result['tasks']} tasks")
    elif abs(found.gain.value) < least:
        lines.append(f"  decided: the interval ends below {least:.3f}, the least that {result['tasks']} tasks can tell")
    return "\n".join(lines)


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
