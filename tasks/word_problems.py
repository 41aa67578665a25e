r"""Word problems and mathematics whose answers are compared: GSM8K, MATH, files like SVAMP's, and a curriculum of the first two.

    gsm8k            the folder with train.jsonl and test.jsonl, or one of these; rows of question and answer ("... #### 72")
    math             a folder of JSON files laid out as MATH is, or a JSONL file; rows of problem, level and solution
    svamp            JSONL or a JSON list; rows of Body, Question and Answer, or of question and answer, with or without ID
    gsm8k_math_curriculum      GSM8K first, then also MATH, one level after the other

Problems in a folder or file whose name contains "test" are held out of training. All data comes from local files, none of which
is part of this repo. Left out, and counted in `left_out`: training problems with the text of a held-out one, problems with a
figure ([asy]), which the model cannot see, and MATH problems of other levels or without a level. All other unusable rows are
named, with their lines, in one InputError.

An answer whose form cannot be read, such as "3 (apples)", is hit by the same text only. A warning counts such answers; if all are
of that kind, that is an InputError."""

import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError, together
from rl.registry import register_data_provider
from rl.rewards.words.answers import boxed_answer, can_be_hit, gsm8k_gold
from rl.rewards.words.rewards import TAG
from rl.tasks import BaseTask, Provided
from rl.text_files import read_text, split_lines

SYSTEM = ("You solve problems. Think step by step between <{tag}> and </{tag}>. After that write the final answer, and nothing "
          "else, in \\boxed{{}}.")
EXAMPLE = """ For example:

Problem: Tom has 3 bags of 4 apples and eats 2. How many are left?
Answer:
<{tag}>
3 bags of 4 apples are 3 * 4 = 12 apples. He eats 2, so 12 - 2 = 10 are left.
</{tag}>
\\boxed{{10}}"""
STYLE_HINT = "Think in as few words as you need."
LEVELS = (1, 2, 3, 4, 5)
SHOWN = 8    # how many bad rows an error lists
# Problems that ask for a form: the same value written differently is not an answer.
ASKS_FOR_FORM = re.compile(r"(?:^|[.!?:]\s+)(?:Completely )?(?:Factor|Expand)\b|\bfactor completely|\bfactored\b|\bexpanded form"
                           r"|\blowest terms")
PUBLISHED = {
    "gsm8k": "grade_school_math/data/train.jsonl and test.jsonl in the repository openai/grade-school-math",
    "svamp": "SVAMP.json in the repository arkilpatel/SVAMP; a file of your own with question and answer will do",
    "math": "not distributed here for copyright reasons: give the folder of a copy of your own, with files such as "
            "train/algebra/1.json"}


@dataclass(frozen=True)
class TextTask(BaseTask):
    """A problem in words with its answer."""

    name: str
    text: str
    answer: str = field()      # the reference, as rl/rewards/words/answers.py reads it
    source: str = field()      # "gsm8k", "math" or "svamp"
    level: int = 0             # of MATH: 1 to 5
    same_form: bool = False    # the answer must be written as the reference is: the text says factor, expand, lowest terms
    tag: str = TAG             # around the thinking that the prompt asks for; set by asking_for
    example: bool = False      # whether the prompt includes a worked example; set by asking_for

    def messages(self, style_hint: bool = False) -> list[dict[str, str]]:
        """The system message, which all problems share, and the problem."""
        request = f"{self.text}\n{STYLE_HINT}" if style_hint else self.text
        system = (SYSTEM + EXAMPLE * self.example).format(tag=self.tag)
        return [{"role": "system", "content": system}, {"role": "user", "content": request}]

    def asking_for(self, tag: str, example: bool) -> "TextTask":
        """The problem with a prompt that asks for thinking in that tag, with or without an example."""
        return replace(self, tag=tag, example=example)

    @property
    def metadata(self) -> dict:
        """What rewards may use besides the reference."""
        return {"name": self.name, "source": self.source, "level": self.level, "same_form": self.same_form}


class _Row(NamedTuple):
    place: str       # for errors: "train.jsonl line 3"
    name: str        # of the task, if the row has no id of its own
    held_out: bool
    fields: dict


@register_data_provider("gsm8k", thinking=True)
def provide_gsm8k(path: str) -> Provided:
    """The problems in GSM8K's folder, or in one of its files."""
    return _checked(path, _provide("gsm8k", path, ["train.jsonl", "test.jsonl"], _gsm8k_task))


@register_data_provider("svamp", thinking=True)
def provide_svamp(path: str) -> Provided:
    """The problems in a file like SVAMP's, or in a folder of such files."""
    return _checked(path, _provide("svamp", path, ["*.json", "*.jsonl"], _svamp_task))


@register_data_provider("math", thinking=True)
def provide_math(path: str, levels: tuple[int, ...] = LEVELS, whole_answers: bool = False) -> Provided:
    """MATH problems of some levels; whole_answers: only those whose answer is a whole number."""
    provided, _ = together(lambda: _provide("math", path, ["**/*.json", "**/*.jsonl"], _math_task), lambda: _check_levels(levels))
    kept, left_out = [], dict(provided.left_out)
    for task in provided.tasks:
        why = ("level unknown" if not task.level else "other level" if task.level not in levels else
               "answer not a whole number" if whole_answers and not re.fullmatch(r"-?[0-9]+", task.answer) else None)
        if why:
            left_out[why] = left_out.get(why, 0) + 1
        else:
            kept.append(task)
    if not kept:
        raise InputError(f"{path}: none of its {len(provided.tasks)} problems is left: {left_out}; choose other levels")
    return _checked(path, Provided(kept, provided.held_out & {task.name for task in kept}, left_out))


@register_data_provider("gsm8k_math_curriculum", thinking=True)
def provide_curriculum(gsm8k_path: str, math_path: str, levels: tuple[int, ...] = LEVELS, whole_answers: bool = False,
                       stage_steps: int = 100) -> Provided:
    """GSM8K alone for stage_steps steps, then in turn with the lowest level, and so on until all levels are open."""
    parts = together(lambda: provide_gsm8k(gsm8k_path), lambda: provide_math(math_path, levels, whole_answers),
                     lambda: _check_steps(stage_steps))[:2]
    tasks = [task for part in parts for task in part.tasks]
    held_out = parts[0].held_out | parts[1].held_out
    trained = [i for i, task in enumerate(tasks) if task.name not in held_out]
    pools = {level: tuple(i for i in trained if tasks[i].level == level) for level in (0, *sorted(set(levels)))}    # 0: GSM8K
    if empty := [f"level {level}" if level else "GSM8K" for level, pool in pools.items() if not pool]:
        raise InputError(f"the curriculum has no training problem of {', '.join(empty)}; leave them out of levels, or give data "
                         "that has them")
    left_out = dict(Counter(parts[0].left_out) + Counter(parts[1].left_out))
    return Provided(tasks, held_out, left_out, order=Curriculum(tasks, tuple(pools.values()), stage_steps).batch)


def _check_levels(levels):
    if unknown := [level for level in levels if level not in LEVELS] or ([] if levels else ["none"]):
        raise InputError(f"levels: {', '.join(map(str, unknown))}: MATH has the levels 1 to 5")


def _check_steps(stage_steps):
    if stage_steps < 1:
        raise InputError(f"stage_steps={stage_steps} should be 1 or more")


# ---- the curriculum ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curriculum:
    """Pools of tasks that open one after another and then take turns; the order is a function of the step alone."""

    tasks: list[TextTask]
    pools: tuple[tuple[int, ...], ...]      # indices into tasks, in the order of opening
    stage_steps: int                        # steps between the opening of two pools

    def batch(self, step: int, tasks_per_step: int, seed: int) -> list[int]:
        """Distinct indices for a step: the open pools in turn, each in a seeded order with every task once per epoch."""
        small = [f"{len(pool)} of {self.tasks[pool[0]].source}" for pool in self.pools if len(pool) < 2 * tasks_per_step]
        if small:
            raise InputError(f"TASKS_PER_STEP={tasks_per_step} needs {2 * tasks_per_step} problems in each part of a curriculum, "
                             f"but there are {', '.join(small)}. Lower it, or choose other levels")
        slots = range(step * tasks_per_step, (step + 1) * tasks_per_step)
        return [self._task_at(slot, tasks_per_step, seed) for slot in slots]

    def _task_at(self, slot, tasks_per_step, seed):
        stage_slots = self.stage_steps * tasks_per_step
        stage = min(slot // stage_slots, len(self.pools) - 1)
        pool = slot % (stage + 1)
        # The pool's earlier turns: in each stage, the slots that equal `pool` modulo the number of open pools.
        earlier = 0
        for past in range(pool, stage + 1):
            begin, end = past * stage_slots, slot if past == stage else (past + 1) * stage_slots
            earlier += (end - 1 - pool) // (past + 1) - (begin - 1 - pool) // (past + 1)
        epoch, place = divmod(earlier, len(self.pools[pool]))
        return self._order(pool, epoch, seed)[place]

    def _order(self, pool, epoch, seed):
        # Each epoch goes through one half of the pool and then the other, always the same halves. So a step across the end of
        # an epoch, which takes less than half a pool, never has a task twice.
        members = random.Random(f"halves/{seed}/{pool}").sample(self.pools[pool], len(self.pools[pool]))
        draw, middle = random.Random(f"epoch/{seed}/{pool}/{epoch}"), len(members) // 2
        return draw.sample(members[:middle], middle) + draw.sample(members[middle:], len(members) - middle)


# ---- rows to tasks ----------------------------------------------------------------------------------------------------


def _gsm8k_task(row: _Row) -> TextTask:
    text, answer = _texts(row.fields, "question", "answer")
    return TextTask(name=row.name, text=text, answer=str(gsm8k_gold(answer)), source="gsm8k")


def _svamp_task(row: _Row) -> TextTask:
    fields = {name.lower(): value for name, value in row.fields.items()}
    text, = _texts(fields, "question")
    body = fields.get("body") or ""
    if not isinstance(body, str):
        raise ValueError("body must be text")
    answer = fields.get("answer")
    if isinstance(answer, bool) or not isinstance(answer, str | int | float) or not str(answer).strip():
        raise ValueError("answer is missing, or is neither a number nor text")
    whole = isinstance(answer, float) and answer.is_integer()
    name = f"svamp/{fields['id']}" if isinstance(fields.get("id"), str | int) else row.name
    return TextTask(name=name, text=f"{body.strip()} {text}".strip(), answer=str(int(answer) if whole else answer).strip(),
                    source="svamp")


def _math_task(row: _Row) -> TextTask:
    text, solution = _texts(row.fields, "problem", "solution")
    answer = boxed_answer(solution)
    if answer is None:
        raise ValueError(r"its solution has no \boxed{} with an answer")
    level = re.search(r"[1-5]$", str(row.fields.get("level", "")))
    if "level" not in row.fields:
        raise ValueError("level is missing")
    return TextTask(name=row.name, text=text, answer=answer, source="math", level=int(level[0]) if level else 0,
                    same_form=bool(ASKS_FOR_FORM.search(text)))


def _texts(fields, *names):
    wrong = [name for name in names if not isinstance(fields.get(name), str) or not fields[name].strip()]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} missing, blank or not text")
    return [fields[name].strip() for name in names]


# ---- files ------------------------------------------------------------------------------------------------------------


def _provide(source, path, patterns, make: Callable[[_Row], TextTask]) -> Provided:
    rows, problems = _rows(source, path, patterns)
    tasks, held_out, places, figures = [], set(), {}, 0
    for row in rows:
        try:
            task = make(row)
        except ValueError as error:
            problems.append(f"{row.place}: {error}")
            continue
        if task.name in places:
            problems.append(f"{row.place}: the id {task.name} was used before, in {places[task.name]}")
        places[task.name] = row.place
        if "[asy]" in task.text:
            figures += 1
            continue
        tasks.append(task)
        held_out |= {task.name} if row.held_out else set()
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise InputError(f"{path}: {len(problems)} rows cannot be used: {'; '.join(problems[:SHOWN])}{more}. Fix or remove "
                         f"them; the data is {PUBLISHED[source]}")
    return _without_leaks(tasks, frozenset(held_out), {"figure": figures} if figures else {})


def _checked(path, provided):
    """The same; InputError if no answer can be hit, a warning if some cannot."""
    tasks = provided.tasks
    if missed := [task for task in tasks if not can_be_hit(task.answer)]:
        example = f"such as {missed[0].answer[:40]!r} in {missed[0].name}"
        if len(missed) == len(tasks):
            raise InputError(f"{path}: none of its {len(tasks)} answers can be read, {example}; write them as numbers, "
                             r"expressions or words, units in \text{}")
        _warn(f"warning: {path}: {len(missed)} of {len(tasks)} answers cannot be read, {example}: only the same text is right")
    return provided


@cache    # a command loads its tasks several times
def _warn(message):
    print(message, file=sys.stderr, flush=True)


def _without_leaks(tasks, held_out, left_out):
    """Without training problems that repeat a held-out one under another name."""
    measured = {task.text for task in tasks if task.name in held_out}
    kept = [task for task in tasks if task.name in held_out or task.text not in measured]
    if len(kept) < len(tasks):
        left_out = left_out | {"repeats a held-out problem": len(tasks) - len(kept)}
    return Provided(kept, held_out, left_out)


def _rows(source, path, patterns):
    """(all rows, problems with unusable ones)."""
    top = Path(path)
    files = sorted({file for pattern in patterns for file in top.glob(pattern)}) if path and top.is_dir() else [top]
    if not path or not files or not files[0].is_file():
        what = f"{path} holds no {' or '.join(patterns)}" if path and top.is_dir() else (
            f"there is no file or folder {path!r}" if path else "TASKS_FILE is not set")
        raise InputError(f"{source}: {what}; the data is {PUBLISHED[source]}")
    rows, problems = [], []
    for file in files:
        inside = file.relative_to(top) if file != top else Path(file.name)
        found, wrong = _rows_of(source, file, inside, "test" in "/".join(inside.parts).casefold())
        rows, problems = rows + found, problems + wrong
    if not rows and not problems:
        raise InputError(f"{source}: {path} has no rows; the data is {PUBLISHED[source]}")
    return rows, problems


def _rows_of(source, file, inside, held_out):
    try:
        text = read_text(file)
    except (OSError, ValueError) as error:
        return [], [f"{inside}: {error}"]
    name = f"{source}/{inside.with_suffix('').as_posix()}"
    try:
        whole = json.loads(text) if file.suffix == ".json" else None
    except ValueError as error:
        return [], [f"{inside}: not JSON: {error}"]
    if isinstance(whole, dict):
        return [_Row(str(inside), name, held_out, whole)], []
    rows, problems = [], []
    for number, part in enumerate(whole if isinstance(whole, list) else split_lines(text), 1):
        place = f"{inside} {'row' if isinstance(whole, list) else 'line'} {number}"
        try:
            fields = json.loads(part) if isinstance(part, str) and part.strip() else part
        except ValueError as error:
            problems.append(f"{place}: not JSON: {error}")
            continue
        if isinstance(fields, dict):
            test = held_out or str(fields.get("unique_id", "")).startswith("test/")
            rows.append(_Row(place, f"{name}/{fields.get('unique_id', number)}", test, fields))
        elif not isinstance(fields, str) or fields.strip():
            problems.append(f"{place}: not a JSON object")
    return rows, problems
