"""Tasks of several providers, each with a share of what is trained on: `TASKS=mixed`.

    PROVIDER_KWARGS={lc_easy: 0.3, generated: 0.7}
    PROVIDER_KWARGS={lc_easy: 0.3, generated: {share: 0.7, count: 1000}, humaneval: {share: 0, tasks_file: HumanEval.jsonl.gz}}

A provider has its share, or a mapping with its share, its own arguments, and its TASKS_FILE as `tasks_file`. The shares add up to
1 and count in thousandths. Providers take turns: of ten tasks in a row three are lc_easy's here, evenly spread, and each provider
goes through its own tasks epoch by epoch, however many it has. N_TASKS keeps the shares. With share 0 only a provider's held-out
tasks are there, to be measured on.

Held out is what any of them holds out; a training task that asks what a held-out one asks is left out. Tasks of two providers
with the same name are called provider/name."""

import copy
import json
import math
from collections import Counter
from functools import partial

from rl.errors import InputError, together
from rl.registry import nearest, number, register_data_provider, registered
from rl.settings.declared import DataSettings, Kwargs
from rl.tasks import Part, Provided, provided

WHOLE = 1000    # shares are whole thousandths
KINDS = {"reference": "programs", "family": "answers that Reasoning Gym scores", "answer": "answers to compare"}


@register_data_provider("mixed")
def provide(tasks_file: str, /, **providers: float | dict) -> Provided:
    """The tasks of all these providers; InputError where names, shares or kinds of tasks do not fit, all problems together."""
    given = {name: dict(part) if isinstance(part, dict) else {"share": part} for name, part in providers.items()}
    weights, problems = weights_of(given)
    if tasks_file:
        problems.append(f"TASKS_FILE={tasks_file}: which provider should read it? Give it as tasks_file beside its share")
    if problems:
        raise InputError("\n".join(f"TASKS=mixed: {problem}" for problem in problems))
    found = dict(zip(given, together(*(partial(_load, name, part) for name, part in given.items())), strict=True))
    if problems := [line for name, part in found.items() if (line := _unfit(name, part, weights[name]))] + _kinds(found):
        raise InputError("\n".join(f"TASKS=mixed: {problem}" for problem in problems))
    return _together(found, weights)


def weights_of(given: dict[str, dict]) -> tuple[dict[str, int], list[str]]:
    """(provider -> its share in thousandths, what is wrong with names and shares); takes `share` out of the mappings."""
    if not given:
        return {}, ["PROVIDER_KWARGS names no provider; give each its share, such as {lc_easy: 0.3, generated: 0.7}"]
    known = [name for name in registered("data provider") if name != "mixed"]
    weights, problems = {}, []
    for name, part in given.items():
        if name not in known:
            problems.append(f"{name}: no such task provider{nearest(name, known)}; there are {', '.join(known)}")
        share = part.pop("share", None)
        try:
            weights[name] = round(WHOLE * number(float, share))
            if not 0 <= weights[name] <= WHOLE or (share and not weights[name]):
                raise ValueError
        except (ValueError, OverflowError):
            problems.append(f"{name}: a share of {share!r}; give 0 to be measured on it only, or 0.001 to 1")
    total = sum(weights.values())
    if len(weights) == len(given) and not problems and abs(total - WHOLE) > len(given):    # thirds may be written as 0.333
        problems.append(f"the shares {', '.join(f'{name} {weight / WHOLE:g}' for name, weight in weights.items())} add up to "
                        f"{total / WHOLE:g}; they must add up to 1")
    divisor = math.gcd(*weights.values()) or 1
    return {name: weight // divisor for name, weight in weights.items()}, problems


def _load(name, part) -> Provided:
    """What the provider gives with its own arguments; InputError names it."""
    file = part.pop("tasks_file", "")
    try:
        return provided(DataSettings(tasks=name, tasks_file=file, provider_kwargs=Kwargs(json.dumps(part))))
    except InputError as error:
        way = " (in a mix TASKS_FILE is tasks_file, beside the share)" if "TASKS_FILE" in str(error) else ""
        raise InputError(f"TASKS=mixed: {name}: {error}{way}") from error


def _unfit(name, part, weight) -> str:
    """Why the provider cannot have this share, "" if it can."""
    if part.order:
        return f"{name} prescribes which task comes when, so it cannot take turns; leave it out, or use it alone"
    if weight and len(part.held_out) >= len(part.tasks):
        return f"{name} holds all of its {len(part.tasks)} tasks out of training; give it share 0, to be measured on them only"
    if not weight and not part.held_out:
        return f"{name} holds no task out of training, and with share 0 nothing else of it is used; leave it out"
    return ""


def _kinds(found) -> list[str]:
    """The problem with providers that no COMBINE could pay together, if there are such."""
    kinds = {name: [kind for kind in KINDS if all(getattr(task, kind) is not None for task in part.tasks)]
             for name, part in found.items()}
    if set.intersection(*map(set, kinds.values())):
        return []
    said = [f"{name} for {' or '.join(KINDS[kind] for kind in own) or 'several kinds of answers'}" for name, own in kinds.items()]
    return [f"no COMBINE pays for all of it: {', '.join(said)}; mix providers that ask for the same"]


def _together(found, weights) -> Provided:
    """All tasks as one provider's."""
    shared = Counter(name for part in found.values() for name in {task.name for task in part.tasks})
    asked = {task.question for part in found.values() for task in part.tasks if task.name in part.held_out}
    tasks, held_out, parts, left_out = [], set(), {}, Counter()
    for provider, part in found.items():
        left_out.update(part.left_out)
        names = set()
        for task in part.tasks:
            unseen, name = task.name in part.held_out, f"{provider}/{task.name}" if shared[task.name] > 1 else task.name
            if not unseen and not weights[provider]:
                left_out["of a provider with share 0"] += 1
            elif not unseen and task.question in asked:
                left_out["repeats a held-out task"] += 1
            else:
                tasks.append(task if name == task.name else _renamed(task, name))
                names.add(name)
                held_out |= {name} if unseen else set()
        if weights[provider]:
            parts[provider] = Part(weights[provider], names)
    return Provided(tasks, held_out, dict(left_out), parts=parts)


def _renamed(task, name):
    """The same task under another name."""
    other = copy.copy(task)
    object.__setattr__(other, "name", name)    # tasks are frozen
    return other
