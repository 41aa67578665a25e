"""The page of grpo_proof.py: each prediction beside what came of it, in one file that needs no network.

Every figure is one of results.json or of the families' metrics; questions and answers are strangers' text and pass through
rl/pages/markup.py alone."""

import math
from collections.abc import Sequence
from pathlib import Path

from rl.evaluation.stats import Gain
from rl.pages.curves import Curve, Line, draw
from rl.pages.markup import SHEET, Html, element, joined
from rl.pages.report_page import POLICY, Bell, dumbbells, gain_cell, table
from rl.proof.forecast import resolution
from rl.proof.predictions import MEASURES, Predicted
from rl.proof.results import CURVE, Standing, calibration, tallies, unscorable
from rl.run.files import write_aside

CURVES = (Curve("reward", "Mean reward", "a sample", (Line("trained", "trained reward"), Line("control", "control reward")), 1.0),
          Curve("signal", "Groups with signal", "share", (Line("trained", "trained frac_reward_zero_std", True),
                Line("control", "control frac_reward_zero_std", True)), 1.0),
          Curve("length", "Completion length", "tokens", (Line("trained", "trained completions/mean_length"),
                Line("control", "control completions/mean_length"))),
          Curve("entropy", "Entropy", "nats a token", (Line("trained", "trained entropy"), Line("control", "control entropy"))))


def write(out: Path, facts: Sequence[str], entries: Sequence[Predicted], standing: Standing) -> None:
    """OUT/report.html: the predictions, of the families that are done the outcomes, and why others are not."""
    results = standing.results(entries)
    sections = {"Outcomes": outcomes(results), "Not done": undone(standing), "Rules": rules(results),
                "Calibration": calibrated(entries, results), "Predictions": forecasts(entries),
                **{result["family"]: family(result) for result in results}}
    present = {title: body for title, body in sections.items() if body}
    head = element("head", element("meta", charset="utf-8"), element("title", "Can one predict what GRPO will improve?"),
                   element("meta", name="viewport", content="width=device-width,initial-scale=1"),
                   element("meta", http_equiv="Content-Security-Policy", content=POLICY), element("style", Html(SHEET)))
    body = element("body", element("header", element("h1", "Can one predict what GRPO will improve?"),
                                   *[element("p", fact, class_="faint") for fact in facts]),
                   element("nav", *[element("a", title, href=f"#s{i}") for i, title in enumerate(present)]),
                   *[element("section", element("h2", title, id=f"s{i}"), content) for i, (title, content) in
                     enumerate(present.items())],
                   element("footer", "Written by grpo_proof.py from its own files; none of it is typed by hand.", class_="faint"))
    write_aside(out / "report.html", ("<!doctype html>\n" + element("html", head, body, lang="en") + "\n").encode())


def outcomes(results: Sequence[dict]) -> Html | None:
    """What was said of each family, what came of it, and what random rewards came to."""
    if not results:
        return None
    lines = []
    for result in results:
        arms, mark = result["arms"], " (farmable)" if result["audit"]["farmable"] else ""
        control = arms.get("control")
        lines.append((result["family"] + mark, "improves" if result["forecast"]["improves"] else "does not", result["verdict"],
                      _side(arms["trained"]["outcome"]), *[_side(arms["trained"][name]) for name in MEASURES[1:]],
                      _side(control["outcome"]) if control else "-", unscorable(result["answers"]) or "-"))
    note = (f"score: the family's own, of the stripped answer, greedy, {results[0]['tasks']} held-out questions, with paired "
            f"95 % intervals; under {resolution(results[0]['tasks']):.3f} is undecided, but where the interval ends below that")
    bells = [Bell(result["family"], *(result["arms"]["trained"]["outcome"][side] for side in ("before", "after")),
                  mark=result["verdict"]) for result in results]
    return joined(table(("Prediction and outcome", note),
                        ("", "predicted", "verdict", "score", "strict", "lenient", "control arm, score", "not scorable, worth 0"),
                        lines, "text"),
                  dumbbells(bells, "", "Held-out score"))


def _side(part: dict) -> Html:
    """Before, after and the gain."""
    return joined(element("span", f"{part['before']:.3f} \u2192 {part['after']:.3f}"), " ", gain_cell(Gain(**part["gain"])))


def undone(standing: Standing) -> Html | None:
    """The families that are not done, and why."""
    return table(("Not done", "the same command goes on with them, once what is said here is mended"), ("", "why"),
                 list(standing.undone.items()), "text") if standing.undone else None


def rules(results: Sequence[dict]) -> Html | None:
    """Each rule against the outcomes that are decided."""
    if not results:
        return None
    lines = [(line.rule, f"{line.yes_improved} of {line.yes_improved + line.yes_not}",
              f"{line.no_not} of {line.no_improved + line.no_not}", "-" if math.isnan(line.right.value) else
              f"{line.right.value:.2f} [{line.right.low:.2f}, {line.right.high:.2f}]") for line in tallies(results)]
    return table(("Rules", "decided families only; Wilson's intervals"),
                 ("", "said yes, and it improved", "said no, and it did not", "right"), lines)


def calibrated(entries: Sequence[Predicted], results: Sequence[dict]) -> Html | None:
    """Each prediction's figures beside the gain that it came to; none before a family is done."""
    lines = [(line.family, *(f"{number:.3f}" for number in (line.pass_1, line.mean, line.signal, line.spread)), line.said,
              *(gain_cell(Gain(**gain)) if gain else "-" for gain in (line.gain, line.control)), line.verdict)
             for line in calibration(entries, results)]
    return table(("Calibration", "what was seen before training, beside the gain of the score; most signal first"),
                 ("", "pass@1", "mean", "signal", "p(1-p)", "said", "gain", "gain of the control arm", "verdict"), lines,
                 "text") if results else None


def forecasts(entries: Sequence[Predicted]) -> Html | None:
    """The predictions as they were written down."""
    lines = []
    for entry in entries:
        if entry.refused:
            lines.append((entry.family, "-", "-", "-", "-", f"refused: {entry.refused}", "-", "-"))
            continue
        found, audit = entry.forecast, entry.audit
        floor = f"{audit['floor']:.3f} by {audit['policy']}{', FARMABLE' if audit['farmable'] else ''}"
        lines.append((entry.family, *(f"{number:.3f}" for number in (found.pass_1, found.pass_k, found.mean, found.signal)),
                      "improves" if found.improves else found.reason, floor, str(entry.unscorable or "-")))
    return table(("Predictions", "signal: share of groups whose scores differ; floor: what the best answer without skill earns"),
                 ("", "pass@1", "pass@k", "mean", "signal", "said", "floor", "samples not scorable, worth 0"), lines, "text")


def family(result: dict) -> Html:
    """One family: its curves and its first answers."""
    rows = []
    for parts in zip(*(arm["curve"] for arm in result["arms"].values()), strict=False):
        rows.append({"step": parts[0]["step"], **{f"{name} {metric}": part[metric] for name, part in
                                                  zip(result["arms"], parts, strict=True) for metric in CURVE[1:]}})
    pictures = [element("figure", svg) for curve in CURVES if rows and (svg := draw(curve, rows))]
    minutes = ", ".join(f"{name} {arm['minutes']:.0f} min" for name, arm in result["arms"].items())
    head = ("question", "its answer", *result["answers"])
    lines = [(row["question"], row["gold"], *(f"{row[side]}  ({row[f'{side} score']:.2f})" for side in result["answers"]))
             for row in result["examples"]]
    return joined(element("p", f"In steps: {minutes}.", class_="faint"), element("div", *pictures, class_="curves"),
                  table(("The first held-out questions", "whatever became of them; the score stands behind each answer"), head,
                        lines, "text"))
