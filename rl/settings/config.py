"""Settings read from defaults, a YAML file and the environment, checked together, and written into a run's config.yaml.

Default < `CONFIG=file.yaml` < environment variable. A variable is called like the setting in rl/settings/declared.py, or one of
its aliases, in capitals. The file may nest settings by section or list them flat. A blank variable counts as unset, except for a
text setting whose default is blank (LORA= asks for no adapter). With RESUME all settings come from the run's own config.yaml.

Whether a model, an adapter or a task exists is checked by the code that loads it."""

import json
import math
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from rl.errors import InputError
from rl.registry import takers
from rl.settings.checks import fixed_on_resume, training_problems, without_effect
from rl.settings.declared import (
    EARLIER,
    LEAVES,
    NAMES,
    RETIRED,
    RETIRED_NAMES,
    SECTIONS,
    Kwargs,
    Leaf,
    Retired,
    Settings,
    text_of,
    value_of,
)
from rl.settings.help import misspelt_variables, what_was_meant
from rl.settings.paths import resolved_path, with_absolute_paths, with_relative_paths
from rl.settings.trl import BATCH, COMPUTED, IN_ENVIRON, TRL, VALUES, Name
from rl.settings.values import is_constant, number, parse, read_mapping, translated


class SettingsError(InputError):
    """Everything wrong with the settings, one line each; `problems` lists the lines."""

    def __init__(self, problems):
        self.problems = tuple(problems)
        super().__init__("\n".join([f"{len(self.problems)} problem(s) in the settings:", *self.problems]))


class Loaded(NamedTuple):
    """Settings, the origin of each ("default", "CONFIG <file>", "env <NAME>", "run <folder>"), and warnings.

    before: the former values of settings that a resume changes."""
    settings: Settings
    origins: dict[str, str]
    warnings: list[str]
    before: dict[str, Any] = {}


class Given(NamedTuple):
    """A value as the user wrote it."""
    setting: Leaf | Retired | Name
    value: Any
    shown: str     # name and value, for messages
    origin: str
    part: bool = False    # whether the value is one entry of a mapping


SECTION_ALIASES = {"rewards": "reward", "experiment": "run"}    # names in other trainers' files
ALL_SECTIONS = {*SECTIONS, *(old.section for old in RETIRED.values())}
ABOUT, ORIGINS = "about", "origins"    # parts of a run's config.yaml that are records, not settings
SWEEP = "sweep"    # read by scripts/sweep.py only
OWN_DEFAULT = "this command's default"    # an origin
PLACES = ("out", "resume")    # where a run lies; not in its config.yaml, so that it can be moved


def named_model(arguments: list[str]) -> dict[str, str]:
    """The model that a command line names, as a setting; InputError where it has more than one word."""
    if len(arguments) > 1:
        raise InputError(f"{len(arguments)} arguments ({' '.join(arguments)}): give one model, and other settings as variables")
    return {"MODEL": arguments[0]} if arguments else {}


def load(environ, training=False, defaults: dict[str, Any] | None = None, unused: Collection[str] = ()) -> Loaded:
    """Settings from defaults, CONFIG and environment, or from a run if RESUME is set; SettingsError lists all problems.

    training: also refuse what makes training meaningless, and warn of settings without effect. defaults: those of a command
    that has its own. unused: settings that this command does not have; giving them is a problem."""
    problems, defaults = [], defaults or {}
    file = environ.get("CONFIG", "").strip()
    given = {name: (value, OWN_DEFAULT) for name, value in defaults.items()}
    given |= _accepted(_in_file(file, problems), problems, defaults) if file else {}
    given |= _accepted(_in_environ(environ), problems, defaults)
    given, warnings = _computed(given, problems)
    problems += _unused(given, defaults, unused)
    if "resume" not in unused and "resume" in given and (folder := given["resume"][0]):
        cache_dir = given["cache_dir"][0] if "cache_dir" in given else ""
        return _from_run(str(resolved_path(cache_dir, "runs", folder)), environ, training)
    return _loaded(given, problems, environ, training, warnings, proof=bool(defaults))


def _unused(given, defaults, unused) -> list[str]:
    """The problem with settings that this command does not have, if any are given."""
    wrong = [f"{name.upper()}={text_of(given[name][0])}" for name in unused
             if name in given and given[name][0] != defaults.get(name, LEAVES[name].default)]
    return [f"{', '.join(wrong)}: no effect in this command; unset them, or use train_grpo.py"] * bool(wrong)


def _from_run(folder, environ, training=True) -> Loaded:
    """Settings of the run in `folder`; the environment may change those marked `on_resume` and repeat the others."""
    problems, origin = [], f"run {folder}"
    if not _config_file(folder).is_file():
        parent = next((f" (such as {parent})" for parent in Path(folder).parents if _config_file(parent).is_file()), "")
        raise SettingsError([f"RESUME={folder}: there is no config.yaml in it; give the folder of a run{parent}"])
    saved = _accepted(_in_file(_config_file(folder), problems), problems)
    saved = {name: (value, origin) for name, (value, _) in saved.items()}
    if file := environ.get("CONFIG", "").strip():
        problems.append(f"CONFIG={file}: a resumed run takes its settings from {_config_file(folder)}; unset CONFIG")
    asked, warnings = _computed(_accepted(_in_environ(environ), problems), problems, saved)
    problems += _changes_refused(folder, saved, asked)
    changed = {name: given for name, given in asked.items() if LEAVES[name].on_resume}
    here = {"out": (str(folder), origin), "resume": (str(folder), "env RESUME")}
    kept = {name: saved.get(name, (LEAVES[name].default,))[0] for name in changed}
    before = {name: kept[name] for name, (value, _) in changed.items() if value != kept[name]}
    return _loaded(saved | changed | here, problems, environ, training, warnings)._replace(before=before)


def _changes_refused(folder, saved, asked) -> list[str]:
    """The problems with changes that would make it another run."""
    problems = []
    for name, (value, origin) in asked.items():
        kept = saved.get(name, (LEAVES[name].default,))[0]
        if name == "out" and value and Path(value).resolve() != Path(folder).resolve():
            problems.append(f"OUT={value}: the run goes on in {folder}; unset OUT")
        elif name not in PLACES and value != kept and (why := fixed_on_resume(name, saved.get("scheduler", ("constant",))[0])):
            problems.append(f"{origin.removeprefix('env ')}={text_of(value)}: the run has {name.upper()}="
                            f"{text_of(kept)} and {why}; unset the variable, or start a new run")
    return problems


def recorded(folder, part=ABOUT) -> dict:
    """What a run's config.yaml records beside the settings: versions and the like (ABOUT), or the settings' ORIGINS."""
    return yaml.safe_load(_config_file(folder).read_text(encoding="utf-8")).get(part) or {}


def decide(loaded: Loaded, name: str, value: Any, why: str) -> Loaded:
    """The settings with the value chosen for one that was left on auto; `why` goes into its origin."""
    return loaded._replace(settings=_with(loaded.settings, {name: value}), origins=loaded.origins | {name: f"auto: {why}"})


def adopt(loaded: Loaded, values: dict[str, Any], origin: str) -> Loaded:
    """The settings with values fixed by `origin`, such as an adapter; SettingsError if the user set one of them otherwise."""
    problems, adopted = [], {}
    for name, value in values.items():
        leaf, asked = LEAVES[name], value_of(loaded.settings, name)
        try:
            adopted[name] = value = parse(leaf, value)
        except (ValueError, OverflowError):
            problems.append(f"{origin} has {name.upper()}={text_of(value)}; this program takes {leaf.limits}")
            continue
        equal = asked == value or leaf.type is not str and math.isclose(asked, value, rel_tol=1e-6)
        if loaded.origins[name] != "default" and not equal:
            problems.append(f"{name.upper()}={text_of(asked)} ({loaded.origins[name]}): {origin} has {name.upper()}="
                            f"{text_of(value)} and keeps it; leave {name.upper()} out, or start a new adapter")
    if problems:
        raise SettingsError(problems)
    return loaded._replace(settings=_with(loaded.settings, adopted), origins=loaded.origins | dict.fromkeys(adopted, origin))


def provenance(loaded: Loaded) -> dict[str, str]:
    """Name -> origin of all settings that are not defaults; a resumed run keeps the origins of its start."""
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
    """NAME=value of the settings that a person set; on a resume those that it changes come first, with the former value."""
    origins = provenance(loaded) if loaded.settings.run.resume else loaded.origins
    names = [name for name, origin in origins.items()
             if origin not in ("default", OWN_DEFAULT) and not origin.startswith("auto")]
    texts = {name: f"{name.upper()}={text_of(value_of(loaded.settings, name))}" for name in names}
    changed = [f"{texts.pop(name)} (was {text_of(value) or 'blank'})" for name, value in loaded.before.items()]
    return [*changed, *texts.values()]


def dump(settings: Settings, about: dict | None = None, origins: dict | None = None) -> str:
    """The settings as YAML by section, readable by CONFIG and RESUME, with `about` and `origins` as records."""
    tree, settings = {}, with_relative_paths(settings)
    for leaf in LEAVES.values():
        if leaf.name not in PLACES:
            value = value_of(settings, leaf.name)
            tree.setdefault(leaf.section, {})[leaf.name] = json.loads(value) if leaf.type is Kwargs else value
    records = {name: part for name, part in ((ORIGINS, origins), (ABOUT, about)) if part}
    return yaml.safe_dump(tree | records, sort_keys=False, allow_unicode=True)


def listing(loaded: Loaded) -> str:
    """A line per setting with value and origin, by section."""
    lines = []
    for section in SECTIONS:
        lines.append(f"{section}:")
        lines += [f"  {name.upper():<20} {text_of(value_of(loaded.settings, name)):<24} {loaded.origins[name]}"
                  for name, leaf in LEAVES.items() if leaf.section == section]
    return "\n".join(lines)


# ---- reading ----------------------------------------------------------------------------------------------------------


def _in_file(path, problems) -> list[Given]:
    """The settings in a YAML file; what cannot be used is added to `problems`."""
    mapping = read_mapping(path, problems)
    found = [given for key, value in mapping.items() for given in _in_entry(path, str(key), value, problems)]
    named = {given.setting.name for given in found}
    since = [name for name in EARLIER if ABOUT in mapping and name not in named]    # a run of before these settings
    return found + [Given(LEAVES[name], EARLIER[name], name, f"CONFIG {path} (older than {name.upper()})") for name in since]


def _in_entry(path, key, value, problems) -> list[Given]:
    """The settings of a top-level entry: a whole section, or one setting."""
    if key in (ABOUT, ORIGINS, SWEEP):
        return []
    key = SECTION_ALIASES.get(key, key)
    if key in ALL_SECTIONS and (value is None or isinstance(value, dict)):
        return [given for name, inner in (value or {}).items() for given in _of_key(path, str(name), inner, key, problems)]
    if key in ALL_SECTIONS and key not in NAMES:
        problems.append(f"{path}: {key}: {_shortened(value)}: {key} is a section; nest its settings below it")
        return []
    return _of_key(path, key, value, None, problems)


def _of_key(path, key, value, section, problems) -> list[Given]:
    """The setting called `key`; none if it is unknown, in the wrong section, or null, which means unset."""
    where = f"{path}: {section}." if section else f"{path}: "
    setting = NAMES.get(key) or RETIRED_NAMES.get(key) or TRL.get(key)
    if setting is None and section in (None, "objective", "reward") and takers("objective", key):
        of = LEAVES["combine_kwargs"]    # other trainers have these switches beside the objective, or among the rewards
        return [Given(of, {key: value}, f"{where}{key}: {_shortened(value)}", f"CONFIG {path} ({key})", part=True)]
    if setting is None:
        problems.append(f"{where}{key}: unknown setting; {what_was_meant(key, section)}")
    elif not isinstance(setting, Name) and section not in (None, setting.section):
        problems.append(f"{where}{key}: {setting.name} is in section {setting.section}; move it there, or to the top level")
    elif value is not None:
        alias = f" ({key})" if key != setting.name else ""
        return [Given(setting, value, f"{where}{key}: {_shortened(value)}", f"CONFIG {path}{alias}")]
    return []


def _in_environ(environ) -> list[Given]:
    """The settings in the environment."""
    known = NAMES | RETIRED_NAMES | IN_ENVIRON
    found = [(name.upper(), setting, environ[name.upper()].strip()) for name, setting in known.items() if name.upper() in environ]
    return [Given(setting, value, f"{name}={_shortened(value)}", f"env {name}") for name, setting, value in found
            if value or isinstance(setting, Leaf) and setting.type is str and setting.default == ""]


def _accepted(givens, problems, defaults=MappingProxyType({})) -> dict[str, tuple[Any, str]]:
    """Name -> (parsed value, origin); values out of limits, and aliases that disagree, are problems."""
    accepted, shown = {}, {}
    for given in sorted(givens, key=lambda given: given.part):
        setting, name = given.setting, given.setting.name
        if isinstance(setting, Retired):
            if not is_constant(setting, given.value):
                problems.append(f"{given.shown}: {name.upper()} is fixed at {text_of(setting.fixed)} ({setting.help}); remove it")
            continue
        if name == "warmup_steps" and _is_share(given.value):    # transformers 5 takes a share of the steps here too
            setting, name = TRL["warmup_ratio"], "warmup_ratio"
        try:
            if name in COMPUTED:
                value = number(float if name == "warmup_ratio" else int, given.value)
                if not 0 <= value <= (1 if name == "warmup_ratio" else 10**9):
                    raise ValueError
            elif isinstance(setting, Name):
                if (found := translated(setting, given.value)) is None:
                    continue
                name, value = found[0], parse(LEAVES[found[0]], found[1])
            else:
                value = parse(setting, given.value)
        except (ValueError, OverflowError, LookupError):
            way_on = setting.way_on if isinstance(setting, Name) else VALUES.get((name, str(given.value).lower()))
            if way_on:
                problems.append(f"{given.shown}: {way_on}")
                continue
            default = text_of(defaults.get(name, setting.default)) or "blank"
            problems.append(f"{given.shown}: {name.upper()} takes {setting.limits} ({setting.help}); leave it out for "
                            f"the default, {default}")
            continue
        if given.part and name in accepted:
            whole = json.loads(value) | json.loads(accepted[name][0])
            if whole.items() >= json.loads(value).items():
                accepted[name] = Kwargs(json.dumps(whole, sort_keys=True)), accepted[name][1]
                continue
        if name in accepted and accepted[name][0] != value:
            problems.append(f"{given.shown}: contradicts {shown[name]}, the same setting; keep one")
        accepted[name], shown[name] = (value, given.origin), given.shown
    return accepted


def _is_share(value) -> bool:
    try:
        return 0 < number(float, value) < 1
    except (ValueError, OverflowError):
        return False


def _computed(given, problems, saved=MappingProxyType({})):
    """(the settings with those that TRL's names give together with others, such as WARMUP_STEPS from warmup_ratio and STEPS;
    warnings). saved: settings of the run that is resumed."""
    given, computed = dict(given), {name: given[name] for name in COMPUTED if name in given}
    for name in computed:
        del given[name]

    def value(name):
        return (given.get(name) or saved.get(name) or (LEAVES[name].default,))[0]

    def put(name, found, origin):
        was = given.get(name)
        if was and was[0] != found and was[1].startswith("env ") == origin.startswith("env "):
            problems.append(f"{origin}: makes {name.upper()}={found}, which contradicts {was[1]}, {was[0]}; keep one")
        elif not was or was[1] == OWN_DEFAULT or origin.startswith("env "):
            given[name] = found, origin

    warnings = []
    if "logging_steps" in computed and computed["logging_steps"][0] != 1:
        warnings.append(f"logging_steps={computed['logging_steps'][0]} has no effect: every step is logged")
    if "warmup_ratio" in computed:
        share, origin = computed["warmup_ratio"]
        put("warmup_steps", math.ceil(share * value("steps")), origin)
    device, accumulated, generated, whole = (computed.get(name, (None,))[0] for name in BATCH)
    rows = (device or 0) * (accumulated or 1)
    if [name for name in BATCH if name in computed and (device is not None or computed[name][0] != 1)]:
        shown = ", ".join(f"{name}={computed[name][0]}" for name in BATCH if name in computed)
        if not rows or (generated or accumulated or 1) != (accumulated or 1) or (whole or rows) != rows:
            problems.append(f"{shown}: {TRL[BATCH[0]].way_on}")
        elif rows % value("group"):
            problems.append(f"{shown}: {rows} samples are not a whole number of groups of GROUP={value('group')}; set "
                            "TASKS_PER_STEP, the prompts of a step")
        else:
            origins = [computed[name][1] for name in BATCH if name in computed]
            put("tasks_per_step", rows // value("group"), next((one for one in origins if one.startswith("env ")), origins[0]))
    return given, warnings


def _config_file(folder) -> Path:
    return Path(folder) / "config.yaml"


def _shortened(value) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _loaded(given, problems, environ, training, warnings, proof=False) -> Loaded:
    """The settings with the given values; SettingsError lists all problems."""
    settings = _with(Settings(), {name: value for name, (value, _) in given.items()})
    if problems := problems + (training_problems(settings) if training else []):
        raise SettingsError(problems)
    origins = {name: given[name][1] if name in given else "default" for name in LEAVES}
    warnings = warnings + misspelt_variables(environ) + (without_effect(settings, proof) if training else [])
    return Loaded(with_absolute_paths(settings), origins, warnings)


def _with(settings: Settings, values: dict[str, Any]) -> Settings:
    """The settings with some values replaced."""
    for name, value in values.items():
        section = LEAVES[name].section
        settings = replace(settings, **{section: replace(getattr(settings, section), **{name: value})})
    return settings
