"""Every setting of the repo, declared once: default, type, limits, help and the other names it answers to.

A setting is a leaf of one of the frozen dataclasses below; leaf names are unique. rl/settings/config.py reads them from the
environment and YAML; `--help` (rl/settings/checks.py), the tables in README.md and NOTES.md (scripts/render_docs.py) and a run's
config.yaml are printed from the same lines. Nothing is read or checked here.
"""

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from model_config import PROJECTIONS

VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"


def setting(default, help, low=None, high=None, choices=(), names=(), pattern=None, words="", aliases=(), on_resume=False,
            spellings=None):
    """One declared setting; `names` are those a list may hold; `spellings`, what others call a choice -> the choice;
    `on_resume` lets the environment change it on a resume."""
    return field(default=default, metadata=dict(help=help, low=low, high=high, choices=choices, names=names, pattern=pattern,
                                                words=words, aliases=aliases, on_resume=on_resume, spellings=spellings or {}))


class Kwargs(str):
    """The type of a setting that is a mapping: JSON text in the settings, nested in YAML."""


@dataclass(frozen=True)
class ModelSettings:
    """Which weights, in which numbers, computed how."""
    model: str = setting("0.5B", "short name (0.5B, 1.5B, 3B, 7B, qwen3-0.6B, qwen3-1.7B, qwen3-4B, llama-3.2-1B, "
                         "llama-3.2-3B, tiny), hub id, checkpoint folder or .gguf file", aliases=("model_name_or_path",))
    dtype: str = setting("auto", "numbers of the frozen weights; auto: float32 on CPU, bfloat16 on GPU, float16 where "
                         "bfloat16 is missing", choices=("auto", "float32", "bfloat16", "float16"))
    lora: str = setting("", "adapter to start from, or to probe: a checkpoint of a run or a PEFT folder")
    lora_rank: int = setting(16, "rank of the adapter on each of its projections; with LORA that adapter's own", 1, 512,
                             aliases=("lora_r",))
    lora_alpha: float = setting(32.0, "the adapter's output is scaled by LORA_ALPHA / LORA_RANK; with LORA "
                                "that adapter's own", 1e-3, 1e4)
    lora_targets: str = setting(",".join(PROJECTIONS), "the projections of every layer that are adapted; with LORA that "
                                "adapter's own", names=PROJECTIONS, aliases=("lora_target_modules",))
    remat: str = setting("auto", "what the backward pass keeps: full keeps only layer inputs, mlp also the widest products, "
                         "dots all products, none everything (quickest, most memory); auto: the quickest that fits MEMORY_GB",
                         choices=("auto", "full", "mlp", "dots", "none"))
    update_samples: int = setting(0, "samples of a group in one backward pass; fewer take less memory and compute the prompt "
                                  "again; 0: as many as fit MEMORY_GB", 0, 1024)
    memory_gb: float = setting(0.0, "memory to plan for where REMAT or UPDATE_SAMPLES is left to it; 0: the GPU's, or half of "
                               "this machine's", 0.0, 1e6)
    attention: str = setting("auto", "attention kernel; auto: cudnn where it can be used, else einsum",
                             choices=("auto", "einsum", "cudnn"))


@dataclass(frozen=True)
class DataSettings:
    """Which tasks, and what the prompt says."""
    tasks: str = setting("lc_easy", "task provider: lc_easy, humaneval, mbpp, gsm8k, math, svamp, gsm8k_math_curriculum, "
                         "reasoning_gym, or one that a file of PLUGINS registers")
    provider_kwargs: Kwargs = setting(Kwargs("{}"), "what else the task provider is given, such as {levels: [1, 2]}, or with "
                                      "TASKS=reasoning_gym {families: [chain_sum, leg_counting], tasks: 1000, held_out: 100}")
    plugins: str = setting("", "Python files outside of this repo, comma-separated, that register providers, rewards or "
                           "objectives; their code runs with all rights of this process")
    split: str = setting("train", "which part of the provider's tasks", choices=("train", "heldout", "all"))
    n_tasks: int = setting(0, "only the first N of the split's fixed shuffled order; 0 = all", 0, 1_000_000)
    tasks_file: str = setting("", "local data file or folder of a provider that reads one (all but lc_easy and reasoning_gym)")
    task_names: str = setting("", "only these tasks of the split, comma-separated")
    style_hint: bool = setting(False, "ask in the prompt for one nested expression")
    form_example: bool = setting(False, "show the form of an answer in words by a worked example in the prompt")
    case_seed: int = setting(1, "seed of the hidden test inputs", 0, 2**31 - 1)
    thinking_tag: str = setting("think", "tag around the thinking of answers in words, for the prompt and the rewards",
                                pattern=r"[A-Za-z][A-Za-z0-9_-]*", words="a letter, then letters, digits, _ or -")


@dataclass(frozen=True)
class GenerationSettings:
    """How completions are sampled."""
    group: int = setting(8, "samples per task in training; advantages compare within this group", 2, 1024,
                         aliases=("num_generations", "group_size"))
    n_samples: int = setting(8, "samples per task when probing or querying", 1, 1024)
    temperature: float = setting(1.0, "sampling temperature; 0 = greedy, which training refuses", 0.0, 10.0)
    top_k: int = setting(0, "sample among the k likeliest tokens; 0 = off", 0, 1_000_000)
    top_p: float = setting(1.0, "sample among the likeliest tokens that hold this much probability; 1 = off", 1e-3, 1.0)
    max_new_tokens: int = setting(192, "longest completion in tokens", 1, 32768, aliases=("max_completion_length",))
    decode_block: int = setting(16, "decoding steps on the device between looks at which rows have ended", 1, 1024)
    max_prompt_tokens: int = setting(1024, "a longer prompt is refused", 1, 32768, aliases=("max_prompt_length",))
    dynamic_sampling: bool = setting(False, "in training, replace groups without signal by those of further tasks until "
                                     "TASKS_PER_STEP have signal")
    max_sampled_groups: int = setting(32, "with DYNAMIC_SAMPLING, most groups that a step samples", 2, 1_000_000)


@dataclass(frozen=True)
class ObjectiveSettings:
    """The loss, and what enters it."""
    loss: str = setting("dapo", "dapo: token mean; grpo: mean of sample means; dr_grpo: constant denominator; gspo: the "
                        "ratio of whole samples; cispo: clipped weights on log-probabilities",
                        choices=("dapo", "grpo", "dr_grpo", "gspo", "cispo"), aliases=("loss_type",))
    eps_low: float = setting(0.2, "clip bound of the token ratio below 1; with LOSS=cispo, 1 lifts it", 0.0, 1.0,
                             aliases=("epsilon",))
    eps_high: float = setting(0.28, "clip bound of the token ratio above 1", 0.0, 100.0, aliases=("epsilon_high",))
    gspo_eps_low: float = setting(3e-4, "with LOSS=gspo, clip bound of a sample's ratio below 1", 0.0, 1.0)
    gspo_eps_high: float = setting(4e-4, "with LOSS=gspo, clip bound of a sample's ratio above 1", 0.0, 100.0)
    advantage: str = setting("grpo", "grpo: reward less the group's mean; rloo: less the mean of the others; passk: what "
                             "the sample adds to the best of PASS_K", choices=("grpo", "rloo", "passk"))
    advantage_scale: str = setting("auto", "std: divide the advantage by the group's std; none: leave it; auto: none with "
                                   "LOSS=dr_grpo or ADVANTAGE=rloo, else std", choices=("auto", "std", "none"),
                                   aliases=("scale_rewards",))
    pass_k: int = setting(4, "with ADVANTAGE=passk, the k of pass@k; below GROUP", 1, 1023)
    overlong: str = setting("keep", "samples cut at MAX_NEW_TOKENS. keep: like any other; mask: out of the loss; penalise: a "
                            "correct answer earns less the nearer it comes to the limit", choices=("keep", "mask", "penalise"))
    overlong_tokens: int = setting(32, "with OVERLONG=penalise, how many tokens before the limit the penalty begins", 1, 32768)
    overlong_penalty: float = setting(0.5, "with OVERLONG=penalise, what a correct answer loses at the limit", 0.001, 1.0)
    entropy_bonus: float = setting(0.0, "weight of the policy's entropy in the objective; above 0, groups without signal are "
                                   "trained on too", 0.0, 10.0)
    kl_beta: float = setting(0.0, "weight of the KL divergence to the model without adapter; above 0, groups without signal "
                             "are trained on too", 0.0, 10.0, aliases=("beta",))
    updates_per_batch: int = setting(1, "optimiser updates on each batch of samples; with 1 the ratio is 1 and the "
                                     "clip never acts", 1, 64, aliases=("num_iterations",))
    combine: str = setting("lisp", "what a sample's rewards come to. lisp: correctness and style of a program, from the sandbox; "
                           "additive, weighted_length_penalty: sums of rewards for answers in words; latent: format and a hook "
                           "on hidden states; reasoning_gym: the score that a family of Reasoning Gym gives; one of PLUGINS; or "
                           "code from outside, module:Class or path/to/file.py:Class", aliases=("class_path",))
    combine_kwargs: Kwargs = setting(Kwargs("{}"), "what COMBINE is given, such as {length_penalty_lambda: 0.5, "
                                     "strict_format_gate: true}", aliases=("objective_kwargs",))
    logit_chunk: int = setting(256, "positions per chunk of the vocabulary projection; changes memory and speed only",
                               1, 1_000_000)


@dataclass(frozen=True)
class RewardSettings:
    """What a graded answer is worth."""
    style_weight: float = setting(0.5, "a correct answer earns 1 + STYLE_WEIGHT * style, a wrong one 0", 0.0, 10.0)
    reward_kwargs: Kwargs = setting(Kwargs("{}"), "what each reward is given, by its name, such as {length_penalty_reward: "
                                    "{tokenizer_name: 0.5B}}", aliases=("kwargs",))
    shuffle_rewards: bool = setting(False, "control arm: deal the rewards of a step out at random among its samples")


@dataclass(frozen=True)
class SandboxSettings:
    """Where candidates run."""
    sandbox_workers: int = setting(2, "candidates graded side by side", 1, 256)
    case_seconds: float = setting(0.5, "most CPU seconds a test case may use; less where the reference is quick", 0.01, 600.0)
    recheck_share: float = setting(0.01, "share of the passes graded again, on other cases in a fresh interpreter", 0.0, 1.0)
    allow_weak_sandbox: bool = setting(False, "go on where this machine lacks a layer of the sandbox")


@dataclass(frozen=True)
class TrainerSettings:
    """Length of a run and its optimiser."""
    steps: int = setting(600, "training steps, counted from the start of the run", 1, 10_000_000,
                         aliases=("max_steps",), on_resume=True)
    tasks_per_step: int = setting(8, "tasks per step; each is sampled GROUP times", 1, 65536)
    optimizer: str = setting("adamw", "adamw: AdamW, which is Adam while WEIGHT_DECAY is 0; sgd: no momentum, wants a far larger "
                             "LEARNING_RATE", choices=("adamw", "sgd"), aliases=("optim", "optimiser"),
                             spellings={"adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw",
                                        "torch.optim.AdamW": "adamw", "torch.optim.SGD": "sgd"})
    learning_rate: float = setting(2e-5, "the optimiser's step size once warmed up; adamw takes at most 1", 0.0, 100.0,
                                   aliases=("lr",))
    warmup_steps: int = setting(5, "steps over which the learning rate rises to LEARNING_RATE", 0, 10_000_000)
    scheduler: str = setting("constant", "the learning rate after the warm-up. constant: it stays; linear, cosine: it falls so "
                             "that the step after the last of STEPS would have 0; a resumed run then keeps STEPS",
                             choices=("constant", "linear", "cosine"), aliases=("lr_scheduler_type", "lr_scheduler"),
                             spellings={"constant_with_warmup": "constant", "linear_with_warmup": "linear",
                                        "cosine_with_warmup": "cosine"})
    weight_decay: float = setting(0.0, "decoupled weight decay", 0.0, 10.0)
    adam_beta1: float = setting(0.9, "decay of AdamW's first moment", 0.0, 0.999999)
    adam_beta2: float = setting(0.999, "decay of AdamW's second moment", 0.0, 0.999999)
    adam_eps: float = setting(1e-8, "added to the root of AdamW's second moment", 1e-16, 1.0, aliases=("adam_epsilon",))
    max_grad_norm: float = setting(1.0, "the gradient is scaled down to this norm; 0 = off", 0.0, 1e9)
    seed: int = setting(0, "seed of the adapter, the order of tasks and the sampling", 0, 2**31 - 1)
    max_hours: float = setting(0.0, "end the run cleanly after this many hours; 0 = no limit", 0.0, 1e5, on_resume=True)


@dataclass(frozen=True)
class EvaluationSettings:
    """How training is measured on its way, on the split that it does not train on."""
    eval_every: int = setting(0, "steps between evaluations on held-out tasks; the base model and the last step are evaluated "
                              "too; 0 = off", 0, 10_000_000, aliases=("eval_steps",), on_resume=True)
    eval_tasks: int = setting(0, "only the first N held-out tasks in their fixed shuffled order; 0 = all", 0, 1_000_000)
    eval_samples: int = setting(2, "samples per task when evaluating", 1, 1024, aliases=("num_generations_eval",))


@dataclass(frozen=True)
class ProofSettings:
    """What grpo_proof.py predicts and then tries; other commands read SCORE_SECONDS alone, with COMBINE=reasoning_gym."""
    families: str = setting("basic_arithmetic,propositional_logic,word_sorting,leg_counting,letter_counting,chain_sum",
                            "Reasoning Gym families, comma-separated; knobs behind colons, as in chain_sum:max_terms=3")
    predict_tasks: int = setting(24, "questions of a family that its prediction rests on, GROUP samples each", 1, 10_000)
    eval_n: int = setting(200, "held-out questions of a family, answered greedily before and after training", 2, 100_000)
    control_arm: bool = setting(True, "train each family a second time with rewards dealt out at random")
    predictions: str = setting("", "predictions.json to train by; default the one in OUT")
    score_seconds: float = setting(2.0, "most seconds that scoring one answer may take", 0.1, 600.0)


@dataclass(frozen=True)
class RunSettings:
    """Where a run is written and what is kept."""
    run_name: str = setting("", "ends the name of the default run folder", pattern=r"[A-Za-z0-9._-]*",
                            words="letters, digits and . _ -")
    out: str = setting("", "run folder, or where a report goes; default runs/<date>-<name>", aliases=("output_dir",))
    resume: str = setting("", "run folder to go on with; its config.yaml supplies every setting",
                          aliases=("resume_from_checkpoint",))
    save_every: int = setting(25, "steps between checkpoints", 1, 10_000_000, aliases=("save_steps",), on_resume=True)
    keep_last: int = setting(3, "latest checkpoints kept", 1, 1_000_000, aliases=("save_total_limit",), on_resume=True)
    keep_every: int = setting(0, "checkpoints at multiples of this many steps stay for good, in checkpoints/permanent; 0 = none",
                              0, 10_000_000)
    tracker: str = setting("none", "where metrics go besides metrics.jsonl; wandb stays offline unless WANDB_MODE says "
                           "otherwise", choices=("none", "tensorboard", "wandb"), aliases=("report_to",), on_resume=True)


@dataclass(frozen=True)
class StorageSettings:
    """Where relative paths lie."""
    cache_dir: str = setting("", "folder of all that is kept: relative OUT, RESUME and LORA are under its artifacts/runs, "
                             "TASKS_FILE under its datasets, a MODEL that is there under its models; blank: paths mean what they "
                             "say", on_resume=True)


@dataclass(frozen=True)
class AuthSettings:
    """The names of the environment variables that hold tokens; never the tokens."""
    hf_token_env: str = setting("HF_TOKEN", "variable with the hub's token, for models that ask for an account",
                                pattern=VARIABLE, words="a variable's name", on_resume=True)
    wandb_key_env: str = setting("WANDB_API_KEY", "variable with the key of Weights & Biases, for WANDB_MODE=online",
                                 pattern=VARIABLE, words="a variable's name", on_resume=True)


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
    run: RunSettings = RunSettings()
    storage: StorageSettings = StorageSettings()
    auth: AuthSettings = AuthSettings()


class Leaf(NamedTuple):
    """A declared setting as the rest of this module and the documentation see it."""
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
        """The values this setting takes, in words."""
        if self.type is bool:
            return "true or false"
        if self.type is Kwargs:
            return "a mapping, name: value"
        if self.names:
            return f"different names among {', '.join(self.names)}, comma-separated"
        if self.type is str:
            also = f"; also as {', '.join(self.spellings)}" if self.spellings else ""
            return f"one of {', '.join(self.choices)}{also}" if self.choices else self.words or "text"
        return f"a {'whole number' if self.type is int else 'number'} from {self.low} to {self.high}"


SECTIONS = {section.name: section.type for section in fields(Settings)}
LEAVES = {leaf.name: Leaf(section, leaf.name, leaf.type, leaf.default, **leaf.metadata)
          for section, kind in SECTIONS.items() for leaf in fields(kind)}
NAMES = {name: leaf for leaf in LEAVES.values() for name in (leaf.name, *leaf.aliases)}


def value_of(settings: Settings, name: str) -> Any:
    """The value of the leaf called `name`."""
    return getattr(getattr(settings, LEAVES[name].section), name)


def values_of(settings: Settings) -> dict[str, Any]:
    """Leaf name -> value of all settings."""
    return {name: value_of(settings, name) for name in LEAVES}


def text_of(value: Any) -> str:
    """A value as one would type it in an environment variable."""
    return str(value).lower() if isinstance(value, bool) else str(value)
