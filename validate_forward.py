"""Check the forward pass against transformers and against float64, layer by layer.

    python validate_forward.py 0.5B          # the default, as is MODEL; or a hub id, a folder, a .gguf file, tiny

Ten prompts of 1 to about 120 tokens run in fp32 on the CPU, left-padded in one batch and two of them by themselves: through
qwen2_jax.py, through transformers, and through the NumPy model of this file, all in float64; transformers computes norms, softmax
and rotary angles in fp32 whatever its dtype.  Judged by float64: our logits are within MAX_ERROR of it, and no further from it
than transformers' are.

A change of one weight by 1e-3 is lost in the logits.  So each layer is also run by itself, on float64's state before it, rounded
to fp32, in our model and in transformers.  Its error there is what it adds to its input, less what the float64 layer adds; the
input itself, thousands in a few channels, cancels.  Of each value it is taken over the size of what has to be rounded, |input| +
|output| + the root mean square of what is added to that token; then its root mean square over all tokens, channel by channel, in
units of fp32's eps; the worst channel counts.  Our parameters are also compared with the file's.

A last run has float16 weights and must stay finite.  Prints two tables.  Exit status 1: a limit is exceeded; 2: the model or
torch is not available.  Needs requirements-oracles.txt and, for 0.5B, 5 to 10 GB of memory and a minute or two on an idle
machine.  Not covered: the cache, adapters, the GPU, how jit fuses a whole pass."""

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before jax is imported; a GPU rounds fp32 products by default

import jax
import jax.numpy as jnp
import numpy as np

from attention import Causal
from model_config import ModelConfig, Spec, param_specs
from qwen2_jax import BLOCKS, head_logits, padded_positions, rms_norm, rope_angles
from rl.errors import InputError
from rl.models.pretrained import Source, load, resolve
from rl.settings import config

EPS = float(np.finfo(np.float32).eps)
MAX_ERROR = 5e-5  # of our logits against float64
MAX_ERROR_RATIO = 1.5  # our error over transformers'; of the same model it varies as much with the order of its sums
ROUNDING = 16 * EPS  # times the largest logit: smaller errors, and their ratio, are chance
MAX_LAYER_ERROR = 12.0  # of a layer by itself, in eps, if transformers' is not larger; the worst of 0.5B is 6.6
VOCAB_CHUNK = 16384  # rows of the head in float64 at a time


class Run(NamedTuple):
    """One model's results for a list of prompts, without padding."""

    hidden: list[list[np.ndarray]]  # hidden_TD by layer and prompt: embedding, after each layer, after the final norm
    logits: list[np.ndarray]  # logits_TV by prompt


# ---- prompts ---------------------------------------------------------------------------------------------------------

TEXTS = (
    ("", "Hi"),
    ("You write Python.", "Write a function that adds two numbers."),
    ("You write Python.", "def area(r: float) -> float:\n    \"\"\"Area of a disc.\"\"\"\n"),
    ("Answer briefly.", "Quelle est la différence entre une liste et un tuple ? Réponds en une phrase, s'il te plaît."),
    ("You are careful.", "Numbers: " + ", ".join(str(n * n) for n in range(24))),
    ("You write Python.", "Reverse the words of a sentence, keep single blanks between them, drop those at both ends.\n"
     "def reverse_words(s: str) -> str:\n\nreverse_words('  to be  or not ') == 'not or be to'\nreverse_words('') == ''"),
    ("翻译成英文。", "递归函数调用自身。🙂 naïve café — “quotes”, \t tabs and\n\n\nblank lines."),
    ("You review code.", "What is wrong here?\n```python\nfor i in range(len(xs)):\n    if xs[i] == 0:\n        del xs[i]\n```"),
)
CUTS = (1, 6)  # tokens of the first prompt that make two more prompts
ALONE = (0, 3)  # prompts that also run without padding and neighbours


def prompts_of(source: Source) -> list[list[int]]:
    """Token ids of conversations of different lengths, and of two beginnings of the first."""
    whole = [source.chat.encode([{"role": "system", "content": system}, {"role": "user", "content": user}])
             for system, user in TEXTS]
    return [whole[0][:n] for n in CUTS] + whole


def left_padded(prompts: list[list[int]], pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    """tokens_BT and mask_BT."""
    T = max(map(len, prompts))
    tokens_BT = np.array([[pad_id] * (T - len(ids)) + ids for ids in prompts], np.int32)
    return tokens_BT, np.array([[False] * (T - len(ids)) + [True] * len(ids) for ids in prompts])


def unpad(array, mask_BT) -> list[np.ndarray]:
    """The real tokens of each row of (B, T, ...)."""
    return [row[mask] for row, mask in zip(np.asarray(array), mask_BT, strict=True)]


# ---- the three models ------------------------------------------------------------------------------------------------


def padded(rows: list[np.ndarray], mask_BT) -> np.ndarray:
    """fp32 states_BTD with a row's states at its real tokens; the inverse of unpad."""
    states_BTD = np.zeros((*mask_BT.shape, rows[0].shape[-1]), np.float32)
    for state_TD, mask, row in zip(states_BTD, mask_BT, rows, strict=True):
        state_TD[mask] = row
    return states_BTD


def our_run(params, cfg: ModelConfig, prompts: list[list[int]], pad_id: int, fed: list | None = None) -> Run:
    """qwen2_jax.py on one padded batch.  fed: the state to give to each layer, in place of the layer before."""
    tokens_BT, mask_BT = left_padded(prompts, pad_id)
    x_BTD = params["embed_tokens"][tokens_BT]
    rope, layout = rope_angles(padded_positions(jnp.asarray(mask_BT)), cfg), Causal(jnp.asarray(mask_BT))
    hidden = [unpad(x_BTD, mask_BT)]
    for i, layer in enumerate(params["layers"]):
        x_BTD = x_BTD if fed is None else jnp.asarray(padded(fed[i], mask_BT))
        x_BTD, _ = BLOCKS["none"](x_BTD, layer, None, None, rope, layout, None, cfg)
        hidden.append(unpad(x_BTD, mask_BT))
    hidden.append(unpad(rms_norm(x_BTD, params["norm"], cfg.rms_norm_eps), mask_BT))
    logits_TV = np.asarray(head_logits(params, jnp.asarray(np.concatenate(hidden[-1])))).T
    return Run(hidden, by_prompt(logits_TV, prompts))


def by_prompt(joined, prompts: list[list[int]]) -> list[np.ndarray]:
    """The rows of each prompt's tokens."""
    return np.split(joined, np.cumsum([len(ids) for ids in prompts])[:-1])


def transformers_run(model, prompts: list[list[int]], pad_id: int, fed: list | None = None) -> Run:
    """transformers on one padded batch, with positions that start at each row's first token; fed as for our_run."""
    import torch

    tokens_BT, mask_BT = left_padded(prompts, pad_id)
    mask, states, hooks = torch.from_numpy(mask_BT).long(), [], []

    def feed(layer, inputs, i):
        if i == 0:
            states.append(inputs[0])
        return inputs if fed is None else (torch.from_numpy(padded(fed[i], mask_BT)), *inputs[1:])

    def keep(layer, inputs, output):
        states.append(output[0] if isinstance(output, tuple) else output)

    for i, layer in enumerate(model.model.layers):
        hooks += [layer.register_forward_pre_hook(lambda layer, inputs, i=i: feed(layer, inputs, i)),
                  layer.register_forward_hook(keep)]
    hooks.append(model.model.norm.register_forward_hook(keep))
    with torch.no_grad():
        out = model(input_ids=torch.from_numpy(tokens_BT).long(), attention_mask=mask, use_cache=False,
                    position_ids=(mask.cumsum(-1) - 1).clamp(min=0), logits_to_keep=1 if fed else 0)
    for hook in hooks:
        hook.remove()
    return Run([unpad(h, mask_BT) for h in states], [] if fed else unpad(out.logits, mask_BT))


def transformers_model(source: Source):
    """The transformers model of a checkpoint folder, or with the tensors of a .gguf file."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

    if source.path.is_dir():
        return AutoModelForCausalLM.from_pretrained(source.path, dtype=torch.float32).eval()
    config = {key: value for key, value in vars(source.cfg).items() if key not in ("attention", "rope_theta", "rope_scaling")}
    Model, Config = (Qwen3ForCausalLM, Qwen3Config) if source.cfg.qk_norm else (Qwen2ForCausalLM, Qwen2Config)
    model = Model(Config(**config, rope_parameters={"rope_type": "default", "rope_theta": source.cfg.rope_theta}))
    missing, _ = model.load_state_dict({name: torch.tensor(array) for name, array in source.tensors.items()}, strict=False)
    assert set(missing) <= {"lm_head.weight"}, missing
    return model.eval()


def float64_run(tensor: Callable[[str], np.ndarray], cfg: ModelConfig, prompts: list[list[int]]) -> Run:
    """The model of this file; weights are converted to float64 layer by layer.

    x_TD has the tokens of all prompts one after the other: only attention sees where one ends."""
    wide = lambda name: np.asarray(tensor(name)).astype(np.float64)  # noqa: E731
    embedding = tensor("model.embed_tokens.weight")
    x_TD = np.asarray(embedding[np.concatenate(prompts)]).astype(np.float64)
    hidden = [x_TD]
    for i in range(cfg.num_hidden_layers):
        weights = {key: wide(f"model.layers.{i}.{key}") for key in layer_tensors(cfg)}
        hidden.append(float64_layer(hidden[-1], weights, cfg, prompts))
    hidden.append(float64_norm(hidden[-1], wide("model.norm.weight"), cfg))
    head = embedding if cfg.tie_word_embeddings else tensor("lm_head.weight")
    logits_TV = np.empty((len(x_TD), len(head)))
    for at in range(0, len(head), VOCAB_CHUNK):
        logits_TV[:, at : at + VOCAB_CHUNK] = hidden[-1] @ np.asarray(head[at : at + VOCAB_CHUNK]).astype(np.float64).T
    return Run([by_prompt(states, prompts) for states in hidden], by_prompt(logits_TV, prompts))


def layer_tensors(cfg) -> list[str]:
    """Names of a layer's tensors in the checkpoint."""
    names = ["input_layernorm.weight", "post_attention_layernorm.weight", *(f"self_attn.{p}_proj.weight" for p in "qkvo"),
             "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"]
    names += [f"self_attn.{p}_proj.bias" for p in "qkv"] if cfg.attention_bias else []
    return names + ([f"self_attn.{p}_norm.weight" for p in "qk"] if cfg.qk_norm else [])


def float64_norm(x_TD, weight_D, cfg):
    """Root-mean-square norm."""
    return x_TD / np.sqrt(np.mean(x_TD**2, -1, keepdims=True) + cfg.rms_norm_eps) * weight_D


def float64_frequencies(cfg):
    """theta^(-2i/C) for channel pair i; Llama 3's scaling stretches long wavelengths, and medium ones in part."""
    half, scaling = cfg.head_dim // 2, cfg.rope_scaling
    frequency_c = cfg.rope_theta ** (-np.arange(half) / half)
    for i in range(half if scaling else 0):
        wavelength = 2 * np.pi / frequency_c[i]
        longest, shortest = (scaling.original_max_position_embeddings / f for f in (scaling.low_freq_factor,
                                                                                  scaling.high_freq_factor))
        if wavelength > longest:
            frequency_c[i] /= scaling.factor
        elif wavelength > shortest:
            share = (1 / wavelength - 1 / longest) / (1 / shortest - 1 / longest)
            frequency_c[i] *= share + (1 - share) / scaling.factor
    return frequency_c


def float64_rotated(x_TC, cfg):
    """Channel pairs (i, i + C/2) as complex numbers, rotated by position * frequency."""
    half = cfg.head_dim // 2
    angle_Tc = np.arange(len(x_TC))[:, None] * float64_frequencies(cfg)
    rotated_Tc = (x_TC[:, :half] + 1j * x_TC[:, half:]) * np.exp(1j * angle_Tc)
    return np.concatenate([rotated_Tc.real, rotated_Tc.imag], -1)


def float64_attention(h_TD, weights, cfg, prompts):
    """Attention, before the output projection."""
    q, k, v = (h_TD @ weights[f"self_attn.{p}_proj.weight"].T + weights.get(f"self_attn.{p}_proj.bias", 0) for p in "qkv")
    if cfg.qk_norm:
        q, k = (float64_norm(x.reshape(len(x), -1, cfg.head_dim), weights[f"self_attn.{p}_norm.weight"], cfg).reshape(x.shape)
                for p, x in (("q", q), ("k", k)))
    return np.concatenate([float64_mix(*part, cfg) for part in zip(*(by_prompt(x, prompts) for x in (q, k, v)), strict=True)])


def float64_mix(q, k, v, cfg):
    """One prompt's attention, head by head."""
    C, G = cfg.head_dim, cfg.num_attention_heads // cfg.num_key_value_heads
    future_TT = np.triu(np.ones((len(q), len(q)), bool), 1)
    heads = []
    for head in range(cfg.num_attention_heads):
        own, shared = slice(head * C, head * C + C), slice(head // G * C, head // G * C + C)
        score_TT = float64_rotated(q[:, own], cfg) @ float64_rotated(k[:, shared], cfg).T / np.sqrt(C)
        score_TT[future_TT] = -np.inf
        weight_TT = np.exp(score_TT - score_TT.max(-1, keepdims=True))
        heads.append(weight_TT / weight_TT.sum(-1, keepdims=True) @ v[:, shared])
    return np.concatenate(heads, -1)


def float64_layer(x_TD, weights, cfg, prompts):
    """One transformer layer; weights as in the checkpoint, (out, in)."""
    h_TD = float64_norm(x_TD, weights["input_layernorm.weight"], cfg)
    x_TD = x_TD + float64_attention(h_TD, weights, cfg, prompts) @ weights["self_attn.o_proj.weight"].T
    h_TD = float64_norm(x_TD, weights["post_attention_layernorm.weight"], cfg)
    gate = h_TD @ weights["mlp.gate_proj.weight"].T
    return x_TD + (gate / (1 + np.exp(-gate)) * (h_TD @ weights["mlp.up_proj.weight"].T)) @ weights["mlp.down_proj.weight"].T


# ---- the comparison --------------------------------------------------------------------------------------------------


class Report(NamedTuple):
    """What the tables show, and a sentence for each limit that is exceeded."""

    lengths: list[int]  # tokens of each prompt
    logits: dict[str, list[float | None]]  # pair of models -> max |difference| by prompt, None where it did not run
    hidden: dict[str, list[float]]  # pair of models -> max |difference| over max |value|, by layer
    layers: dict[str, list[float]]  # model -> the error of each layer by itself, in eps
    half_difference: float  # float16 against float64
    exceeded: list[str]


PAIRS = ("ours - transformers", "ours - float64", "transformers - float64")


def max_difference(one: np.ndarray, other: np.ndarray) -> float:
    """max |difference|; inf if either has values that are not finite."""
    difference = np.abs(one - other)
    return float(difference.max()) if np.isfinite(difference).all() else float("inf")


def of_prompts(run: Run, numbers) -> Run:
    """The results for some of the prompts."""
    return Run([[layer[i] for i in numbers] for layer in run.hidden], [run.logits[i] for i in numbers])


def batch_and_single(run: Callable[[list], Run], prompts, alone=None) -> dict[str, Run]:
    """A model's results on the padded batch and on prompts by themselves, all of them or those of these numbers."""
    single = [run([prompts[i]]) for i in (range(len(prompts)) if alone is None else alone)]
    joined = Run([[states[0] for states in layer] for layer in zip(*(s.hidden for s in single), strict=True)],
                 [s.logits[0] for s in single])
    return {"batch": run(prompts), "single": joined}


def layer_errors(fed: Run, truth: Run) -> list[float]:
    """The error of each layer that was fed with the state of `truth` before it, as the docstring of this file defines it."""
    errors = []
    states = [np.concatenate(layer) for layer in truth.hidden[:-1]]
    for before_TD, after_TD, found in zip(states[:-1], states[1:], fed.hidden[1:-1], strict=True):
        added_TD = after_TD - before_TD
        error_TD = np.concatenate(found) - before_TD.astype(np.float32) - added_TD
        size_TD = np.abs(before_TD) + np.abs(after_TD) + np.sqrt(np.mean(added_TD**2, -1, keepdims=True))
        errors.append(float(np.sqrt(np.mean((error_TD / size_TD) ** 2, 0)).max() / EPS))
    return errors


def changed_parameters(params, source: Source) -> list[str]:
    """Names of the fp32 parameters that are not those of the file."""
    is_spec = lambda leaf: isinstance(leaf, Spec)  # noqa: E731
    specs = jax.tree.leaves(param_specs(source.cfg), is_leaf=is_spec)

    def same(spec, leaf):
        stored = np.asarray(source.tensors[spec.name])
        return np.array_equal(np.asarray(leaf), (stored.T if spec.transposed else stored).astype(np.float32))

    return [spec.name for spec, leaf in zip(specs, jax.tree.leaves(params), strict=True) if not same(spec, leaf)]


def compare(source: Source) -> Report:
    """Run all models, one at a time in memory, and check the limits."""
    prompts, pad_id = prompts_of(source), source.chat.pad_id
    few = [prompts[i] for i in ALONE]
    truth = float64_run(source.tensors.__getitem__, source.cfg, prompts)

    def both(run):
        return batch_and_single(run, prompts, ALONE), layer_errors(run(prompts, fed=truth.hidden), truth)

    theirs, their_layers = both(partial(transformers_run, transformers_model(source), pad_id=pad_id))
    params = load(source, jnp.float32).params
    ours, our_layers = both(partial(our_run, params, source.cfg, pad_id=pad_id))
    changed = changed_parameters(params, source)
    del params
    half = our_run(load(source, jnp.float16).params, source.cfg, few, pad_id)

    true_few = of_prompts(truth, ALONE)
    runs = {"ours": ours, "transformers": theirs, "float64": {"batch": truth, "single": true_few}}
    logits, hidden = {}, {}
    for pair in PAIRS:
        one, other = pair.split(" - ")
        for way, numbers, true in (("batch", range(len(prompts)), truth), ("single", ALONE, true_few)):
            a, b, key = runs[one][way], runs[other][way], f"{pair}, {way}"
            found = dict(zip(numbers, map(max_difference, a.logits, b.logits), strict=True))
            logits[key] = [found.get(i) for i in range(len(prompts))]
            hidden[key] = [max(map(max_difference, x, y)) / max(np.abs(t).max() for t in reference)
                           for x, y, reference in zip(a.hidden, b.hidden, true.hidden, strict=True)]
    layers = {"ours": our_layers, "transformers": their_layers}
    half_difference = max(map(max_difference, half.logits, true_few.logits))
    largest = max(np.abs(x).max() for x in truth.logits)
    exceeded = exceeded_limits(logits, half, largest) + exceeded_layers(layers)
    exceeded += [f"our parameters are not the file's: {', '.join(changed[:5])}"] if changed else []
    return Report([len(ids) for ids in prompts], logits, hidden, layers, half_difference, exceeded)


def worst(values: list[float | None]) -> float:
    """The largest of those that there are."""
    return max(value for value in values if value is not None)


def logit_limits(logits: dict[str, list[float | None]], largest_logit: float) -> dict[str, tuple[float, float]]:
    """Pair of models -> (the worst logit difference, its limit); transformers is the measure and has none."""
    found = {pair: max(worst(logits[f"{pair}, {way}"]) for way in ("batch", "single")) for pair in PAIRS}
    theirs = found["transformers - float64"]
    ours = min(MAX_ERROR, max(MAX_ERROR_RATIO * theirs, ROUNDING * largest_logit))
    limits = dict(zip(PAIRS, (ours + theirs, ours, float("inf")), strict=True))
    return {pair: (found[pair], limits[pair]) for pair in PAIRS}


def exceeded_limits(logits: dict[str, list[float | None]], half: Run, largest_logit: float) -> list[str]:
    """A sentence for each limit of the logits and of float16 that is exceeded."""
    limits = logit_limits(logits, largest_logit)
    exceeded = [f"max |logit difference| {pair} is {found:.2e}, the limit {limit:.2e}"
                for pair, (found, limit) in limits.items() if not found <= limit or not np.isfinite(found)]
    if not all(np.isfinite(x).all() for x in [*half.logits, *(x for layer in half.hidden for x in layer)]):
        exceeded.append("the float16 run has values that are not finite")
    return exceeded


def exceeded_layers(layers: dict[str, list[float]]) -> list[str]:
    """A sentence for each layer whose own error is beyond its limit."""
    exceeded = []
    for i, (error, theirs) in enumerate(zip(layers["ours"], layers["transformers"], strict=True)):
        limit = max(MAX_LAYER_ERROR, theirs)
        if not error <= limit:
            exceeded.append(f"layer {i + 1} by itself is {error:.1f} eps from float64, the limit {limit:.1f} "
                            f"(transformers' is {theirs:.1f})")
    return exceeded


def show(report: Report) -> None:
    """Print the two tables and the float16 figure."""
    columns = [f"{pair}, {way}" for pair in PAIRS for way in ("batch", "single")]
    header = "".join(f"{name:>12}" for name in ("our-tf", "", "our-f64", "", "tf-f64", "")) + "\n" + " " * 16 \
        + "".join(f"{column.split(', ')[1]:>12}" for column in columns)
    print(f"max |logit difference|\n{'':16}{header}")
    for i, length in enumerate(report.lengths):
        values = [report.logits[column][i] for column in columns]
        print(f"{length:>9} tokens" + "".join(f"{'-' if value is None else f'{value:.2e}':>12}" for value in values))
    print(f"{'worst':>16}" + "".join(f"{worst(report.logits[column]):12.2e}" for column in columns))
    print(f"\nmax |hidden difference| / max |hidden|, and the error of each layer by itself in eps\n{'':16}"
          + header.replace("\n", f"{'ours':>12}{'tf':>12}\n"))
    for i in range(len(report.hidden[columns[0]])):
        label = "embedding" if i == 0 else "final norm" if i == len(report.hidden[columns[0]]) - 1 else f"layer {i}"
        own = "".join(f"{errors[i - 1]:12.2f}" for errors in report.layers.values()) if label.startswith("layer") else ""
        print(f"{label:>16}" + "".join(f"{report.hidden[column][i]:12.2e}" for column in columns) + own)
    print(f"\nfloat16 - float64: max |logit difference| {report.half_difference:.2e}")


def main(arguments: list[str]) -> int:
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        print(f"{error}: it needs torch and transformers: pip install -r requirements-oracles.txt", file=sys.stderr)
        return 2
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        settings = config.load(os.environ | config.named_model(arguments)).settings
        report = compare(resolve(settings.model.model))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    show(report)
    print("\n".join(f"FAILED: {sentence}" for sentence in report.exceeded) or "all limits hold")
    return 1 if report.exceeded else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
