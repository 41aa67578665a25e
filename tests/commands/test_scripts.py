"""scripts/: the generated page of settings, and what the shell scripts say when something is missing."""
import os
import shutil
import subprocess

import pytest

from rl.settings.declared import LEAVES, RETIRED


@pytest.fixture(scope="module")
def render_docs(load_script):
    return load_script("render_docs")


def test_the_page_is_checked_written_and_then_fresh(render_docs, tmp_path, capsys):
    """--check fails on a missing or stale page without touching it; a run without it writes the page."""
    path = tmp_path / "SETTINGS.md"

    assert render_docs.main(["--check"], path) == 1 and not path.exists()
    path.write_text("old")
    assert render_docs.main(["--check"], path) == 1 and path.read_text() == "old"
    assert "SETTINGS.md is out of date; run python scripts/render_docs.py" in capsys.readouterr().err
    assert render_docs.main([], path) == 0 and path.read_text() == render_docs.page()
    assert render_docs.main(["--check"], path) == 0


def test_the_page_in_the_repo_is_fresh(render_docs):
    """What declared.py says is what a reader finds."""
    assert render_docs.main(["--check"]) == 0


def test_the_page_names_every_setting_and_alias(render_docs):
    """Nothing that can be set is undocumented, nor what could be set once."""
    page = render_docs.page()
    for setting in (*LEAVES.values(), *RETIRED.values()):
        assert f"| `{setting.name.upper()}` | `{setting.section}.{setting.name}` |" in page
        assert setting.help.replace("<", "&lt;") in page and all(f"`{alias}`" in page for alias in setting.aliases)


def test_unknown_argument_is_refused(render_docs, tmp_path):
    """A misspelt --check must not write the page."""
    assert render_docs.main(["--chek"], tmp_path / "SETTINGS.md") == 2 and not any(tmp_path.iterdir())


def copy_of_scripts(root, tmp_path):
    """The scripts in a repo whose path has spaces, with nothing else in it."""
    folder = tmp_path / "a repo with spaces"
    shutil.copytree(root / "scripts", folder / "scripts")
    return folder


def run_script(folder, tmp_path, **variables):
    bare = tmp_path / "no uv"    # a PATH on which there is none, whatever this machine has
    bare.mkdir(exist_ok=True)
    for name in "bash dirname sha256sum env tee".split():
        if not (bare / name).exists():
            (bare / name).symlink_to(shutil.which(name))
    return subprocess.run([folder / "scripts" / "test.sh"], cwd=tmp_path, env=os.environ | {"PATH": str(bare)} | variables,
                          capture_output=True, text=True, timeout=60)


def fake_python(tmp_path, body):
    path = tmp_path / "fake python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("body, words", [
    (None, "install Python 3.11 or newer"),
    ('[ "$1" = -V ] && echo Python 3.9.1 || exit 1', "is Python 3.9.1"),
    ('case "$2" in *venv*) exit 1;; esac', "the venv module"),
])
def test_test_script_says_in_one_line_what_is_missing(root, tmp_path, body, words):
    """No Python, an old one, or one without venv: one line with the way on, exit 2, nothing made."""
    python = fake_python(tmp_path, body) if body else str(tmp_path / "none")
    folder = copy_of_scripts(root, tmp_path)
    done = run_script(folder, tmp_path, PYTHON=python)

    assert done.returncode == 2 and words in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (folder / ".venv").exists()


def with_python(folder, does):
    """Give the copy a .venv whose Python is these lines of shell."""
    (folder / ".venv" / "bin").mkdir(parents=True)
    python = folder / ".venv" / "bin" / "python"
    python.write_text(f"#!/bin/sh\n{does}\n")
    python.chmod(0o755)
    (folder / "requirements.txt").write_text("")


def test_test_script_runs_pytest_in_its_own_repo(root, tmp_path):
    """Started from elsewhere, and with spaces in the path, it runs the repo's fast tests with the repo's Python."""
    folder = copy_of_scripts(root, tmp_path)
    with_python(folder, 'printf "%s|" "$PWD" "$@" | tee -a calls; echo | tee -a calls')
    first, second = run_script(folder, tmp_path), run_script(folder, tmp_path)

    installed, first_tests, _ = (folder / "calls").read_text().splitlines()
    assert "|-m|pip|install|" in installed and first.stdout == f"installing requirements-dev.txt into .venv\n{first_tests}\n"
    assert second.stdout.splitlines() == [
        f"{folder}|-m|pytest|-m|not real and not slow|-n|auto|--maxprocesses|4|--dist|loadfile|"]


def test_an_installation_that_fails_is_shown(root, tmp_path):
    """Silent while it goes well; when not, all that it said, and its exit code."""
    folder = copy_of_scripts(root, tmp_path)
    with_python(folder, "echo collecting; echo no such version >&2; exit 3")
    done = run_script(folder, tmp_path)

    assert done.returncode == 3 and done.stdout == "installing requirements-dev.txt into .venv\n"
    assert done.stderr.splitlines() == ["collecting", "no such version",
                                        "the packages of requirements-dev.txt could not be installed; the reason is above"]


def test_test_script_explains_itself_without_installing(root, tmp_path):
    """--help is the comment at its top, and makes no .venv."""
    folder = copy_of_scripts(root, tmp_path)
    told = subprocess.run([folder / "scripts" / "test.sh", "--help"], text=True, capture_output=True)

    assert told.returncode == 0 and told.stdout.startswith("The fast tests") and not (folder / ".venv").exists()
