"""Names for what an experiment can put together: data providers, rewards, objectives. Built-in and outside ones alike.

    @register_reward("short_reward")
    def short_reward(samples, limit=100): return [float(sample.tokens <= limit) for sample in samples]

    reward = build_reward("short_reward", limit=50)      # bound once, then called on every step's samples

A class registers like a function: building it makes an instance. `load_class_path` gets code from a module or a file outside
the repo, which then runs with all rights of this process, so stderr says so."""

import functools
import importlib
import importlib.util
import inspect
import sys
import traceback
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rl.errors import InputError
from rl.fitting import fitting_kwargs, nearest

if TYPE_CHECKING:    # the sandbox's own command needs no packages
    import numpy as np


class TrainingSample(NamedTuple):
    """One completion, as rewards see it; samples of one prompt stand side by side."""
    prompt: str
    completion: str
    reference: str     # the right answer; "" where there is none
    tokens: int        # sampled ids, the stop id included
    finish: str        # "stop", or "length" where the token limit cut it
    metadata: dict     # what else the task says of itself
    hidden_TD: "np.ndarray | None" = None    # the state that each token was drawn from, where the objective asks for them


class DataProvider(Protocol):
    """What build_data_provider gives: called with TASKS_FILE, all tasks and the names of those held out of training.

    As a pair, or as something with `tasks` and `held_out`; that may also have `left_out` (why -> how many problems) and `batch`
    (step, tasks a step, seed -> indices into `tasks`), an order of training of its own."""

    def __call__(self, tasks_file: str): ...


class Reward(Protocol):
    """What build_reward gives: one number for each sample, in order; nan where it cannot tell.

    Before a model is read it is called once with made-up samples of one task. It may also have `check_prompts` (task name ->
    prompt, of all tasks to train on), called then too: an InputError from it says for what it cannot pay."""

    def __call__(self, samples: Sequence[TrainingSample]) -> list[float]: ...


class Objective(Protocol):
    """What build_objective gives: which rewards it needs, and one number a sample from them.

    It may also have `extra_reward` (samples -> numbers), one more entry of that name in what is combined, and `wants_hidden`,
    True where that looks at the samples' hidden_TD (rl/latent.py)."""

    def reward_names(self) -> tuple[str, ...]:
        """The names of the rewards that combine_rewards wants."""

    def combine_rewards(self, scores: dict[str, list[float]]) -> list[float]:
        """One total a sample, from each reward's numbers in the same order."""


OBJECTIVE_METHODS = ("reward_names", "combine_rewards")
# What the caller gives later, when the thing that was built is called.
_KINDS = {"data provider": 1, "reward": 1, "objective": 0}
_PLUGINS: set[str] = set()    # files that were run
_REGISTERED: dict[str, dict[str, Callable]] = {kind: {} for kind in _KINDS}


def register_data_provider(name: str) -> Callable:
    """A decorator: the function is the data provider `name` from now on."""
    return _registers("data provider", name)


def register_reward(name: str) -> Callable:
    """A decorator: the function (samples, **kwargs) -> list of numbers is the reward `name` from now on."""
    return _registers("reward", name)


def register_objective(name: str) -> Callable:
    """A decorator: the class (or function that makes one) is the objective `name` from now on."""
    return _registers("objective", name)


def build_data_provider(name: str, /, **kwargs) -> DataProvider:
    """The provider with its kwargs bound; InputError for an unknown name or kwargs that it does not take."""
    made, kwargs = _checked("data provider", name, kwargs)
    return functools.partial(made, **kwargs)


def build_reward(name: str, /, **kwargs) -> Reward:
    """The reward with its kwargs bound; InputError for an unknown name or kwargs that it does not take."""
    made, kwargs = _checked("reward", name, kwargs)
    if not inspect.isclass(made):
        return functools.partial(made, **kwargs)
    reward = run_outside(f"the reward {name}", made, **kwargs)
    if not callable(reward):
        raise InputError(f"the reward {name} is a class without __call__(self, samples), so it cannot be asked")
    return reward


def build_objective(name: str, /, **kwargs) -> Objective:
    """The objective of that name, or of that class path; InputError for an unknown one, or kwargs that it does not take."""
    if ":" not in name:
        made, kwargs = _checked("objective", name, kwargs)
        return run_outside(f"the objective {name}", made, **kwargs)
    made, what = load_class_path(name), f"class_path {name}"
    if lacking := [method for method in OBJECTIVE_METHODS if not callable(getattr(made, method, None))]:
        raise InputError(f"{what} has no {' and no '.join(lacking)}, which an objective needs (rl/registry.py)")
    if not inspect.isclass(made):
        raise InputError(f"{what} is no class but a {type(made).__name__}; name the class, which is made from COMBINE_KWARGS")
    return run_outside(what, made, **fitting_kwargs(what, made, kwargs))


def run_outside(what: str, called: Callable, /, *arguments, **kwargs):
    """What code from outside gives; InputError says what it raised and where. sys.exit() counts, for it would end a command as if
    its work were done."""
    try:
        return called(*arguments, **kwargs)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        theirs = [at for at in traceback.extract_tb(error.__traceback__) if at.filename != __file__ and at.filename[0] != "<"]
        place = f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
        raise InputError(f"{what} raised {type(error).__name__}: {error}{place}") from error


def takes(kind: str, name: str, kwarg: str) -> bool:
    """Whether what is registered under the name has a kwarg of that name; False for an unknown one."""
    made = _REGISTERED[kind].get(name)
    return made is not None and kwarg in inspect.signature(made).parameters


def takers(kind: str, kwarg: str) -> list[str]:
    """Those of a kind that have a kwarg of that name, sorted."""
    return [name for name in registered(kind) if takes(kind, name, kwarg)]


def check_kwargs(kind: str, name: str, kwargs: dict) -> None:
    """InputError for an unknown name, or kwargs that it does not take; nothing is made of them."""
    _checked(kind, name, kwargs)


def load_plugins(files: str) -> None:
    """Run the comma-separated Python files, which register what they define; InputError where one is not there or raises."""
    for file in filter(None, (part.strip() for part in files.split(","))):
        if file in _PLUGINS:
            continue
        print(f"PLUGINS: {file} runs code from outside of this repo, with all rights of this process", file=sys.stderr,
              flush=True)
        _from_file(file, f"PLUGINS: {file}")
        _PLUGINS.add(file)


def registered(kind: str) -> list[str]:
    """The known names of a kind ("data provider", "reward", "objective"), sorted."""
    return sorted(_REGISTERED[kind])


def _registers(kind, name):
    if not isinstance(name, str):    # the decorator stands there without one, and would be called with the function
        raise InputError(f"a {kind} is registered under a name: @register_{kind.replace(' ', '_')}(\"a_name\")")

    def register(made):
        known = _REGISTERED[kind].get(name)
        if known is not None and _origin(known) != _origin(made):
            raise InputError(f"the {kind} {name} is registered already, by {_origin(known)}; {_origin(made)} needs another "
                             "name")
        _REGISTERED[kind][name] = made
        return made
    return register


def _origin(made):
    """Where it is defined: a module that is loaded twice registers the same thing twice, which is no conflict."""
    code = getattr(made, "__code__", None)
    file = code.co_filename if code else getattr(sys.modules.get(made.__module__), "__file__", made.__module__)
    return f"{Path(file).resolve()}{f':{code.co_firstlineno}' if code else ''} {made.__qualname__}"


def _checked(kind, name, kwargs):
    """What is registered under the name, and the kwargs once they are known to fit it."""
    known = _REGISTERED[kind]
    if name not in known:
        raise InputError(f"no {kind} is called {name!r}{nearest(name, known)}; known are {', '.join(sorted(known)) or 'none'}")
    return known[name], fitting_kwargs(f"the {kind} {name}", known[name], kwargs, _KINDS[kind])


@functools.cache
def load_class_path(path: str):
    """The thing that "module:Name" or "path/to/file.py:Name" names; runs that code once, and says so on stderr.

    InputError where the text has another shape, the code is not there or raises, or has no such name."""
    where, separator, name = path.rpartition(":")
    if not separator or not where or not name.isidentifier():
        raise InputError(f"class_path {path!r} should be 'module:Class' or 'path/to/file.py:Class'")
    print(f"class_path {path}: runs code from outside of this repo, with all rights of this process", file=sys.stderr, flush=True)
    module = _from_file(where, f"class_path {path}") if where.endswith(".py") else _from_module(where, path)
    if not hasattr(module, name):
        public = [known for known in vars(module) if known[0] != "_"]
        raise InputError(f"class_path {path}: {where} has no {name}{nearest(name, public)}")
    return getattr(module, name)


def _from_file(where, what):
    file = Path(where)
    if not file.is_file():
        raise InputError(f"{what}: there is no file {file.resolve()}")
    if file.suffix != ".py":
        raise InputError(f"{what}: code is read from files that end in .py")
    full = f"outside_{file.stem}_{zlib.crc32(str(file.resolve()).encode()):x}"
    spec = importlib.util.spec_from_file_location(full, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module    # dataclasses look their module up there
    try:
        run_outside(what, spec.loader.exec_module, module)
    except InputError:
        del sys.modules[full]
        raise
    return module


def _from_module(where, path):
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name != where and not where.startswith(f"{error.name}."):
            raise InputError(f"class_path {path}: {where} needs the module {error.name}, which is not installed") from error
        raise InputError(f"class_path {path}: there is no module {where}; start where it can be imported, set PYTHONPATH, or "
                         "give the file: path/to/file.py:Class") from error
    except (Exception, SystemExit) as error:
        raise InputError(f"class_path {path}: {where} raised {type(error).__name__}: {error}") from error
