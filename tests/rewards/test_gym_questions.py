"""TASKS=reasoning_gym and COMBINE=reasoning_gym: which questions, who scores them, what is refused, and the commands.

Questions and scores themselves are tested in test_gym.py, the seeds of grpo_proof.py in tests/proof/test_steps.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import query
import run_probe
import train_grpo
from rl import command
from rl.errors import InputError
from rl.evaluation.probe import ProbeGrader
from rl.rewards.base import Completion
from rl.rewards.grading import grade_safely
from rl.rewards.gym import questions
from rl.rewards.gym.client import Family, Question
from rl.rewards.gym.questions import EVALUATE_FROM, GymGrader, Score, check_families, draw_questions, provide, training_questions
from rl.rewards.setup import build_objective, check_tasks, checked_combiner, grader_of, judge_of, open_judge, runs_code
from rl.run.files import read_rows
from rl.settings import config
from rl.tasks import load_tasks
from rl.training.device import explain_memory
from tasks.word_problems import TextTask
from tests.commands.test_train import assert_same_run
from tests.proof.test_steps import FakeGym

ROOT = Path(__file__).resolve().parents[2]
# Random weights solve neither, but the first gives partial credit, so groups differ and there is something to learn.
FAMILIES = {"families": ["propositional_logic", "chain_sum:max_terms=3"], "tasks": 6, "held_out": 4}
ENV = {"TASKS": "reasoning_gym", "COMBINE": "reasoning_gym", "PROVIDER_KWARGS": json.dumps(FAMILIES)}
SMALL = ENV | {"STEPS": "2", "TASKS_PER_STEP": "2", "GROUP": "4", "MAX_NEW_TOKENS": "16", "LORA_RANK": "2", "SAVE_EVERY": "1",
               "LEARNING_RATE": "0.05"}


def settings(**values):
    return config.load(ENV | {name.upper(): str(value) for name, value in values.items()}).settings


def kwargs(**values):
    return json.dumps(FAMILIES | values)


# Questions

def test_training_and_held_out_questions_share_nothing():
    """As many of each family as asked for; seeds from 0 and from 100,000; no name or text on both sides; one worker for all."""
    train, unseen = load_tasks(settings().data), load_tasks(settings(split="heldout").data)
    by_family = lambda tasks: sorted((task.family.text, task.seed) for task in tasks)  # noqa: E731

    families = ("chain_sum:max_terms=3", "propositional_logic")
    assert by_family(train) == [(family, seed) for family in families for seed in range(6)]
    assert by_family(unseen) == [(family, EVALUATE_FROM + seed) for family in families for seed in range(4)]
    assert not {task.text for task in train} & {task.text for task in unseen}
    every = load_tasks(settings(split="all").data)
    assert {task.name for task in every} == {task.name for task in [*train, *unseen]}
    assert draw_questions.cache_info().misses == 1, "each split started a worker of its own"


def test_n_tasks_takes_the_first_of_a_fixed_order():
    """N_TASKS and TASK_NAMES select from them as from any provider's tasks."""
    every = load_tasks(settings().data)
    assert load_tasks(settings(n_tasks=3).data) == every[:3]
    assert [task.name for task in load_tasks(settings(task_names="chain_sum:max_terms=3/2").data)] == ["chain_sum:max_terms=3/2"]
    with pytest.raises(InputError, match="did you mean chain_sum:max_terms=3/"):
        load_tasks(settings(task_names="chain_sum:max_terms=3/77").data)


def test_questions_with_the_text_of_a_held_out_one_are_skipped():
    """So are reserved seeds; others take their place, and if there are too few, that is an error."""
    gym, family = FakeGym(distinct=50), Family("gcd")
    unseen = gym.questions(family, range(EVALUATE_FROM, EVALUATE_FROM + 10))    # their texts are those of seeds 0..9
    found = training_questions(gym, family, 30, unseen, range(12, 20))

    assert [question.seed for question in found[:4]] == [10, 11, 20, 21] and len(found) == 30
    assert not {question.text for question in found} & {question.text for question in unseen}
    with pytest.raises(InputError, match="gcd: only 0 of its questions .* differ from the held-out ones, and 5 are needed"):
        training_questions(FakeGym(distinct=10), family, 5, unseen)


def test_families_as_text_and_as_a_list(monkeypatch):
    """One text as in FAMILIES, or one text for each family."""
    asked = []
    monkeypatch.setattr(questions, "draw_questions", lambda *arguments: asked.append(arguments) or ((), ()))
    provide("", "gcd,chain_sum:max_terms=3")
    provide("", ["gcd", "chain_sum:max_terms=3"], tasks=5, held_out=0)
    assert asked == [("gcd,chain_sum:max_terms=3", 1000, 100), ("gcd,chain_sum:max_terms=3", 5, 0)]


@pytest.mark.parametrize("values, words", [
    ({"families": 3, "tasks": 0, "held_out": -1}, "(?s)tasks=0 .*held_out=-1 .*families=3 should be text"),
    ({"tasks": 2.5, "held_out": True}, "a whole number for 'held_out', not True, wants a whole number for 'tasks', not 2.5"),
    ({"tasks": 10**6}, "tasks=1000000 should be a whole number from 1 to 100000"),
    ({"family": "gcd"}, "'family'.*did you mean families")])
def test_bad_kwargs_are_rejected(values, words):
    """Numbers with their limits, families of the wrong type, an unknown name with the nearest; all problems at once."""
    with pytest.raises(InputError, match=words):
        load_tasks(settings(provider_kwargs=kwargs(**values)).data)


def test_without_families_and_with_a_file():
    """The provider says what it needs, and that it reads no file."""
    with pytest.raises(InputError, match="needs 'families'; it takes families, tasks, held_out"):
        load_tasks(settings(provider_kwargs="{}").data)
    with pytest.raises(InputError, match="TASKS_FILE=x.jsonl: the questions are generated, not read"):
        load_tasks(settings(tasks_file="x.jsonl").data)


# Who scores

def test_the_judge_is_the_families_own(capsys):
    """COMBINE=reasoning_gym opens Reasoning Gym's worker, with SCORE_SECONDS, and no sandbox; it ends with the run.

    Families whose own answers are wrong are refused by name; if answers without skill earn much, stderr says so."""
    asked = settings(score_seconds=7.5)
    assert judge_of(asked) is GymGrader and not runs_code(asked)
    with open_judge(asked) as worker:
        pid = worker.worker.pid
        assert worker.seconds == 7.5 and worker.description.startswith("reasoning-gym 0.") and Path(f"/proc/{pid}").exists()
        with pytest.raises(InputError, match="cannot be used: rush_hour: its own answers do not .*Leave them out") as error:
            check_families(worker, [Family("rush_hour"), Family("gcd")])
        assert "gcd" not in str(error.value) and not capsys.readouterr().err
        check_families(worker, [Family("gcd"), Family("chain_sum")])
        marked = capsys.readouterr().err.splitlines()
    assert len(marked) == 1 and "gcd: always '1' earns" in marked[0] and "without any skill" in marked[0]
    assert worker.worker.pid is None and not Path(f"/proc/{pid}").exists()


class FakeJudge:
    """Scores by the text: right, half right, not scorable, otherwise wrong."""

    def score(self, pairs):
        found = {"right": (1.0, True, True, ""), "half": (0.5, False, True, ""), "slow": (0.0, False, False, "took too long")}
        return [Score(*found.get(text.strip(), (0.0, False, False, ""))) for _, text in pairs]


QUESTION = Question(Family("gcd"), 1, "What?", "right")


def graded(values, texts, tokens=5):
    grader = grader_of(FakeJudge(), [QUESTION], settings(**values))
    return grade_safely(grader, [Completion(QUESTION, text, tokens, "stop") for text in texts])


def test_the_score_is_the_reward():
    """Unchanged, and one answer at a time, so that grading overlaps with sampling; an unscorable answer is worth 0."""
    found = graded({}, ["right", " half ", "slow", "no"])
    assert isinstance(grader_of(FakeJudge(), [QUESTION], settings()), GymGrader) and not GymGrader.whole_groups
    assert [grade.reward for grade in found] == [1.0, 0.5, 0.0, 0.0]
    assert [grade.verdict for grade in found] == ["right", "partial", "unscorable", "wrong"]
    assert [grade.correct for grade in found] == [True, False, False, False] and found[2].detail == "took too long"
    assert ProbeGrader.on(FakeJudge(), [QUESTION], settings()).second is None, "there are no other cases to check on"


PLUGIN = '''
from rl.registry import register_objective, register_reward


@register_reward("short")
def short(samples):
    return [float(len(sample.completion) < 5) for sample in samples]


@register_objective("score_and_short")
class ScoreAndShort:
    def reward_names(self):
        return ("reasoning_gym_reward", "short")

    def combine_rewards(self, scores):
        return [a + b / 10 for a, b in zip(scores["reasoning_gym_reward"], scores["short"])]
'''


def test_a_combiner_from_outside_may_use_the_score(tmp_path, monkeypatch):
    """Together with other rewards; the family still decides what is right, and its scores stay in the log."""
    for kind in ("reward", "objective"):
        registered = build_objective.__globals__["_REGISTERED"]
        monkeypatch.setitem(registered, kind, dict(registered[kind]))
    (tmp_path / "mine.py").write_text(PLUGIN)
    found = graded({"plugins": tmp_path / "mine.py", "combine": "score_and_short"}, ["right", "half", "no"])

    assert [grade.reward for grade in found] == pytest.approx([1.0, 0.6, 0.1])
    assert [grade.correct for grade in found] == [True, False, False]
    assert found[1].scores == {"strict": 0.0, "lenient": 1.0, "reasoning_gym_reward": 0.5, "short": 1.0}


@pytest.mark.parametrize("values, tasks, words", [
    ({}, [TextTask("a", "1 + 1 = ?", "2", "svamp")], "COMBINE=reasoning_gym pays what a family's scorer says, and a of .* TASKS"),
    ({"combine": "lisp"}, [QUESTION], "gcd/1 of TASKS=reasoning_gym asks for none: set COMBINE=reasoning_gym"),
    ({"combine": "additive"}, [Question(Family("rush_hour"), 1, "?", None)], "rush_hour/1 .*has none to compare with")])
def test_tasks_and_rewards_must_match(values, tasks, words):
    """The error names what to set; answers can be compared as words if the family gives one."""
    asked = settings(**values)
    with pytest.raises(InputError, match=words):
        check_tasks(tasks, checked_combiner(asked), asked)
    check_tasks([QUESTION], checked_combiner(settings(combine="additive")), settings(combine="additive"))


def test_the_score_takes_no_kwargs():
    """Kwargs that nothing would read are an error."""
    with pytest.raises(InputError, match="reasoning_gym_reward takes nothing"):
        checked_combiner(settings(reward_kwargs="{reasoning_gym_reward: {seconds: 3}}"))


# The commands

@pytest.fixture
def run(monkeypatch, capfd):
    """Run a command in this process and return (exit code, stdout, stderr)."""
    def started(script, env, *arguments):
        monkeypatch.setattr(sys, "argv", [f"{script.__name__}.py", *arguments])
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, str(value))
            with pytest.raises(SystemExit) as ended:
                command.run(script.main, script.__doc__, flags=("--task=", "--compare"), explain=explain_memory)
        return ended.value.code, *capfd.readouterr()
    return started


@pytest.fixture(scope="module")
def whole(tiny_model, tmp_path_factory):
    """A run of two steps with evaluations, in a process of its own: its folder and the finished process."""
    folder = tmp_path_factory.mktemp("gym") / "whole"
    env = os.environ | SMALL | {"MODEL": str(tiny_model), "EVAL_EVERY": "1", "OUT": str(folder)}
    done = subprocess.run([sys.executable, "train_grpo.py"], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done


@pytest.mark.slow
def test_a_run(whole):
    """The scores train the adapter, held-out questions are measured, and the record says who scored."""
    folder, done = whole
    assert "sandbox: reasoning-gym 0." in done.stdout and "reasoning-gym" in config.recorded(folder)["sandbox"]
    assert "warning: propositional_logic" in done.stderr and "chain_sum" not in done.stderr.split("warning")[1].split("\n")[0]
    rows, measured = read_rows(folder / "metrics.jsonl"), read_rows(folder / "eval.jsonl")
    assert any(row["grad_norm"] > 0 for row in rows), "no step had a gradient"
    assert all({"rewards/strict/mean", "rewards/lenient/mean"} <= row.keys() for row in rows)
    assert [(row["step"], row["eval/tasks"]) for row in measured] == [(0, 8), (1, 8), (2, 8)]
    assert (folder / "report.html").exists()


@pytest.mark.slow
def test_a_resumed_run_is_the_same(run, whole, tiny_model, tmp_path):
    """1 + 1 steps equal 2 bit for bit: the questions are regenerated from config.yaml."""
    for more in (SMALL | {"MODEL": tiny_model, "EVAL_EVERY": "1", "OUT": tmp_path / "run", "STEPS": "1"},
                 {"RESUME": tmp_path / "run", "STEPS": "2"}):
        assert run(train_grpo, more)[0] == 0
    assert_same_run(whole[0], tmp_path / "run", 2)


@pytest.mark.slow
def test_probes_and_questions(run, whole, tiny_model, tmp_path):
    """Base and adapter are probed on the held-out questions and compared; query.py asks both one question."""
    whole, _ = whole
    asked = ENV | {"MODEL": tiny_model, "SPLIT": "heldout", "N_SAMPLES": "2", "MAX_NEW_TOKENS": "16"}
    adapter = {"LORA": whole / "checkpoints" / "step_00002"}
    for name, more in (("base", {}), ("adapter", adapter)):
        code, out, err = run(run_probe, asked | more | {"OUT": tmp_path / f"{name}.json"})
        assert code == 0 and "8" in out, err
    code, out, err = run(run_probe, {}, "--compare", str(tmp_path / "base.json"), str(tmp_path / "adapter.json"))
    assert code == 0 and "reward" in out, err
    code, out, err = run(query, asked | adapter, "--task=chain_sum:max_terms=3/1")
    assert code == 0 and out.count("the first of 2 samples") == 2, err


@pytest.mark.slow
def test_groups_without_signal_are_replaced(run, tiny_model, tmp_path):
    """DYNAMIC_SAMPLING: chain_sum's groups have none, so a step samples more than it trains on; 1 + 1 steps equal 2."""
    env = SMALL | {"MODEL": tiny_model, "DYNAMIC_SAMPLING": "1", "MAX_SAMPLED_GROUPS": "6"}
    for more in ({**env, "OUT": tmp_path / "whole"}, {**env, "OUT": tmp_path / "parts", "STEPS": "1"},
                 {"RESUME": tmp_path / "parts", "STEPS": "2"}):
        assert run(train_grpo, more)[0] == 0
    assert_same_run(tmp_path / "whole", tmp_path / "parts", 2)
    assert any(row["sampled_groups"] > 2 for row in read_rows(tmp_path / "whole" / "metrics.jsonl"))


@pytest.mark.parametrize("more, words", [
    ({"PROVIDER_KWARGS": "{families: [chain_summ]}"}, "did you mean chain_sum"),
    ({"COMBINE": "lisp"}, "set COMBINE=reasoning_gym"),
    ({"SCORE_SECONDS": "100"}, "seconds=100.0"),
    ({"EVAL_EVERY": "1", "EVAL_TASKS": "9"}, "EVAL_TASKS=9, but 8 tasks of reasoning_gym are held out")])
def test_bad_input_ends_with_2_and_leaves_nothing(run, tiny_model, tmp_path, monkeypatch, more, words):
    """There is one message, before the weights are read, and nothing in the folder."""
    monkeypatch.setattr(train_grpo.pretrained, "load", lambda *_: pytest.fail("the weights were read"))
    code, _, err = run(train_grpo, SMALL | {"MODEL": tiny_model, "OUT": tmp_path / "run"} | more)

    assert code == 2 and words in err and "Traceback" not in err
    assert not (tmp_path / "run").exists() or not any((tmp_path / "run").iterdir())


def test_without_the_package_the_error_names_the_install_command(tmp_path):
    """With exit code 2, in a process that never had the package."""
    (tmp_path / "reasoning_gym").mkdir()
    (tmp_path / "reasoning_gym" / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'reasoning_gym'\")")
    env = os.environ | SMALL | {"PYTHONPATH": str(tmp_path), "MODEL": "tiny", "OUT": str(tmp_path / "run")}
    done = subprocess.run([sys.executable, "train_grpo.py"], cwd=ROOT, env=env, capture_output=True, text=True)

    assert done.returncode == 2 and "pip install reasoning-gym==0.1.25" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
