"""kill -9 at random moments, thirty times over one run that is resumed each time: what comes out is the unbroken run.

KILLS is another number of times; CI takes fewer."""

import os
import random
import time

import pytest

from rl.training import checkpoint
from tests.commands.test_train import assert_same_run, environ, start

KILLS, STEPS = int(os.environ.get("KILLS", "30")), 64
BEFORE_A_STEP = KILLS // 3    # of the kills: while it starts, loads, restores or compiles


def killed(env, lines, seconds):
    """Start the command, kill it so many seconds after that many step lines; the time from start to the first, if seen."""
    process, began, first = start(env), time.monotonic(), None
    said = []
    while lines:
        line = process.stdout.readline()
        assert line, "".join(said)
        said.append(line)
        if line.startswith("step "):
            first, lines = first or time.monotonic() - began, lines - 1
    time.sleep(seconds)
    process.kill()
    rest = process.communicate(timeout=120)[0]
    assert process.returncode == -9, "".join(said) + rest
    return first


@pytest.mark.slow
def test_kills_change_nothing(taught_model, tmp_path):
    """Adapter, moments, samples, pools and logs end bit for bit as in a run that nothing disturbed."""
    dice = random.Random(0)
    process = start(environ(taught_model, tmp_path / "whole", STEPS=str(STEPS), SAVE_EVERY="2"))
    began = time.monotonic()
    out = process.communicate(timeout=1800)[0]
    assert process.returncode == 0, out
    a_step = (time.monotonic() - began) / STEPS

    run, fresh = tmp_path / "run", environ(taught_model, tmp_path / "run", STEPS=str(STEPS), SAVE_EVERY="2")
    before = [True] * BEFORE_A_STEP + [False] * (KILLS - BEFORE_A_STEP)
    dice.shuffle(before)
    starting = killed(fresh, 1, 0)    # the first one, and how long a start takes
    for early in before[1:]:
        env = {"RESUME": str(run)}
        if early:
            killed(env, 0, dice.uniform(0, starting))
        else:
            killed(env, dice.choice((1, 2)), dice.uniform(0, a_step))
        assert checkpoint.steps(run), "a whole checkpoint is there after every kill"
    process = start({"RESUME": str(run)})
    out = process.communicate(timeout=1800)[0]
    assert process.returncode == 0, out

    assert_same_run(tmp_path / "whole", run, STEPS)
    assert not [*run.glob("**/*.tmp"), *run.glob("checkpoints/.*")], "nothing half-written is left"
