"""train_grpo.py as users run it, on a random model of a few thousand values: what it writes, resume, signals, bad input."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import yaml
from huggingface_hub.errors import LocalEntryNotFoundError

import train_grpo
from model_config import PROJECTIONS
from rl import command
from rl import tasks as rl_tasks
from rl.evaluation.probe import HeldOutEvaluation
from rl.models import pretrained
from rl.run.files import claimed, read_rows
from rl.run.signals import Interrupted
from rl.tasks import load_tasks
from rl.training import checkpoint
from rl.training.device import explain_memory
from tests import processes
from tests.run.test_tracker import FakeWandb
from tests.taught_checkpoint import taught_names

SMALL = {"STEPS": "2", "TASKS_PER_STEP": "2", "GROUP": "4", "MAX_NEW_TOKENS": "48", "TASK_NAMES": ",".join(taught_names()),
         "LORA_RANK": "2", "LORA_ALPHA": "4", "SAVE_EVERY": "1", "SANDBOX_WORKERS": "1", "LEARNING_RATE": "1e-3"}


def environ(model, run, **more):
    return {"MODEL": str(model), "OUT": str(run), **SMALL, **more}


@pytest.fixture
def train(monkeypatch, capfd):
    """Run the command in this process: (exit code, stdout, stderr)."""
    def run(env, *arguments):
        monkeypatch.setattr(sys, "argv", ["train_grpo.py", *arguments])
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                command.run(train_grpo.main, train_grpo.__doc__, explain=explain_memory, words=False)
        out, err = capfd.readouterr()
        return ended.value.code, out, err
    return run


def start(env):
    """The real command as a process of its own."""
    return processes.start([sys.executable, "train_grpo.py"], cwd=command.ROOT, env=os.environ | env, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def state_of(run, step):
    """Every array of a checkpoint."""
    folder, found = run / "checkpoints" / f"step_{step:05d}", {}
    for name in (f"lora_step{step:05d}.npz", "optimizer.npz"):
        with np.load(folder / name) as archive:
            found |= {f"{name}/{key}": archive[key] for key in archive.files}
    return found


def assert_same_run(one, other, step):
    """Two runs have the same adapter, moments, samples and metrics, but for the clock and what each process had to compile."""
    a, b = state_of(one, step), state_of(other, step)
    assert a.keys() == b.keys() and all((a[key] == b[key]).all() for key in a)
    timeless = lambda row: {key: value for key, value in row.items() if "time" not in key and key != "compiles"}  # noqa: E731
    weights = f"checkpoints/step_{step:05d}/adapter_model.safetensors"
    assert (one / weights).read_bytes() == (other / weights).read_bytes()
    completions = [f"completions/completions_{n:05d}.jsonl" for n in range(1, step + 1)]
    for name in ("metrics.jsonl", "sft_pool.jsonl", "hard_pool.jsonl", *completions):
        assert [*map(timeless, read_rows(one / name))] == [*map(timeless, read_rows(other / name))], name


@pytest.fixture(scope="module")
def whole(taught_model, tmp_path_factory):
    """A run of six steps that nothing interrupted; one process, read by several tests."""
    run = tmp_path_factory.mktemp("train") / "whole"
    process = start(environ(taught_model, run, STEPS="6", STYLE_WEIGHT="0.5"))
    out = process.communicate(timeout=240)[0]
    assert process.returncode == 0, out
    return run, out


def test_a_run_writes_what_the_notes_say(whole):
    """config.yaml, one metrics row a step, every completion, pools, checkpoints with PEFT's files; one line a step."""
    run, out = whole
    rows, config = read_rows(run / "metrics.jsonl"), yaml.safe_load((run / "config.yaml").read_text())

    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert {"reward", "reward_std", "frac_reward_zero_std", "entropy", "grad_norm", "lora_delta_norm", "learning_rate",
            "step_time", "completions/mean_length", "clip_ratio/region_mean",
            "sampling/sampling_logp_difference/max"} <= set(rows[0])
    assert [len(read_rows(run / f"completions/completions_{n:05d}.jsonl")) for n in range(1, 7)] == [8] * 6
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step_00004", "step_00005", "step_00006"]
    assert any(row["grad_norm"] > 0 for row in rows) and rows[-1]["lora_delta_norm"] > 0, "nothing was learnt from"
    assert config["trainer"]["steps"] == 6 and {"git", "jax", "sandbox"} <= set(config["about"])
    assert config["origins"]["steps"] == "env STEPS" and "seed" not in config["origins"], "defaults have no other origin"
    assert sum(line.startswith("step ") for line in out.splitlines()) == 6 and "\r" not in out
    assert "sampling settings" in out and "clip never acts" in out
    told = [f"compiled {row['compiles']} programs in " in line for row, line in
            zip(rows, (line for line in out.splitlines() if line.startswith("step ")), strict=True)]
    assert told == [row["compiles"] > 0 for row in rows] and told[0]


@pytest.mark.slow
@pytest.mark.known_bug(18)
def test_three_and_three_steps_are_six(whole, taught_model, tmp_path):
    """A run ended at three steps and resumed to six equals, bit for bit, the run of six."""
    run = tmp_path / "run"
    for env in (environ(taught_model, run, STEPS="3"), {"RESUME": str(run), "STEPS": "6"}):
        process = start(env)
        out = process.communicate(timeout=240)[0]
        assert process.returncode == 0, out

    assert_same_run(whole[0], run, 6)
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["trainer"]["steps"] == 6, "what a resume changed holds for the next one"
    assert (config["origins"]["steps"], config["origins"]["group"]) == ("env STEPS, on resume", "env GROUP")
    assert [record["git"] for record in config["about"]["resumed"]] == [config["about"]["git"]]


@pytest.mark.slow
def test_a_run_that_replaces_tasks_goes_on_where_it_was(train, taught_model, tmp_path):
    """DYNAMIC_SAMPLING with groups of two, half of which are alike: 2 + 2 steps are 4, bit for bit, though how far the order of
    tasks has come is not known from the step."""
    more = {"GROUP": "2", "DYNAMIC_SAMPLING": "1", "MAX_SAMPLED_GROUPS": "4"}
    whole, run = tmp_path / "whole", tmp_path / "run"
    for env in (environ(taught_model, whole, STEPS="4", **more), environ(taught_model, run, STEPS="2", **more),
                {"RESUME": str(run), "STEPS": "4"}):
        assert train(env)[0] == 0

    assert_same_run(whole, run, 4)
    rows = read_rows(whole / "metrics.jsonl")
    taken = [{row["task"] for row in read_rows(whole / f"completions/completions_{n:05d}.jsonl")} for n in range(1, 5)]
    assert any(row["sampled_groups"] > 2 for row in rows[:2]), "nothing was replaced before the resume"
    assert [len(tasks) for tasks in taken] == [row["sampled_groups"] for row in rows], "each task once a step"
    assert json.loads((run / "checkpoints/step_00004/state.json").read_text())["cursor"]["epochs"] >= 2


@pytest.mark.slow
def test_a_run_with_a_schedule_goes_on_where_it_was(train, taught_model, tmp_path):
    """Two updates a step, linear, in another trainer's words: cut back to two of four steps and resumed it is the unbroken
    run, bit for bit, at the rates worked out by hand; with other STEPS it is not resumed."""
    whole, run = tmp_path / "whole", tmp_path / "run"
    # The bonus, so that each step has a gradient.
    more = {"OPTIM": "adamw_torch_fused", "LR_SCHEDULER_TYPE": "linear_with_warmup", "LEARNING_RATE": "0.01", "WARMUP_STEPS": "1",
            "STEPS": "4", "UPDATES_PER_BATCH": "2", "ENTROPY_BONUS": "0.01"}
    code, _, err = train(environ(taught_model, whole, **more))
    assert code == 0, err
    shutil.copytree(whole, run)
    for step in (3, 4):
        shutil.rmtree(run / "checkpoints" / f"step_{step:05d}")
    code, _, err = train({"RESUME": str(run), "STEPS": "6"})
    assert code == 2 and "STEPS=6: the run has STEPS=4 and keeps it when resumed, because SCHEDULER=linear ends there" in err
    assert train({"RESUME": str(run), "SCHEDULER": "linear"})[0] == 0

    assert_same_run(whole, run, 4)
    rows, found = read_rows(run / "metrics.jsonl"), yaml.safe_load((run / "config.yaml").read_text())
    assert [row["learning_rate"] for row in rows] == pytest.approx([0.0075, 0.01 * 11 / 12, 0.01 * 7 / 12, 0.01 * 3 / 12])
    assert found["trainer"]["scheduler"] == "linear" and "optimizer" not in found["trainer"]
    assert rows[-1]["lora_delta_norm"] > rows[0]["lora_delta_norm"] > 0


def stopped_and_resumed(env, line, signum, code):
    """The command, sent a signal on that line, with steps still to come, then resumed to its end."""
    process = start(env)
    for said in process.stdout:
        if said.startswith(line):
            break
    process.send_signal(signum)
    out = process.communicate(timeout=300)[0]
    assert process.returncode == code, out
    resumed = start({"RESUME": env["OUT"], "SAVE_EVERY": "1"})
    out = resumed.communicate(timeout=600)[0]
    assert resumed.returncode == 0, out


@pytest.mark.parametrize("signum, code", [
    pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)])
def test_a_signal_saves_and_the_resumed_run_is_the_same(whole, taught_model, tmp_path, signum, code):
    """A signal in the middle saves the last whole step and ends with 143 or 130; resumed, the run equals the unbroken one."""
    run = tmp_path / "run"
    stopped_and_resumed(environ(taught_model, run, STEPS="6", SAVE_EVERY="100"), "step 1/", signum, code)

    assert_same_run(whole[0], run, 6)


@pytest.mark.slow
def test_a_closed_terminal_saves_first(whole, taught_model, tmp_path):
    """The bar on a terminal that is closed under it: the last whole step is saved, 129; resumed, the run is the unbroken one."""
    run = tmp_path / "run"
    env = os.environ | environ(taught_model, run, STEPS="6", SAVE_EVERY="100")
    pid, terminal = processes.on_terminal([sys.executable, command.ROOT / "train_grpo.py"], env=env)
    said = b""
    while b"1/6 [" not in said:
        said += os.read(terminal, 4096)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 129
    resumed = start({"RESUME": str(run), "SAVE_EVERY": "1"})
    out = resumed.communicate(timeout=600)[0]
    assert resumed.returncode == 0, out
    assert_same_run(whole[0], run, 6)


@pytest.mark.real
def test_a_signal_changes_nothing_on_real_weights(real_model, tmp_path):
    """The real checkpoint, stopped by SIGTERM after its first step and resumed: the adapter of a run never stopped."""
    small = {"STEPS": "3", "TASKS_PER_STEP": "1", "GROUP": "8", "MAX_NEW_TOKENS": "48", "TASK_NAMES": "is_sorted,lcm",
             "SPLIT": "all", "LORA_RANK": "16", "LEARNING_RATE": "1e-4", "SAVE_EVERY": "3"}
    process = start(environ(real_model, tmp_path / "whole", **small))
    out = process.communicate(timeout=900)[0]
    assert process.returncode == 0, out
    stopped_and_resumed(environ(real_model, tmp_path / "run", **small), "step 1/", signal.SIGTERM, 143)

    assert_same_run(tmp_path / "whole", tmp_path / "run", 3)
    assert read_rows(tmp_path / "run" / "metrics.jsonl")[-1]["lora_delta_norm"] > 0


@pytest.mark.slow
def test_kill_loses_only_what_came_after_the_checkpoint(whole, taught_model, tmp_path):
    """kill -9 with rows logged beyond the last checkpoint and a torn last line: resumed, the run equals the unbroken one."""
    run = tmp_path / "run"
    shutil.copytree(whole[0], run)
    shutil.rmtree(run / "checkpoints" / "step_00006")
    shutil.rmtree(run / "checkpoints" / "step_00005")
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 7, "rew')
    (run / "checkpoints" / ".step_00005.tmp").mkdir()
    process = start({"RESUME": str(run)})
    out = process.communicate(timeout=240)[0]
    assert process.returncode == 0, out

    assert_same_run(whole[0], run, 6)


def test_dry_run_needs_no_files_and_writes_none(train, tmp_path):
    """--dry-run of a built-in shape plans memory and disk without a checkpoint, and leaves no folder."""
    small = {"MODEL": "0.5B", "OUT": str(tmp_path / "run"), "MAX_NEW_TOKENS": "16", "GROUP": "2", "TASKS_PER_STEP": "1"}
    code, out, _ = train(small, "--dry-run")

    assert code == 0 and "peak" in out and " GB" in out and "disk: up to" in out and "env GROUP" in out
    assert not (tmp_path / "run").exists()


@pytest.fixture
def no_cache(monkeypatch, tmp_path):
    """A machine whose hub cache is empty; the hub itself may not be asked."""
    asked = []

    def download(repo_id, local_files_only=False, **options):
        asked.append(local_files_only)
        raise LocalEntryNotFoundError("not there")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    yield
    assert all(asked), "--dry-run asked the hub"


TINY_STEP = {"MAX_NEW_TOKENS": "16", "GROUP": "2", "TASKS_PER_STEP": "1"}


@pytest.mark.parametrize("model", ["0.5B", pytest.param("Qwen/Qwen2.5-Coder-0.5B-Instruct", marks=pytest.mark.slow)])
def test_dry_run_says_that_a_model_is_not_here(train, no_cache, monkeypatch, model):
    """Its shapes are known, so the plan is made and the exit code is 0; the last lines say what is missing and how to get it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    code, out, err = train({"MODEL": model} | TINY_STEP, "--dry-run")
    last = out[out.index("\nmodel: "):]
    assert code == 0 and "peak" in out, err
    assert "NOT on this machine" in last and "Qwen/Qwen2.5-Coder-0.5B-Instruct is not in the hub cache" in last
    assert "fetched from the hub at first use" in last and "\n  hf download Qwen/Qwen2.5-Coder-0.5B-Instruct" in last


@pytest.mark.slow
def test_dry_run_names_the_ways_on_where_nothing_can_be_fetched(train, monkeypatch, tmp_path):
    """HF_HUB_OFFLINE: that too is said, and the three ways on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    code, out, _ = train({"MODEL": "7B", "LORA_RANK": "2"} | TINY_STEP, "--dry-run")
    assert code == 0 and "NOT on this machine" in out and "HF_HUB_OFFLINE is set" in out and "Three ways on" in out


def test_dry_run_of_a_model_of_unknown_shape_prints_the_settings_and_ends_with_2(train, no_cache, monkeypatch):
    """A hub id that is not cached: no plan can be made, which is an error; the settings are there."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    code, out, err = train({"MODEL": "somebody/model"}, "--dry-run")
    assert code == 2 and "env MODEL" in out and "peak" not in out
    assert "somebody/model is not in the hub cache" in err and "no memory can be planned" in err and "hf download" in err


def test_dry_run_of_a_folder_without_weights_plans_from_its_config(train, taught_model, tmp_path):
    """config.json has the shapes; what else is missing is named. A whole folder is said to be there."""
    folder = tmp_path / "half"
    shutil.copytree(taught_model, folder)
    (folder / "model.safetensors").unlink()
    code, out, err = train({"MODEL": str(folder)} | TINY_STEP, "--dry-run")
    assert code == 0 and "peak" in out and "NOT on this machine, or incomplete" in out, err
    assert f"{folder}): neither model.safetensors nor" in out
    code, out, _ = train({"MODEL": str(taught_model)} | TINY_STEP, "--dry-run")
    assert code == 0 and f"model: on this machine, in {taught_model}\n" in out and "NOT" not in out


def test_help_lists_every_setting(train):
    """--help exits 0 and names settings with their limits."""
    code, out, _ = train({}, "--help")
    assert code == 0 and "LEARNING_RATE" in out and "RESUME" in out


BAD = [
    ({"MODEL": "0.5"}, (), "0.5B"),
    ({"MODEL": "nobody/nothing"}, (), "Three ways on"),
    ({"GROUP": "1", "TEMPERATURE": "0"}, (), "GROUP=1.*\n.*TEMPERATURE=0"),
    pytest.param({"NUM_GENERATIONS": "1"}, (), "NUM_GENERATIONS=1: .*number from 2 to", marks=pytest.mark.known_bug(6)),
    pytest.param({"TEMPERATURE": "0"}, (), "TEMPERATURE=0: .*above 0", marks=pytest.mark.known_bug(10)),
    ({"TASK_NAMES": "gdc"}, (), "did you mean gcd"),
    ({"TASKS_PER_STEP": "9"}, (), "TASKS_PER_STEP=9.*4 tasks"),
    ({"LORA": "nowhere.npz"}, (), "nowhere.npz"),
    ({"CONFIG": "missing.yaml"}, (), "missing.yaml"),
    ({"RESUME": "nowhere"}, (), "nowhere"),
    ({"MAX_PROMPT_TOKENS": "10"}, (), "MAX_PROMPT_TOKENS=10"),
    ({"MAX_NEW_TOKENS": "30000"}, (), "positions.*2048.*MAX_NEW_TOKENS=30000"),
    ({"ATTENTION": "cudnn"}, (), "ATTENTION=cudnn"),
    ({"DYNAMIC_SAMPLING": "1", "TASKS_PER_STEP": "4"}, (), "DYNAMIC_SAMPLING=true.*4 tasks"),
    ({"ADVANTAGE": "passk"}, (), "PASS_K=4 with GROUP=4"),
    ({"EVAL_EVERY": "-1"}, (), "EVAL_EVERY=-1"),
    ({"LORA_TARGETS": "q_proj,k_prj"}, (), "LORA_TARGETS=q_proj,k_prj: .*q_proj, k_proj, v_proj, o_proj, gate_proj"),
    ({"EVAL_EVERY": "2", "EVAL_TASKS": "99"}, (), "EVAL_TASKS=99, but 24 tasks"),
    ({"EVAL_EVERY": "2", "SPLIT": "all"}, (), "EVAL_EVERY=2 with SPLIT=all"),
    ({}, ("--steps=3",), "--steps=3"),
    ({}, ("STEPS=3", "--dry-run"), "STEPS=3: settings go before the command, STEPS=3 python train_grpo.py"),
    ({"TASK_NAMES": "gcdd", "COMBINE": "lsp", "EVAL_EVERY": "2", "EVAL_TASKS": "99"}, (), "(?s)gcdd.*EVAL_TASKS=99.*lsp"),
]


@pytest.mark.parametrize("change, arguments, words", BAD, ids=lambda value: str(value)[:40])
def test_bad_input_is_one_message_and_exit_code_2(train, taught_model, tmp_path, monkeypatch, change, arguments, words):
    """Each names the value and the way on, on stderr, without a traceback, before weights are read; no run is left behind."""
    import re
    monkeypatch.setattr(pretrained, "load", lambda *_: pytest.fail("the weights were read"))
    code, _, err = train(environ(taught_model, tmp_path / "run") | change, *arguments)

    assert code == 2 and re.search(words, err), err
    assert "Traceback" not in err and not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.fixture
def words(tmp_path):
    """The settings of a run on three questions with answers, and a zero-shot file that has a row for one of them."""
    questions = [f"What is {n} + {n}?" for n in (1, 2, 3)]
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k/train.jsonl").write_text("".join(
        json.dumps({"question": text, "answer": f"#### {2 * n}"}) + "\n" for n, text in enumerate(questions, 1)))
    (tmp_path / "short.py").write_text(SHORT_ONE)
    (tmp_path / "zero.jsonl").write_text(json.dumps({"prompt": questions[0], "completion": "a", "correct": True}) + "\n")
    return {"TASKS": "gsm8k", "TASKS_FILE": str(tmp_path / "gsm8k"), "TASK_NAMES": "", "COMBINE": "additive"}


UNPAYABLE = [
    ({"COMBINE_KWARGS": "{enable_token_utilisation: true}",
      "REWARD_KWARGS": "{token_utilisation_reward: {zero_shot: zero.jsonl}}"}, "zero.jsonl has no row for 2 of the 3 tasks"),
    ({"PLUGINS": "short.py", "COMBINE_KWARGS": "{extras: [short_one]}"}, "short_one gave 3 values for 4 samples"),
    ({"REWARD_KWARGS": "{length_penalty_reward: {group_size: 3}}"}, "group_size=3"),
    ({"REWARD_KWARGS": "{gsm8k_correctness_reward: {policy: bar}}"}, "wants one or last for 'policy', not 'bar'"),
]
SHORT_ONE = """
from rl.registry import register_reward
@register_reward("short_one")
def short_one(samples): return [0.0] * (len(samples) - 1)
"""


@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
@pytest.mark.parametrize("change, said", UNPAYABLE, ids=lambda value: str(value)[:40])
def test_rewards_that_could_not_pay_are_found_first(train, taught_model, tmp_path, monkeypatch, words, change, said, arguments):
    """Before weights are read or anything is written, and by --dry-run too; not at the first task that shows it, hours later."""
    monkeypatch.setattr(pretrained, "load", lambda *_: pytest.fail("the weights were read"))
    monkeypatch.chdir(tmp_path)
    code, _, err = train(environ(taught_model, tmp_path / "run") | words | change, *arguments)

    assert code == 2 and said in err and not (tmp_path / "run").exists(), err


def test_an_adapter_of_another_rank_is_refused_before_anything_is_written(train, taught_model, whole, tmp_path):
    """LORA_RANK against the file's rank: both numbers and the way on."""
    code, _, err = train(environ(taught_model, tmp_path / "run", LORA=str(whole[0] / "checkpoints/step_00006"), LORA_RANK="3"))
    assert code == 2 and "LORA_RANK=3" in err and "LORA_RANK=2" in err


def test_rank_and_alpha_come_with_the_adapter(train, taught_model, whole, tmp_path, monkeypatch):
    """LORA alone is enough: --dry-run shows rank and alpha of the file with their origin, whatever the defaults are."""
    env = environ(taught_model, tmp_path / "run", LORA=str(whole[0] / "checkpoints/step_00006"))
    del env["LORA_RANK"], env["LORA_ALPHA"]
    code, out, _ = train(env, "--dry-run")
    shown = {line.split()[0]: line.split()[1:3] for line in out.splitlines() if line.startswith("  LORA_")}
    assert code == 0 and shown == {"LORA_RANK": ["2", "LORA"], "LORA_ALPHA": ["4.0", "LORA"],
                                   "LORA_TARGETS": [",".join(PROJECTIONS), "LORA"], "LORA_SCALE": ["1.0", "default"]}


@pytest.mark.slow
def test_targets_are_trained_and_resumed(train, taught_model, tmp_path):
    """LORA_TARGETS=v_proj,up_proj: 1 + 1 steps are 2, bit for bit; a run that starts from the adapter has its targets."""
    whole, run = tmp_path / "whole", tmp_path / "run"
    more = {"LORA_TARGETS": "up_proj, v_proj", "STEPS": "2"}
    code, out, err = train(environ(taught_model, whole, **more))
    assert code == 0 and f"{2 * 2 * (64 + 32 + 64 + 128):,}" in out.split("trained values: ")[1].splitlines()[0], err
    for env in (environ(taught_model, run, **more) | {"STEPS": "1"}, {"RESUME": str(run), "STEPS": "2"}):
        assert train(env)[0] == 0
    assert_same_run(whole, run, 2)
    folder = run / "checkpoints/step_00002"
    assert json.loads((folder / "adapter_config.json").read_text())["target_modules"] == ["v_proj", "up_proj"]
    assert any(np.abs(value).max() > 0 for key, value in state_of(run, 2).items() if "lora_B" in key)

    code, out, _ = train(environ(taught_model, tmp_path / "new", LORA=str(folder)), "--dry-run")
    assert code == 0 and "LORA_TARGETS         v_proj,up_proj           LORA" in out
    code, _, err = train(environ(taught_model, tmp_path / "new", LORA=str(folder), LORA_TARGETS="q_proj"))
    assert code == 2 and "LORA_TARGETS=q_proj (env LORA_TARGETS)" in err and "has LORA_TARGETS=v_proj,up_proj" in err
    code, _, err = train({"RESUME": str(run), "STEPS": "3", "LORA_TARGETS": "q_proj"})
    assert code == 2 and "LORA_TARGETS=q_proj" in err


def test_a_folder_in_use_is_refused(train, taught_model, whole, tmp_path):
    """A second process on a run that is going, new or resumed: one line, and the run stays as it was."""
    run = tmp_path / "run"
    shutil.copytree(whole[0], run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with claimed(run):
        code, _, err = train({"RESUME": str(run), "STEPS": "7"})
    assert code == 2 and f"{run} is in use by process {os.getpid()}" in err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_folder_that_cannot_be_written_to_is_refused_early(train, taught_model, whole, tmp_path, monkeypatch):
    """A disk mounted read-only, as the system call reports it: said before the weights are read; nothing changes."""
    run = tmp_path / "run"
    shutil.copytree(whole[0], run)
    monkeypatch.setattr(command.os, "access", lambda path, mode: path != run)
    monkeypatch.setattr(pretrained, "load", lambda *_: pytest.fail("the weights were read"))
    code, _, err = train({"RESUME": str(run), "STEPS": "7"})
    assert code == 2 and f"{run} cannot be written to" in err and "read-only" in err


def test_a_short_run_follows_its_settings(train, taught_model, whole, tmp_path, monkeypatch):
    """RUN_NAME ends the folder's name; SAVE_EVERY, KEEP_LAST and KEEP_EVERY decide what is kept; STYLE_WEIGHT=0 pays 0 or 1."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb())
    env = environ(taught_model, "", STEPS="5", SAVE_EVERY="2", KEEP_LAST="1", KEEP_EVERY="2", RUN_NAME="short", STYLE_WEIGHT="0",
                  TRACKER="wandb")
    code, out, err = train(env)
    assert code == 0, err
    run, = (tmp_path / "runs").iterdir()
    assert run.name.endswith("-short")
    assert sorted(str(path.relative_to(run / "checkpoints")) for path in (run / "checkpoints").glob("**/step_*")) == [
        "permanent/step_00002", "permanent/step_00004", "step_00005"]
    rewards = lambda run: {row["reward"] for n in (1, 2) for row in read_rows(run / f"completions/completions_0000{n}.jsonl")}  # noqa: E731
    assert rewards(run) <= {0.0, 1.0} and not rewards(whole[0]) <= {0.0, 1.0}
    assert [arguments[1] for call, arguments, _ in sys.modules["wandb"].calls if call == "log"] == [1, 2, 3, 4, 5]


def test_a_run_out_of_time_ends_cleanly(train, taught_model, tmp_path):
    """MAX_HOURS over before the first step: saved, exit code 0, told how to go on."""
    code, out, err = train(environ(taught_model, tmp_path / "run", MAX_HOURS="1e-9"))
    assert code == 0 and "MAX_HOURS=1e-09 reached at step 0" in out and f"RESUME={tmp_path / 'run'}" in out, err
    assert checkpoint.steps(tmp_path / "run") == [0]


def test_weights_that_cannot_be_read_leave_the_folder_free(train, taught_model, tmp_path, monkeypatch):
    """When loading fails nothing has been written yet, so the same OUT can be used again."""
    def broken(*_):
        raise pretrained.ModelError("the weights are torn")

    monkeypatch.setattr(pretrained, "load", broken)
    code, _, err = train(environ(taught_model, tmp_path / "run"))
    assert code == 2 and "the weights are torn" in err and not any((tmp_path / "run").iterdir())


def test_a_folder_with_a_run_in_it_is_not_overwritten(train, taught_model, whole):
    """OUT with files in it is refused and points to RESUME; the run stays as it was."""
    before = (whole[0] / "metrics.jsonl").read_bytes()
    code, _, err = train(environ(taught_model, whole[0]))
    assert code == 2 and "RESUME=" in err and (whole[0] / "metrics.jsonl").read_bytes() == before


def test_a_full_disk_is_refused_before_the_run(train, taught_model, tmp_path, monkeypatch):
    """The need and what is free are both named, with the settings that lower the need."""
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(command.shutil, "disk_usage", lambda path: usage)
    code, _, err = train(environ(taught_model, tmp_path / "run"))
    assert code == 2 and "KEEP_LAST" in err and "1000" in err.replace("0.0 MB", "1000")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own of 400 kB, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.slow
def test_a_disk_that_fills_up_in_the_middle_loses_nothing_that_was_written(whole, taught_model, tmp_path, small_disk):
    """A real full disk: one line with the way on, exit code 2, every checkpoint whole; with room again, the unbroken run."""
    process = start(environ(taught_model, small_disk / "run", STEPS="60", KEEP_LAST="50", SAVE_EVERY="1")
                    | {"PYTHONPATH": str(no_disk_check(tmp_path))})
    out = process.communicate(timeout=600)[0]
    assert process.returncode == 2 and "No space left on device" in out and "RESUME=" in out and "Traceback" not in out, out
    saved = checkpoint.steps(small_disk / "run")
    assert saved and not [*(small_disk / "run" / "checkpoints").glob(".*")]

    run = tmp_path / "run"
    shutil.copytree(small_disk / "run", run)
    process = start({"RESUME": str(run), "STEPS": "6"})
    out = process.communicate(timeout=600)[0]
    if saved[-1] <= 6:
        assert process.returncode == 0, out
        assert_same_run(whole[0], run, 6)
    for step in (step for step in saved if step <= 6):
        assert state_of(run, step)


def no_disk_check(folder):
    """A sitecustomize that makes every disk look large, as one that others fill up during the run did at its start."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(
        "import shutil\nreal = shutil.disk_usage\nshutil.disk_usage = lambda path: real(path)._replace(free=10**12)\n")
    return folder / "site"


@pytest.fixture
def on_known_tasks(monkeypatch):
    """Evaluations on the very tasks that this model knows and trains on: the likeliest to disturb it, and to show a change."""
    known = {"split": "train", "task_names": SMALL["TASK_NAMES"]}
    monkeypatch.setattr(rl_tasks, "load_tasks", lambda data: load_tasks(replace(data, **known)))


@pytest.fixture
def evaluated(train, taught_model, tmp_path, on_known_tasks, monkeypatch):
    """A run of six steps with EVAL_EVERY=4: its folder, what it said, and the calls of its tracker."""
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb())
    more = {"STEPS": "6", "STYLE_WEIGHT": "0.5", "EVAL_EVERY": "4", "EVAL_SAMPLES": "3", "TRACKER": "wandb"}
    code, out, err = train(environ(taught_model, tmp_path / "evaluated", **more))
    assert code == 0, err
    return tmp_path / "evaluated", out, sys.modules["wandb"].calls


def eval_rows(run):
    """The rows of eval.jsonl, but for the clock."""
    return [{name: value for name, value in row.items() if name != "eval/time"} for row in read_rows(run / "eval.jsonl")]


def test_evaluations_change_nothing_and_are_told(whole, evaluated):
    """Adapter, moments, samples and metrics are those of a run without; rows of the base model, of step 4 and of the last; the
    same numbers in lines of their own, in the tracker beside the step's, and on the page."""
    run, out, calls = evaluated
    assert_same_run(whole[0], run, 6)
    assert not (whole[0] / "eval.jsonl").exists()

    rows = eval_rows(run)
    assert [row["step"] for row in rows] == [0, 4, 6]
    assert {(row["eval/tasks"], row["eval/samples"]) for row in rows} == {(4, 12)}
    assert 0 < rows[0]["eval/pass_rate"] < 1 and rows[0] != rows[2] | {"step": 0}, "the adapter made no difference"
    said = [line.split("  ") for line in out.splitlines() if line.startswith("eval ")]
    assert [parts[:3] for parts in said] == [[f"eval {row['step']}/6", f"reward {row['eval/reward']:.3f}",
                                              f"pass {row['eval/pass_rate']:.3f}"] for row in rows]
    logged = [(step, values) for call, (values, step), _ in calls[1:-1]]
    assert [(step, "eval/reward" in values) for step, values in logged] == [
        (0, True), (1, False), (2, False), (3, False), (4, False), (4, True), (5, False), (6, False), (6, True)]
    assert logged[-1][1]["eval/reward"] == rows[-1]["eval/reward"]
    page = (run / "report.html").read_text()
    assert "pass rate, held-out" in page and "pass rate, held-out" in (run / "curves" / "pass_rate.svg").read_text()
    assert "held-out" not in (whole[0] / "curves" / "pass_rate.svg").read_text()


def test_an_evaluation_that_was_stopped_is_made_when_the_run_goes_on(train, taught_model, tmp_path, evaluated, monkeypatch):
    """SIGTERM while the adapter of step 4 is evaluated: 143, that step is saved and has no row; resumed, the run and all rows are
    those of the run that nothing stopped. So are they after going back to an earlier checkpoint."""
    run, of = tmp_path / "run", HeldOutEvaluation.of
    with monkeypatch.context() as patch:
        looked = iter([False, True])
        patch.setattr(HeldOutEvaluation, "of", lambda *arguments: stop() if next(looked) else of(*arguments))
        env = environ(taught_model, run, STEPS="6", STYLE_WEIGHT="0.5", EVAL_EVERY="4", EVAL_SAMPLES="3", SAVE_EVERY="100")
        code, out, _ = train(env)
    assert code == 143 and "saved step 4" in out and [row["step"] for row in eval_rows(run)] == [0]
    assert train({"RESUME": str(run), "SAVE_EVERY": "1"})[0] == 0
    assert_same_run(evaluated[0], run, 6)
    assert eval_rows(run) == eval_rows(evaluated[0])

    for step in (5, 6):    # back to step 4, which has its row; the row of 6 and a torn one are from a future that is undone
        shutil.rmtree(run / "checkpoints" / f"step_0000{step}")
    kept = (run / "eval.jsonl").read_text().replace('{"step": 6, "eval/', '{"step": 6, "eval/undone": 1, "eval/')
    (run / "eval.jsonl").write_text(kept + '{"step": 7, "ev')
    assert train({"RESUME": str(run)})[0] == 0
    assert_same_run(evaluated[0], run, 6)
    assert eval_rows(run) == eval_rows(evaluated[0])


def stop():
    """What SIGTERM does where it is not held back."""
    raise Interrupted(signal.SIGTERM)


@pytest.mark.slow
def test_a_starting_adapter_is_used(taught_model, whole, tmp_path):
    """LORA= begins from that adapter: the first checkpoint's distance from it is one step's, not the whole adapter's."""
    run = tmp_path / "run"
    process = start(environ(taught_model, run, STEPS="1", LORA=str(whole[0] / "checkpoints/step_00006"), SEED="5"))
    out = process.communicate(timeout=240)[0]
    assert process.returncode == 0, out
    a, b = state_of(whole[0], 6), state_of(run, 1)
    key = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"

    assert abs(a["lora_step00006.npz/" + key] - b["lora_step00001.npz/" + key]).max() < 2e-3
    assert json.loads((run / "checkpoints/step_00001/adapter_config.json").read_text())["r"] == 2
