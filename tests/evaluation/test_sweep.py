"""Sweeps: grids from text, folders that are skipped, resumed or refused, failures, Ctrl-C, and summaries by hand."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rl.errors import InputError
from rl.evaluation import sweep
from rl.evaluation.stats import bootstrap, wilson
from rl.run.files import append_rows, read_rows
from rl.settings import config
from rl.settings.declared import LEAVES
from tests import processes

ROOT = Path(__file__).resolve().parents[2]
WEIGHTED = ("objective: {combine: weighted_length_penalty, "
            "combine_kwargs: {correctness_weight: 2.0, length_penalty_lambda: 0.5}}\n")

# A stand-in for train_grpo.py that writes the files a sweep reads; with SEED=3 it fails, with SEED=5 it waits to be interrupted.
TRAIN = """
import json, os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from rl.settings import config
loaded = config.load(os.environ, training=True)
s, run = loaded.settings, Path(loaded.settings.run.resume or loaded.settings.run.out)
print("resumed" if s.run.resume else "started", s.trainer.learning_rate, flush=True)
run.mkdir(parents=True, exist_ok=True)
(run / "config.yaml").write_text(config.dump(s))
def save(step):
    (run / f"checkpoints/step_{{step:05d}}").mkdir(parents=True, exist_ok=True)
    (run / f"checkpoints/step_{{step:05d}}/state.json").touch()
save(0)
if s.trainer.seed == 3 and not os.environ.get("MENDED"):
    sys.exit("no memory left")
def stop(*_):
    save(2)
    print("saved", flush=True)
    sys.exit(130)
if s.trainer.seed == 5 and not s.run.resume:
    signal.signal(signal.SIGINT, stop)
    (run / "waiting").touch()
    time.sleep(60)
with open(run / "metrics.jsonl", "w") as file:
    for step in range(1, s.trainer.steps + 1):
        reward = s.trainer.learning_rate * 1e4 + step % 2 / 10
        file.write(json.dumps({{"step": step, "reward": reward, "pass_rate": 0.5}}) + "\\n")
save(s.trainer.steps)
"""


@pytest.fixture
def base(tmp_path):
    """A CONFIG file with two tasks."""
    path = tmp_path / "base.yaml"
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"question": "1 + 1?", "answer": "2"}\n{"question": "1 + 2?", "answer": "3"}\n')
    path.write_text("trainer: {steps: 15, tasks_per_step: 2}\n"
                    f"data: {{tasks: svamp, tasks_file: {problems}}}\n" + WEIGHTED)
    return path


@pytest.fixture
def train(tmp_path):
    """The stand-in's command."""
    (tmp_path / "train.py").write_text(TRAIN.format(root=str(ROOT)))
    return [sys.executable, str(tmp_path / "train.py")]


@pytest.fixture(scope="session")
def script(load_script):
    """scripts/sweep.py as a module."""
    return load_script("sweep")


def grid(base, *axes, **environ):
    """The points of these axes, written NAME=values."""
    return sweep.points_of(base, sweep.axes_of(base, axes), environ)


# ---- from text to points ---------------------------------------------------------------------------------------------

def test_a_grid_is_the_product_of_its_axes(base):
    """The last axis changes fastest; each point has its settings in its folder's name; environment and file count too."""
    points = grid(base, "LEARNING_RATE=1e-5,2e-5", "seed=1", "group=4, 8", WARMUP_STEPS="2")
    assert [point.name for point in points] == [
        f"run_learning_rate-{lr}_seed-1_group-{group}" for lr in ("1e-05", "2e-05") for group in (4, 8)]
    assert [(p.settings.trainer.learning_rate, p.settings.generation.group) for p in points] == [
        (1e-5, 4), (1e-5, 8), (2e-5, 4), (2e-5, 8)]
    assert {(p.settings.trainer.steps, p.settings.trainer.warmup_steps, p.settings.trainer.seed) for p in points} == {(15, 2, 1)}
    assert points[1].chosen == {"LEARNING_RATE": "1e-05", "SEED": "1", "GROUP": "8"}


def test_an_axis_wins_over_the_environment_under_any_name(base):
    """LR in the environment is the same setting, so the axis replaces it."""
    assert [p.settings.trainer.learning_rate for p in grid(base, "lr=1e-5,2e-5", LR="0.5", LEARNING_RATE="0.5")] == [1e-5, 2e-5]


def test_mappings_whole_and_by_entry(base):
    """Values of a mapping are separated by ; and replace it; NAME.key changes one entry and keeps the others."""
    kwargs = lambda points: [json.loads(point.settings.objective.combine_kwargs) for point in points]  # noqa: E731
    whole = grid(base, "COMBINE_KWARGS={length_penalty_lambda: 0.25};{length_penalty_lambda: 1.0, strict_format_gate: true}")
    assert kwargs(whole) == [{"length_penalty_lambda": 0.25}, {"length_penalty_lambda": 1.0, "strict_format_gate": True}]
    entries = grid(base, "combine_kwargs.length_penalty_lambda=2.5e-1,1", "combine_kwargs.strict_format_gate=true")
    assert kwargs(entries) == [{"correctness_weight": 2.0, "length_penalty_lambda": value, "strict_format_gate": True}
                               for value in (0.25, 1)]
    assert entries[0].name == "run_length_penalty_lambda-0.25_strict_format_gate-true"
    deep = grid(base, "reward_kwargs.gsm8k_correctness_reward.policy=one,last")
    assert json.loads(deep[1].settings.reward.reward_kwargs) == {"gsm8k_correctness_reward": {"policy": "last"}}
    assert grid(base, "LORA_TARGETS=q_proj,v_proj;up_proj")[0].settings.model.lora_targets == "q_proj,v_proj"
    assert len({point.name for point in whole}) == 2 and all(len(point.name) <= sweep.LONGEST for point in whole)


def test_the_file_may_hold_the_grid(base):
    """Lists below sweep:, in a file that also trains by itself; --set adds axes."""
    base.write_text(base.read_text() + "sweep:\n  learning_rate: [1e-5, 2e-5]\n  combine_kwargs.length_penalty_lambda: [0, 1]\n")
    assert len(grid(base)) == 4 and len(grid(base, "SEED=0,1")) == 8
    assert config.load({"CONFIG": str(base)}).settings.trainer.steps == 15


@pytest.mark.parametrize("axes, message", [
    ([], "nothing to sweep"), (["optim=adamw"], "optim: OPTIMIZER is fixed at adamw"),
    (["LEARNING_RATE"], "write NAME=value"), (["LEARNING_RATE="], "LEARNING_RATE: no values"),
    (["LEARNNG_RATE=1"], r"LEARNNG_RATE: unknown setting \(did you mean learning_rate"), (["GROUP=4,x"], "GROUP=x: GROUP takes"),
    (["GROUP=4,4.0"], "GROUP=4 is given twice"), (["SEED=1", "seed=2"], "SEED is given twice"),
    (["OUT=a,b"], "OUT: the sweep sets it"), (["SEED.x=1"], "SEED is not a mapping"),
    (["COMBINE_KWARGS.x=1,{a"], r"COMBINE_KWARGS.x=\{a: not valid YAML"),
    (["COMBINE_KWARGS.x=.nan"], "not valid YAML, or not a finite number"),
    (["TEMPERATURE=0,1"], "TEMPERATURE=0: the samples of a prompt would be equal"),
    (["COMBINE_KWARGS.lamda=1"], "takes no 'lamda'"),
    (["TASKS=gsm8k,math"], "(?s)problems.jsonl: 2 rows.*give the folder of a copy"),
    (["TASKS=humaneval", "TASKS_FILE=none.jsonl,nor this.jsonl"], "(?s)none.jsonl.*nor this.jsonl"),
    (["TASK_NAMES=lcm;nothing"], "nothing"), (["TASKS_PER_STEP=2,9"], "TASKS_PER_STEP=9, but there are 2 tasks"),
    (["GROUP=1", "STYLE_WEIGHT=-1", "X=1"], r"(?s)GROUP=1.*STYLE_WEIGHT=-1.*X: unknown")])
def test_problems_are_reported_before_anything_starts(base, script, train, axes, message, capsys, tmp_path):
    """Exit code 2, all problems at once, and no folder is made."""
    arguments = [part for axis in axes for part in ("--set", axis)]
    assert script.main([str(base), "--out", str(tmp_path / "out"), *arguments], train) == 2
    assert re.search(message, capsys.readouterr().err) and not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [[], ["a.yaml"], ["a.yaml", "--out", "x", "--by", "luck"],
                                       ["a.yaml", "--out", "x", "--sett", "y"]])
def test_a_wrong_command_line_is_2(arguments, script, capsys, monkeypatch, tmp_path):
    """So is a missing file; --help exits with 0."""
    monkeypatch.chdir(tmp_path)
    assert script.main(arguments) == 2 and capsys.readouterr().err
    assert script.main([*arguments, "--help"]) == 0 and "NAME.key" in capsys.readouterr().out


def test_a_setting_without_effect_is_a_warning(base, script, train, tmp_path, capsys):
    """Said once, though every point has it."""
    assert sweep_it(script, train, base, tmp_path / "out", "--set", "PASS_K=2", "--set", "SEED=1,2") == 0
    assert capsys.readouterr().err.count("warning: PASS_K=2 has no effect") == 1


def test_the_sweeps_own_variables_are_refused(base):
    """OUT, RESUME and CONFIG belong to the sweep."""
    with pytest.raises(InputError, match="OUT=x"):
        grid(base, "SEED=0,1", OUT="x")


# ---- points that run -------------------------------------------------------------------------------------------------

def sweep_it(script, train, base, out, *arguments):
    """The sweep's exit code."""
    return script.main([str(base), "--out", str(out), *arguments], train)


def test_one_failure_does_not_end_the_rest(script, train, base, tmp_path, capsys, monkeypatch):
    """The failed point is named with its log and code 1; the same command skips finished points and resumes the failed one."""
    out = tmp_path / "out"
    assert sweep_it(script, train, base, out, "--set", "SEED=1,3,4") == 1
    printed = capsys.readouterr().out
    assert "run_seed-3  FAILED with exit code 1" in printed
    assert f"log {out}/logs/run_seed-3.log: no memory left" in printed
    states = {row["point"]: row["state"] for row in json.loads((out / "summary.json").read_text())["points"]}
    assert states["run_seed-1"] == states["run_seed-4"] == "finished" and states["run_seed-3"].startswith("FAILED")

    monkeypatch.setenv("MENDED", "1")
    assert sweep_it(script, train, base, out, "--set", "SEED=1,3,4") == 0
    progress = capsys.readouterr().err
    assert progress.count("already finished") == 2 and "run_seed-3: resumed" in progress
    assert (out / "logs/run_seed-3.log").read_text().split("\n")[:3] == ["started 2e-05", "no memory left", "resumed 2e-05"]
    assert (out / "logs/run_seed-1.log").read_text() == "started 2e-05\n"


def test_more_steps_go_on_and_other_settings_are_refused(script, train, base, tmp_path, capsys):
    """STEPS may grow, as in any resume; any other change would mix two experiments in one folder."""
    out = tmp_path / "out"
    assert sweep_it(script, train, base, out, "--set", "SEED=1") == 0
    base.write_text(base.read_text().replace("steps: 15", "steps: 18"))
    assert sweep_it(script, train, base, out, "--set", "SEED=1") == 0
    assert len(read_rows(out / "run_seed-1/metrics.jsonl")) == 18
    base.write_text(base.read_text().replace("steps: 18", "steps: 18, weight_decay: 0.5"))
    assert sweep_it(script, train, base, out, "--set", "SEED=1") == 2
    assert "WEIGHT_DECAY=0.0, now 0.5" in capsys.readouterr().err


def test_steps_cannot_change_where_a_schedule_ends_there(script, train, base, tmp_path, capsys):
    """Points started with SCHEDULER=linear are not resumed with other STEPS, which train_grpo.py would refuse."""
    base.write_text(base.read_text().replace("steps: 15,", "steps: 15, scheduler: linear,"))
    assert sweep_it(script, train, base, tmp_path / "out", "--set", "seed=1") == 0
    assert (tmp_path / "out/run_seed-1").is_dir()
    base.write_text(base.read_text().replace("steps: 15", "steps: 18"))
    assert sweep_it(script, train, base, tmp_path / "out", "--set", "SEED=1") == 2
    assert "STEPS=15, now 18" in capsys.readouterr().err


def test_a_run_killed_before_its_first_checkpoint_starts_again(script, train, base, tmp_path):
    """Its folder, which training would refuse as not empty, is removed; one with a log but no checkpoint is refused."""
    out = tmp_path / "out"
    (out / "run_seed-1").mkdir(parents=True)
    (out / "run_seed-1/config.yaml").write_text("")
    assert sweep_it(script, train, base, out, "--set", "SEED=1") == 0
    (out / "run_seed-2").mkdir()
    append_rows(out / "run_seed-2/metrics.jsonl", [{"step": 1}])
    assert sweep_it(script, train, base, out, "--set", "SEED=2") == 2 and (out / "run_seed-2/metrics.jsonl").exists()


@pytest.mark.parametrize("signum, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interruption_is_passed_on_once_and_waited_for(train, base, tmp_path, signum, code):
    """The running point saves, the summary says so, later points never start, and the same command continues."""
    out, entry = tmp_path / "out", tmp_path / "entry.py"
    entry.write_text("import importlib.util, sys\n"
                     f"spec = importlib.util.spec_from_file_location('s', {str(ROOT / 'scripts/sweep.py')!r})\n"
                     "m = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(m)\n"
                     f"sys.exit(m.main(sys.argv[1:], {train!r}))\n")
    command = [sys.executable, str(entry), str(base), "--out", str(out), "--set", "SEED=5,6"]
    process = processes.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (out / "run_seed-5/waiting").exists() and process.poll() is None:
        time.sleep(0.05)
    for _ in range(2 if signum == signal.SIGHUP else 1):    # shell and kernel both send one for a closed terminal
        process.send_signal(signum)
        time.sleep(0.05)
    printed, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert (out / "logs/run_seed-5.log").read_text().endswith("saved\n") and not (out / "run_seed-6").exists()
    assert "interrupted" in printed and "not started" in printed
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "run_seed-5: resumed" in done.stderr, done.stderr


def test_a_sweep_under_a_cache(script, train, base, tmp_path, monkeypatch):
    """A relative --out is below artifacts/sweeps, with its runs and logs."""
    monkeypatch.setenv("CACHE_DIR", str(tmp_path / "cache"))
    assert sweep_it(script, train, base, "mine", "--set", "SEED=1") == 0
    assert (tmp_path / "cache/artifacts/sweeps/mine/run_seed-1/metrics.jsonl").exists()
    assert (tmp_path / "cache/artifacts/sweeps/mine/logs/run_seed-1.log").exists()


# ---- the summary -----------------------------------------------------------------------------------------------------

def test_the_best_is_named_and_whether_its_interval_is_apart(script, train, base, tmp_path, capsys):
    """Rewards by hand over the last three of 15 steps; those of 2e-5 and 4e-5 are apart, those of 2e-5 and 2.5e-5 are not."""
    for rates, best, apart in (("2e-5,4e-5", "run_learning_rate-4e-05", True),
                               ("2e-5,2.5e-5", "run_learning_rate-2.5e-05", False)):
        out = tmp_path / rates
        assert sweep_it(script, train, base, out, "--set", f"LEARNING_RATE={rates}") == 0
        found = json.loads((out / "summary.json").read_text())
        assert (found["by"], found["best"], found["apart_from_second"]) == ("reward", best, apart)
        assert found["points"][0]["point"] == best and found["points"][1]["reward"] == pytest.approx(0.8 / 3)
        interval = bootstrap([0.3, 0.2, 0.3])
        assert [found["points"][1][f"reward{end}"] for end in ("_low", "_high")] == pytest.approx(interval[1:])
        printed = capsys.readouterr().out
        assert f"best: {best}; its interval " in printed and ("overlap" in printed) == (not apart)
        with open(out / "summary.csv") as file:
            assert [row["LEARNING_RATE"] for row in csv.DictReader(file)][0] == best.removeprefix("run_learning_rate-")


def test_rewards_of_different_kinds_are_not_compared(base):
    """Where an axis changes how rewards are computed, the pass rate decides."""
    measure = lambda *axes: sweep.measure_for(sweep.axes_of(base, axes))  # noqa: E731
    assert measure("LEARNING_RATE=1e-5") == measure("SEED=1") == "reward"
    for text in ("COMBINE_KWARGS.length_penalty_lambda=1", "STYLE_WEIGHT=1", "COMBINE=additive", "OVERLONG=mask"):
        assert measure("SEED=1", text) == "pass_rate"


def test_held_out_figures_go_first_where_all_have_them(tmp_path, base):
    """Evaluations in the last fifth: their pass rate has one trial per task, their reward no interval from two values."""
    points = grid(base, "SEED=1,2")
    for point, rate in zip(points, (0.25, 0.75), strict=True):
        (tmp_path / point.name).mkdir()
        append_rows(tmp_path / point.name / "metrics.jsonl", [
            {"step": n, "reward": 1 - rate, "pass_rate": 0.5} for n in range(1, 16)])
        append_rows(tmp_path / point.name / "eval.jsonl", [
            {"step": n, "eval/reward": rate * n, "eval/pass_rate": rate, "eval/tasks": 40} for n in (0, 5, 13, 15)])
    states = {point.name: "finished" for point in points}
    found = sweep.summary(points, tmp_path, states, "pass_rate")
    assert (found["by"], found["best"], found["apart_from_second"]) == ("eval/pass_rate", "run_seed-2", True)
    first = found["points"][0]
    assert [first["eval/pass_rate_low"], first["eval/pass_rate_high"]] == pytest.approx(wilson(30, 40)[1:])
    assert first["eval/reward"] == pytest.approx(0.75 * 14) and first["eval/reward_low"] is None
    by_reward = sweep.summary(points, tmp_path, states, "reward")
    assert by_reward["apart_from_second"] is None
    assert "needs 3 evaluations with a reward in the last fifth of the steps (lower EVAL_EVERY), and run_seed-2 and" \
        in sweep.summary_text(by_reward)
    (tmp_path / "run_seed-1/eval.jsonl").unlink()
    assert sweep.summary(points, tmp_path, states, "reward")["best"] == "run_seed-1", "training's, where one point has no other"
    assert "best: run_seed-1, the only finished point" in sweep.summary_text(
        sweep.summary(points[:1], tmp_path, states, "reward"))


def test_the_settings_that_a_resume_may_change_are_passed_on(base, tmp_path):
    """A resumed point gets RESUME and only those settings; the others come from the run's config.yaml."""
    point, = grid(base, "SEED=1", SAVE_EVERY="5", GROUP="4")
    (tmp_path / "run_seed-1/checkpoints/step_00000").mkdir(parents=True)
    (tmp_path / "run_seed-1/checkpoints/step_00000/state.json").touch()
    environ = sweep.start(point, tmp_path / "run_seed-1")
    given = {name: environ[name] for name in environ if name.lower() in LEAVES and environ[name]}
    assert given["SAVE_EVERY"] == "5" and given["STEPS"] == "15" and given["RESUME"].endswith("run_seed-1")
    assert not {"GROUP", "SEED", "CONFIG", "OUT"} & set(environ)


def test_a_fifth_of_a_short_run_is_no_interval(tmp_path, base):
    """One step has no spread: resampled, it would give an interval of zero width, apart from every other."""
    points = grid(base, "SEED=1,2", STEPS="8")
    for point, reward in zip(points, (0.5, 0.6), strict=True):
        (tmp_path / point.name).mkdir()
        append_rows(tmp_path / point.name / "metrics.jsonl", [{"step": n, "reward": reward} for n in range(1, 9)])
    found = sweep.summary(points, tmp_path, {point.name: "finished" for point in points}, "reward")
    assert (found["best"], found["apart_from_second"], found["points"][0]["reward_low"]) == ("run_seed-2", None, None)
    text = sweep.summary_text(found)
    assert "0.600 [-, -]" in text and "needs 3 steps with a reward in the last fifth (STEPS=15 or more)" in text


@pytest.mark.parametrize("steps", [8, 15])
def test_equal_points_are_a_tie(tmp_path, base, steps):
    """With or without intervals; a worse point is not part of it, nor is one that did not finish."""
    points = grid(base, "SEED=1,2,3,4", STEPS=str(steps))
    for point, reward in zip(points, (0.5, 0.6, 0.6, 0.6), strict=True):
        (tmp_path / point.name).mkdir()
        append_rows(tmp_path / point.name / "metrics.jsonl", [{"step": n, "reward": reward} for n in range(1, steps + 1)])
    states = {point.name: "finished" for point in points} | {"run_seed-4": "stopped"}
    last = sweep.summary_text(sweep.summary(points, tmp_path, states, "reward")).splitlines()[-1]
    assert last == "best: a tie in reward: run_seed-2, run_seed-3"


def test_points_without_the_measure_have_no_best(tmp_path, base):
    """For example where nothing could be graded."""
    points = grid(base, "SEED=1,2")
    for point in points:
        (tmp_path / point.name).mkdir()
        append_rows(tmp_path / point.name / "metrics.jsonl", [{"step": n, "reward": None} for n in range(1, 16)])
    found = sweep.summary(points, tmp_path, {point.name: "finished" for point in points}, "reward")
    assert sweep.summary_text(found).endswith("best: unknown; no finished point has a reward")


@pytest.mark.slow
def test_two_points_on_the_small_model(tmp_path, root):
    """The real command trains both, a second call does nothing, and eval_runs.py evaluates the runs."""
    data = tmp_path / "gsm8k"
    data.mkdir()
    for split in ("train", "test"):
        rows = [{"question": f"{split}: what is {i} + {i}?", "answer": f"#### {2 * i}"} for i in range(4)]
        (data / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "small.yaml").write_text(
        f"model: {{model: tiny}}\ndata: {{tasks: gsm8k, tasks_file: {data}}}\ngeneration: {{group: 2, max_new_tokens: 8}}\n"
        "trainer: {steps: 2, tasks_per_step: 2}\nrun: {save_every: 1, keep_every: 1}\n" + WEIGHTED)
    def start(*arguments):
        return subprocess.run([sys.executable, *map(str, arguments)], cwd=tmp_path, capture_output=True, text=True, timeout=600,
                              env=os.environ)
    command = (root / "scripts/sweep.py", "small.yaml", "--out", "out", "--set", "COMBINE_KWARGS.length_penalty_lambda=0.25,1")
    done = start(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "out/summary.json").read_text())["by"] == "pass_rate"
    assert start(*command).stderr.count("already finished") == 2
    done = start(root / "eval_runs.py", "out", "--base")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "out/eval/summary.csv").read_text().splitlines()))
    assert [(row["run"], row["step"]) for row in rows] == [("base", "0")] + [
        (f"run_length_penalty_lambda-{value}", step) for value in ("0.25", "1") for step in ("1", "2")]
    assert "length_penalty_lambda\": 0.25" in rows[1]["settings"]
