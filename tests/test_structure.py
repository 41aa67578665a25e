"""The shape of the repo: layers, sizes, docstrings, settings that are read, and a README that shows the real tree.

Judged on the source text and, for what must load without jax, in a fresh process.
"""
import ast
import re
import statistics
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from rl.settings.declared import LEAVES, SECTIONS

ROOT = Path(__file__).resolve().parent.parent
MODEL = ("attention", "qwen2_jax")    # the first knows nothing of the second
MIDDLE = {f"rl.{name}" for name in """
    loop grading generate reward grpo checkpoint plan command held_out recheck training graders hidden safe_grading
    evaluation.probe evaluation.run_evaluation evaluation.zero_shot evaluation.sweep gym.proof gym.tasks""".split()}
WITHOUT_JAX = {f"rl.{name}" for name in """
    reward sandbox _sandbox_worker taskset datalog compare config settings source errors progress tracker lock values advantages
    combinations registry combining reward_kwargs storage yaml_file signals terminal fitting settings_help
    words.answers words.answer_forms words.exact_numbers words.latex_expression words.second_opinion words.text_rewards
    gym.client gym.audit gym.tasks gym.families gym._process gym._worker gym._scoring gym.forecast gym.predictions
    models.hub models.tensors models.chat models.gguf models.peft
    pages.signs pages.report pages.report_page pages.report_parts pages.curves pages.markup pages.samples
    evaluation.stats evaluation.probe_report evaluation.run_summary evaluation.run_curves evaluation.sweep
    evaluation.sweep_summary measuring.neighbours
    measuring.leftovers measuring.sandbox_report measuring.sandbox_bench measuring.sandbox_soak measuring.sandbox_mixture
    measuring.sandbox_peers""".split()}
RUNTIME = {"jax", "jaxlib", "jinja2", "numpy", "safetensors", "tokenizers", "huggingface_hub", "yaml"}
COMES_WITH_JAX = {"ml_dtypes"}   # jax and jaxlib require it, as huggingface_hub requires PyYAML
EXTRAS = {"gguf", "math_verify", "reasoning_gym", "tensorboardX", "wandb"}
ORACLES = {"torch", "transformers", "peft", "optax"}
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


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def modules() -> dict[str, ast.Module]:
    """Name -> syntax tree of every module of the product; tests are not part of it."""
    paths = [path for path in repo_files() if path.endswith(".py") and not path.startswith("tests/")]
    return {module_name(path): ast.parse((ROOT / path).read_text(encoding="utf-8"), path) for path in paths}


def imports(tree: ast.AST, inside: str = "") -> set[str]:
    """Every dotted name that `tree` imports, wherever the import stands; `inside` is the importing module."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = [*inside.split(".")[:-node.level], *filter(None, [node.module])] if node.level else [node.module]
            names |= {".".join(base)} | {".".join([*base, alias.name]) for alias in node.names}
    return names


@cache
def ours(module: str) -> set[str]:
    """The modules of the product that `module` imports."""
    return imports(modules()[module], module) & set(modules()) - {module, "rl", "tasks"}


@cache
def reached(module: str) -> set[str]:
    """`module` and all that it imports, directly or not."""
    found, todo = set(), [module]
    while todo:
        if (name := todo.pop()) not in found:
            found.add(name)
            todo += ours(name)
    return found


def is_command(module: str) -> bool:
    return module not in MODEL and "." not in module and module not in ("rl", "tasks")


def level(module: str) -> int:
    """Height of a module's layer; imports may stay level or go down."""
    if is_command(module) or module.startswith("scripts.") or module.startswith("models."):
        return 3
    return 0 if module in MODEL else 2 if module in MIDDLE else 1


def top_packages(tree: ast.AST) -> set[str]:
    return {name.split(".")[0] for name in imports(tree) if name} - set(sys.stdlib_module_names) - {"__future__"}


@pytest.fixture(params=sorted(modules()))
def module(request):
    return request.param


# Layers

def test_the_scan_sees_the_repo():
    """The rules below are judged on real modules; an empty list would pass them all."""
    assert {"qwen2_jax", "rl.settings.config", "rl.settings"} <= set(modules())
    assert "rl.settings" in ours("rl.settings.config") and "yaml" in imports(modules()["rl.settings.config"])


def test_relative_and_nested_imports_are_seen():
    """The scan cannot be passed by writing an import differently or inside a function."""
    tree = ast.parse("def f():\n    from . import grpo\n    from .lora import init\n    import jax.numpy as jnp\n")

    assert {"rl.training.update", "rl.training.lora", "jax.numpy"} <= imports(tree, "rl.training.step")


def test_imports_point_down(module):
    """Commands > loop, generate, reward, grpo > one-job modules > the model; nothing reaches upward."""
    upward = {other for other in ours(module) if level(other) > level(module)}

    assert not upward, f"{module} imports {upward} from a layer above it"


def test_no_command_imports_another(module):
    """What two commands share lives in rl/."""
    if level(module) == 3:
        assert not {other for other in ours(module) if level(other) == 3}


def test_no_import_cycles(module):
    """A module never reaches itself."""
    assert not any(module in reached(other) for other in ours(module))


@pytest.mark.parametrize("name, packages", [("rl.sandbox.inside.worker", set()), ("rl.rewards.gym.worker", {"reasoning_gym"})])
def test_the_workers_import_nothing_of_ours(name, packages):
    """What runs beside strangers' code can leak nothing of the trainer; the siblings it loads by path are no way round."""
    if worker := modules().get(name):
        folder = ROOT / Path(*name.split(".")[:-1])
        paths = {(folder / f"{node.args[0].value}.py").resolve() for node in ast.walk(worker)
                 if isinstance(node, ast.Call) and ast.unparse(node.func) in ("_sibling", "_loaded")}
        siblings = {module for module in modules() if (ROOT / f"{module.replace('.', '/')}.py").resolve() in paths}

        assert siblings and top_packages(worker) == packages
        for other in siblings | {name}:
            assert not ours(other) and top_packages(modules()[other]) <= packages, other


@pytest.mark.parametrize("name", sorted(WITHOUT_JAX))
def test_these_never_reach_jax(name):
    """Not even through an import inside a function, theirs or that of a module they use."""
    for other in reached(name):
        assert "jax" not in top_packages(modules()[other]), f"{name} reaches jax through {other}"


def test_these_load_without_jax():
    """In a fresh process, importing all of them at once leaves jax unloaded."""
    names = sorted(WITHOUT_JAX & set(modules()) - {"rl.sandbox.inside.worker", "rl.rewards.gym.worker"})
    code = f"import sys, {', '.join(names)}; sys.exit(any(m.split('.')[0] in ('jax', 'jaxlib') for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr or f"importing {names} loads jax"


def test_grpo_does_no_input_or_output():
    """The objective is a function of arrays: no files, no printing, no environment, no clock."""
    if "rl.training.update" in modules():
        tree = modules()["rl.training.update"]
        called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        banned = {"os", "io", "sys", "pathlib", "json", "shutil", "subprocess", "socket", "logging", "tempfile", "time"}

        assert not called & {"open", "print", "input", "exec", "eval"}
        assert not {name.split(".")[0] for name in imports(tree)} & banned


# Packages

def test_only_the_listed_packages_are_used(module):
    """Runtime packages anywhere, extras only inside a function, oracles only in validate_forward.py."""
    tree, own = modules()[module], {name.split(".")[0] for name in modules()}
    outer = top_packages(ast.Module([node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)], []))
    allowed = RUNTIME | COMES_WITH_JAX | EXTRAS | own | (ORACLES if module == "validate_forward" else set())

    assert top_packages(tree) <= allowed
    assert not outer & EXTRAS, f"{module} needs an extra package just to be imported"


def requirements(name: str) -> dict[str, str]:
    """Package -> version bounds of one requirements file, other files it includes left out."""
    lines = [line.split("#")[0].strip() for line in (ROOT / name).read_text().splitlines()]
    return dict(re.match(r"([\w-]+)(.*)", line).groups() for line in lines if line and not line.startswith("-"))


def test_requirements_are_bounded_and_complete():
    """Every package used can be installed from the files, and no release can slip in that was never tried."""
    runtime, extra = requirements("requirements.txt"), requirements("requirements-extra.txt")
    dev = requirements("requirements-dev.txt")

    assert set(runtime) == {DISTRIBUTION.get(name, name) for name in RUNTIME}
    assert set(extra) == {DISTRIBUTION.get(name, name) for name in EXTRAS} and ORACLES <= set(dev)
    for name, bounds in (runtime | extra | dev).items():
        assert bounds.startswith("==") or (">=" in bounds and ",<" in bounds), f"{name}{bounds} is not bounded"


# Sizes and docstrings

def functions(tree: ast.AST):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def lines_of(node) -> int:
    return node.end_lineno - node.lineno + 1


def test_files_stay_readable_in_one_sitting():
    """At most 400 lines for the model and 300 for a module of rl/."""
    long = {}
    for path in repo_files():
        limit = 400 if path.removesuffix(".py") in MODEL else 300 if re.fullmatch(r"rl/.*\.py", path) else None
        if limit and (count := len((ROOT / path).read_text(encoding="utf-8").splitlines())) > limit:
            long[path] = f"{count} lines, limit {limit}"

    assert not long


def test_functions_stay_short(module):
    """At most 60 lines each, except a script's main."""
    script = level(module) == 3
    long = {node.name: lines_of(node) for node in functions(modules()[module])
            if lines_of(node) > 60 and not (script and node.name == "main")}

    assert not long


def test_the_median_function_is_at_most_twelve_lines():
    """Most functions can be read at a glance."""
    trees = [tree for name, tree in modules().items() if not name.startswith("tasks.")]
    sizes = [lines_of(node) for tree in trees for node in functions(tree)]

    assert statistics.median(sizes) <= 12


def test_every_module_and_public_function_says_what_it_does(module):
    """A docstring on each module, public function and public method; a name that a module explains once is explained.

    Exempt: a script's main, which its module describes, and the functions of tasks/, the tasks' own solutions.
    """
    tree = modules()[module]
    outer = [] if module.startswith("tasks.") else tree.body
    inner = [node for kind in outer if isinstance(kind, ast.ClassDef) and kind.name[0] != "_" for node in kind.body]
    public = [node for node in outer + inner if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
    explained = {node.name for node in public if ast.get_docstring(node)} | {"main"}

    assert ast.get_docstring(tree) or not tree.body, f"{module} has no docstring"
    assert not {node.name for node in public} - explained


def test_every_test_says_what_must_hold():
    """A red test explains itself."""
    bare = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        bare += [f"{path.name}::{node.name}" for node in functions(tree)
                 if node.name.startswith("test_") and not ast.get_docstring(node)]

    assert not bare


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

    assert settings_read(tree) == {("objective", "eps_low"), ("generation", "group"), ("trainer", "steps"),
                                   ("data", "case_seed")}


@pytest.mark.known_bug(26)
def test_every_setting_is_read_by_the_product():
    """A setting that no code looks at would be a promise nobody keeps."""
    found = set()
    for name, tree in modules().items():
        if name not in ("rl.settings.config", "rl.settings"):
            found |= settings_read(tree)

    assert not {leaf.name for leaf in LEAVES.values() if (leaf.section, leaf.name) not in found}


@pytest.mark.known_bug(26)
def test_every_setting_has_a_test_that_it_acts():
    """tests/settings/test_settings_act.py names them: none missing, none invented, each of them there and about the setting."""
    from tests.settings.test_settings_act import ACTS
    files = {}
    assert set(ACTS) == set(LEAVES), "a row for each setting, in tests/settings/test_settings_act.py"
    for leaf, named in ACTS.items():
        assert named, leaf
        for file, _, test in (name.partition("::") for name in named):
            text = files.setdefault(file, (ROOT / "tests" / file).read_text(encoding="utf-8"))
            assert f"def {test}(" in text, f"{leaf}: {file} has no {test}"
        assert any(leaf in files[name.partition("::")[0]].lower() for name in named), f"{leaf} is named in none of {named}"


def test_nothing_but_config_reads_the_environment_for_settings(module):
    """Names of settings are looked up in one place, so that origin, limits and --help hold."""
    known = {leaf.name.upper() for leaf in LEAVES.values()}
    reads = [ast.unparse(node) for node in ast.walk(modules()[module])
             if isinstance(node, ast.Subscript | ast.Call) and "environ" in ast.unparse(node) and any(
                 isinstance(part, ast.Constant) and part.value in known for part in ast.walk(node))]

    assert not reads


# Documentation and texts

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
    assert (ROOT / "README.md").is_file(), "README.md is missing"
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
    missing = {(path, name) for path, text in texts() for name in re.findall(r"\b[A-Z][A-Z_]+\.md\b", text)
               if name not in pages}

    assert not missing


def test_no_unfinished_business():
    """What is not there is not promised in a comment."""
    assert not [path for path, text in texts() if re.search(r"\b(TODO|FIXME|XXX)\b", text)]


def test_scripts_can_be_started():
    """Shell scripts and CI's entry are executable, strict, and find the repo by themselves."""
    for path in [path for path in repo_files() if path.endswith(".sh") or path == ".ci/run"]:
        text = (ROOT / path).read_text()
        assert (ROOT / path).stat().st_mode & 0o111 and text.startswith("#!"), path
        assert "set -euo pipefail" in text and "BASH_SOURCE" in text, path
