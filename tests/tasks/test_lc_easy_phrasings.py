"""PROVIDER_KWARGS='{phrasings: N}': the same tasks in other words and under other names."""

import random
import re

import pytest

from rl.errors import InputError
from rl.sandbox import Sandbox
from rl.settings.declared import DataSettings
from rl.tasks import load_tasks, make_suite
from tasks.lc_easy_phrasings import ARGUMENTS, OTHER_WORDS
from tasks.lc_easy_tasks import HELD_OUT, MAX_PHRASINGS, TASKS, provide

ALL, HELD = provide("", phrasings=MAX_PHRASINGS)
ORIGINAL = {task.name: task for task in TASKS}
REPHRASED = [(task, ORIGINAL[task.name.rpartition("_")[0]]) for task in ALL if task.name not in ORIGINAL]


def answers(source, name, inputs):
    scope = {}
    exec(source, scope)
    return [scope[name](*arguments) for arguments in inputs]


def test_every_task_comes_as_often_as_asked_for():
    """Names and prompts are all different, the originals are unchanged, and a held-out task is so in all its phrasings."""
    assert len(ALL) == len({task.name for task in ALL}) == MAX_PHRASINGS * len(TASKS) and list(ALL[:len(TASKS)]) == TASKS
    assert len({(task.text, task.signature) for task in ALL}) == len(ALL) and provide("")[0] == TASKS
    assert {task.name for task, original in REPHRASED if original.name in HELD_OUT} == HELD - HELD_OUT and HELD >= HELD_OUT


def test_the_answers_are_those_of_the_original():
    """On the hidden inputs of a seed; the names that are asked for are the new ones."""
    for task, original in REPHRASED:
        inputs = task.generate(random.Random(3))

        assert inputs == original.generate(random.Random(3))
        assert task.entry_point != original.entry_point and task.entry_point in task.reference, task.name
        assert answers(task.reference, task.entry_point, inputs) == answers(original.reference, original.entry_point,
                                                                            original.generate(random.Random(3))), task.name


@pytest.mark.slow
def test_wrong_programs_stay_wrong():
    """Under the new names, too, each gives a wrong answer or none, but not for a name that is missing."""
    with Sandbox(workers=2, allow_weak=True) as box:
        programs = [(task.name, source, make_suite(box, task, 1))
                    for task, _ in REPHRASED[:2 * len(TASKS)] for source in task.mutants]
        found = box.grade([(source, suite) for _, source, suite in programs])
    assert not [(name, source) for (name, source, _), result in zip(programs, found, strict=True)
                if result.verdict == "pass" or "NameError" in result.detail]


def test_texts_speak_of_the_arguments_by_their_names():
    """Each argument is in the text, in backticks, and no brace is left over; the text differs from the original's."""
    assert OTHER_WORDS.keys() == ORIGINAL.keys()
    for task, original in REPHRASED:
        arguments = re.findall(r"(\w+): ", task.signature)

        assert all(f"`{name}`" in task.text for name in arguments), (task.name, task.text)
        assert not re.search(r"\{\w+\}", task.text) and task.text != original.text
    assert {*re.findall(r"\{(\w+)\}", str(OTHER_WORDS))} <= ARGUMENTS.keys()


def test_the_setting():
    """PROVIDER_KWARGS reaches the provider; a count out of range is refused with the limit."""
    assert len(load_tasks(DataSettings(provider_kwargs='{"phrasings": 2}'))) == 2 * 80
    with pytest.raises(InputError, match=f"phrasings: 9; ask for 1 to {MAX_PHRASINGS}"):
        provide("", phrasings=9)
