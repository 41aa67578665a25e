"""Settings reach the code that uses them.

What the constants of sampler, loss and optimiser do is tested with those; here, that each setting sets its constant."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model_config import PROJECTIONS
from rl import command
from rl.errors import InputError
from rl.rewards import lisp
from rl.rewards.base import Grade, Grader
from rl.rewards.setup import open_judge
from rl.run.log import step_metrics
from rl.settings import config
from rl.tasks import Prompt
from rl.training import lora
from rl.training import step as training_step
from rl.training.loss import loss_of
from rl.training.optimiser import init_state, optimiser_of
from rl.training.run import start
from rl.training.sampler import sampling_of
from rl.training.step import train_step
from tests import small_model


def settings(**values):
    """The default settings except these."""
    return config.load({name.upper(): str(value) for name, value in values.items()}).settings


CONSTANTS = (sampling_of, loss_of, optimiser_of)
FIELDS = {    # leaf -> another value, and the fields that must follow it
    "temperature": (0.5, {"SamplingParams.temperature", "Loss.temperature"}), "top_k": (7, {"SamplingParams.top_k"}),
    "top_p": (0.5, {"SamplingParams.top_p"}), "max_new_tokens": (9, {"SamplingParams.max_new_tokens", "Loss.max_new_tokens"}),
    "decode_block": (3, {"SamplingParams.block"}),
    "eps_low": (0.1, {"Loss.eps_low"}), "eps_high": (0.9, {"Loss.eps_high"}),
    "logit_chunk": (32, {"Loss.logit_chunk"}), "remat": ("dots", {"Loss.remat"}),
    "learning_rate": (0.5, {"AdamW.learning_rate"}), "weight_decay": (0.25, {"AdamW.weight_decay"}),
    "max_grad_norm": (2.0, {"AdamW.max_grad_norm"}), "scheduler": ("cosine", {"AdamW.scheduler"}),
    "steps": (77, {"AdamW.total_updates"})}


@pytest.mark.known_bug(26)
@pytest.mark.parametrize("leaf", FIELDS)
def test_a_setting_is_its_constant_and_no_other(leaf):
    """A setting changes exactly its own constants of sampler, loss and optimiser."""
    def constants(found):
        made = [make(found) for make in CONSTANTS]
        return {f"{type(one).__name__}.{name}": value for one in made for name, value in one._asdict().items()}

    value, fields = FIELDS[leaf]
    before, after = constants(settings()), constants(settings(**{leaf: value}))
    assert {name for name in before if before[name] != after[name]} == fields
    assert all(after[name] == value for name in fields)


def test_warm_up_counts_steps():
    """WARMUP_STEPS and STEPS are in steps, the optimiser counts updates; UPDATES_PER_BATCH of them make a step."""
    assert optimiser_of(settings(warmup_steps=3)).warmup_updates == 3
    assert optimiser_of(settings(warmup_steps=3, updates_per_batch=2)).warmup_updates == 6
    assert optimiser_of(settings(steps=9, updates_per_batch=2)).total_updates == 18


def test_the_optimiser_has_the_papers_constants():
    """AdamW's betas and epsilon, which are not settings: saved optimiser states depend on them."""
    opt = optimiser_of(settings())
    assert (opt.beta1, opt.beta2, opt.eps) == (0.9, 0.999, 1e-8)


class ByText(Grader):
    """Rewards between 0 and 1 that depend on the text alone."""

    def grade(self, completions):
        return [Grade(one.text, "pass", True, sum(map(ord, one.text)) % 7 / 6) for one in completions]


@pytest.fixture(scope="module")
def stepped():
    """One real training step of a small random model under some settings: (state, groups, metrics)."""
    model = small_model.model()
    model.chat.decode = lambda ids: " ".join(map(str, ids))
    prompts = [Prompt(SimpleNamespace(name=f"t{n}"), [], small_model.prompt(n)) for n in (5, 9)]

    def step(**changes):
        base = {"group": 4, "max_new_tokens": 8, "decode_block": 4, "recheck_share": 0, "logit_chunk": 16, "learning_rate": 0.01}
        adapter = lora.init(jax.random.key(0), small_model.CFG, 4, 8.0)
        return train_step(model, init_state(adapter), prompts, ByText(), settings(**base | changes), 0)
    return step


@pytest.mark.slow
def test_a_step_follows_its_settings(stepped):
    """GROUP samples per task, UPDATES_PER_BATCH updates; SEED: other samples; SHUFFLE_REWARDS: the same and another update."""
    texts = lambda found: [sample.text for group in found[1] for sample in group.samples]  # noqa: E731
    b = lambda found: np.asarray(found[0].adapter["layers"][0]["mlp"]["up_proj"]["b"])  # noqa: E731
    base = stepped()
    assert [len(group.samples) for group in base[1]] == [4, 4] and int(base[0].updates) == 1
    assert (b(stepped()) == b(base)).all(), "the same settings, the same step"

    assert [len(group.samples) for group in stepped(group=6)[1]] == [6, 6]
    twice = stepped(updates_per_batch=2)
    assert int(twice[0].updates) == 2 and texts(twice) == texts(base) and (b(twice) != b(base)).any()
    assert texts(stepped(seed=1)) != texts(base)
    shuffled = stepped(shuffle_rewards=1)
    assert texts(shuffled) == texts(base) and (b(shuffled) != b(base)).any()
    assert step_metrics(shuffled[1]) == step_metrics(base[1]), "the log has the rewards as they were earned"


@pytest.mark.slow
def test_the_update_takes_a_group_in_parts(stepped, monkeypatch):
    """UPDATE_SAMPLES=2 splits groups of 4 in two, and the update is the same up to rounding."""
    counts, update = [], training_step.update
    monkeypatch.setattr(training_step, "update", lambda params, state, packed, *rest: counts.append(len(packed)) or update(
        params, state, packed, *rest))
    whole, parts = stepped(), stepped(update_samples=2)

    assert counts[1] == 2 * counts[0] and whole[2]["trained_tokens"] == parts[2]["trained_tokens"]
    for a, b in zip(jax.tree.leaves(whole[0].mu), jax.tree.leaves(parts[0].mu), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_rank_and_alpha_shape_a_new_adapter(tmp_path):
    """LORA_RANK columns, scaled by LORA_ALPHA / LORA_RANK."""
    for rank, alpha in ((16, 32.0), (3, 12.0)):
        state, step, _ = start(tmp_path, small_model.CFG, settings(lora_rank=rank, lora_alpha=alpha))
        assert step == 0 and lora.rank_of(state.adapter) == rank and float(state.adapter["scale"]) == alpha / rank


def test_targets_are_the_new_adapters(tmp_path):
    """LORA_TARGETS in any order and spacing are the projections that have entries; by default all seven of the model."""
    for asked, found in (("down_proj, q_proj", ["q_proj", "down_proj"]), ("up_proj", ["up_proj"])):
        state, _, _ = start(tmp_path, small_model.CFG, settings(lora_targets=asked))
        assert lora.targets_of(state.adapter) == found
    assert settings().model.lora_targets.split(",") == list(PROJECTIONS)


def test_the_number_format(tiny_model):
    """DTYPE is the weights' type, whatever the device would choose."""
    for dtype in ("float16", "bfloat16", "float32"):
        assert command.find_model(settings(model=tiny_model, dtype=dtype))[1] == jnp.dtype(dtype)


def test_the_attention_kernel(tiny_model, monkeypatch):
    """einsum is used without trying cudnn; auto uses cudnn if it runs."""
    monkeypatch.setattr(jax.nn, "dot_product_attention", lambda q, *_, **__: q)
    for asked, found in (("einsum", "einsum"), ("auto", "cudnn"), ("cudnn", "cudnn")):
        assert command.find_model(settings(model=tiny_model, attention=asked))[0].cfg.attention == found


def test_why_the_attention_kernel_is_not_the_fast_one(tiny_model, monkeypatch):
    """The library's own reason, without its full stop, since more text follows."""
    def fails(*_, **__):
        raise RuntimeError("cuDNN is not detected.\nmore")
    monkeypatch.setattr(jax.nn, "dot_product_attention", fails)
    facts = command.find_model(settings(model=tiny_model))[2]
    assert facts["attention"] == "einsum (cudnn does not run here: cuDNN is not detected)"
    with pytest.raises(InputError, match="does not run here: cuDNN is not detected; use ATTENTION=auto or einsum"):
        command.find_model(settings(model=tiny_model, attention="cudnn"))


def test_the_sandbox_gets_its_settings(monkeypatch):
    """Workers, seconds per case and permission for weak machines reach the sandbox."""
    asked = []
    monkeypatch.setattr(lisp, "Sandbox", lambda *arguments: asked.append(arguments))
    open_judge(settings())
    open_judge(settings(sandbox_workers=5, case_seconds=2.5, allow_weak_sandbox=1))
    assert asked == [(2, 0.5, False), (5, 2.5, True)]
