"""The other side of rl/rewards/gym/client.py: makes Reasoning Gym's questions and scores answers to them, in a process of its own.

Started as `python -P -B -W ignore _worker.py SECONDS` with PYTHONHASHSEED=0, without which five families ask other
questions in every process. One JSON object a line comes in on stdin, one goes out on stdout; it ends with its stdin. It
imports nothing of this project but two files of standard-library code, by their paths.

Answers, which may be hostile, are scored in locked-down children (_scoring.py). Nothing of the package is changed.
"""

import dataclasses
import gc
import importlib.metadata
import importlib.util
import json
import os
import random
import sys
import typing

ENTRIES_KEPT = 4096
SLOT = 900                # the uid of its children: a stranger to those of the sandbox's servers, which count from 0
CPU_BACKSTOP_S = 3600     # of a child that scores many answers; each one's time is kept here
LIMIT_FIELDS = ("seed", "size")
KINDS = {int: "int", float: "float", bool: "bool", str: "str"}
EXAMPLES = ("example_answer", "example_correct_answer", "possible_answer")   # where a family without one answer keeps one


def _loaded(path):
    name, path = os.path.basename(path), os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{path}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ------------------------------------------------------------------ families and questions


def families(registry):
    """Family -> knob -> [kind, default, choices] of every family in the package's registry but its mixtures."""
    return {name: knobs(config) for name, (_, config) in sorted(registry.items()) if name != "composite"}


def knobs(config):
    """Knob -> [kind, default, choices] of a family's config class; a kind that is no number, truth or word is None."""
    hints, found = typing.get_type_hints(config), {}
    for field in dataclasses.fields(config):
        if field.name not in LIMIT_FIELDS:
            plain = field.default if type(field.default) in KINDS else None
            kind, choices = _kind(hints[field.name])
            found[field.name] = ["float" if kind == "int" and type(plain) is float else kind, plain, choices]
    return found


def _kind(hint):
    if typing.get_origin(hint) is typing.Literal:
        return "str", list(typing.get_args(hint))
    inner = [part for part in typing.get_args(hint) if part is not type(None)]
    if typing.get_origin(hint) is typing.Union and len(inner) == 1:
        hint = inner[0]
    return KINDS.get(hint), []


class Book:
    """Datasets and their questions, by (family, config, seed); `dataset_of` makes one, `warm_up` scores a few answers."""

    def __init__(self, dataset_of, warm_up):
        self._dataset_of, self._warm_up, self._datasets, self._entries, self._warm = dataset_of, warm_up, {}, {}, set()

    def problem(self, family, config):
        """What the family says against a config; "" when it takes it."""
        try:
            self._dataset_of(family, size=1, seed=0, **config)
        except Exception as error:
            return describe(error)
        return ""

    def entry(self, family, config, seed):
        """(a dataset of that family and config, its question for the seed); whatever the family raises comes through."""
        kind = family, json.dumps(config, sort_keys=True)
        if (*kind, seed) not in self._entries:
            random.seed(seed)    # list_functions draws from here
            dataset = self._dataset_of(family, size=1, seed=seed, **config)
            entry = dataset[0]
            if len(self._entries) >= ENTRIES_KEPT:
                del self._entries[next(iter(self._entries))]
            # One dataset scores for all seeds, as in the package itself: some hold a word list each.
            self._datasets.setdefault(kind, dataset)
            self._entries[*kind, seed] = entry
        return self._datasets[kind], self._entries[*kind, seed]

    def ready(self, family, config, seed, text):
        """`entry`, when all that scoring loads on first use has been loaded; ValueError where its question is not `text`."""
        dataset, entry = self.entry(family, config, seed)
        if entry["question"] != text:
            raise ValueError(f"{family}/{seed} is another question in this version: {entry['question'][:80]!r}")
        if family not in self._warm:
            self._warm.add(family)
            self._warm_up(dataset, entry, gold(entry))
            gc.collect()
            gc.freeze()      # keeps the collector from touching, and so copying, the pages shared with every child
        return dataset, entry


def gold(entry):
    """The answer that the family holds to be right, or an example of one; None where it gives neither."""
    found = entry["answer"]
    for name in EXAMPLES:
        found = entry["metadata"].get(name) if found is None else found
    return found if found is None or isinstance(found, str) else json.dumps(found)


def describe(error):
    """An exception as a short text."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def question(book, family, config, seed):
    """The question of one seed: its text and right answer, or why there is none."""
    try:
        entry = book.entry(family, config, seed)[1]
    except Exception as error:
        return {"failed": describe(error)}
    return {"text": entry["question"], "answer": gold(entry), "example": entry["answer"] is None}


# ------------------------------------------------------------------ the process


def serve(requests, say, book, scorer):
    """Answer requests, {"do": what, ...} each, until there are no more."""
    does = {"problem": book.problem, "question": lambda **place: question(book, **place), "score": scorer.score}
    for line in requests:
        request = json.loads(line)
        say(does[request.pop("do")](**request))


def main():
    """Load the package, prepare the layers, say what there is, then serve."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)     # the package may print and read what it likes
    os.dup2(nothing, 1)

    def say(message):
        answers.write(json.dumps(message).encode() + b"\n")
        answers.flush()

    try:
        from reasoning_gym.factory import DATASETS, create_dataset
    except ImportError as error:
        say({"missing": describe(error)})
        return
    kernel, scoring = _loaded("../../sandbox/inside/kernel"), _loaded("scoring")
    kernel.CPU_BACKSTOP_S = CPU_BACKSTOP_S
    layers, book = kernel.Layers(SLOT), Book(create_dataset, scoring.load_lazies)
    say({"version": importlib.metadata.version("reasoning-gym"), "families": families(DATASETS), "notes": layers.notes,
         "locked": layers.have & kernel.SECCOMP_LAYER != 0})
    serve(requests, say, book, scoring.Scorer(book, layers, float(sys.argv[1]), requests.fileno()))


if __name__ == "__main__":
    main()
