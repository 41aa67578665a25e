"""Every option of the loss, on real steps of a small model: each changes the adapter, and the metrics show it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl.models import pretrained
from rl.rewards.lisp import ProgramGrader
from rl.rewards.setup import open_judge
from rl.settings import config
from rl.tasks import START, cursor_after, encode_prompts, load_tasks, next_tasks
from rl.training import lora
from rl.training.lora import adapter_key
from rl.training.optimiser import init_state
from rl.training.step import train_step
from tests.taught_checkpoint import taught_names

pytestmark = pytest.mark.slow    # some twenty small runs
BASE = {"TASKS_PER_STEP": "2", "GROUP": "4", "MAX_NEW_TOKENS": "40", "TASK_NAMES": ",".join(taught_names()), "LORA_RANK": "2",
        "SANDBOX_WORKERS": "1", "LEARNING_RATE": "3e-3", "WARMUP_STEPS": "0", "UPDATES_PER_BATCH": "2", "RECHECK_SHARE": "0"}


@pytest.fixture(scope="module")
def train(taught_model):
    """Two steps of two updates from a new adapter: (the adapter's values, rows of metrics); equal settings run once."""
    settings = config.load({**BASE, "MODEL": str(taught_model)}, training=True).settings
    source = pretrained.resolve(str(taught_model))
    model, tasks = pretrained.load(source, jnp.float32), load_tasks(settings.data)
    prompts = encode_prompts(tasks, source.chat, False, 1024)
    done = {}
    with open_judge(settings) as sandbox:
        grader = ProgramGrader(sandbox, tasks, 0.5, 1)

        def run(**change):
            key = tuple(sorted(change.items()))
            if key not in done:
                settings = config.load({**BASE, "MODEL": str(taught_model), **change}, training=True).settings
                state = init_state(lora.init(adapter_key(settings.trainer.seed), model.cfg, 2, 4.0))
                rows, cursor = [], START
                for step in range(2):
                    chosen = [prompts[i] for i in next_tasks(len(tasks), step, cursor, settings)]
                    state, groups, metrics = train_step(model, state, chosen, grader, settings, step)
                    cursor = cursor_after(len(tasks), len(groups), cursor, settings)
                    rows.append(metrics)
                done[key] = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.adapter["layers"])]), rows
            return done[key]

        yield run


OPTIONS = [{"LOSS": "grpo"}, {"LOSS": "dr_grpo"}, {"LOSS": "gspo"}, {"LOSS": "cispo"}, {"ADVANTAGE": "rloo"},
           {"ADVANTAGE": "passk", "PASS_K": "2"}, {"ADVANTAGE_SCALE": "none"}, {"ADVANTAGE_SCALE": "batch"},
           {"UPDATE_GROUP": "2"}, {"OVERLONG": "mask"},
           {"ENTROPY_BONUS": "0.05"}, {"KL_BETA": "0.5"}]
UNSCALED = {"ADVANTAGE_SCALE": "none"}  # the std would hide how far apart the two rewards of a group are
PENALISE = {**UNSCALED, "OVERLONG": "penalise"}
DETAILS = [({"LOSS": "gspo"}, {"GSPO_EPS_LOW": "0.5", "GSPO_EPS_HIGH": "0.5"}),
           ({"LOSS": "gspo"}, {"GSPO_EPS_HIGH": "0.5"}), ({"LOSS": "gspo"}, {"GSPO_EPS_LOW": "0.5"}),
           ({"ADVANTAGE": "passk", "PASS_K": "2"}, {"PASS_K": "3"}), ({"ADVANTAGE": "rloo"}, {"ADVANTAGE_SCALE": "std"}),
           (PENALISE, {"OVERLONG_TOKENS": "16"}), (PENALISE, {"OVERLONG_PENALTY": "1"}),
           ({"KL_BETA": "0.5"}, {"KL_BETA": "1"}), ({"ENTROPY_BONUS": "0.05"}, {"ENTROPY_BONUS": "0.1"})]
FEW_SIGNALS = {"ADVANTAGE": "passk", "PASS_K": "3"}  # two right answers of four: any three samples have one, no signal


def text(change):
    return ",".join(f"{name}={value}" for name, value in change.items()) if isinstance(change, dict) else None


@pytest.mark.parametrize("base, change", [
    *[({}, option) for option in OPTIONS], (UNSCALED, {"OVERLONG": "penalise"}),
    (UNSCALED, {"ADVANTAGE_SCALE": "reward"}),    # where all groups are mixed and style is equal it is the same as std
    *[pytest.param(*detail, marks=pytest.mark.slow) for detail in DETAILS]], ids=text)
def test_an_option_changes_what_is_trained(train, base, change):
    """From the same adapter and samples, training ends at another adapter, by far more than rounding, and finite."""
    before, after = train(**base)[0], train(**base | change)[0]
    assert np.isfinite(after).all() and np.abs(after - before).max() > 1e-3 * np.abs(before).max()


def test_the_same_settings_train_the_same(train):
    """Repeated runs agree bit for bit, so the differences above are not noise."""
    assert (train()[0] == train(LOSS="dapo", ADVANTAGE="grpo", OVERLONG="keep", EPS_LOW="0.2")[0]).all()


def test_the_first_samples_do_not_depend_on_the_loss(train):
    """Every option has the same rewards and lengths in the first step."""
    for name in ("reward", "pass_rate", "completions/mean_length", "num_tokens", "entropy"):
        assert len({train(**option)[1][0][name] for option in [{}, *OPTIONS]}) == 1, name


def test_metrics_of_the_options(train):
    """kl is logged with KL_BETA only, 0 before the adapter moves and positive afterwards; the length penalty is logged; masked
    samples are not trained on."""
    plain, kl = train()[1], train(KL_BETA="0.5", UPDATES_PER_BATCH="1")[1]
    assert "kl" not in plain[0] and kl[0]["kl"] == pytest.approx(0, abs=1e-9) and kl[1]["kl"] > 1e-7
    assert "rewards/overlong/mean" not in plain[0] and train(**PENALISE)[1][0]["rewards/overlong/mean"] < 0
    masked = train(OVERLONG="mask")[1][0]
    assert masked["completions/clipped_ratio"] > 0 and masked["trained_tokens"] < plain[0]["trained_tokens"]


def test_terms_that_need_no_signal_train_on_every_group(train):
    """With groups without signal, the KL term and the entropy bonus train on all tokens, the default on fewer."""
    plain, *others = (train(**FEW_SIGNALS, **change)[1] for change in ({}, {"KL_BETA": "0.5"}, {"ENTROPY_BONUS": "0.05"}))
    still = [row for row in plain if row["frac_reward_zero_std"] > 0]

    assert still and all(row["trained_tokens"] < 2 * row["num_tokens"] for row in still)
    assert all(row["trained_tokens"] == 2 * row["num_tokens"] for rows in others for row in rows), "two updates"


def test_dynamic_sampling_fills_the_step(train):
    """Groups without signal are replaced until two have signal or the cap is reached; all are counted."""
    plain, dynamic = (train(**FEW_SIGNALS, **change)[1] for change in ({}, {"DYNAMIC_SAMPLING": "1", "MAX_SAMPLED_GROUPS": "4"}))

    assert any(row["frac_reward_zero_std"] > 0 for row in plain) and "sampled_groups" not in plain[0]
    assert any(row["sampled_groups"] > 2 for row in dynamic)
    for row in dynamic:
        with_signal = row["sampled_groups"] - row["discarded_groups"]
        assert with_signal == 2 or row["sampled_groups"] == 4
        assert row["frac_reward_zero_std"] == pytest.approx(row["discarded_groups"] / row["sampled_groups"])
