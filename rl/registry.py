"""Names for what an experiment can put together: data providers, rewards, objectives. Built-in and outside ones alike.

    @register_reward("short_reward")
    def short_reward(samples, limit=100): return [float(sample.tokens <= limit) for sample in samples]

    reward = build_reward("short_reward", limit=50)      # bound once, then called on every step's samples

A class registers like a function: building it makes an instance. `load_class_path` gets code from a module or a file outside
the repo, which then runs with all rights of this process, so stderr says so. Whether kwargs from YAML fit what takes them is
checked here too."""

import contextlib
import difflib
import functools
import importlib
import importlib.util
import inspect
import math
import re
import sys
import traceback
import typing
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError

OBJECTIVE_METHODS = ("reward_names", "combine_rewards")
# Built-in names and the modules that register them. Named, not imported: those modules import this one, and a run loads only
# the ones that it uses.
_WORDS, _GYM = "rl.rewards.words.rewards", "rl.rewards.gym.questions"
BUILT_IN = {
    "data provider": {"lc_easy": "tasks.lc_easy_tasks", "generated": "tasks.generated", "mixed": "tasks.mixed",
                      "reasoning_gym": _GYM,
                      **dict.fromkeys(("humaneval", "mbpp"), "tasks.code_benchmarks"),
                      **dict.fromkeys(("gsm8k", "math", "svamp", "gsm8k_math_curriculum"), "tasks.word_problems")},
    "reward": {"lisp_reward": "rl.rewards.lisp", "reasoning_gym_reward": _GYM,
               **dict.fromkeys(("format_tag_reward", "gsm8k_correctness_reward", "length_penalty_reward",
                                "token_utilisation_reward"), _WORDS)},
    "objective": {"lisp": "rl.rewards.lisp", "reasoning_gym": _GYM,
                  **dict.fromkeys(("additive", "weighted_length_penalty", "latent"), "rl.rewards.combining")},
}
# Modules that people's own files may import under their former names.
MOVED = {"rl.latent": "rl.rewards.combining", "rl.combining": "rl.rewards.combining", "rl.taskset": "rl.tasks",
         "rl.words": "rl.rewards.words"}
# How many positional arguments come later, when the thing that was built is called.
_KINDS = {"data provider": 1, "reward": 1, "objective": 0}
_PLUGINS: set[str] = set()    # files that were run


class Registered(NamedTuple):
    """What stands under a name, and what it declares of itself."""

    made: Callable
    reads: tuple[str, ...] = ()    # settings that nothing but this reward reads
    thinking: bool | None = None    # of a provider: whether its prompts ask for thinking; None where that is not known


_REGISTERED: dict[str, dict[str, Registered]] = {kind: {} for kind in _KINDS}


def register_data_provider(name: str, thinking: bool | None = None) -> Callable:
    """A decorator: the function is the data provider `name` from now on.

    It is called with TASKS_FILE and gives all tasks and the names of those held out of training, as a pair or as a
    tasks.Provided."""
    return _registers("data provider", name, thinking=thinking)


def register_reward(name: str, reads: Sequence[str] = ()) -> Callable:
    """A decorator: the function (samples, **kwargs) -> list of numbers, or the class, is the reward `name` from now on."""
    return _registers("reward", name, reads=tuple(reads))


def register_objective(name: str) -> Callable:
    """A decorator: the class (or function that makes one) is the objective `name` from now on."""
    return _registers("objective", name)


def build_data_provider(name: str, /, **kwargs) -> Callable:
    """The provider with its kwargs bound; InputError for an unknown name or kwargs that it does not take."""
    made, kwargs = _checked("data provider", name, kwargs)
    return functools.partial(made, **kwargs)


def build_reward(name: str, /, **kwargs) -> Callable:
    """The reward with its kwargs bound; InputError for an unknown name or kwargs that it does not take."""
    made, kwargs = _checked("reward", name, kwargs)
    if not inspect.isclass(made):
        return functools.partial(made, **kwargs)
    reward = run_outside(f"the reward {name}", made, **kwargs)
    if not callable(reward):
        raise InputError(f"the reward {name} is a class without __call__(self, samples), so it cannot be called")
    return reward


def build_objective(name: str, /, **kwargs):
    """The objective of that name, or of that class path; InputError for an unknown one, or kwargs that it does not take."""
    if ":" not in name:
        made, kwargs = _checked("objective", name, kwargs)
        return run_outside(f"the objective {name}", made, **kwargs)
    made, what = load_class_path(name), f"class_path {name}"
    if lacking := [method for method in OBJECTIVE_METHODS if not callable(getattr(made, method, None))]:
        raise InputError(f"{what} has no {' and no '.join(lacking)}, which an objective needs (rl/rewards/base.py)")
    if not inspect.isclass(made):
        raise InputError(f"{what} is a {type(made).__name__}, not a class; name the class, which is made from COMBINE_KWARGS")
    return run_outside(what, made, **fitting_kwargs(what, made, kwargs))


def declared(kind: str, name: str) -> Registered | None:
    """What is registered under that name, built-in modules loaded on demand; None for an unknown name."""
    if name not in _REGISTERED[kind] and (module := BUILT_IN[kind].get(name)):
        importlib.import_module(module)
    return _REGISTERED[kind].get(name)


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
        moved = f"; it is now {MOVED[error.name]}" if isinstance(error, ImportError) and error.name in MOVED else ""
        raise InputError(f"{what} raised {type(error).__name__}: {error}{place}{moved}") from error


def takes(kind: str, name: str, kwarg: str) -> bool:
    """Whether what is registered under the name has a kwarg of that name; False for an unknown one."""
    found = declared(kind, name)
    return found is not None and kwarg in inspect.signature(found.made).parameters


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
    return sorted({*BUILT_IN[kind], *_REGISTERED[kind]})


def _registers(kind, name, **declares):
    if not isinstance(name, str):    # used without parentheses, the decorator would be called with the function
        raise InputError(f"a {kind} is registered under a name: @register_{kind.replace(' ', '_')}(\"a_name\")")

    def register(made):
        known = _REGISTERED[kind].get(name)
        if known is not None and _origin(known.made) != _origin(made):
            raise InputError(f"the {kind} {name} is registered already, by {_origin(known.made)}; {_origin(made)} needs another "
                             "name")
        _REGISTERED[kind][name] = Registered(made, **declares)
        return made
    return register


def _origin(made):
    """Where it is defined: a module that is loaded twice registers the same thing twice, which is no conflict."""
    code = getattr(made, "__code__", None)
    file = code.co_filename if code else getattr(sys.modules.get(made.__module__), "__file__", made.__module__)
    return f"{Path(file).resolve()}{f':{code.co_firstlineno}' if code else ''} {made.__qualname__}"


def _checked(kind, name, kwargs):
    """What is registered under the name, and the kwargs once they are known to fit it."""
    if (found := declared(kind, name)) is None:
        names = registered(kind)
        raise InputError(f"no {kind} is called {name!r}{nearest(name, names)}; known are {', '.join(names)}")
    return found.made, fitting_kwargs(f"the {kind} {name}", found.made, kwargs, _KINDS[kind])


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


# ---- whether kwargs fit -----------------------------------------------------------------------------------------------


# The name of an annotation -> the types of plain values that fit it, and what to call it; of several, in a list.
_PLAIN = {"bool": (bool, "true or false"), "int": (int, "a whole number"), "float": (int | float, "a number"),
          "str": (str, "text")}
_SEVERAL = {"int": "whole numbers", "float": "numbers", "str": "texts"}


def nearest(name: str, known) -> str:
    """" (did you mean X?)" where one of the known names is close, else nothing."""
    near = difflib.get_close_matches(str(name), [*map(str, known)], n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def fitting_kwargs(what: str, made: Callable, kwargs: dict, given: int = 0) -> dict:
    """The kwargs, with numbers where a number is wanted and stands there as text, such as YAML's 5e-1.

    InputError names every one which `made` does not take, every one that it lacks, and every one of another type than it says.
    `given` is how many positional arguments come later, with each call; a class takes them then, in __call__."""
    parameters = list(inspect.signature(made).parameters.values())
    given = 0 if inspect.isclass(made) else given
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = [*positional[given:], *(p for p in parameters if p.kind is p.KEYWORD_ONLY)]
    takes = {p.name: p for p in named}
    problems, fitting = [], dict(kwargs)
    if len(positional) < given and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        problems.append(f"takes no argument, and is called with {given}")
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        problems += [f"takes no {name!r}{nearest(name, takes)}" for name in kwargs if name not in takes]
    problems += [f"needs {p.name!r}" for p in named if p.default is p.empty and p.name not in kwargs]
    for name in filter(takes.get, kwargs):
        try:
            fitting[name] = _numbers(takes[name], kwargs[name])
            wrong = fitting[name] is not takes[name].default and _other_type(takes[name].annotation, fitting[name])
        except ValueError:
            wrong = "a number"
        if wrong:
            problems.append(f"wants {wrong} for {name!r}, not {kwargs[name]!r}")
    if problems:
        raise InputError(f"{what} {', '.join(problems)}; it takes {', '.join(takes) or 'none'}")
    return fitting


def _numbers(parameter, value):
    """The value as a parameter that is a number, or a list of numbers, takes it; any other value as it is."""
    wanted = parameter.annotation
    if wanted is parameter.empty:    # then only the default tells, and what else may stand there is not known
        kinds = (int, float, str) if type(parameter.default) in (int, float) else ()
    else:
        inner = typing.get_args(wanted)[:1] if isinstance(value, list) else (wanted,)
        kinds = [kind for kind in (int, float) if inner and inner[0] in (kind, kind.__name__)]
    if isinstance(value, list):
        return [_number(kinds, part) for part in value]
    return _number(kinds, value)


def _number(kinds, value):
    """A text as the first of the kinds that it is a finite number of, else ValueError; without kinds the value itself."""
    if kinds == [int] and isinstance(value, float) and value.is_integer():    # 4e0 of YAML
        return int(value)
    if not kinds or not isinstance(value, str):
        return value
    for kind in kinds:
        if kind is str:
            return value
        with contextlib.suppress(ValueError, OverflowError):
            if math.isfinite(found := number(kind, value)):
                return found
    raise ValueError


def _other_type(wanted, value) -> str:
    """In words, what an annotation of plain values wants where the value is something else; "" where it fits."""
    if typing.get_origin(wanted) in (tuple, list, Sequence):
        inner = typing.get_args(wanted)[:1]
        good = isinstance(value, list | tuple) and not any(_other_type(*inner, part) for part in value)
        return "" if good else f"a list of {_SEVERAL.get(_named(*inner), 'values')}"
    if typing.get_origin(wanted) is typing.Literal:
        choices = typing.get_args(wanted)
        return "" if value in choices else " or ".join(map(str, choices))
    kinds, said = _PLAIN.get(_named(wanted), (object, ""))
    good = isinstance(value, kinds) and (not isinstance(value, bool) or kinds in (bool, object))
    return "" if good else said


def _named(annotation) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")



def number(kind: type, value) -> int | float:
    """`value` (a number, or its text as YAML 1.1 leaves '2e-5') as an int or a float; else ValueError or OverflowError."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    if kind is int and isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+", value):
        return int(value)
    found = float(value)
    if kind is int and found != math.floor(found):   # OverflowError for infinity, ValueError for NaN
        raise ValueError
    return kind(value if isinstance(value, int) else found)   # a float would round a large whole number
