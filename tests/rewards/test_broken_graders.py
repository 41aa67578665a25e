"""Three outcomes of grading a sample, kept apart: a score, graded wrong, and a grader that failed, which teaches nothing."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from rl.errors import InputError
from rl.rewards import lisp
from rl.rewards.base import Completion, Grade, Grader
from rl.rewards.grading import grade_safely, recheck, weak_passes
from rl.rewards.lisp import ProgramGrader, score_style
from rl.run.log import step_metrics
from rl.sandbox import Result
from rl.settings.declared import Settings
from rl.tasks import Prompt
from rl.training import step
from rl.training.advantages import advantages
from rl.training.step import rewards_of

ROWS = 8


def good(text, reward=1.0):
    return Grade(text, "pass" if reward else "wrong_answer", bool(reward), reward, 0.5, 1, 1, True, 0, "", ())


class Fake(Grader):
    """A grader whose third row of eight misbehaves as told; the others score 0 and 1 in turn."""

    def __init__(self, how):
        self.how, self.calls = how, 0

    def grade(self, completions):
        """One grade a completion, but for the third."""
        self.calls += 1
        found = [good(one.text, float(int(one.text) % 2)) for one in completions]
        for row, one in enumerate(completions):
            if one.text == "3":
                found[row] = self.how(found[row])
        return found


def raises(_grade):
    raise RuntimeError("no such node")


BAD = {"raises": raises, "None for a grade": lambda grade: None, "None for a reward": lambda grade: grade._replace(reward=None),
       "NaN": lambda grade: grade._replace(reward=math.nan), "infinite": lambda grade: grade._replace(reward=math.inf),
       "text": lambda grade: grade._replace(reward="1.0")}


def completions(task=None):
    return [Completion(task, str(row), 5, "stop") for row in range(ROWS)]


def graded(grader):
    prompt = Prompt(SimpleNamespace(name="t"), [{"role": "user", "content": "t"}], [1])
    return step.grade(grader, [prompt], completions(prompt.task))


@pytest.mark.known_bug(15)
@pytest.mark.parametrize("how", BAD, ids=str)
def test_one_bad_row_costs_that_row_alone(how, capsys):
    """Masked and counted, never 0 and never the run: the baseline is the other seven's, and the log says what happened."""
    groups = graded(Fake(BAD[how]))
    reward_PN = rewards_of(groups)
    assert np.isnan(reward_PN[0, 3]) and np.isfinite(np.delete(reward_PN[0], 3)).all()

    seven = np.array([0, 1, 0, 0, 1, 0, 1], float)
    np.testing.assert_allclose(np.delete(advantages(reward_PN)[0], 3), (seven - seven.mean()) / seven.std(), rtol=1e-6)
    assert advantages(reward_PN)[0, 3] == 0
    metrics = step_metrics(groups)
    assert metrics["grader/internal_error_rate"] == 1 / 8 and metrics["reward"] == pytest.approx(3 / 7)
    assert metrics["verdict/internal_error"] == 1 / 8 and metrics["pass_rate"] == pytest.approx(3 / 7)
    said = capsys.readouterr().out
    assert said.startswith("grader: 1 of 8 samples could not be graded and count nowhere: ") and said.count("\n") == 1


def test_the_reason_is_told(capsys):
    """The function, the kind of error and its text."""
    graded(Fake(raises))
    assert "Fake.grade: RuntimeError: no such node" in capsys.readouterr().out


def test_a_grader_that_always_fails_teaches_nothing(capsys):
    """Every sample masked: no advantage, a rate of 1, reward null; each step's line says so."""
    class Broken(Grader):
        def grade(self, completions):
            raise OSError("gone")

    groups = graded(Broken())
    metrics = step_metrics(groups)
    assert not advantages(rewards_of(groups)).any()
    assert metrics["grader/internal_error_rate"] == 1 and metrics["reward"] is None
    assert "8 of 8 samples" in capsys.readouterr().out


@pytest.mark.known_bug(15)
@pytest.mark.parametrize("change", [lambda found: found[:-1], lambda found: [*found, found[0]], lambda found: []])
def test_a_wrong_number_of_grades_is_an_error_that_names_the_function(change):
    """Which grade belongs to which sample cannot be known, so nothing is guessed."""
    class Short(Fake):
        def grade(self, completions):
            return change(super().grade(completions))

    with pytest.raises(InputError, match=r"Short.grade gave \d grades for 8 samples.*RESUME"):
        graded(Short(lambda grade: grade))


def test_a_good_grader_is_asked_once_and_left_alone(capsys):
    """Nothing is graded twice and nothing is said when there is nothing to say; 0 is a score."""
    grader = Fake(lambda grade: grade)
    assert grade_safely(grader, completions()) == [good(str(row), float(row % 2)) for row in range(ROWS)]
    assert grader.calls == 1 and capsys.readouterr().out == ""


def test_signals_pass_through():
    """Ctrl-C inside a grader is no fault of the grader."""
    class Stopped(Grader):
        def grade(self, completions):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grade_safely(Stopped(), completions()[:1])


def test_a_program_that_the_scorer_cannot_take_is_masked(monkeypatch):
    """The real grader: an error in the style scorer costs one sample, whatever the sandbox said of it."""
    from tests.rewards.test_recheck import DOUBLE, HONEST
    box = SimpleNamespace(expect=lambda *_, **__: None,
                          grade=lambda jobs: [Result("pass", 1, 1, "", 0.0, 0.0, ()) for _ in jobs])
    real = score_style
    monkeypatch.setattr(lisp, "score_style", lambda source, *rest, **named:
                        real(source, *rest, **named) if "deep" not in source else [][1])
    found = grade_safely(ProgramGrader(box, [DOUBLE], 0.5, 1),
                         [Completion(DOUBLE, HONEST), Completion(DOUBLE, HONEST + "# deep\n")])
    assert [grade.verdict for grade in found] == ["pass", "internal_error"]
    assert found[0].reward > 1 and "IndexError" in found[1].detail


def test_a_second_opinion_never_ends_a_run(capsys):
    """Failures while rechecking are counted out or told of; training goes on."""
    looked, failed = weak_passes(Fake(raises), completions(SimpleNamespace(name="t")), [good(str(row)) for row in range(ROWS)])
    assert looked == 7 and len(failed) == 4
    settings = Settings(sandbox=Settings().sandbox.__class__(recheck_share=1.0))
    grader = Fake(lambda grade: grade)
    grader.has_cases, grader.second_grader = True, cannot_start
    found = recheck(grader, [SimpleNamespace(name="t")], graded(grader), settings, 4)
    assert found == {"grader/rechecked": 0, "grader/recheck_failed": 0}
    assert "step 5: no recheck of 4 passes: 2 tasks cannot be graded" in capsys.readouterr().out


def cannot_start(tasks):
    raise InputError("2 tasks cannot be graded")
