"""TASKS=mixed: shares by turns, in epochs, through resumes and replaced tasks; what is refused, in one go; the real commands."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl.errors import InputError
from rl.registry import register_data_provider
from rl.rewards.setup import trainable
from rl.run.files import read_rows
from rl.settings import config
from rl.settings.declared import DataSettings, Kwargs, Settings, TrainerSettings
from rl.tasks import START, BaseTask, Mixture, Part, Provided, Task, cursor_after, load_tasks, next_tasks
from rl.training.checkpoint import data_cursor
from tasks.word_problems import TextTask
from tests.tasks.test_taskset import dynamic

PLUGIN = '''
from rl.registry import register_data_provider
from rl.tasks import Task


@register_data_provider("adders")
def adders(tasks_file, count: int = 6):
    """Tasks that add a constant; the last third is held out."""
    made = [Task(name=name, text=f"Return n plus {n}.", signature=f"def {name}(n: int) -> int:",
                 reference=f"def {name}(n):\\n    return n + {n}\\n", examples=((1,),), example_results=(1 + n,),
                 generate=lambda rng: [(k,) for k in range(2, 8)], scalar=True)
            for n in range(count) for name in [f"add_{n}"]]
    return made, {task.name for task in made[2 * count // 3:]}
'''


def programs(*names):
    return [Task(name=name, text=f"{name}.", signature=f"def {name}():", reference=f"def {name}():\n    return 1\n", examples=(),
                 generate=None, scalar=True) for name in names]


@register_data_provider("test_first")
def first(tasks_file, count: int = 20):
    tasks = programs("same", *(f"a{i}" for i in range(count)))
    return Provided(tasks, {"same", "a0"}, {"bad row": 2})


@register_data_provider("test_second")
def second(tasks_file, copies: str = ""):
    tasks = [replace(programs("same")[0], text="The other."), *programs(*(f"b{i}" for i in range(40)))]
    repeated = [replace(programs(copies)[0], name="again")] if copies else []
    return Provided([*tasks, *repeated], {"b1"}, {"bad row": 1, "too long": 4})


@register_data_provider("test_words")
def words(tasks_file):
    return [TextTask(f"w{i}", f"{i}?", str(i), source="test") for i in range(4)], {"w0"}


@register_data_provider("test_ordered")
def ordered(tasks_file):
    return Provided(programs("x", "y"), {"y"}, order=lambda step, count, seed: [0])


@register_data_provider("test_neither")
def neither(tasks_file):
    class Bare(BaseTask):
        name = "bare"
    return [Bare()], set()


def data(kwargs, **more):
    return DataSettings(tasks="mixed", provider_kwargs=Kwargs(json.dumps(kwargs)), **more)


BOTH = {"test_first": 0.3, "test_second": 0.7}

# ---- the order ---------------------------------------------------------------------------------------------------------


def settings(per_step=8, seed=0):
    return Settings(trainer=TrainerSettings(tasks_per_step=per_step, seed=seed))


def walk(tasks, steps, chosen, cursor=START, taken=None):
    """The names of each step's tasks, and the cursor after them."""
    found = []
    for step in range(steps):
        ahead = next_tasks(len(tasks), step, cursor, chosen, tasks.order)
        count = taken or len(ahead)
        found.append([tasks[i].name for i in ahead[:count]])
        cursor = cursor_after(len(tasks), count, cursor, chosen, tasks.order)
    return found, cursor


def test_of_ten_tasks_in_a_row_three_are_of_the_first():
    """0.3 of 8 is 2.4: no step is off by a whole task, ten turns hold 3 and 7 exactly, and no two of the rare one meet."""
    tasks = load_tasks(data(BOTH))
    steps, _ = walk(tasks, 50, settings())
    flat = ["a" if name[0] == "a" else "b" for step in steps for name in step]

    assert all(flat[i:i + 10].count("a") == 3 for i in range(len(flat) - 10)) and "aa" not in "".join(flat)
    assert {sum(name[0] == "a" for name in step) for step in steps} == {2, 3}
    assert all(len(set(step)) == 8 for step in steps)
    often = Counter(name for step in steps for name in step)
    assert all(max(counts) - min(counts) <= 1 for counts in ([often[f"a{i}"] for i in range(1, 20)],
                                                             [often[task.name] for task in tasks if task.name[0] != "a"]))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 12)), min_size=1, max_size=4), st.integers(1, 8), st.integers(0, 3))
def test_any_shares_and_sizes(parts, per_step, seed):
    """No step holds a task twice; after whole rounds each part has exactly its share; within a part no task is two ahead."""
    tasks = programs(*(f"p{part}_{i}" for part, (_, size) in enumerate(parts) for i in range(size)))
    names = [{f"p{n}_{i}" for i in range(size)} for n, (_, size) in enumerate(parts)]
    order = Mixture.of(tasks, {f"p{n}": Part(weight, names[n]) for n, (weight, _) in enumerate(parts)})
    chosen, total = settings(per_step, seed), sum(weight for weight, _ in parts)
    cursor, often = START, Counter()
    try:
        next_tasks(len(tasks), 0, START, chosen, order)
    except InputError as error:
        assert f"TASKS_PER_STEP={per_step} takes up to" in str(error)
        pattern = order.turns * (per_step + 1)
        windows = [Counter(pattern[i:i + per_step]) for i in range(total)]
        assert any(window[f"p{n}"] > size for window in windows for n, (_, size) in enumerate(parts)), "refused without need"
        return
    for step in range(total):    # per_step whole rounds
        drawn = next_tasks(len(tasks), step, cursor, chosen, order)
        assert len(set(drawn)) == per_step
        assert order.draw(cursor, max(1, per_step // 2), seed)[0] == drawn[:max(1, per_step // 2)]
        cursor = cursor_after(len(tasks), per_step, cursor, chosen, order)
        often.update(tasks[i].name for i in drawn)
    for n, (weight, size) in enumerate(parts):
        counts = [often[f"p{n}_{i}"] for i in range(size)]
        assert sum(counts) == weight * per_step and max(counts) - min(counts) <= 1


def test_a_saved_cursor_goes_on_where_it_was(tmp_path):
    """Through state.json, as in a checkpoint; another seed is another order."""
    tasks = load_tasks(data(BOTH))
    whole, _ = walk(tasks, 12, settings())
    begun, cursor = walk(tasks, 5, settings())
    folder = tmp_path / "checkpoints" / "step_00005"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(json.dumps({"step": 5, "cursor": cursor._asdict()}))

    assert data_cursor(tmp_path) == cursor
    assert begun + walk(tasks, 7, settings(), data_cursor(tmp_path))[0] == whole
    assert walk(tasks, 5, settings(seed=1))[0] != begun
    (folder / "state.json").write_text('{"step": 5, "cursor": {"epochs": 2, "rest": [1, 0]}}')
    assert data_cursor(tmp_path)[:2] == (2, (1, 0)), "a run of before"


def test_replaced_tasks_keep_the_shares():
    """DYNAMIC_SAMPLING looks ahead over different tasks of both; what was not taken comes next; where one provider's tasks are
    all taken, the other's go on."""
    tasks = load_tasks(data(BOTH))
    chosen = dynamic(True, per_step=4, most=20)
    ahead = next_tasks(len(tasks), 0, START, chosen, tasks.order)
    after = cursor_after(len(tasks), 7, START, chosen, tasks.order)
    assert len(set(ahead)) == 20 and sum(tasks[i].name[0] == "a" for i in ahead) == 6
    assert next_tasks(len(tasks), 1, after, chosen, tasks.order)[:13] == ahead[7:]

    few = load_tasks(data({"test_first": {"share": 0.5, "count": 3}, "test_second": 0.5}))    # a1 and a2 are left to train on
    ahead = [few[i].name for i in next_tasks(len(few), 0, START, chosen, few.order)]
    assert len(set(ahead)) == 20 and sum(name[0] == "a" for name in ahead) == 2
    often = Counter(name[0] for step in walk(few, 60, chosen, taken=4)[0] for name in step)
    assert often["a"] == 120
    with pytest.raises(InputError, match=r"TASKS_PER_STEP=6 takes up to 3 of test_first, which has 2 here"):
        next_tasks(len(few), 0, START, dynamic(True, per_step=6, most=20), few.order)


# ---- which tasks -------------------------------------------------------------------------------------------------------


def test_all_of_both_under_names_of_their_own():
    """Held out is what either holds out, reasons are summed, and only names that clash get their provider in front."""
    every, train, unseen = (load_tasks(data(BOTH, split=split)) for split in ("all", "train", "heldout"))
    names = {task.name for task in every}

    assert {"test_first/same", "test_second/same", "a1", "b39"} <= names and "same" not in names
    assert len(names) == len(every) == 62
    assert {task.name for task in unseen} == {"test_first/same", "a0", "b1"}
    assert {task.name for task in train} == names - {task.name for task in unseen}
    assert train.left_out == {"bad row": 3, "too long": 4}
    assert {task.entry_point for task in every if "/" in task.name} == {"same"}, "what is asked is as before"


def test_what_one_holds_out_the_other_does_not_train_on():
    """A task that asks the same is left out and counted, under whatever name."""
    found = load_tasks(data({"test_first": 0.3, "test_second": {"share": 0.7, "copies": "a0"}}))
    assert "again" not in {task.name for task in found} and found.left_out["repeats a held-out task"] == 1
    kept = load_tasks(data({"test_first": 0.3, "test_second": {"share": 0.7, "copies": "a1"}}))
    assert "again" in {task.name for task in kept} and "repeats a held-out task" not in kept.left_out


def test_share_0_is_for_measuring():
    """Held-out tasks are there, training tasks are not, and the others have all turns."""
    shares = {"test_first": 1, "test_second": 0}
    train = load_tasks(data(shares))
    assert not {task.name for task in train if task.name[0] == "b"} and train.left_out["of a provider with share 0"] == 40
    assert {task.name for task in load_tasks(data(shares, split="heldout"))} == {"test_first/same", "a0", "b1"}
    assert set(train.order.turns) == {"test_first"}


@pytest.mark.parametrize("count", [10, 20, 30])
def test_the_first_n_hold_the_shares(count):
    """N_TASKS keeps 3 in 10; a smaller number is a prefix; names choose as ever."""
    found = [task.name for task in load_tasks(data(BOTH, n_tasks=count))]
    assert sum(name[0] == "a" for name in found) == 3 * count // 10
    assert found == [task.name for task in load_tasks(data(BOTH, n_tasks=50))][:count]
    assert {task.name for task in load_tasks(data(BOTH, task_names="a3,b4"))} == {"a3", "b4"}


def test_a_choice_that_leaves_a_provider_nothing_cannot_be_trained_on():
    """Said before a model is read, with the provider and its count."""
    kwargs = json.dumps(BOTH)
    chosen = config.load({"TASKS": "mixed", "PROVIDER_KWARGS": kwargs, "TASK_NAMES": "a1,a2,a3,a4"}).settings
    with pytest.raises(InputError, match=r"up to 6 of test_second, which has 0 here"):
        trainable(chosen)
    assert len(trainable(config.load({"TASKS": "mixed", "PROVIDER_KWARGS": kwargs, "EVAL_EVERY": "5"}).settings)[1]) == 3


# ---- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kwargs", "lines"), [
    ({}, ["PROVIDER_KWARGS names no provider"]),
    ({"lc_eas": 0.4, "gsm8k": -1, "svamp": "much"}, ["lc_eas: no such task provider (did you mean lc_easy?)",
                                                     "gsm8k: a share of -1; give 0", "svamp: a share of 'much'"]),
    ({"lc_easy": 1.5}, ["lc_easy: a share of 1.5"]),
    ({"lc_easy": 0.0001, "test_first": 0.9999}, ["lc_easy: a share of 0.0001"]),
    ({"lc_easy": {"count": 3}}, ["lc_easy: a share of None"]),
    ({"lc_easy": True}, ["lc_easy: a share of True"]),
    ({"lc_easy": 0.3, "test_first": 0.3}, ["lc_easy 0.3, test_first 0.3 add up to 0.6; they must add up to 1"]),
    ({"lc_easy": 0, "test_first": 0}, ["add up to 0;"]),
    ({"mixed": 1}, ["mixed: no such task provider"]),
    ({"tasks_file": 1}, ["tasks_file: no such task provider"]),
    ({"test_first": {"share": 0.5, "cuont": 3}, "humaneval": 0.5}, ["takes no 'cuont' (did you mean count?)",
                                                                    "humaneval: TASKS_FILE is not set", "is tasks_file, beside"]),
    ({"test_ordered": 0.5, "test_first": 0.5}, ["test_ordered prescribes which task comes when"]),
    ({"test_first": {"share": 1, "count": 1}, "lc_easy": 0}, ["test_first holds all of its 2 tasks out"]),
    ({"test_words": 0.5, "test_first": 0.5}, ["test_words for answers to compare, test_first for programs"]),
    ({"test_neither": 0, "test_first": 1}, ["test_neither holds no task out", "test_neither for several kinds"]),
])
def test_each_problem_has_its_line(kwargs, lines):
    """All problems of one stage together, each with the provider's name and the way on."""
    with pytest.raises(InputError) as caught:
        load_tasks(data(kwargs))
    for line in lines:
        assert line in str(caught.value)
    assert str(caught.value).startswith("TASKS=mixed: ") and "Traceback" not in str(caught.value)


def test_tasks_file_belongs_to_a_provider():
    """One file for several providers is refused; thirds need not add up to the last digit."""
    with pytest.raises(InputError, match="TASKS_FILE=some.jsonl: which provider should read it"):
        load_tasks(data(BOTH, tasks_file="some.jsonl"))
    thirds = {"test_first": 0.333, "test_second": 0.333, "lc_easy": "0.333"}
    assert load_tasks(data(thirds)).order.turns == ("lc_easy", "test_first", "test_second")


def test_files_of_parts_lie_in_the_cache(tmp_path):
    """With CACHE_DIR a part's tasks_file is below datasets, as TASKS_FILE is."""
    found = config.load({"CACHE_DIR": str(tmp_path), "TASKS": "mixed",
                         "PROVIDER_KWARGS": "{lc_easy: 1, svamp: {share: 0, tasks_file: mine.jsonl}}"}).settings
    assert json.loads(found.data.provider_kwargs)["svamp"]["tasks_file"] == str(tmp_path / "datasets" / "mine.jsonl")


# ---- the real commands -------------------------------------------------------------------------------------------------


def command(root, name, *arguments, **environ):
    done = subprocess.run([sys.executable, root / name, *arguments], cwd=root, capture_output=True, text=True, timeout=300,
                          env={**os.environ, **environ})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def mix(tiny_model, tmp_path):
    (tmp_path / "adders.py").write_text(PLUGIN)
    return {"MODEL": str(tiny_model), "PLUGINS": str(tmp_path / "adders.py"), "TASKS": "mixed", "MAX_NEW_TOKENS": "8",
            "DECODE_BLOCK": "4", "PROVIDER_KWARGS": "{lc_easy: 0.5, adders: {share: 0.5, count: 9}}", "TASKS_PER_STEP": "4"}


@pytest.mark.slow
def test_a_resumed_run_equals_an_unbroken_one(root, mix, tmp_path):
    """Tasks and texts of all steps, bit for bit, with evaluations on the held-out tasks of both."""
    small = mix | {"GROUP": "2", "SAVE_EVERY": "1", "EVAL_EVERY": "4", "EVAL_SAMPLES": "1", "EVAL_TASKS": "5"}
    command(root, "train_grpo.py", **small, STEPS="4", OUT=str(tmp_path / "whole"))
    command(root, "train_grpo.py", **small, STEPS="2", OUT=str(tmp_path / "parts"))
    command(root, "train_grpo.py", STEPS="4", RESUME=str(tmp_path / "parts"))

    def samples(name):
        files = sorted((tmp_path / name / "completions").iterdir())
        return [[(row["task"], row["text"]) for row in read_rows(path)] for path in files]

    seen = samples("whole")
    assert len(seen) == 4 and seen == samples("parts")
    assert all(sum(task.startswith("add_") for task, _ in step) == 4 for step in seen), "two of four tasks, two samples each"
    assert [row["eval/tasks"] for row in read_rows(tmp_path / "whole" / "eval.jsonl")] == [5, 5]


@pytest.mark.slow
def test_probes_and_queries_of_a_mix(root, mix, tmp_path):
    """SPLIT=heldout holds both providers' tasks; one task can be asked by name."""
    out = tmp_path / "probe.json"
    command(root, "run_probe.py", **mix, SPLIT="heldout", N_SAMPLES="1", OUT=str(out))
    names = {task["task"] for task in json.loads(out.read_text())["tasks"]}
    assert {"add_6", "add_7", "add_8", "lcm"} <= names and len(names) == 27
    assert "add_3" in command(root, "query.py", "--task", "add_3", **mix, N_SAMPLES="1")
    assert "add_8" in command(root, "query.py", "--list", **mix)
