"""The shape of the repo: imports point down, packages are listed, settings are read, README shows the real tree.

Judged on the source text and, for what must load without jax, in a fresh process."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from rl.settings.declared import LEAVES, SECTIONS

ROOT = Path(__file__).resolve().parent.parent
# From the ground up. A file imports its own layer's folder and what lies below; commands, tasks and tools stand on top.
LAYERS = ["attention", "model_config", "qwen2_jax", "rl.errors", "rl.text_files", "rl.registry", "rl.settings", "rl.sandbox",
          "rl.models", "rl.tasks", "rl.rewards", "rl.run", "rl.training", "rl.evaluation", "rl.proof", "rl.pages", "rl.command"]
TOOLS = ("benchmarks", "configs", "models", "scripts", "tasks")
WITH_JAX = ("attention", "qwen2_jax", "rl.training", "rl.models.pretrained", "rl.models.export", "rl.evaluation.probe",
            "rl.evaluation.runs", "rl.evaluation.zero_shot", "rl.proof.steps", "rl.command")    # the rest of rl/ loads without it
RUNTIME = {"jax", "jaxlib", "jinja2", "numpy", "safetensors", "tokenizers", "huggingface_hub", "yaml"}
COMES_WITH_JAX = {"ml_dtypes"}   # jax and jaxlib require it, as huggingface_hub requires PyYAML
EXTRAS = {"gguf", "math_verify", "reasoning_gym", "tensorboardX", "wandb"}
ORACLES = {"torch", "transformers", "peft"}
# Imported under another name than it is installed.
DISTRIBUTION = {"yaml": "PyYAML", "math_verify": "math-verify", "reasoning_gym": "reasoning-gym"}


@cache
def repo_files() -> tuple[str, ...]:
    """Files that belong to the repo: the tracked ones, or before the first commit all that are not ignored."""
    def listed(*options):
        command = ["git", "-C", ROOT, "ls-files", "-z", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]
    try:
        return tuple(sorted(listed() or listed("--others", "--exclude-standard")))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs a git clone to know which files are the repo's: {error}")


@cache
def modules() -> dict[str, ast.Module]:
    """Name -> syntax tree of every module of the product; tests are not part of it."""
    paths = [path for path in repo_files() if path.endswith(".py") and not path.startswith("tests/")]
    return {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): parsed(path) for path in paths}


def parsed(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text("utf-8"), path)


def imports(tree: ast.AST) -> set[str]:
    """Every dotted name that `tree` imports, wherever the import stands."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports are not followed here"
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@cache
def ours(module: str) -> set[str]:
    """The modules of the product that `module` imports."""
    return imports(modules()[module]) & set(modules()) - {module, "rl", "tasks"}


@cache
def reached(module: str) -> set[str]:
    """`module` and all that it imports, directly or not."""
    found, todo = set(), [module]
    while todo:
        if (name := todo.pop()) not in found:
            found.add(name)
            todo += ours(name)
    return found


def layer(module: str) -> int:
    """The place of a module among LAYERS; one above them all for commands and tools."""
    return next((place for place, name in enumerate(LAYERS) if f"{module}.".startswith(f"{name}.")), len(LAYERS))


def is_command(module: str) -> bool:
    """Whether it is a script at the top of the repo."""
    return "." not in module and module not in (*LAYERS, *TOOLS, "rl")


def top_packages(tree: ast.AST) -> set[str]:
    return {name.split(".")[0] for name in imports(tree)} - set(sys.stdlib_module_names) - {"__future__"}


def packages_at_import(tree: ast.Module) -> set[str]:
    """Those that are needed to import the module, not only by a function of it."""
    return top_packages(ast.Module([node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)], []))


# Imports


def test_the_scan_sees_the_repo():
    """The rules below are judged on real modules; an empty list would pass them all."""
    assert {"qwen2_jax", "rl.settings.config", "rl.sandbox.inside.worker", "train_grpo"} <= set(modules())
    assert "rl.settings.declared" in ours("rl.settings.config") and "yaml" in imports(modules()["rl.settings.config"])
    assert "qwen2_jax" in reached("rl.training.run") and is_command("train_grpo") and not is_command("qwen2_jax")


def test_imports_point_down():
    """No module imports one of a layer above its own, and every module of rl/ has a layer."""
    assert not [name for name in modules() if name.startswith("rl.") and layer(name) == len(LAYERS)]
    assert not {f"{name} -> {other}" for name in modules() for other in ours(name) if layer(other) > layer(name)}


def test_no_import_cycles():
    """A module never reaches itself."""
    assert not {name for name in modules() if any(name in reached(other) for other in ours(name))}


def test_nothing_imports_a_command_or_a_benchmark():
    """What two commands share lies in rl/; a benchmark is no part of the product."""
    found = {f"{name} -> {other}" for name in modules() for other in ours(name)
             if is_command(other) or (other.startswith("benchmarks.") and not name.startswith("benchmarks."))}
    assert not found


def test_training_knows_no_kind_of_reward():
    """What rl/training reaches: neither pages nor evaluations, neither words nor Reasoning Gym, nor any reward of its own."""
    beyond = ("rl.pages", "rl.evaluation", "rl.proof", "rl.command", "rl.rewards.words", "rl.rewards.gym", "rl.rewards.lisp",
              "rl.rewards.setup", "rl.sandbox.sandbox", "tasks.")
    for name in [name for name in modules() if name.startswith("rl.training.")]:
        assert not {other for other in reached(name) if f"{other}.".startswith(beyond)}, name


# Files that run beside strangers' code, and the packages that they may import.
WORKERS = {"rl/sandbox/inside/*.py": set(), "rl/rewards/gym/worker.py": {"reasoning_gym"}, "rl/rewards/gym/scoring.py": set()}


@pytest.mark.parametrize("pattern", WORKERS)
def test_the_workers_import_nothing_of_ours(pattern):
    """They can leak nothing of the trainer: neither by an import nor by a file that they load by its path."""
    paths = {path.resolve() for path in ROOT.glob(pattern)}
    allowed = {path.resolve() for other in WORKERS for path in ROOT.glob(other)}
    assert paths
    for path in paths:
        tree = ast.parse(path.read_text("utf-8"))
        texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        named = {(path.parent / f"{text.removesuffix('.py')}.py").resolve() for text in texts if re.fullmatch(r"[\w./-]+", text)}

        assert top_packages(tree) <= WORKERS[pattern], path
        assert {other for other in named if other.is_file()} <= allowed, path


def test_most_of_rl_loads_without_jax():
    """In a fresh process; so settings, sandbox, rewards and pages are there at once, and on machines without jax."""
    workers = ("rl.sandbox.inside.worker", "rl.sandbox.__main__", "rl.rewards.gym.worker", "rl.rewards.gym.scoring")
    names = sorted(name for name in modules() if name.startswith("rl.") and not f"{name}.".startswith(
        tuple(f"{other}." for other in (*WITH_JAX, *workers))))
    assert len(names) > 40
    code = f"import sys, {', '.join(names)}; sys.exit(any(m.split('.')[0] in ('jax', 'jaxlib') for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or "one of them loads jax"


# Packages


def test_only_the_listed_packages_are_used():
    """Runtime packages anywhere, extras only inside a function, oracles only in validate_forward.py."""
    own = {name.split(".")[0] for name in modules()}
    for name, tree in modules().items():
        allowed = RUNTIME | COMES_WITH_JAX | EXTRAS | own | (ORACLES if name == "validate_forward" else set())
        assert top_packages(tree) <= allowed, name
        assert not packages_at_import(tree) & EXTRAS, f"{name} needs an extra package just to be imported"


def test_tests_load_without_the_oracles():
    """torch, transformers and peft are opened by tests that need them (tests/oracles.py), and by those alone."""
    tests = [path for path in repo_files() if path.startswith("tests/") and path.endswith(".py")]
    assert not [path for path in tests if packages_at_import(parsed(path)) & ORACLES]


def requirements(name: str) -> dict[str, str]:
    """Package -> version bounds of one requirements file, other files it includes left out."""
    lines = [line.split("#")[0].strip() for line in (ROOT / name).read_text().splitlines()]
    return dict(re.match(r"([\w-]+)(.*)", line).groups() for line in lines if line and not line.startswith("-"))


def test_requirements_are_bounded_and_complete():
    """Every package used can be installed from the files, and no release can slip in that was never tried."""
    found = {kind: requirements(f"requirements{kind}.txt") for kind in ("", "-extra", "-dev", "-oracles")}
    assert set(found[""]) == {DISTRIBUTION.get(name, name) for name in RUNTIME}
    assert set(found["-extra"]) == {DISTRIBUTION.get(name, name) for name in EXTRAS} and set(found["-oracles"]) == ORACLES
    for name, bounds in [row for rows in found.values() for row in rows.items()]:
        assert bounds.startswith("==") or (">=" in bounds and ",<" in bounds), f"{name}{bounds} is not bounded"


# Settings


def holders(tree: ast.AST) -> dict[str, str]:
    """Local names that stand for a section of the settings: annotated arguments and `name = settings.section`."""
    kinds = {kind.__name__: section for section, kind in SECTIONS.items()}
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None:
            kind = ast.unparse(node.annotation).strip("'\"").split(".")[-1]
            if kind in kinds:
                found[node.arg] = kinds[kind]
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = (zip(target.elts, node.value.elts, strict=False)
                         if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                         else [(target, node.value)])
                found |= {name.id: value.attr for name, value in pairs if isinstance(name, ast.Name)
                          and isinstance(value, ast.Attribute) and value.attr in SECTIONS}
    return found


def settings_read(tree: ast.AST) -> set[tuple[str, str]]:
    """(section, leaf) of every `<...>.section.leaf` and `name.leaf` where the name stands for a section."""
    named, found = holders(tree), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            if isinstance(node.value, ast.Attribute):
                found.add((node.value.attr, node.attr))
            elif isinstance(node.value, ast.Name) and node.value.id in named:
                found.add((named[node.value.id], node.attr))
    return found


def test_reads_of_settings_are_recognised():
    """The scan knows the ways in which code holds a section, and is not fooled by str.split."""
    tree = ast.parse("def f(o: ObjectiveSettings, text):\n    g, t = s.generation, s.trainer\n"
                     "    return o.eps_low, g.group, t.steps, s.data.case_seed, text.split()\n")
    assert settings_read(tree) == {("objective", "eps_low"), ("generation", "group"), ("trainer", "steps"), ("data", "case_seed")}


@pytest.mark.known_bug(26)
def test_every_setting_is_read_by_the_product():
    """A setting that no code looks at would be a promise nobody keeps; what rl/settings does with all of them is no reading."""
    found = set()
    for name, tree in modules().items():
        if name not in ("rl.settings.config", "rl.settings.declared", "rl.settings.help", "rl.settings.values"):
            found |= settings_read(tree)
    assert not {leaf.name for leaf in LEAVES.values() if (leaf.section, leaf.name) not in found}


def test_nothing_but_config_reads_the_environment_for_settings():
    """Names of settings are looked up in one place, so that origin, limits and --help hold."""
    known = {leaf.name.upper() for leaf in LEAVES.values()}
    reads = [f"{name}: {ast.unparse(node)}" for name, tree in modules().items() for node in ast.walk(tree)
             if isinstance(node, ast.Subscript | ast.Call) and "environ" in ast.unparse(node) and any(
                 isinstance(part, ast.Constant) and part.value in known for part in ast.walk(node))]
    assert not reads


# Pages and texts


def readme_tree() -> dict[str, bool]:
    """Path -> is a folder, from the lines between README's tree markers: two blanks a folder level; # is a heading."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- tree:begin -->\s*```\w*\n(.*?)```\s*<!-- tree:end -->", text, re.DOTALL)
    assert block, "README.md needs a fenced block between <!-- tree:begin --> and <!-- tree:end -->"
    found, above = {}, []
    for line in block[1].splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        depth, name = (len(line) - len(line.lstrip())) // 2, line.split()[0]
        above = [*above[:depth], name.rstrip("/")]
        found["/".join(above)] = name.endswith("/")
    return found


def test_readme_shows_the_real_tree():
    """Every entry exists; every file is listed, or lies in a listed folder whose files are not listed one by one. Only an empty
    __init__.py says nothing that a reader could miss."""
    tree = readme_tree()
    files = [path for path in repo_files() if not path.startswith(".")
             and not (path.endswith("/__init__.py") and not (ROOT / path).read_bytes())]
    folders = {str(parent) for path in files for parent in Path(path).parents}
    spelt_out = {str(Path(path).parent) for path in tree}
    closed = {path for path, is_folder in tree.items() if is_folder and path not in spelt_out}

    assert not {path for path, is_folder in tree.items() if path not in (folders if is_folder else files)}
    assert not {path for path in files if path not in tree and not any(str(p) in closed for p in Path(path).parents)}


def texts():
    """Path and text of the repo's files that are text, this one excepted, for it spells out what is forbidden."""
    for path in repo_files():
        if path != "tests/test_structure.py":
            try:
                yield path, (ROOT / path).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def test_no_path_of_a_particular_machine():
    """The repo works wherever it is cloned; what lies beside it is used by tests and CI alone, where it is there."""
    machine = re.compile(r"(?<![\w.~/-])/(work|root|home|Users)/")
    beside = re.compile(r"\.\./shared|(?<![\w/])shared/")
    found = [path for path, text in texts() if not path.startswith("tests/") and machine.search(text)]
    found += [path for path, text in texts() if not path.startswith(("tests/", ".ci/")) and beside.search(text)]
    assert not found


def test_pages_that_are_mentioned_exist():
    """No file sends the reader to a page that the repo does not have."""
    pages = {Path(path).name for path in repo_files() if path.endswith(".md")}
    assert not {(path, name) for path, text in texts() for name in re.findall(r"\b[A-Z][A-Z_]+\.md\b", text) if name not in pages}


def test_scripts_can_be_started():
    """Shell scripts and CI's entry are executable and parse."""
    for path in [path for path in repo_files() if path.endswith(".sh") or path == ".ci/run"]:
        assert (ROOT / path).stat().st_mode & 0o111 and (ROOT / path).read_bytes().startswith(b"#!"), path
        assert subprocess.run(["bash", "-n", ROOT / path], capture_output=True).returncode == 0, path
