"""Bugs that users of other trainers have reported, each on the reporters' input, with the outcome that is right.

docs/REPORTED_BUGS.md has the table; tests of other files with the same mark check the other reports. Here: one small model, steps
of two tasks with eight samples of eight tokens each, and rewards set by the test."""

import itertools
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from benchmarks.sandbox_report import descendants
from qwen2_jax import forward
from rl.rewards.base import Completion, Grade, GradedGroup, Grader
from rl.rewards.lisp import ProgramGrader
from rl.run.files import read_rows
from rl.run.log import RunLog
from rl.sandbox import Sandbox
from rl.settings import config
from rl.tasks import Prompt, Task
from rl.training import lora
from rl.training import update as update_module
from rl.training.device import Compiling
from rl.training.loss import Loss
from rl.training.optimiser import AdamW, init_state
from rl.training.packing import bucket, pack, pack_groups
from rl.training.sampler import SamplingParams, empty_rollouts, generate, record, row_keys, step_key
from rl.training.step import advantages_of, length_penalties, rewards_of, train_step
from rl.training.update import hidden_states, update
from tests import small_model
from tests.training.test_update import ADVANTAGES, assert_close, plain_gradient, plain_loss, rollouts

PARAMS, ADAPTER, CFG, VOCAB = small_model.params(), small_model.adapter(), small_model.CFG, small_model.VOCAB_USED
NEVER_ENDS = (310,)    # a stop id that is never sampled, so that every sample has full length
MIXED = [0.0, 1.0] * 8
SMALL = {"GROUP": "8", "TASKS_PER_STEP": "2", "MAX_NEW_TOKENS": "8", "DECODE_BLOCK": "8", "RECHECK_SHARE": "0",
         "LOGIT_CHUNK": "64", "LEARNING_RATE": "1e-2", "WARMUP_STEPS": "0"}


def grade_of(text, reward):
    """A grade; correct if the reward is not 0."""
    return Grade(text, "pass" if reward else "wrong_answer", bool(reward), reward, style=0.5, depth=1, calls=1, pure=True, idle=0)


class FixedRewards(Grader):
    """A grader with given rewards, row by row, whatever the answers are."""

    def __init__(self, rewards):
        self.rewards = rewards

    def grade(self, completions):
        """One grade a row."""
        return [grade_of(one.text, reward) for one, reward in zip(completions, self.rewards, strict=True)]


def settings_of(**changes):
    return config.load(SMALL | {name.upper(): str(value) for name, value in changes.items()}, training=True).settings


def a_step(state, grader, step=0, lengths=(5, 9), stop_ids=NEVER_ENDS, **changes):
    """train_step() of the small model on prompts of these lengths: (state, groups, metrics)."""
    model = small_model.model(stop_ids)
    model.chat.decode = lambda ids: " ".join(map(str, ids))
    prompts = [Prompt(SimpleNamespace(name=f"t{n}"), [], small_model.prompt(n)) for n in lengths]
    return train_step(model, state, prompts, grader, settings_of(**changes), step)


def new_state():
    return init_state(lora.init(jax.random.key(0), CFG, 4, 8.0))


def pairs_of(state):
    """a and b of every projection."""
    return [pair for layer in state.adapter["layers"] for part in layer.values() for pair in part.values()]


# ---- the loss --------------------------------------------------------------------------------------------------------

LENGTHS = (1, 3, 9, 17, 26, 38, 51, 64)
# Every part has one of the longer rows, so that few shapes are compiled.
CUTS = {8: [range(8)], 4: [(0, 3, 4, 7), (1, 2, 5, 6)], 2: [(0, 7), (1, 6), (2, 5), (3, 4)], 1: [(row,) for row in range(8)]}


@pytest.fixture(scope="module")
def eight_rows():
    """A function from (parts, Loss) to the loss value and the gradient of one update on eight rows of one prompt."""
    rng = np.random.default_rng(0)
    ids = [rng.integers(12, VOCAB, n) for n in LENGTHS]
    advantage = np.array([1.3, -0.4, 0.6, -1.5, 0.9, -1.1, 0.7, -0.5], np.float32)

    def packed(rows, loss, logprobs):
        return pack(small_model.prompt(9), [ids[n] for n in rows], [logprobs[n] for n in rows], advantage[list(rows)], loss)

    whole = packed(range(8), Loss(), [np.zeros(n, np.float32) for n in LENGTHS])
    hidden = hidden_states(PARAMS, ADAPTER, whole, CFG, "full")
    own = np.asarray(update_module.logprobs(hidden, PARAMS, whole, CFG, Loss(), VOCAB))
    logprobs = np.split(own[: sum(LENGTHS)] + rng.normal(0, 0.25, sum(LENGTHS)).astype(np.float32), np.cumsum(LENGTHS)[:-1])

    def updated(cut, loss):
        groups = [packed(rows, loss, logprobs) for rows in cut]
        return updated_by(groups, loss)
    return updated


def updated_by(groups, loss):
    """(loss value, gradient) of an update: from zero, the first moment becomes (1 - beta1) times the gradient."""
    state, metrics = update(PARAMS, init_state(ADAPTER), groups, CFG, loss, AdamW(max_grad_norm=0), VOCAB)
    return metrics["loss"], jax.tree.map(lambda m: m / (1 - 0.9), state.mu)


@pytest.mark.slow
@pytest.mark.known_bug(1)
@pytest.mark.parametrize("kind", ["dapo", "grpo", "dr_grpo", "gspo", "cispo"])
def test_micro_batches_do_not_matter(eight_rows, kind):
    """Eight rows of 1 to 64 tokens in parts of 8, 4, 2 and 1, in either order: the same gradient and logged loss."""
    loss = Loss(kind=kind, logit_chunk=64)
    want_loss, want = eight_rows(CUTS[8], loss)
    for cut in (CUTS[4], CUTS[2], CUTS[1], CUTS[2][::-1]):
        found_loss, found = eight_rows(cut, loss)
        assert found_loss == pytest.approx(want_loss, rel=1e-5, abs=1e-7)
        assert_close(found, want, 1e-5)
    assert abs(want_loss) > 1e-3 and any(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(want))


@pytest.mark.slow
@pytest.mark.known_bug(1)
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_the_size_of_a_chunk_does_not_matter(eight_rows, chunk):
    """One token at a time, chunks that split rows, and all at once: the gradient and loss of chunks of 64."""
    (want_loss, want), (found_loss, found) = (eight_rows(CUTS[8], Loss(logit_chunk=size)) for size in (64, chunk))
    assert found_loss == pytest.approx(want_loss, rel=1e-5)
    assert_close(found, want, 1e-5)


@pytest.mark.known_bug(1)
def test_an_update_divides_by_all_its_tokens():
    """Loss and gradient of `update` on two groups are those of the formula on separate rows."""
    out, loss = rollouts(), Loss(logit_chunk=16)
    found_loss, found = updated_by(pack_groups(out, ADVANTAGES, np.ones((2, 3), bool), loss), loss)
    want_loss, want = plain_gradient(out, lambda logits: plain_loss(logits, out, ADVANTAGES.ravel()))

    assert found_loss == pytest.approx(float(want_loss), rel=1e-4)
    assert_close(found, want, 5e-5)


@pytest.mark.slow
@pytest.mark.known_bug(2)
def test_a_step_whose_samples_are_all_cut_and_masked_changes_nothing():
    """OVERLONG=mask and no finished sample: loss 0, all metrics finite; weights, moments and count stay."""
    before, _, first = a_step(new_state(), FixedRewards(MIXED))
    after, _, metrics = a_step(before, FixedRewards(MIXED), 1, overlong="mask")

    assert first["skipped_steps"] == 0 and metrics["skipped_steps"] == 1
    assert metrics["loss"] == metrics["grad_norm"] == metrics["trained_tokens"] == 0 and metrics["completions/clipped_ratio"] == 1
    assert all(np.isfinite(value) for value in metrics.values() if value is not None)
    assert any(leaf.any() for leaf in jax.tree.leaves(before.mu)), "moments must not be zero, or this shows nothing"
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True))


# ---- masks -----------------------------------------------------------------------------------------------------------

A, B, EOS, PAD = 20, 21, small_model.STOP_IDS[0], 0    # PAD: the sampler's padding


@pytest.mark.known_bug(3)
@pytest.mark.parametrize("ids, length, finish", [
    ([A, B, EOS, EOS], 3, "stop"), ([A, PAD, B, EOS], 4, "stop"), ([PAD, PAD, EOS, PAD], 3, "stop"), ([EOS, A, B, A], 1, "stop"),
    ([A, B, PAD, PAD], 4, "length")], ids=str)
def test_masks_are_positions(ids, length, finish):
    """A row ends with the first stop id, whatever follows; an id that equals the padding counts."""
    out = empty_rollouts([[5, 6]], samples=2, max_new_tokens=4)
    block = np.array([ids, [A, EOS, A, A]]), np.full((2, 4), -1.5), np.ones((2, 4))
    record(out, np.arange(2), np.zeros(2, bool), block, 0, 4, small_model.STOP_IDS)
    assert (out.length_B.tolist(), out.finish_B) == ([length, 2], [finish, "stop"])

    group, = pack_groups(out, np.array([[1, -1]], np.float32), np.ones((1, 2), bool), Loss(logit_chunk=8))
    counted = group.targets.weight_M > 0
    assert counted.tolist() == [True] * (length + 2) + [False] * (6 - length)
    assert group.targets.target_M[counted].tolist() == ids[:length] + [A, EOS]
    assert (group.targets.sampler_logprob_M[counted] == -1.5).all()


@pytest.mark.known_bug(3)
def test_a_padding_id_that_is_sampled_is_trained_on():
    """In hundreds of samples, id 0 in the middle of a row counts like any other: all rows have their eight tokens."""
    keys = row_keys(step_key(0, 0), ["t"], 256)
    sampling = SamplingParams(temperature=1000.0, max_new_tokens=8, block=8)
    out = generate(small_model.model(NEVER_ENDS), None, [small_model.prompt(5)], 256, sampling, keys)
    assert (out.ids_BT[:, :-1] == PAD).any(), "none was sampled"
    group, = pack_groups(out, np.ones((1, 256), np.float32), np.ones((1, 256), bool), Loss())
    assert group.n_tokens == 256 * 8


# ---- the sampler -----------------------------------------------------------------------------------------------------

def greedy(prompts, stop_ids=NEVER_ENDS, adapter=ADAPTER):
    """Each prompt's greedy ids, at most 32, and their log-probabilities; two samples each, so that finished rows are dropped."""
    keys = row_keys(step_key(0, 0), [str(len(ids)) for ids in prompts], 2)
    sampling = SamplingParams(temperature=0.0, max_new_tokens=32, block=8)
    out = generate(small_model.model(stop_ids), adapter, prompts, 2, sampling, keys)
    assert out.ids_BT[::2].tolist() == out.ids_BT[1::2].tolist()
    rows = zip(out.ids_BT, out.logprobs_BT, out.length_B, strict=True)
    return [(ids[:n].tolist(), logprobs[:n]) for ids, logprobs, n in rows][::2]


@pytest.mark.slow
@pytest.mark.known_bug(8)
def test_left_padding_changes_nothing():
    """Prompts of 5, 17 and 40 tokens, greedy: the same 32 ids together, alone and beside finished rows, with the
    log-probabilities of the uncached forward pass of the unpadded row."""
    prompts = [small_model.prompt(n) for n in (5, 17, 40)]
    together = greedy(prompts)
    assert [len(ids) for ids, _ in together] == [32] * 3
    for prompt, (ids, logprobs) in zip(prompts, together, strict=True):
        assert greedy([prompt])[0][0] == ids
        tokens, mask = np.zeros((1, 80), np.int32), np.arange(80)[None] < len(prompt) + 32
        tokens[mask] = prompt + ids
        logits = np.asarray(forward(PARAMS, ADAPTER, tokens, mask, CFG)[0, :, :VOCAB], np.float64)
        of_rows = logits[len(prompt) - 1 : len(prompt) + 31]
        assert (of_rows.argmax(-1) == ids).all()
        want = of_rows[np.arange(32), ids] - np.log(np.exp(of_rows).sum(-1))
        np.testing.assert_allclose(logprobs, want, atol=1e-4)

    ends = next(id for id in together[0][0] if all(id not in ids for ids, _ in together[1:]))
    beside = greedy(prompts, (ends,))
    at = together[0][0].index(ends) + 1
    assert at < 24 and [ids for ids, _ in beside] == [together[0][0][:at], *(ids for ids, _ in together[1:])]
    for (_, found), (_, want) in zip(beside[1:], together[1:], strict=True):
        np.testing.assert_allclose(found, want, atol=1e-4)


@pytest.mark.known_bug(7)
def test_the_sampler_has_the_new_weights_at_once():
    """The first step moves every b, the second every a; the sampler compiled before gives the log-probabilities of the new
    weights, as the uncached forward pass does."""
    states = [new_state()]
    for step in range(2):
        states.append(a_step(states[-1], FixedRewards(MIXED), step)[0])
    zero, one, two = map(pairs_of, states)
    assert not any(pair["b"].any() for pair in zero) and all(pair["b"].any() for pair in one)
    assert all((a["a"] != b["a"]).any() for a, b in zip(one, two, strict=True))

    prompt, found = small_model.prompt(17), []
    for state in states:
        (ids, logprobs), = greedy([prompt], adapter=state.adapter)
        tokens = np.array([prompt])
        logits = np.asarray(forward(PARAMS, state.adapter, tokens, np.ones_like(tokens, bool), CFG)[0, -1, :VOCAB], np.float64)
        assert logprobs[0] == pytest.approx(logits[ids[0]] - np.log(np.exp(logits).sum()), abs=1e-4)
        found.append(logprobs[0])
    assert abs(found[1] - found[0]) > 1e-3 and abs(found[2] - found[1]) > 1e-3


@pytest.mark.known_bug(10)
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_sampler_and_trainer_agree_at_a_temperature(temperature):
    """Log-probabilities differ by rounding only, so the first ratios are 1 and even bounds of 1e-4 clip nothing."""
    state = init_state(ADAPTER)
    _, _, metrics = a_step(state, FixedRewards(MIXED), temperature=temperature, eps_low=1e-4, eps_high=1e-4)

    assert 0 < metrics["sampling/sampling_logp_difference/max"] < 1e-4 and metrics["trained_tokens"] == 128
    assert metrics["clip_ratio/region_mean"] == metrics["clip_ratio/low_mean"] == metrics["clip_ratio/high_mean"] == 0


# ---- rewards ---------------------------------------------------------------------------------------------------------

def raises(_grade):
    raise RuntimeError("no such node")


@pytest.mark.known_bug(15)
@pytest.mark.parametrize("how", [raises, lambda grade: None, lambda grade: grade._replace(reward=None),
                                 lambda grade: grade._replace(reward=float("nan"))], ids=["raises", "None", "no reward", "NaN"])
def test_a_grader_that_fails_on_one_row_of_eight(how):
    """Row 3 is masked and counted, and its reward is in no mean; training continues with the others."""
    third = a_step(new_state(), FixedRewards(MIXED))[1][0].samples[3].text

    class Failing(FixedRewards):
        def grade(self, completions):
            rewards = dict(zip(texts, MIXED, strict=True))
            grades = {one.text: grade_of(one.text, rewards[one.text]) for one in completions}
            return [how(grades[one.text]) if one.text == third else grades[one.text] for one in completions]

    texts = [sample.text for group in a_step(new_state(), FixedRewards(MIXED))[1] for sample in group.samples]
    state, groups, metrics = a_step(new_state(), Failing(None))
    assert groups[0].samples[3].verdict == "internal_error"
    assert metrics["grader/internal_error_rate"] == 1 / 16 and metrics["trained_tokens"] == 15 * 8
    assert metrics["reward"] == pytest.approx(7 / 15) and metrics["skipped_steps"] == 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state)) and all(pair["b"].any() for pair in pairs_of(state))


def with_length_penalty(correct_PN, style_PN, length_PN, **changes):
    """(rewards, advantages) of groups of answers with these lengths, under the length penalty."""
    settings = settings_of(overlong="penalise", max_new_tokens=400, overlong_tokens=350, overlong_penalty=1, **changes)
    rows = zip(correct_PN, style_PN, length_PN, strict=True)
    groups = [GradedGroup("t", [], [SimpleNamespace(correct=c, reward=c * (1 + 0.5 * s), tokens=n)
                              for c, s, n in zip(*row, strict=True)]) for row in rows]
    reward_PN = rewards_of(groups, None, length_penalties(groups, settings))
    return reward_PN, advantages_of(reward_PN, reward_PN > 0, settings)


@pytest.mark.known_bug(16)
@pytest.mark.parametrize("kind", ["grpo", "rloo", "passk"])
def test_length_teaches_nothing_where_all_are_wrong(kind):
    """Wrong answers of 50 to 400 tokens have no advantage; in every mixture with right ones they never have the larger one."""
    lengths = np.arange(50, 401, 50)
    _, none = with_length_penalty(np.zeros((1, 8), bool), np.zeros((1, 8)), [lengths], advantage=kind)
    assert (none == 0).all()

    correct = np.array([mix for mix in itertools.product([False, True], repeat=8) if 0 < sum(mix) < 8])
    style = np.random.default_rng(0).random(correct.shape)
    reward, advantage = with_length_penalty(correct, style, np.broadcast_to(lengths, correct.shape), advantage=kind)
    for values in (reward, advantage):
        assert (np.where(correct, np.inf, values).min(1) <= np.where(correct, values, np.inf).min(1)).all()
        assert (np.where(correct, -np.inf, values).max(1) <= np.where(correct, values, np.inf).min(1)).all()
    assert (reward[:, -1] < 1).all() and np.ptp(reward[correct]) > 0.9, "the penalty must have an effect"


@pytest.mark.known_bug(25)
def test_the_log_is_of_the_whole_step(tmp_path):
    """Two groups, one all wrong and one all right, in either order: one row with every metric, and reward 0.5."""
    rows = []
    for rewards in ([0.0] * 8 + [1.0] * 8, [1.0] * 8 + [0.0] * 8):
        _, groups, metrics = a_step(new_state(), FixedRewards(rewards))
        log = RunLog(tmp_path / str(len(rows)))
        log.completions(1, groups)
        log.step(1, metrics)
        row, = read_rows(tmp_path / str(len(rows)) / "metrics.jsonl")
        assert row.keys() == metrics.keys() | {"step"}
        rows.append(row)
    for row in rows:
        assert row["reward"] == row["pass_rate"] == row["frac_all_good"] == row["frac_all_bad"] == 0.5
        assert row["skipped_steps"] == 1 and row["num_tokens"] == 128


@pytest.mark.known_bug(25)
def test_the_update_counts_all_its_groups():
    """Two groups with signal, one mostly wrong and one mostly right: the mean of both and the tokens of both."""
    _, _, metrics = a_step(new_state(), FixedRewards([0.0] * 7 + [1.0] + [1.0] * 7 + [0.0]))
    assert (metrics["reward"], metrics["frac_mixed"], metrics["trained_tokens"]) == (0.5, 1.0, 128)


# ---- compiling -------------------------------------------------------------------------------------------------------

@pytest.mark.known_bug(27)
def test_compiling_is_counted():
    """A new shape is one program and takes time, a known one is none, and nothing outside the block counts."""
    double, found = jax.jit(lambda x: x * 2 + 1), []
    for size in (7, 7, 8):
        with Compiling() as compiling:
            double(np.ones(size, np.float32))
        double(np.ones(size + 100, np.float32))
        found.append((compiling.programs, compiling.seconds > 0))
    assert found == [(1, True), (0, False), (1, True)]


@pytest.mark.slow
@pytest.mark.known_bug(27)
def test_prompts_of_any_length_share_a_few_programs():
    """Ten steps with twenty prompt lengths: a step compiles only if a bucket is new, the sampler once a bucket, and the metrics
    show it; the same ten steps again compile nothing."""
    jax.clear_caches()    # other tests may have compiled some of it
    small_model.model(NEVER_ENDS)    # what making the model compiles is no step's
    named, state = [], new_state()
    listen = lambda event, _, fun_name="", **__: named.append((event, fun_name))  # noqa: E731
    lengths = np.random.default_rng(3).permutation(np.arange(5, 113))[:20].reshape(10, 2).tolist()
    counts = []
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for _ in range(2):
            for step, pair in enumerate(lengths):
                state, _, metrics = a_step(state, FixedRewards(MIXED[:10]), step, pair, group=5)
                counts.append((metrics["compiles"], metrics["time/compile"]))
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)

    seen, new = set(), []
    for pair in lengths:
        here = {("sample", -(-(max(pair) - 1) // 64)), ("prompts", -(-(max(pair) - 1) // 16)),
                *(("update", bucket(n, 64)) for n in pair)}
        new.append(bool(here - seen))
        seen |= here
    compiled = [name for event, name in named if event == "/jax/core/compile/backend_compile_duration"]
    assert len({n for pair in lengths for n in pair}) == 20 and len(seen) <= 6 + 7 and not all(new)
    assert [count > 0 for count, _ in counts] == new + [False] * 10
    assert all((seconds > 0) == (count > 0) for count, seconds in counts)
    assert compiled.count("jit(decode_block)") == 2
    assert compiled.count("jit(prefill)") == sum(kind == "prompts" for kind, _ in seen)
    assert sum(count for count, _ in counts) == len(compiled)


# ---- graders ---------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def box():
    with Sandbox(workers=1) as box:
        yield box


HONEST = "def add_one(nums):\n    return [n + 1 for n in nums]\n"
TASK = Task(name="add_one", text="", signature="def add_one(nums: list[int]) -> list[int]:", reference=HONEST,
            examples=(([1, 2],),), generate=lambda rng: [([rng.randrange(99) for _ in range(n)],) for n in range(1, 7)],
            scalar=False, one_element_list=False)
REACH = "import random\nos = random._os\n"
HUNG = {    # each with its right verdicts
    "while True: pass": ("def add_one(nums):\n    while True: pass", {"timeout"}),
    "swallows exceptions": ("def add_one(nums):\n    while True:\n        try:\n            while True: pass\n"
                            "        except BaseException: pass", {"timeout"}),
    "a sleeper, forked twice": (REACH + "import time\ndef add_one(nums):\n    if os.fork() == 0:\n        if os.fork() == 0:\n"
                                "            time.sleep(60)\n    return [n + 1 for n in nums]", {"exception"}),
    "1 GB of stdout": ("def add_one(nums):\n    for _ in range(2**20):\n        print('x' * 1024)\n    return nums",
                       {"timeout", "wrong_answer"}),
    "stdout without end": ("def add_one(nums):\n    while True: print('x' * 1024)", {"timeout"}),
    "input()": ("def add_one(nums):\n    return input()", {"exception"}),
    "input() where it is loaded": ("import sys\nlines = [input()]\n" + HONEST, {"exception"}),
}


@pytest.mark.known_bug(13)
@pytest.mark.parametrize("name", HUNG)
def test_what_hangs_is_ended(box, name):
    """Ended within a second of CPU time beyond its limit, with no process left and its output truncated; the next program passes.

    Where hanging is made impossible (fork refused, stdin empty) the verdict is the error that the program gets at once."""
    source, verdicts = HUNG[name]
    suite = box.expect(HONEST, "add_one", [([1, 2],)], case_cpu_s=0.3)
    hung, honest = box.grade([(source, suite), (HONEST + f"# after {name}", suite)])

    assert hung.verdict in verdicts and hung.cpu_s < 0.3 + 1 and len(hung.stdout) <= 2048
    assert honest.verdict == "pass"
    assert not any(descendants(pid) for pid in box.server_pids())


CHEATS = {
    "exit(0)": "exit(0)",
    "exit(0) in the function": "def add_one(nums):\n    exit(0)",
    "SystemExit": "raise SystemExit(0)",
    "os._exit(0)": "import os\nos._exit(0)",
    "os._exit(0), reached otherwise": REACH + "def add_one(nums):\n    os._exit(0)",
    "prints PASS": "print('PASS')\nprint('6 passed in 0.01s')\ndef add_one(nums):\n    print('PASS')\n    return 'PASS'",
    "writes PASS to every descriptor": REACH + "for fd in range(10):\n    try: os.write(fd, b'PASS\\n[\"pass\"]\\n')\n"
                                       "    except OSError: pass\ndef add_one(nums):\n    return nums",
    "__eq__ of a list": "class L(list):\n    __eq__ = lambda a, b: True\n    __ne__ = lambda a, b: False\n"
                        "def add_one(nums):\n    return L(nums)",
    "__eq__ of an object": "class E:\n    __eq__ = lambda a, b: True\ndef add_one(nums):\n    return E()",
    "__eq__ of the elements": "class I(int):\n    __eq__ = lambda a, b: True\n    __hash__ = int.__hash__\n"
                              "def add_one(nums):\n    return [I(n) for n in nums]",
    "sys.modules": "import sys\nfor module in list(sys.modules.values()):\n    for name in ('equal', 'grade', 'main'):\n"
                   "        try: setattr(module, name, lambda *a, **k: True)\n        except Exception: pass\n"
                   "def add_one(nums):\n    return nums",
    "sys.modules, reached otherwise": REACH + "modules = os.sys.modules\nfor module in list(modules.values()):\n"
                                      "    for name in ('equal', 'same', 'dumps', 'encode'):\n"
                                      "        try: setattr(module, name, lambda *a, **k: True)\n        except Exception: pass\n"
                                      "modules.clear()\ndef add_one(nums):\n    return nums",
    "builtins": "import builtins\nbuiltins.len = builtins.sum = lambda *_: 0\nbuiltins.all = lambda *_: True\n"
                "def add_one(nums):\n    return nums",
    "reads the tests": REACH + "def add_one(nums):\n    for folder, _, files in os.walk('.'):\n        for name in files:\n"
                       "            os.open(folder + '/' + name, 0)\n    return nums",
    "looks for the answers in memory": REACH + "gc = os.sys.modules.get('gc')\ndef add_one(nums):\n"
                                       "    found = [x for x in gc.get_objects() if type(x) is list and len(x) == len(nums)\n"
                                       "             and x != nums and x == [n + 1 for n in nums]]\n    return found[0]",
    "one element short": "def add_one(nums):\n    return [n + 1 for n in nums][:-1]",
    "empty": "def add_one(nums):\n    return []",
    "None": "def add_one(nums):\n    return None",
    "the examples alone": "def add_one(nums):\n    return {(1, 2): [2, 3]}.get(tuple(nums), [])",
}


@pytest.mark.known_bug(14)
def test_cheats_are_worth_nothing(box):
    """The training grader rewards the honest answer, gives every cheat 0, and never fails itself."""
    completions = [Completion(TASK, source) for source in (HONEST, *CHEATS.values())]
    grades = ProgramGrader(box, [TASK], 0.5, 1).grade(completions)

    assert grades[0].correct and grades[0].reward > 1
    got = {name: (grade.reward, grade.correct) for name, grade in zip(CHEATS, grades[1:], strict=True)}
    assert got == dict.fromkeys(CHEATS, (0.0, False))
    assert ProgramGrader(box, [TASK], 0.5, 2).grade([Completion(TASK, HONEST + "# again")])[0].correct
