"""Whether a mapping from YAML fits the function or class that it is meant for, with what is wrong in words."""

import contextlib
import difflib
import inspect
import math
import typing
from collections.abc import Callable, Sequence

from rl.errors import InputError
from rl.values import number

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
