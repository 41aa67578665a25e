"""What a task is, which tasks a run uses, the prompt each one becomes, and the order in which a run trains on them.

A provider is registered (rl/registry.py), called with TASKS_FILE, and gives its tasks and the names it holds out of training.
Nothing here runs a candidate, a reference or a grader: expected values come from the sandbox."""

import copy
import hashlib
import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

from rl.errors import InputError
from rl.registry import build_data_provider, declared, load_plugins, nearest, registered, run_outside
from rl.sandbox.compare import RELATIVE
from rl.settings.declared import DataSettings, Settings

SYSTEM = "You are a careful Python programmer."
ADAPTED = "_graded"     # the function that a task's adapter defines
STYLE_HINT = "Write the body as one return of one nested expression, in the manner of Lisp: no other statements."
REQUEST = """Write this Python function:

{signature}

{text}

Examples:
{examples}

Answer with the function only, in one ```python block."""


# ---- what a task is ---------------------------------------------------------------------------------------------------


class BaseTask:
    """What every task has; a provider's own kind of task needs `name` and `messages`, the rest has defaults.

    A dataclass that requires one of these says `= field()`, or it would inherit the default."""

    name: str
    reference: str | None = None    # source of a right program, where a program is asked for
    answer: str | None = None       # the right answer, where answers are compared
    family: object = None           # the family of Reasoning Gym that scores the answer
    metadata: dict = {}             # whatever else rewards may want to know

    def messages(self, style_hint: bool = False) -> list[dict[str, str]]:
        """The conversation that asks for the answer."""
        raise NotImplementedError

    @property
    def question(self) -> str:
        """What the user says in the prompt."""
        return self.messages()[-1]["content"]

    def asking_for(self, tag: str, example: bool) -> "BaseTask":
        """The task with a prompt that asks for thinking in that tag and, on request, shows an example; others ignore both."""
        return self


@dataclass(frozen=True, eq=False)
class Task(BaseTask):
    """One programming problem; compared and hashed by identity, since its examples hold lists."""

    name: str
    text: str
    signature: str                      # one line, "def gcd(a: int, b: int) -> int:"
    reference: str = field()            # source of a right solution that needs nothing around it
    examples: tuple[tuple, ...]         # two or three argument tuples that the prompt shows
    generate: Callable[[random.Random], list[tuple]] | None     # argument tuples of plain values, edge cases among them
    scalar: bool                        # the answer is not a list, tuple, dict or set
    one_element_list: bool = False      # the grader takes [x] for a scalar x
    mutants: tuple[str, ...] = ()       # source of wrong programs that a person thought of
    example_results: tuple = ()         # the answers to `examples`, in order
    request: str = ""                   # the whole prompt, in place of text, signature and examples
    preamble: str = ""                  # source put before the answer's own, which may use it
    adapter: str = ""                   # source put behind the answer: defines ADAPTED, which is called in its place
    record: Callable | None = None      # in place of `generate`: sandbox -> (argument tuples found by running code,
                                        # whether a right answer has to change them as the reference does)
    relative: float = RELATIVE          # how far off an answer may be where a float is expected

    @property
    def entry_point(self) -> str:
        """The name of the function that is asked for."""
        return re.match(r"def (\w+)", self.signature).group(1)

    @property
    def called(self) -> str:
        """The name of the function that runs the cases: the entry point, or what the adapter defines around it."""
        return ADAPTED if self.adapter else self.entry_point

    def messages(self, style_hint: bool = False) -> list[dict[str, str]]:
        """The conversation that asks for this function."""
        return messages(self, self.example_results, style_hint)

    def program(self, code: str) -> str:
        """The source to run for an answer's code: the code itself, between preamble and adapter where there are any."""
        if not self.preamble and not self.adapter:
            return code
        # Python takes such imports in the first lines only.
        future = re.findall(r"^from __future__ import .+\n", code, re.M)
        code = re.sub(r"^from __future__ import .+\n", "\n", code, flags=re.M)
        return "\n".join([*future, self.preamble, code, self.adapter])


def messages(task: Task, example_results: Sequence, style_hint: bool = False) -> list[dict[str, str]]:
    """The system and user message for `task`; `example_results` are the answers to its examples, in order."""
    if len(example_results) != len(task.examples):
        raise ValueError(f"task {task.name}: {len(example_results)} example results for {len(task.examples)} examples; "
                         "give one for each, in order")
    shown = [f"{task.entry_point}({', '.join(map(repr, arguments))}) == {result!r}"
             for arguments, result in zip(task.examples, example_results, strict=True)]
    request = task.request or REQUEST.format(signature=task.signature, text=task.text, examples="\n".join(shown))
    if style_hint:
        request += f"\n{STYLE_HINT}"
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": request}]


def hidden_inputs(task: Task, seed: int) -> tuple[tuple, ...]:
    """The argument tuples that grade `task` under `seed`: the examples, then others, none twice, the same in every process."""
    # A string seed goes through SHA-512; hash() would change from process to process.
    drawn = task.generate(random.Random(f"{task.name}/{seed}"))
    # repr tells 1 from True, which equality does not, and works for lists.
    shown = {repr(arguments): arguments for arguments in copy.deepcopy(task.examples)}
    cases = shown | {repr(arguments): arguments for arguments in drawn}
    if len(cases) == len(shown):
        raise ValueError(f"task {task.name}: its generator gave nothing but examples under seed {seed}. "
                         "A suite that the prompt gives away would pass everything: add edge cases or widen the random draw")
    return tuple(cases.values())


def make_suite(sandbox, task: Task, case_seed: int):
    """The sandbox's Suite of the task's hidden cases under `case_seed`; SandboxError where its reference fails on them."""
    return suite_of(sandbox, task, *(task.record(sandbox) if task.record else (hidden_inputs(task, case_seed), True)))


def suite_of(sandbox, task: Task, inputs: Sequence[tuple], in_place: bool = True):
    """The sandbox's Suite of these inputs, judged as the task's own are; SandboxError where its reference fails on one."""
    return sandbox.expect(task.program(task.reference), task.called, inputs, in_place, one_element_list=task.one_element_list,
                          relative=task.relative)


# ---- which tasks a run uses -------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """The tasks of one provider among those of several, and how often it is their turn."""

    weight: int                  # relative to the other parts'
    tasks: Collection[str]       # names


@dataclass(frozen=True)
class Provided:
    """What a provider gives; (tasks, held_out) as a plain pair will do as well."""

    tasks: Sequence[BaseTask]
    held_out: Collection[str]    # names that are not trained on
    left_out: dict[str, int] = field(default_factory=dict)    # why -> how many problems the provider left out
    order: Callable[[int, int, int], list[int]] | None = None    # (step, tasks a step, seed) -> indices: an order of its own
    parts: Mapping[str, Part] = field(default_factory=dict)      # provider -> what training takes of it; {}: all tasks alike


class Tasks(list):
    """The chosen tasks, in their order."""

    def __init__(self, tasks: Sequence[BaseTask], left_out: dict[str, int] | None = None,
                 order: "Callable | Mixture | None" = None, unseen: Collection[str] = frozenset()):
        super().__init__(tasks)
        self.in_training = [task for task in tasks if task.name not in unseen]    # an order's indices count the others too
        self.left_out, self.order = left_out or {}, order


def load_tasks(data: DataSettings) -> Tasks:
    """The tasks that the settings choose: the first N_TASKS of the split, in its fixed shuffled order.

    With parts the first N_TASKS to train on hold their shares, as far as each has tasks."""
    found = provided(data)
    tasks = [task.asking_for(data.thinking_tag, data.form_example) for task in found.tasks]
    if found.order and data.split == "train":
        if data.n_tasks or data.task_names:
            raise InputError(f"N_TASKS={data.n_tasks}, TASK_NAMES={data.task_names}: {data.tasks} has an order of its own; leave "
                             "both out")
        return Tasks(tasks, found.left_out, found.order, found.held_out)
    split = [task for task in tasks if data.split == "all" or (task.name in found.held_out) == (data.split == "heldout")]
    if not split:
        share, other = ("all", "heldout, to measure on them") if data.split == "train" else ("none", "train")
        raise InputError(f"SPLIT={data.split}: of the {len(tasks)} tasks of {data.tasks} {share} are held out of training; "
                         f"set SPLIT={other}")
    chosen = _named(sorted(split, key=_shuffled_rank), data)
    if found.parts and data.split == "train":
        chosen = _in_shares(chosen, found.parts)
    if not 0 <= data.n_tasks <= len(chosen):
        raise InputError(f"N_TASKS={data.n_tasks}, but {data.tasks} has {len(chosen)} tasks in SPLIT={data.split}; ask for 1 to "
                         f"{len(chosen)}, or 0 for all of them")
    chosen = chosen[:data.n_tasks or len(chosen)]
    return Tasks(chosen, found.left_out, Mixture.of(chosen, found.parts) if found.parts else None)


def evaluation_tasks(settings: Settings) -> list[BaseTask]:
    """The tasks of evaluations during training, none where EVAL_EVERY is 0; InputError where EVAL_TASKS asks for too many."""
    return first_held_out(settings, settings.evaluation.eval_tasks) if settings.evaluation.eval_every else []


def first_held_out(settings: Settings, count: int) -> list[BaseTask]:
    """The first `count` held-out tasks (0: all) in their fixed shuffled order; InputError where there are fewer."""
    tasks = load_tasks(replace(settings.data, split="heldout", n_tasks=0, task_names=""))  # names are of training tasks
    if count > len(tasks):
        raise InputError(f"EVAL_TASKS={count}, but {len(tasks)} tasks of {settings.data.tasks} are held out; ask for 1 to "
                         f"{len(tasks)}, or 0 for all of them")
    return tasks[:count or len(tasks)]


def provided(data: DataSettings) -> Provided:
    """What the provider gives; InputError where it is unknown, raises, or gives something else."""
    load_plugins(data.plugins)
    if declared("data provider", data.tasks) is None:
        known = registered("data provider")
        raise InputError(f"TASKS={data.tasks}: no such task provider{nearest(data.tasks, known)}; use {' or '.join(known)}")
    provider = build_data_provider(data.tasks, **json.loads(data.provider_kwargs))
    found = run_outside(f"TASKS={data.tasks}", provider, data.tasks_file)
    if not isinstance(found, Provided):
        if not isinstance(found, tuple | list) or len(found) != 2 or not all(isinstance(part, Collection) for part in found):
            raise InputError(f"TASKS={data.tasks}: the provider gave a {type(found).__name__}; it must give all its tasks and "
                             "the names of those held out of training, as a pair or as rl.tasks.Provided")
        found = Provided(*found)
    if not found.tasks:
        raise InputError(f"TASKS={data.tasks}: the provider gave no tasks at all")
    if wrong := [task for task in found.tasks if not isinstance(getattr(task, "name", None), str)
                 or not callable(getattr(task, "messages", None))]:
        raise InputError(f"TASKS={data.tasks}: {len(wrong)} of its tasks have no name or no messages() to ask with, such as "
                         f"{wrong[0]!r:.60}")
    return replace(found, tasks=[task if isinstance(task, BaseTask) else _ForeignTask(task) for task in found.tasks])


class _ForeignTask(BaseTask):
    """A task of a class that does not derive from BaseTask: its own attributes, and BaseTask's defaults for what it lacks."""

    def __init__(self, task):
        self.__dict__ |= {name: getattr(task, name) for name in dir(task) if not name.startswith("__")}


def _shuffled_rank(task):
    # By name and without a seed: adding a task moves no other, and runs with different seeds train on the same N.
    return hashlib.sha256(task.name.encode()).digest()


def _in_shares(tasks, parts):
    """The tasks in an order of which each beginning holds the shares of the parts, each part's own order kept."""
    weights = {name: part.weight for part in parts.values() for name in part.tasks}
    ranks = {task.name: Fraction(2 * place + 1, weights[task.name]) for part in parts.values()
             for place, task in enumerate(task for task in tasks if task.name in part.tasks)}
    return sorted(tasks, key=lambda task: ranks[task.name])


def _named(split, data):
    """The tasks of the split that TASK_NAMES lists, or all when it lists none, without those listed with a minus."""
    listed = [name.strip() for name in data.task_names.split(",") if name.strip()]
    dropped = [name[1:] for name in listed if name[0] == "-"]
    wanted = [name for name in listed if name[0] != "-"]
    known = {task.name: task for task in split}
    problems = []
    for name in wanted + dropped:
        if name not in known:
            problems.append(f"{name}{nearest(name, known)}")
    if problems:
        raise InputError(f"TASK_NAMES: not in SPLIT={data.split} of {data.tasks}: {', '.join(problems)}; "
                         "correct the names, or look in SPLIT=all")
    return [task for task in split if (not wanted or task.name in wanted) and task.name not in dropped]


# ---- prompts ----------------------------------------------------------------------------------------------------------


class Prompt(NamedTuple):
    """A task as the model sees it."""

    task: BaseTask
    messages: list[dict]
    ids: list[int]


def encode_prompts(tasks: Sequence[BaseTask], chat, style_hint: bool, max_prompt_tokens: int) -> list[Prompt]:
    """Every task's prompt, encoded once; InputError names all that are longer than the limit."""
    conversations = [task.messages(style_hint) for task in tasks]
    prompts = [Prompt(task, said, chat.encode(said)) for task, said in zip(tasks, conversations, strict=True)]
    if long := [f"{p.task.name} ({len(p.ids)})" for p in prompts if len(p.ids) > max_prompt_tokens]:
        raise InputError(f"{len(long)} prompts have more than MAX_PROMPT_TOKENS={max_prompt_tokens} tokens: "
                         f"{', '.join(long[:8])}; raise MAX_PROMPT_TOKENS, or leave these tasks out")
    return prompts


# ---- the order of training ---------------------------------------------------------------------------------------------


def tasks_of_step(n: int, step: int, tasks_per_step: int, seed: int) -> list[int]:
    """Indices, of n tasks, of the `tasks_per_step` different ones of `step`: epoch after epoch, each task once an epoch."""
    if not 1 <= tasks_per_step <= n:
        raise InputError(f"TASKS_PER_STEP={tasks_per_step}, but there are {n} tasks and a step takes none twice; set "
                         f"TASKS_PER_STEP to 1 to {n}, or choose more tasks with N_TASKS, TASK_NAMES or SPLIT")
    if step < 0:
        raise ValueError(f"step {step}: steps count from 0")
    epoch, start = divmod(step * tasks_per_step, n)
    order = _epoch_order(n, epoch, tasks_per_step, seed)
    if start + tasks_per_step > n:
        order = order + _epoch_order(n, epoch + 1, tasks_per_step, seed)
    return order[start:start + tasks_per_step]


class Cursor(NamedTuple):
    """How far a run has come that replaces tasks, mixes those of several providers, or chooses them by their signal.

    epochs begun, and the tasks of the last one that are still to come; of a mixture the next turn, and a cursor for each part;
    with TASK_ORDER=signal what is known of each task (rl/training/choice.py)."""

    epochs: int = 0
    rest: tuple[int, ...] = ()
    turn: int = 0
    parts: "tuple[Cursor, ...]" = ()
    records: tuple[tuple[float, float, int], ...] = ()


START = Cursor()


def draw_tasks(cursor: Cursor, n: int, count: int, seed: int | str) -> tuple[list[int], Cursor]:
    """The next `count` different indices of n tasks, and the cursor after them; a smaller count gives a prefix.

    Each epoch holds each task once: one that comes up a second time within a draw waits for the next."""
    epochs, rest, drawn, waiting = *cursor[:2], [], []
    while len(drawn) < min(count, n):
        if not rest:
            rest, epochs = tuple(random.Random(f"epoch/{seed}/{epochs}").sample(range(n), n)), epochs + 1
        (waiting if rest[0] in drawn else drawn).append(rest[0])
        rest = rest[1:]
    return drawn, Cursor(epochs, (*waiting, *rest))


@dataclass(frozen=True)
class Mixture:
    """Parts of the tasks that take turns, each in epochs of its own.

    The turns repeat, and in each round a part has exactly its share of them, evenly spread. A part of which a step has every
    task misses its turn, which only DYNAMIC_SAMPLING can bring about."""

    parts: dict[str, tuple[int, ...]]    # provider -> indices of its tasks
    turns: tuple[str, ...]

    @classmethod
    def of(cls, tasks: Sequence[BaseTask], parts: Mapping[str, Part]) -> "Mixture":
        """Of these tasks; those that are in no part are never drawn."""
        turns = sorted((Fraction(2 * n + 1, part.weight), name) for name, part in parts.items() for n in range(part.weight))
        members = {name: tuple(i for i, task in enumerate(tasks) if task.name in part.tasks) for name, part in parts.items()}
        return cls(members, tuple(name for _, name in turns))

    def check(self, tasks_per_step: int) -> None:
        """InputError where a part has fewer tasks than a step may take of it."""
        again = self.turns * (tasks_per_step // len(self.turns) + 2)
        steps = [Counter(again[start:start + tasks_per_step]) for start in range(len(self.turns))]
        short = [f"{max(step[name] for step in steps)} of {name}, which has {len(members)} here" for name, members in
                 self.parts.items() if len(members) < max(step[name] for step in steps)]
        if short:
            raise InputError(f"TASKS_PER_STEP={tasks_per_step} takes up to {'; '.join(short)}, and none twice: lower "
                             "TASKS_PER_STEP or the share, or choose more tasks with N_TASKS, TASK_NAMES or SPLIT")

    def draw(self, cursor: Cursor, count: int, seed: int) -> tuple[list[int], Cursor]:
        """The next `count` different indices, and the cursor after them; a smaller count gives a prefix."""
        cursors = dict(zip(self.parts, cursor.parts or [START] * len(self.parts), strict=True))

        def of_part(name, taken):
            return draw_tasks(cursors[name], len(self.parts[name]), taken, f"{seed}/{name}")

        ahead = {name: of_part(name, count)[0] for name in self.parts}
        drawn, taken, turn = [], Counter(), cursor.turn
        while len(drawn) < min(count, sum(map(len, self.parts.values()))):
            name, turn = self.turns[turn], (turn + 1) % len(self.turns)
            if taken[name] < len(self.parts[name]):
                drawn.append(self.parts[name][ahead[name][taken[name]]])
                taken[name] += 1
        return drawn, Cursor(turn=turn, parts=tuple(of_part(name, taken[name])[1] for name in self.parts))


def next_tasks(n: int, step: int, cursor: Cursor, settings: Settings, order: Callable | Mixture | None = None) -> list[int]:
    """Indices, of n tasks, of those for `step`: TASKS_PER_STEP, and with DYNAMIC_SAMPLING those that may replace some of them.

    order: the provider's own, where it has one. InputError where there are too few tasks for a step."""
    g, t = settings.generation, settings.trainer
    if order and settings.data.task_order == "signal":
        raise InputError(f"TASK_ORDER=signal with TASKS={settings.data.tasks}, which has an order of its own; leave one "
                         "of them out")
    if isinstance(order, Mixture):
        order.check(t.tasks_per_step)
    elif order:
        if g.dynamic_sampling:
            raise InputError(f"DYNAMIC_SAMPLING=true with TASKS={settings.data.tasks}: its order of tasks is fixed, so none can "
                             "replace another; leave one of them out")
        return order(step, t.tasks_per_step, t.seed)
    if not g.dynamic_sampling:
        return order.draw(cursor, t.tasks_per_step, t.seed)[0] if order else tasks_of_step(n, step, t.tasks_per_step, t.seed)
    if n <= t.tasks_per_step:
        raise InputError(f"DYNAMIC_SAMPLING=true with TASKS_PER_STEP={t.tasks_per_step}, but there are {n} tasks and a step "
                         f"takes none twice, so nothing could be replaced; lower TASKS_PER_STEP below {n}, or choose more tasks")
    most = g.max_sampled_groups
    return order.draw(cursor, most, t.seed)[0] if order else draw_tasks(cursor, n, most, t.seed)[0]


def cursor_after(n: int, taken: int, cursor: Cursor, settings: Settings, order: Callable | Mixture | None = None) -> Cursor:
    """The cursor after a step that took the first `taken` of next_tasks; DYNAMIC_SAMPLING and a mixture move it."""
    if isinstance(order, Mixture):
        return order.draw(cursor, taken, settings.trainer.seed)[1]
    return draw_tasks(cursor, n, taken, settings.trainer.seed)[1] if settings.generation.dynamic_sampling else cursor


def _epoch_order(n, epoch, tasks_per_step, seed):
    """The order of one epoch, as a function of its arguments alone: a resumed run needs nothing else."""
    # A step that straddles two epochs must not hold a task twice: equal (seed, step, task, sample) means equal samples.
    # So the tasks that such a step took from the old epoch go last in the new one. Every `cycle` epochs one starts on
    # a step boundary; nothing needs to be known from before that.
    cycle = tasks_per_step // math.gcd(n, tasks_per_step)
    order = []
    for e in range(epoch - epoch % cycle, epoch + 1):
        taken = set(order[n - e * n % tasks_per_step:])
        order = random.Random(f"epoch/{seed}/{e}").sample(range(n), n)
        order = [i for i in order if i not in taken] + [i for i in order if i in taken]
    return order
