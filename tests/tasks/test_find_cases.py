"""scripts/find_cases.py: wrong programs that get through, and the inputs that would stop them."""

import json
import subprocess
import sys

import pytest

PROGRAMS = {    # source -> what is printed of it; None: it fails under every seed
    "def remove_vowels(s):\n    return ''.join(c for c in s if c.lower() not in 'aeiou' and c != 'ß')": "fails on 'ß'",
    "def remove_vowels(s):\n    return s": None,
    "def remove_vowels(s):\n    return ''.join(c for c in s if c not in 'aeiouAEIOU')": "as right as the reference on 40 other",
}


def find(root, tmp_path, text, *flags):
    file = tmp_path / "wrong.jsonl"
    file.write_text(text, encoding="utf-8")
    return subprocess.run([sys.executable, root / "scripts" / "find_cases.py", file, *flags], text=True, capture_output=True,
                          cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("source, expected", PROGRAMS.items())
def test_a_program_fails_or_an_input_is_looked_for(root, tmp_path, source, expected):
    """What passes is printed with the smallest input on which it fails, and makes the exit code 1."""
    inputs = "3000" if expected and "fails" in expected else "40"
    done = find(root, tmp_path, json.dumps({"task": "remove_vowels", "source": source}) + "\n\n", "--seeds", "3",
                f"--inputs={inputs}")

    assert done.returncode == (expected is not None), done.stderr
    assert (expected or "1 programs, 1 fail under each of 3 seeds") in done.stdout
    assert (source.split("\n")[1] in done.stdout) == (expected is not None)


@pytest.mark.parametrize("text, flags, said", [
    ('{"task": "gdc", "source": ""}\n{"task": "gcd"}', (),
     "line 1: no task is called gdc; line 2: no object with task and source"),
    ("\n", (), "it is empty"), ("", ("--seeds", "0"), "--seeds 0: give a whole number from 1 to 100000"),
    ("", ("more",), "expected FILE, got 2 arguments")])
def test_what_cannot_be_used_is_named(root, tmp_path, text, flags, said):
    """All bad rows at once, with exit code 2."""
    done = find(root, tmp_path, text, *flags)

    assert done.returncode == 2 and said in done.stderr


def test_tasks_without_a_generator_are_refused(root, tmp_path, monkeypatch):
    """HumanEval's cases are those of its tests, so there is nothing to draw; a byte order mark is no problem."""
    problem = {"task_id": "Mine/0", "prompt": "def f(x: int) -> int:\n    \"\"\"Twice x.\"\"\"\n", "entry_point": "f",
               "canonical_solution": "    return 2 * x\n", "test": "def check(candidate):\n    assert candidate(2) == 4\n"}
    (tmp_path / "mine.jsonl").write_text(json.dumps(problem) + "\n")
    monkeypatch.setenv("TASKS_FILE", str(tmp_path / "mine.jsonl"))
    monkeypatch.setenv("TASKS", "humaneval")
    done = find(root, tmp_path, '\ufeff{"task": "Mine/0", "source": ""}')

    assert done.returncode == 2 and "TASKS=humaneval: these tasks draw no inputs" in done.stderr
