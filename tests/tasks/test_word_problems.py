"""Word problems from local files: how rows become tasks, what is refused, and the order of the curriculum."""
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl.errors import InputError
from rl.registry import build_data_provider
from rl.rewards.base import TrainingSample
from rl.rewards.words.answers import compare
from rl.rewards.words.rewards import format_tag_reward, gsm8k_correctness_reward, is_well_formed
from rl.settings.declared import DataSettings, Kwargs
from rl.tasks import load_tasks
from tasks.word_problems import Curriculum, TextTask


def lines(file, *rows, end="\n"):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(end.join(row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows).encode())
    return str(file)


def gsm(n, answer="#### 1"):
    return {"question": f"How many are {n} apples?", "answer": f"{n} is <<{n}={n}>>.\n{answer}"}


def problem(text="What is $1+1$?", level="Level 1", solution=r"It is $\boxed{2}$."):
    return {"problem": text, "level": level, "type": "Algebra", "solution": solution}


def math_folder(folder, **files):
    """A folder laid out as MATH is; names are split__subject__number."""
    for name, row in files.items():
        lines(folder / (name.replace("__", "/") + ".json"), row)
    return str(folder)


def load(provider, *paths, **kwargs):
    names = ("path",) if len(paths) == 1 else ("gsm8k_path", "math_path")
    return build_data_provider(provider, **dict(zip(names[1:], paths[1:], strict=True)), **kwargs)(paths[0])


# GSM8K

def test_gsm8k_as_it_is_published(shared_dir):
    """All rows load, the test split is held out, and each gold is right as the answer in a well-formed completion."""
    provided = load("gsm8k", str(shared_dir / "data/gsm8k"))
    tasks, held_out, left_out = provided.tasks, provided.held_out, provided.left_out

    assert (len(tasks), len(held_out), left_out) == (8792, 1319, {})
    samples = [TrainingSample(task.text, f"<think></think>\\boxed{{{task.answer}}}", task.answer, 9, "stop", task.metadata)
               for task in tasks[::40]]
    assert set(gsm8k_correctness_reward(samples)) == set(format_tag_reward(samples)) == {1.0}
    first, = [task for task in tasks if task.name == "gsm8k/train/1"]
    assert first.text.startswith("Natalia sold clips") and first.answer == "72" and first.source == "gsm8k"


def test_one_file_of_gsm8k(tmp_path):
    """A single file is trained on unless it is named test; CRLF, blank lines and a byte order mark do not matter."""
    rows = "\ufeff" + json.dumps(gsm(1, "#### 1,234")), "", gsm(2, "#### -5"), "  ", ""
    provided = load("gsm8k", lines(tmp_path / "train.jsonl", *rows, end="\r\n"))
    tasks, held_out = provided.tasks, provided.held_out

    assert [(task.name, task.answer) for task in tasks] == [("gsm8k/train/1", "1234"), ("gsm8k/train/3", "-5")] and not held_out
    assert len(load("gsm8k", lines(tmp_path / "test.jsonl", *rows)).held_out) == 2


def test_a_unicode_line_end_inside_a_text(tmp_path):
    """JSON lines end only at line feeds; a question may contain U+2028."""
    task, = load("gsm8k", lines(tmp_path / "train.jsonl", gsm("a\u2028b"))).tasks

    assert "a\u2028b" in task.text


def test_all_bad_rows_are_named_together(tmp_path):
    """With their lines, up to eight of them, and where the data is published."""
    rows = [gsm(1), "{", {"question": "q"}, {"question": " ", "answer": "#### 1"}, gsm(2, "no mark"), "[1]", '"text"', "3",
            gsm(3, "#### 1.5"), gsm(4, "#### 1\n#### 2"), {"question": 5, "answer": "#### 1"}]
    with pytest.raises(InputError) as caught:
        load("gsm8k", lines(tmp_path / "train.jsonl", *rows))
    text = str(caught.value)
    for part in ("10 rows cannot be used", "train.jsonl line 2: not JSON", "line 3: answer missing",
                 "line 4: question missing, b", "line 6: not a JSON object", "and 2 more", "openai/grade-school-math"):
        assert part in text


@pytest.mark.parametrize(("provider", "where"), [("gsm8k", "openai/grade-school-math"), ("svamp", "arkilpatel/SVAMP"),
                                                 ("math", "a copy of your own")])
def test_missing_files_say_where_to_get_them(tmp_path, provider, where):
    """No path, a missing path, a folder without such files, a file without rows."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "blank.jsonl").write_text("\n\n")
    for path in ("", str(tmp_path / "none"), str(tmp_path / "empty"), str(tmp_path / "blank.jsonl")):
        with pytest.raises(InputError, match=where):
            load(provider, path)


# SVAMP and files like it

def test_svamp(tmp_path):
    """The text is body and question; a whole float is a whole number; a list and lines, with or without ids, are the same."""
    rows = [{"ID": "chal-1", "Body": "Ann has 5 pens.", "Question": "How many are left?", "Type": "-", "Answer": 3.0},
            {"question": "Two and a half plus one?", "answer": "3.5"}, {"id": 7, "question": "1+1", "answer": 2}]
    want = [("svamp/chal-1", "Ann has 5 pens. How many are left?", "3"), (None, "Two and a half plus one?", "3.5"),
            ("svamp/7", "1+1", "2")]
    (tmp_path / "list.json").write_text(json.dumps(rows))
    for file in (lines(tmp_path / "rows.jsonl", *rows), str(tmp_path / "list.json")):
        found = [(task.name, task.text, task.answer) for task in load("svamp", file).tasks]
        assert [(name or found[1][0], text, answer) for name, text, answer in want] == found


def test_svamp_rows_that_cannot_be_used(tmp_path):
    """A repeated id, and missing or bad answers."""
    rows = [{"ID": "a", "Question": "q", "Answer": 1}, {"ID": "a", "Question": "r", "Answer": 2}, {"Question": "q"},
            {"Question": "q", "Answer": True}, {"Question": "q", "Answer": " "}, {"Question": "q", "Answer": 1, "Body": 3}]
    with pytest.raises(InputError, match="5 rows .*line 2: the id svamp/a was used before, in .* line 1; .*line 3: answer is "
                                         "missing.*line 4: .*line 5: .*line 6: body"):
        load("svamp", lines(tmp_path / "rows.jsonl", *rows))


@pytest.mark.parametrize(("provider", "row"), [
    ("svamp", lambda answer: {"question": f"How many are {answer}?", "answer": answer}),
    ("math", lambda answer: problem(f"What is {answer}?", 1, f"\\boxed{{{answer}}}"))])
def test_answers_that_cannot_be_hit_are_counted(tmp_path, capsys, provider, row):
    """The problems stay, since the same text is right; if there are no others, they are refused."""
    bad, good = ["3 (apples)", r"\cot x"], ["3", "x", "June 20"]
    some = lines(tmp_path / "some.jsonl", *map(row, bad + good))
    assert len(load(provider, some).tasks) == len(load(provider, some).tasks) == 5
    told = capsys.readouterr().err
    assert told.count("2 of 5 answers cannot be read") == 1 and "'3 (apples)'" in told
    load(provider, lines(tmp_path / "good.jsonl", *map(row, good)))
    assert capsys.readouterr().err == ""
    with pytest.raises(InputError, match=r"none of its 2 answers can be read, such as '3 \(apples\)' .*/1"):
        load(provider, lines(tmp_path / "bad.jsonl", *map(row, bad)))


def test_only_the_answers_of_the_chosen_levels_count(tmp_path):
    """The other levels' readable answers do not help."""
    file = lines(tmp_path / "math.jsonl", problem("A?", 1), problem("B?", 2, r"\boxed{\cot x}"))
    assert load("math", file, levels=[1, 2]).tasks
    with pytest.raises(InputError, match="none of its 1 answers can be read"):
        load("math", file, levels=[2])


# MATH, on problems of our own

def test_math_by_level(tmp_path):
    """Chosen levels; figures, other and unknown levels are left out and counted; test is held out; the last box is gold."""
    folder = math_folder(
        tmp_path, train__algebra__1=problem(), train__algebra__2=problem("Two thirds of 4?", "Level 2", r"\boxed{\frac{8}{3}}"),
        train__geometry__3=problem("[asy] draw(); [/asy] How long?"), train__algebra__4=problem("Three?", "Level 5"),
        train__algebra__5=problem("Four?", "Level ?"), train__algebra__6=problem("Five?", "Level 1"),
        test__algebra__1=problem("Five?", "Level 1", r"\boxed{1}, so \boxed{\boxed{5}}"))
    provided = load("math", folder, levels=[1, 2])
    tasks, held_out, left_out = provided.tasks, provided.held_out, provided.left_out
    assert load("math", folder, levels=["1", "2"]).tasks == tasks, "numbers as text"

    assert {(task.name, task.answer, task.level) for task in tasks} == {
        ("math/train/algebra/1", "2", 1), ("math/train/algebra/2", r"\frac{8}{3}", 2), ("math/test/algebra/1", "5", 1)}
    assert held_out == {"math/test/algebra/1"}
    assert left_out == {"figure": 1, "other level": 1, "level unknown": 1, "repeats a held-out problem": 1}
    whole = load("math", folder, levels=(1, 2), whole_answers=True)
    assert {task.name for task in whole.tasks} == {"math/train/algebra/1"} | held_out


def test_math_as_lines(tmp_path):
    """Rows with the level in digits and an id, in which the split says what is held out."""
    rows = [{**problem(level=3), "unique_id": "test/algebra/1.json"}, {**problem("B?", "4"), "unique_id": "train/algebra/2.json"}]
    provided = load("math", lines(tmp_path / "math.jsonl", *rows))
    tasks, held_out = provided.tasks, provided.held_out

    assert [(task.name, task.level) for task in tasks] == [("math/math/test/algebra/1.json", 3),
                                                           ("math/math/train/algebra/2.json", 4)]
    assert held_out == {tasks[0].name}


def test_math_that_cannot_be_used(tmp_path):
    """No box, an unclosed or empty one, missing fields, bad JSON, all named at once; and bad levels."""
    (tmp_path / "train").mkdir()
    (tmp_path / "train/9.json").write_text("{")
    folder = math_folder(tmp_path, train__1=problem(solution="2"), train__2=problem(solution=r"\boxed{2"),
                         train__3={"problem": "p"}, train__4=problem(solution=r"\boxed{ }"),
                         train__5={"problem": "p", "solution": r"\boxed{1}"})
    with pytest.raises(InputError, match=r"6 rows .*train/9.json: not JSON.*train/1.json: its solution.*train/2.json: its .*"
                                         r"train/3.json: solution missing.*train/4.json: its.*train/5.json: level is missing"):
        load("math", folder)
    for levels in ([0], [6, 1], []):
        with pytest.raises(InputError, match="levels 1 to 5"):
            load("math", folder, levels=levels)
    with pytest.raises(InputError, match="a list of whole numbers for 'levels', not 9"):
        load("math", folder, levels=9)
    with pytest.raises(InputError, match="math: TASKS_FILE is not set; the data is"):
        load("math", "")
    with pytest.raises(InputError, match="none of its 1 problems is left"):
        load("math", lines(tmp_path / "one.jsonl", problem()), levels=[5])


@pytest.mark.parametrize(("text", "asks"), [
    ("Factor $x^2+2x+1$.", True), ("Consider it. Expand $(x+1)^2$.", True), ("Write it in lowest terms.", True),
    ("What is the greatest common factor of 4 and 6?", False), ("The scale factor is 2. How far?", False), ("Solve.", False)])
def test_tasks_that_ask_for_a_form(tmp_path, text, asks):
    """If the text asks for a form, the same value in another form is wrong."""
    task, = load("math", lines(tmp_path / "math.jsonl", problem(text, 1, r"\boxed{(x+1)^2}"))).tasks

    assert task.same_form == asks and task.metadata["same_form"] == asks
    assert compare("x^2+2x+1", task.answer, task.same_form) is not asks


# Prompts

def test_prompts_share_their_beginning():
    """All problems share one system message, which asks for the block and the box; the style hint follows the problem."""
    one, two = TextTask("a", "How many?", "1", "gsm8k"), TextTask("b", "Solve.", "2", "math", 3)

    assert one.messages()[0] == two.messages(style_hint=True)[0] and one.messages()[1] == {"role": "user", "content": "How many?"}
    assert "<think> and </think>" in one.messages()[0]["content"] and "\\boxed{}." in one.messages()[0]["content"]
    assert two.messages(style_hint=True)[1]["content"].startswith("Solve.\n")
    shown = replace(one, example=True, tag="why").messages()[0]["content"]
    assert shown.startswith(replace(one, tag="why").messages()[0]["content"])
    assert is_well_formed(shown.split("Answer:\n")[1], "why")
    assert "<why> and </why>" in replace(one, tag="why").messages()[0]["content"]


# Curriculum

def curriculum(sizes, stage_steps):
    tasks = [TextTask(f"{pool}/{i}", "t", "1", "math", pool) for pool, size in enumerate(sizes) for i in range(size)]
    ends = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    return Curriculum(tasks, tuple(tuple(range(*ends[n:n + 2])) for n in range(len(sizes))), stage_steps)


@given(st.lists(st.integers(8, 13), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**31))
def test_the_curriculum_goes_through_every_pool_in_epochs(sizes, tasks_per_step, stage_steps, seed):
    """Open pools take turns; each pool gives all its tasks before any repeats, and no step has a task twice."""
    plan = curriculum(sizes, stage_steps)
    steps = [plan.batch(step, tasks_per_step, seed) for step in range(30)]
    drawn = [index for batch in steps for index in batch]

    assert all(len(set(batch)) == len(batch) for batch in steps)
    for slot, index in enumerate(drawn):
        stage = min(slot // (stage_steps * tasks_per_step), len(sizes) - 1)
        assert plan.tasks[index].level == slot % (stage + 1)
    for pool, members in enumerate(plan.pools):
        taken = [index for index in drawn if plan.tasks[index].level == pool]
        for start in range(0, len(taken), len(members)):
            epoch = taken[start:start + len(members)]
            assert len(set(epoch)) == len(epoch)


def test_the_curriculum_is_a_function_of_the_step():
    """There is no state: any order of calls, another object and another process give the same tasks."""
    plan = curriculum([20, 20], 2)
    forward = [plan.batch(step, 4, 7) for step in range(20)]

    assert [curriculum([20, 20], 2).batch(step, 4, 7) for step in reversed(range(20))] == forward[::-1]
    assert forward != [plan.batch(step, 4, 8) for step in range(20)]
    assert forward[0] == [13, 7, 11, 19], "as in another process, so a resumed run goes on with the same tasks"


def test_the_curriculum_from_files(tmp_path):
    """GSM8K alone at first, then also the lowest level, then both; nothing held out; missing parts are named."""
    gsm_folder = lines(tmp_path / "gsm/train.jsonl", *[gsm(n) for n in range(20)]).removesuffix("/train.jsonl")
    lines(tmp_path / "gsm/test.jsonl", gsm("other"))
    rows = [problem(f"{level}/{n}", level) for level in (2, 1) for n in range(10)]
    math_file = lines(tmp_path / "math/train.jsonl", *rows, problem("[asy]", 1))
    plan = load("gsm8k_math_curriculum", gsm_folder, math_file, levels=[2, 1], stage_steps="3e0")

    levels = [[plan.tasks[index].level for index in plan.order(step, 4, 0)] for step in range(9)]
    assert levels == [[0] * 4] * 3 + [[0, 1, 0, 1]] * 3 + [[0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 1, 2]]
    assert plan.held_out == {"gsm8k/test/1"} and plan.left_out == {"figure": 1}
    assert "gsm8k/test/1" not in {plan.tasks[index].name for step in range(50) for index in plan.order(step, 4, 0)}
    chosen = load_tasks(DataSettings(tasks="gsm8k_math_curriculum", tasks_file=gsm_folder, provider_kwargs=Kwargs(json.dumps(
        {"math_path": math_file, "levels": [1, 2]}))))
    assert len(chosen) == 41 and len(chosen.in_training) == 40, "what is held out has an index, and is not trained on"
    with pytest.raises(InputError, match="TASKS_PER_STEP=6 needs 12 problems .* 10 of math, 10 of math"):
        plan.order(0, 6, 0)
    with pytest.raises(InputError, match="no training problem of level 3"):
        load("gsm8k_math_curriculum", gsm_folder, math_file, levels=[1, 3])
    with pytest.raises(InputError, match="a number for 'stage_steps', not 'many'"):
        load("gsm8k_math_curriculum", gsm_folder, math_file, stage_steps="many")
    with pytest.raises(InputError, match="stage_steps=0"):
        load("gsm8k_math_curriculum", gsm_folder, math_file, stage_steps=0)
    with pytest.raises(InputError, match=r"(?s)'gone'.*'nowhere'.*levels: 9: .*stage_steps=0"):
        load("gsm8k_math_curriculum", "gone", "nowhere", levels=[9], stage_steps=0)
