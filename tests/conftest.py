"""What all tests share: a neutral environment, and folders that may or may not be there."""
import gc
import importlib.util
import os
import shutil
import signal
import tempfile
from pathlib import Path

import hypothesis
import pytest

from rl.settings.declared import NAMES
from tests import processes
from tests.tiny_checkpoint import make_tiny

ROOT = Path(__file__).resolve().parent.parent

hypothesis.settings.register_profile("repo", deadline=None)   # a busy machine is no failure
hypothesis.settings.load_profile("repo")
# Before jax is imported: results are compared bit for bit, so the CPU, unless one asks for another device by name.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most of the time goes into compiling small programs, which this makes five times as fast. CI's slow tests compile as users do.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
                                   "--xla_cpu_parallel_codegen_split_count=1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
for name in ("CONFIG", *NAMES):   # settings in the developer's shell must not steer the commands under test
    os.environ.pop(name.upper(), None)
# Ignored signals are inherited, as under nohup or behind `&` in a script; commands under test must see them. SIGHUP is caught
# here and not reset, so that the tests themselves still outlive their terminal.
for signum, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL),
                        (signal.SIGHUP, lambda *_: None)):
    if signal.getsignal(signum) == signal.SIG_IGN:
        signal.signal(signum, handler)


def pytest_configure(config):
    """Programs that commands compile are kept until the end, away from the user's cache."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder = tempfile.mkdtemp(prefix="compiled-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.fixture(scope="session")
def root() -> Path:
    """The repo's top folder."""
    return ROOT


@pytest.fixture(scope="session")
def load_script():
    """A function that loads scripts/NAME.py as a module; scripts/ is no package."""
    def load(name: str):
        spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    return load


@pytest.fixture(autouse=True)
def no_process_is_left():
    """What a test starts (tests/processes.py) ends with it."""
    yield
    processes.end_all()


@pytest.fixture
def no_garbage_collection():
    """For tests that time something: after many other tests a collection of all objects takes up to a second."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """The folder of a whole checkpoint with random weights (tests/tiny_checkpoint.py): commands run on it in seconds."""
    return make_tiny(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="session")
def taught_model(tmp_path_factory) -> Path:
    """The tiny checkpoint taught a few tasks half right (tests/taught_checkpoint.py), so that its rewards differ."""
    from tests.taught_checkpoint import teach
    return teach(tmp_path_factory.mktemp("checkpoint") / "taught")


@pytest.fixture(scope="session")
def real_model() -> Path:
    """The folder of the real 0.5B checkpoint, hub layout and model.gguf; the test is skipped without it."""
    folder = os.environ.get("REAL_MODEL")
    if not folder:
        pytest.skip("needs the real 0.5B checkpoint: set REAL_MODEL to its folder")
    if not (Path(folder) / "config.json").is_file():
        pytest.fail(f"REAL_MODEL={folder} holds no config.json; give the folder of a complete checkpoint")
    return Path(folder)


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder `shared` beside the repo; the test is skipped without it."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder ../shared, which is not part of the repo")
    return folder
