"""From text or YAML to a setting's value, checked against type and limits; and a YAML file as a mapping.

YAML's scalars stay text until the setting that they are for reads them, so a value means the same in a file and in the
environment: 0600 is 600, and 1:30 is not a number. YAML 1.1 makes these 384 and 90."""

import contextlib
import json
import re
from pathlib import Path

import yaml

from rl.registry import number
from rl.settings.declared import Kwargs, Leaf, Retired, text_of
from rl.settings.trl import Name

SWITCHES = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def parse(leaf: Leaf, value):
    """`value` in the setting's type; ValueError or OverflowError unless it fits type and limits."""
    if leaf.type is bool:
        if isinstance(value, bool):
            return value
        if str(value).lower() not in SWITCHES:
            raise ValueError
        return SWITCHES[str(value).lower()]
    if leaf.type is Kwargs:
        return Kwargs(mapping_text(value))
    if leaf.names:
        return _name_list(leaf.names, value)
    if leaf.name == "tracker" and isinstance(value, list) and len(value) < 2:    # as TRL writes report_to
        value = value[0] if value else "none"
    if leaf.type is str:
        value = _choice(leaf, value) if leaf.spellings else value
        if not isinstance(value, str) or (leaf.choices and value not in leaf.choices):
            raise ValueError
        if leaf.pattern and not re.fullmatch(leaf.pattern, value):
            raise ValueError
        return str(value)
    found = number(leaf.type, value)
    if not leaf.low <= found <= leaf.high:   # also refuses NaN
        raise ValueError
    return found


def is_constant(old: Retired, value) -> bool:
    """Whether `value` is the constant that a retired setting now is, in any of its spellings."""
    if isinstance(old.fixed, float):
        try:
            return number(float, value) == old.fixed
        except (ValueError, OverflowError):
            return False
    return value == old.fixed or _folded(value) in map(_folded, old.spellings)


def translated(known: Name, value) -> tuple[str, str] | None:
    """(setting, value) that one of TRL's names becomes, None if it changes nothing; LookupError or
    ValueError for values without equivalent."""
    text = str(value)
    if text.lower() in SWITCHES and {"true", "false"} & {*known.becomes}:
        text = text_of(SWITCHES[text.lower()])
    elif text not in known.becomes:
        text = f"{number(float, text):g}"
    return known.becomes[text]


def mapping_text(value) -> str:
    """A mapping, or its YAML or JSON text, as JSON text with sorted keys; ValueError for anything else."""
    found = entry(value)
    if not isinstance(found, dict):
        raise ValueError
    try:
        return json.dumps(found, sort_keys=True, allow_nan=False)
    except (TypeError, RecursionError) as error:
        raise ValueError from error


def entry(value):
    """An entry of a mapping, or its YAML text: numbers, switches and null where they stand without quotes, else text.

    ValueError if it is not YAML, or not a finite number."""
    try:
        return _typed(yaml.load(value, _Yaml) if isinstance(value, str) else value)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError from error


def _typed(value):
    if isinstance(value, dict):
        return {str(name): _typed(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_typed(inner) for inner in value]
    if not isinstance(value, _Plain):
        return value
    if value.lower() in SWITCHES and not value.isdigit():
        return SWITCHES[value.lower()]
    if re.fullmatch(r"[+-]?\.(inf|nan)", value, re.IGNORECASE):
        raise ValueError
    if not re.fullmatch(r"[+-]?[0-9_.]+([eE][+-]?[0-9]+)?", value):
        return str(value)
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(value)
    return str(value)


def _choice(leaf, value):
    """The choice that `value` stands for, ignoring case, - and _; unknown values are returned unchanged."""
    spellings = {**dict(zip(leaf.choices, leaf.choices, strict=True)), **leaf.spellings}
    return {_folded(text): choice for text, choice in spellings.items()}.get(_folded(value), value)


def _folded(text) -> str:
    return re.sub("[-_]", "", str(text)).lower()


def _name_list(known, value) -> str:
    """A comma-separated text or a list of known names, each once, as comma-separated text in the order of `known`."""
    if not isinstance(value, str | list):
        raise ValueError
    found = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if found == ["all-linear"]:    # PEFT's name for all of them
        return ",".join(known)
    if not found or any(name not in known or found.count(name) > 1 for name in found):
        raise ValueError
    return ",".join(name for name in known if name in found)


# ---- YAML files -------------------------------------------------------------------------------------------------------


class _Plain(str):
    """A scalar without quotes, as it was written."""


class _Yaml(yaml.SafeLoader):
    """SafeLoader that leaves scalars as text, refuses repeated keys, of which PyYAML would keep the last, and gives the position
    of every bad value."""
    yaml_implicit_resolvers = {
        **dict.fromkeys(("~", "n", "N", ""), [("tag:yaml.org,2002:null", re.compile(r"(~|null|Null|NULL|)\Z"))]),
        "<": [("tag:yaml.org,2002:merge", re.compile(r"<<\Z"))], None: [("!plain", re.compile(""))]}

    def construct_object(self, node, deep=False):
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:    # such as the date 2026-13-45
            raise yaml.constructor.ConstructorError(None, None, f"{node.value!r}: {error}", node.start_mark) from error

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if (name := str(key.value)) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {name} is given twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


def _as_written(check):
    """A constructor that checks what a tag such as !!int promises and leaves the text as it is."""
    def construct(loader, node):
        check(text := loader.construct_scalar(node))
        return _Plain(text)
    return construct


for _tag, _check in (("!plain", str), ("tag:yaml.org,2002:int", lambda text: number(int, text)),
                     ("tag:yaml.org,2002:float", lambda text: number(float, text)),
                     ("tag:yaml.org,2002:bool", lambda text: SWITCHES[text.lower()])):
    _Yaml.add_constructor(_tag, _as_written(_check))


def read_mapping(path: str | Path, problems: list[str]) -> dict:
    """The mapping in a YAML file; if it cannot be read, {} and one more line in `problems`."""
    try:
        content = Path(path).read_bytes()
        tree = yaml.load(content.decode(), _Yaml)
    except OSError as error:
        problems.append(f"{path}: {error.strerror or error}; give the path of a YAML file of settings")
        return {}
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:    # RecursionError: endless brackets
        problems.append(f"{path}: not valid YAML: {_one_line(error, content)}")
        return {}
    if tree is not None and not isinstance(tree, dict):
        kind = "a list" if isinstance(tree, list) else "text"
        problems.append(f"{path}: holds {kind}; write 'name: value' lines, nested by section or flat")
        return {}
    return tree or {}


def _one_line(error: Exception, content: bytes) -> str:
    """The error in one line, with its line and column in the file."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {content[error.start]:#04x} is not UTF-8, at {_position(content[:error.start].decode())}"
    if isinstance(error, yaml.reader.ReaderError):    # it gives an offset only
        return f"character {error.character:#04x} is not allowed in YAML, at {_position(content.decode()[:error.position])}"
    return " ".join(str(error).split()).replace('in "<unicode string>", ', "at ")    # the message begins with the file's name


def _position(before: str) -> str:
    """Line and column of what follows this text, as YAML's own messages give them."""
    return f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"
