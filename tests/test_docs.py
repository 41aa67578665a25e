"""The pages: what they name exists, and every example of docs/OWN_TASKS.md works as it is printed."""
import ast
import importlib
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from rl.run.files import read_rows
from rl.settings.declared import NAMES

ROOT = Path(__file__).resolve().parent.parent
PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
         for pattern in ("*.md", "docs/*.md", "models/*/*.md") for path in sorted(ROOT.glob(pattern))}
TOP = sorted({path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."} - {"runs", "sweeps", "hf_cache"})
FOREIGN = {"GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE"}
SMALL = {"MODEL": "tiny", "STEPS": "1", "GROUP": "4", "TASKS_PER_STEP": "1", "MAX_NEW_TOKENS": "8", "EVAL_EVERY": "0"}
ASKED = {"MODEL": "tiny", "MAX_NEW_TOKENS": "8"}    # what a command that does not train may be given


@pytest.fixture(params=sorted(PAGES))
def page(request):
    return request.param


def prose(text: str) -> str:
    """Without fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The fragments that GitHub gives the headings."""
    headings = re.findall(r"^#+ +(.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


# ---- what the pages name ---------------------------------------------------------------------------------------------

def test_links_lead_somewhere(page):
    """A relative link names a file of the repo, and its fragment a heading of that page."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(PAGES[page])):
        if not re.match(r"https?:", target):
            file, _, fragment = target.partition("#")
            path = (ROOT / page).parent / file if file else ROOT / page
            assert path.exists(), target
            assert not fragment or fragment in anchors(path.read_text(encoding="utf-8")), target


def test_headings_are_found():
    """Fragments as GitHub makes them, headings in code left out."""
    text = "# Log\n\n## 2026-11-30: speed, on the 0.5B `x`\n\n```\n# not one\n```\n"

    assert anchors(text) == {"log", "2026-11-30-speed-on-the-05b-x"}


def test_paths_exist(page):
    """Whatever begins with a folder of the repo is a path in it, and so is every script that a command starts."""
    named = set(re.findall(rf"(?<![\w./<>-])(?:{'|'.join(TOP)})/[\w./-]*\w", PAGES[page]))
    named |= set(re.findall(r"`(requirements[\w-]*\.txt|[A-Z]+\.md)`", PAGES[page]))
    started = set(re.findall(r"(?<!')\bpython (?!-)(\S+\.(?:py|sh))", PAGES[page]))

    missing = {path for path in named | started if not (ROOT / path).exists()}
    assert not missing


def test_names_in_code_exist(page):
    """`rl.module.name` can be imported, and `test_name` is a test."""
    for dotted in set(re.findall(r"\b(?:rl|benchmarks|tasks)(?:\.\w+)+", prose(PAGES[page]))):
        if not re.search(r"\.(py|jsonl?|yaml)$", dotted):
            assert found(dotted), dotted

    missing = set(re.findall(r"`(test_\w+)`", PAGES[page])) - known_tests()
    assert not missing


def found(dotted: str) -> bool:
    """Whether the longest part that is a module can be imported and has the rest."""
    parts = dotted.split(".")
    for n in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        return n == len(parts) or hasattr(thing, parts[n])
    return False


@cache
def known_tests() -> frozenset[str]:
    """The names of all test functions."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "tests").rglob("test_*.py")]
    return frozenset(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@cache
def variables() -> frozenset[str]:
    """Settings, and what else in capitals the code mentions."""
    files = [path for pattern in ("*.py", "rl/**/*.py", "scripts/*", "tests/**/*.py", ".ci/run") for path in ROOT.glob(pattern)
             if path.is_file() and path != Path(__file__)]
    mentioned = {word for path in files for word in re.findall(r"\b[A-Z][A-Z0-9_]+\b", path.read_text(encoding="utf-8"))}
    return frozenset(mentioned | {name.upper() for name in NAMES} | FOREIGN)


def test_variables_exist(page):
    """A setting that was renamed or removed is on no page but the log, which tells of what was."""
    named = re.findall(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b(?!\.md)", PAGES[page]) + re.findall(r"\b([A-Z][A-Z0-9_]+)=", PAGES[page])

    unknown = set(named) - variables()
    assert not unknown


# ---- docs/OWN_TASKS.md -----------------------------------------------------------------------------------------------

OWN = PAGES["docs/OWN_TASKS.md"]
FILES = dict(re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", OWN, re.DOTALL | re.MULTILINE))
COMMANDS = [line for block in re.findall(r"^```sh\n(.*?)^```$", OWN, re.DOTALL | re.MULTILINE) for line in block.splitlines()]


@pytest.fixture
def folder(tmp_path):
    """A folder with all files of the page."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def parsed(command: str) -> tuple[dict[str, str], list[str]]:
    """The variables that a command line sets, and the words behind them."""
    words = shlex.split(command)
    first = words.index("python")
    return dict(word.split("=", 1) for word in words[:first]), words[first + 1:]


def test_the_page_has_examples():
    """An empty list would pass what follows."""
    assert {"sums.py", "vowels.py", "first_right.py", "quiet.py", "gym.yaml"} <= set(FILES) and len(COMMANDS) >= 10
    assert len(FILES) + OWN.count("```sh\n") == len(re.findall(r"^```\w+$", OWN, re.MULTILINE)), "a block that nothing here runs"


def test_all_examples_can_be_trained(folder):
    """Their settings as printed are accepted without a warning, their providers give tasks, and their rewards can pay for them.

    In a process of its own, for plugins cannot be unloaded."""
    pytest.importorskip("reasoning_gym")
    chosen = [parsed(command)[0] for command in COMMANDS if command.endswith("train_grpo.py")]
    done = subprocess.run([sys.executable, "-c", CHECK, repr(chosen)], cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)},
                          capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == len(chosen) and all(int(tasks) > 0 for tasks in done.stdout.split())


CHECK = """
import ast, sys
from rl.rewards.setup import trainable
from rl.settings import config
for environ in ast.literal_eval(sys.argv[1]):
    loaded = config.load(environ, training=True)
    assert not loaded.warnings, loaded.warnings
    print(len(trainable(loaded.settings)[0]))
"""


@pytest.mark.slow
def test_the_page_from_top_to_bottom(folder):
    """Every command in its order, on models/tiny and with a small shape, does its job."""
    pytest.importorskip("reasoning_gym")
    clean = {name: value for name, value in os.environ.items() if name.lower() not in NAMES}
    for number, command in enumerate(COMMANDS):
        chosen, (script, *arguments) = parsed(command)
        trains = script.endswith(("train_grpo.py", "sweep.py"))
        small = SMALL if trains else {"EVAL_TASKS": "2"} if arguments[0:1] == ["sweeps/limit"] else ASKED
        out = {"OUT": f"run{number}"} if script == "train_grpo.py" else {}
        done = subprocess.run([sys.executable, ROOT / script, *arguments], cwd=folder, env=clean | chosen | small | out,
                              capture_output=True, text=True, timeout=600)

        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        if out:
            assert len(read_rows(folder / out["OUT"] / "metrics.jsonl")) == 1, command
    assert (folder / "zero_shot.jsonl").is_file() and (folder / "mine.json").is_file()
    assert len(list((folder / "sweeps" / "bonus").glob("run_*"))) == 4 and (folder / "sweeps/limit/eval/summary.csv").is_file()
