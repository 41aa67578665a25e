"""Harmless candidates with known verdicts, in the proportions of a training batch.

Made from the tasks of tasks/lc_easy_tasks.py, the same for the same seed: references are right, mutants are wrong, and
programs that are broken, raise or loop come from the templates below. Expected answers, and that a mutant is wrong, are
found by running these trusted programs in this process, without any sandbox. There are no hostile programs here.
"""

import contextlib
import copy
import random
import signal
import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from rl.sandbox import Suite, case_limit
from rl.tasks import Task, hidden_inputs
from tasks.lc_easy_tasks import TASKS
from tasks.mutants import make_mutants, run_reference

SHARES = {"pass": 0.70, "wrong_answer": 0.20, "syntax_error": 0.05, "exception": 0.03, "timeout": 0.02}
RIGHT_ONLY = {"pass": 1.0}
MIN_CASES, MAX_CASES = 5, 20
OWN_LIMIT_S = 0.1   # CPU time in which a mutant must give a wrong answer; those that loop are not used

# {signature}, {reference} and {name} are the task's. Loops are inside the function: some graders do not limit loading.
BROKEN = ("{reference}    return (1,\n", "{reference}}}\n", "{signature}\nreturn 1\n", "Here is the function:\n\n{reference}",
          "```python\n{reference}", "{signature}\n    'unfinished\n")
RAISING = ("{signature}\n    raise ValueError('no')\n", "{signature}\n    return undefined_name\n",
           "{signature}\n    return [][0]\n", "{signature}\n    return None.value\n",
           "{signature}\n    return {name}(1, 2, 3, 4, 5)\n", "{reference}\nassert {name} is None\n")
LOOPING = ("{signature}\n    while True:\n        pass\n", "{signature}\n    i = 0\n    while i < 10:\n        i -= 1\n",
           "{signature}\n    import itertools\n    for i in itertools.count():\n        i * i\n",
           "{signature}\n    queue = [1]\n    while queue:\n        queue = [queue.pop()]\n")


class Candidate(NamedTuple):
    """One program to grade; `verdicts` are its right ones."""

    name: str
    source: str
    suite: Suite
    verdicts: tuple[str, ...]
    reference_s: float      # CPU time of the reference for all cases together


class Overtime(Exception):
    """A program used up its time in this process."""


def mixture(count: int, seed: int, shares: dict[str, float] = SHARES, first: int = 0,
            most_s: float = 0.5) -> list[Candidate]:
    """`count` candidates in these shares, shuffled. Each ends in a comment with its number, from `first` on, so that no result is
    cached. most_s: the most CPU seconds that a case may take."""
    rng = random.Random(f"mixture/{seed}/{count}/{first}/{sorted(shares)}")
    verdicts = [verdict for verdict, share in shares.items() for _ in range(round(share * count))]
    verdicts = (verdicts + [next(iter(shares))] * count)[:count]
    rng.shuffle(verdicts)
    return [_candidate(rng, number, verdict, seed, most_s) for number, verdict in enumerate(verdicts, first)]


def _candidate(rng, number, verdict, seed, most_s):
    task = rng.choice(TASKS)
    suite, reference_s = suite_of(task, seed, most_s)
    source = {"pass": lambda: task.reference, "wrong_answer": lambda: _wrong(rng, task, suite),
              "syntax_error": lambda: _filled(rng, BROKEN, task), "exception": lambda: _filled(rng, RAISING, task),
              "timeout": lambda: _filled(rng, LOOPING, task)}[verdict]()
    return Candidate(f"{task.name} {verdict} {number}", f"{source}\n# {number}\n", suite, (verdict,), reference_s)


@cache
def suite_of(task: Task, seed: int, most_s: float) -> tuple[Suite, float]:
    """(some of the task's hidden cases with the reference's answers, CPU seconds of the reference for all of them)."""
    rng = random.Random(f"cases/{task.name}/{seed}")
    inputs = hidden_inputs(task, seed)
    inputs = tuple(rng.sample(inputs, min(len(inputs), rng.randint(MIN_CASES, MAX_CASES))))
    begun = time.process_time()
    expected = tuple(run_reference(task, inputs))
    reference_s = time.process_time() - begun
    return Suite(task.entry_point, inputs, expected, case_cpu_s=case_limit(reference_s, most_s)), reference_s


def _filled(rng, templates, task):
    return rng.choice(templates).format(signature=task.signature, reference=task.reference, name=task.entry_point)


def _wrong(rng, task, suite):
    """A mutant whose first failure is a wrong answer."""
    mutants = _mutants(task)
    for mutant in rng.sample(mutants, len(mutants)):
        if answers_wrongly(mutant, suite):
            return mutant
    raise ValueError(f"{task.name}: no mutant gives a wrong answer to its {len(suite.inputs)} cases")


@cache
def _mutants(task) -> Sequence[str]:
    # Mutants of this kind may double a list for ever, which our timer would not stop in time.
    return [mutant.source for mutant in make_mutants(task) if not mutant.equivalent and mutant.kind != "bounds"]


def answers_wrongly(source: str, suite: Suite) -> bool:
    """Whether the first failure of a trusted program, run here, is a value that every grader would call wrong."""
    scope = {}
    try:
        with _time_limit(OWN_LIMIT_S):
            exec(source, scope)
            for arguments, expected in zip(suite.inputs, suite.expected, strict=True):
                if _rough(scope[suite.entry_point](*copy.deepcopy(arguments))) != _rough(expected):
                    return True
    except Exception:   # of the mutant's own making, or Overtime
        return False
    return False


def _rough(value):
    """The value without what graders treat differently: tuples as lists, floats rounded."""
    if isinstance(value, list | tuple):
        return [_rough(item) for item in value]
    if isinstance(value, dict):
        return {key: _rough(item) for key, item in value.items()}
    return round(value, 6) if isinstance(value, float) else value


@contextlib.contextmanager
def _time_limit(seconds) -> Iterator[None]:
    def over(_number, _frame):
        raise Overtime

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
