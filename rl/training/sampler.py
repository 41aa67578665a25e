"""Sample completions: prompts prefilled once, all their samples decoded together on the device, finished rows dropped.

Decoding runs in blocks of steps.  Between blocks the host looks which rows have stopped and, when few enough are left,
moves the live ones into a smaller batch from a short fixed list of sizes, so dead rows cost nothing and the number of
compiled programs stays small.  A row's randomness depends on (seed, step, task, sample) alone: neither its neighbours nor
the batch's shape can change it.  Training uses exactly the ids sampled here, never re-encoded text."""

import zlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attention import NEVER, Decode
from model_config import ModelConfig
from qwen2_jax import head_logits, prefill, run_layers
from rl.errors import InputError
from rl.settings.declared import Settings

PREFILL_BUCKET = 16  # prompts are computed at a multiple of this many slots, so little of that is padding,
PROMPT_BUCKET = 64  # and kept at a multiple of this many, so the programs that decode are few
VOCAB_TILE = 128  # a sample is found first by tile, then within it: one pass over the vocabulary instead of a long scan


class SamplingParams(NamedTuple):
    """How to sample; hashable, so that it can be a static argument."""

    temperature: float = 1.0  # 0 is greedy
    top_k: int = 0  # 0 is off
    top_p: float = 1.0
    max_new_tokens: int = 192
    block: int = 16  # decoding steps between two looks at which rows have stopped


class Rollouts(NamedTuple):
    """P prompts with N samples each, row b = prompt * N + sample; numpy, on the host."""

    prompt_ids: list[list[int]]
    prompt_B: np.ndarray  # which prompt a row answers
    ids_BT: np.ndarray  # sampled ids, the stop id included; zeros after
    logprobs_BT: np.ndarray  # log-probability of each sampled id at the sampling temperature, before any top-k or top-p
    entropy_BT: np.ndarray  # entropy in nats of the distribution each id was drawn from, before any top-k or top-p
    length_B: np.ndarray  # number of sampled ids: up to and including the first stop id
    finish_B: list[str]  # "stop", or "length" where max_new_tokens ended it
    hidden_B: list[np.ndarray] | None = None  # each row's hidden_TD, where somebody asked (rl/training/update.py)


class State(NamedTuple):
    """What a block of decoding takes and gives back: the live rows."""

    own_kv: list  # each layer's (k_BKCT, v_BKTC) of the rows' own tokens
    token_B: jax.Array  # the token to feed next
    done_B: jax.Array
    place_B: jax.Array  # prompt * N + sample
    prompt_len_B: jax.Array
    key_B: jax.Array


def step_key(seed: int, step: int):
    """The key of one training step (or of a probe: a step of its own)."""
    return jax.random.fold_in(jax.random.key(seed), step)


def row_keys(key, names: list[str], samples: int):
    """One key a row, from the step's key, the task's name and the sample's number alone."""
    task_P = jnp.asarray([zlib.crc32(name.encode()) for name in names], jnp.uint32)
    keys_PN = jax.vmap(lambda task: jax.vmap(lambda n: jax.random.fold_in(jax.random.fold_in(key, task), n))(
        jnp.arange(samples)))(task_P)
    return keys_PN.reshape(-1)


def generate(model, adapter, prompts: list[list[int]], samples: int, sampling: SamplingParams, key_B, slots: int = 0,
             ended: Callable[[np.ndarray, Rollouts], None] = lambda rows, out: None) -> Rollouts:
    """`samples` completions of each prompt; key_B from `row_keys`.  Ends when every row has stopped.

    Fewer prompts than `slots` run in the programs that were compiled for so many.  `ended` is told, between blocks, which
    rows of the result are whole, each once."""
    cfg, chat = model.cfg, model.chat
    check_room(prompts, sampling.max_new_tokens, cfg)
    # The last prompt token is fed as every row's first step, so that prefill needs no logits and one program does it all.
    placed = prompts + prompts[-1:] * (slots - len(prompts))
    tokens_PS, mask_PS = left_pad([ids[:-1] for ids in placed], PREFILL_BUCKET)
    prompt_kv = prefill(model.params, adapter, tokens_PS, mask_PS, prompt_slots(mask_PS.shape[1]), cfg)
    mask_PS = np.pad(mask_PS, ((0, 0), (0, prompt_slots(mask_PS.shape[1]) - mask_PS.shape[1])))
    state = first_state(cfg, placed, samples, sampling, key_B, prompt_kv[0][0].dtype)

    B, rows = len(prompts) * samples, np.arange(len(placed) * samples)  # which row of the result each live row is
    out = Rollouts(prompts, np.repeat(np.arange(len(prompts)), samples),
                   *(np.zeros((B, sampling.max_new_tokens), dtype) for dtype in (np.int32, np.float32, np.float32)),
                   np.zeros(B, np.int32), ["length"] * B)
    sizes = row_sizes(len(rows))
    if B < len(rows):
        state, rows = compact(state, rows, rows >= B, sizes)
    stops = tuple(chat.stop_ids)
    for start in range(0, sampling.max_new_tokens, sampling.block):
        until = min(start + sampling.block, sampling.max_new_tokens)
        was_done = np.asarray(state.done_B)
        state, block = decode_block(model.params, adapter, prompt_kv, mask_PS, state, start, until,
                                    samples, cfg, sampling, stops, chat.vocab_used)
        record(out, rows, was_done, block, start, until, stops)
        done = np.asarray(state.done_B)
        ended(rows[~was_done & done if until < sampling.max_new_tokens else ~was_done], out)
        if done.all():
            break
        state, rows = compact(state, rows, done, sizes)
    return out


def check_room(prompts: list[list[int]], max_new_tokens: int, cfg: ModelConfig) -> None:
    """InputError where the longest prompt and a completion have more positions than the model."""
    if (longest := max(map(len, prompts), default=0) + max_new_tokens) > cfg.max_position_embeddings:
        raise InputError(f"prompt and completion need {longest} positions, the model has {cfg.max_position_embeddings}: "
                         f"lower MAX_NEW_TOKENS={max_new_tokens} or shorten the prompt")


def left_pad(sequences: list[list[int]], bucket: int):
    """(tokens, mask), left-padded to the bucket above the longest: every row then decodes at the same slot."""
    width = max(1, -(-max(map(len, sequences)) // bucket)) * bucket
    tokens = np.zeros((len(sequences), width), np.int32)
    mask = np.zeros((len(sequences), width), bool)
    for row, ids in enumerate(sequences):
        tokens[row, width - len(ids):] = ids
        mask[row, width - len(ids):] = True
    return tokens, mask


def prompt_slots(width: int) -> int:
    """Slots of the prompts' cache for prompts of that width."""
    return -(-width // PROMPT_BUCKET) * PROMPT_BUCKET


def first_state(cfg: ModelConfig, prompts, samples, sampling: SamplingParams, key_B, dtype) -> State:
    """All rows that have a key live, about to read their prompt's last token, with empty caches of their own."""
    prompt_B = np.repeat(np.arange(len(prompts), dtype=np.int32), samples)
    live = len(key_B)
    if live < len(prompt_B):
        key_B = key_B[np.minimum(np.arange(len(prompt_B)), live - 1)]
    own_kv = [tuple(jnp.zeros(shape, dtype) for shape in own_shapes(cfg, len(prompt_B), sampling))
              for _ in range(cfg.num_hidden_layers)]
    rows = jnp.arange(len(prompt_B))
    return State(own_kv, jnp.asarray([prompts[p][-1] for p in prompt_B], jnp.int32), rows >= live, rows,
                 jnp.asarray([len(prompts[p]) for p in prompt_B], jnp.int32), key_B)


def own_shapes(cfg: ModelConfig, rows: int, sampling: SamplingParams):
    """Shapes of one layer's k_BKCT and v_BKTC."""
    slots = -(-sampling.max_new_tokens // sampling.block) * sampling.block
    return (rows, cfg.num_key_value_heads, cfg.head_dim, slots), (rows, cfg.num_key_value_heads, slots, cfg.head_dim)


def row_sizes(rows: int) -> list[int]:
    """The batch sizes in use, largest first: the full one, then a power of two and its three quarters by turns, down to 4."""
    ladder = [n for power in range(10, 1, -1) for n in (2**power, 3 * 2 ** (power - 2))]
    return [rows, *(n for n in ladder if 4 <= n < rows)]


def compact(state: State, rows, done, sizes):
    """Drop finished rows when the live ones fit a smaller size; a few dead ones may stay to fill it."""
    size = min(n for n in sizes if n >= (~done).sum())
    if size >= len(rows):
        return state, rows
    keep = np.sort(np.argsort(done, kind="stable")[:size])  # live rows first, order kept
    return take_rows(state, keep), rows[keep]


@jax.jit
def take_rows(state: State, keep) -> State:
    """The state of the rows `keep`."""
    return jax.tree.map(lambda leaf: leaf[keep], state)


def record(out: Rollouts, rows, was_done, block, start, until, stops):
    """Write a block's tokens into the result, for the rows that were live when it began."""
    ids, logprobs, entropy = (np.asarray(part)[:, : until - start] for part in block)
    for i, row in enumerate(rows):
        if was_done[i]:
            continue
        hit = np.flatnonzero(np.isin(ids[i], stops))
        n = hit[0] + 1 if len(hit) else until - start
        for target, values in ((out.ids_BT, ids), (out.logprobs_BT, logprobs), (out.entropy_BT, entropy)):
            target[row, start : start + n] = values[i, :n]
        out.length_B[row] = start + n
        out.finish_B[row] = "stop" if len(hit) else "length"


# ---- on the device ---------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=("samples", "cfg", "sampling", "stops", "vocab_used"), donate_argnames="state")
def decode_block(params, adapter, prompt_kv, mask_PS, state: State, start, until, samples, cfg, sampling, stops, vocab_used):
    """Feed, sample, and feed again from slot `start` until slot `until` or until every row has stopped.

    Returns the state and (ids, logprobs, entropy), each (B, block)."""
    B, P = state.token_B.shape[0], mask_PS.shape[0]
    zeros = jnp.zeros((B, sampling.block), jnp.float32)
    row_PN = jnp.zeros(P * samples, jnp.int32).at[state.place_B].set(jnp.arange(B)).reshape(P, samples)
    vocab_ok_V1 = (jnp.arange(cfg.vocab_size) < vocab_used)[:, None]  # the embedding's unused rows are never sampled
    stop_ids = jnp.asarray(stops)

    def live(carry):
        t, state, _ = carry
        return (t < until) & ~state.done_B.all()

    def step(carry):
        t, state, (ids, logprobs, entropies) = carry
        layout = Decode(row_PN, state.place_B, mask_PS, t)
        pasts = [(*prompt, *own) for prompt, own in zip(prompt_kv, state.own_kv, strict=True)]
        position_B1 = (state.prompt_len_B - 1 + t)[:, None]
        hidden_B1D, own_kv = run_layers(params, adapter, state.token_B[:, None], position_B1, layout, pasts, cfg)
        logits_VB = jnp.where(vocab_ok_V1, head_logits(params, hidden_B1D[:, 0]), NEVER)
        token_B, logprob_B, entropy_B = sample_tokens(logits_VB, jax.vmap(jax.random.fold_in, (0, None))(state.key_B, t), sampling)
        column = t - start
        written = tuple(array.at[:, column].set(value) for array, value in
                        ((ids, token_B), (logprobs, logprob_B), (entropies, entropy_B)))
        done_B = state.done_B | jnp.isin(token_B, stop_ids)
        return t + 1, state._replace(own_kv=own_kv, token_B=token_B, done_B=done_B), written

    _, state, block = jax.lax.while_loop(live, step, (jnp.int32(start), state, (zeros.astype(jnp.int32), zeros, zeros)))
    return state, block


def sample_tokens(logits_VB, key_B, sampling: SamplingParams):
    """(token_B, its log-probability, entropy of the distribution); all at the temperature, before top-k and top-p.

    Greedy (temperature 0) reports the values of temperature 1.  Sums over the vocabulary go by tiles: quicker, and fp32 adds
    up a thousand terms more exactly than a hundred thousand."""
    scaled_VB = logits_VB / (sampling.temperature or 1.0)
    below_VB = scaled_VB - scaled_VB.max(0)
    mass_VB = jnp.exp(below_VB)
    total_B = by_tile(mass_VB).sum(1).sum(0)
    entropy_B = jnp.log(total_B) - by_tile(mass_VB * jnp.maximum(below_VB, -1e4)).sum(1).sum(0) / total_B
    if sampling.temperature == 0:
        token_B = jnp.argmax(logits_VB, 0)
    else:
        if sampling.top_k or sampling.top_p < 1:
            mass_VB = keep_top_p(keep_top_k(mass_VB.T, sampling.top_k), sampling.top_p).T
        token_B = inverse_cdf(mass_VB, jax.vmap(jax.random.uniform)(key_B))
    logprob_B = jnp.take_along_axis(below_VB, token_B[None], 0)[0] - jnp.log(total_B)
    return token_B.astype(jnp.int32), logprob_B, entropy_B


def by_tile(values_VB):
    """The vocabulary cut into tiles: (N, VOCAB_TILE, B), zeros at the end."""
    V, B = values_VB.shape
    return jnp.pad(values_VB, ((0, -V % VOCAB_TILE), (0, 0))).reshape(-1, VOCAB_TILE, B)


def keep_top_k(mass_BV, k: int):
    """Zero all but the k largest (ties at the edge stay); k = 0 keeps all."""
    if not k:
        return mass_BV
    return jnp.where(mass_BV < jax.lax.top_k(mass_BV, min(k, mass_BV.shape[-1]))[0][:, -1:], 0.0, mass_BV)


def keep_top_p(mass_BV, p: float):
    """Zero all outside the smallest set of most likely ids whose share reaches p; the most likely id always stays."""
    if p >= 1:
        return mass_BV
    sorted_BV = -jnp.sort(-mass_BV, -1)
    before_BV = jnp.cumsum(sorted_BV, -1) - sorted_BV
    inside_BV = before_BV < p * mass_BV.sum(-1, keepdims=True)
    smallest_B1 = jnp.where(inside_BV, sorted_BV, jnp.inf).min(-1, keepdims=True)
    return jnp.where(mass_BV < smallest_B1, 0.0, mass_BV)


def inverse_cdf(mass_VB, u_B):
    """Inverse-CDF sample of unnormalised probabilities: the id in whose share of the total mass u falls.

    One uniform a row, where Gumbel noise would need one for every word of the vocabulary."""
    tiles_NMB = by_tile(mass_VB)
    tile_mass_NB = tiles_NMB.sum(1)
    tile_B, target_B = _find(tile_mass_NB, u_B * tile_mass_NB.sum(0))
    in_tile_B, _ = _find(jnp.take_along_axis(tiles_NMB, tile_B[None, None], 0)[0], target_B)
    return tile_B * VOCAB_TILE + in_tile_B


def _find(mass_MB, target_B):
    """(index, rest): the first entry whose running sum exceeds the target, and the target less what came before it.

    Rounding may put the target at or past the end; the last entry with any mass is then meant, never one without."""
    running_MB = jnp.cumsum(mass_MB, 0)
    last_B = mass_MB.shape[0] - 1 - jnp.argmax(mass_MB[::-1] > 0, 0)
    index_B = jnp.minimum((running_MB <= target_B).sum(0), last_B)
    before_B = jnp.take_along_axis(running_MB - mass_MB, index_B[None], 0)[0]
    return index_B, target_B - before_B



def sampling_of(settings: Settings) -> SamplingParams:
    """The sampler's part of the settings."""
    g = settings.generation
    return SamplingParams(g.temperature, g.top_k, g.top_p, g.max_new_tokens, g.decode_block)
