"""scripts/quickstart.sh for real, on models/tiny: a clone in a folder with blanks, few steps, started from elsewhere."""

import hashlib
import os
import shutil
import subprocess
import sys

import pytest

from rl.run.files import read_rows

TRACKED = ("rl", "tasks", "scripts", "models", "requirements.txt", "requirements-dev.txt", "requirements-extra.txt",
           "train_grpo.py", "run_probe.py", "query.py", "qwen2_jax.py", "attention.py", "model_config.py")
SHORT = {"STEPS": "2", "TASKS_PER_STEP": "2", "GROUP": "4", "N_TASKS": "4", "HELDOUT_TASKS": "2", "N_SAMPLES": "4"}


@pytest.fixture
def clone(root, tmp_path):
    """The repo's files in a folder of another name, with this interpreter's environment as one that is already installed."""
    folder = tmp_path / "my clone"
    for name in TRACKED:
        copy = shutil.copytree if (root / name).is_dir() else shutil.copy
        folder.mkdir(exist_ok=True)
        copy(root / name, folder / name)
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / ".venv" / "bin" / "python").chmod(0o755)
    sums = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in TRACKED if "requirements" in name]
    (folder / ".venv" / "requirements.sha256").write_text("".join(sums))
    return folder


def quickstart(clone, *arguments, **more):
    return subprocess.run([clone / "scripts" / "quickstart.sh", *arguments], cwd=clone.parent, env=os.environ | SHORT | more,
                          text=True, timeout=900, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.mark.slow
def test_quickstart_trains_compares_and_reports(clone):
    """One command: probes, steps, comparison, page, and where to look next; once more, it trains nothing again."""
    done = quickstart(clone)
    out = clone / "runs" / "quickstart"
    assert done.returncode == 0, done.stdout
    assert [row["step"] for row in read_rows(out / "train" / "metrics.jsonl")] == [1, 2]
    assert "pass rate" in done.stdout and str(out / "report.html") in done.stdout and "query.py --task gcd" in done.stdout
    assert len(done.stdout.splitlines()) < 90 and "passed  reward" not in done.stdout, done.stdout
    assert done.stdout.count("pass rate by task") == 0 and str(out / "log.txt") in done.stdout
    assert "passed  reward" in (out / "log.txt").read_text(), "the tables of tasks are kept"
    page = (out / "report.html").read_text()
    assert "<svg" in page and "http://" not in page.replace("http://www.w3.org", "") and "https://" not in page

    metrics = (out / "train" / "metrics.jsonl").stat().st_mtime_ns
    again = quickstart(clone)
    assert again.returncode == 0 and "training: finished" in again.stdout and "exists" in again.stdout, again.stdout
    assert (out / "train" / "metrics.jsonl").stat().st_mtime_ns == metrics


def test_quickstart_hides_no_error(clone):
    """Settings that make no sense: said here although the stages are quiet, with the exit code of the stage."""
    done = quickstart(clone, TEMPERATURE="0")
    assert done.returncode == 2 and "TEMPERATURE=0" in done.stdout and "check of the settings" in done.stdout, done.stdout


def test_quickstart_explains_itself(root):
    """--help is the comment at its top; an argument that it does not know ends with 2."""
    script = root / "scripts" / "quickstart.sh"
    told = subprocess.run([script, "--help"], text=True, capture_output=True)
    refused = subprocess.run([script, "--fast"], text=True, capture_output=True)

    assert told.returncode == 0 and told.stdout.startswith("From a fresh clone")
    assert refused.returncode == 2 and "unknown argument --fast" in refused.stderr
