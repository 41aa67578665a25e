"""Names of TRL 1.16 (GRPOConfig, ModelConfig, transformers' TrainingArguments) that are not names of settings: what each becomes
here, and the way on where it has no equivalent. TRL's names for settings are aliases, in rl/settings/declared.py."""

from typing import NamedTuple

YES, NO = "true", "false"


class Name(NamedTuple):
    """becomes: accepted value -> (setting, value), or None where that is what happens here anyway. way_on: for other values."""
    name: str
    becomes: dict[str, tuple[str, str] | None]
    way_on: str


NO_EQUIVALENT = "it has no equivalent here; remove it"
# Those that need other settings or only a warning: rl/settings/config.py works them out.
BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation", "generation_batch_size")
COMPUTED = (*BATCH, "warmup_ratio", "logging_steps")
_BATCH_WAY = "the whole batch is always one update; set TASKS_PER_STEP, the prompts of a step"
TRL = {name: Name(name, becomes, way_on) for name, becomes, way_on in (
    *((name, {}, _BATCH_WAY) for name in BATCH),
    ("warmup_ratio", {}, "give a number from 0 to 1, the share of STEPS, or set WARMUP_STEPS"),
    ("logging_steps", {}, "every step is logged; remove it"),
    ("bf16", {YES: ("dtype", "bfloat16"), NO: None}, "set DTYPE"),
    ("fp16", {YES: ("dtype", "float16"), NO: None}, "set DTYPE"),
    ("gradient_checkpointing", {YES: ("remat", "full"), NO: ("remat", "none")}, "set REMAT"),
    ("attn_implementation", {"eager": ("attention", "einsum"), "sdpa": None, "flash_attention_2": None}, "set ATTENTION"),
    ("mask_truncated_completions", {YES: ("overlong", "mask"), NO: None}, "set OVERLONG"),
    ("eval_strategy", {"steps": None, "no": ("eval_every", "0")}, "set EVAL_EVERY, in steps; 0: off"),
    ("save_strategy", {"steps": None}, "set SAVE_EVERY, in steps"),
    ("logging_strategy", {"steps": None}, "every step is logged; remove it"),
    ("importance_sampling_level", {"token": None}, "for sequence set LOSS=gspo"),
    ("multi_objective_aggregation", {"sum_then_normalize": None}, "rewards are summed, then scaled; remove it"),
    ("reward_weights", {}, "set COMBINE=weighted_length_penalty and its weights in COMBINE_KWARGS, or your own class"),
    ("reward_funcs", {}, "set COMBINE; your own rewards are registered by PLUGINS"),
    ("dataset_name", {}, "set TASKS and TASKS_FILE"),
    ("num_train_epochs", {}, "set STEPS; an epoch is the number of tasks / TASKS_PER_STEP"),
    ("lr_scheduler_kwargs", {"{}": None}, "set SCHEDULER=constant, linear or cosine, which take no arguments"),
    ("min_p", {"0": None}, "set TOP_P or TOP_K"),
    ("repetition_penalty", {"1": None}, "tokens are sampled without it; remove it"),
    ("use_vllm", {NO: None}, "sampling is built in; remove it"),
    ("use_peft", {YES: None}, "only an adapter is trained; remove it and set LORA_RANK"),
    ("lora_dropout", {"0": None}, "adapters are trained without dropout; remove it"),
    ("lora_task_type", {"CAUSAL_LM": None}, NO_EQUIVALENT),
    ("use_rslora", {NO: None}, "set LORA_ALPHA to alpha * sqrt(LORA_RANK), which gives the same scale"),
    ("use_dora", {NO: None}, "only plain LoRA is trained; remove it"),
    ("load_in_8bit", {NO: None}, "set DTYPE; weights are not quantised in memory"),
    ("load_in_4bit", {NO: None}, "set DTYPE; weights are not quantised in memory"),
    ("model_revision", {"main": None}, "download that revision and set MODEL to its folder"),
    ("trust_remote_code", {NO: None}, "code of a model's folder is never run; remove it"),
    ("data_seed", {}, "SEED decides the order of tasks too; remove it"),
    ("shuffle_dataset", {YES: None}, "tasks are always shuffled, by SEED; remove it"),
    ("disable_dropout", {YES: None, NO: None}, "true or false; there is no dropout here"),
    ("log_completions", {YES: None, NO: None}, "true or false; all completions are logged"),
    ("average_tokens_across_devices", {YES: None}, "set LOSS=grpo for a mean per sample"),
    ("top_entropy_quantile", {"1": None}, "all tokens are trained on; remove it"),
    ("use_adaptive_entropy", {NO: None}, "set ENTROPY_BONUS, which is constant"),
    ("sync_ref_model", {NO: None}, "KL_BETA compares with the model without adapter; remove it"),
    ("eval_on_start", {YES: None}, "EVAL_EVERY always evaluates the base model too; remove it"),
    ("label_smoothing_factor", {"0": None}, NO_EQUIVALENT),
    ("remove_unused_columns", {NO: None, YES: None}, NO_EQUIVALENT),
    ("push_to_hub", {NO: None}, "upload a checkpoint folder yourself; it is in PEFT's layout"),
    ("load_best_model_at_end", {NO: None}, "set EVAL_EVERY and KEEP_EVERY, then choose a checkpoint"),
    ("do_train", {YES: None}, "run train_grpo.py"), ("do_eval", {NO: None}, "set EVAL_EVERY"),
    ("use_cpu", {NO: None}, "set the variable JAX_PLATFORMS=cpu"),
    *((name, {}, NO_EQUIVALENT) for name in """
        accelerator_config activation_checkpointing activation_checkpointing_kwargs auto_find_batch_size batch_eval_metrics
        bf16_full_eval bnb_4bit_quant_storage bnb_4bit_quant_type cache_implementation cast_lm_head_to_fp32 chat_template_kwargs
        dataloader_drop_last dataloader_in_order dataloader_multiprocessing_context dataloader_num_workers
        dataloader_persistent_workers dataloader_pin_memory dataloader_prefetch_factor ddp_backend ddp_broadcast_buffers
        ddp_bucket_cap_mb ddp_find_unused_parameters ddp_static_graph ddp_timeout debug deepspeed delta disable_tqdm do_predict
        ds3_gather_for_generation enable_jit_checkpoint entropy_coef_delta entropy_coef_max entropy_coef_min entropy_target
        eval_accumulation_steps eval_delay eval_do_concat_batches eval_use_gather_object fp16_full_eval fsdp fsdp_config
        full_determinism generation_kwargs gradient_checkpointing_kwargs greater_is_better hub_always_push hub_model_id
        hub_private_repo hub_revision hub_strategy hub_token ignore_data_skip include_for_metrics include_num_input_tokens_seen
        label_names length_column_name liger_kernel_config local_rank log_completions_hub_repo log_level log_level_replica
        log_multimodal log_on_each_node log_unique_prompts logging_first_step logging_nan_inf_filter lora_modules_to_save
        lora_target_parameters max_tool_calling_iterations metric_for_best_model model_init_kwargs neftune_noise_alpha
        num_completions_to_print off_policy_mask_threshold optim_args optim_target_modules pad_to_multiple_of parallelism_config
        per_device_eval_batch_size prediction_loss_only project ref_model_mixup_alpha ref_model_sync_steps
        restore_callback_states_from_checkpoint router_aux_loss_coef sapo_temperature_neg sapo_temperature_pos save_on_each_node
        save_only_model skip_memory_metrics tf32 torch_compile torch_compile_backend torch_compile_mode torch_empty_cache_steps
        trackio_bucket_id trackio_space_id trackio_static_space_id train_sampling_strategy transformers_continuous_batching_config
        use_bias_correction_kl use_bnb_nested_quant use_cache use_liger_kernel use_transformers_continuous_batching
        use_transformers_paged vespo_k_neg vespo_k_pos vespo_lambda_neg vespo_lambda_pos vllm_enable_sleep_mode
        vllm_gpu_memory_utilization vllm_group_port vllm_importance_sampling_cap vllm_importance_sampling_clip_max
        vllm_importance_sampling_clip_min vllm_importance_sampling_correction vllm_importance_sampling_mode vllm_max_model_length
        vllm_mode vllm_model_impl vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout
        vllm_structured_outputs_regex vllm_tensor_parallel_size""".split()))}
IN_ENVIRON = {name: known for name, known in TRL.items() if known.way_on != NO_EQUIVALENT}    # DEBUG belongs to everybody

# (setting, value) -> the way on for values that TRL has and this program has not
VALUES = {("tracker", "all"): "one tracker at a time; set tensorboard, wandb or none",
          ("loss", "bnpo"): "the batch is never cut before the mean, so set dapo, which is the same"}
