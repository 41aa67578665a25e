"""The default step at the size of the 0.5B fits 8 GB: XLA's plan, from shapes alone, against sums by hand."""

from dataclasses import replace

import jax.numpy as jnp
import pytest

from model_config import SHAPES
from rl.settings.declared import Settings
from rl.training.memory import pick_update, planned_memory
from tests import small_model

LIMIT = 7e9    # of an 8 GB card, which also needs room for driver, display and allocator
PROMPT = 256    # tokens; the prompts of lc_easy are shorter

# Qwen2.5-Coder-0.5B, deliberately not taken from SHAPES.
V, D, F, L, HC, KC = 151_936, 896, 4_864, 24, 14 * 64, 2 * 64
ROWS, TASKS, GROUP, NEW, RANK, CHUNK = 64, 8, 8, 192, 16, 256

A_LAYER = 2 * D + (D * HC + HC) + 2 * (D * KC + KC) + HC * D + 3 * D * F    # two norms; q, k, v with biases; o; gate, up, down
WEIGHTS = V * D + L * A_LAYER + D    # the embedding is also the head
ADAPTER = RANK * L * ((D + HC) + 2 * (D + KC) + (HC + D) + 3 * (D + F))
A_TOKEN = L * 2 * KC    # keys and values of one token
CACHES = ROWS * NEW * A_TOKEN + TASKS * PROMPT * A_TOKEN
PACKED = PROMPT + GROUP * NEW    # tokens of a group in the update: last tokens are not fed, but there is as much padding
LOGITS, SAMPLED_LOGITS = CHUNK * V, ROWS * V
HIDDEN = 2 * PACKED * D    # the last layer's output and its gradient


def planned(layers=L, **model):
    """The plan of the default run with fp16 weights, some model settings changed; fewer layers compile faster."""
    settings, model, cfg = Settings(), {"remat": "full"} | model, replace(SHAPES["0.5B"], num_hidden_layers=layers)
    return planned_memory(cfg, jnp.dtype("float16"), replace(settings, model=replace(settings.model, **model)), PROMPT)


@pytest.fixture(scope="module")
def default():
    """The plan of the default run on a small card."""
    return planned()


def test_the_sums_are_of_the_default_run():
    """The sums below assume the default settings."""
    s = Settings()
    assert (s.trainer.tasks_per_step, s.generation.group, s.generation.max_new_tokens) == (TASKS, GROUP, NEW)
    assert (s.model.lora_rank, s.objective.logit_chunk, s.model.remat) == (RANK, CHUNK, "auto")
    assert (WEIGHTS, ADAPTER) == (494_032_768, 8_798_208)


def test_buffers_are_those_by_hand(default):
    """To the byte: weights, adapter with gradient and two moments, caches, layer inputs kept for the backward pass."""
    assert default["weights"] == WEIGHTS * 2
    assert default["adapter, gradient and moments"] == ADAPTER * 4 * 4
    assert default["key/value caches"] == CACHES * 2
    assert default["kept for the backward pass"] == L * PACKED * D * 2


def test_kept_activations_are_counted_even_if_they_look_like_weights():
    """Without rematerialisation a token keeps the same number of values in groups of 4 and of 8, which pack to 896 tokens, the
    model's width."""
    def a_token(group):
        settings = replace(Settings(), model=replace(Settings().model, remat="none"),
                           generation=replace(Settings().generation, group=group, max_new_tokens=96))
        tokens = 128 + {4: 384, 8: 768}[group]
        a_layer = replace(SHAPES["0.5B"], num_hidden_layers=1)
        return planned_memory(a_layer, jnp.dtype("float32"), settings, 128)["kept for the backward pass"] / tokens / 4
    assert a_token(8) == pytest.approx(a_token(4), rel=0.1)
    assert a_token(8) > 4 * F + 8 * D    # at least the four widest activations and eight others


def test_fewer_targets_are_fewer_values():
    """The adapter with LORA_TARGETS=q_proj,v_proj, by hand."""
    two = planned(layers=3, lora_targets="q_proj,v_proj")
    assert two["adapter, gradient and moments"] == RANK * 3 * (D + HC + D + KC) * 4 * 4
    assert two["kept for the backward pass"] == 3 * PACKED * D * 2


def test_temporaries_are_those_by_hand(default):
    """The update has the logits of one chunk and their gradient; the CPU's compiler adds fp32 copies of half-precision operands.

    A GPU needs no copies, so these are upper bounds there."""
    copied_head = V * D * 4
    assert default["update temporaries"] == pytest.approx(2 * LOGITS * 4 + HIDDEN * 4 + copied_head, rel=0.02)
    assert WEIGHTS * 4 < default["sampler temporaries"] < WEIGHTS * 4 + 8 * SAMPLED_LOGITS * 4


def test_the_default_step_fits_an_8_gb_card(default):
    """The peak is below 7 GB by XLA's plan and by hand, fp32 copies included."""
    fixed = WEIGHTS * 2 + ADAPTER * 16
    sampling = CACHES * 2 + WEIGHTS * 4 + 8 * SAMPLED_LOGITS * 4
    updating = L * PACKED * D * 2 + 2 * LOGITS * 4 + HIDDEN * 4 + V * D * 4
    by_hand = fixed + max(sampling, updating)
    assert default["peak"] == pytest.approx(by_hand, rel=0.05)
    assert default["peak"] < LIMIT and by_hand < LIMIT


@pytest.mark.parametrize("gb, remat", [
    (64, "none"), (0.5, "full"), pytest.param(9, "dots", marks=pytest.mark.slow), pytest.param(6, "mlp", marks=pytest.mark.slow),
    pytest.param(4, "full", marks=pytest.mark.slow)])
def test_auto_takes_the_fastest_that_fits(gb, remat):
    """REMAT of the default step in fp32, by the memory there is; full if nothing fits."""
    samples = 1 if gb == 0.5 else Settings().generation.group
    picked = pick_update(SHAPES["0.5B"], jnp.dtype("float32"), Settings(), PROMPT, gb * 1e9)
    assert picked[:2] == (remat, samples) and bool(picked.oversize) == (gb == 0.5)
    if 0.5 < gb < 64:    # and the whole plan agrees that it fits
        settings = replace(Settings(), model=replace(Settings().model, remat=remat))
        update = planned_memory(SHAPES["0.5B"], jnp.dtype("float32"), settings, PROMPT)
        assert sum(update[name] for name in update if name not in ("peak", "key/value caches", "sampler temporaries")) < gb * 1e9


def test_an_update_that_does_not_fit_says_how_much_it_needs():
    """The smallest update in too little memory needs the sum of the plan's parts; with that much, it fits."""
    shapes = small_model.CFG, jnp.dtype("float32")
    asked = replace(Settings(), generation=replace(Settings().generation, group=4))
    remat, samples, oversize = pick_update(*shapes, asked, PROMPT, 1e5)
    model = replace(asked.model, remat="full", update_samples=1)
    figures = planned_memory(*shapes, replace(asked, model=model), PROMPT)
    assert (remat, samples) == ("full", 1)
    assert oversize == sum(figures[name] for name in figures if name not in ("peak", "key/value caches", "sampler temporaries"))
    assert not pick_update(*shapes, replace(asked, model=model), PROMPT, oversize + 1).oversize


@pytest.mark.slow
def test_a_group_that_does_not_fit_is_taken_in_parts():
    """Groups of 64 with 512 tokens each are halved until they fit, and no further; UPDATE_SAMPLES stays if it is set."""
    asked = replace(Settings(), generation=replace(Settings().generation, group=64, max_new_tokens=512))
    budget, shapes = 6e9, (SHAPES["0.5B"], jnp.dtype("float32"))
    remat, samples, oversize = pick_update(*shapes, asked, PROMPT, budget)

    def needed(count):
        model = replace(asked.model, remat=remat, update_samples=count)
        figures = planned_memory(*shapes, replace(asked, model=model), PROMPT)
        return sum(figures[name] for name in figures if name not in ("peak", "key/value caches", "sampler temporaries"))
    assert remat == "full" and 1 < samples < 64 and samples in (2, 4, 8, 16, 32)
    assert needed(samples) < budget < needed(2 * samples) and not oversize
    fixed = replace(asked, model=replace(asked.model, update_samples=64))
    assert pick_update(*shapes, fixed, PROMPT, budget) == ("full", 64, needed(64))


def test_the_plan_can_say_no(default):
    """Without rematerialisation the same step does not fit."""
    without = planned(remat="none")
    assert without["peak"] > LIMIT
    assert without["kept for the backward pass"] > 50 * default["kept for the backward pass"]
    whole = ROWS * NEW * V * 4    # logits of all positions at once, which no setting asks for
    assert whole > LIMIT > default["peak"]
