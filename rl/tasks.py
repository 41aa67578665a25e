"""What a task is, which tasks a run uses, and the prompt each one becomes.

A provider is registered (rl/registry.py), called with TASKS_FILE, and gives its tasks and the names it holds out of training.
Nothing here runs a candidate, a reference or a grader: expected values come from the sandbox."""

import difflib
import hashlib
import importlib
import json
import math
import random
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rl.errors import InputError
from rl.registry import build_data_provider, load_plugins, nearest, registered, run_outside
from rl.sandbox.compare import RELATIVE
from rl.settings.declared import DataSettings, Settings

# Where the built-in providers register.  Named, not imported: they import from here, and only the one in use should cost.
PROVIDERS = {"lc_easy": "tasks.lc_easy_tasks", "humaneval": "tasks.code_benchmarks", "mbpp": "tasks.code_benchmarks",
             "gsm8k": "tasks.word_problems", "math": "tasks.word_problems", "svamp": "tasks.word_problems",
             "gsm8k_math_curriculum": "tasks.word_problems", "reasoning_gym": "rl.rewards.gym.questions"}

SYSTEM = "You are a careful Python programmer."
ADAPTED = "_graded"     # the function that a task's adapter defines
STYLE_HINT = "Write the body as one return of one nested expression, in the manner of Lisp: no other statements."
REQUEST = """Write this Python function:

{signature}

{text}

Examples:
{examples}

Answer with the function only, in one ```python block."""


@dataclass(frozen=True, eq=False)
class Task:
    """One programming problem; compared and hashed by identity, since its examples hold lists."""

    name: str
    text: str
    signature: str                      # one line, "def gcd(a: int, b: int) -> int:"
    reference: str                      # source of a right solution that needs nothing around it
    examples: tuple[tuple, ...]         # two or three argument tuples that the prompt shows
    generate: Callable[[random.Random], list[tuple]] | None     # argument tuples of plain values, edge cases among them
    scalar: bool                        # the answer is not a list, tuple, dict or set
    one_element_list: bool = False      # the grader takes [x] for a scalar x
    mutants: tuple[str, ...] = ()       # source of wrong programs that a person thought of
    example_results: tuple = ()         # the answers to `examples`, in order
    request: str = ""                   # the whole prompt, in place of text, signature and examples
    preamble: str = ""                  # source that an answer may lean on: it stands before the answer's own
    adapter: str = ""                   # source behind the answer that defines ADAPTED, called in the entry point's place
    record: Callable | None = None      # sandbox -> argument tuples, where there is no `generate`: found by running code
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


def hidden_inputs(task: Task, seed: int) -> tuple[tuple, ...]:
    """The argument tuples that grade `task` under `seed`: no example, none twice, the same in every process."""
    # A string seed goes through SHA-512; hash() would change from process to process.
    drawn = task.generate(random.Random(f"{task.name}/{seed}"))
    # repr tells 1 from True, which equality does not, and works for lists.
    fresh = {repr(arguments): arguments for arguments in drawn}
    for example in task.examples:
        fresh.pop(repr(example), None)
    if not fresh:
        raise ValueError(f"task {task.name}: its generator gave nothing but examples under seed {seed}. "
                         "A suite without cases would pass everything: add edge cases or widen the random draw")
    return tuple(fresh.values())


def make_suite(sandbox, task: Task, case_seed: int):
    """The sandbox's Suite of the task's hidden cases under `case_seed`; SandboxError where its reference fails on them."""
    inputs = task.record(sandbox) if task.record else hidden_inputs(task, case_seed)
    return sandbox.expect(task.program(task.reference), task.called, inputs, one_element_list=task.one_element_list,
                          relative=task.relative)


class Tasks(list):
    """The chosen tasks, in their order."""

    def __init__(self, tasks, left_out=None, order=None, unseen=frozenset()):
        super().__init__(tasks)
        self.in_training = [task for task in tasks if task.name not in unseen]    # an order's indices count the others too
        self.left_out: dict[str, int] = left_out or {}    # why -> how many problems the provider left out
        self.order: Callable | None = order               # step, tasks a step, seed -> indices, where the provider prescribes it


def provided(data: DataSettings):
    """What the provider gives: all its tasks, and which are held out."""
    load_plugins(data.plugins)
    if module := PROVIDERS.get(data.tasks):
        importlib.import_module(module)
    elif data.tasks not in registered("data provider"):
        known = sorted({*PROVIDERS, *registered("data provider")})
        raise InputError(f"TASKS={data.tasks}: no such task provider{nearest(data.tasks, known)}; use {' or '.join(known)}")
    provider = build_data_provider(data.tasks, **json.loads(data.provider_kwargs))
    return run_outside(f"TASKS={data.tasks}", provider, data.tasks_file)


def _tasks_and_held_out(found, data):
    """Both as the provider gave them; InputError where it gave something else."""
    both = (found.tasks, found.held_out) if hasattr(found, "tasks") and hasattr(found, "held_out") else found
    if not isinstance(both, tuple | list) or len(both) != 2 or not all(isinstance(part, Collection) for part in both):
        raise InputError(f"TASKS={data.tasks}: the provider gave a {type(found).__name__}; it must give all its tasks and the "
                         "names of those held out of training, as a pair")
    if wrong := [task for task in both[0] if not isinstance(getattr(task, "name", None), str)
                 or not callable(getattr(task, "messages", None))]:
        raise InputError(f"TASKS={data.tasks}: {len(wrong)} of its tasks have no name or no messages() to ask with, such as "
                         f"{wrong[0]!r:.60}")
    if not both[0]:
        raise InputError(f"TASKS={data.tasks}: the provider gave no tasks at all")
    return both


def _asking(task, data):
    """The task with a prompt as the settings want it, where it has thinking to ask for; others as they are."""
    if hasattr(task, "tag") and hasattr(task, "example"):
        return replace(task, tag=data.thinking_tag, example=data.form_example)
    return task


def load_tasks(data: DataSettings) -> Tasks:
    """The tasks that the settings choose: the first N_TASKS of the split, in its fixed shuffled order."""
    found = provided(data)
    tasks, unseen = _tasks_and_held_out(found, data)
    tasks = [_asking(task, data) for task in tasks]
    left_out, order = getattr(found, "left_out", {}), getattr(found, "batch", None)
    if order and data.split == "train":
        if data.n_tasks or data.task_names:
            raise InputError(f"N_TASKS={data.n_tasks}, TASK_NAMES={data.task_names}: {data.tasks} decides by itself which task "
                             "comes when; leave both out")
        return Tasks(tasks, left_out, order, unseen)
    split = [task for task in tasks if data.split == "all" or (task.name in unseen) == (data.split == "heldout")]
    if not split:
        share, other = ("all", "heldout, to measure on them") if data.split == "train" else ("none", "train")
        raise InputError(f"SPLIT={data.split}: of the {len(tasks)} tasks of {data.tasks} {share} are held out of training; "
                         f"set SPLIT={other}")
    chosen = _named(sorted(split, key=_shuffled_rank), data)
    if not 0 <= data.n_tasks <= len(chosen):
        raise InputError(f"N_TASKS={data.n_tasks}, but {len(chosen)} tasks of SPLIT={data.split} can be had from "
                         f"{data.tasks}; ask for 1 to {len(chosen)}, or 0 for all of them")
    return Tasks(chosen[:data.n_tasks or len(chosen)], left_out)


def evaluation_tasks(settings: Settings) -> list[Task]:
    """The tasks of the evaluations, none where EVAL_EVERY is 0; InputError where EVAL_TASKS asks for more than there are."""
    return first_held_out(settings, settings.evaluation.eval_tasks) if settings.evaluation.eval_every else []


def first_held_out(settings: Settings, count: int) -> list[Task]:
    """The first `count` held-out tasks (0: all) in their fixed shuffled order; InputError where there are fewer."""
    tasks = load_tasks(replace(settings.data, split="heldout", n_tasks=0, task_names=""))  # names are of training tasks
    if count > len(tasks):
        raise InputError(f"EVAL_TASKS={count}, but {len(tasks)} tasks of {settings.data.tasks} are held out; ask for 1 to "
                         f"{len(tasks)}, or 0 for all of them")
    return tasks[:count or len(tasks)]


def _shuffled_rank(task):
    # By name and without a seed: adding a task moves no other, and runs with different seeds train on the same N.
    return hashlib.sha256(task.name.encode()).digest()


def _named(split, data):
    """The tasks of the split that TASK_NAMES lists, or all when it lists none."""
    wanted = [name.strip() for name in data.task_names.split(",") if name.strip()]
    known = {task.name: task for task in split}
    problems = []
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            problems.append(f"{name}{f' (did you mean {near[0]}?)' if near else ''}")
    if problems:
        raise InputError(f"TASK_NAMES: not in SPLIT={data.split} of {data.tasks}: {', '.join(problems)}; "
                         "correct the names, or look in SPLIT=all")
    return [task for task in split if not wanted or task.name in wanted]


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


def tasks_of_step(tasks: Sequence[Task], step: int, tasks_per_step: int, seed: int) -> list[int]:
    """Indices of the `tasks_per_step` different tasks of `step`: epoch after epoch, each task once an epoch."""
    n = len(tasks)
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
    """How far a run that replaces tasks has come: epochs begun, and the tasks of the last one that are still to come."""

    epochs: int = 0
    rest: tuple[int, ...] = ()


START = Cursor()


def draw_tasks(cursor: Cursor, n: int, count: int, seed: int) -> tuple[list[int], Cursor]:
    """The next `count` different indices of n tasks, and the cursor behind them; fewer are the beginning of more.

    Each epoch holds each task once: one that comes up a second time within a draw waits for the next."""
    epochs, rest, drawn, waiting = *cursor, [], []
    while len(drawn) < min(count, n):
        if not rest:
            rest, epochs = tuple(random.Random(f"epoch/{seed}/{epochs}").sample(range(n), n)), epochs + 1
        (waiting if rest[0] in drawn else drawn).append(rest[0])
        rest = rest[1:]
    return drawn, Cursor(epochs, (*waiting, *rest))


def next_tasks(tasks: Sequence[Task], step: int, cursor: Cursor, settings: Settings) -> list[int]:
    """Indices of the tasks for `step`, in order: TASKS_PER_STEP, and with DYNAMIC_SAMPLING those that may replace some."""
    g, t, n = settings.generation, settings.trainer, len(tasks)
    if order := getattr(tasks, "order", None):
        if g.dynamic_sampling:
            raise InputError(f"DYNAMIC_SAMPLING=true with TASKS={settings.data.tasks}: its order of tasks is its own, so none "
                             "can replace another; leave one of them out")
        return order(step, t.tasks_per_step, t.seed)
    if not g.dynamic_sampling:
        return tasks_of_step(tasks, step, t.tasks_per_step, t.seed)
    if n <= t.tasks_per_step:
        raise InputError(f"DYNAMIC_SAMPLING=true with TASKS_PER_STEP={t.tasks_per_step}, but there are {n} tasks and a step "
                         f"takes none twice, so nothing could be replaced; lower TASKS_PER_STEP below {n}, or choose more tasks")
    return draw_tasks(cursor, n, g.max_sampled_groups, t.seed)[0]


def cursor_after(tasks: Sequence[Task], taken: int, cursor: Cursor, settings: Settings) -> Cursor:
    """The cursor of the next step, after one that took the first so many of `ahead`; only DYNAMIC_SAMPLING moves it."""
    dynamic = settings.generation.dynamic_sampling
    return draw_tasks(cursor, len(tasks), taken, settings.trainer.seed)[1] if dynamic else cursor


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



class Prompt(NamedTuple):
    """A task as the model sees it."""

    task: Task
    messages: list[dict]
    ids: list[int]


def encode_prompts(tasks: Sequence[Task], chat, style_hint: bool, max_prompt_tokens: int) -> list[Prompt]:
    """Every task's prompt, encoded once; InputError names all that are longer than the limit."""
    prompts = []
    for task in tasks:
        said = task.messages(style_hint)
        prompts.append(Prompt(task, said, chat.encode(said)))
    if long := [f"{p.task.name} ({len(p.ids)})" for p in prompts if len(p.ids) > max_prompt_tokens]:
        raise InputError(f"{len(long)} prompts have more than MAX_PROMPT_TOKENS={max_prompt_tokens} tokens: "
                         f"{', '.join(long[:8])}; raise MAX_PROMPT_TOKENS, or leave these tasks out")
    return prompts
