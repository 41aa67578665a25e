"""Reasoning Gym from outside: its families, their questions, and scores of answers, all from a worker process.

    with Gym() as gym:
        family, = parse_families("chain_sum:max_terms=3", gym)
        questions = gym.questions(family, range(500, 524))
        scores = gym.score([(questions[0], "The answer is 12.")])

A question is the family's own for a seed: create_dataset(family, size=1, seed=seed, ...)[0]. Neighbouring seeds of larger
datasets share questions, those of size 1 do not. Answers are scored by the family's own scorer in a locked-down process
(worker.py): an answer that cannot be scored (too slow, a scorer that raises) is worth 0, with the reason. Needs the package
reasoning-gym, and Linux. Whether a family is fit to train on is judged in questions.py.
"""

import contextlib
import difflib
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
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError

# ---- which families, with which knobs ---------------------------------------------------------------------------------


TAKES = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a word"}


class Family(NamedTuple):
    """A family with the knobs that are not left at their defaults."""

    name: str
    config: tuple[tuple[str, int | float | bool | str], ...] = ()

    @property
    def text(self) -> str:
        """What parse_families reads: chain_sum:max_terms=3:min_terms=2, knobs in order."""
        shown = {knob: str(value).lower() if isinstance(value, bool) else value for knob, value in self.config}
        return ":".join([self.name, *(f"{knob}={value}" for knob, value in shown.items())])


def parse_families(text: str, gym) -> list[Family]:
    """The families of "chain_sum:max_terms=3,leg_counting"; one InputError names all that is wrong."""
    families, problems = [], []
    for part in filter(None, (part.strip() for part in text.split(","))):
        family, wrong = _parsed(part, gym)
        if not wrong and (said := gym.problem(family)):
            wrong = [f"{part}: {said}"]
        if not wrong and family in families:
            wrong = [f"{family.text} stands there twice"]
        problems += wrong
        families += [] if wrong else [family]
    if not families and not problems:
        problems = ["there is none; give some, such as chain_sum:max_terms=3,leg_counting"]
    if any(_unlike(part.partition(":")[0].strip(), gym) for part in text.split(",")):
        problems.append(f"the {len(gym.families)} families are {', '.join(sorted(gym.families))}")
    if problems:
        raise InputError(f"families {text!r}: {'; '.join(problems)}")
    return families


def _parsed(part, gym):
    """(the family of one part, what is wrong with it)"""
    name, *settings = (word.strip() for word in part.split(":"))
    if name not in gym.families:
        return Family(name), [f"{name}: no such family{nearest_text(name, gym.families)}"]
    known, config, wrong = gym.families[name], {}, []
    takes = {knob: row for knob, row in known.items() if row[0]}
    for setting in settings:
        knob, _, written = (word.strip() for word in setting.partition("="))
        if knob not in takes:
            kind = "takes a list or the like, which cannot be written here" if knob in known else "no such knob"
            wrong.append(f"{name}:{knob}: {kind}{nearest_text(knob, takes)}; it has {', '.join(takes) or 'none'}")
        elif knob in config:
            wrong.append(f"{name}:{knob} is set twice")
        elif (value := _value(takes[knob], written)) is None:
            kind, default, choices = takes[knob]
            wrong.append(f"{name}:{knob}={written}: takes {' or '.join(choices) or TAKES[kind]}, default {default}")
        else:
            config[knob] = value
    return Family(name, tuple(sorted(config.items()))), wrong


def _value(takes, written):
    """A knob's value, None where it is none of its kind."""
    kind, _, choices = takes
    if kind == "bool":
        return {"true": True, "1": True, "false": False, "0": False}.get(written.lower())
    if kind == "str":
        return written if written and (not choices or written in choices) else None
    try:
        number = int(written) if kind == "int" else float(written)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _unlike(name, gym):
    """Whether it is neither a family nor nearly one's name."""
    return bool(name) and name not in gym.families and not nearest_text(name, gym.families)


def nearest_text(name, known):
    near = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


# ---- questions and scores ---------------------------------------------------------------------------------------------


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


# ---- the worker process -----------------------------------------------------------------------------------------------


INSTALL = "pip install reasoning-gym==0.1.25"
WORKER_FILE = Path(__file__).with_name("worker.py")
START_S, STOP_S = 120.0, 2.0     # wall seconds that the worker has to start, and to end by itself
PASSED_ON = ("PATH", "HOME", "LANG", "PYTHONPATH", "LD_LIBRARY_PATH", "TMPDIR")   # none of the trainer's tokens and keys
# The hash seed: five families draw from sets.  One thread: a process with several must not fork.
FIXED = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Worker:
    """The worker process, or the one that took its place; `hello` is what the first said of itself."""

    def __init__(self, seconds: float):
        """Starts it; seconds: CPU time to score one answer. InputError without the package or on a weak system."""
        self._seconds, self._lock, self._process = seconds, threading.Lock(), None
        self.hello = self._start()

    @property
    def pid(self) -> int | None:
        """Its process id, None when there is none."""
        return self._process and self._process.pid

    def close(self) -> None:
        """Ends it and its child; safe to call twice."""
        with self._lock:
            self._stop()

    def ask(self, request: dict, limit: float):
        """The reply, None when it took more than `limit` wall seconds; one that dies is replaced, and asked again, once."""
        with self._lock:
            for _ in range(2):
                if self._process is None:
                    self._start()
                try:
                    line = self._exchange(json.dumps(request).encode() + b"\n", limit)
                except BaseException:    # Ctrl-C: the reply that is still to come must not answer the next request
                    self._stop()
                    raise
                if line:
                    return json.loads(line)
                words = self._stop()
                if line is None:
                    return None
        raise InputError(f"Reasoning Gym's worker died twice in a row on {str(request)[:200]}: {words or 'no last words'}")

    def _start(self):
        self._errors = os.memfd_create("gym")
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ} | FIXED
        command = [sys.executable, "-P", "-B", "-W", "ignore", str(WORKER_FILE), str(self._seconds)]
        # A session of its own: Ctrl-C is this process's, which ends the worker when it is done with it.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=env,
                                         cwd="/", start_new_session=True)
        try:
            hello = json.loads(self._line(START_S) or "null")
        except BaseException:
            self._stop()
            raise
        if hello and hello.get("locked"):
            return hello
        words = self._stop()
        if not hello:
            raise InputError(f"Reasoning Gym's worker did not start: {words or f'no answer in {START_S:.0f} s'}")
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
        """Its next line; b"" when it has ended, None when it is late."""
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
        """Ends it, and its child with it; its last words."""
        if self._process is None:
            return ""
        with contextlib.suppress(BrokenPipeError):    # what it did not read any more
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S)    # it ends with its stdin, and clears away what Matplotlib may have put in /tmp
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        words = os.pread(self._errors, 4000, 0).decode("utf-8", "replace").strip().splitlines()
        os.close(self._errors)
        self._process = None
        return " | ".join(words[-3:])
