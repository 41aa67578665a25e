"""Questions of Reasoning Gym's families, and scores of answers to them.

    with Gym() as gym:
        family, = parse_families("chain_sum:max_terms=3", gym)
        questions = gym.questions(family, range(500, 524))
        scores = gym.score([(questions[0], "The answer is 12.")])

A question is a family's own for a seed: create_dataset(family, size=1, seed=seed, ...)[0]. Nearby seeds of larger datasets
share questions, those of size 1 do not. An answer is scored by the family's own scorer, in a process of its own and locked
down (rl/gym/_worker.py): what cannot be scored (too slow, a scorer that raises) is worth 0 and says why. Needs the package
reasoning-gym, and Linux. What a family is worth as a task is rl/gym/audit.py's.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rl.errors import InputError
from rl.gym._process import Worker
from rl.gym.families import Family

SYSTEM = "Give only the final answer, without any explanation."
UNSCORABLE = "unscorable"    # the verdict on an answer that has no score
QUESTION_S, SLOWEST = 60.0, 25    # wall seconds for a question; a score may take this many times its limit, then all is lost


@dataclass(frozen=True)
class Question:
    """One question of a family, with the answer that the family gives: an `example` where many are right, or none at all."""

    family: Family
    seed: int
    text: str
    answer: str | None
    example: bool = False

    @property
    def name(self) -> str:
        """Family and seed: chain_sum:max_terms=3/500."""
        return f"{self.family.text}/{self.seed}"

    def messages(self, style_hint: bool = False) -> list[dict[str, str]]:
        """The conversation that asks it; style_hint is for programs and changes nothing."""
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": self.text}]


class Score(NamedTuple):
    """What an answer is worth."""

    raw: float      # the family's own score of the stripped answer, clipped to 0..1
    strict: bool    # that is 1
    lenient: bool   # some reading of the answer scores 1
    failed: str     # why there is no score, "" where there is one


class UnusableSeeds(InputError):
    """Some seeds make no question; `seeds` maps them to the reason, `questions` are those of the others."""

    def __init__(self, family: Family, seeds: dict[int, str], questions: list[Question]):
        shown = "; ".join(f"{family.text}/{seed}: {reason}" for seed, reason in list(seeds.items())[:8])
        super().__init__(f"{len(seeds)} seeds make no question: {shown}. Leave these seeds out, or change the family's knobs")
        self.seeds, self.questions = seeds, questions


class Gym:
    """A context manager around the worker process.

    `version` is the package's, `families` family -> knob -> kind, default, choices, and `description` says it all in a line."""

    def __init__(self, seconds: float = 2.0):
        """Starts the worker; seconds: CPU time to score one answer. InputError without the package or on a weak system."""
        if not 0 < seconds <= 60:
            raise InputError(f"seconds={seconds}: the time to score one answer has to be above 0 and at most 60")
        if not sys.platform.startswith("linux"):
            raise InputError(f"{sys.platform}: answers are scored in locked-down processes, which needs Linux")
        self.seconds, self.worker = seconds, Worker(seconds)
        hello = self.worker.hello
        self.version, self.families = hello["version"], hello["families"]
        layers = ", ".join(f"{layer} {note}" for layer, note in hello["notes"].items())
        self.description = f"reasoning-gym {self.version}, answers scored in locked-down processes ({layers})"

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.close()

    def close(self) -> None:
        """Ends the worker and its child; safe to call twice."""
        self.worker.close()

    def questions(self, family: Family, seeds: Sequence[int]) -> list[Question]:
        """The family's question for each seed, in order; UnusableSeeds names those for which it raises or takes too long."""
        found, failed = [], {}
        for seed in seeds:
            reply = self.worker.ask({"do": "question", **_place(family), "seed": seed}, QUESTION_S)
            if reply is None or "failed" in reply:
                failed[seed] = reply["failed"] if reply else f"took more than {QUESTION_S:.0f} s"
            else:
                found.append(Question(family, seed, **reply))
        if failed:
            raise UnusableSeeds(family, failed, found)
        return found

    def score(self, pairs: Sequence[tuple[Question, str]]) -> list[Score]:
        """One Score for each (question, answer), in order; an answer that cannot be scored is worth 0."""
        read = [[(question, text) for text in readings(answer)] for question, answer in pairs]
        rows = self.rows([one for several in read for one in several])
        scores = []
        for several in read:
            raw, failed, _ = rows[several[0]]
            scores.append(Score(raw, raw >= 1, any(rows[one][0] >= 1 for one in several), failed))
        return scores

    def rows(self, texts: Sequence[tuple[Question, str]]) -> dict[tuple[Question, str], tuple[float, str, bool]]:
        """(raw score, why there is none, whether code was run to find it) of each text, exactly as it stands."""
        different = list(dict.fromkeys(texts))
        jobs = [[*_place(question.family).values(), question.seed, question.text, text] for question, text in different]
        limit = QUESTION_S * 2 + SLOWEST * self.seconds * len(jobs)
        rows = self.worker.ask({"do": "score", "jobs": jobs}, limit) if jobs else []
        if rows is None:
            raise InputError(f"scoring {len(jobs)} answers took Reasoning Gym's worker more than {SLOWEST} times their limit of "
                             f"{self.seconds} s each; nothing was scored")
        return {one: tuple(row) for one, row in zip(different, rows, strict=True)}

    def problem(self, family: Family) -> str:
        """What the family says against its config, "" when it takes it."""
        reply = self.worker.ask({"do": "problem", **_place(family)}, QUESTION_S)
        return f"took more than {QUESTION_S:.0f} s" if reply is None else reply


def _place(family):
    return {"family": family.name, "config": dict(family.config)}


def readings(text: str) -> list[str]:
    """What a lenient reader may take an answer to be, duplicates removed; the first is the answer stripped of white space.

    The whole; its last line that is not empty; what the only <answer> tag holds; what the last \\boxed{} holds; what stands
    behind the last "answer is", "answer:" or "="; the last number, without thousands commas. And each of them without the
    markup, quotes and full stop around it."""
    whole = text.strip()
    found = [whole, whole.splitlines()[-1].strip() if whole else ""]
    tags = re.findall(r"<answer>(.*?)</answer>", whole, re.S)
    found += tags if len(tags) == 1 else []
    found += _boxed(whole)
    found += re.split(r"(?i:\banswer(?: is:?|:))|=", whole)[1:][-1:]
    found += [number.replace(",", "") for number in re.findall(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:/\d+)?", whole)[-1:]]
    found = [reading.strip() for reading in found]
    return list(dict.fromkeys(found + [reading.strip("*`$\"'. \n") for reading in found]))


def _boxed(text):
    """[what the last \\boxed{} holds], braces counted; nothing where it is not closed."""
    _, found, rest = text.rpartition("\\boxed{")
    depth = 1
    for index, letter in enumerate(rest if found else ""):
        depth += (letter == "{") - (letter == "}")
        if not depth:
            return [rest[:index]]
    return []
