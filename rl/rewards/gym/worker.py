"""The worker process of rl/rewards/gym/client.py: makes Reasoning Gym's questions and scores answers to them.

Started as `python -P -B -W ignore worker.py SECONDS` with PYTHONHASHSEED=0, without which five families ask other questions in
every process. It reads one JSON object per line from stdin, writes one per line to stdout, and ends with its stdin. From this
project it loads only two files of standard-library code, by their paths.

Answers may be hostile, so they are scored in locked-down children (scoring.py). Nothing in the package is changed.
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
SLOT = 900                # gives its children a uid that no sandbox server's children have (those count from 0)
CPU_BACKSTOP_S = 3600     # of a child that scores many answers; scoring.py limits each answer
LIMIT_FIELDS = ("seed", "size")
KINDS = {int: "int", float: "float", bool: "bool", str: "str"}
EXAMPLES = ("example_answer", "example_correct_answer", "possible_answer")   # where families with many right answers keep one


def main():
    """Load the package and the lockdown, report what is there, then serve."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)     # whatever the package reads or prints must not touch the protocol
    os.dup2(null, 1)

    def reply(message):
        replies.write(json.dumps(message).encode() + b"\n")
        replies.flush()

    try:
        from reasoning_gym.factory import DATASETS, create_dataset
    except ImportError as error:
        reply({"missing": describe(error)})
        return
    kernel, scoring = load_file("../../sandbox/inside/kernel"), load_file("scoring")
    kernel.CPU_BACKSTOP_S = CPU_BACKSTOP_S
    layers, questions = kernel.Layers(SLOT), Questions(create_dataset, scoring.warm_up)
    reply({"version": importlib.metadata.version("reasoning-gym"), "families": families(DATASETS), "notes": layers.notes,
           "locked": layers.have & kernel.SECCOMP_LAYER != 0})
    serve(requests, reply, questions, scoring.Scorer(questions, layers, float(sys.argv[1]), requests.fileno()))


def load_file(path):
    """The module in path.py, relative to this file."""
    name, path = os.path.basename(path), os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{path}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def serve(requests, reply, questions, scorer):
    """Answer requests, {"do": what, ...} each, until stdin ends."""
    actions = {"problem": questions.problem, "question": questions.question, "score": scorer.score}
    for line in requests:
        request = json.loads(line)
        reply(actions[request.pop("do")](**request))


# ------------------------------------------------------------------ families


def families(registry):
    """Family -> knob -> [kind, default, choices] of every family in the package's registry except its mixtures."""
    return {name: knobs(config) for name, (_, config) in sorted(registry.items()) if name != "composite"}


def knobs(config):
    """Knob -> [kind, default, choices] of a family's config class; kind is None unless it is a number, a bool or a str."""
    hints, found = typing.get_type_hints(config), {}
    for field in dataclasses.fields(config):
        if field.name not in LIMIT_FIELDS:
            default = field.default if type(field.default) in KINDS else None
            kind, choices = _kind(hints[field.name])
            found[field.name] = ["float" if kind == "int" and type(default) is float else kind, default, choices]
    return found


def _kind(hint):
    if typing.get_origin(hint) is typing.Literal:
        return "str", list(typing.get_args(hint))
    inner = [part for part in typing.get_args(hint) if part is not type(None)]
    if typing.get_origin(hint) is typing.Union and len(inner) == 1:
        hint = inner[0]
    return KINDS.get(hint), []


# ------------------------------------------------------------------ questions


class Questions:
    """Datasets and their questions, by (family, config, seed)."""

    def __init__(self, create_dataset, warm_up):
        """warm_up: called once per family with a dataset, one of its entries and the right answer, before anything is scored."""
        self._create_dataset, self._warm_up = create_dataset, warm_up
        self._datasets, self._entries, self._warm = {}, {}, set()

    def problem(self, family, config):
        """The family's complaint about a config, "" if it accepts it."""
        try:
            self._create_dataset(family, size=1, seed=0, **config)
        except Exception as error:
            return describe(error)
        return ""

    def question(self, family, config, seed):
        """The question of one seed: its text and right answer, or why there is none."""
        try:
            _, entry = self.entry(family, config, seed)
        except Exception as error:
            return {"failed": describe(error)}
        return {"text": entry["question"], "answer": gold(entry), "example": entry["answer"] is None}

    def ready(self, family, config, seed, text):
        """`entry`, with everything that scoring needs loaded; ValueError if the question of that seed is not `text`."""
        dataset, entry = self.entry(family, config, seed)
        if entry["question"] != text:
            raise ValueError(f"{family}/{seed} is another question in this version: {entry['question'][:80]!r}")
        if family not in self._warm:
            self._warm.add(family)
            self._warm_up(dataset, entry, gold(entry))
            gc.collect()
            gc.freeze()      # or the collector would touch, and so copy, the pages shared with every child
        return dataset, entry

    def entry(self, family, config, seed):
        """(a dataset of that family and config, its entry for the seed); raises whatever the family raises."""
        kind = family, json.dumps(config, sort_keys=True)
        if (*kind, seed) not in self._entries:
            random.seed(seed)    # list_functions draws from the global generator
            dataset = self._create_dataset(family, size=1, seed=seed, **config)
            entry = dataset[0]
            if len(self._entries) >= ENTRIES_KEPT:
                del self._entries[next(iter(self._entries))]
            # One dataset scores for all seeds, as in the package itself: some hold a word list each.
            self._datasets.setdefault(kind, dataset)
            self._entries[*kind, seed] = entry
        return self._datasets[kind], self._entries[*kind, seed]


def gold(entry):
    """The family's right answer, or its example of one; None if it gives neither."""
    answer = entry["answer"]
    for name in EXAMPLES:
        answer = entry["metadata"].get(name) if answer is None else answer
    return answer if answer is None or isinstance(answer, str) else json.dumps(answer)


def describe(error):
    """An exception as a short text."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


if __name__ == "__main__":
    main()
