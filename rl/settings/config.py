"""Settings read from the environment and YAML, checked all at once, and written back into a run.

Default < `CONFIG=file.yaml` < environment variable (the leaf of rl/settings/declared.py in capitals, or one of its aliases). The
file may nest the leaves by section or list them flat. A blank variable counts as unset, except for a text setting whose
default is blank (LORA= asks for no adapter). RESUME takes everything from the run's own config.yaml.

Not checked here: whether a model, an adapter or a task exists. Those who load them say so, before the heavy work.
"""

import json
import math
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from rl.errors import InputError
from rl.settings import paths
from rl.settings.checks import keeps, near_misses, training_problems, unread_problems, way_on
from rl.settings.declared import LEAVES, NAMES, SECTIONS, Kwargs, Leaf, Settings, text_of, value_of
from rl.settings.paths import as_written, located
from rl.settings.values import read_mapping, typed

__all__ = ["Loaded", "Settings", "SettingsError", "adopt", "check_training", "chosen", "decide", "dump", "from_run", "listing",
           "load", "provenance", "recorded"]


class SettingsError(InputError):
    """Every problem found in the settings at once, one per line; `problems` lists them."""

    def __init__(self, problems):
        self.problems = tuple(problems)
        super().__init__("\n".join([f"{len(self.problems)} problem(s) in the settings:", *self.problems]))


class Loaded(NamedTuple):
    """Settings, where each came from ("default", "CONFIG <file>", "env <NAME>", "run <folder>"), and warnings.

    `before` has the former value of each setting that a resume changes."""
    settings: Settings
    origins: dict[str, str]
    warnings: list[str]
    before: dict[str, Any] = {}


class Given(NamedTuple):
    """A value as the user wrote it: `shown` is its spelling in messages, `name` the name used, `place` its source."""
    leaf: Leaf
    name: str
    value: Any
    shown: str
    place: str


SECTION_ALIASES = {"rewards": "reward", "experiment": "run"}    # as other trainers' files call them

# The parts of a run's config.yaml that record versions and the like, and where settings came from; no settings, so skipped.
ABOUT, ORIGINS = "about", "origins"
SWEEP = "sweep"    # a grid for scripts/sweep.py, which reads it; whoever trains by that file trains what the rest says
OWN_DEFAULT = "this command's default"    # an origin
PLACES = ("out", "resume")   # where a run lies, not what it is: left out of its config.yaml, which may be moved


def load(environ, training=False, own: dict[str, Any] | None = None, nowhere: Collection[str] = ()) -> Loaded:
    """Settings from the defaults, the CONFIG file and the environment; from the run's own file when RESUME is given.

    With `training` set, what check_training refuses is reported among the other problems, and what train_grpo.py would not read.
    `own` are the defaults of another command that trains, where they are not the declared ones; `nowhere` are settings that have
    no place in it, so only their defaults are taken.
    """
    problems, own = [], own or {}
    config = environ.get("CONFIG", "").strip()
    from_file = _accept(_read_yaml(config, problems), problems, own) if config else {}
    from_env = _accept(_read_environ(environ), problems, own)
    chosen = {name: (value, OWN_DEFAULT) for name, value in own.items()} | from_file | from_env
    problems += _misplaced(chosen, own, nowhere)
    if "resume" not in nowhere and "resume" in chosen and (folder := chosen["resume"][0]):
        return from_run(str(paths.place(chosen.get("cache_dir", ("",))[0], "runs", folder)), environ)
    checks = [training_problems] * training + [unread_problems] * (training and not own)
    return _finish(chosen, problems, environ, checks)


def _misplaced(chosen, own, nowhere) -> list[str]:
    """The problem with settings that have no place in this command, where some are asked for."""
    wrong = [f"{name.upper()}={text_of(chosen[name][0])}" for name in nowhere
             if name in chosen and chosen[name][0] != own.get(name, LEAVES[name].default)]
    return [f"{', '.join(wrong)}: nothing here for such settings to act on; unset them, or use train_grpo.py"] * bool(wrong)


def from_run(folder, environ) -> Loaded:
    """Settings of the run in `folder`; the environment may change the few marked `on_resume` and repeat the others."""
    problems = []
    if not _run_file(folder).is_file():
        parent = next((f" (such as {parent})" for parent in Path(folder).parents if _run_file(parent).is_file()), "")
        raise SettingsError([f"RESUME={folder}: there is no config.yaml in it; give the folder of a run{parent}"])
    saved = _accept(_read_yaml(_run_file(folder), problems), problems)
    saved = {name: (value, f"run {folder}") for name, (value, _) in saved.items()}
    if config := environ.get("CONFIG", "").strip():
        problems.append(f"CONFIG={config}: a resumed run takes its settings from {_run_file(folder)}; unset CONFIG")
    asked = _accept(_read_environ(environ), problems)
    problems += _forbidden(folder, saved, asked)
    changed = {name: given for name, given in asked.items() if LEAVES[name].on_resume}
    here = {"out": (str(folder), f"run {folder}"), "resume": (str(folder), "env RESUME")}
    kept = {name: saved.get(name, (LEAVES[name].default,))[0] for name in changed}
    before = {name: kept[name] for name, (value, _) in changed.items() if value != kept[name]}
    return _finish(saved | changed | here, problems, environ, [training_problems])._replace(before=before)


def _forbidden(folder, saved, asked) -> list[str]:
    """What the environment asks of a resumed run that the run cannot give without becoming another run."""
    problems = []
    for name, (value, origin) in asked.items():
        kept = saved.get(name, (LEAVES[name].default,))[0]
        if name == "out" and value and Path(value).resolve() != Path(folder).resolve():
            problems.append(f"OUT={value}: the run goes on in {folder}; unset OUT")
        elif name not in PLACES and value != kept and (why := keeps(name, saved.get("scheduler", ("constant",))[0])):
            problems.append(f"{origin.removeprefix('env ')}={text_of(value)}: the run has {name.upper()}="
                            f"{text_of(kept)} and {why}; unset the variable, or start a new run")
    return problems


def recorded(folder, part=ABOUT) -> dict:
    """What the config.yaml of a run records beside its settings: about the program (ABOUT), or their ORIGINS."""
    return yaml.safe_load(_run_file(folder).read_text(encoding="utf-8")).get(part) or {}


def decide(loaded: Loaded, name: str, value: Any, why: str) -> Loaded:
    """The settings with what "auto" came to; `why` is its origin from now on."""
    return loaded._replace(settings=_with(loaded.settings, {name: value}), origins=loaded.origins | {name: f"auto: {why}"})


def adopt(loaded: Loaded, values: dict[str, Any], place: str) -> Loaded:
    """The settings with values that `place`, such as the adapter to start from, fixes; one chosen otherwise is a problem."""
    problems, brought = [], {}
    for name, value in values.items():
        leaf, asked = LEAVES[name], value_of(loaded.settings, name)
        try:
            brought[name] = value = typed(leaf, value)
        except (ValueError, OverflowError):
            problems.append(f"{place} has {name.upper()}={text_of(value)}; this program takes {leaf.limits}")
            continue
        equal = asked == value or leaf.type is not str and math.isclose(asked, value, rel_tol=1e-6)
        if loaded.origins[name] != "default" and not equal:
            problems.append(f"{name.upper()}={text_of(asked)} ({loaded.origins[name]}): {place} has {name.upper()}="
                            f"{text_of(value)} and keeps it; leave {name.upper()} out, or start a new adapter")
    if problems:
        raise SettingsError(problems)
    return loaded._replace(settings=_with(loaded.settings, brought), origins=loaded.origins | dict.fromkeys(brought, place))


def provenance(loaded: Loaded) -> dict[str, str]:
    """Leaf name -> where its value came from, for all but the defaults; a resumed run keeps what it first recorded."""
    run = loaded.settings.run.resume
    first, found = recorded(run, ORIGINS) if run else {}, {}
    for name, origin in loaded.origins.items():
        kept = bool(run) and origin == f"run {run}"
        if kept and value_of(loaded.settings, name) != LEAVES[name].default:
            origin = first.get(name, "not recorded")
        elif kept:
            origin = first.get(name, "default")
        if origin != "default" and name not in PLACES:
            found[name] = f"{origin}, on resume" if run and not kept else origin
    return found


def chosen(loaded: Loaded) -> list[str]:
    """NAME=value of all that somebody set; of a resumed run first what this resume changes, with the former value."""
    origins = provenance(loaded) if loaded.settings.run.resume else loaded.origins
    names = [name for name, origin in origins.items()
             if origin not in ("default", OWN_DEFAULT) and not origin.startswith("auto")]
    said = {name: f"{name.upper()}={text_of(value_of(loaded.settings, name))}" for name in names}
    changed = [f"{said.pop(name)} (was {text_of(value) or 'blank'})" for name, value in loaded.before.items()]
    return [*changed, *said.values()]


def check_training(settings: Settings) -> None:
    """Refuse settings that each are legal but with which training is meaningless; probes do without this."""
    if problems := training_problems(settings):
        raise SettingsError(problems)


def dump(settings: Settings, about: dict | None = None, origins: dict | None = None) -> str:
    """The settings as YAML by section, readable by CONFIG and RESUME; `about` and `origins` are recorded beside them."""
    tree, settings = {}, as_written(settings)
    for leaf in LEAVES.values():
        if leaf.name not in PLACES:
            value = value_of(settings, leaf.name)
            tree.setdefault(leaf.section, {})[leaf.name] = json.loads(value) if leaf.type is Kwargs else value
    beside = {name: part for name, part in ((ORIGINS, origins), (ABOUT, about)) if part}
    return yaml.safe_dump(tree | beside, sort_keys=False, allow_unicode=True)


def listing(loaded: Loaded) -> str:
    """One line per setting with its value and its origin, by section."""
    lines = []
    for section in SECTIONS:
        lines.append(f"{section}:")
        lines += [f"  {name.upper():<20} {text_of(value_of(loaded.settings, name)):<24} {loaded.origins[name]}"
                  for name, leaf in LEAVES.items() if leaf.section == section]
    return "\n".join(lines)


def _read_yaml(path, problems) -> list[Given]:
    """The settings a YAML file gives; what cannot be used is appended to `problems`."""
    return [given for key, value in read_mapping(path, problems).items() for given in _flatten(path, str(key), value, problems)]


def _flatten(path, key, value, problems) -> list[Given]:
    """The settings under one top-level key: a section's, or the key itself."""
    if key in (ABOUT, ORIGINS, SWEEP):
        return []
    key = SECTION_ALIASES.get(key, key)
    if key in SECTIONS and (value is None or isinstance(value, dict)):
        return [given for name, inner in (value or {}).items()
                for given in _from_key(path, str(name), inner, key, problems)]
    if key in SECTIONS and key not in NAMES:
        problems.append(f"{path}: {key}: {_short(value)}: {key} is a section; nest its settings below it")
        return []
    return _from_key(path, key, value, None, problems)


def _from_key(path, key, value, section, problems) -> list[Given]:
    """The setting that `key` names, unless it is unknown, in the wrong section, or null (which means unset)."""
    where = f"{path}: {section}." if section else f"{path}: "
    leaf = NAMES.get(key)
    if leaf is None:
        problems.append(f"{where}{key}: unknown setting; {way_on(key, section)}")
    elif section not in (None, leaf.section):
        problems.append(f"{where}{key}: {leaf.name} is in section {leaf.section}; move it there, or to the top level")
    elif value is not None:
        return [Given(leaf, key, value, f"{where}{key}: {_short(value)}",
                      f"CONFIG {path}" + (f" ({key})" if key != leaf.name else ""))]
    return []


def _read_environ(environ) -> list[Given]:
    """The settings the environment gives."""
    found = [(name, leaf, environ[name.upper()].strip()) for name, leaf in NAMES.items() if name.upper() in environ]
    return [Given(leaf, name, value, f"{name.upper()}={_short(value)}", f"env {name.upper()}")
            for name, leaf, value in found if value or (leaf.type is str and leaf.default == "")]


def _accept(givens, problems, own=MappingProxyType({})) -> dict[str, tuple[Any, str]]:
    """Leaf name -> (typed value, place); bad values, and two spellings of one setting that disagree, are problems.

    `own` are the defaults that are not the declared ones."""
    accepted, shown = {}, {}
    for given in givens:
        leaf = given.leaf
        try:
            value = typed(leaf, given.value)
        except (ValueError, OverflowError):
            quoted = ", in quotes" if leaf.type is str and not leaf.names and not isinstance(given.value, str) else ""
            problems.append(f"{given.shown}: {leaf.name.upper()} takes {leaf.limits}{quoted} ({leaf.help}); "
                            f"leave it out for the default, {text_of(own.get(leaf.name, leaf.default)) or 'blank'}")
            continue
        if leaf.name in accepted and accepted[leaf.name][0] != value:
            problems.append(f"{given.shown}: contradicts {shown[leaf.name]}, the same setting; keep one")
        accepted[leaf.name] = value, given.place
        shown[leaf.name] = given.shown
    return accepted


def _run_file(folder) -> Path:
    return Path(folder) / "config.yaml"


def _short(value) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _finish(chosen, problems, environ, checks) -> Loaded:
    """Settings with the chosen values; raises everything found wrong."""
    settings = _with(Settings(), {name: value for name, (value, _) in chosen.items()})
    if problems := problems + [problem for check in checks for problem in check(settings)]:
        raise SettingsError(problems)
    origins = {name: chosen[name][1] if name in chosen else "default" for name in LEAVES}
    return Loaded(located(settings), origins, near_misses(environ))


def _with(settings: Settings, values: dict[str, Any]) -> Settings:
    """The settings with these leaves changed."""
    for name, value in values.items():
        section = LEAVES[name].section
        settings = replace(settings, **{section: replace(getattr(settings, section), **{name: value})})
    return settings
