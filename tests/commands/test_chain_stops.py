"""scripts/run_experiment.sh with the real commands on models/tiny: stopped in every stage, it ends as if it had not been."""

import json
import os
import random
import re
import signal
import subprocess
import time
from contextlib import suppress

import pytest

from rl.run.files import read_rows
from tests.commands.test_chain import PROBES, until
from tests.commands.test_train import assert_same_run

NAMES = ["check of the settings", "baseline probe, train", "baseline probe, heldout", "training", "final probe, train",
         "final probe, heldout", "comparison, train", "comparison, heldout", "report", "samples"]
LAST = 18
# Tasks with short answers, some of them right: few shapes are compiled, and samples differ in reward.
SETTINGS = {"STEPS": str(LAST), "TASKS_PER_STEP": "1", "GROUP": "3", "TASK_NAMES": "factorial,capitalize_words",
            "HELDOUT_TASKS": "2", "N_SAMPLES": "3", "MAX_NEW_TOKENS": "40", "LORA_RANK": "4", "LEARNING_RATE": "1e-3",
            "WARMUP_STEPS": "0", "SANDBOX_WORKERS": "1", "SAVE_EVERY": "5", "SEED": "7", "REMAT": "full"}


def real_chain(root, out, said=subprocess.PIPE):
    """The script with the real commands on models/tiny, in a session of its own; compiled programs are shared between starts."""
    env = os.environ | SETTINGS | {"MODEL": str(root / "models" / "tiny"), "OUT": str(out),
                                   "JAX_COMPILATION_CACHE_DIR": str(out.parent / "compiled")}
    return subprocess.Popen([root / "scripts" / "run_experiment.sh"], env=env, cwd=out.parent, text=True, start_new_session=True,
                            stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)


def stage_of(line):
    """The stage that begins with this line of the script; None for any other line."""
    return next((name for name in NAMES if line.startswith(f"run_experiment.sh: {name}, 2")), None)


def read_until(chain, stage):
    """What the chain says up to the line that begins the stage, None being its end."""
    said = []
    for line in chain.stdout:
        said.append(line)
        if stage and stage_of(line) == stage:
            return said
    assert stage is None, "".join(said)
    return said


def stop_all(chain):
    """kill -9 to every process of the chain's session, the script first, as when a machine loses its power."""
    chain.kill()
    for path in os.listdir("/proc"):
        if path.isdigit() and session_of(path) == chain.pid:
            with suppress(ProcessLookupError):    # it may have ended since
                os.kill(int(path), signal.SIGKILL)


def session_of(pid):
    """The session that a process belongs to; None where there is none any more."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[3])
    except OSError:
        return None


def interrupted(root, out, stage, signum, ready):
    """Start the chain, wait until it is in the stage and `ready()`, stop it: by SIGTERM to the script, or all by SIGKILL."""
    chain = real_chain(root, out)
    said = read_until(chain, stage)
    until(lambda: chain.poll() is not None or ready(), 600)
    chain.terminate() if signum == signal.SIGTERM else stop_all(chain)
    rest = chain.communicate(timeout=300)[0].splitlines(keepends=True)
    said = "".join(said + rest)
    assert chain.returncode == (143 if signum == signal.SIGTERM else -9), said
    assert not any(map(stage_of, rest)), f"it was past {stage}: {said}"
    assert signum == signal.SIGKILL or f"stopped in stage '{stage}' by SIGTERM" in said
    if signum == signal.SIGKILL:    # after SIGTERM nothing may be left that keeps the next start out
        until(lambda: subprocess.run(["flock", "-n", out / "lock", "true"]).returncode == 0)


def later(seconds):
    """A condition that holds so many seconds after it was first asked for."""
    first = []

    def condition():
        first.append(time.monotonic())
        return first[-1] >= first[0] + seconds
    return condition


def results(out):
    """What a chain has found out, but for clock, place and measured times: both comparisons, and the probes with all their
    samples."""
    read = lambda name: re.sub(r"-?[\d.]+ s (CPU|blocked|wall)", r"0 s \1",  # noqa: E731
                               (out / name).read_text().replace(str(out), "OUT"))
    docs = [json.loads(read(name)) for name in sorted(PROBES)]
    return {name: read(name) for name in ("comparison-train.txt", "comparison-heldout.txt")} | {
        doc["settings"]["out"]: {key: value for key, value in doc.items() if key not in ("time", "seconds")} for doc in docs}


def stop_everywhere(root, out, dice):
    """Stop the chain in every stage, start it again each time, and let it end."""
    steps = lambda n: lambda: len(read_rows(out / "train" / "metrics.jsonl")) >= n  # noqa: E731
    for stage in NAMES:
        moments = [dice.uniform(0, 1.0 if "probe" in stage else 0.1) for _ in range(2)]
        stops = [(signal.SIGKILL, later(moments[0])), (signal.SIGTERM, later(moments[1]))]
        if stage == "training":    # 7 and 13: between checkpoints
            stops = [(signal.SIGKILL, later(0.5)), (signal.SIGKILL, steps(7)), (signal.SIGTERM, steps(13))]
        for signum, ready in stops:
            interrupted(root, out, stage, signum, ready)
    chain = real_chain(root, out)
    said = read_until(chain, None)
    assert chain.wait(timeout=60) == 0, "".join(said)


@pytest.mark.slow
def test_a_real_chain_through_stops_in_every_stage(root, tmp_path):
    """models/tiny: killed with all its processes, then stopped by SIGTERM, in each stage in turn, in training at its start and
    between checkpoints; started again each time it ends with the adapter, metrics and tables of an undisturbed one."""
    dice, whole, out = random.Random(0), tmp_path / "whole", tmp_path / "the chain"
    with open(tmp_path / "said", "w") as said:
        undisturbed = real_chain(root, whole, said)    # beside the other one, which has nothing to do with it
    try:
        stop_everywhere(root, out, dice)
        undisturbed.wait(timeout=600)
    finally:
        stop_all(undisturbed)
    said = (tmp_path / "said").read_text()
    assert undisturbed.returncode == 0, said
    assert [stage for stage in map(stage_of, said.splitlines()) if stage] == NAMES
    assert_same_run(whole / "train", out / "train", LAST)
    want, found = results(whole), results(out)
    assert want.keys() == found.keys() and [name for name in want if want[name] != found[name]] == []
    assert any(row["grad_norm"] > 0 for row in read_rows(out / "train" / "metrics.jsonl")), "nothing was learnt from"
    adapter = f"train/checkpoints/step_{LAST:05d}"
    assert (out / "adapter").read_text().strip() == adapter and (out / adapter / "adapter_model.safetensors").exists()
    names = lambda folder: {path.name for path in folder.iterdir() if "without-checkpoint" not in path.name}  # noqa: E731
    assert names(whole) == names(out), "nothing half-written is left"
    page = (out / "SAMPLES.md").read_text()
    assert f"{LAST} steps; " in page and "baseline-heldout.json" in page and "steps without gradient" in page
