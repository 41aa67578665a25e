"""The files in configs/: each is valid as it stands, and trains for two steps on models/tiny."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rl.rewards.setup import checked_combiner
from rl.run.files import read_rows
from rl.settings import config
from rl.settings.declared import NAMES, Settings

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "configs").glob("*.yaml"))
SMALL = {"MODEL": "tiny", "STEPS": "2", "TASKS_PER_STEP": "2", "GROUP": "4", "MAX_NEW_TOKENS": "24", "EVAL_EVERY": "0",
         "OVERLONG_TOKENS": "8", "MAX_SAMPLED_GROUPS": "3", "EVAL_TASKS": "0", "EVAL_SAMPLES": "2"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_file_is_read_whole(path):
    """No unknown key, no setting without effect, and rewards that exist."""
    loaded = config.load({"CONFIG": str(path)}, training=True)

    assert not loaded.warnings and checked_combiner(loaded.settings).reward_names()


def test_the_reference_is_the_default_on_all_tasks():
    """The reference run's file repeats the defaults, so that a change of one shows; the split differs, and what style pays
    for."""
    found, default = config.load({"CONFIG": str(ROOT / "configs" / "reference.yaml")}).settings, Settings()
    assert found == replace(default, data=replace(default.data, split="all"),
                            reward=replace(default.reward, style_depth="written"))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Small files in the layouts of GSM8K and MATH."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "gsm8k").mkdir()
    (folder / "math").mkdir()
    for split in ("train", "test"):
        rows = [{"question": f"{split}: what is {i} + {i}?", "answer": f"{i} + {i} = {2 * i}\n#### {2 * i}"} for i in range(8)]
        (folder / "gsm8k" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"problem": f"Find {i} times {level}.", "level": f"Level {level}", "solution": f"\\boxed{{{i * level}}}"}
            for level in (1, 2, 3) for i in range(6)]
    (folder / "math" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_file_trains_two_steps(path, data, tmp_path):
    """The real command at a small size: two steps are logged, and its config.yaml gives the same objective."""
    env = {name: value for name, value in os.environ.items() if name.lower() not in NAMES} | SMALL
    loaded = config.load({"CONFIG": str(path)}).settings
    if loaded.data.tasks not in ("lc_easy", "reasoning_gym"):
        env["TASKS_FILE"] = str(data / "gsm8k")
    if "math_path" in loaded.data.provider_kwargs:
        env["PROVIDER_KWARGS"] = json.dumps({"math_path": str(data / "math"), "levels": [1, 2, 3], "stage_steps": 1})
    for name, needs in (("OVERLONG_TOKENS", "overlong: penalise"), ("MAX_SAMPLED_GROUPS", "dynamic_sampling: true"),
                        ("EVAL_TASKS", "eval_tasks"), ("EVAL_SAMPLES", "eval_samples")):
        if needs not in path.read_text():
            env.pop(name)
    env |= {"CONFIG": str(path), "OUT": str(tmp_path / "run")}
    done = subprocess.run([sys.executable, "train_grpo.py"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)

    assert done.returncode == 0, done.stdout + done.stderr
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2]
    written = config.load({"CONFIG": str(tmp_path / "run" / "config.yaml")}).settings
    assert written.objective == loaded.objective or path.stem == "dapo"
