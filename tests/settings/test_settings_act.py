"""Every setting does what it says: a table of which test shows it, and the way from a setting to what it changes.

What a constant of the sampler, the loss or the optimiser does is tested where that part is; here, that the setting is the
constant. `test_structure.py` checks that the table is complete and that its tests exist."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model_config import PROJECTIONS
from rl import command
from rl.errors import InputError
from rl.rewards import setup
from rl.rewards.base import Grade
from rl.rewards.setup import open_judge
from rl.run.log import step_metrics
from rl.settings import config
from rl.tasks import Prompt
from rl.training import lora
from rl.training import step as training_step
from rl.training.loss import loss_of
from rl.training.optimiser import SGD, AdamW, init_state, optimiser_of
from rl.training.run import start
from rl.training.sampler import sampling_of
from rl.training.step import train_step
from tests import small_model

HERE = "test_settings_act.py"
PASSED = f"{HERE}::test_a_setting_is_its_constant_and_no_other"
STEPPED = f"{HERE}::test_a_step_follows_its_settings"
SHORT = "test_train.py::test_a_short_run_follows_its_settings"
OPTION = "test_options.py::test_an_option_changes_what_is_trained"
DYNAMIC = "test_options.py::test_dynamic_sampling_fills_the_step"
PROOF = "test_grpo_proof.py::test_both_commands"
ACTS = {    # leaf -> the tests that turn red when it is not read, or does something else
    "model": ["test_pretrained.py::test_a_folder_goes_before_the_hub", "test_probe.py::test_the_command_probes_a_model"],
    "dtype": [f"{HERE}::test_the_number_format", "test_pretrained.py::test_parameters_have_the_dtype_asked_for"],
    "lora": ["test_train.py::test_a_starting_adapter_is_used", "test_train.py::test_rank_and_alpha_come_with_the_adapter"],
    "lora_rank": [f"{HERE}::test_rank_and_alpha_shape_a_new_adapter"],
    "lora_alpha": [f"{HERE}::test_rank_and_alpha_shape_a_new_adapter"],
    "lora_targets": [f"{HERE}::test_targets_are_the_new_adapters", "test_train.py::test_targets_are_trained_and_resumed",
                     "test_plan.py::test_fewer_targets_are_fewer_values"],
    "update_samples": [f"{HERE}::test_the_update_takes_a_group_in_parts",
                       "test_grpo.py::test_a_group_in_parts_is_the_same_update",
                       "test_command.py::test_auto_is_decided_once_and_recorded"],
    "memory_gb": ["test_plan.py::test_auto_takes_the_quickest_that_fits",
                  "test_command.py::test_auto_is_decided_once_and_recorded"],
    "remat": [PASSED, "test_grpo.py::test_memory_settings_change_memory_only", "test_plan.py::test_the_plan_can_say_no"],
    "attention": ["test_train.py::test_bad_input_is_one_message_and_exit_code_2", f"{HERE}::test_the_attention_kernel"],
    "tasks": ["test_code_benchmarks.py::test_humaneval_asks_to_complete_the_prompt"],
    "provider_kwargs": ["test_graders.py::test_a_provider_takes_its_kwargs"],
    "plugins": ["test_graders.py::test_a_users_file_brings_task_reward_and_objective"],
    "combine": ["test_graders.py::test_what_a_batch_earns_by_hand"],
    "combine_kwargs": ["test_graders.py::test_what_a_batch_earns_by_hand"],
    "reward_kwargs": ["test_graders.py::test_lengths_in_tokens"],
    "split": ["test_taskset.py::test_split_parts_the_tasks"],
    "n_tasks": ["test_taskset.py::test_n_tasks_takes_the_first_of_a_fixed_shuffled_order"],
    "tasks_file": ["test_code_benchmarks.py::test_an_unusable_file_is_refused"],
    "task_names": ["test_taskset.py::test_task_names_choose_and_keep_the_order"],
    "style_hint": ["test_loop.py::test_the_style_hint_reaches_the_prompt"],
    "form_example": ["test_taskset.py::test_tasks_ask_for_the_tag_of_the_settings"],
    "thinking_tag": ["test_graders.py::test_the_tag_is_one_setting",
                     "test_taskset.py::test_tasks_ask_for_the_tag_of_the_settings"],
    "case_seed": ["test_reward.py::test_a_case_seed_is_other_cases", "test_probe.py::test_graders_get_seeds_of_their_own"],
    "group": [STEPPED],
    "n_samples": ["test_probe.py::test_the_command_probes_a_model"],
    "temperature": [PASSED, "test_generate.py::test_logprobs_and_entropy_are_those_of_the_forward_at_the_temperature"],
    "top_k": [PASSED, "test_generate.py::test_top_k_and_top_p_on_hand_computed_masses"],
    "top_p": [PASSED, "test_generate.py::test_top_k_and_top_p_on_hand_computed_masses"],
    "max_new_tokens": [PASSED, "test_generate.py::test_rows_end_at_the_first_stop_id"],
    "decode_block": [PASSED, "test_generate.py::test_compaction_changes_nothing"],
    "max_prompt_tokens": ["test_loop.py::test_prompts_are_prepared_once_and_too_long_ones_named"],
    "eps_low": [PASSED, "test_grpo.py::test_clipping_acts"],
    "eps_high": [PASSED, "test_grpo.py::test_clipping_acts"],
    "loss": [OPTION, "test_objectives.py::test_packed_gradient_is_the_plain_gradient"],
    "gspo_eps_low": [OPTION, "test_objectives.py::test_bounds_act_where_they_should"],
    "gspo_eps_high": [OPTION, "test_objectives.py::test_bounds_act_where_they_should"],
    "advantage": [OPTION, "test_advantages.py::test_advantages_by_hand"],
    "advantage_scale": [OPTION, "test_advantages.py::test_unscaled_grpo_is_the_distance_from_the_mean"],
    "pass_k": [OPTION, "test_advantages.py::test_passk_is_the_mean_over_all_subsets"],
    "overlong": [OPTION, "test_options.py::test_metrics_of_the_options"],
    "overlong_tokens": [OPTION, "test_advantages.py::test_the_length_penalty_is_dapos"],
    "overlong_penalty": [OPTION, "test_advantages.py::test_the_length_penalty_is_dapos"],
    "entropy_bonus": [OPTION, "test_options.py::test_terms_that_need_no_signal_train_on_every_group"],
    "kl_beta": [OPTION, "test_options.py::test_terms_that_need_no_signal_train_on_every_group"],
    "dynamic_sampling": [DYNAMIC],
    "max_sampled_groups": [DYNAMIC],
    "updates_per_batch": [STEPPED, f"{HERE}::test_warm_up_counts_steps"],
    "logit_chunk": [PASSED, "test_grpo.py::test_memory_settings_change_memory_only"],
    "style_weight": ["test_reward.py::test_correctness_gates", SHORT],
    "shuffle_rewards": [STEPPED, "test_loop.py::test_shuffled_rewards_are_dealt_out_at_random"],
    "sandbox_workers": [f"{HERE}::test_the_sandbox_gets_its_settings"],
    "case_seconds": [f"{HERE}::test_the_sandbox_gets_its_settings", "test_sandbox.py::test_time_limit_is_cpu_time"],
    "recheck_share": ["test_recheck.py::test_the_share_decides_and_repeats"],
    "allow_weak_sandbox": [f"{HERE}::test_the_sandbox_gets_its_settings", "test_sandbox_layers.py::test_levels"],
    "steps": [PASSED, "test_train.py::test_three_and_three_steps_are_six"],
    "tasks_per_step": ["test_train.py::test_a_run_writes_what_the_notes_say",
                       "test_taskset.py::test_a_batch_is_a_function_of_its_arguments"],
    "optimizer": [f"{HERE}::test_the_optimiser_is_the_one_that_is_named", "test_grpo.py::test_sgd_is_optax",
                  "test_grpo.py::test_an_update_is_by_the_optimiser_that_is_asked_for"],
    "learning_rate": [PASSED, "test_grpo.py::test_adamw_is_optax"],
    "warmup_steps": [f"{HERE}::test_warm_up_counts_steps", "test_grpo.py::test_adamw_is_optax"],
    "scheduler": [PASSED, "test_grpo.py::test_schedules_are_those_of_transformers_and_optax",
                  "test_train.py::test_a_run_with_a_schedule_goes_on_where_it_was"],
    "weight_decay": [PASSED, "test_grpo.py::test_adamw_is_optax"],
    "adam_beta1": [PASSED, "test_grpo.py::test_adamw_is_optax"],
    "adam_beta2": [PASSED, "test_grpo.py::test_adamw_is_optax"],
    "adam_eps": [PASSED, "test_grpo.py::test_adamw_is_optax"],
    "max_grad_norm": [PASSED, "test_grpo.py::test_adamw_is_optax"],
    "seed": [STEPPED, "test_generate.py::test_randomness_is_seed_step_task_and_sample"],
    "max_hours": ["test_train.py::test_a_run_out_of_time_ends_cleanly"],
    "eval_every": ["test_train.py::test_evaluations_change_nothing_and_are_told",
                   "test_held_out.py::test_evaluations_are_due_before_the_first_step_at_multiples_and_at_the_end"],
    "eval_tasks": ["test_held_out.py::test_evaluations_are_on_tasks_that_are_not_trained_on"],
    "eval_samples": ["test_held_out.py::test_no_more_is_at_work_than_in_a_step",
                     "test_train.py::test_evaluations_change_nothing_and_are_told"],
    "run_name": [SHORT],
    "out": ["test_train.py::test_a_run_writes_what_the_notes_say", "test_probe.py::test_out_is_checked_before_the_probe"],
    "resume": ["test_train.py::test_three_and_three_steps_are_six"],
    "save_every": [SHORT],
    "keep_last": [SHORT, "test_checkpoint.py::test_the_last_few_and_the_permanent_ones_stay"],
    "keep_every": [SHORT, "test_checkpoint.py::test_the_last_few_and_the_permanent_ones_stay"],
    "cache_dir": ["test_storage.py::test_relative_paths_lie_in_the_cache"],
    "hf_token_env": ["test_storage.py::test_tokens_come_from_the_variables_that_auth_names"],
    "wandb_key_env": ["test_storage.py::test_tokens_come_from_the_variables_that_auth_names"],
    "families": [PROOF, "test_grpo_proof.py::test_flags_are_settings_by_another_name"],
    "predict_tasks": [PROOF, "test_proof.py::test_seeds_never_meet"],
    "eval_n": [PROOF, "test_proof.py::test_seeds_never_meet"],
    "control_arm": ["test_grpo_proof.py::test_the_control_arm_can_be_left_out"],
    "predictions": ["test_grpo_proof.py::test_another_experiment_is_refused"],
    "score_seconds": ["test_grpo_proof.py::test_scoring_has_the_time_that_was_set",
                      "test_gym_tasks.py::test_the_judge_is_the_families_own"],
    "tracker": ["test_tracker.py::test_wandb_gets_every_step_and_stays_offline", SHORT],
}


def settings(**values):
    """The default settings, but for these."""
    return config.load({name.upper(): str(value) for name, value in values.items()}).settings


CONSTANTS = (sampling_of, loss_of, optimiser_of)
FIELDS = {    # leaf -> another value, and the fields that must follow it
    "temperature": (0.5, {"SamplingParams.temperature", "Loss.temperature"}), "top_k": (7, {"SamplingParams.top_k"}),
    "top_p": (0.5, {"SamplingParams.top_p"}), "max_new_tokens": (9, {"SamplingParams.max_new_tokens", "Loss.longest"}),
    "decode_block": (3, {"SamplingParams.block"}),
    "eps_low": (0.1, {"Loss.eps_low"}), "eps_high": (0.9, {"Loss.eps_high"}),
    "logit_chunk": (32, {"Loss.logit_chunk"}), "remat": ("dots", {"Loss.remat"}),
    "learning_rate": (0.5, {"AdamW.learning_rate"}), "weight_decay": (0.25, {"AdamW.weight_decay"}),
    "adam_beta1": (0.5, {"AdamW.beta1"}), "adam_beta2": (0.75, {"AdamW.beta2"}), "adam_eps": (0.125, {"AdamW.eps"}),
    "max_grad_norm": (2.0, {"AdamW.max_grad_norm"}), "scheduler": ("cosine", {"AdamW.scheduler"}),
    "steps": (77, {"AdamW.all_updates"})}


@pytest.mark.known_bug(26)
@pytest.mark.parametrize("leaf", FIELDS)
def test_a_setting_is_its_constant_and_no_other(leaf):
    """Of all constants of sampler, loss and optimiser exactly its own take the value, the rest stay."""
    def constants(found):
        made = [make(found) for make in CONSTANTS]
        return {f"{type(one).__name__}.{name}": value for one in made for name, value in one._asdict().items()}

    value, fields = FIELDS[leaf]
    before, after = constants(settings()), constants(settings(**{leaf: value}))
    assert {name for name in before if before[name] != after[name]} == fields
    assert all(after[name] == value for name in fields)


def test_warm_up_counts_steps():
    """WARMUP_STEPS and STEPS are in steps, the optimiser counts updates; UPDATES_PER_BATCH of them make a step."""
    assert optimiser_of(settings(warmup_steps=3)).warmup_steps == 3
    assert optimiser_of(settings(warmup_steps=3, updates_per_batch=2)).warmup_steps == 6
    assert optimiser_of(settings(steps=9, updates_per_batch=2)).all_updates == 18


def test_the_optimiser_is_the_one_that_is_named():
    """OPTIMIZER=sgd has every constant that AdamW has too, each in its place; without it AdamW is taken."""
    asked = dict(learning_rate=50, warmup_steps=3, weight_decay=0.25, max_grad_norm=2, scheduler="linear", steps=9,
                 updates_per_batch=2)
    assert optimiser_of(settings(optimizer="sgd", **asked)) == SGD(50.0, 6, 0.25, 2.0, "linear", 18)
    assert optimiser_of(settings(**asked)) == AdamW(50.0, 6, 0.9, 0.999, 1e-8, 0.25, 2.0, "linear", 18)


class Counting:
    """A grader that pays for what the text is: its reward is a function of the ids alone."""

    def grade(self, pairs):
        """Between 0 and 1, by the text."""
        return [Grade(text, "pass", True, sum(map(ord, text)) % 7 / 6, 0.5, 1, 1, True, 0, "", ()) for _, text in pairs]


@pytest.fixture(scope="module")
def stepped():
    """One real training step of a small random model under some settings: (state, groups, metrics)."""
    model = small_model.model()
    model.chat.decode = lambda ids: " ".join(map(str, ids))
    prompts = [Prompt(SimpleNamespace(name=f"t{n}"), [], small_model.prompt(n)) for n in (5, 9)]

    def step(**changes):
        base = {"group": 4, "max_new_tokens": 8, "decode_block": 4, "recheck_share": 0, "logit_chunk": 16, "learning_rate": 0.01}
        adapter = lora.init(jax.random.key(0), small_model.CFG, 4, 8.0)
        return train_step(model, init_state(adapter), prompts, Counting(), settings(**base | changes), 0)
    return step


@pytest.mark.slow
def test_a_step_follows_its_settings(stepped):
    """GROUP samples a task, UPDATES_PER_BATCH updates, SEED other samples, SHUFFLE_REWARDS the same ones and another update."""
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
    assert step_metrics(shuffled[1]) == step_metrics(base[1]), "the log keeps what was earned"


@pytest.mark.slow
def test_the_update_takes_a_group_in_parts(stepped, monkeypatch):
    """UPDATE_SAMPLES=2 cuts groups of 4 in two, and what is learnt stays the same but for rounding."""
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
    """DTYPE is what the weights are loaded in, whatever the device would choose."""
    for dtype in ("float16", "bfloat16", "float32"):
        assert command.find_model(settings(model=tiny_model, dtype=dtype))[1] == jnp.dtype(dtype)


def test_the_attention_kernel(tiny_model, monkeypatch):
    """einsum is taken without a try; auto takes the fast kernel where it runs."""
    monkeypatch.setattr(jax.nn, "dot_product_attention", lambda q, *_, **__: q)
    for asked, found in (("einsum", "einsum"), ("auto", "cudnn"), ("cudnn", "cudnn")):
        assert command.find_model(settings(model=tiny_model, attention=asked))[0].cfg.attention == found


def test_why_the_attention_kernel_is_not_the_fast_one(tiny_model, monkeypatch):
    """The library's own words, without its full stop: the log puts them in brackets, an error goes on behind them."""
    def fails(*_, **__):
        raise RuntimeError("cuDNN is not detected.\nmore")
    monkeypatch.setattr(jax.nn, "dot_product_attention", fails)
    facts = command.find_model(settings(model=tiny_model))[2]
    assert facts["attention"] == "einsum (cudnn does not run here: cuDNN is not detected)"
    with pytest.raises(InputError, match="does not run here: cuDNN is not detected; use ATTENTION=auto or einsum"):
        command.find_model(settings(model=tiny_model, attention="cudnn"))


def test_the_sandbox_gets_its_settings(monkeypatch):
    """Workers, seconds a case, and leave for weak machines, each as set; what they do there is tested there."""
    asked = []
    monkeypatch.setattr(setup, "Sandbox", lambda *arguments: asked.append(arguments))
    open_judge(settings())
    open_judge(settings(sandbox_workers=5, case_seconds=2.5, allow_weak_sandbox=1))
    assert asked == [(2, 0.5, False), (5, 2.5, True)]
