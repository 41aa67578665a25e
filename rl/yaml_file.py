"""A YAML file of settings as a mapping, with what is wrong with it in words. Knows no setting."""

from pathlib import Path

import yaml


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
