"""Make models/tiny: a Qwen2 of about a million parameters with its own tokenizer, deliberately taught the tasks half right.

    python scripts/make_tiny_model.py              # writes models/tiny; about ten minutes on two cores
    python scripts/make_tiny_model.py FOLDER       # writes to FOLDER instead

Each of the 104 tasks is taught as a mixture of right and wrong answers: statements, a single expression, a nested one and, for
scalar answers, a one-element list. So samples differ in correctness and in style, which gives GRPO something to choose from. It
demonstrates the loop and nothing else: it was taught every task, including those held out of training. The sandbox checks every
answer first.

The same code on the same machine gives the same bits. Other code or another machine sums in another order, and a thousand updates
amplify the difference. So made.json has digests of inputs and outputs, and numbers of the first updates that every machine
reproduces: the losses, and how far each tensor moved."""

import argparse
import hashlib
import json
import math
import os
import platform
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")   # before jax is imported: the committed weights were made on one
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from model_config import ModelConfig, Spec, param_specs
from qwen2_jax import head_logits, run_layers
from rl.errors import InputError
from rl.models.chat import Chat
from rl.rewards.base import Completion
from rl.rewards.lisp import ProgramGrader, score_style
from rl.sandbox import Sandbox
from rl.settings.declared import DataSettings
from rl.tasks import STYLE_HINT, Prompt, Task, encode_prompts, load_tasks, messages, tasks_of_step
from rl.training.loss import Loss
from rl.training.optimiser import AdamW, TrainState, adamw, add_scaled
from rl.training.packing import PackedGroup, pack
from tasks.tiny_solutions import SOLUTIONS

FOLDER = ROOT / "models" / "tiny"
SEED = 0
VOCABULARY = 1408
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "vocab_size": VOCABULARY,
    "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 2048, "max_window_layers": 4, "use_sliding_window": False, "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "attention_dropout": 0.0, "initializer_range": 0.05, "use_cache": True,
    "torch_dtype": "float16"}
# The share of each kind in a task's answers, right and wrong; kinds that a task lacks leave their share to the others.
MIXTURE = {"statements": (0.16, 0.24), "pure": (0.14, 0.10), "nested": (0.14, 0.05), "wrapped": (0.12, 0.03)}
NESTED = 3               # depth from which an expression counts as nested
MUTANTS = 2              # hand-written wrong programs taught per task
TASKS_PER_UPDATE = 4
STAGES = ((3e-3, 520), (1e-3, 364), (3e-4, 156))     # (learning rate, updates)
WARMUP, BETA2 = 30, 0.99
FIRST = 3                # updates recorded in made.json: their losses and the movement of each tensor
TELL_EVERY = 26          # updates between lines on the terminal: one pass over the tasks
LESSON_STEP = 256        # a task's taught tokens are padded to a multiple of this, so that few shapes are compiled
CASE_SEEDS = (1, 2)      # every taught answer is graded with both


class Answer(NamedTuple):
    """One program that a task is taught."""

    source: str
    kind: str            # of MIXTURE
    right: bool
    share: float = 0.0   # of the task's mixture


# ---- answers ---------------------------------------------------------------------------------------------------------


def answers_to(task: Task) -> list[Answer]:
    """The answers that `task` is taught, with shares that sum to 1."""
    by_source = {}
    for body, right in [*_right(task), *_wrong(task)]:
        source = _program(task, body)
        by_source.setdefault(source, Answer(source, _kind(task, source), right))
    counts = Counter((answer.kind, answer.right) for answer in by_source.values())
    mass = {(kind, right): MIXTURE[kind][0 if right else 1] for kind, right in counts}
    total = math.fsum(mass.values())
    return [answer._replace(share=mass[answer[1:3]] / total / counts[answer[1:3]]) for answer in by_source.values()]


def _right(task: Task) -> Iterator[tuple[str, bool]]:
    """(body, True) of every right answer, including one-element lists."""
    for body in [_body(task.reference), *(body for body, _, _ in SOLUTIONS[task.name])]:
        yield body, True
        yield from ((wrapped, True) for wrapped in _wrapped(task, body))


def _wrong(task: Task) -> Iterator[tuple[str, bool]]:
    """(body, False): slips, their one-element lists, statements without the return, hand-written wrong programs."""
    for body in (body.replace(old, new) for body, old, new in SOLUTIONS[task.name]):
        yield body, False
        yield from ((wrapped, False) for wrapped in _wrapped(task, body))
    unfinished, _, last = SOLUTIONS[task.name][0][0].rpartition("\n")
    if last.startswith("return"):
        yield unfinished, False
    yield from ((_body(mutant), False) for mutant in task.mutants[:MUTANTS])


def _body(source: str) -> str:
    """The body of a program whose first line is its signature."""
    return textwrap.dedent(source.partition("\n")[2]).strip()


def _wrapped(task: Task, body: str) -> Iterator[str]:
    """The body with its expression in a list; nothing where that is impossible, or where the function calls itself."""
    head, _, last = body.rpartition("\n")
    if task.scalar and _only_imports(head) and last.startswith("return ") and task.entry_point not in last:
        yield f"{head}\nreturn [{last.removeprefix('return ')}]".strip()


def _only_imports(head: str) -> bool:
    return all(line.startswith(("from ", "import ")) for line in head.splitlines())


def _program(task: Task, body: str) -> str:
    """Imports of the body first, then the function."""
    lines = body.split("\n")
    first = next(i for i, line in enumerate(lines) if not _only_imports(line))
    return "\n".join([*lines[:first], "", task.signature, *(f"    {line}" for line in lines[first:])]).strip()


def _kind(task: Task, source: str) -> str:
    style = score_style(source, task.entry_point, task.scalar)
    if not style.pure:
        return "statements"
    if task.scalar and source.rpartition("\n")[2].strip().startswith("return ["):
        return "wrapped"
    return "nested" if style.depth >= NESTED else "pure"


def check_answers(tasks: Sequence[Task], taught: Sequence[list[Answer]]) -> None:
    """InputError lists right answers that fail in the sandbox and wrong ones that pass."""
    pairs = [(task, answer) for task, answers in zip(tasks, taught, strict=True) for answer in answers]
    problems = []
    with Sandbox() as sandbox:
        for seed in CASE_SEEDS:
            grader = ProgramGrader(sandbox, tasks, style_weight=0.5, case_seed=seed)
            grades = grader.grade([Completion(task, answer_text(answer.source)) for task, answer in pairs])
            problems += [f"{task.name}: {'right' if answer.right else 'wrong'}, but {grade.verdict}:\n{answer.source}"
                         for (task, answer), grade in zip(pairs, grades, strict=True) if grade.correct != answer.right]
    if problems:
        raise InputError(f"{len(problems)} taught answers have the wrong label:\n" + "\n".join(problems))


def answer_text(source: str) -> str:
    """The completion with a program, without the stop token."""
    return f"```python\n{source}\n```"


# ---- tokenizer -------------------------------------------------------------------------------------------------------

# Qwen's rule for splitting text into words, and its chat template without tools.
WORDS = Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEMPLATE = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
            "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}"
            "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def make_tokenizer(tasks: Sequence[Task], taught: Sequence[list[Answer]]) -> Tokenizer:
    """Byte-level BPE learnt from the prompts and the taught answers, followed by ChatML's control tokens."""
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(WORDS, "isolated"),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    prompts = [message["content"] for task in tasks for message in messages(task, task.example_results)]
    programs = [answer_text(answer.source) for answers in taught for answer in answers]
    made.train_from_iterator([STYLE_HINT, *prompts, *programs], trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(CONTROL), show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in CONTROL])
    return made


# ---- teaching --------------------------------------------------------------------------------------------------------


def make_lessons(prompts: Sequence[Prompt], taught: Sequence[list[Answer]], tokenizer: Tokenizer) -> list[PackedGroup]:
    """Each task's prompt and answers packed as a training group, an answer's advantage being its share.

    All lessons have the same number of answers, padded with empty ones of share 0, so that few shapes are compiled."""
    end = tokenizer.token_to_id("<|im_end|>")
    most, lessons = max(map(len, taught)), []
    for prompt, answers in zip(prompts, taught, strict=True):
        padding = most - len(answers)
        ids = [[*tokenizer.encode(answer_text(answer.source)).ids, end] for answer in answers] + [[end]] * padding
        shares = [answer.share for answer in answers] + [0.0] * padding
        lessons.append(pack(prompt.ids, ids, [np.zeros(len(row)) for row in ids], shares, Loss(logit_chunk=LESSON_STEP)))
    return lessons


class Material(NamedTuple):
    """Everything that is taught; depends on the code only."""

    tasks: list[Task]
    taught: list[list[Answer]]     # by task
    tokenizer: Tokenizer
    prompts: list[Prompt]
    lessons: list[PackedGroup]


def make_material() -> Material:
    """Tasks, answers, tokenizer and lessons."""
    tasks = load_tasks(DataSettings(split="all"))
    taught = [answers_to(task) for task in tasks]
    tokenizer = make_tokenizer(tasks, taught)
    chat = Chat(tokenizer, TEMPLATE)
    prompts = encode_prompts(tasks, chat, style_hint=False, max_prompt_tokens=CONFIG["max_position_embeddings"])
    return Material(tasks, taught, tokenizer, prompts, make_lessons(prompts, taught, tokenizer))


def first_params(cfg: ModelConfig, seed: int) -> dict:
    """Untaught parameters: normal weights, norms at 1, biases at 0."""
    rng = np.random.default_rng(seed)

    def draw(spec):
        if len(spec.shape) == 1:
            return jnp.full(spec.shape, float(spec.name.endswith("norm.weight")))
        return jnp.asarray(CONFIG["initializer_range"] * rng.standard_normal(spec.kept_shape), jnp.float32)

    return jax.tree.map(draw, param_specs(cfg), is_leaf=lambda leaf: isinstance(leaf, Spec))


def lesson_loss(params, lesson: PackedGroup, cfg: ModelConfig):
    """Mean nats per taught token, weighted by share."""
    hidden_QD, _ = run_layers(params, None, lesson.tokens_Q, lesson.positions_Q, lesson.layout,
                              [None] * cfg.num_hidden_layers, cfg)
    logits_MV = head_logits(params, hidden_QD[lesson.targets.source_M]).T
    nats_M = jax.nn.logsumexp(logits_MV, -1) - jnp.take_along_axis(logits_MV, lesson.targets.target_M[:, None], -1)[:, 0]
    return jnp.sum(nats_M * lesson.targets.advantage_M) / jnp.sum(lesson.targets.advantage_M)


lesson_gradient = partial(jax.jit, static_argnames="cfg")(jax.value_and_grad(lesson_loss))


def teach(material: Material, cfg: ModelConfig, updates: int, tell: Callable[[str], None] = lambda line: None):
    """(parameters after this many updates, the loss before each of them)."""
    params = first_params(cfg, SEED)
    zeros = jax.tree.map(jnp.zeros_like, params)
    # rl/training/optimiser.py updates what is under "layers"; here that is every parameter.
    state, losses, started = TrainState({"layers": params}, zeros, zeros, jnp.int32(0)), [], time.monotonic()
    for update, rate in enumerate(rates()[:updates]):
        gradient, mean = zeros, 0.0
        for i in tasks_of_step(len(material.tasks), update, TASKS_PER_UPDATE, SEED):
            loss, of_task = lesson_gradient(state.adapter["layers"], material.lessons[i], cfg)
            gradient, mean = add_scaled(gradient, of_task, 1 / TASKS_PER_UPDATE), mean + float(loss) / TASKS_PER_UPDATE
        state, _, _ = adamw(state, gradient, AdamW(learning_rate=rate, warmup_updates=WARMUP, beta2=BETA2))
        losses.append(mean)
        if update % TELL_EVERY == 0:
            tell(f"update {update} of {updates}: {mean:.4f} nats per token, {time.monotonic() - started:.0f} s")
    return state.adapter["layers"], losses


def rates() -> list[float]:
    """The learning rate of every update."""
    return [rate for rate, updates in STAGES for _ in range(updates)]


def first_updates(material: Material, cfg: ModelConfig) -> dict:
    """The loss before each of the first updates and, by the hub's name, the L2 norm of each tensor's change."""
    params, losses = teach(material, cfg, FIRST)
    before, after = named(first_params(cfg, SEED), cfg), named(params, cfg)
    return {"losses": losses, "moved": {name: float(np.linalg.norm(after[name] - before[name])) for name in after}}


def named(params: dict, cfg: ModelConfig) -> dict[str, np.ndarray]:
    """Every tensor under the hub's name and in the hub's layout, in fp64."""
    specs = jax.tree.leaves(param_specs(cfg), is_leaf=lambda leaf: isinstance(leaf, Spec))
    return {spec.name: (np.asarray(leaf).T if spec.transposed else np.asarray(leaf)).astype(np.float64)
            for spec, leaf in zip(specs, jax.tree.leaves(params), strict=True)}


# ---- files -----------------------------------------------------------------------------------------------------------


def inputs_digest(material: Material) -> str:
    """SHA-256 of everything that the weights depend on but the code of model and training."""
    data = [[prompt.messages, *map(list, taught)] for prompt, taught in zip(material.prompts, material.taught, strict=True)]
    settings = [CONFIG, TEMPLATE, SEED, TASKS_PER_UPDATE, STAGES, WARMUP, BETA2, LESSON_STEP]
    return sha256(json.dumps([data, tokenizer_text(material.tokenizer), settings]).encode())


def sha256(content: bytes) -> str:
    """The digest in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def tokenizer_text(tokenizer: Tokenizer) -> str:
    """The content of tokenizer.json."""
    return tokenizer.to_str(pretty=True) + "\n"


def weights_file(params: dict, cfg: ModelConfig) -> bytes:
    """The content of model.safetensors: fp16, under the hub's names."""
    tensors = {name: np.ascontiguousarray(tensor.astype(np.float16)) for name, tensor in named(params, cfg).items()}
    return save(tensors, metadata={"format": "pt"})


def settings_files(tokenizer: Tokenizer) -> dict[str, dict]:
    """config.json, generation_config.json and tokenizer_config.json, with the entries of the hub's Qwen2.5."""
    end_of_text, _, im_end = map(tokenizer.token_to_id, CONTROL)
    return {
        "config.json": {**CONFIG, "bos_token_id": end_of_text, "eos_token_id": im_end},
        "generation_config.json": {
            "bos_token_id": end_of_text, "pad_token_id": end_of_text, "eos_token_id": [im_end, end_of_text], "do_sample": True,
            "temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.1},
        "tokenizer_config.json": {
            "tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
            "unk_token": None, "add_prefix_space": False, "add_bos_token": False, "clean_up_tokenization_spaces": False,
            "model_max_length": CONFIG["max_position_embeddings"], "errors": "replace", "split_special_tokens": False,
            "chat_template": TEMPLATE}}


def machine() -> dict[str, str]:
    """Where the weights were made: their last bits depend on this, among other things."""
    cpu = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in (cpu.read_text() if cpu.exists() else "").splitlines()
             if line.startswith("model name")]
    return {"cpu": next(iter(names), platform.processor()), "cores": str(os.cpu_count()), "jaxlib": jax.lib.__version__,
            "numpy": np.__version__}


README = """# models/tiny

A Qwen2 of {parameters:,} parameters with a tokenizer of {tokens:,} tokens, in the hub's layout: `MODEL=tiny`.

**It demonstrates the loop and is useful for nothing else.** It was taught all {tasks} tasks of `tasks/lc_easy_tasks.py`,
including those held out of training, as a fixed mixture of right and wrong answers in several styles. It cannot write a
program that it was not shown. GRPO can only make it choose among the answers that it knows, so a gain shows that the loop
works and says nothing about real models.

Made by `python scripts/make_tiny_model.py` from seed {seed}: {answers:,} answers, {right:,} of them right, all checked in the
sandbox; {updates:,} updates; {nats:.3f} nats per token in the last pass over the tasks. A model that knows the mixture and
nothing else would have {floor:.3f}.

    model.safetensors  sha256 {weights}

`made.json` has the digests of inputs and outputs, and the machine that made them. The last bits depend on the machine and on
the model's code, so it also has numbers to reproduce elsewhere: the losses of the first {first} updates, and how far these
moved each tensor.
"""


def page(material: Material, made: dict) -> str:
    """The folder's README; `made` is the content of made.json."""
    answers = [answer for taught in material.taught for answer in taught]
    specs = jax.tree.leaves(param_specs(ModelConfig.from_hf(CONFIG)), is_leaf=lambda leaf: isinstance(leaf, Spec))
    return README.format(
        parameters=sum(math.prod(spec.shape) for spec in specs), tokens=material.tokenizer.get_vocab_size(),
        tasks=len(material.tasks), answers=len(answers), right=sum(answer.right for answer in answers), seed=SEED,
        updates=len(rates()), floor=mixture_nats(material), nats=made["nats"], weights=made["weights"], first=FIRST)


def mixture_nats(material: Material) -> float:
    """The mean nats per token of a model that knows every task's mixture and nothing else."""
    def nats(taught, lesson):
        tokens = lesson.targets.advantage_M.sum()    # the mean length of an answer: each of its tokens carries its share
        return -math.fsum(answer.share * math.log(answer.share) for answer in taught) / tokens

    return float(np.mean([nats(taught, lesson) for taught, lesson in zip(material.taught, material.lessons, strict=True)]))


def texts(material: Material, made: dict) -> dict[str, str]:
    """Every file of the folder except the weights."""
    values = {**settings_files(material.tokenizer), "made.json": made}
    return {"README.md": page(material, made), "tokenizer.json": tokenizer_text(material.tokenizer),
            **{name: json.dumps(content, indent=1) + "\n" for name, content in values.items()}}


def main(arguments) -> int:
    """Make the model and write its folder; returns the exit code."""
    parser = argparse.ArgumentParser(usage=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    folder = parser.parse_args(arguments).folder
    material, cfg = make_material(), ModelConfig.from_hf(CONFIG)
    try:
        check_answers(material.tasks, material.taught)
    except InputError as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    made = {"inputs": inputs_digest(material), "first": first_updates(material, cfg)}
    params, losses = teach(material, cfg, len(rates()), tell=partial(print, flush=True))
    weights = weights_file(params, cfg)
    made |= {"tokenizer": sha256(tokenizer_text(material.tokenizer).encode()), "weights": sha256(weights),
             "nats": float(np.mean(losses[-len(material.tasks) // TASKS_PER_UPDATE:])), "machine": machine()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(weights)
    for name, text in texts(material, made).items():
        (folder / name).write_text(text, encoding="utf-8")
    print(f"written: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
