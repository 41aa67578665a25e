"""Which of Reasoning Gym's families are meant, with which knobs: read from a line of text.

The families and knobs that exist, and what a family says against a value, are known to a running Gym (client.py)."""

import difflib
import math
from typing import NamedTuple

from rl.errors import InputError

TAKES = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a word"}


class Family(NamedTuple):
    """A family with the knobs that are not left at their defaults."""

    name: str
    config: tuple[tuple[str, int | float | bool | str], ...] = ()

    @property
    def text(self) -> str:
        """What parse_families reads: chain_sum:max_terms=3:min_terms=2, knobs in order."""
        shown = {knob: str(value).lower() if isinstance(value, bool) else value for knob, value in self.config}
        return ":".join([self.name, *(f"{knob}={value}" for knob, value in shown.items())])


def parse_families(text: str, gym) -> list[Family]:
    """The families of "chain_sum:max_terms=3,leg_counting"; one InputError names all that is wrong."""
    families, problems = [], []
    for part in filter(None, (part.strip() for part in text.split(","))):
        family, wrong = _parsed(part, gym)
        if not wrong and (said := gym.problem(family)):
            wrong = [f"{part}: {said}"]
        if not wrong and family in families:
            wrong = [f"{family.text} stands there twice"]
        problems += wrong
        families += [] if wrong else [family]
    if not families and not problems:
        problems = ["there is none; give some, such as chain_sum:max_terms=3,leg_counting"]
    if any(_unlike(part.partition(":")[0].strip(), gym) for part in text.split(",")):
        problems.append(f"the {len(gym.families)} families are {', '.join(sorted(gym.families))}")
    if problems:
        raise InputError(f"families {text!r}: {'; '.join(problems)}")
    return families


def _parsed(part, gym):
    """(the family of one part, what is wrong with it)"""
    name, *settings = (word.strip() for word in part.split(":"))
    if name not in gym.families:
        return Family(name), [f"{name}: no such family{_nearest(name, gym.families)}"]
    known, config, wrong = gym.families[name], {}, []
    takes = {knob: row for knob, row in known.items() if row[0]}
    for setting in settings:
        knob, _, written = (word.strip() for word in setting.partition("="))
        if knob not in takes:
            kind = "takes a list or the like, which cannot be written here" if knob in known else "no such knob"
            wrong.append(f"{name}:{knob}: {kind}{_nearest(knob, takes)}; it has {', '.join(takes) or 'none'}")
        elif knob in config:
            wrong.append(f"{name}:{knob} is set twice")
        elif (value := _value(takes[knob], written)) is None:
            kind, default, choices = takes[knob]
            wrong.append(f"{name}:{knob}={written}: takes {' or '.join(choices) or TAKES[kind]}, default {default}")
        else:
            config[knob] = value
    return Family(name, tuple(sorted(config.items()))), wrong


def _value(takes, written):
    """A knob's value, None where it is none of its kind."""
    kind, _, choices = takes
    if kind == "bool":
        return {"true": True, "1": True, "false": False, "0": False}.get(written.lower())
    if kind == "str":
        return written if written and (not choices or written in choices) else None
    try:
        number = int(written) if kind == "int" else float(written)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _unlike(name, gym):
    """Whether it is neither a family nor nearly one's name."""
    return bool(name) and name not in gym.families and not _nearest(name, gym.families)


def _nearest(name, known):
    near = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""
