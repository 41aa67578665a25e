"""Evaluations of runs: which checkpoints, tasks and settings, what is refused before a model is read, and the command."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import eval_runs
from rl import command
from rl.errors import InputError
from rl.evaluation import runs, zero_shot
from rl.evaluation.probe import Probed, ProbeGrader
from rl.evaluation.runs import (
    OF_TRAINING,
    answer_rows,
    base_job,
    find_runs,
    greedy_environ,
    jobs_of,
    plan,
    read_results,
    read_run,
    thinking_tag,
    to_do,
)
from rl.models import pretrained
from rl.rewards.base import Completion, TrainingSample
from rl.rewards.setup import grader_of
from rl.rewards.words.rewards import TokenUtilisation, read_zero_shot
from rl.run.files import read_rows
from rl.settings import config
from rl.tasks import BaseTask, Prompt
from rl.training import checkpoint, lora
from rl.training.optimiser import init_state
from rl.training.step import grade
from tasks.word_problems import TextTask

ROOT = Path(__file__).resolve().parents[2]
SHAPE = {"COMBINE": "additive", "TASKS": "gsm8k", "TASKS_PER_STEP": "2", "GROUP": "2", "MAX_NEW_TOKENS": "8", "DECODE_BLOCK": "4",
         "LORA_RANK": "2", "KEEP_EVERY": "4", "DTYPE": "float32", "ATTENTION": "einsum"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A GSM8K of five problems to train on and three held out."""
    folder = tmp_path_factory.mktemp("gsm8k")
    for split, count in (("train", 5), ("test", 3)):
        rows = [{"question": f"{split}: what is {i} + {i}?", "answer": f"#### {2 * i}"} for i in range(count)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def adapter(tiny_model):
    """A fresh adapter of the tiny model, which changes nothing."""
    return lora.init(jax.random.key(0), pretrained.resolve(str(tiny_model)).cfg, 2, 8.0)


@pytest.fixture
def make_run(tmp_path, data, tiny_model, adapter):
    """A function that writes a run's folder as training leaves it: config.yaml and checkpoints."""
    def make(name, steps=(0, 4, 6), state=None, **values):
        folder = tmp_path / "sweep" / name
        folder.mkdir(parents=True)
        loaded = config.load(SHAPE | {"MODEL": str(tiny_model), "TASKS_FILE": str(data)} | values)
        (folder / "config.yaml").write_text(config.dump(loaded.settings, {"started": f"of {name}"}))
        for step in steps:
            checkpoint.save(folder, step, state or init_state(adapter), seed=0, base_model=str(tiny_model), keep_last=3,
                            keep_every=4)
        return folder
    return make


def planned(top, environ=(), with_base=False):
    """The evaluations of these runs, and the runs skipped."""
    return plan(top, dict(environ), with_base=with_base, open_model=command.find_model)


# ---- what to evaluate ------------------------------------------------------------------------------------------------

def test_runs_are_found(tmp_path):
    """The folder itself if it is a run, else every run_* and every folder with config.yaml and checkpoints, else an error."""
    for name in ("run_a", "other/checkpoints", "eval", "half"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("other", "half"):
        (tmp_path / name / "config.yaml").touch()
    assert find_runs(tmp_path) == [tmp_path / "other", tmp_path / "run_a"] and find_runs(tmp_path / "half") == [tmp_path / "half"]
    for wrong, message in (("eval", "no run in this folder"), ("none", "no such folder")):
        with pytest.raises(InputError, match=message):
            find_runs(tmp_path / wrong)


def test_a_run_is_measured_by_its_own_settings_and_the_environments(make_run):
    """Greedy, one answer per task, however training sampled; EVAL_TASKS counts only from the environment."""
    run = make_run("run_a", TEMPERATURE="0.7", N_SAMPLES="4", EVAL_EVERY="2", EVAL_TASKS="1")
    found = read_run(run, {})
    assert (found.settings.generation.temperature, found.settings.generation.n_samples, found.eval_tasks) == (0, 1, 0)
    assert [*found.checkpoints] == [4, 6] and found.started == "of run_a" and found.settings.data.tasks == "gsm8k"
    found = read_run(run, {"TEMPERATURE": "0.5", "N_SAMPLES": "3", "EVAL_TASKS": "2", "MAX_NEW_TOKENS": "16"})
    assert (found.settings.generation.temperature, found.settings.generation.n_samples, found.eval_tasks) == (0.5, 3, 2)
    assert found.settings.generation.max_new_tokens == 16
    assert read_run(run, {"TEMPERATURE": " "}).settings.generation.temperature == 0


def test_the_environment_does_not_change_how_a_run_was_trained(make_run, monkeypatch):
    """The recorded split and settings are those of config.yaml; SEED, which also seeds the sampling, may differ."""
    job = planned(make_run("run_a", SPLIT="all", LEARNING_RATE="0.5"), {"SPLIT": "train", "LR": "1", "SEED": "7"})[0][0]
    monkeypatch.setattr(runs, "probe", scripted({prompt.task.name: "x" for prompt in job.prompts}))
    row, _ = runs.evaluate(job, job.source, print)
    assert row["trained_on"] is True and row["settings"]["split"] == "all" and row["settings"]["learning_rate"] == 0.5
    assert row["settings"]["seed"] == 0 and job.settings.trainer.seed == 7
    assert {"SPLIT", "N_TASKS", "STEPS", "LR", "LOSS"} < {*OF_TRAINING}
    assert not {"SEED", "TASKS_PER_STEP", "COMBINE", "CLASS_PATH", "EVAL_TASKS", "TEMPERATURE"} & {*OF_TRAINING}


def test_jobs_are_lasting_checkpoints_and_one_base_for_all(make_run, tmp_path):
    """Held-out tasks only; runs of one model share its evaluation; folders without a checkpoint are named."""
    make_run("run_a")
    make_run("run_b", steps=(3,), COMBINE_KWARGS="{enable_length_penalty: false}")
    make_run("run_c", steps=())
    (tmp_path / "sweep/run_d").mkdir()
    jobs, skipped = planned(tmp_path / "sweep", with_base=True)
    assert [(job.run, job.step) for job in jobs] == [("base", 0), ("run_a", 4), ("run_a", 6), ("run_b", 3)]
    assert {prompt.task.text[:4] for job in jobs for prompt in job.prompts} == {"test"} and len(jobs[0].prompts) == 3
    assert skipped == ["run_c: no complete checkpoint", "run_d: no config.yaml"]
    assert [job.run for job in planned(tmp_path / "sweep", {"EVAL_TASKS": "1"})[0]] == ["run_a", "run_a", "run_b"]


def test_a_model_is_opened_once(make_run, tmp_path):
    """Runs of one model share its files."""
    make_run("run_a")
    make_run("run_b")
    opened = []
    plan(tmp_path / "sweep", {}, with_base=False, open_model=lambda s: opened.append(s) or command.find_model(s))
    assert len(opened) == 1


def test_all_problems_are_reported_at_once(make_run, tmp_path, tiny_model):
    """Missing data, another model's checkpoints, an unusable config.yaml; nothing to evaluate is an error too."""
    make_run("run_a", TASKS_FILE=str(tmp_path / "gone"))
    other = init_state(lora.init(jax.random.key(0), pretrained.resolve("tiny").cfg, 2, 8.0))
    make_run("run_b", state=other)
    (make_run("run_c") / "config.yaml").write_text("trainer: {stepz: 4}\n")
    make_run("run_d", COMBINE="lisp")
    with pytest.raises(InputError) as raised:
        planned(tmp_path / "sweep")
    message = str(raised.value)
    assert message.startswith("5 problem(s)") and "run_a: gsm8k: there is no file or folder" in message
    assert message.count("is not an adapter of this model") == 2 and "stepz: unknown setting" in message
    assert "run_d: COMBINE=lisp pays for programs" in message
    with pytest.raises(InputError, match="(?s)no run has a checkpoint.*run_e: no complete checkpoint"):
        planned(make_run("run_e", steps=()))


def test_a_checkpoint_of_another_model_is_refused(make_run, tiny_model):
    """By name, even where the shapes are equal; a folder may have been moved, so there only the shapes count."""
    folder = make_run("run_a", steps=(4,)) / "checkpoints/permanent/step_00004"
    source = pretrained.resolve(str(tiny_model))
    named = json.loads((folder / "adapter_config.json").read_text())
    named["base_model_name_or_path"] = "Qwen/Qwen2.5-Coder-1.5B-Instruct"
    (folder / "adapter_config.json").write_text(json.dumps(named))
    run = read_run(folder.parents[2], {})

    def problems(model):
        settings = replace(run.settings, model=replace(run.settings.model, model=model))
        return jobs_of(run._replace(settings=settings), source, np.float32)[1]
    assert problems("1.5B") == problems(str(tiny_model)) == []
    (problem,) = problems("0.5B")
    assert re.search("run_a: .*trained on Qwen/Qwen2.5-Coder-1.5B-Instruct.*MODEL=0.5B.*another model", problem)


def test_finished_jobs_are_skipped_and_another_measurement_is_refused(make_run, tmp_path):
    """Jobs with a row are skipped, shards split the rest without gap or overlap, and rows measured differently do not mix."""
    make_run("run_a")
    make_run("run_b")
    jobs, _ = planned(tmp_path / "sweep", with_base=True)
    rows = [{**job.key._asdict(), "how": job.how} for job in jobs]
    assert to_do(jobs, rows) == [] and to_do(jobs, rows[1:]) == jobs[:1]
    parts = [to_do(jobs, [], (i, 2)) for i in (0, 1)]
    assert sorted(job.key for part in parts for job in part) == sorted(job.key for job in jobs)
    otherwise, _ = planned(tmp_path / "sweep", {"N_SAMPLES": "2", "TEMPERATURE": "1"}, with_base=True)
    with pytest.raises(InputError, match=r"(?s)run_a, step 4 .* other settings: temperature 0.0 / 1.0; n_samples 1 / 2.*--out"):
        to_do(otherwise, rows)
    assert to_do(otherwise[:1], rows) == otherwise[:1], "another measurement of a base model is another row"


def test_the_tag_is_the_runs_own():
    """THINKING_TAG; programs have none."""
    def tag(**environ):
        return thinking_tag(config.load(environ).settings)
    assert (tag(COMBINE="additive"), tag(COMBINE="additive", THINKING_TAG="t"), tag()) == ("think", "t", None)


# ---- one evaluation --------------------------------------------------------------------------------------------------

def scripted(texts):
    """A stand-in for `probe`: each task is answered with its text, and the answers are really graded."""
    def probe(model, adapter, prompts, graders, *, samples, **_):
        completions = [Completion(prompt.task, texts[prompt.task.name], 4) for prompt in prompts for _ in range(samples)]
        return Probed(grade(graders.first, prompts, completions), [0.0] * len(prompts), 0, 0, 1.5)
    return probe


def reward_of(grader, task, text):
    """The reward for one answer."""
    return grader.grade([Completion(task, text, 4)])[0].reward


def test_a_row_is_the_graded_answers(make_run, monkeypatch):
    """Two of three correct, words of thinking, the settings of training; a base model has no reward of its own."""
    job = planned(make_run("run_a"))[0][0]
    names = [prompt.task.name for prompt in job.prompts]
    right = {prompt.task.name: prompt.task.answer for prompt in job.prompts}
    texts = {names[0]: f"<think>a b</think>\\boxed{{{right[names[0]]}}}", names[1]: f"\\boxed{{{right[names[1]]}}}",
             names[2]: "<think>a b c d</think>\\boxed{77}"}
    monkeypatch.setattr(runs, "probe", scripted(texts))
    row, groups = runs.evaluate(job, job.source, print)
    assert row["accuracy"] == pytest.approx(2 / 3) and row["thinking_mean"] == 3 and row["malformed"] == pytest.approx(1 / 3)
    assert row["reward"] == pytest.approx((1 + 1 + 0.5 + 1 + 1) / 3)    # format, correctness; a length alone in its group is L
    assert row["settings"]["lora_rank"] == 2 and "temperature" not in row["settings"] and row["trained_on"] is False
    assert [answer["text"] for answer in answer_rows(groups)] == [texts[name] for name in names]
    base, _ = runs.evaluate(base_job(job), job.source, print)
    assert base["run"] == "base" and base["reward"] is None and base["accuracy"] == row["accuracy"]
    json.dumps(row, allow_nan=False)


def test_utilisation_is_0_where_the_file_has_no_row(tmp_path):
    """Its file has the training prompts only: evaluations count 0 for other prompts, while training refuses them."""
    (tmp_path / "z.jsonl").write_text(json.dumps({"prompt": "p", "completion": "a", "correct": True}) + "\n")
    s = config.load({"COMBINE": "additive", "COMBINE_KWARGS": "{enable_token_utilisation: true}", "REWARD_KWARGS": json.dumps(
        {"token_utilisation_reward": {"zero_shot": str(tmp_path / "z.jsonl")}})}).settings
    task = TextTask("a", "1 + 2 = ?", "3", "svamp")
    text = "<think>so</think>\\boxed{3}"
    assert reward_of(ProbeGrader.on(None, [task], s).first, task, text) == pytest.approx(2.5)
    with pytest.raises(InputError, match="have no row"):
        reward_of(grader_of(None, [task], s), task, text)


def test_a_group_size_is_that_of_training(make_run, monkeypatch):
    """An evaluation ignores it: with one answer per task, a length equals the mean of its group."""
    run = make_run("run_a", GROUP="2", REWARD_KWARGS="{length_penalty_reward: {group_size: 2}}")
    job = planned(run, {"GROUP": "4"})[0][0]
    task = job.prompts[0].task
    grader = ProbeGrader.on(None, [task], job.settings).first
    text = f"<think>so</think>\\boxed{{{task.answer}}}"
    assert reward_of(grader, task, text) == pytest.approx(2.5)


# ---- zero-shot -------------------------------------------------------------------------------------------------------

def test_a_zero_shot_file_is_what_the_reward_reads(tmp_path, monkeypatch, tiny_model):
    """Prompts are those of training samples; kept answers are not sampled again; the file is written whole and never replaced."""
    tasks = [TextTask(f"t{n}", f"what is {n}?", str(n), "svamp") for n in range(5)]
    s = zero_shot.correctness_alone(config.load(greedy_environ(
        {"N_SAMPLES": "2", "TASKS_PER_STEP": "1", "GROUP": "4", "COMBINE": "additive", "COMBINE_KWARGS":
         "{enable_token_utilisation: true}", "REWARD_KWARGS": "{token_utilisation_reward: {zero_shot: not/there}}"})).settings)
    prompts, path, asked = [Prompt(task, task.messages(), [1]) for task in tasks], tmp_path / "zero.jsonl", []
    zero_shot.check(path, tasks, s)
    answer = scripted({task.name: f"<think>{'w ' * n}</think>\\boxed{{{n % 4}}}" for n, task in enumerate(tasks)})

    def stops_after(count):
        def probe(model, adapter, part, *rest, **named):
            asked.extend(prompt.task.name for prompt in part)
            if len(asked) > count:
                raise KeyboardInterrupt
            return answer(model, adapter, part, *rest, **named)
        return probe

    monkeypatch.setattr(zero_shot, "probe", stops_after(2))
    with pytest.raises(KeyboardInterrupt):
        zero_shot.write(path, None, None, prompts, s, print)
    assert not path.exists() and asked == ["t0", "t1", "t2", "t3"]
    with open(tmp_path / "zero.jsonl.part", "ab") as file:
        file.write(b'{"prompt": "torn')
    asked.clear()
    monkeypatch.setattr(zero_shot, "probe", stops_after(9))
    rows = zero_shot.write(path, None, None, prompts, s, print)
    assert asked == ["t2", "t3", "t4"] and rows == read_zero_shot(str(path)) and len(rows) == 10
    assert [row["correct"] for row in rows] == [True] * 8 + [False] * 2 and [*tmp_path.iterdir()] == [path]
    trained = TrainingSample(tasks[3].question, "<think>w</think>\\boxed{3}", "3", 4, "stop", {})
    assert TokenUtilisation(str(path))([trained]) == pytest.approx([2 / 3])
    with pytest.raises(InputError, match="exists and is finished"):
        zero_shot.check(path, tasks, s)
    with pytest.raises(InputError, match="compares answers"):
        zero_shot.check(tmp_path / "y", [type("Program", (BaseTask,), {"name": "gcd"})()], s)


@pytest.mark.parametrize("kwargs, message", [
    ({"COMBINE_KWARGS": "{corectness: mine}"}, "'corectness' (did you mean correctness?)"),
    ({"REWARD_KWARGS": "{format_tag_rewrd: {}}"}, "format_tag_rewrd is given to no reward (did you mean format_tag_reward?)"),
    ({"REWARD_KWARGS": "{length_penalty_reward: {tokeniser: x}}"}, "'tokeniser'"),
    ({"REWARD_KWARGS": "{token_utilisation_reward: {zeroshot: x}}", "COMBINE_KWARGS": "{enable_token_utilisation: true}"},
     "'zeroshot' (did you mean zero_shot?)"), ({"REWARD_KWARGS": "{gsm8k_correctness_reward: {policy: all}}"}, "one or last")])
@pytest.mark.parametrize("combine", ["additive", "lisp"])
def test_wrong_names_are_refused_for_a_zero_shot_file(kwargs, message, combine):
    """As in training, although most rewards are left out: with a misspelt name the default correctness would be used."""
    with pytest.raises(InputError, match=re.escape(message)):
        zero_shot.correctness_alone(config.load({"COMBINE": combine, **kwargs}).settings)


def test_the_test_split_of_math_without_training(tmp_path):
    """The command on files laid out as MATH is: the chosen levels of the test split, none of the training split."""
    for part, count in (("train", 3), ("test", 2)):
        (folder := tmp_path / "MATH" / part / "algebra").mkdir(parents=True)
        for i in range(count):
            row = {"problem": f"What is ${i}+1$?", "level": f"Level {i + 1}", "solution": rf"It is $\boxed{{{i + 1}}}$."}
            (folder / f"{i}.json").write_text(json.dumps(row))
    settings = {"MODEL": "tiny", "TASKS": "math", "TASKS_FILE": str(tmp_path / "MATH"), "PROVIDER_KWARGS": "{levels: [1]}",
                "SPLIT": "heldout", "MAX_NEW_TOKENS": "4"}
    done = subprocess.run([sys.executable, ROOT / "eval_runs.py", "--zero-shot", "out.jsonl"], cwd=tmp_path, text=True,
                          env=os.environ | settings, capture_output=True)

    assert done.returncode == 0, done.stderr
    assert [row["task"] for row in read_zero_shot(str(tmp_path / "out.jsonl"))] == ["math/test/algebra/0"]


def test_a_part_of_another_measurement_is_refused(tmp_path):
    """Answers of two models or sampling settings are never mixed."""
    (tmp_path / "z.part").write_text('{"how": "else"}\n')
    with pytest.raises(InputError, match="started with another model"):
        zero_shot.write(tmp_path / "z", None, None, [], config.load({"COMBINE": "additive"}).settings, print)


# ---- the command -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("arguments, environ, message", [
    ([], {}, "give one folder"), (["a", "b"], {}, "give one folder"),
    (["a", "--shards", "2", "--shard", "2"], {}, "--shard must be from 0"),
    (["a", "--shards", "x"], {}, "--shards"), (["a", "--zero-shot", "f"], {}, "takes no folder"),
    (["--zero-shot", "f", "--base"], {}, "cannot be combined with --base"), (["no/such/folder"], {}, "no such folder"),
    (["a"], {"OUT": "x"}, "OUT=x: give --out"), (["a"], {"CONFIG": "x"}, "CONFIG=x: each run has its own"),
    (["a"], {"SPLIT": "train", "MAX_STEPS": "3"}, "SPLIT=train: how a run was trained"),
    (["a"], {"LORA": "x"}, "LORA=x: the checkpoints are the run's own"), (["--zero-shot", "f"], {"RESUME": "x"}, "RESUME=x"),
    (["--zero-shot", "f"], {"TASKS": "gsm8k", "MODEL": "tiny"}, "gsm8k: TASKS_FILE is not set; the data is"),
    (["--zero-shot", "f"], {"MODEL": "tiny"}, "compares answers")])
def test_bad_input_is_reported_before_anything_heavy(arguments, environ, message, tmp_path, monkeypatch):
    """One error that names what is wrong, before the weights are read; nothing is written."""
    monkeypatch.setattr(eval_runs.pretrained, "load", lambda *_: pytest.fail("the weights were read"))
    monkeypatch.setattr(sys, "argv", ["eval_runs.py", *arguments])
    monkeypatch.chdir(tmp_path)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=re.escape(message)):
        eval_runs.main()
    assert not [*tmp_path.iterdir()]


def test_the_command_in_two_shards(make_run, tmp_path, monkeypatch, capsys):
    """On a small model: shards share the work and the last one writes the summary of all; a repeated call reads no model."""
    make_run("run_a")
    make_run("run_b", steps=(4,), SEED="3")
    def evaluate(*arguments):
        monkeypatch.setattr(sys, "argv", ["eval_runs.py", str(tmp_path / "sweep"), *arguments])
        assert eval_runs.main() == 0
        return capsys.readouterr()
    for shard in ("0", "1"):
        evaluate("--base", "--shards", "2", "--shard", shard)
    out = tmp_path / "sweep/eval"
    rows = read_rows(out / "results.jsonl")
    assert {(row["run"], row["step"]) for row in rows} == {("base", 0), ("run_a", 4), ("run_a", 6), ("run_b", 4)}
    same = {tuple(answer["text"] for answer in read_rows(path)) for path in (out / "answers").iterdir()}
    assert len(same) == 1 and len(next(iter(same))) == 3, "adapters that change nothing answer as the base model does"
    assert len(json.loads((out / "summary.json").read_text())["rows"]) == 4 and (out / "curves/accuracy.svg").exists()
    monkeypatch.setattr(eval_runs.pretrained, "load", lambda *_: pytest.fail("nothing was left to do"))
    again = evaluate("--base")
    assert "run_b" in again.out and f"written: {out}" in again.out and read_rows(out / "results.jsonl") == rows


def test_an_interruption_keeps_what_was_finished(make_run, tmp_path, monkeypatch):
    """Ctrl-C in the second checkpoint: exit code 130, the first one's row is whole, and the next call does only the second."""
    make_run("run_a")
    answer, calls = scripted({f"gsm8k/test/{n}": "x" for n in (1, 2, 3)}), []

    def probe(*arguments, **named):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return answer(*arguments, **named)

    monkeypatch.setattr(runs, "probe", probe)
    monkeypatch.setattr(sys, "argv", ["eval_runs.py", str(tmp_path / "sweep")])
    with pytest.raises(SystemExit) as stopped:
        eval_runs.command.run(eval_runs.main, "")
    out = tmp_path / "sweep/eval"
    assert stopped.value.code == 130 and [row["step"] for row in read_rows(out / "results.jsonl")] == [4]
    assert not [*out.glob("**/*.tmp")] and not (out / "summary.json").exists()
    assert eval_runs.main() == 0 and len(calls) == 3
    assert [row["step"] for row in json.loads((out / "summary.json").read_text())["rows"]] == [4, 6]


def test_folders_under_a_cache(make_run, tmp_path, monkeypatch):
    """A sweep is found by name in artifacts/sweeps, and its evaluation goes to artifacts/eval."""
    make_run("run_a", steps=(4,))
    (tmp_path / "cache/artifacts/sweeps").mkdir(parents=True)
    (tmp_path / "sweep").rename(tmp_path / "cache/artifacts/sweeps/mine")
    monkeypatch.setenv("CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "argv", ["eval_runs.py", "mine"])
    monkeypatch.setattr(runs, "probe", scripted({f"gsm8k/test/{n}": "x" for n in (1, 2, 3)}))
    assert eval_runs.main() == 0
    assert read_results(tmp_path / "cache/artifacts/eval/mine")[0]["run"] == "run_a"


@pytest.mark.slow
def test_the_command_by_itself(make_run, data, tmp_path, tiny_model):
    """Both modes as a user starts them: files, exit codes, and training with the zero-shot file."""
    run = make_run("run_a", steps=(4,))
    def start(*arguments, **environ):
        return subprocess.run([sys.executable, ROOT / "eval_runs.py", *map(str, arguments)], cwd=tmp_path, capture_output=True,
                              text=True, env=os.environ | environ, timeout=600)
    done = start(run, "--out", "here")
    assert done.returncode == 0 and "run_a" in done.stdout and (tmp_path / "here/summary.csv").exists(), done.stderr
    wrong = start("nowhere")
    assert wrong.returncode == 2 and "no such folder" in wrong.stderr and "Traceback" not in wrong.stderr
    shape = SHAPE | {"MODEL": str(tiny_model), "TASKS_FILE": str(data), "N_TASKS": "4"}
    done = start("--zero-shot", "z/zero.jsonl", **shape)
    assert done.returncode == 0 and "4 answers to 4 tasks" in done.stdout, done.stderr
    assert all(row["prompt"].startswith("train: what is") for row in read_zero_shot(str(tmp_path / "z/zero.jsonl")))
    done = subprocess.run([sys.executable, ROOT / "train_grpo.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600,
                          env=os.environ | shape | {
                              "STEPS": "1", "OUT": "run", "COMBINE_KWARGS": "{enable_token_utilisation: true}",
                              "REWARD_KWARGS": "{token_utilisation_reward: {zero_shot: z/zero.jsonl}}"})
    assert done.returncode == 0, done.stderr
