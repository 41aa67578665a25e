"""Check the forward pass against transformers and against float64, layer by layer.

    python validate_forward.py 0.5B          # the default; or a hub id, a folder, a .gguf file, tiny

Ten prompts of 1 to about 150 tokens run in fp32 on the CPU, left-padded in one batch and one by one: through qwen2_jax.py,
through transformers, and through the NumPy model of this file, all in float64; transformers computes norms, softmax and rotary
angles in fp32 whatever its dtype.  A last run has float16 weights and must stay finite.  Prints two tables.  Exit status 1: a
limit below is exceeded; 2: the model or torch is not available.  Needs requirements-dev.txt and, for 0.5B, 5 to 10 GB of memory
and a minute or two.  Not covered: the cache, adapters, the GPU."""

import os
import sys
from collections.abc import Callable
from typing import NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before jax is imported; a GPU rounds fp32 products by default

import jax.numpy as jnp
import numpy as np

from attention import Causal
from model_config import ModelConfig
from qwen2_jax import BLOCKS, forward, head_logits, padded_positions, rms_norm, rope_angles
from rl.models.pretrained import ModelError, Source, load, resolve

MAX_LOGIT_DIFFERENCE = 7.8e-5  # ours against transformers
MAX_ERROR_RATIO = 1.5  # our error over transformers', both against float64
ROUNDING = 16 * float(np.finfo(np.float32).eps)  # times the largest logit: smaller errors, and their ratio, are chance
VOCAB_CHUNK = 16384  # rows of the head in float64 at a time


class Run(NamedTuple):
    """One model's results for a list of prompts, without padding."""

    hidden: list[list[np.ndarray]]  # hidden_TD by layer and prompt; first the embedding, last after the final norm
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


def our_run(params, cfg: ModelConfig, prompts: list[list[int]], pad_id: int) -> Run:
    """qwen2_jax.py on one padded batch: hidden states layer by layer, logits from the jitted forward pass."""
    tokens_BT, mask_BT = left_padded(prompts, pad_id)
    x_BTD = params["embed_tokens"][tokens_BT]
    rope, layout = rope_angles(padded_positions(jnp.asarray(mask_BT)), cfg), Causal(jnp.asarray(mask_BT))
    hidden = [unpad(x_BTD, mask_BT)]
    for layer in params["layers"]:
        x_BTD, _ = BLOCKS["none"](x_BTD, layer, None, None, rope, layout, None, cfg)
        hidden.append(unpad(x_BTD, mask_BT))
    final_BTD = rms_norm(x_BTD, params["norm"], cfg.rms_norm_eps)
    hidden[-1] = unpad(final_BTD, mask_BT)
    if len(prompts) == 1:  # compiling `forward` for every length would take longer than the rest
        return Run(hidden, [np.asarray(head_logits(params, final_BTD[0]).T)])
    return Run(hidden, unpad(forward(params, None, tokens_BT, mask_BT, cfg), mask_BT))


def transformers_run(model, prompts: list[list[int]], pad_id: int) -> Run:
    """transformers on one padded batch, with positions that start at each row's first token."""
    import torch

    tokens_BT, mask_BT = left_padded(prompts, pad_id)
    mask = torch.from_numpy(mask_BT).long()
    with torch.no_grad():
        out = model(input_ids=torch.from_numpy(tokens_BT).long(), attention_mask=mask, use_cache=False,
                    position_ids=(mask.cumsum(-1) - 1).clamp(min=0), output_hidden_states=True)
    return Run([unpad(h, mask_BT) for h in out.hidden_states], unpad(out.logits, mask_BT))


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
    """The model of this file, each prompt by itself; weights are converted to float64 layer by layer."""
    wide = lambda name: np.asarray(tensor(name)).astype(np.float64)  # noqa: E731
    embedding = tensor("model.embed_tokens.weight")
    states = [np.asarray(embedding[ids]).astype(np.float64) for ids in prompts]
    hidden = [states]
    for i in range(cfg.num_hidden_layers):
        weights = {key: wide(f"model.layers.{i}.{key}") for key in layer_tensors(cfg)}
        states = [float64_layer(x, weights, cfg) for x in states]
        hidden.append(states)
    hidden[-1] = [float64_norm(x, wide("model.norm.weight"), cfg) for x in states]
    head = embedding if cfg.tie_word_embeddings else tensor("lm_head.weight")
    joined = np.concatenate(hidden[-1])
    logits = np.concatenate([joined @ np.asarray(head[at : at + VOCAB_CHUNK]).astype(np.float64).T
                             for at in range(0, len(head), VOCAB_CHUNK)], -1)
    return Run(hidden, np.split(logits, np.cumsum([len(ids) for ids in prompts])[:-1]))


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


def float64_attention(h_TD, weights, cfg):
    """Attention head by head, before the output projection."""
    q, k, v = (h_TD @ weights[f"self_attn.{p}_proj.weight"].T + weights.get(f"self_attn.{p}_proj.bias", 0) for p in "qkv")
    if cfg.qk_norm:
        q, k = (float64_norm(x.reshape(len(x), -1, cfg.head_dim), weights[f"self_attn.{p}_norm.weight"], cfg).reshape(x.shape)
                for p, x in (("q", q), ("k", k)))
    C, G = cfg.head_dim, cfg.num_attention_heads // cfg.num_key_value_heads
    future_TT = np.triu(np.ones((len(h_TD), len(h_TD)), bool), 1)
    heads = []
    for head in range(cfg.num_attention_heads):
        own, shared = slice(head * C, head * C + C), slice(head // G * C, head // G * C + C)
        score_TT = float64_rotated(q[:, own], cfg) @ float64_rotated(k[:, shared], cfg).T / np.sqrt(C)
        score_TT[future_TT] = -np.inf
        weight_TT = np.exp(score_TT - score_TT.max(-1, keepdims=True))
        heads.append(weight_TT / weight_TT.sum(-1, keepdims=True) @ v[:, shared])
    return np.concatenate(heads, -1)


def float64_layer(x_TD, weights, cfg):
    """One transformer layer; weights as in the checkpoint, (out, in)."""
    h_TD = float64_norm(x_TD, weights["input_layernorm.weight"], cfg)
    x_TD = x_TD + float64_attention(h_TD, weights, cfg) @ weights["self_attn.o_proj.weight"].T
    h_TD = float64_norm(x_TD, weights["post_attention_layernorm.weight"], cfg)
    gate = h_TD @ weights["mlp.gate_proj.weight"].T
    return x_TD + (gate / (1 + np.exp(-gate)) * (h_TD @ weights["mlp.up_proj.weight"].T)) @ weights["mlp.down_proj.weight"].T


# ---- the comparison --------------------------------------------------------------------------------------------------


class Report(NamedTuple):
    """What the tables show, and a sentence for each limit that is exceeded."""

    lengths: list[int]  # tokens of each prompt
    logits: dict[str, list[float]]  # pair of models -> max |difference| by prompt
    hidden: dict[str, list[float]]  # pair of models -> max |difference| over max |value|, by layer
    half_difference: float  # float16 against float64
    exceeded: list[str]


def max_difference(one: np.ndarray, other: np.ndarray) -> float:
    """max |difference|; inf if either has values that are not finite."""
    difference = np.abs(one - other)
    return float(difference.max()) if np.isfinite(difference).all() else float("inf")


def batch_and_single(run: Callable[[list], Run], prompts) -> dict[str, Run]:
    """A model's results on the padded batch and on each prompt by itself."""
    single = [run([ids]) for ids in prompts]
    joined = Run([[states[0] for states in layer] for layer in zip(*(s.hidden for s in single), strict=True)],
                 [s.logits[0] for s in single])
    return {"batch": run(prompts), "single": joined}


def compare(source: Source) -> Report:
    """Run all models, one at a time in memory, and check the limits."""
    prompts, pad_id = prompts_of(source), source.chat.pad_id

    def with_params(dtype, run):
        params = load(source, dtype).params
        return run(lambda some: our_run(params, source.cfg, some, pad_id))

    def with_transformers(run):
        model = transformers_model(source)
        return run(lambda some: transformers_run(model, some, pad_id))

    truth = float64_run(source.tensors.__getitem__, source.cfg, prompts)
    theirs = with_transformers(lambda run: batch_and_single(run, prompts))
    ours = with_params(jnp.float32, lambda run: batch_and_single(run, prompts))
    half = with_params(jnp.float16, lambda run: run(prompts))

    runs = {"ours": ours, "transformers": theirs, "float64": {"batch": truth, "single": truth}}
    logits, hidden = {}, {}
    for one, other in (("ours", "transformers"), ("ours", "float64"), ("transformers", "float64")):
        for way in ("batch", "single"):
            a, b, key = runs[one][way], runs[other][way], f"{one} - {other}, {way}"
            logits[key] = [max_difference(x, y) for x, y in zip(a.logits, b.logits, strict=True)]
            hidden[key] = [max(map(max_difference, x, y)) / max(np.abs(t).max() for t in reference)
                           for x, y, reference in zip(a.hidden, b.hidden, truth.hidden, strict=True)]
    half_difference = max(map(max_difference, half.logits, truth.logits))
    largest = max(np.abs(x).max() for x in truth.logits)
    return Report([len(ids) for ids in prompts], logits, hidden, half_difference, exceeded_limits(logits, half, largest))


def exceeded_limits(logits: dict[str, list[float]], half: Run, largest_logit: float) -> list[str]:
    """A sentence for each limit that is exceeded."""
    worst = lambda pair: max(max(logits[f"{pair}, {way}"]) for way in ("batch", "single"))  # noqa: E731
    difference, error, their_error = map(worst, ("ours - transformers", "ours - float64", "transformers - float64"))
    allowed = max(MAX_ERROR_RATIO * their_error, ROUNDING * largest_logit)
    exceeded = []
    if not difference <= MAX_LOGIT_DIFFERENCE:
        exceeded.append(f"max |logit difference| to transformers is {difference:.2e}, the limit {MAX_LOGIT_DIFFERENCE:.2e}")
    if not error <= allowed:
        exceeded.append(f"our error against float64 is {error:.2e}, the limit {allowed:.2e} (transformers' is {their_error:.2e})")
    if not all(np.isfinite(x).all() for x in [*half.logits, *(x for layer in half.hidden for x in layer)]):
        exceeded.append("the float16 run has values that are not finite")
    return exceeded


def show(report: Report) -> None:
    """Print the two tables and the float16 figure."""
    pairs = [f"{pair}, {way}" for pair in ("ours - transformers", "ours - float64", "transformers - float64")
             for way in ("batch", "single")]
    header = "".join(f"{name:>12}" for name in ("our-tf", "", "our-f64", "", "tf-f64", "")) + "\n" + " " * 16 \
        + "".join(f"{pair.split(', ')[1]:>12}" for pair in pairs)
    print(f"max |logit difference|\n{'':16}{header}")
    for i, length in enumerate(report.lengths):
        print(f"{length:>9} tokens" + "".join(f"{report.logits[pair][i]:12.2e}" for pair in pairs))
    print(f"{'worst':>16}" + "".join(f"{max(report.logits[pair]):12.2e}" for pair in pairs))
    print(f"\nmax |hidden difference| / max |hidden|\n{'':16}{header}")
    for i in range(len(report.hidden[pairs[0]])):
        label = "embedding" if i == 0 else "final norm" if i == len(report.hidden[pairs[0]]) - 1 else f"layer {i}"
        print(f"{label:>16}" + "".join(f"{report.hidden[pair][i]:12.2e}" for pair in pairs))
    print(f"\nfloat16 - float64: max |logit difference| {report.half_difference:.2e}")


def main(arguments: list[str]) -> int:
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 2 if len(arguments) > 1 else 0
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        print(f"{error}: validate_forward.py needs torch and transformers: pip install -r requirements-dev.txt", file=sys.stderr)
        return 2
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        report = compare(resolve(arguments[0] if arguments else "0.5B"))
    except ModelError as error:
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
