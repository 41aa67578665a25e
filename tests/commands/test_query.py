"""query.py on a random checkpoint: both answers, the numbers of a probe, and what it refuses."""

import os
import re
import subprocess
import sys

import jax
import pytest

import query
import run_probe
from rl import command
from rl.evaluation.probe_report import groups_from, read
from rl.models import pretrained
from rl.pages.samples import safe_code
from rl.rewards.base import GradedGroup
from rl.training import lora
from tests.evaluation.test_probe import sample

FEW = {"N_SAMPLES": "3", "MAX_NEW_TOKENS": "8", "DECODE_BLOCK": "4", "SANDBOX_WORKERS": "1"}


@pytest.fixture(scope="module")
def adapter(tiny_model, tmp_path_factory):
    """An adapter of the tiny checkpoint that changes every projection."""
    new = lora.init(jax.random.key(1), pretrained.resolve(str(tiny_model)).cfg, 2, 8.0)
    moved = jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(jax.random.key(leaf.size), leaf.shape), new["layers"])
    folder = tmp_path_factory.mktemp("adapter")
    lora.save_peft(folder, new | {"layers": moved}, "tiny")
    return folder


@pytest.fixture
def ask(monkeypatch, capfd, tiny_model):
    """Run a command in this process: (exit code, stdout, stderr)."""
    def run(module, *arguments, flags=("--task=", "--list"), **environ):
        monkeypatch.setattr(sys, "argv", ["query.py", *map(str, arguments)])
        with monkeypatch.context() as patch:
            for name, value in ({"MODEL": tiny_model} | FEW | environ).items():
                patch.setenv(name, str(value))
            with pytest.raises(SystemExit) as ended:
                command.run(module.main, module.__doc__, flags)
        return ended.value.code, *capfd.readouterr()
    return run


def test_a_task_is_answered_by_base_and_adapter(root, tiny_model, adapter):
    """The command itself: the prompt, then a sample, its grade and the means over all, for both; stdout holds nothing else."""
    done = subprocess.run([sys.executable, root / "query.py", "--task", "gcd"], capture_output=True, text=True, timeout=600,
                          env=os.environ | FEW | {"MODEL": str(tiny_model), "LORA": str(adapter)})
    assert done.returncode == 0, done.stderr

    prompt, base, other = done.stdout.split("\n==== ")
    assert prompt.startswith("[system]\n") and "def gcd(a: int, b: int) -> int:" in prompt and "gcd(12, 18) == 6" in prompt
    assert base.startswith(f"base, {tiny_model}\n") and other.startswith(f"adapter, {adapter}\n")
    for side in (base, other):
        assert re.search(r"^the first of 3 samples, \w+: reward \d\.\d{3}, style \d\.\d{3}, depth \d", side, re.MULTILINE)
        assert re.search(r"^all of them: pass rate \d\.\d{3}, mean reward \d\.\d{3}, style if correct", side, re.MULTILINE)
    assert base.splitlines()[1] != other.splitlines()[1]
    assert "sandbox: " in done.stderr and "float32" in done.stderr


def test_the_samples_are_those_that_a_probe_counts(ask, tmp_path):
    """Same prompt, random numbers and cases as run_probe.py: the program shown is the first that it wrote down."""
    code, out, err = ask(query, "--task=gcd")
    assert code == 0 and "adapter" not in out, err
    ask(run_probe, flags=(), OUT=tmp_path / "probe.json", TASK_NAMES="gcd", SPLIT="all")

    [group] = groups_from(read(tmp_path / "probe.json"))
    assert f"\n{safe_code(group.samples[0].code)}\n\nthe first of 3" in out
    assert group.samples[0].verdict in out


def test_free_text_is_answered_without_a_grade(ask, adapter, monkeypatch):
    """Both answers, as written, also from several words; no sandbox is needed, and a task-like name is no mistake for one."""
    monkeypatch.setattr(query, "open_judge", None)
    code, out, err = ask(query, "Write a", "function.", LORA=adapter)

    assert code == 0 and "[user]\nWrite a function.\n" in out, err
    first, second = (part.splitlines() for part in out.split("\n==== ")[1:])
    assert first[0].startswith("base") and second[0].startswith("adapter") and first[1] != second[1]
    assert first[-1] == "8 tokens (cut at MAX_NEW_TOKENS)" and "reward" not in out
    assert ask(query, "Write a function.")[1].split("\n==== ")[1].splitlines()[1:] == first[1:]


def test_list_names_every_task(ask):
    """One a line with its split, whatever SPLIT and N_TASKS say, and no model is looked for."""
    code, out, _ = ask(query, "--list", MODEL="nowhere", SPLIT="heldout", N_TASKS=3)
    rows = [line.split() for line in out.splitlines()]
    assert code == 0 and len(rows) == 104 and ["gcd", "train"] in rows
    assert sum(split == "heldout" for _, split in rows) == 24


@pytest.mark.parametrize("arguments, environ, words", [
    (["--task", "gdc"], {}, "unknown task (did you mean gcd?)"),
    (["--task="], {}, "unknown task; --list shows"),
    (["gcd"], {}, "--task gcd"),
    ([], {}, "give one of"),
    ([" "], {}, "give one of"),
    (["--list", "--task", "gcd"], {}, "give one of"),
    (["--task", "gcd", "more"], {}, "give one of"),
    (["--tsak", "gcd"], {}, "unknown option --tsak"),
    (["--task", "gcd"], {"MODEL": "nowhere"}, "MODEL=nowhere"),
    (["--task", "gcd"], {"LORA": "nowhere"}, "nowhere"),
    (["--task", "gcd"], {"MAX_PROMPT_TOKENS": "9"}, "MAX_PROMPT_TOKENS=9"),
    (["x" * 99], {"MAX_PROMPT_TOKENS": "9"}, "MAX_PROMPT_TOKENS=9"),
    (["--list"], {"TASKS": "none"}, "TASKS=none"),
], ids=str)
def test_what_cannot_be_answered_is_one_line(ask, arguments, environ, words):
    """Exit code 2 and the way on, before any weights are read."""
    code, out, err = ask(query, *arguments, **environ)
    assert code == 2 and words in err and "Traceback" not in err and not out


def test_the_numbers_by_hand():
    """The first sample is shown even where another is better; style and depth are means over the correct ones."""
    group = GradedGroup("t", [], [sample(False, detail="case 1\x1b[2J"), sample(style=0.2, depth=1), sample(style=0.6, depth=4),
                            sample(failed=True)])
    text = query.graded_text(group, 1)

    assert "the first of 4 samples, wrong_answer: reward 0.000" in text and "case 1\\x1b[2J" in text and "\x1b" not in text
    assert "pass rate 0.667, mean reward 0.800, style if correct 0.400, depth if correct 2.500; 1 passes fail" in text
    assert "style if correct -" in query.graded_text(GradedGroup("t", [], [sample(False)]), 0)
    words = sample()._replace(style=None, depth=None, calls=None, pure=None, idle=None)
    assert "mean reward 1.200; 0 passes" in query.graded_text(GradedGroup("t", [], [words]), 0), "answers in words have no style"
