"""benchmarks/bench.py: the operations behind its shares, its arguments, and one small run."""

import os
import re
import subprocess
import sys

import pytest

from benchmarks import bench
from benchmarks.flops import head_flop, layer_flop, prompts_flop, sampler_flop
from benchmarks.op_times import HOST, HOW, KINDS, LOSS, SAMPLING, UNKNOWN
from model_config import SHAPES
from rl.errors import InputError
from rl.settings import config
from rl.tasks import Prompt
from tests import small_model

SMALL = {"MODEL": "tiny", "TASKS_PER_STEP": "2", "GROUP": "2", "MAX_NEW_TOKENS": "8"}


def run(root, *arguments, **environ):
    return subprocess.run([sys.executable, root / "benchmarks" / "bench.py", *arguments], env=os.environ | SMALL | environ,
                          text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=300)


def test_the_operations_of_a_token_are_those_by_hand():
    """Two for each weight of the 0.5B's projections, of a rank 16 adapter and of the head."""
    layers = 24 * (896 * 896 * 2 + 896 * 128 * 2 + 3 * 896 * 4864)
    assert layer_flop(SHAPES["0.5B"], 0) == 2 * layers == 715_653_120
    assert layer_flop(SHAPES["0.5B"], 16) == 2 * (layers + 8_798_208)
    assert head_flop(SHAPES["0.5B"]) == 2 * 151_936 * 896


def test_operations_of_prompts_and_sampling_by_hand():
    """Prompts: all tokens but the last, of the last layer only keys and values. Sampling adds every sampled token. With rank 4 on
    two projections."""
    cfg = small_model.CFG
    D, F, HC, KC = (cfg.hidden_size, cfg.intermediate_size, cfg.num_attention_heads * cfg.head_dim,
                    cfg.num_key_value_heads * cfg.head_dim)
    settings = config.load({"GROUP": "4", "MAX_NEW_TOKENS": "6", "LORA_RANK": "4", "LORA_TARGETS": "v_proj,o_proj"}).settings
    prompts = [Prompt(None, [], small_model.prompt(length)) for length in (5, 9)]
    work = bench.Bench(small_model.model(), prompts, settings, 1.0)
    keys_and_values = 2 * D * KC + 4 * (D + KC)
    a_layer = keys_and_values + 2 * D * HC + 4 * (HC + D) + 3 * D * F
    assert prompts_flop(work) == 2 * (4 + 8) * ((cfg.num_hidden_layers - 1) * a_layer + keys_and_values)
    sampled = 2 * 2 * 4 * 6 * (cfg.num_hidden_layers * a_layer + cfg.vocab_size * D)
    assert sampler_flop(work) == prompts_flop(work) + sampled


@pytest.fixture
def nothing_is_measured(monkeypatch):
    monkeypatch.setattr(bench, "machine_limit", lambda: pytest.fail("it started to measure"))


@pytest.mark.parametrize("arguments, words", [
    (["--parts", "sampler,magic"], "unknown part 'magic'"), (["--rounds", "0"], "--rounds 0"),
    (["--workload", "nowhere.py"], "no such file"), (["--fast"], "unrecognized"),
    (["--beside", "nosuchcmd x"], "'nosuchcmd x': no such command"), (["--beside", "echo 'x"], "No closing quotation"),
    (["--beside", ""], "no such command"), (["--rounds", "1", "--beside", "true"], "between two rounds, and --rounds is 1"),
    (["--grow", "--parts", "sampler"], "leave out --parts"),
    (["--grow", "--rounds", "2", "--beside", "true"], "leave out --rounds, --beside")])
@pytest.mark.usefixtures("nothing_is_measured")
def test_wrong_arguments_are_refused(capsys, arguments, words):
    """One message and exit code 2, before a model is loaded."""
    with pytest.raises(SystemExit) as ended:
        bench.main(arguments)
    said = capsys.readouterr()
    assert ended.value.code == 2 and words in said.err and not said.out


WORK = 'P, G, N = 2, 3, 4\nSYSTEM = "Be brief."\nUSER = "Add."\n'


@pytest.mark.parametrize("text, words", [
    (WORK.replace("SYSTEM", "SISTEM"), "SYSTEM missing"), ("P = 2\nSYSTEM = USER = 'a'\n", "G, N missing"),
    (WORK.replace("4", "'4'"), "N missing or of the wrong type"), (WORK + "def\n", "raised SyntaxError"),
    (WORK + "raise SystemExit(0)\n", r"raised SystemExit: 0 \(.*work.py, line 4\)"), (WORK.replace("3", "1"), "GROUP=1")])
@pytest.mark.usefixtures("nothing_is_measured")
def test_a_bad_workload_is_refused(tmp_path, text, words):
    """The error names the file and what is missing, of the wrong type, out of limits or raised; sys.exit(0) is an error too."""
    (tmp_path / "work.py").write_text(text)
    with pytest.raises(InputError, match=rf"--workload .*work.py(?s:.*){words}"):
        bench.main(["--workload", str(tmp_path / "work.py")])


@pytest.mark.parametrize("environ, arguments, words", [
    ({"TASKS": "gsm8k"}, ["--parts", "step"], "COMBINE=lisp pays for programs"),
    ({"TASKS": "gsm8k", "COMBINE": "additive", "TASKS_PER_STEP": "2"}, ["--parts", "grading"], "COMBINE=additive runs no pro"),
    ({"N_TASKS": "3", "TASKS_PER_STEP": "4"}, [], "4 tasks a step, but there are 3: lower TASKS_PER_STEP"),
    ({"N_TASKS": "7", "TASKS_PER_STEP": "2"}, ["--grow"], "8 tasks a step, but there are 7: --grow needs more")])
@pytest.mark.usefixtures("nothing_is_measured")
def test_unsuitable_tasks_are_refused(tmp_path, monkeypatch, environ, arguments, words):
    """Before anything is measured."""
    (tmp_path / "train.jsonl").write_text('{"question": "1 + 1?", "answer": "#### 2"}\n' * 2)
    for name, value in ({"TASKS_FILE": str(tmp_path)} if "TASKS" in environ else {}).items() | environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=words):
        bench.main(arguments)


def test_wrong_settings_are_refused(root):
    """Settings and their errors are those of training."""
    done = run(root, GROUP="1")
    assert done.returncode == 2 and "GROUP" in done.stderr


def test_an_update_is_split_as_the_settings_say(monkeypatch):
    """UPDATE_SAMPLES=3 splits groups of 8 in three parts with the same tokens in total."""
    seen = []
    monkeypatch.setattr(bench, "update", lambda params, state, groups, *rest: seen.append(groups))
    prompts = [Prompt(None, [], small_model.prompt(5, seed=seed)) for seed in (0, 1)]
    for at_once, parts in (("0", [8, 8]), ("3", [3, 3, 2, 3, 3, 2])):
        settings = config.load({"MAX_NEW_TOKENS": "6", "GROUP": "8", "UPDATE_SAMPLES": at_once}).settings
        bench.update_work(bench.Bench(small_model.model(), prompts, settings, 1.0))()
        assert [group.n_samples for group in seen[-1]] == parts
    assert sum(group.n_tokens for group in seen[0]) == sum(group.n_tokens for group in seen[1]) == 2 * 8 * 6


@pytest.mark.slow
def test_a_small_run_measures_every_part(root, tmp_path):
    """A line for each part, the workload's shape, a command between two rounds; exit code 2 if that fails."""
    (tmp_path / "work.py").write_text(WORK)
    done = run(root, "--workload", str(tmp_path / "work.py"), "--rounds", "2", "--beside", "echo the other")
    assert done.returncode == 0, done.stderr
    assert "work: 2 prompts of" in done.stdout and "x 3 samples of 4" in done.stdout
    lines = [line.split(":")[0].strip() for line in done.stdout.splitlines()]
    parts = ["prompts", "sampler", "update", "step", "grading"]
    assert lines == ["machine", "load", "work", *parts, "the other", *parts]
    shares = {line.split(":")[0].strip() for line in done.stdout.splitlines() if "% of the machine" in line}
    assert shares == {"prompts", "sampler", "update", "step"}
    failed = run(root, "--parts", "prompts", "--beside", "false")
    assert failed.returncode == 2 and failed.stderr == "bench.py: --beside false ended with 1; see above\n"
    (tmp_path / "train.jsonl").write_text('{"question": "1 + 1?", "answer": "#### 2"}\n' * 2)
    words = run(root, "--rounds", "1", TASKS="gsm8k", TASKS_FILE=str(tmp_path), COMBINE="additive", MAX_NEW_TOKENS="8")
    assert words.returncode == 0, words.stderr
    assert [line.split(":")[0].strip() for line in words.stdout.splitlines()] == ["machine", "load", "work", *parts[:-1]]


@pytest.mark.slow
def test_a_profile_accounts_for_all_the_time(root):
    """Sampling and an update each have a line for every kind; shares add up to 100 %, with little unknown; then the rules."""
    done = run(root, "--parts", "profile", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    _, sampler, update = done.stdout.split("  profile: ")
    assert "(untraced" in sampler and update.endswith(HOW + "\n")
    for table, absent in ((sampler, LOSS), (update, SAMPLING)):
        share = {kind: float(percent) for percent, kind in re.findall(r" s +(-?[\d.]+)%  (.*)", table)}
        assert list(share) == list(KINDS) and sum(share.values()) == pytest.approx(100, abs=1)
        ours = 100 - share[HOST]
        assert share[absent] == 0 and share[UNKNOWN] < 0.2 * ours and share[HOST] >= 0
