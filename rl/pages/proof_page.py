"""The page of grpo_proof.py: each prediction beside its outcome, in one file that needs no network.

Every figure is from results.json. Questions and answers are untrusted text, so they pass through rl/pages/markup.py."""

import math
from collections.abc import Sequence
from pathlib import Path

from rl.pages.curves import Curve, Line, draw
from rl.pages.markup import SHEET, Html, element, joined
from rl.pages.report_page import POLICY, Change, dumbbells, gain_cell, table
from rl.proof.forecast import resolution
from rl.proof.predictions import MEASURES, Prediction
from rl.proof.results import CURVE, Results, arms_of, calibration, gain_in, tallies, unscorable_text
from rl.run.files import write_aside

TITLE = "Can one predict what GRPO will improve?"
CURVES = (Curve("reward", "Mean reward", "per sample", (Line("trained", "trained reward"),
                Line("control", "control reward")), 1.0),
          Curve("signal", "Groups with signal", "share", (Line("trained", "trained frac_reward_zero_std", True),
                Line("control", "control frac_reward_zero_std", True)), 1.0),
          Curve("length", "Completion length", "tokens", (Line("trained", "trained completions/mean_length"),
                Line("control", "control completions/mean_length"))),
          Curve("entropy", "Entropy", "nats per token", (Line("trained", "trained entropy"), Line("control", "control entropy"))))


def write(out: Path, facts: Sequence[str], predictions: Sequence[Prediction], results: Results) -> None:
    """Write OUT/report.html: the predictions, the outcomes of the families that are done, and why others are not."""
    done = results.in_order(predictions)
    sections = {"Outcomes": outcomes(done), "Not done": not_done(results), "Rules": rules(done),
                "Calibration": calibration_table(predictions, done), "Predictions": forecasts(predictions),
                **{result["family"]: family_section(result) for result in done}}
    present = {title: body for title, body in sections.items() if body}
    head = element("head", element("meta", charset="utf-8"), element("title", TITLE),
                   element("meta", name="viewport", content="width=device-width,initial-scale=1"),
                   element("meta", http_equiv="Content-Security-Policy", content=POLICY), element("style", Html(SHEET)))
    body = element("body", element("header", element("h1", TITLE), *[element("p", fact, class_="faint") for fact in facts]),
                   element("nav", *[element("a", title, href=f"#s{i}") for i, title in enumerate(present)]),
                   *[element("section", element("h2", title, id=f"s{i}"), content) for i, (title, content) in
                     enumerate(present.items())],
                   element("footer", "Written by grpo_proof.py from its own files; none of it is typed by hand.", class_="faint"))
    write_aside(out / "report.html", ("<!doctype html>\n" + element("html", head, body, lang="en") + "\n").encode())


def outcomes(results: Sequence[dict]) -> Html | None:
    """Each family's prediction and verdict, and the gains of both arms."""
    if not results:
        return None
    lines = []
    for result in results:
        mark = " (farmable)" if result["audit"]["farmable"] else ""
        lines.append((result["family"] + mark, "improves" if result["forecast"]["improves"] else "does not", result["verdict"],
                      _gain(result), *[_gain(result[name]) for name in MEASURES[1:]],
                      _gain(result["control"]) if "control" in result else "-", unscorable_text(result["answers"]) or "-"))
    tasks = results[0]["tasks"]
    note = (f"Score: the family's own, of stripped greedy answers to {tasks} held-out questions, with paired 95 % intervals. A "
            f"gain below {resolution(tasks):.3f} is undecided, unless the interval ends below that.")
    changes = [Change(result["family"], before=result["before"], after=result["after"], mark=result["verdict"])
               for result in results]
    return joined(table(("Prediction and outcome", note),
                        ("", "predicted", "verdict", "score", "strict", "lenient", "control arm, score", "unscorable, worth 0"),
                        lines, "text"),
                  dumbbells(changes, "", "Held-out score"))


def _gain(part: dict) -> Html:
    """The values before and after, and the gain."""
    return joined(element("span", f"{part['before']:.3f} \u2192 {part['after']:.3f}"), " ", gain_cell(gain_in(part)))


def not_done(results: Results) -> Html | None:
    """The families that are not done, and why."""
    return table(("Not done", "Once the cause is fixed, the same command goes on with these families."), ("", "why"),
                 list(results.not_done.items()), "text") if results.not_done else None


def rules(results: Sequence[dict]) -> Html | None:
    """Each rule against the decided outcomes."""
    if not results:
        return None
    lines = [(line.rule, f"{line.yes_improved} of {line.yes_improved + line.yes_not}",
              f"{line.no_not} of {line.no_improved + line.no_not}", "-" if math.isnan(line.right.value) else
              f"{line.right.value:.2f} [{line.right.low:.2f}, {line.right.high:.2f}]") for line in tallies(results)]
    return table(("Rules", "Decided families only, with Wilson's intervals."),
                 ("", "predicted yes and improved", "predicted no and did not", "right"), lines)


def calibration_table(predictions: Sequence[Prediction], results: Sequence[dict]) -> Html | None:
    """Each prediction's figures beside the gain; None before the first family is done."""
    lines = [(line.family, *(f"{number:.3f}" for number in (line.pass_1, line.mean, line.signal, line.spread)), line.predicted,
              *(gain_cell(gain) if gain else "-" for gain in (line.gain, line.control)), line.verdict)
             for line in calibration(predictions, results)]
    return table(("Calibration", "Figures from before training, beside the gain of the score; most signal first."),
                 ("", "pass@1", "mean", "signal", "p(1-p)", "predicted", "gain", "gain of the control arm", "verdict"), lines,
                 "text") if results else None


def forecasts(predictions: Sequence[Prediction]) -> Html | None:
    """The predictions as they were written down."""
    lines = []
    for prediction in predictions:
        if prediction.refused:
            lines.append((prediction.family, "-", "-", "-", "-", f"refused: {prediction.refused}", "-", "-"))
            continue
        forecast, audit = prediction.forecast, prediction.audit
        figures = (forecast.pass_1, forecast.pass_k, forecast.mean, forecast.signal)
        floor = f"{audit['floor']:.3f} by {audit['policy']}{', FARMABLE' if audit['farmable'] else ''}"
        lines.append((prediction.family, *(f"{number:.3f}" for number in figures),
                      "improves" if forecast.improves else forecast.reason, floor, str(prediction.unscorable or "-")))
    return table(("Predictions", "Signal: share of groups whose scores differ. Floor: what the best answer without skill earns."),
                 ("", "pass@1", "pass@k", "mean", "signal", "predicted", "floor", "unscorable samples, worth 0"), lines, "text")


def family_section(result: dict) -> Html:
    """One family's curves and its first answers."""
    rows, arms = [], arms_of(result)
    for step_of_each in zip(*(arm["reward_curve"] for arm in arms.values()), strict=False):
        named = zip(arms, step_of_each, strict=True)
        rows.append({"step": step_of_each[0]["step"]} | {f"{name} {metric}": row[metric] for name, row in named
                                                         for metric in CURVE[1:]})
    pictures = [element("figure", svg) for curve in CURVES if rows and (svg := draw(curve, rows))]
    minutes = ", ".join(f"{name} {arm['minutes']:.0f} min" for name, arm in arms.items())
    head = ("question", "its answer", *result["answers"])
    lines = [(row["question"], row["gold"], *(f"{row[side]}  ({row[f'{side} score']:.2f})" for side in result["answers"]))
             for row in result["examples"]]
    return joined(element("p", f"Training time: {minutes}.", class_="faint"), element("div", *pictures, class_="curves"),
                  table(("The first held-out questions", "Whatever their scores, which are in parentheses."), head,
                        lines, "text"))
