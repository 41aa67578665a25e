"""Which tasks a run uses, in which order, and what the model is asked."""
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl import registry
from rl.errors import InputError
from rl.settings.declared import DataSettings, GenerationSettings, Settings, TrainerSettings
from rl.tasks import (
    START,
    STYLE_HINT,
    Cursor,
    Task,
    cursor_after,
    draw_tasks,
    hidden_inputs,
    load_tasks,
    messages,
    next_tasks,
    tasks_of_step,
)

ALL = DataSettings(split="all")


def toy(generate=lambda rng: [(1,)], examples=((0,),), **changes) -> Task:
    """A task that doubles a number."""
    return Task(name="toy/0", text="Return twice n.", signature="def double(n: int) -> int:", generate=generate,
                reference="def double(n: int) -> int:\n    return 2 * n\n", examples=examples, scalar=True, **changes)


def names(tasks):
    return [task.name for task in tasks]


# Which tasks

def test_split_parts_the_tasks():
    """Training tasks and held-out tasks share none and make up all."""
    train, held_out = load_tasks(DataSettings()), load_tasks(DataSettings(split="heldout"))

    assert (len(train), len(held_out)) == (80, 24)
    assert sorted(names(train) + names(held_out)) == sorted(names(load_tasks(ALL)))


@pytest.mark.parametrize("gives, named", [
    (lambda file: None, "gave a NoneType; it must give all its tasks and the names"), (lambda file: 3, "gave a int"),
    (lambda file: [1, 2, 3], "gave a list"), (lambda file: ([1, 2], {"a"}), "2 of its tasks have no name .* such as 1"),
    (lambda file: ([toy()], None), "gave a tuple"), (lambda file: ([], ()), "gave no tasks at all"),
    (lambda file: [][0], "raised IndexError: list index out of range .*test_taskset.py, line"),
    (lambda file: open(file + "/none"), "raised FileNotFoundError: .*none")])
def test_a_provider_that_gives_no_tasks(monkeypatch, gives, named):
    """Whatever one's own provider raises or gives instead of tasks and names: a line that says what, with its name."""
    monkeypatch.setitem(registry._REGISTERED["data provider"], "mine", registry.Registered(gives))
    with pytest.raises(InputError, match=f"TASKS=mine.*{named}"):
        load_tasks(DataSettings(tasks="mine", tasks_file="x"))


def test_n_tasks_takes_the_first_of_a_fixed_shuffled_order():
    """N tasks are a prefix of more, and the order never changes: scores over N_TASKS=40 compare between versions."""
    whole = names(load_tasks(DataSettings()))

    for n in (1, 2, 40, 80):
        assert names(load_tasks(DataSettings(n_tasks=n))) == whole[:n]
    assert whole[:4] == ["product_minus_sum", "two_sum", "factorial", "capitalize_words"]


def test_the_order_of_a_split_is_the_order_of_all():
    """What else is in the list moves no task, so a new task does not change which ones N_TASKS takes before it."""
    whole = names(load_tasks(ALL))

    for split in ("train", "heldout"):
        part = names(load_tasks(DataSettings(split=split)))
        assert part == [name for name in whole if name in part]


def test_task_names_choose_and_keep_the_order():
    """TASK_NAMES is a filter: it neither repeats a task nor reorders the list."""
    chosen = names(load_tasks(DataSettings(task_names="gcd, count_vowels,gcd,")))

    assert sorted(chosen) == ["count_vowels", "gcd"]
    assert chosen == [name for name in names(load_tasks(ALL)) if name in chosen]
    assert names(load_tasks(DataSettings(task_names="gcd,count_vowels", n_tasks=1))) == chosen[:1]


def test_a_minus_takes_a_task_out():
    """Alone it leaves all others, beside other names those."""
    train, chosen = names(load_tasks(DataSettings())), ("gcd", "count_vowels")
    assert names(load_tasks(DataSettings(task_names="-gcd, -count_vowels"))) == [name for name in train if name not in chosen]
    assert names(load_tasks(DataSettings(task_names="gcd,count_vowels,-gcd"))) == ["count_vowels"]


@pytest.mark.parametrize("settings, words", [
    (DataSettings(tasks="hard"), ["TASKS=hard", "lc_easy"]),
    (DataSettings(n_tasks=81), ["N_TASKS=81", "80", "train", "0 for all"]),
    (DataSettings(n_tasks=25, split="heldout"), ["N_TASKS=25", "24", "heldout"]),
    (DataSettings(n_tasks=-1), ["N_TASKS=-1", "0 for all"]),
    (DataSettings(n_tasks=2, task_names="gcd"), ["N_TASKS=2", "1 tasks"]),
    (DataSettings(task_names="gcb,lcm,zzz"), ["gcb (did you mean gcd?)", "lcm", "zzz", "train", "SPLIT=all"]),
    (DataSettings(task_names="-gcb"), ["gcb (did you mean gcd?)"]),
    (DataSettings(tasks_file="mine.json"), ["TASKS_FILE=mine.json", "unset"]),
])
def test_an_unusable_choice_is_refused(settings, words):
    """The message names the value, the limit and the way on, and all unknown names at once."""
    with pytest.raises(InputError) as refused:
        load_tasks(settings)

    assert all(word in str(refused.value) for word in words), refused.value


# Hidden inputs

def test_hidden_inputs_hold_the_examples_and_nothing_twice():
    """Examples first; repetitions go, equal values of another type stay: 1 and True are two different questions."""
    task = toy(lambda rng: [(1,), (True,), (0,), (1,), ([2],), ([2],)])

    assert repr(hidden_inputs(task, 0)) == "((0,), (1,), (True,), ([2],))"


def test_hidden_inputs_depend_on_seed_and_name_only():
    """The same seed repeats itself whatever happened to the global generator; another seed or task draws anew."""
    task = toy(lambda rng: [(rng.random(),)])
    first = hidden_inputs(task, 0)
    random.seed(5)

    assert hidden_inputs(task, 0) == first
    assert len({hidden_inputs(task, 1), hidden_inputs(replace(task, name="toy/1"), 0), first}) == 3


def test_a_suite_without_cases_is_refused():
    """No cases would pass every candidate, so that is an error which names the task and the seed."""
    with pytest.raises(ValueError, match="toy/0.*seed 3.*edge cases"):
        hidden_inputs(toy(lambda rng: [(0,)]), 3)


# The prompt

def test_the_prompt_shows_text_signature_and_examples():
    """Everything that fixes the answer is there, the examples as calls of the function that is asked for."""
    system, user = messages(toy(examples=((3,), (-4,))), (6, -8))

    assert (system["role"], user["role"]) == ("system", "user")
    for shown in ("Return twice n.", "def double(n: int) -> int:", "double(3) == 6\ndouble(-4) == -8\n", "```python"):
        assert shown in user["content"]


def test_examples_are_python():
    """An example line evaluates to True under the reference, also with several arguments and with strings in them."""
    for task in load_tasks(ALL):
        scope = {}
        exec(task.reference, scope)
        prompt = messages(task, task.example_results)[1]["content"]
        lines = prompt.split("Examples:\n")[1].split("\n\n")[0].split("\n")

        assert len(lines) == len(task.examples)
        assert all(eval(line, scope) is True for line in lines), task.name


def test_the_style_is_not_asked_for_unless_the_setting_is_on():
    """Style has to come from the reward; only the hint speaks of it, and it changes nothing else."""
    spoken = ("expression", "lisp", "one line", "one-liner", "single return", "comprehension", "functional", "recurs",
              "statement", "lambda", "concise", "elegant")
    for task in load_tasks(ALL):
        plain, hinted = messages(task, task.example_results), messages(task, task.example_results, style_hint=True)

        assert not any(word in message["content"].lower() for message in plain for word in spoken), task.name
        assert hinted[0] == plain[0] and hinted[1]["content"].startswith(plain[1]["content"])
        assert "one nested expression" in hinted[1]["content"]


def test_results_must_match_the_examples():
    """Too few or too many results would show a wrong prompt."""
    with pytest.raises(ValueError, match="toy/0: 0 example results for 1 examples"):
        messages(toy(), ())


def test_the_entry_point_is_the_function_not_the_task():
    """Tasks of other providers have names that are no identifiers."""
    assert toy().entry_point == "double"


def test_a_request_of_its_own_replaces_the_prompt():
    """It is said word for word, and the hint still works."""
    task = toy(examples=(), request="Complete {this}.")

    assert messages(task, ())[1]["content"] == "Complete {this}."
    assert messages(task, (), style_hint=True)[1]["content"] == f"Complete {{this}}.\n{STYLE_HINT}"


def test_the_program_of_a_plain_task_is_the_answer():
    """Nothing is put around it."""
    assert toy().program("from __future__ import annotations\nx") == "from __future__ import annotations\nx"
    assert toy().called == "double"


def test_what_stands_around_an_answer_leaves_it_valid():
    """Imports of features stay first, and the answer's own names win over the preamble's."""
    task = toy(preamble="import math\nK = 1", adapter="_graded = [annotations, K, double]")
    program = task.program("from __future__ import annotations\nK = 2\ndef double(n: unknown):\n    return n")
    scope = {}
    exec(program, scope)

    assert (task.called, scope[task.called][1]) == ("_graded", 2)
    assert program.count("__future__") == 1 and scope["math"]


# The batches

sizes = st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


@given(sizes, st.integers(0, 5), st.integers(0, 40))
def test_each_epoch_holds_every_task_once_and_no_step_holds_one_twice(size, seed, first_epoch):
    """Read as one stream, each n indices are all the tasks, from any epoch on, also where steps straddle epochs."""
    n, per_step = size
    start = first_epoch * n // per_step     # the step in which that epoch starts
    steps = [tasks_of_step(n, step, per_step, seed) for step in range(start, start + 3 * n // per_step + 2)]
    stream = [i for step in steps for i in step][first_epoch * n - start * per_step:]

    assert all(len(set(step)) == per_step for step in steps)
    for epoch in range(3):
        assert Counter(stream[epoch * n:(epoch + 1) * n]) == Counter(range(n))


def test_a_batch_is_a_function_of_its_arguments():
    """A resumed run repeats it: no state is kept, and the global generator plays no part."""
    first = [tasks_of_step(80, step, 8, 3) for step in range(40)]
    random.seed(1)

    assert [tasks_of_step(80, step, 8, 3) for step in reversed(range(40))][::-1] == first


def test_seeds_and_epochs_differ():
    """Neither two seeds nor two epochs train in the same order."""
    orders = [[i for step in range(epoch * 10, epoch * 10 + 10) for i in tasks_of_step(80, step, 8, seed)]
              for seed in (0, 1) for epoch in (0, 1)]

    assert len(set(map(tuple, orders))) == 4


@pytest.mark.parametrize("n, per_step", [(4, 5), (4, 0), (0, 1)])
def test_a_step_cannot_take_more_tasks_than_there_are(n, per_step):
    """The message names both settings."""
    with pytest.raises(InputError, match=rf"TASKS_PER_STEP={per_step}.*{n} tasks.*N_TASKS"):
        tasks_of_step(n, 0, per_step, 0)


def test_steps_count_from_zero():
    """A negative step is a mistake of the caller's."""
    with pytest.raises(ValueError, match="step -1"):
        tasks_of_step(4, -1, 2, 0)


# The order where tasks are replaced

@given(st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(1, n), min_size=1, max_size=30))),
       st.integers(0, 3))
def test_draws_of_any_size_go_through_the_epochs(size, seed):
    """No draw holds a task twice; at any time no task was drawn two times more often than another; a longer draw begins like
    a shorter one, and both are functions of the cursor alone."""
    n, counts = size
    cursor, often = START, Counter(dict.fromkeys(range(n), 0))
    for count in counts:
        drawn, after = draw_tasks(cursor, n, count, seed)
        assert len(set(drawn)) == len(drawn) == count
        assert draw_tasks(cursor, n, n, seed)[0][:count] == drawn
        assert draw_tasks(Cursor(*cursor), n, count, seed) == (drawn, after)
        often.update(drawn)
        cursor = after
        assert sum(often.values()) + len(cursor.rest) == cursor.epochs * n
        assert cursor.epochs - 1 <= min(often.values()) <= max(often.values()) <= cursor.epochs


def test_the_first_epoch_is_in_the_usual_order():
    """Replacing tasks changes how far a step goes, not the order it goes in."""
    assert draw_tasks(START, 80, 80, 3)[0] == [i for step in range(10) for i in tasks_of_step(80, step, 8, 3)]
    assert draw_tasks(START, 80, 80, 3)[0] != draw_tasks(START, 80, 80, 4)[0]


def dynamic(on, per_step=2, most=6):
    return Settings(generation=GenerationSettings(dynamic_sampling=on, max_sampled_groups=most),
                    trainer=TrainerSettings(tasks_per_step=per_step))


def test_what_lies_ahead_of_a_step():
    """Without DYNAMIC_SAMPLING the step's own tasks, and a cursor that stays; with it up to MAX_SAMPLED_GROUPS different ones,
    of which the next step finds those that were not taken."""
    assert next_tasks(8, 3, START, dynamic(False)) == tasks_of_step(8, 3, 2, 0)
    assert cursor_after(8, 2, START, dynamic(False)) == START
    first = next_tasks(8, 0, START, dynamic(True))
    after = cursor_after(8, 3, START, dynamic(True))
    assert len(first) == 6 and next_tasks(8, 1, after, dynamic(True))[:3] == first[3:]
    assert len(next_tasks(4, 0, START, dynamic(True))) == 4, "no more than there are tasks"


@pytest.mark.parametrize("per_step", [4, 5])
def test_replacing_needs_more_tasks_than_a_step_takes(per_step):
    """Said with both numbers before anything is loaded."""
    with pytest.raises(InputError, match=rf"DYNAMIC_SAMPLING.*TASKS_PER_STEP={per_step}.*4 tasks"):
        next_tasks(4, 0, START, dynamic(True, per_step))


def test_tasks_ask_for_the_tag_of_the_settings(tmp_path):
    """THINKING_TAG and FORM_EXAMPLE reach the prompt of every task that has thinking; programs have none."""
    (tmp_path / "mine.jsonl").write_text('{"question": "1 + 1?", "answer": 2}\n')
    word, = load_tasks(DataSettings(tasks="svamp", tasks_file=str(tmp_path / "mine.jsonl"), thinking_tag="reason"))
    assert "<reason> and </reason>" in word.messages()[0]["content"]
    with_example, = load_tasks(DataSettings(tasks="svamp", tasks_file=str(tmp_path / "mine.jsonl"), form_example=True))
    assert "For example" in with_example.messages()[0]["content"] and "For example" not in word.messages()[0]["content"]
    assert "reason>" not in load_tasks(DataSettings(thinking_tag="reason"))[0].messages()[0]["content"]
