"""A setting's value from what a user wrote: the leaf's type, within its limits.  Knows nothing of where it was written."""

import json
import math
import re

import yaml

from rl.settings import Kwargs, Leaf

WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def typed(leaf: Leaf, value):
    """`value` as the leaf's type and within its limits, or ValueError."""
    if leaf.type is bool:
        if isinstance(value, bool):
            return value
        if str(value).lower() not in WORDS:
            raise ValueError
        return WORDS[str(value).lower()]
    if leaf.type is Kwargs:
        return Kwargs(mapping_text(value))
    if leaf.names:
        return _names(leaf.names, value)
    if leaf.type is str:
        value = _choice(leaf, value) if leaf.spellings else value
        if not isinstance(value, str) or (leaf.choices and value not in leaf.choices):
            raise ValueError
        if leaf.pattern and not re.fullmatch(leaf.pattern, value):
            raise ValueError
        return value
    found = number(leaf.type, value)
    if not leaf.low <= found <= leaf.high:   # false for NaN too
        raise ValueError
    return found


def mapping_text(value) -> str:
    """A mapping, or its text as YAML or JSON, as JSON text with sorted keys; ValueError where it is none."""
    try:
        found = yaml.safe_load(value) if isinstance(value, str) else value
        if not isinstance(found, dict):
            raise ValueError
        return json.dumps(found, sort_keys=True, allow_nan=False)
    except (yaml.YAMLError, TypeError, RecursionError) as error:
        raise ValueError from error


def _choice(leaf, value):
    """The choice that `value` spells, in any case, with or without - and _; anything else as it is."""
    spelt = {**dict(zip(leaf.choices, leaf.choices, strict=True)), **leaf.spellings}
    return {_folded(text): choice for text, choice in spelt.items()}.get(_folded(value), value)


def _folded(text) -> str:
    return re.sub("[-_]", "", str(text)).lower()


def _names(known, value) -> str:
    """A list of known names, as text or as YAML has it, each once: comma-separated and in the order of `known`."""
    if not isinstance(value, str | list):
        raise ValueError
    found = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not found or any(name not in known or found.count(name) > 1 for name in found):
        raise ValueError
    return ",".join(name for name in known if name in found)


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
