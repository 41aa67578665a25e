"""Every setting, declared once: default, type, limits, help and other names; and the names of settings that no longer exist.

A setting is a field of one of the frozen dataclasses below; its name is unique among all of them. rl/settings/config.py reads
settings from the environment and YAML; `--help` (rl/settings/help.py), docs/SETTINGS.md (scripts/render_docs.py) and a run's
config.yaml are written from these declarations. Nothing is read or checked here."""

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from model_config import PROJECTIONS, SHAPES
from rl.registry import registered


def setting(default, help, low=None, high=None, choices=(), names=(), pattern=None, words="", aliases=(), on_resume=False,
            spellings=None):
    """One declared setting.

    names: what a comma-separated list may hold. pattern, words: the regular expression that text must match, and the same in
    words. aliases: other names of the setting. spellings: other names of a choice -> the choice. on_resume: whether a resumed
    run may change it."""
    return field(default=default, metadata=dict(help=help, low=low, high=high, choices=choices, names=names, pattern=pattern,
                                                words=words, aliases=aliases, on_resume=on_resume, spellings=spellings or {}))


class Kwargs(str):
    """The type of a setting that is a mapping: JSON text in the settings, a nested mapping in YAML."""


@dataclass(frozen=True)
class ModelSettings:
    """The model, its adapter, and how both are computed."""
    model: str = setting("0.5B", f"the model: a short name ({', '.join(SHAPES)}, tiny), a hub id, a checkpoint folder or a .gguf "
                         "file", aliases=("model_name_or_path",))
    dtype: str = setting("auto", "number format of the frozen weights; auto: float32 on a CPU, bfloat16 on a GPU, float16 on a "
                         "GPU without bfloat16", choices=("auto", "float32", "bfloat16", "float16"), aliases=("torch_dtype",))
    lora: str = setting("", "adapter to start from, probe or query: a checkpoint of a run, a PEFT folder or an .npz file; blank: "
                        "none")
    lora_scale: float = setting(1.0, "how much of LORA's effect is measured, asked or merged; 0: the base model; below 1: "
                                "weights between the two", 0.0, 1.0)
    lora_rank: int = setting(16, "rank of the adapter's matrices; an adapter given by LORA keeps its own", 1, 512,
                             aliases=("lora_r",))
    lora_alpha: float = setting(32.0, "the adapter's output is multiplied by LORA_ALPHA / LORA_RANK; an adapter given by LORA "
                                "keeps its own", 1e-3, 1e4)
    lora_targets: str = setting(",".join(PROJECTIONS), "projections of each layer that are adapted; an adapter given by LORA "
                                "keeps its own", names=PROJECTIONS, aliases=("lora_target_modules",))
    remat: str = setting("auto", "activations kept for the backward pass; full: layer inputs only (least memory, slowest); mlp: "
                         "and the widest products; dots: all products; none: all (fastest); auto: fastest that fits MEMORY_GB",
                         choices=("auto", "full", "mlp", "dots", "none"))
    update_samples: int = setting(0, "samples of a group in one backward pass; fewer take less memory, but the prompt is "
                                  "computed again for each part; 0: as many as fit MEMORY_GB", 0, 1024)
    memory_gb: float = setting(0.0, "memory in GB that REMAT=auto and UPDATE_SAMPLES=0 may plan with; 0: the GPU's memory, or "
                               "half of this machine's", 0.0, 1e6)
    attention: str = setting("auto", "attention kernel; auto: cudnn where it runs, else einsum",
                             choices=("auto", "einsum", "cudnn"))


@dataclass(frozen=True)
class DataSettings:
    """The tasks and their prompts."""
    tasks: str = setting("lc_easy", f"task provider: {', '.join(registered('data provider'))}, or one registered by a file in "
                         "PLUGINS")
    provider_kwargs: Kwargs = setting(Kwargs("{}"), "arguments of the task provider, such as {levels: [1, 2]} for math, or "
                                      "{families: [chain_sum, leg_counting], tasks: 1000, held_out: 100} for reasoning_gym; the "
                                      "shares for mixed, such as {lc_easy: 0.3, generated: 0.7}")
    plugins: str = setting("", "your own Python files, comma-separated, that register task providers, rewards or objectives; "
                           "they run with all rights of this process")
    split: str = setting("train", "which of the provider's tasks to use; heldout: those that SPLIT=train leaves out",
                         choices=("train", "heldout", "all"))
    task_order: str = setting("epochs", "which tasks a step trains on; epochs: each once in every epoch; signal: those whose "
                              "groups are, so far, most likely to hold right and wrong samples", choices=("epochs", "signal"))
    n_tasks: int = setting(0, "use only the first N tasks of the split in a fixed shuffled order; 0: all", 0, 1_000_000)
    tasks_file: str = setting("", "data file or folder of the task provider; lc_easy, generated and reasoning_gym need none, "
                             "mixed has one for each provider")
    sft_file: str = setting("", "prompts and answers for train_sft.py, one object a line, such as a run's sft_pool.jsonl")
    task_names: str = setting("", "only these tasks of the split, comma-separated; -NAME: all but that one; blank: all")
    style_hint: bool = setting(False, "ask for one nested expression in the prompt")
    form_example: bool = setting(False, "show a worked example of the expected form in prompts that ask for an answer in words")
    case_seed: int = setting(1, "seed of the hidden test inputs", 0, 2**31 - 1)
    thinking_tag: str = setting("think", "tag around the thinking in an answer in words, both in the prompt and for the rewards",
                                pattern=r"[A-Za-z][A-Za-z0-9_-]*", words="a letter, then letters, digits, _ or -")


@dataclass(frozen=True)
class GenerationSettings:
    """How completions are sampled."""
    group: int = setting(8, "samples per prompt in training; each is compared with the others of its group", 2, 1024,
                         aliases=("num_generations", "group_size"))
    update_group: int = setting(0, "train on the N samples of a group whose rewards vary most, compared with each other (PODS); "
                                "0: on all", 0, 1024)
    n_samples: int = setting(8, "samples per task in a probe, a query or an evaluation", 1, 1024)
    temperature: float = setting(1.0, "sampling temperature; 0: always the most likely token, which training refuses", 0.0, 10.0)
    top_k: int = setting(0, "sample from the k most likely tokens only; 0: off", 0, 1_000_000)
    top_p: float = setting(1.0, "sample from the most likely tokens that together hold this probability; 1: off", 1e-3, 1.0)
    max_new_tokens: int = setting(192, "maximum length of a completion, in tokens", 1, 32768, aliases=("max_completion_length",))
    decode_block: int = setting(16, "tokens decoded between two checks for finished samples; affects speed only", 1, 1024)
    max_prompt_tokens: int = setting(1024, "maximum length of a prompt, in tokens; a longer one is an error", 1, 32768,
                                     aliases=("max_prompt_length",))
    dynamic_sampling: bool = setting(False, "replace groups without signal (all rewards equal) by groups of further tasks, until "
                                     "TASKS_PER_STEP groups have signal")
    max_sampled_groups: int = setting(32, "with DYNAMIC_SAMPLING, the most groups that a step samples", 2, 1_000_000)


@dataclass(frozen=True)
class ObjectiveSettings:
    """What training maximises: loss, advantage, and how rewards are combined."""
    loss: str = setting("dapo", "form of the GRPO loss; dapo: mean over all tokens; grpo: mean over samples of their token "
                        "means; dr_grpo: constant denominator; gspo: clips the ratio of whole samples; cispo: clips the weight "
                        "of each token", choices=("dapo", "grpo", "dr_grpo", "gspo", "cispo"), aliases=("loss_type",))
    eps_low: float = setting(0.2, "how far below 1 a token's ratio is clipped; with LOSS=cispo, 1: not at all", 0.0, 1.0,
                             aliases=("epsilon",))
    eps_high: float = setting(0.28, "how far above 1 a token's ratio is clipped", 0.0, 100.0, aliases=("epsilon_high",))
    gspo_eps_low: float = setting(3e-4, "with LOSS=gspo, how far below 1 a sample's ratio is clipped", 0.0, 1.0)
    gspo_eps_high: float = setting(4e-4, "with LOSS=gspo, how far above 1 a sample's ratio is clipped", 0.0, 100.0)
    advantage: str = setting("grpo", "how good a sample is beside its group; grpo: reward minus the group's mean; rloo: minus "
                             "the mean of the others; passk: what it adds to the best of PASS_K samples",
                             choices=("grpo", "rloo", "passk"))
    advantage_scale: str = setting("auto", "std: divide advantages by the group's standard deviation; batch: by that of all "
                                   "rewards of the step; reward: scale correctness and the rest of the reward each within its "
                                   "group, the rest times STYLE_WEIGHT (GDPO); none: do not; auto: none with LOSS=dr_grpo or "
                                   "ADVANTAGE=rloo, else std", choices=("auto", "std", "batch", "reward", "none"),
                                   aliases=("scale_rewards",), spellings={"group": "std", "true": "std", "false": "none"})
    pass_k: int = setting(4, "with ADVANTAGE=passk, the k of pass@k; must be below GROUP", 1, 1023)
    overlong: str = setting("keep", "what happens to samples cut off at MAX_NEW_TOKENS; keep: nothing; mask: they are left out "
                            "of the loss; penalise: correct answers earn less the closer they come to the limit",
                            choices=("keep", "mask", "penalise"))
    overlong_tokens: int = setting(32, "with OVERLONG=penalise, the penalty begins this many tokens before the limit", 1, 32768)
    overlong_penalty: float = setting(0.5, "with OVERLONG=penalise, what a correct answer loses at the limit", 0.001, 1.0)
    entropy_bonus: float = setting(0.0, "weight of the policy's entropy; above 0, groups without signal are trained on too", 0.0,
                                   10.0, aliases=("entropy_coef",))
    kl_beta: float = setting(0.0, "weight of the KL divergence from the model without adapter; above 0, groups without signal "
                             "are trained on too", 0.0, 10.0, aliases=("beta",))
    updates_per_batch: int = setting(1, "optimiser updates per batch of samples; with 1 every ratio is 1, so clipping never acts",
                                     1, 64, aliases=("num_iterations",))
    combine: str = setting("lisp", "how a sample's rewards become one number; lisp: correctness and style of a program; "
                           "additive, weighted_length_penalty: sums of rewards for answers in words; latent: format plus a "
                           "reward on hidden states; reasoning_gym: the family's own score; or one registered by PLUGINS; or "
                           "your own class, module:Class or path/to/file.py:Class", aliases=("class_path",))
    combine_kwargs: Kwargs = setting(Kwargs("{}"), "arguments of COMBINE, such as {length_penalty_lambda: 0.5, "
                                     "strict_format_gate: true}", aliases=("objective_kwargs",))
    logit_chunk: int = setting(256, "tokens whose logits are computed at once; affects memory and speed only", 1, 1_000_000)


@dataclass(frozen=True)
class RewardSettings:
    """What an answer earns."""
    style_weight: float = setting(0.5, "a correct program earns 1 + STYLE_WEIGHT * style, a wrong one 0", 0.0, 10.0)
    style_depth: str = setting("bearing", "the nesting that style pays for; bearing: what the answer needs; written: all of it",
                               choices=("bearing", "written"))
    reward_kwargs: Kwargs = setting(Kwargs("{}"), "arguments of each reward, by its name, such as {length_penalty_reward: "
                                    "{tokenizer_name: 0.5B}}", aliases=("kwargs",))
    shuffle_rewards: bool = setting(False, "control experiment: shuffle the rewards of each step among its samples")


@dataclass(frozen=True)
class SandboxSettings:
    """Where programs are run and graded."""
    sandbox_workers: int = setting(2, "programs graded in parallel", 1, 256)
    case_seconds: float = setting(0.5, "CPU seconds a test case may take; less where the reference solution is fast", 0.01, 600.0)
    recheck_share: float = setting(0.01, "share of passing programs that are graded again, on other cases in a fresh interpreter",
                                   0.0, 1.0)
    allow_weak_sandbox: bool = setting(False, "go on even if this machine lacks a layer of the sandbox")


@dataclass(frozen=True)
class TrainerSettings:
    """Length of a run, and the optimiser (AdamW)."""
    steps: int = setting(600, "training steps, counted from the start of the run", 1, 10_000_000, aliases=("max_steps",),
                         on_resume=True)
    tasks_per_step: int = setting(8, "tasks per step, each sampled GROUP times", 1, 65536)
    learning_rate: float = setting(2e-5, "learning rate after the warm-up", 0.0, 1.0, aliases=("lr",))
    warmup_steps: int = setting(5, "steps over which the learning rate rises to LEARNING_RATE", 0, 10_000_000)
    scheduler: str = setting("constant", "learning rate after the warm-up; constant: stays; linear, cosine: falls towards 0 at "
                             "the end of STEPS, which a resumed run then cannot change", choices=("constant", "linear", "cosine"),
                             aliases=("lr_scheduler_type", "lr_scheduler"),
                             spellings={"constant_with_warmup": "constant", "linear_with_warmup": "linear",
                                        "cosine_with_warmup": "cosine"})
    weight_decay: float = setting(0.0, "decoupled weight decay of AdamW", 0.0, 10.0)
    max_grad_norm: float = setting(1.0, "a gradient with a larger norm is scaled down to it; 0: off", 0.0, 1e9)
    seed: int = setting(0, "seed of the initial adapter, the order of tasks and the sampling", 0, 2**31 - 1)
    max_hours: float = setting(0.0, "stop cleanly after this many hours; 0: no limit", 0.0, 1e5, on_resume=True)


@dataclass(frozen=True)
class EvaluationSettings:
    """Evaluation on held-out tasks during training."""
    eval_every: int = setting(0, "steps between evaluations on held-out tasks; the base model and the last step are evaluated "
                              "too; 0: off", 0, 10_000_000, aliases=("eval_steps",), on_resume=True)
    eval_tasks: int = setting(0, "use only the first N held-out tasks in their fixed shuffled order; 0: all", 0, 1_000_000)
    eval_samples: int = setting(2, "samples per task in these evaluations", 1, 1024, aliases=("num_generations_eval",))


@dataclass(frozen=True)
class ProofSettings:
    """What grpo_proof.py predicts and then trains; other commands read SCORE_SECONDS only, with COMBINE=reasoning_gym."""
    families: str = setting("basic_arithmetic,propositional_logic,word_sorting,leg_counting,letter_counting,chain_sum",
                            "Reasoning Gym families, comma-separated; options follow after colons, as in chain_sum:max_terms=3")
    predict_tasks: int = setting(24, "questions per family that its prediction is based on, each sampled GROUP times", 1, 10_000)
    eval_n: int = setting(200, "held-out questions per family, answered greedily before and after training", 2, 100_000)
    control_arm: bool = setting(True, "train each family a second time with shuffled rewards")
    predictions: str = setting("", "predictions.json to compare with; blank: the one in OUT")
    score_seconds: float = setting(2.0, "seconds that scoring one answer may take", 0.1, 600.0)


@dataclass(frozen=True)
class BankSettings:
    """What scripts/bank.sh measures a model on; no other command reads it."""
    bank_sets: str = setting("generated,lc_easy,humaneval,mbpp", "sets of held-out tasks, comma-separated; humaneval and mbpp "
                             "are left out where their files are not given")
    bank_tasks: int = setting(0, "use only the first N tasks of each set in their fixed shuffled order; 0: all", 0, 1_000_000)
    bank_generated: int = setting(300, "use at most N generated tasks", 1, 5_000)
    humaneval_file: str = setting("", "HumanEval.jsonl.gz, or problems in its format; blank: none")
    mbpp_file: str = setting("", "sanitized-mbpp.json, or problems in its format; blank: none")


@dataclass(frozen=True)
class RunSettings:
    """Where a run is written, and what is kept of it."""
    run_name: str = setting("", "last part of the default run folder's name", pattern=r"[A-Za-z0-9._-]*",
                            words="letters, digits and . _ -")
    out: str = setting("", "folder of the run, or file of the report; blank: runs/<date>-<name>", aliases=("output_dir",))
    resume: str = setting("", "folder of a run to continue; all settings come from its config.yaml",
                          aliases=("resume_from_checkpoint",))
    save_every: int = setting(25, "steps between checkpoints", 1, 10_000_000, aliases=("save_steps",), on_resume=True)
    keep_last: int = setting(3, "number of latest checkpoints to keep", 1, 1_000_000, aliases=("save_total_limit",),
                             on_resume=True)
    keep_every: int = setting(0, "keep checkpoints at multiples of this many steps for good, in checkpoints/permanent; 0: none",
                              0, 10_000_000)
    tracker: str = setting("none", "also log metrics to TensorBoard or Weights & Biases; wandb stays offline unless "
                           "WANDB_MODE=online", choices=("none", "tensorboard", "wandb"), aliases=("report_to",), on_resume=True)


@dataclass(frozen=True)
class StorageSettings:
    """Where relative paths lie."""
    cache_dir: str = setting("", "folder under which relative paths lie: OUT, RESUME and LORA in artifacts/runs, TASKS_FILE in "
                             "datasets, a MODEL that exists there in models, and the hub's cache too, offline unless "
                             "HF_HUB_OFFLINE=0; blank: the current folder", on_resume=True)


@dataclass(frozen=True)
class Settings:
    """All settings, by section."""
    model: ModelSettings = ModelSettings()
    data: DataSettings = DataSettings()
    generation: GenerationSettings = GenerationSettings()
    objective: ObjectiveSettings = ObjectiveSettings()
    reward: RewardSettings = RewardSettings()
    sandbox: SandboxSettings = SandboxSettings()
    trainer: TrainerSettings = TrainerSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    proof: ProofSettings = ProofSettings()
    bank: BankSettings = BankSettings()
    run: RunSettings = RunSettings()
    storage: StorageSettings = StorageSettings()


class Leaf(NamedTuple):
    """One declared setting, with its section."""
    section: str
    name: str
    type: type
    default: Any
    help: str
    low: Any
    high: Any
    choices: tuple
    names: tuple
    pattern: str | None
    words: str
    aliases: tuple
    on_resume: bool
    spellings: dict[str, str]

    @property
    def limits(self) -> str:
        """The values it takes, in words."""
        if self.type is bool:
            return "true or false"
        if self.type is Kwargs:
            return "a mapping, {name: value}"
        if self.names:
            return f"a comma-separated list of {', '.join(self.names)}, each at most once, or all-linear"
        if self.type is str:
            also = f" (also {', '.join(self.spellings)})" if self.spellings else ""
            return f"one of {', '.join(self.choices)}{also}" if self.choices else self.words or "text"
        return f"a {'whole number' if self.type is int else 'number'} from {self.low} to {self.high}"


SECTIONS = {section.name: section.type for section in fields(Settings)}
LEAVES = {leaf.name: Leaf(section, leaf.name, leaf.type, leaf.default, **leaf.metadata)
          for section, kind in SECTIONS.items() for leaf in fields(kind)}
NAMES = {name: leaf for leaf in LEAVES.values() for name in (leaf.name, *leaf.aliases)}


def value_of(settings: Settings, name: str) -> Any:
    """The value of the setting called `name`."""
    return getattr(getattr(settings, LEAVES[name].section), name)


def values_of(settings: Settings) -> dict[str, Any]:
    """Name -> value of all settings."""
    return {name: value_of(settings, name) for name in LEAVES}


def text_of(value: Any) -> str:
    """A value as one would type it in an environment variable."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- settings that no longer exist ------------------------------------------------------------------------------------


class Retired(NamedTuple):
    """A setting that is now a constant. Old runs and other trainers' files still name it: the constant is accepted in any of its
    spellings, everything else is an error."""
    section: str
    name: str
    fixed: str | float
    help: str
    aliases: tuple = ()
    spellings: tuple = ()


RETIRED = {old.name: old for old in (
    Retired("trainer", "optimizer", "adamw", "the optimiser is always AdamW, which is Adam while WEIGHT_DECAY is 0",
            aliases=("optim", "optimiser"),
            spellings=("AdamW", "adamw_torch", "adamw_torch_fused", "adamw_hf", "torch.optim.AdamW")),
    Retired("trainer", "adam_beta1", 0.9, "decay of AdamW's first moment"),
    Retired("trainer", "adam_beta2", 0.999, "decay of AdamW's second moment"),
    Retired("trainer", "adam_eps", 1e-8, "added to the root of AdamW's second moment", aliases=("adam_epsilon",)),
    Retired("auth", "hf_token_env", "HF_TOKEN", "the hub's token, for gated models, is read from the variable HF_TOKEN"),
    Retired("auth", "wandb_key_env", "WANDB_API_KEY", "the key of Weights & Biases is read from the variable WANDB_API_KEY"))}
RETIRED_NAMES = {name: old for old in RETIRED.values() for name in (old.name, *old.aliases)}
FIXED = {name: old.fixed for name, old in RETIRED.items()}
EARLIER = {"style_depth": "written"}    # what a run did whose config.yaml is older than the setting
