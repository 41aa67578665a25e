"""scripts/bench.py: the arithmetic behind its shares, its arguments, and one whole small run."""

import os
import re
import subprocess
import sys

import pytest

from qwen2_jax import SHAPES
from rl import config
from rl.loop import Prompt
from rl.measuring.op_times import HOST, HOW, KINDS, LOSS, SAMPLING, UNKNOWN
from scripts import bench
from tests import small_model

SMALL = {"MODEL": "tiny", "TASKS_PER_STEP": "2", "GROUP": "2", "MAX_NEW_TOKENS": "8"}


def run(root, *arguments, **environ):
    return subprocess.run([sys.executable, root / "scripts" / "bench.py", *arguments], env=os.environ | SMALL | environ,
                          text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=300)


def test_the_work_of_a_token_is_what_the_hand_says():
    """A multiplication and an addition for each weight of the 0.5B's projections, with rank 16 of the adapter too; the head."""
    layers = 24 * (896 * 896 * 2 + 896 * 128 * 2 + 3 * 896 * 4864)
    assert bench.layer_flop(SHAPES["0.5B"], 0) == 2 * layers == 715_653_120
    assert bench.layer_flop(SHAPES["0.5B"], 16) == 2 * (layers + 8_798_208)
    assert bench.head_flop(SHAPES["0.5B"]) == 2 * 151_936 * 896


@pytest.mark.parametrize("arguments, words", [
    (["--parts", "sampler,magic"], "unknown part 'magic'"), (["--rounds", "0"], "--rounds 0"),
    (["--workload", "nowhere.py"], "no such file"), (["--fast"], "unrecognized")])
def test_wrong_arguments_are_refused(capsys, arguments, words):
    """One message, exit code 2, before any model."""
    with pytest.raises(SystemExit) as ended:
        bench.main(arguments)
    said = capsys.readouterr()
    assert ended.value.code == 2 and words in said.err and not said.out


def test_wrong_settings_are_refused(root):
    """The settings are those of training, and so are their errors."""
    done = run(root, GROUP="1")
    assert done.returncode == 2 and "GROUP" in done.stderr


def test_an_update_is_cut_as_the_settings_say(monkeypatch):
    """UPDATE_SAMPLES=3 of groups of 8: three parts a prompt, and the same tokens in all."""
    seen = []
    monkeypatch.setattr(bench.grpo, "update", lambda params, state, groups, *rest: seen.append(groups))
    prompts = [Prompt(None, [], small_model.prompt(5, seed=seed)) for seed in (0, 1)]
    for at_once, parts in (("0", [8, 8]), ("3", [3, 3, 2, 3, 3, 2])):
        settings = config.load({"MAX_NEW_TOKENS": "6", "GROUP": "8", "UPDATE_SAMPLES": at_once}).settings
        bench.update_work(bench.Bench(small_model.model(), prompts, settings, 1.0))()
        assert [group.n_samples for group in seen[-1]] == parts
    assert sum(group.n_tokens for group in seen[0]) == sum(group.n_tokens for group in seen[1]) == 2 * 8 * 6


@pytest.mark.slow
def test_a_small_run_measures_every_part(root, tmp_path):
    """Each part's line, the workload's shape, a command between two rounds; one that fails ends it with 2."""
    (tmp_path / "work.py").write_text('P, G, N = 2, 3, 4\nSYSTEM = "Be brief."\nUSER = "Add."\n')
    done = run(root, "--workload", str(tmp_path / "work.py"), "--rounds", "2", "--beside", "echo the other")
    assert done.returncode == 0, done.stderr
    assert "work: 2 prompts of" in done.stdout and "x 3 samples of 4" in done.stdout
    lines = [line.split(":")[0].strip() for line in done.stdout.splitlines()]
    parts = ["prompts", "sampler", "update", "step", "grading"]
    assert lines == ["machine", "load", "work", *parts, "the other", *parts]
    assert run(root, "--parts", "prompts", "--beside", "false").returncode == 2


@pytest.mark.slow
def test_a_profile_accounts_for_all_the_time(root):
    """Sampling and an update, each with a line a kind of which the shares are the whole, little of it unknown, and the rules."""
    done = run(root, "--parts", "profile", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    _, sampler, update = done.stdout.split("  profile: ")
    assert "(untraced" in sampler and update.endswith(HOW + "\n")
    for table, absent in ((sampler, LOSS), (update, SAMPLING)):
        share = {kind: float(percent) for percent, kind in re.findall(r" s +(-?[\d.]+)%  (.*)", table)}
        assert list(share) == list(KINDS) and sum(share.values()) == pytest.approx(100, abs=1)
        ours = 100 - share[HOST]
        assert share[absent] == 0 and share[UNKNOWN] < 0.1 * ours and share[HOST] >= 0
