"""Reasoning Gym's families, their questions and the scores of answers, all through a worker process.

    with Gym() as gym:
        family, = parse_families("chain_sum:max_terms=3", gym)
        questions = gym.questions(family, range(500, 524))
        scores = gym.score([(questions[0], "The answer is 12.")])

A question is the family's own for a seed: create_dataset(family, size=1, seed=seed, ...)[0]. Neighbouring seeds of larger
datasets share questions, those of size 1 do not. The family's own scorer scores an answer in a locked-down process (worker.py);
an answer that cannot be scored (too slow, or the scorer raises) is worth 0, with the reason. Needs the package reasoning-gym,
and Linux. Whether a family is fit to train on is judged in questions.py.
"""

import contextlib
import json
import math
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError
from rl.registry import nearest
from rl.tasks import BaseTask

SYSTEM = "Give only the final answer, without any explanation."
UNSCORABLE = "unscorable"    # the verdict on an answer that has no score
QUESTION_S = 60.0            # wall seconds for one question
WALL_FACTOR = 25             # a request may take this many times its answers' CPU limits in wall time


class Family(NamedTuple):
    """A family with those knobs that are not at their defaults."""

    name: str
    config: tuple[tuple[str, int | float | bool | str], ...] = ()

    @property
    def text(self) -> str:
        """As parse_families reads it, with sorted knobs: chain_sum:max_terms=3:min_terms=2."""
        shown = {knob: str(value).lower() if isinstance(value, bool) else value for knob, value in self.config}
        return ":".join([self.name, *(f"{knob}={value}" for knob, value in shown.items())])


@dataclass(frozen=True)
class Question(BaseTask):
    """One question of a family, with the family's answer: an `example` if many are right, None if it gives none."""

    family: Family = field()
    seed: int = field()
    text: str = field()
    answer: str | None = field()
    example: bool = False

    @property
    def name(self) -> str:
        """Family and seed: chain_sum:max_terms=3/500."""
        return f"{self.family.text}/{self.seed}"

    def messages(self, style_hint: bool = False) -> list[dict[str, str]]:
        """The conversation that asks it; style_hint is for programs and ignored here."""
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": self.text}]


class Score(NamedTuple):
    """What an answer is worth."""

    raw: float      # the family's own score of the stripped answer, clipped to 0..1
    strict: bool    # whether that is 1
    lenient: bool   # whether some reading of the answer scores 1
    failed: str     # why there is no score, "" if there is one


class TextScore(NamedTuple):
    """The family's own score of a text exactly as it stands."""

    raw: float       # clipped to 0..1, 0 if there is none
    failed: str      # why there is none, "" if there is one
    ran_code: bool   # whether the scorer ran the text as code


class UnusableSeeds(InputError):
    """Some seeds make no question; `seeds` maps them to the reasons, `questions` are those of the other seeds."""

    def __init__(self, family: Family, seeds: dict[int, str], questions: list[Question]):
        shown = "; ".join(f"{family.text}/{seed}: {reason}" for seed, reason in list(seeds.items())[:8])
        super().__init__(f"{len(seeds)} seeds make no question: {shown}. Leave these seeds out, or change the family's knobs")
        self.seeds, self.questions = seeds, questions


class Gym:
    """A context manager around the worker process.

    `version` is the package's; `families` maps family -> knob -> (kind, default, choices); `description` is one line."""

    def __init__(self, seconds: float = 2.0):
        """Start the worker; seconds: CPU time to score one answer. InputError without the package or the means to lock down."""
        if not 0 < seconds <= 60:
            raise InputError(f"seconds={seconds}: the time to score one answer must be above 0 and at most 60")
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
        """End the worker and its child; safe to call twice."""
        self.worker.close()

    def questions(self, family: Family, seeds: Sequence[int]) -> list[Question]:
        """The family's question for each seed, in order; UnusableSeeds names those for which it raises or takes too long."""
        made, failed = [], {}
        for seed in seeds:
            reply = self.worker.ask({"do": "question", **_spec(family), "seed": seed}, QUESTION_S)
            if reply is None or "failed" in reply:
                failed[seed] = reply["failed"] if reply else f"took more than {QUESTION_S:.0f} s"
            else:
                made.append(Question(family=family, seed=seed, **reply))
        if failed:
            raise UnusableSeeds(family, failed, made)
        return made

    def score(self, pairs: Sequence[tuple[Question, str]]) -> list[Score]:
        """One Score for each (question, answer), in order; an answer that cannot be scored is worth 0."""
        pairs_of_each = [[(question, text) for text in readings(answer)] for question, answer in pairs]
        found = self.score_texts([pair for of_one in pairs_of_each for pair in of_one])
        scores = []
        for of_one in pairs_of_each:
            stripped = found[of_one[0]]
            lenient = any(found[pair].raw >= 1 for pair in of_one)
            scores.append(Score(raw=stripped.raw, strict=stripped.raw >= 1, lenient=lenient, failed=stripped.failed))
        return scores

    def score_texts(self, pairs: Sequence[tuple[Question, str]]) -> dict[tuple[Question, str], TextScore]:
        """The score of each (question, text), the texts exactly as they stand; equal pairs are scored once."""
        different = list(dict.fromkeys(pairs))
        jobs = [[*_spec(question.family).values(), question.seed, question.text, text] for question, text in different]
        limit = QUESTION_S * 2 + WALL_FACTOR * self.seconds * len(jobs)
        rows = self.worker.ask({"do": "score", "jobs": jobs}, limit) if jobs else []
        if rows is None:
            raise InputError(f"scoring {len(jobs)} answers took Reasoning Gym's worker more than {WALL_FACTOR} times the limit "
                             f"of {self.seconds} s each; nothing was scored")
        return {pair: TextScore(*row) for pair, row in zip(different, rows, strict=True)}

    def config_problem(self, family: Family) -> str:
        """The family's complaint about its config, "" if it accepts it."""
        reply = self.worker.ask({"do": "problem", **_spec(family)}, QUESTION_S)
        return f"took more than {QUESTION_S:.0f} s" if reply is None else reply


def _spec(family):
    return {"family": family.name, "config": dict(family.config)}


# ---- families from text -----------------------------------------------------------------------------------------------


KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a word"}


def parse_families(text: str, gym: Gym) -> list[Family]:
    """The families of "chain_sum:max_terms=3,leg_counting"; one InputError names all problems."""
    families, problems = [], []
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        family, wrong = _parse_family(part, gym)
        if not wrong and (complaint := gym.config_problem(family)):
            wrong = [f"{part}: {complaint}"]
        if not wrong and family in families:
            wrong = [f"{family.text} is named twice"]
        problems += wrong
        families += [] if wrong else [family]
    if not parts:
        problems = ["no family is named; name some, such as chain_sum:max_terms=3,leg_counting"]
    names = [part.partition(":")[0].strip() for part in parts]
    if any(name and name not in gym.families and not nearest(name, gym.families) for name in names):
        problems.append(f"the {len(gym.families)} families are {', '.join(sorted(gym.families))}")
    if problems:
        raise InputError(f"families {text!r}: {'; '.join(problems)}")
    return families


def _parse_family(part, gym):
    """(family, problems) of one part."""
    name, *settings = (word.strip() for word in part.split(":"))
    if name not in gym.families:
        return Family(name), [f"{name}: no such family{nearest(name, gym.families)}"]
    known, config, problems = gym.families[name], {}, []
    settable = {knob: row for knob, row in known.items() if row[0]}
    for setting in settings:
        knob, _, written = (word.strip() for word in setting.partition("="))
        if knob not in settable:
            why = "takes a list or the like, which cannot be written here" if knob in known else "no such knob"
            problems.append(f"{name}:{knob}: {why}{nearest(knob, settable)}; it has {', '.join(settable) or 'none'}")
        elif knob in config:
            problems.append(f"{name}:{knob} is set twice")
        elif (value := _parse_value(settable[knob], written)) is None:
            kind, default, choices = settable[knob]
            problems.append(f"{name}:{knob}={written}: takes {' or '.join(choices) or KINDS[kind]}, default {default}")
        else:
            config[knob] = value
    return Family(name, tuple(sorted(config.items()))), problems


def _parse_value(knob, written):
    """The written value of a knob (kind, default, choices); None if it is not of its kind."""
    kind, _, choices = knob
    if kind == "bool":
        return {"true": True, "1": True, "false": False, "0": False}.get(written.lower())
    if kind == "str":
        return written if written and (not choices or written in choices) else None
    try:
        number = int(written) if kind == "int" else float(written)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


# ---- readings of an answer --------------------------------------------------------------------------------------------


def readings(text: str) -> list[str]:
    """What a lenient reader may take for the answer, without duplicates; the first is the text stripped of white space.

    The whole text; its last line that is not blank; the content of the only <answer> tag; the content of the last \\boxed{}; the
    text after the last "answer is", "answer:" or "="; the last number, without thousands separators. Then each of them without
    surrounding markup, quotes and full stop."""
    whole = text.strip()
    found = [whole, whole.splitlines()[-1].strip() if whole else ""]
    tags = [part.partition("<answer>")[2] for part in whole.split("</answer>")[:-1] if "<answer>" in part]
    found += tags if len(tags) == 1 else []
    found += _boxed(whole)
    found += re.split(r"(?i:\banswer(?: is:?|:))|=", whole)[1:][-1:]
    found += [number.replace(",", "") for number in re.findall(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:/\d+)?", whole)[-1:]]
    found = [reading.strip() for reading in found]
    return list(dict.fromkeys(found + [reading.strip("*`$\"'. \n") for reading in found]))


def _boxed(text):
    """[content of the last \\boxed{}], or [] if there is none or its braces do not close."""
    _, found, rest = text.rpartition("\\boxed{")
    depth = 1
    for index, letter in enumerate(rest if found else ""):
        depth += (letter == "{") - (letter == "}")
        if not depth:
            return [rest[:index]]
    return []


# ---- the worker process -----------------------------------------------------------------------------------------------


INSTALL = "pip install reasoning-gym==0.1.25"
WORKER_FILE = Path(__file__).with_name("worker.py")
START_S, STOP_S = 120.0, 2.0     # wall seconds for the worker to start, and to end by itself
PASSED_ON = ("PATH", "HOME", "LANG", "PYTHONPATH", "LD_LIBRARY_PATH", "TMPDIR")   # none of the trainer's tokens and keys
# A fixed hash seed, since five families draw from sets. One thread, since a process with several must not fork.
FIXED = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Worker:
    """The worker process, replaced if it dies; `hello` is the first one's greeting."""

    def __init__(self, seconds: float):
        """Start it; seconds: CPU time to score one answer. InputError without the package or the means to lock down."""
        self._seconds, self._lock, self._process = seconds, threading.Lock(), None
        self.hello = self._start()

    @property
    def pid(self) -> int | None:
        """Its process id, None if there is no process."""
        return self._process and self._process.pid

    def close(self) -> None:
        """End it and its child; safe to call twice."""
        with self._lock:
            self._stop()

    def ask(self, request: dict, limit: float):
        """The reply, None if it took more than `limit` wall seconds; a worker that dies is replaced and asked again, once."""
        with self._lock:
            for _ in range(2):
                if self._process is None:
                    self._start()
                try:
                    line = self._exchange(json.dumps(request).encode() + b"\n", limit)
                except BaseException:    # Ctrl-C: the pending reply must not answer the next request
                    self._stop()
                    raise
                if line:
                    return json.loads(line)
                last_words = self._stop()
                if line is None:
                    return None
        raise InputError(f"Reasoning Gym's worker died twice in a row on {str(request)[:200]}: {last_words or 'no last words'}")

    def _start(self):
        self._errors = os.memfd_create("gym")
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ} | FIXED
        command = [sys.executable, "-P", "-B", "-W", "ignore", str(WORKER_FILE), str(self._seconds)]
        # A session of its own: Ctrl-C reaches only this process, which ends the worker when it is done with it.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=env,
                                         cwd="/", start_new_session=True)
        try:
            hello = json.loads(self._line(START_S) or "null")
        except BaseException:
            self._stop()
            raise
        if hello and hello.get("locked"):
            return hello
        last_words = self._stop()
        if not hello:
            raise InputError(f"Reasoning Gym's worker did not start: {last_words or f'no answer in {START_S:.0f} s'}")
        if "missing" in hello:
            raise InputError(f"Reasoning Gym cannot be imported ({hello['missing']}): {INSTALL}")
        raise InputError(f"some scorers run the answer as code, and this system cannot lock a process down: {hello['notes']}; "
                         "use a Linux kernel with seccomp, on x86_64 or aarch64")

    def _exchange(self, data, limit):
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except BrokenPipeError:
            return b""
        return self._line(limit)

    def _line(self, limit):
        """Its next line; b"" if it has ended, None if it is late."""
        end, pipe, parts = time.monotonic() + limit, self._process.stdout.fileno(), []
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while not parts or not parts[-1].endswith(b"\n"):
            if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                return None
            if not (data := os.read(pipe, 1 << 18)):
                return b""
            parts.append(data)
        return b"".join(parts)

    def _stop(self):
        """End it, and its child with it; the last lines of its stderr."""
        if self._process is None:
            return ""
        with contextlib.suppress(BrokenPipeError):    # unsent data of a worker that has died
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S)    # it ends with its stdin, and removes what Matplotlib may have put in /tmp
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        last_words = os.pread(self._errors, 4000, 0).decode("utf-8", "replace").strip().splitlines()
        os.close(self._errors)
        self._process = None
        return " | ".join(last_words[-3:])
