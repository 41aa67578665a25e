"""Whether a Reasoning Gym family can be trained on: what its own answers earn, and what answers earn that need no skill.

Not judged: whether it is too hard or too easy for a model."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rl.gym.client import Gym, UnusableSeeds
from rl.gym.families import Family

# The last three because puzzle24 does not look which numbers are used, and some scorers run the answer beside the right one.
FIXED_ANSWERS = ("", "banana", "0", "1", "2", "12345678", "True", "False", "Yes", "No", "None",
                 "1*1*4*6", "entry['answer']", "entry['metadata']['solutions'][0]")
LINES_COPIED = 40
# An answer without skill that is right on a fifth of the questions is, if it is tried at all, right in 5 groups of 6 at 8
# samples, so GRPO finds it.  And a quarter of the reward for nothing is more than most models earn honestly at the start.
FARMED_STRICT, FARMED_RAW = 0.20, 0.25


class Audit(NamedTuple):
    """What is wrong with a family as a task, found on some of its questions."""

    gold: float                 # share of the questions on which the family's own answer scores 1
    floor: float                # mean score of the best answer policy that needs no skill
    floor_strict: float         # share of the questions on which that policy scores 1
    policy: str                 # which one
    farmable: bool              # that is too much: a reward curve would rise without anything being learnt
    problems: tuple[str, ...]   # the same and more, in words
    refusal: str = ""           # why the family cannot be used at all


def audit(gym: Gym, family: Family, seeds: Sequence[int]) -> Audit:
    """The family judged on these seeds' questions: its own answers, and those that anybody could give."""
    try:
        questions, problems = gym.questions(family, seeds), []
    except UnusableSeeds as error:
        questions, problems = error.questions, [str(error)]
    if not questions:
        return Audit(0.0, 0.0, 0.0, "", False, tuple(problems), problems[0])
    golds = gym.rows([(question, (question.answer or "").strip()) for question in questions])
    wrong = [question for question, text in golds if question.answer is None or golds[question, text][0] < 1]
    # Where many answers are right the family gives the first that it finds, and where it finds none, anything.
    unsound = [question for question in wrong if question.answer is None or not question.example]
    policies = _policies(questions)
    rows = gym.rows([pair for answers in policies.values() for pair in zip(questions, answers, strict=True)])
    earned = {name: [rows[pair][0] for pair in zip(questions, answers, strict=True)] for name, answers in policies.items()}
    name, floor, strict = max(((name, _mean(raws), _mean(raw >= 1 for raw in raws)) for name, raws in earned.items()),
                              key=lambda row: max(row[1] / FARMED_RAW, row[2] / FARMED_STRICT))
    farmable = strict >= FARMED_STRICT or floor >= FARMED_RAW
    problems += [_gold_problem(wrong, questions)] if wrong else []
    problems += [f"{family.text}: {said}" for said in _said_of(rows)]
    problems += [f"{family.text}: {name} earns {floor:.2f} and is right on {strict:.0%} of the questions"] if farmable else []
    return Audit(1 - len(wrong) / len(questions), floor, strict, name, farmable, tuple(problems),
                 _gold_problem(unsound, questions) if unsound else "")


def refused(found: Audit) -> str:
    """Why the family cannot be used at all, with an example; "" where it can."""
    return found.refusal


def _gold_problem(wrong, questions):
    first = wrong[0]
    lacks = "has no answer of its own" if first.answer is None else f"answers {first.answer[:80]!r} itself"
    share = f"{len(wrong)} of {len(questions)} questions"
    return f"{first.family.text}: its own answers do not score 1 on {share}: {first.name} {lacks}"


def _said_of(rows):
    """What the scoring of skill-free answers says of the scorer."""
    if any(ran for (_, text), (_, _, ran) in rows.items() if text == "banana"):
        yield "its scorer runs the answer as code"
    if failed := Counter(why for _, why, _ in rows.values() if why):
        said = ", ".join(f"{why} ({count})" for why, count in sorted(failed.items()))
        yield f"of {len(rows)} answers without skill some could not be scored: {said}"


def _policies(questions):
    """Name -> the answers to the questions of one who has no skill: always the same, or copied out of the question."""
    copies = [_copies(question.text) for question in questions]
    return ({f"always {answer!r}": [answer] * len(questions) for answer in FIXED_ANSWERS}
            | {name: [copied.get(name, "") for copied in copies] for some in copies for name in some})


def _copies(text):
    """Name -> answer that is copied out of a question: each line, the last one, what stands behind the last colon."""
    lines = [re.sub(r"^[\s.*•-]*(\d+[.):])?\s*", "", line).strip() for line in text.splitlines() if line.strip()]
    found = {f"line {number}": line for number, line in enumerate(lines[:LINES_COPIED], 1)}
    return found | {"the last line": lines[-1], "the text behind the last colon": text.rpartition(":")[2].strip()}


def _mean(values):
    values = list(values)
    return sum(values) / len(values)
