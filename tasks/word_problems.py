r"""Word problems and mathematics with an answer to compare: GSM8K, MATH, files like SVAMP's, a curriculum of the first two.

    gsm8k            the folder with train.jsonl and test.jsonl, or one of them; rows of question and answer ("... #### 72")
    math             a folder of JSON files as MATH has them, or a JSONL file; rows of problem, level and solution
    svamp            JSONL or a JSON list; rows of Body, Question and Answer, or of question and answer, with or without ID
    gsm8k_math_curriculum      GSM8K first, then MATH level by level between it

What is in a folder or file named "test" is held out of training, and so is a training problem whose text is among those. Read
from local files only, none of them part of this repo. Left out, and counted in `left_out`: problems with a figure ([asy]), which
cannot be seen, and of MATH those of another level, or without one. Rows that cannot be used otherwise are an InputError that
names them all, with their lines."""

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError, together
from rl.registry import register_data_provider
from rl.rewards.words.answers import boxed_answer, gsm8k_gold
from rl.rewards.words.rewards import TAG
from rl.tasks import BaseTask, Provided

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
SHOWN = 8    # problems of a file that an error lists
# Where the answer's form is what is asked for: the same value written otherwise is not an answer.
ASKS_FOR_FORM = re.compile(r"(?:^|[.!?:]\s+)(?:Completely )?(?:Factor|Expand)\b|\bfactor completely|\bfactored\b|\bexpanded form"
                           r"|\blowest terms")
PUBLISHED = {
    "gsm8k": "grade_school_math/data/train.jsonl and test.jsonl in the repository openai/grade-school-math",
    "svamp": "SVAMP.json in the repository arkilpatel/SVAMP; a file of your own with question and answer does as well",
    "math": "not to be had here, for its problems belong to others: give the folder of a copy of your own, with files such as "
            "train/algebra/1.json"}


@dataclass(frozen=True)
class TextTask(BaseTask):
    """A problem in words with its answer."""

    name: str
    text: str
    answer: str = field()      # the reference, as rl/rewards/words/answers.py reads it
    source: str = field()      # "gsm8k", "math" or "svamp"
    level: int = 0             # of MATH: 1 to 5
    same_form: bool = False    # the answer must be written as the reference is: the task says factor, expand, lowest terms
    tag: str = TAG             # around the thinking that the prompt asks for; load_tasks sets this
    example: bool = False      # whether the prompt shows the form by an example; and this

    def messages(self, style_hint: bool = False) -> list[dict[str, str]]:
        """The system message, the same for all problems so that it can be shared, and the problem."""
        request = f"{self.text}\n{STYLE_HINT}" if style_hint else self.text
        system = (SYSTEM + EXAMPLE * self.example).format(tag=self.tag)
        return [{"role": "system", "content": system}, {"role": "user", "content": request}]

    def asking_for(self, tag: str, example: bool) -> "TextTask":
        """The problem with thinking asked for in that tag, with or without an example."""
        return replace(self, tag=tag, example=example)

    @property
    def metadata(self) -> dict:
        """What rewards may want to know besides the reference."""
        return {"name": self.name, "source": self.source, "level": self.level, "same_form": self.same_form}


@dataclass(frozen=True)
class Curriculum:
    """Pools of tasks that open one after the other and then take turns; which task comes when is a function of the step alone."""

    tasks: list[TextTask]
    pools: tuple[tuple[int, ...], ...]      # indices into tasks, in the order of opening
    stage_steps: int                        # steps from the opening of one pool to that of the next

    def batch(self, step: int, tasks_per_step: int, seed: int) -> list[int]:
        """Indices of the different tasks of a step: the open pools in turn, each in seeded order, every task once an epoch."""
        small = [f"{len(pool)} of {self.tasks[pool[0]].source}" for pool in self.pools if len(pool) < 2 * tasks_per_step]
        if small:
            raise InputError(f"TASKS_PER_STEP={tasks_per_step} needs {2 * tasks_per_step} problems in each part of a curriculum; "
                             f"there are {', '.join(small)}. Lower it, or choose other levels")
        slots = range(step * tasks_per_step, (step + 1) * tasks_per_step)
        return [self._drawn(slot, tasks_per_step, seed) for slot in slots]

    def _drawn(self, slot, tasks_per_step, seed):
        stage_slots = self.stage_steps * tasks_per_step
        stage = min(slot // stage_slots, len(self.pools) - 1)
        pool = slot % (stage + 1)
        # How often this pool's turn came before: in each stage, the slots that leave `pool` when divided by the open pools.
        earlier = 0
        for past in range(pool, stage + 1):
            begin, end = past * stage_slots, slot if past == stage else (past + 1) * stage_slots
            earlier += (end - 1 - pool) // (past + 1) - (begin - 1 - pool) // (past + 1)
        epoch, place = divmod(earlier, len(self.pools[pool]))
        return self._order(pool, epoch, seed)[place]

    def _order(self, pool, epoch, seed):
        # Each epoch goes through one half of the pool and then the other, the same halves every time: so a step at the border
        # of two epochs, which takes less than half a pool, never holds a task twice.
        members = random.Random(f"halves/{seed}/{pool}").sample(self.pools[pool], len(self.pools[pool]))
        draw, middle = random.Random(f"epoch/{seed}/{pool}/{epoch}"), len(members) // 2
        return draw.sample(members[:middle], middle) + draw.sample(members[middle:], len(members) - middle)


class _Row(NamedTuple):
    place: str       # for errors: "train.jsonl line 3"
    name: str        # of the task, where the row has no id of its own
    held_out: bool
    fields: dict


@register_data_provider("gsm8k", thinking=True)
def provide_gsm8k(path: str) -> Provided:
    """The problems of GSM8K's folder or of one of its files."""
    return _provide("gsm8k", path, ["train.jsonl", "test.jsonl"], _gsm8k_task)


@register_data_provider("svamp", thinking=True)
def provide_svamp(path: str) -> Provided:
    """The problems of a file like SVAMP's, or of a folder of such files."""
    return _provide("svamp", path, ["*.json", "*.jsonl"], _svamp_task)


@register_data_provider("math", thinking=True)
def provide_math(path: str, levels: tuple[int, ...] = LEVELS, whole_answers: bool = False) -> Provided:
    """The problems of MATH of some levels; whole_answers: only those whose answer is a whole number."""
    provided, _ = together(lambda: _provide("math", path, ["**/*.json", "**/*.jsonl"], _math_task), lambda: _check_levels(levels))
    kept, left_out = [], dict(provided.left_out)
    for task in provided.tasks:
        why = ("level unknown" if not task.level else "other level" if task.level not in levels else
               "answer no whole number" if whole_answers and not re.fullmatch(r"-?[0-9]+", task.answer) else None)
        if why:
            left_out[why] = left_out.get(why, 0) + 1
        else:
            kept.append(task)
    if not kept:
        raise InputError(f"{path}: no problem is left of {len(provided.tasks)}: {left_out}; choose other levels")
    return Provided(kept, provided.held_out & {task.name for task in kept}, left_out)


@register_data_provider("gsm8k_math_curriculum", thinking=True)
def provide_curriculum(gsm8k_path: str, math_path: str, levels: tuple[int, ...] = LEVELS, whole_answers: bool = False,
                       stage_steps: int = 100) -> Provided:
    """GSM8K alone for stage_steps steps, then with the lowest of the levels in turn, and so on until all are open."""
    parts = together(lambda: provide_gsm8k(gsm8k_path), lambda: provide_math(math_path, levels, whole_answers),
                     lambda: _check_steps(stage_steps))[:2]
    tasks = [task for part in parts for task in part.tasks]
    held_out = parts[0].held_out | parts[1].held_out
    trained = [i for i, task in enumerate(tasks) if task.name not in held_out]
    pools = [tuple(i for i in trained if tasks[i].level == level) for level in (0, *sorted(set(levels)))]
    if not all(pools):
        empty = [f"level {level}" if level else "GSM8K" for level, pool in zip((0, *sorted(set(levels))), pools, strict=True)
                 if not pool]
        raise InputError(f"the curriculum has no problem to train on of {', '.join(empty)}; leave them out of levels, or "
                         "give data that has them")
    left_out = dict(Counter(parts[0].left_out) + Counter(parts[1].left_out))
    return Provided(tasks, held_out, left_out, order=Curriculum(tasks, tuple(pools), stage_steps).batch)


def _check_levels(levels):
    if unknown := [level for level in levels if level not in LEVELS] or ([] if levels else ["none"]):
        raise InputError(f"levels: {', '.join(map(str, unknown))}: MATH has the levels 1 to 5")


def _check_steps(stage_steps):
    if stage_steps < 1:
        raise InputError(f"stage_steps={stage_steps} should be 1 or more")


# ---- one row as a task -----------------------------------------------------------------------------------------------

def _gsm8k_task(row: _Row) -> TextTask:
    text, answer = _texts(row.fields, "question", "answer")
    return TextTask(row.name, text, str(gsm8k_gold(answer)), "gsm8k")


def _svamp_task(row: _Row) -> TextTask:
    fields = {name.lower(): value for name, value in row.fields.items()}
    text, = _texts(fields, "question")
    body = fields.get("body") or ""
    if not isinstance(body, str):
        raise ValueError("body should be text")
    answer = fields.get("answer")
    if isinstance(answer, bool) or not isinstance(answer, str | int | float) or not str(answer).strip():
        raise ValueError("answer is missing, or neither a number nor text")
    whole = isinstance(answer, float) and answer.is_integer()
    text = f"{body.strip()} {text}".strip()
    name = f"svamp/{fields['id']}" if isinstance(fields.get("id"), str | int) else row.name
    return TextTask(name, text, str(int(answer) if whole else answer).strip(), "svamp")


def _math_task(row: _Row) -> TextTask:
    text, solution = _texts(row.fields, "problem", "solution")
    answer = boxed_answer(solution)
    if answer is None:
        raise ValueError(r"its solution has no \boxed{} with something in it")
    level = re.search(r"[1-5]$", str(row.fields.get("level", "")))
    if "level" not in row.fields:
        raise ValueError("level is missing")
    return TextTask(row.name, text, answer, "math", int(level[0]) if level else 0,
                    bool(ASKS_FOR_FORM.search(text)))


def _texts(fields, *names):
    wrong = [name for name in names if not isinstance(fields.get(name), str) or not fields[name].strip()]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} missing, blank or no text")
    return [fields[name].strip() for name in names]


# ---- files -----------------------------------------------------------------------------------------------------------

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
            problems.append(f"{row.place}: the id {task.name} was there before, in {places[task.name]}")
        places[task.name] = row.place
        if "[asy]" in task.text:
            figures += 1
            continue
        tasks.append(task)
        held_out |= {task.name} if row.held_out else set()
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise InputError(f"{path}: {len(problems)} rows cannot be used: {'; '.join(problems[:SHOWN])}{more}. Mend or remove "
                         f"them; the data is {PUBLISHED[source]}")
    return _without_leaks(tasks, frozenset(held_out), {"figure": figures} if figures else {})


def _without_leaks(tasks, held_out, left_out):
    """Without the training problems that are held out as well, under another name."""
    measured = {task.text for task in tasks if task.name in held_out}
    kept = [task for task in tasks if task.name in held_out or task.text not in measured]
    if len(kept) < len(tasks):
        left_out = left_out | {"held out too": len(tasks) - len(kept)}
    return Provided(kept, held_out, left_out)


def _rows(source, path, patterns):
    """(all rows, problems with those that are none)."""
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
        text = file.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        return [], [f"{inside}: {error}"]
    name = f"{source}/{inside.with_suffix('').as_posix()}"
    try:
        whole = json.loads(text) if file.suffix == ".json" else None
    except ValueError as error:
        return [], [f"{inside}: no JSON: {error}"]
    if isinstance(whole, dict):
        return [_Row(str(inside), name, held_out, whole)], []
    parts = enumerate(whole if isinstance(whole, list) else text.split("\n"), 1)
    rows, problems = [], []
    for number, part in parts:
        place = f"{inside} {'row' if isinstance(whole, list) else 'line'} {number}"
        try:
            fields = json.loads(part) if isinstance(part, str) and part.strip() else part
        except ValueError as error:
            problems.append(f"{place}: no JSON: {error}")
            continue
        if isinstance(fields, dict):
            test = held_out or str(fields.get("unique_id", "")).startswith("test/")
            rows.append(_Row(place, f"{name}/{fields.get('unique_id', number)}", test, fields))
        elif not isinstance(fields, str) or fields.strip():
            problems.append(f"{place}: no object with fields")
    return rows, problems
