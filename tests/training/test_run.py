"""The loop around the steps, with steps that cost nothing: what is trained on, written, told, measured and saved, and when.

Whole runs through it, resumed and killed: test_train.py, test_kill.py, test_grpo_proof.py."""

import json
import math
import shutil
import signal
from types import SimpleNamespace

import jax
import pytest

from rl.errors import InputError, NotFinite
from rl.rewards.base import GradedGroup
from rl.run.files import read_rows
from rl.run.log import RunLog
from rl.run.signals import Interrupted, Signals
from rl.settings import config
from rl.tasks import Cursor, draw_tasks, tasks_of_step
from rl.training import checkpoint, lora
from rl.training import run as training_run
from rl.training.checkpoint import CheckpointError
from rl.training.choice import Record, choose, recorded
from rl.training.optimiser import init_state
from rl.training.run import RunContext, deadline_after, first_adapter, start
from tests import small_model
from tests.run.test_log import sample

TASKS = [SimpleNamespace(name=f"t{i}") for i in range(5)]


def settings(**values):
    return config.load({name.upper(): str(value) for name, value in ({"lora_rank": 2, "tasks_per_step": 2} | values).items()}
                       ).settings


class Told:
    """Progress and tracker at once: what they were told, in order."""

    def __init__(self):
        self.said = []

    def begin(self, step):
        self.said.append(("begin", step))

    def step(self, step, metrics, samples=None):
        self.said.append(("step", step, samples))

    def evaluated(self, step, metrics):
        self.said.append(("evaluated", step))


class Loop:
    """A run in a folder whose steps only count: `chosen` are the prompts of each, `act` is called within one."""

    def __init__(self, run, monkeypatch, **values):
        self.run, self.settings, self.patch = run, settings(**values), monkeypatch
        self.chosen, self.told, self.act, self.metrics = [], Told(), lambda step: None, lambda step: {}

    def train_step(self, model, state, prompts, grader, settings, step):
        self.act(step)
        self.chosen.append(list(prompts))
        groups = [GradedGroup(f"t{prompt}", [], [sample()] * 3) for prompt in prompts[:2]]
        return state._replace(updates=state.updates + 1), groups, {"step_time": 1.0, "reward": 0.5, **self.metrics(step)}

    def train(self, signals, evaluation=None, deadline=0.0):
        self.patch.setattr(training_run, "train_step", self.train_step)
        progress = start(self.run, small_model.CFG, self.settings)
        log = RunLog.resume(self.run, progress.step)
        context = RunContext(self.run, log, signals, self.told, evaluation=evaluation, deadline=deadline)
        return training_run.train(progress, None, list(range(5)), None, self.settings, context)


@pytest.fixture
def loop(tmp_path, monkeypatch):
    """A function that makes a Loop in this test's folder."""
    return lambda **values: Loop(tmp_path, monkeypatch, **values)


def test_a_first_step_that_cannot_be_graded_ends_the_run(loop, tmp_path, monkeypatch):
    """A reward that fails on every sample: said at once with its reason, before the step counts; later, or in part, it is masked
    and training goes on."""
    failed = sample(verdict="internal_error", detail="short_reward: KeyError: 'answer'")
    for step, samples in ((0, [failed] * 3), (0, [failed, failed, sample()]), (1, [failed] * 3)):
        made = loop(steps=2)
        shutil.rmtree(tmp_path)
        plain = made.train_step

        def train_step(*given, plain=plain, step=step, samples=samples):
            state, groups, metrics = plain(*given)
            return state, [group._replace(samples=samples) for group in groups] if given[-1] == step else groups, metrics
        monkeypatch.setattr(made, "train_step", train_step)
        with Signals() as signals:
            if (step, samples) == (0, [failed] * 3):
                with pytest.raises(InputError, match=r"none of the first step's 6 samples .*KeyError: 'answer'.*RESUME=.*"
                                                     "start a new run where it is a setting"):
                    made.train(signals)
                assert not read_rows(tmp_path / "metrics.jsonl") and checkpoint.steps(tmp_path) == [0]
            else:
                assert made.train(signals).step == 2


@pytest.mark.parametrize("name, value", [("loss", math.nan), ("loss", -math.inf), ("entropy", math.nan), ("entropy", math.inf),
                                         ("lora_delta_norm", math.inf)])
def test_a_step_that_is_not_finite_ends_the_run(loop, tmp_path, name, value):
    """It is not logged; the reason names step and value; the state before it is the latest checkpoint, SAVE_EVERY or not."""
    made = loop(steps=5, save_every=100)
    made.metrics = lambda step: {name: value} if step == 3 else {"loss": 0.1, "entropy": 0.2, "grad_norm": math.inf}
    with Signals() as signals, pytest.raises(InputError, match=rf"after 3 steps.*{name} is {value}.*step_00003"):
        made.train(signals)

    assert checkpoint.steps(tmp_path)[-1] == 3 and [row["step"] for row in read_rows(tmp_path / "metrics.jsonl")] == [1, 2, 3]
    assert int(start(tmp_path, small_model.CFG, made.settings).state.updates) == 3


@pytest.mark.parametrize("where", ["sampling", "evaluation"])
def test_a_state_whose_logits_are_not_finite_is_no_checkpoint(loop, tmp_path, where):
    """Found in the step or the evaluation after the update that broke it, when it may be saved: the state before is kept."""
    def broken(*_):
        raise NotFinite("the logits are not finite")
    made = loop(steps=5, save_every=1, keep_last=1, keep_every=3)
    made.act = lambda step: broken() if step == 3 and where == "sampling" else None
    evaluation = SimpleNamespace(due=lambda step: step == 3 and where == "evaluation", of=broken)
    with Signals() as signals, pytest.raises(InputError, match="after 3 steps: the logits.*step_00002"):
        made.train(signals, evaluation)

    assert checkpoint.steps(tmp_path) == [2] and int(start(tmp_path, small_model.CFG, made.settings).state.updates) == 2


def test_a_run_that_starts_with_logits_that_are_not_finite(loop, tmp_path):
    """The first step has no state before it: what the run began with stays."""
    made = loop(steps=5)
    made.act = lambda step: (_ for _ in ()).throw(NotFinite("the logits are not finite"))
    with Signals() as signals, pytest.raises(InputError, match="after 0 steps: the logits.*DTYPE=float32"):
        made.train(signals)

    assert checkpoint.steps(tmp_path) == [0]


def test_each_step_has_its_tasks_is_written_and_told(loop, tmp_path):
    """The tasks are those of rl/tasks.py's order; a row of metrics, a file of samples, a word to who is told; kept are the
    checkpoints of SAVE_EVERY and of the end."""
    made = loop(steps=5, save_every=2, keep_last=9)
    with Signals() as signals:
        at = made.train(signals)

    assert at.step == 5 and int(at.state.updates) == 5
    assert made.chosen == [tasks_of_step(len(TASKS), step, 2, 0) for step in range(5)]
    assert [row["step"] for row in read_rows(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4, 5]
    assert len(list((tmp_path / "completions").iterdir())) == 5 and read_rows(tmp_path / "sft_pool.jsonl")
    assert made.told.said == [("begin", 0), *(("step", step, 6) for step in range(1, 6))]
    assert checkpoint.steps(tmp_path) == [0, 2, 4, 5]


def test_it_goes_on_from_the_latest_checkpoint(loop, tmp_path):
    """Ended at 3 of 5 steps and started again: the same tasks, rows and count of updates as without a break."""
    with Signals() as signals:
        first, rest = loop(steps=3), loop(steps=5)
        first.train(signals)
        at = rest.train(signals)

    assert at.step == int(at.state.updates) == 5
    assert rest.chosen == [tasks_of_step(len(TASKS), step, 2, 0) for step in (3, 4)]
    assert [row["step"] for row in read_rows(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4, 5]


def test_the_cursor_is_kept(loop, tmp_path):
    """With DYNAMIC_SAMPLING a step is offered more tasks than it takes, and the next begins behind those that were taken."""
    cursor, offered = Cursor(), []
    for _ in range(3):
        offered.append(draw_tasks(cursor, 5, 4, 0)[0])
        cursor = draw_tasks(cursor, 5, 2, 0)[1]
    more = {"dynamic_sampling": 1, "max_sampled_groups": 4}
    with Signals() as signals:
        first = loop(steps=2, **more)
        first.train(signals)
        rest = loop(steps=3, **more)
        at = rest.train(signals)

    assert first.chosen + rest.chosen == offered and at.cursor == cursor
    state = json.loads((checkpoint.checkpoints(tmp_path)[3] / "state.json").read_text())
    assert state["cursor"] == {"epochs": cursor.epochs, "rest": list(cursor.rest), "turn": 0, "parts": [], "records": []}


def test_tasks_are_chosen_by_their_signal_across_a_break(loop, tmp_path):
    """TASK_ORDER=signal: ended at 4 of 9 steps and started again, the same tasks are drawn as without a break, and what is
    known of them is in the checkpoint, number for number."""
    records, expected = (), []
    for step in range(9):
        expected.append(choose(len(TASKS), step, records, 2, 3, 0))
        records = recorded(records, len(TASKS), step, expected[-1], [GradedGroup("", [], [sample()] * 3)] * 2)
    more = {"task_order": "signal", "group": 3}
    with Signals() as signals:
        first, rest = loop(steps=4, **more), loop(steps=9, **more)
        first.train(signals)
        at = rest.train(signals)

    assert first.chosen + rest.chosen == expected and at.cursor == Cursor(records=records)
    assert checkpoint.data_cursor(tmp_path) == at.cursor and type(checkpoint.data_cursor(tmp_path).records[0]) is Record


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_within_a_step_saves_the_last_whole_one(loop, tmp_path, signum):
    """The step that is cut leaves no trace; the one before it is saved, whatever SAVE_EVERY says, and the signal goes on."""
    made = loop(steps=5, save_every=100)
    made.act = lambda step: signal.raise_signal(signum) if step == 2 else None
    with Signals() as signals, pytest.raises(Interrupted):
        made.train(signals)

    assert checkpoint.steps(tmp_path)[-1] == 2 and [row["step"] for row in read_rows(tmp_path / "metrics.jsonl")] == [1, 2]
    again = loop(steps=5)
    with Signals() as signals:
        assert int(again.train(signals).state.updates) == 5
    assert again.chosen == [tasks_of_step(len(TASKS), step, 2, 0) for step in (2, 3, 4)]


@pytest.mark.parametrize("when", ["log", "first save"])
def test_a_signal_waits_until_log_and_checkpoint_agree(loop, tmp_path, monkeypatch, when):
    """While a step is written it is held; and one that comes before there is any checkpoint leaves one nevertheless."""
    made, save = loop(steps=5, save_every=100), checkpoint.save
    if when == "log":
        monkeypatch.setattr(RunLog, "completions", lambda *_: signal.raise_signal(signal.SIGTERM))    # before the row
    else:
        looked = iter([True])
        monkeypatch.setattr(checkpoint, "save", lambda *found, **named: signal.raise_signal(signal.SIGTERM)
                            if next(looked, False) else save(*found, **named))
    with Signals() as signals, pytest.raises(Interrupted):
        made.train(signals)

    rows = [row["step"] for row in read_rows(tmp_path / "metrics.jsonl")]
    assert (checkpoint.steps(tmp_path)[-1:], rows) == (([1], [1]) if when == "log" else ([0], []))


def test_no_step_begins_after_the_deadline(loop, tmp_path):
    """A deadline that is over ends it saved where it stands; hours are counted from now, and 0 of them are no limit."""
    with Signals() as signals:
        assert loop(steps=5).train(signals, deadline=deadline_after(1e-9)).step == 0
        assert checkpoint.steps(tmp_path) == [0]
        assert loop(steps=5).train(signals, deadline=deadline_after(1)).step == 5
    assert deadline_after(0) == 0


def test_an_evaluation_is_made_once(loop, tmp_path):
    """Where it is due, of the adapter as it stands, told and logged; one that the log has is not made again."""
    made = []
    evaluation = SimpleNamespace(due=lambda step: step in (0, 2, 4),
                                 of=lambda model, adapter: made.append(1) or {"eval/time": 1.0})
    with Signals() as signals:
        first, rest = loop(steps=2), loop(steps=4)
        first.train(signals, evaluation)
        rest.train(signals, evaluation)

    assert [row["step"] for row in read_rows(tmp_path / "eval.jsonl")] == [0, 2, 4] and len(made) == 3
    assert [said[1] for said in first.told.said + rest.told.said if said[0] == "evaluated"] == [0, 2, 4]


def test_a_start_is_a_checkpoints_or_a_beginning(tmp_path):
    """A new run has an adapter that changes nothing; RESUME of a folder without a checkpoint is refused."""
    at = start(tmp_path, small_model.CFG, settings())
    assert (at.step, at.cursor) == (0, Cursor()) and float(lora.delta_norm(at.state.adapter)) == 0
    (tmp_path / "config.yaml").write_text(config.dump(settings()))
    with pytest.raises(CheckpointError, match="no complete checkpoint to resume from"):
        start(tmp_path, small_model.CFG, config.load({"RESUME": str(tmp_path)}).settings)


def test_lora_is_what_it_begins_with(tmp_path):
    """The adapter that LORA names, with its rank, as the first one."""
    adapter = lora.init(jax.random.key(1), small_model.CFG, 2, 4.0)
    checkpoint.save(tmp_path, 7, init_state(adapter), seed=0, base_model="x", keep_last=1, keep_every=0)
    found = first_adapter(small_model.CFG, settings(lora=tmp_path / "checkpoints" / "step_00007"))

    same = jax.tree.map(lambda a, b: bool((a == b).all()), found["layers"], adapter["layers"])
    assert all(jax.tree.leaves(same))
