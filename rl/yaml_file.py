"""A YAML file of settings as a mapping, with what is wrong with it in words. Knows no setting."""

from pathlib import Path

import yaml


class _Yaml(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice, where PyYAML would silently keep the last one."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if (name := str(key.value)) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {name} is given twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


def read_mapping(path: str | Path, problems: list[str]) -> dict:
    """The file's mapping; where it has none that can be used, {} and a line more in `problems`."""
    try:
        tree = yaml.load(Path(path).read_text(encoding="utf-8"), _Yaml)
    except OSError as error:
        problems.append(f"{path}: {error.strerror or error}; give the path of a YAML file of settings")
        return {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:    # no UTF-8, a date such as 2026-13-45, brackets without end
        said = " ".join(str(error).split()).replace('in "<unicode string>", ', "at ")    # the file's name stands before it
        problems.append(f"{path}: not valid YAML: {said}")
        return {}
    if tree is not None and not isinstance(tree, dict):
        problems.append(f"{path}: holds a {type(tree).__name__}; write 'name: value' lines, nested by section or not")
        return {}
    return tree or {}
