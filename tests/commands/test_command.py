"""What commands share: options, exit codes, and the lines at the start and the end of a run."""

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import eval_runs
import query
import run_probe
import train_grpo
from model_config import SHAPES
from rl import command
from rl.errors import InputError
from rl.models import pretrained
from rl.models.pretrained import resolve
from rl.run.log import RunLog, step_metrics
from rl.run.signals import Interrupted
from rl.settings import config
from rl.settings.declared import Settings
from rl.training import device, lora
from rl.training.device import memory_budget, return_freed_memory
from tests.run.test_log import group, sample

ROOT = Path(__file__).resolve().parents[2]


def ended_with(monkeypatch, main, *arguments, flags=("--dry-run",)):
    """The exit code of a command with this main()."""
    monkeypatch.setattr(sys, "argv", ["x.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        command.run(main, "what it does", flags)
    return ended.value.code


def raising(error):
    def main():
        raise error
    return main


@pytest.mark.parametrize("error, code", [(InputError("bad"), 2), (KeyboardInterrupt(), 130), (Interrupted(signal.SIGTERM), 143),
                                         (Interrupted(signal.SIGINT), 130)])
def test_what_ends_a_command_decides_its_exit_code(monkeypatch, error, code):
    """Bad input: 2, Ctrl-C: 130, SIGTERM: 143, also if the signal comes before there is anything to save."""
    assert ended_with(monkeypatch, raising(error)) == code
    assert ended_with(monkeypatch, lambda: 5) == 5


@pytest.mark.parametrize("argument, known", [("--task", True), ("--task=gcd", True), ("--list", True), ("--list=1", False),
                                             ("--tasks=gcd", False), ("plain", True)])
def test_only_known_options_are_taken(monkeypatch, argument, known):
    """An option that ends in "=" takes a value in either form, others take none; a misspelt one is refused."""
    assert ended_with(monkeypatch, lambda: 0, argument, flags=("--task=", "--list")) == (0 if known else 2)


def test_the_start_says_what_was_set(capsys):
    """Warnings first, then the settings that were set and the facts that are not blank."""
    loaded = config.load({"STEPS": "7", "STEPZ": "1"})
    command.announce(loaded, {"model": "tiny", "clip": ""})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("warning: STEPZ") and [line.strip() for line in lines[1:]] == ["set: STEPS=7", "model: tiny"]


@pytest.mark.parametrize("dry", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_fits_nowhere_is_warned_of(monkeypatch, capsys, dry):
    """At the start and in --dry-run: the memory needed and what helps; the smallest update is used."""
    for name, value in {"MODEL": "tiny", "MEMORY_GB": "0.001", "UPDATE_SAMPLES": "4", "MAX_NEW_TOKENS": "16"}.items():
        monkeypatch.setenv(name, value)
    loaded = config.load(os.environ)
    if dry:
        assert command.dry_run(loaded) == 0
    else:
        command.announce(command.with_memory(loaded, resolve("tiny").cfg, np.dtype("float32"), 256), {})
    (said,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]
    assert re.fullmatch(r"warning: memory may run out: with REMAT=full and UPDATE_SAMPLES=4, the smallest there is; planned "
                        r"\d+\.\d MB exceeds 1\.0 MB, MEMORY_GB; leave UPDATE_SAMPLES out, or lower MAX_NEW_TOKENS.*", said)


@pytest.mark.parametrize("layers, words", [(0, "trained on Qwen/Other-Model, .* MODEL=tiny"),
                                           (1, r"layers.\d.* has no place in this model.*MODEL=Qwen/Other-Model")])
@pytest.mark.parametrize("main, arguments", [(train_grpo, ()), (train_grpo, ("--dry-run",)), (run_probe, ()),
                                             (query, ("--task", "gcd")), (eval_runs, ("--zero-shot", "answers.jsonl"))])
def test_an_adapter_of_another_model_is_refused(tmp_path, monkeypatch, main, arguments, layers, words):
    """By every command, with equal shapes or not, before weights are read or anything is written."""
    cfg = resolve("tiny").cfg
    other = replace(cfg, num_hidden_layers=cfg.num_hidden_layers + layers)
    lora.save_peft(tmp_path, lora.init(jax.random.key(0), other, 2, 4.0), "Qwen/Other-Model")
    before = sorted(tmp_path.iterdir())
    answered = {"TASKS": "gsm8k", "TASKS_FILE": "/nowhere", "COMBINE": "additive"} if main is eval_runs else {}
    for name, value in {"MODEL": "tiny", "LORA": str(tmp_path), "OUT": str(tmp_path / "out"), **answered}.items():
        if not (main is eval_runs and name == "OUT"):
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(pretrained, "load", lambda *_: pytest.fail("the weights were read"))
    monkeypatch.setattr(sys, "argv", ["x.py", *arguments])
    with pytest.raises(lora.AdapterError, match=words):
        main.main()
    assert sorted(tmp_path.iterdir()) == before


def test_auto_is_decided_once_and_recorded(tmp_path, capsys):
    """What is left to MEMORY_GB is decided and recorded in config.yaml, so resuming changes nothing."""
    def decided(**environ):
        return command.with_memory(config.load(environ), SHAPES["0.5B"], np.dtype("float32"), 256)

    def chosen(loaded):
        return loaded.settings.model.remat, loaded.settings.model.update_samples

    small, large = decided(MEMORY_GB="0.5"), decided(MEMORY_GB="64")
    assert (chosen(small), chosen(large)) == (("full", 1), ("none", 8))
    assert "500.0 MB, MEMORY_GB" in small.origins["remat"] and "MEMORY_GB" in small.origins["update_samples"]
    assert small.origins["remat"].startswith("auto: the smallest there is") and not large.warnings
    assert large.origins["remat"].startswith("auto: the quickest that fits 64")
    assert command.memory_facts(small)["backward pass"].startswith("of 1 samples of a group at a time (auto")
    assert command.memory_facts(large)["backward pass"].startswith("of whole groups at a time (auto")
    assert chosen(decided(MEMORY_GB="64", REMAT="full")) == ("full", 8), "what was asked for stays"
    assert chosen(decided(MEMORY_GB="64", UPDATE_SAMPLES="2")) == ("none", 2)
    command.announce(small, {})
    said = capsys.readouterr().out.split("set: ")[1]
    assert "REMAT" not in said and "UPDATE_SAMPLES" not in said, "nobody set it"
    (tmp_path / "config.yaml").write_text(config.dump(small.settings))
    assert chosen(decided(RESUME=str(tmp_path))) == ("full", 1)
    assert command.memory_facts(decided(RESUME=str(tmp_path)))["remat"] == "full (not recorded)"
    (tmp_path / "config.yaml").write_text(config.dump(small.settings, None, config.provenance(small)))
    assert command.memory_facts(decided(RESUME=str(tmp_path))) == command.memory_facts(small), "the reason of the start"


def test_the_machine_is_asked_where_nothing_is_set(monkeypatch):
    """Half of the machine's memory, or of the container's limit if that is less."""
    budget, whose = memory_budget(0)
    assert 0 < budget <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2 and whose.startswith("half")
    monkeypatch.setattr(device.Path, "exists", lambda path: True)
    monkeypatch.setattr(device.Path, "read_text", lambda path: "1000000\n")
    assert memory_budget(0)[0] == 500_000 and memory_budget(2)[0] == 2e9


def test_the_end_shows_the_signs(tmp_path, capsys):
    """Every run ends with the signs that its mean reward hides."""
    log = RunLog(tmp_path)
    log.completions(1, [group(sample(), sample())])
    log.step(1, step_metrics([group(sample(), sample())]))
    command.report_end(tmp_path, 600, Settings())
    out = capsys.readouterr().out
    assert "steps without gradient: 1 of 1" in out and "tasks lost: 0" in out
    assert out.splitlines()[-1].startswith("done: 600 steps")


HOLES = """
import sys
import numpy as np
from rl.training.device import return_freed_memory
if sys.argv[1] == "set":
    assert return_freed_memory()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
np.ones(30 << 17)    # 30 MB, freed at once: from now on glibc takes what is smaller from its heap
kept = [np.ones(2 << 17) for _ in range(200)]    # 400 MB in arrays of 2 MB
before = resident()
kept = kept[::2]
print(before - resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_freed_memory_goes_back_to_the_system(monkeypatch):
    """Half of 400 MB, freed in scattered pieces: returned at once if so set, otherwise kept as holes."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    run = lambda how, **more: float(subprocess.run([sys.executable, "-c", HOLES, how], env=env | more, cwd=ROOT, text=True,  # noqa: E731
                                                   capture_output=True, check=True).stdout)
    assert run("set") > 150 and run("not") < 50
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "33554432")
    assert not return_freed_memory(), "glibc's own variable has priority"
