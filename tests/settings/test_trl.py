"""TRL's names and values: each does here what it does there, changes nothing, or is refused with the way on."""
import dataclasses
import math

import pytest

from rl.settings.config import SettingsError, load, value_of
from rl.settings.declared import LEAVES, NAMES, RETIRED_NAMES
from rl.settings.trl import IN_ENVIRON, TRL

VERSION = "1.16.0"
# The fields of GRPOConfig and ModelConfig in that version, with those of transformers 5.24's TrainingArguments.
FIELDS = set("""
    accelerator_config activation_checkpointing activation_checkpointing_kwargs adam_beta1 adam_beta2 adam_epsilon
    attn_implementation auto_find_batch_size average_tokens_across_devices batch_eval_metrics beta bf16 bf16_full_eval
    bnb_4bit_quant_storage bnb_4bit_quant_type cache_implementation cast_lm_head_to_fp32 chat_template_kwargs data_seed
    dataloader_drop_last dataloader_in_order dataloader_multiprocessing_context dataloader_num_workers
    dataloader_persistent_workers dataloader_pin_memory dataloader_prefetch_factor ddp_backend ddp_broadcast_buffers
    ddp_bucket_cap_mb ddp_find_unused_parameters ddp_static_graph ddp_timeout debug deepspeed delta disable_dropout
    disable_tqdm do_eval do_predict do_train ds3_gather_for_generation dtype enable_jit_checkpoint entropy_coef
    entropy_coef_delta entropy_coef_max entropy_coef_min entropy_target epsilon epsilon_high eval_accumulation_steps
    eval_delay eval_do_concat_batches eval_on_start eval_steps eval_strategy eval_use_gather_object fp16 fp16_full_eval
    fsdp fsdp_config full_determinism generation_batch_size generation_kwargs gradient_accumulation_steps
    gradient_checkpointing gradient_checkpointing_kwargs greater_is_better hub_always_push hub_model_id hub_private_repo
    hub_revision hub_strategy hub_token ignore_data_skip importance_sampling_level include_for_metrics
    include_num_input_tokens_seen label_names label_smoothing_factor learning_rate length_column_name liger_kernel_config
    load_best_model_at_end load_in_4bit load_in_8bit local_rank log_completions log_completions_hub_repo log_level
    log_level_replica log_multimodal log_on_each_node log_unique_prompts logging_first_step logging_nan_inf_filter
    logging_steps logging_strategy lora_alpha lora_dropout lora_modules_to_save lora_r lora_target_modules
    lora_target_parameters lora_task_type loss_type lr_scheduler_kwargs lr_scheduler_type mask_truncated_completions
    max_completion_length max_grad_norm max_steps max_tool_calling_iterations metric_for_best_model min_p
    model_init_kwargs model_name_or_path model_revision multi_objective_aggregation neftune_noise_alpha
    num_completions_to_print num_generations num_generations_eval num_iterations num_train_epochs
    off_policy_mask_threshold optim optim_args optim_target_modules output_dir pad_to_multiple_of parallelism_config
    per_device_eval_batch_size per_device_train_batch_size prediction_loss_only project push_to_hub ref_model_mixup_alpha
    ref_model_sync_steps remove_unused_columns repetition_penalty report_to restore_callback_states_from_checkpoint
    resume_from_checkpoint reward_weights router_aux_loss_coef run_name sapo_temperature_neg sapo_temperature_pos
    save_on_each_node save_only_model save_steps save_strategy save_total_limit scale_rewards seed shuffle_dataset
    skip_memory_metrics steps_per_generation sync_ref_model temperature tf32 top_entropy_quantile top_k top_p
    torch_compile torch_compile_backend torch_compile_mode torch_empty_cache_steps trackio_bucket_id trackio_space_id
    trackio_static_space_id train_sampling_strategy transformers_continuous_batching_config trust_remote_code
    use_adaptive_entropy use_bias_correction_kl use_bnb_nested_quant use_cache use_cpu use_dora use_liger_kernel use_peft
    use_rslora use_transformers_continuous_batching use_transformers_paged use_vllm vespo_k_neg vespo_k_pos
    vespo_lambda_neg vespo_lambda_pos vllm_enable_sleep_mode vllm_gpu_memory_utilization vllm_group_port
    vllm_importance_sampling_cap vllm_importance_sampling_clip_max vllm_importance_sampling_clip_min
    vllm_importance_sampling_correction vllm_importance_sampling_mode vllm_max_model_length vllm_mode vllm_model_impl
    vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout vllm_structured_outputs_regex
    vllm_tensor_parallel_size warmup_steps weight_decay""".split())
OLDER = {"warmup_ratio", "torch_dtype", "max_prompt_length"}    # of former versions, still in people's files
OF_THE_SCRIPT = {"dataset_name", "reward_funcs"}    # of trl.scripts


def both(tmp_path, name, value):
    """The ways to give a value: flat YAML, and the environment where the name is read there."""
    path = tmp_path / "trl.yaml"
    path.write_text(f"{name}: {value}\n")
    return [{"CONFIG": str(path)}] + [{name.upper(): value}] * (name in NAMES | RETIRED_NAMES | IN_ENVIRON and value[0] != "[")


def test_every_field_of_trl_is_known():
    """Nothing of TRL ends as an unknown setting with the nearest name that difflib finds."""
    assert FIELDS - {*NAMES, *RETIRED_NAMES, *TRL} == set()


def test_every_name_that_is_claimed_is_one_of_trl():
    """No name in the table is misspelt, and none hides a setting."""
    assert {*TRL} - FIELDS == {"warmup_ratio"} | OF_THE_SCRIPT
    assert not {*TRL} & {*NAMES, *RETIRED_NAMES}


def test_the_list_of_fields_is_trls_own():
    """With TRL installed: its classes have these fields and no others."""
    trl = pytest.importorskip("trl", reason=f"needs trl {VERSION}")
    if trl.__version__ != VERSION:
        pytest.skip(f"the list is of trl {VERSION}, this is {trl.__version__}")
    assert {field.name for kind in (trl.GRPOConfig, trl.ModelConfig) for field in dataclasses.fields(kind)} == FIELDS


@pytest.mark.parametrize("known", TRL.values(), ids=lambda known: known.name)
def test_each_accepted_value_gives_its_setting_and_others_name_the_way_on(tmp_path, known):
    """From both places; what changes nothing leaves the settings at their defaults."""
    for text, becomes in known.becomes.items():
        for environ in both(tmp_path, known.name, text):
            loaded = load(environ)
            name, value = becomes or ("steps", "600")
            assert str(value_of(loaded.settings, name)) == value
            assert [one for one, origin in loaded.origins.items() if origin != "default"] == ([name] if becomes else [])
    for environ in both(tmp_path, known.name, "no-such-value"):
        with pytest.raises(SettingsError) as caught:
            load(environ)
        (problem,) = caught.value.problems
        assert known.name in problem.lower() and "no-such-value" in problem and problem.endswith(known.way_on)


VALUES = [("scale_rewards", "true", "advantage_scale", "std"), ("scale_rewards", "True", "advantage_scale", "std"),
          ("scale_rewards", "group", "advantage_scale", "std"), ("scale_rewards", "batch", "advantage_scale", "batch"),
          ("scale_rewards", "false", "advantage_scale", "none"),
          ("scale_rewards", "none", "advantage_scale", "none"), ("lora_target_modules", "all-linear", "lora_targets", None),
          ("lora_target_modules", "[all-linear]", "lora_targets", None), ("report_to", "none", "tracker", "none"),
          ("report_to", "wandb", "tracker", "wandb"), ("report_to", "[tensorboard]", "tracker", "tensorboard"),
          ("report_to", "[]", "tracker", "none"), ("torch_dtype", "bfloat16", "dtype", "bfloat16"),
          ("bf16", "True", "dtype", "bfloat16"),
          ("fp16", "1", "dtype", "float16"), ("bf16", "0", "dtype", "auto"), ("entropy_coef", "0.01", "entropy_bonus", 0.01),
          ("mask_truncated_completions", "yes", "overlong", "mask"), ("repetition_penalty", "1.0", "steps", 600),
          ("lora_dropout", "0.0", "steps", 600), ("warmup_ratio", "0.1", "warmup_steps", 60),
          ("warmup_ratio", "0", "warmup_steps", 0),
          ("warmup_ratio", "0.0001", "warmup_steps", 1), ("warmup_steps", "0.1", "warmup_steps", 60),
          ("warmup_steps", "1", "warmup_steps", 1),
          ("gradient_accumulation_steps", "1", "tasks_per_step", 8), ("per_device_train_batch_size", "32", "tasks_per_step", 4),
          ("logging_steps", "1", "steps", 600)]


@pytest.mark.parametrize("name, text, setting, value", VALUES)
def test_values_of_trl_mean_here_what_they_mean_there(tmp_path, name, text, setting, value):
    """None stands for the default."""
    for environ in both(tmp_path, name, text):
        loaded = load(environ)
        assert value_of(loaded.settings, setting) == (LEAVES[setting].default if value is None else value) and not loaded.warnings


@pytest.mark.parametrize("name, text, words", [
    ("report_to", "all", "one tracker at a time"),
    ("report_to", "[tensorboard, wandb]", "one of none, tensorboard, wandb"), ("loss_type", "bnpo", "set dapo"),
    ("gradient_accumulation_steps", "4", "always one update; set TASKS_PER_STEP"),
    ("steps_per_generation", "2", "TASKS_PER_STEP"),
    ("generation_batch_size", "64", "set TASKS_PER_STEP"), ("per_device_train_batch_size", "12", "12 samples .* GROUP=8"),
    ("per_device_train_batch_size", "0", "set TASKS_PER_STEP"), ("warmup_ratio", "1.5", "from 0 to 1"),
    ("bf16", "maybe", "DTYPE"),
    ("lora_dropout", "0.05", "without dropout"), ("importance_sampling_level", "sequence", "LOSS=gspo"),
    ("num_train_epochs", "3", "STEPS"), ("use_vllm", "true", "built in"), ("eval_strategy", "epoch", "EVAL_EVERY")])
def test_values_without_equivalent_are_refused_with_the_way_on(tmp_path, name, text, words):
    """One line each."""
    for environ in both(tmp_path, name, text):
        with pytest.raises(SettingsError, match=words) as caught:
            load(environ)
        assert len(caught.value.problems) == 1


@pytest.mark.parametrize("device, accumulated, more, prompts", [
    (8, 1, {}, 1), (8, 4, {}, 4), (2, 16, {}, 4), (16, 2, {"steps_per_generation": 2}, 4),
    (16, 2, {"generation_batch_size": 32}, 4),
    (16, 2, {"num_generations": 4}, 8), (16, 2, {"steps_per_generation": 4}, None), (16, 2, {"generation_batch_size": 64}, None),
    (5, 3, {}, None)])
def test_a_batch_is_mapped_where_it_is_one_update(tmp_path, device, accumulated, more, prompts):
    """GRPOConfig: generation batch = device batch x steps per generation, in groups of num_generations; one update takes the
    device batch x gradient_accumulation_steps. None: several updates or broken groups, refused."""
    values = {"per_device_train_batch_size": device, "gradient_accumulation_steps": accumulated} | more
    environ = {name.upper(): str(value) for name, value in values.items()}
    if prompts is None:
        with pytest.raises(SettingsError, match="TASKS_PER_STEP"):
            load(environ)
    else:
        assert load(environ).settings.trainer.tasks_per_step == prompts


def test_the_environment_wins_over_trls_names_in_a_file(tmp_path):
    """TASKS_PER_STEP and WARMUP_STEPS override what the file gives, the ratio is of STEPS, and one source must agree."""
    path = tmp_path / "trl.yaml"
    path.write_text("max_steps: 50\nwarmup_ratio: 0.1\nper_device_train_batch_size: 16\n")
    found = load({"CONFIG": str(path)}).settings.trainer
    assert (found.steps, found.warmup_steps, found.tasks_per_step) == (50, 5, 2)
    found = load({"CONFIG": str(path), "STEPS": "333", "TASKS_PER_STEP": "7"}).settings.trainer
    assert (found.warmup_steps, found.tasks_per_step) == (math.ceil(33.3), 7)
    assert load({"CONFIG": str(path), "WARMUP_RATIO": "0.5"}).settings.trainer.warmup_steps == 25
    path.write_text("tasks_per_step: 3\nper_device_train_batch_size: 16\nbf16: true\nfp16: true\n")
    with pytest.raises(SettingsError) as caught:
        load({"CONFIG": str(path)})
    assert [word in line for line, word in zip(caught.value.problems, ("fp16", "TASKS_PER_STEP=2"), strict=True)] == [True, True]


def test_other_logging_steps_are_warned_about():
    """Every step is logged."""
    assert load({"LOGGING_STEPS": "10"}).warnings == ["logging_steps=10 has no effect: every step is logged"]
