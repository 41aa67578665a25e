"""Generated tasks: what they ask is what their references do, and nothing near it passes."""
import copy
import json
import os
import random
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from rl.errors import InputError
from rl.registry import build_data_provider
from rl.rewards.lisp import score_style
from rl.sandbox import Sandbox
from rl.tasks import hidden_inputs, make_suite
from tasks import generated, reader
from tasks.generated import Judge, draw, is_held_out, pool_of, provide, task_of
from tasks.grammar import HELD_OUT_OPS, INNER, OPS
from tasks.mutants import make_mutants
from tasks.programs import (
    Program,
    compiled,
    draw_program,
    expression_source,
    statement_source,
    text_of,
)

ROOT = Path(__file__).resolve().parent.parent.parent
NAMES = {"lists": ("a", "b")}
# Of each program, what it gives for an input: worked out by hand.
BY_HAND = [
    ("ints", [("keep_even", None), ("map_square", None), ("sum", None)], [1, 2, -4, 7], 20),
    ("ints", [("map_quotient", 2), ("map_remainder", 3)], [-3, -1, 7], [1, 2, 0]),
    ("ints", [("map_digit_sum", None)], [-123, 0, 45], [6, 0, 9]),
    ("ints", [("cut_negative", None), ("reverse", None)], [3, 4, -1, 5], [4, 3]),
    ("ints", [("from_above", 5)], [1, 5, 6, 2], [6, 2]),
    ("ints", [("floor_walk", None)], [3, -5, 4, -1], [3, 0, 4, 3]),
    ("ints", [("account", None)], [3, -5, 4, -1], [3, 3, 7, 6]),
    ("ints", [("run_lengths", None)], [5, 5, 2, 5], [2, 1, 1]),
    ("ints", [("sort_absolute", None)], [2, -3, -2, 1], [1, -2, 2, -3]),
    ("ints", [("sort_last_digit", None)], [21, -11, 30, 9], [30, 21, -11, 9]),
    ("ints", [("window_sum", 3)], [1, 2, 3, 4], [6, 9]),
    ("ints", [("blocks", 2), ("each_row", None, ("sort_down", None)), ("row_sums", None)], [1, 5, 2, 2, 9], [6, 4, 9]),
    ("ints", [("runs", None)], [1, 1, 0, 4, 3], [[1, 1], [0, 4], [3]]),
    ("ints", [("if_longer", 4, ("reverse", None), ("sort", None))], [3, 1, 2], [1, 2, 3]),
    ("ints", [("if_longer", 4, ("reverse", None), ("sort", None))], [3, 1, 2, 5, 4], [4, 5, 2, 1, 3]),
    ("ints", [("most_common", None)], [4, 1, 4, 1, 7], 1),
    ("ints", [("middle", None)], [9, 1, 5, 3], 3),
    ("ints", [("alternating", None)], [10, 3, 2], 9),
    ("words", [("word_drop_palindrome", None), ("word_beginning", 2), ("by_initial", None)], ["noon", "tree", "to"], {"t": 2}),
    ("words", [("words_by_end", None), ("join_hyphens", None)], ["tab", "sea", "rib"], "sea-tab-rib"),
    ("text", [("split", None), ("word_lengths", None)], "  to  be ", [2, 2]),
    ("text", [("text_caesar", 3), ("text_upper", None)], "xyz a", "ABC D"),
    ("text", [("text_run_length", None)], "aab", "a2b1"),
    ("mixed", [("text_digits", None), ("product", None)], "a2 b35", 30),
    ("moves", [("walk_walled", None)], "LRRL", [0, 1, 2, 1]),
    ("count", [("halving", None)], 6, [6, 3, 10, 5, 16, 8, 4, 2, 1]),
    ("number", [("binary", None), ("length", None)], 9, 4),
    ("pairs", [("pairs_by_number", None), ("pairs_names", None)], [("bo", 1), ("al", 1), ("cy", 2)], ["cy", "al", "bo"]),
    ("counts", [("counts_above", 1), ("counts_best", None)], {"b": 3, "a": 3, "z": 1}, "a"),
    ("grid", [("turn", None)], [[1, 2], [3, 4]], [[3, 1], [4, 2]]),
    ("grid", [("column_sums", None)], [[1, 2], [3, 4]], [4, 6]),
    ("lists", [("zip_distance", None)], ([1, 9, 3], [4, 2]), [3, 7]),
    ("lists", [("interleave", None)], ([1, 2, 3], [9]), [1, 9, 2, 3]),
]


def made(numbers, seed=0):
    """(candidate, accepted, task) of the seed's first candidates that become tasks."""
    judge = Judge()
    judged = [(draw(seed, number), judge.judge(draw(seed, number), number)) for number in range(numbers)]
    assert "its two references differ" not in judge.rejected and "the text reads as another program" not in judge.rejected
    return [(candidate, accepted, task_of(candidate, accepted)) for candidate, accepted in judged if accepted]


@pytest.fixture(scope="module")
def few():
    return made(120)


def operations(op):
    """The operation with each constant and some contents."""
    inner = [(name, constant) for name in INNER for constant in OPS[name].constants[:1] or (None,)]
    insides = [(), [(one,) for one in inner], list(zip(inner, inner[7:] + inner[:7], strict=True))][op.inner] or [()]
    return [(op.name, constant, *inside) for constant in op.constants or (None,) for inside in insides]


def variants(program, count):
    """Different texts of a program."""
    names = NAMES.get(program.source, ("moves",))    # the name of a type, which the reader must not take for one
    return {text_of(program, names, random.Random(i)) for i in range(count)}


# What a program is

@pytest.mark.parametrize("source, chain, value, answer", BY_HAND)
def test_programs_worked_out_by_hand(source, chain, value, answer):
    """Both references give what a person finds by reading the text."""
    program, names = Program(source, tuple(chain)), NAMES.get(source, ("x",))
    arguments = value if source == "lists" else (value,)
    for write in (expression_source, statement_source):
        assert compiled(write(program, "f", names))(*copy.deepcopy(arguments)) == answer


def test_two_references_of_random_programs_agree():
    """Also of programs that would make dull tasks: each operation's expression and its statements are two ways to one value."""
    seen = set()
    for i in range(250):
        program = draw_program(random.Random(f"agree/{i}"))
        names = NAMES.get(program.source, ("x",))
        one, other = (compiled(write(program, "f", names)) for write in (expression_source, statement_source))
        for value in pool_of(program.source)[:40]:
            given = generated.given(program.source, value)
            assert one(*copy.deepcopy(given)) == other(*copy.deepcopy(given)), (program, value)
        seen |= {*program.names()}
    assert len(seen) > 200


def test_each_operation_alone_in_two_ways():
    """No operation is left to chance: all, with every constant, on inputs that it takes."""
    for op in OPS.values():
        kind = {"rows": "grid"}.get(op.takes, op.takes)
        for operation in operations(op)[:12]:
            program, names = Program(kind, (operation,)), NAMES.get(kind, ("x",))
            one, other = (compiled(write(program, "f", names)) for write in (expression_source, statement_source))
            for value in pool_of(kind)[:30]:
                given = generated.given(kind, value)
                assert one(*given) == other(*generated.given(kind, value)), (operation, value)
                assert given == generated.given(kind, value), f"{operation} changes its argument"


# Its text

def test_every_phrase_of_every_operation_reads_back():
    """The reader finds the operation, its constant and what it contains, and nothing else, in each way to say it."""
    count = 0
    for op in OPS.values():
        kind = {"rows": "grid"}.get(op.takes, op.takes)
        for operation in operations(op)[:40]:
            for text in variants(Program(kind, (operation,)), 7):
                assert reader.read(text) == [Program(kind, (operation,))], text
                count += 1
    assert count > 3000


def test_random_programs_read_back_in_every_phrasing():
    """Chains too; and no two programs ever share a text."""
    texts = {}
    for i in range(150):
        program = draw_program(random.Random(f"read/{i}"))
        for text in variants(program, 6):
            assert reader.read(text) == [program], text
            assert texts.setdefault(text, program) == program
    assert len(texts) > 500


@pytest.mark.parametrize("change", [
    ("are even", "are evil"), ("Keep only", "Keep"), ("are even", "are odd"), ("square", "cube"), ("1. ", "2. "),
    ("Return the sum", "Return a sum")])
def test_a_changed_text_reads_as_something_else(change):
    """The reader does not skip what it does not understand."""
    program = Program("ints", (("keep_even", None), ("map_square", None), ("sum", None)))
    text = ("`x` is a list of integers. Do these steps in order:\n1. Keep only the numbers that are even.\n"
            "2. Square each number.\n3. Return the sum of the numbers (0 if there are none).")
    assert reader.read(text) == [program]
    changed = text.replace(*change) if change[0] in text else text.replace(change[0].capitalize(), change[1].capitalize())
    assert changed != text and reader.read(changed) != [program]


def test_a_text_has_several_phrasings():
    """Frames, phrases and introductions vary, and so do names from task to task."""
    program = Program("ints", (("keep_even", None), ("sort", None), ("sum", None)))
    assert len(variants(program, 200)) > 30
    drawn = [draw(0, i) for i in range(300)]
    assert len({candidate.function for candidate in drawn}) > 80 and len({candidate.arguments for candidate in drawn}) > 30


# A task

def test_a_task_has_what_every_task_has(few):
    """Prompt, examples that the reference confirms, two to three of them with different answers, and its difficulty."""
    for candidate, _, task in few:
        run = compiled(task.reference)
        prompt = task.messages()[1]["content"]
        assert candidate.text in prompt and task.signature in prompt and 2 <= len(task.examples) <= 3
        assert [run(*copy.deepcopy(given)) for given in task.examples] == list(task.example_results)
        assert len({*map(repr, task.example_results)}) == len(task.examples)
        assert task.metadata["difficulty"] == len(candidate.program.names()) == len(task.name.split("_")) - 2
        assert task.metadata["nesting"] == score_style(task.reference, task.entry_point, task.scalar).depth
        assert score_style(task.reference, task.entry_point, task.scalar).pure
        assert task.scalar == isinstance(task.example_results[0], int | str)


def test_wrong_programs_fail_under_every_seed(few):
    """Operations left out, exchanged or replaced, other constants, branches: no suite lets one pass."""
    count = 0
    for _, _, task in few:
        right, wrongs = compiled(task.reference), [compiled(source) for source in task.mutants]
        for seed in range(4):
            inputs = hidden_inputs(task, seed)
            expected = [right(*copy.deepcopy(given)) for given in inputs]
            for wrong in wrongs:
                assert not passes(wrong, inputs, expected), (task.name, task.reference)
                count += 1
    assert count > 1500


def passes(function, inputs, expected):
    try:
        return all(function(*copy.deepcopy(given)) == answer for given, answer in zip(inputs, expected, strict=True))
    except Exception:
        return False


def test_mutants_of_every_kind_fail_where_they_differ(few):
    """Of the mutants that mutants.py makes of any task, those that pass are right on all 200 inputs of the pool."""
    for candidate, _, task in few[::4]:
        right, inputs = compiled(task.reference), hidden_inputs(task, 5)
        expected = [right(*copy.deepcopy(given)) for given in inputs]
        pool = [generated.given(candidate.program.source, value) for value in pool_of(candidate.program.source)]
        pool = [given for given in pool if given not in task.examples]
        for mutant in make_mutants(task):
            function = compiled(mutant.source)
            if passes(function, inputs, expected):
                assert passes(function, pool, [right(*copy.deepcopy(given)) for given in pool]), (task.name, mutant)


def test_no_two_tasks_are_the_same_function(few):
    """Nor the same text."""
    assert len({accepted.answers for _, accepted, _ in few}) == len({task.text for _, _, task in few}) == len(few)


def test_dull_programs_are_refused():
    """For the reason that a person would name."""
    def judged(source, chain):
        program, judge = Program(source, tuple(chain)), Judge()
        names = NAMES.get(source, ("x",))
        text = text_of(program, names, random.Random(0))
        judge.judge(generated.Candidate("gen0_00000", program, text, "f", names), 0)
        return [*judge.rejected]
    assert judged("ints", [("map_sign", None), ("count_above", 3)]) == ["answers hardly vary"]
    assert judged("ints", [("sort", None), ("sum", None)]) == ["an operation or branch is nearly idle"]
    assert judged("ints", [("map_negate", None), ("sort", None), ("map_negate", None), ("sum", None)]) == [
        "an operation or branch is nearly idle"]
    assert judged("ints", [("map_at_least", 1), ("map_at_least", 2)]) == ["an operation follows itself"]
    assert judged("ints", [("map_at_most", 5), ("map_at_least", 6)]) == ["a constant or condition is idle"]
    assert judged("ints", [("if_longer", 4, ("reverse", None), ("reverse", None)), ("sum", None)]) == [
        "an operation or branch is nearly idle"]
    assert judged("ints", [("run_values", None)]) == ["the answer is mostly an argument"]
    assert judged("ints", [("sort_down", None)]) == []
    assert judged("ints", [("running_sum", None)]) == ["equals a task of lc_easy"]


def test_a_text_that_reads_otherwise_is_refused():
    """A slip in the words is found by the reader before any model sees it."""
    program = Program("ints", (("keep_even", None), ("map_square", None)))
    text = ("`x` is a list of integers. Keep only the numbers that are odd. Then square each number. Finally, return the "
            "resulting list.")
    judge = Judge()
    assert judge.judge(generated.Candidate("gen0_00000", program, text, "f", ("x",)), 0) is None
    assert [*judge.rejected] == ["the text reads as another program"]
    right = text.replace("odd", "even")
    assert judge.judge(generated.Candidate("gen0_00000", program, right, "f", ("x",)), 0)
    assert judge.judge(generated.Candidate("gen0_00001", program, right, "f", ("x",)), 1) is None
    assert judge.rejected["equals another generated task"] == 1


def test_references_pass_in_the_sandbox(few):
    """In time, twice, and a mutant does not."""
    with Sandbox(workers=1) as sandbox:
        for _, _, task in few[:12]:
            suite = make_suite(sandbox, task, case_seed=3)
            graded = sandbox.grade([(task.reference, suite), (task.reference, suite), (task.mutants[0], suite)])
            assert [one.verdict == "pass" for one in graded] == [True, True, False], task.name


# Which tasks

@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def names(found):
    return [task.name for task in found.tasks]


def test_a_larger_count_keeps_the_earlier_tasks(cache, capsys):
    """Whether they come from the cache or are judged anew; what is not compared is said."""
    first = provide("", count=10)
    more = provide("", count=25)
    assert names(more)[:10] == names(first) and len({*names(more)}) == 25
    file, = cache.rglob("*.json")
    file.unlink()
    assert names(provide("", count=25)) == names(more)
    assert more.held_out == {task.name for task in more.tasks if is_held_out(task.program_of)}
    assert "not compared with humaneval and mbpp" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path):
    """Costs time, nothing else."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(provide("", count=5).tasks) == 5


def test_difficulty_and_concepts_choose(cache):
    """All that were asked for, in the order of the seed."""
    easy = provide("", count=15, difficulty=[1, 2])
    assert {task.metadata["difficulty"] for task in easy.tasks} == {1, 2}
    some = provide("", count=10, concepts=["grid", "zip"])
    assert all({"grid", "zip"} & {*task.metadata["concepts"]} for task in some.tasks)
    assert not {*names(provide("", count=10, seed=1))} & {*names(provide("", count=10))}


def test_what_is_held_out_is_never_trained_on(cache):
    """An operation of the list, or a pair that the hash picks, makes a task held out: no other has it."""
    found = provide("", count=60)
    trained = [task for task in found.tasks if task.name not in found.held_out]
    assert 0.1 < len(found.held_out) / len(found.tasks) < 0.4
    assert not HELD_OUT_OPS & {name for task in trained for name in task.metadata["operations"]}
    assert all(is_held_out(Program("ints", ((name, None),))) for name in HELD_OUT_OPS)
    picked = [(a, b) for a, b in product(list(OPS)[:60], repeat=2) if is_held_out(Program("ints", ((a, None), (b, None))))
              and not HELD_OUT_OPS & {a, b}]
    assert 0.01 < len(picked) / 3600 < 0.06


@pytest.mark.parametrize("kwargs, said", [
    ({"count": 0}, "count: 0; ask for 1 to 5000"), ({"count": 5001}, "count: 5001; ask for 1 to 5000"),
    ({"difficulty": [2, 1]}, r"difficulty: \[2, 1\]; .* from 1 to 5"), ({"difficulty": [3]}, r"difficulty: \[3\]"),
    ({"difficulty": [0, 9]}, "from 1 to 5"),
    ({"concepts": ["filtre"]}, r"concepts: filtre \(did you mean filter\?\).* there are .*zip"),
    ({"count": "many"}, "wants a number for 'count'"), ({"counts": 3}, r"takes no 'counts' \(did you mean count\?\)"),
    ({"concepts": "sort"}, "wants a list of texts for 'concepts'"), ({"humaneval_path": "none.jsonl"}, "none.jsonl")])
def test_wrong_kwargs_are_one_line(kwargs, said, cache):
    """With the value, the limit and the way on."""
    with pytest.raises(InputError, match=said) as error:
        build_data_provider("generated", **kwargs)("")
    assert "\n" not in str(error.value)


def test_a_file_is_refused():
    """There is none to read."""
    with pytest.raises(InputError, match=r"TASKS_FILE=x.json: .* unset TASKS_FILE"):
        provide("x.json")


def test_what_equals_a_benchmark_is_left_out(cache, tmp_path):
    """A problem in HumanEval's format that a generated task equals takes that task away, and is named."""
    task = provide("", count=1).tasks[0]
    head, body = task.reference.rstrip().split("\n", 1)
    parameter = task.examples[0]
    row = {"task_id": "Mine/7", "prompt": head + '\n    """Same."""\n', "entry_point": task.entry_point,
           "canonical_solution": body + "\n",
           "test": f"def check(candidate):\n    assert candidate(*{parameter!r}) == {task.example_results[0]!r}\n"}
    (tmp_path / "mine.jsonl").write_text(json.dumps(row) + "\n")
    left = provide("", count=1, humaneval_path=str(tmp_path / "mine.jsonl"))
    assert names(left)[0] != task.name and list(left.left_out.values()) == [1] and "Mine/7" in str(left.left_out)


def test_tasks_are_the_same_in_another_process():
    """Whatever its hash seed."""
    code = "from tasks.generated import *; j = Judge(); print([(draw(0, i), j.judge(draw(0, i), i)) for i in range(25)])"
    said = {subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed},
                           capture_output=True, text=True, check=True).stdout for seed in ("1", "2")}
    assert len(said) == 1 and "gen0_00001" in said.pop()


@pytest.mark.slow
def test_three_thousand_tasks(cache):
    """All from one seed: different texts, names and functions, short prompts, each concept and difficulty on both sides of the
    split."""
    found = provide("", count=3000)
    assert len({task.text for task in found.tasks}) == len({*names(found)}) == 3000
    for part in (True, False):
        some = [task for task in found.tasks if (task.name in found.held_out) == part]
        assert {task.metadata["difficulty"] for task in some} == {1, 2, 3, 4, 5}
        assert {concept for task in some for concept in task.metadata["concepts"]} == {*generated.CONCEPTS}
    assert max(len(task.messages()[1]["content"]) for task in found.tasks) < 2200
    assert all(reader.read(task.text) == [task.program_of] for task in found.tasks)
