"""TASK_ORDER=signal: which tasks a step draws, from what the run has seen of them."""

import random
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from rl.errors import InputError
from rl.rewards.base import GradedGroup
from rl.settings.declared import DataSettings, Settings
from rl.tasks import START, Cursor, Mixture, next_tasks
from rl.training.choice import KEPT, REST, Record, choose, p_mixed, recorded


def group(right, wrong, failed=0):
    samples = [SimpleNamespace(correct=verdict == "pass", verdict=verdict)
               for verdict, count in (("pass", right), ("timeout", wrong), ("internal_error", failed)) for _ in range(count)]
    return GradedGroup("t", [], samples)


def test_the_probability_of_a_mixed_group():
    """By hand for a new task; for others by sampling pass rates from the posterior and groups from these."""
    assert p_mixed(Record(), 8) == pytest.approx(1 - 2 / 9)
    rng = np.random.default_rng(0)
    for right, wrong in ((8, 0), (0, 8), (3, 5), (0.5, 7.25)):
        p = rng.beta(1 + right, 1 + wrong, 200_000)
        passed = rng.binomial(8, p)
        assert p_mixed(Record(right, wrong, 1), 8) == pytest.approx(np.mean((passed > 0) & (passed < 8)), abs=5e-3)


def test_what_is_recorded():
    """Older samples count half, failed ones neither way; tasks that were offered and not drawn stay as they were."""
    records = recorded((), 3, 0, [2, 0], [group(3, 5), group(0, 8)])
    assert records == (Record(0, 8, 1), Record(), Record(3, 5, 1))
    assert recorded(records, 3, 6, [2], [group(1, 2, failed=5)])[2] == Record(3 * KEPT + 1, 5 * KEPT + 2, 7)


def test_new_tasks_come_before_hopeless_and_finished_ones():
    """And mixed ones before both; a task rests after it was drawn, and none comes twice in a step."""
    known = [Record(8, 0, 1), Record(0, 8, 1), Record(4, 4, 1), *[Record()] * 5]
    drawn = Counter(i for step in range(10, 200) for i in choose(8, step, known, 4, 8, 0))
    assert min(drawn[i] for i in range(2, 8)) > 2 * max(drawn[0], drawn[1])
    assert all(len({*choose(8, step, known, 8, 8, 0)}) == 8 for step in range(20))
    resting = [Record(4, 4, 10), *known[1:]]
    early, late = (Counter(i for seed in range(200) for i in choose(8, step, resting, 2, 8, seed)) for step in (11, 10 + REST))
    assert early[0] < 20 and late[0] > 100


def test_a_smaller_count_gives_a_prefix():
    """Which tasks are offered for replacement does not change which are drawn first; equal arguments draw equally."""
    records = [Record(random.Random(i).randint(0, 8), 3, i) for i in range(30)]
    for step in range(40, 60):
        assert choose(30, step, records, 20, 8, 5)[:6] == choose(30, step, records, 6, 8, 5)
    assert choose(30, 40, records, 6, 8, 5) != choose(30, 40, records, 6, 8, 6)
    assert [*choose(3, 0, (), 8, 8, 0)] != [0, 1, 2] and sorted(choose(3, 0, (), 8, 8, 0)) == [0, 1, 2]


def test_signal_is_found_and_no_task_is_forgotten():
    """Of 60 simulated tasks most are hopeless or solved: half as many groups without signal as in epochs, and every task is
    drawn again and again."""
    rates = [0.0] * 25 + [1.0] * 15 + [0.1, 0.3, 0.5, 0.8] * 5
    idle = {}
    for name in ("epochs", "signal"):
        rng, records, counts, without, last = random.Random(1), (), Counter(), 0, {}
        for step in range(300):
            if name == "signal":
                chosen = choose(60, step, records, 4, 8, 0)
            else:
                chosen = next_tasks(60, step, START, Settings())[:4]
            groups = [group(right := sum(rng.random() < rates[i] for _ in range(8)), 8 - right) for i in chosen]
            without += sum(len({sample.correct for sample in one.samples}) == 1 for one in groups)
            records = recorded(records, 60, step, chosen, groups)
            counts.update(chosen)
            last |= dict.fromkeys(chosen, step)
        idle[name] = without / 1200
        assert min(counts[i] for i in range(60)) >= 2 and min(last.values()) > 50, name
    assert idle["signal"] < 0.5 * idle["epochs"], idle


def test_an_order_of_its_own_is_refused():
    """Providers with their own order, and mixtures, decide for themselves."""
    settings = Settings(data=DataSettings(task_order="signal"))
    for order in (lambda *_: [0], Mixture({"a": (0, 1)}, ("a",))):
        with pytest.raises(InputError, match="TASK_ORDER=signal with TASKS=lc_easy, which has an order of its own"):
            next_tasks(9, 0, Cursor(), settings, order)
