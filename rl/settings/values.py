"""What a user wrote as a value: text or YAML into the setting's type and limits, and a YAML file as a mapping."""

import json
import re
from pathlib import Path

import yaml

from rl.registry import number
from rl.settings.declared import Kwargs, Leaf

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


# ---- YAML files -------------------------------------------------------------------------------------------------------


class _Yaml(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice, where PyYAML would keep the last one, and says where a value is wrong."""

    def construct_object(self, node, deep=False):
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:    # such as of a date 2026-13-45
            raise yaml.constructor.ConstructorError(None, None, f"{node.value!r}: {error}", node.start_mark) from error

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if (name := str(key.value)) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {name} is given twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


def read_mapping(path: str | Path, problems: list[str]) -> dict:
    """The file's mapping; where it has none that can be used, {} and a line more in `problems`."""
    try:
        content = Path(path).read_bytes()
        tree = yaml.load(content.decode(), _Yaml)
    except OSError as error:
        problems.append(f"{path}: {error.strerror or error}; give the path of a YAML file of settings")
        return {}
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:    # the last: brackets without end
        problems.append(f"{path}: not valid YAML: {_said(error, content)}")
        return {}
    if tree is not None and not isinstance(tree, dict):
        problems.append(f"{path}: holds a {type(tree).__name__}; write 'name: value' lines, nested by section or not")
        return {}
    return tree or {}


def _said(error: Exception, content: bytes) -> str:
    """The error on one line, with the line and column in the file."""
    if isinstance(error, UnicodeDecodeError):
        return f"the byte {content[error.start]:#04x} is no UTF-8, at {_place(content[:error.start].decode())}"
    if isinstance(error, yaml.reader.ReaderError):    # tells the position alone
        return f"the character {error.character:#04x} cannot stand in YAML, at {_place(content.decode()[:error.position])}"
    return " ".join(str(error).split()).replace('in "<unicode string>", ', "at ")    # the file's name stands before it


def _place(before: str) -> str:
    """Where what follows this text is, in YAML's own words."""
    return f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"
