"""A share of training's passes is graded again, in a sandbox of its own and on cases that training never saw."""

import sys
from contextlib import nullcontext

import pytest

from rl.rewards import lisp
from rl.rewards.base import Completion, Grade, GradedGroup, GradedSample, Grader
from rl.rewards.grading import recheck
from rl.rewards.lisp import ProgramGrader
from rl.rewards.setup import grader_of
from rl.sandbox import Sandbox, SandboxError
from rl.settings import config
from rl.tasks import Task, hidden_inputs

if not sys.platform.startswith("linux"):
    pytest.skip("the sandbox needs Linux", allow_module_level=True)

HONEST = "def double(n):\n    return 2 * n\n"
DOUBLE = Task(name="double", text="", signature="def double(n: int) -> int:", reference=HONEST, examples=((1,),),
              generate=lambda rng: [(rng.randrange(10**9),) for _ in range(5)], scalar=True)
# Right on training's cases alone, because it holds them.
LUCKY = f"def double(n):\n    return 2 * n if n in {[n for n, in hidden_inputs(DOUBLE, 1)]} else 0\n"


def settings(share, seed="0"):
    return config.load({"RECHECK_SHARE": str(share), "SEED": seed, "CASE_SEED": "1"}).settings


def look(groups, settings, step):
    """A recheck by the grader that these settings make; no task of its own, so that it makes no cases."""
    return recheck(grader_of(None, [], settings), [DOUBLE] * 2, groups, settings, step)


@pytest.fixture(scope="module")
def groups():
    """Two groups that training graded: honest and lucky passes, and a wrong answer."""
    completions = [Completion(DOUBLE, text, 9, "stop") for text in (HONEST, LUCKY, "def double(n):\n    return n\n")]
    with Sandbox(1) as box:
        grades = ProgramGrader(box, [DOUBLE], 0.5, 1).grade(completions)
    assert [grade.correct for grade in grades] == [True, True, False]
    samples = [GradedSample.of(one, grade) for one, grade in zip(completions, grades, strict=True)]
    return [GradedGroup("double", [], samples), GradedGroup("double", [], samples)]


def test_lucky_passes_are_found_and_named(groups, capsys):
    """With a share of 1 every pass is looked at, wrong answers are not; what fails is counted, named and explained."""
    assert look(groups, settings(1), 0) == {"grader/rechecked": 4, "grader/recheck_failed": 2}
    assert capsys.readouterr().out.count("a program for double that training paid for fails on other cases: wrong_answer") == 2


def test_the_share_decides_and_repeats(groups):
    """0 looks at nothing and starts nothing; a half looks at about half; the choice hangs on SEED and step alone."""
    class Passing(Grader):
        has_cases = True

        def second_grader(self, tasks):
            return nullcontext(self)

        def grade(self, completions):
            return [Grade("", "pass", True, 1.0) for _ in completions]

    grader = Passing()
    many = groups * 100
    tasks = [DOUBLE] * len(many)
    looked = lambda share, seed, step: recheck(grader, tasks, many, settings(share, seed), step)["grader/rechecked"]  # noqa: E731
    half = looked(0.5, "0", 3)
    assert 160 < half < 240 and looked(0.5, "0", 3) == half and looked(1, "0", 3) == 400
    assert len({half, looked(0.5, "0", 4), looked(0.5, "1", 3), looked(0.5, "2", 5)}) > 1
    grader.second_grader = lambda tasks: pytest.fail("asked for nothing")
    assert looked(0, "0", 3) == 0


def test_training_goes_on_without_a_second_sandbox(groups, monkeypatch, capsys):
    """No process to spare at that moment: nothing is rechecked, the log says why, no exception."""
    def refuse(*_arguments):
        raise SandboxError("no processes left")

    monkeypatch.setattr(lisp, "Sandbox", refuse)
    assert look(groups, settings(1), 6) == {"grader/rechecked": 0, "grader/recheck_failed": 0}
    assert "step 7: no recheck of 4 passes: no processes left" in capsys.readouterr().out


def test_every_objective_that_pays_programs_is_rechecked(groups, tmp_path):
    """Not the default one alone; where answers are compared there are no other cases."""
    (tmp_path / "mine.py").write_text("class Mine:\n    reward_names = lambda self: ('lisp_reward',)\n"
                                      "    combine_rewards = lambda self, scores: scores['lisp_reward']\n")
    for combine, looked in ((f"{tmp_path / 'mine.py'}:Mine", 4), ("additive", 0)):
        asked = config.load({"RECHECK_SHARE": "1", "CASE_SEED": "1", "COMBINE": combine}).settings
        assert look(groups, asked, 0)["grader/rechecked"] == looked
