"""Sampling: prompts are prefilled once, all their samples are decoded together, finished rows are dropped.

Decoding runs on the device in blocks of steps.  Between blocks the host checks which rows have stopped and moves the live ones
into a smaller batch from a short list of sizes, so that finished rows cost little and few programs are compiled.  A row's
randomness depends on (seed, step, task, sample) only, not on its neighbours or the shape of the batch.  Training uses the ids
sampled here, never re-encoded text."""

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
from rl.errors import InputError, NotFinite
from rl.settings.declared import Settings

PREFILL_BUCKET = 16  # prefill pads prompts to a multiple of this, so that little of its work is padding,
PROMPT_BUCKET = 64  # and their cache to a multiple of this, so that few decoding programs are compiled
VOCAB_TILE = 128  # W ids; the tile of a sample is found first, then the id in it: one pass instead of a scan of the vocabulary


class SamplingParams(NamedTuple):
    """How to sample; hashable, so that it can be a static argument."""

    temperature: float = 1.0  # 0: greedy
    top_k: int = 0  # 0: off
    top_p: float = 1.0  # 1: off
    max_new_tokens: int = 192
    block: int = 16  # decoding steps between two checks for finished rows


class Rollouts(NamedTuple):
    """Samples of P prompts, N each, row p * N + n; NumPy, on the host."""

    prompt_ids: list[list[int]]
    prompt_B: np.ndarray  # each row's prompt
    ids_BT: np.ndarray  # sampled ids with the stop id, then zeros
    logprobs_BT: np.ndarray  # log-probability of each sampled id, at the temperature, before top-k and top-p
    entropy_BT: np.ndarray  # entropy in nats of the same distribution
    length_B: np.ndarray  # sampled ids, with the stop id
    finish_B: list[str]  # "stop", or "length" at max_new_tokens


class DecodeState(NamedTuple):
    """The live rows between two blocks of decoding."""

    own_kv: list  # each layer's (k_BKCT, v_BKTC) of the rows' own tokens
    token_B: jax.Array  # the token to feed next
    done_B: jax.Array
    place_B: jax.Array  # p * N + n
    prompt_len_B: jax.Array
    key_B: jax.Array


def step_key(seed: int, step: int):
    """The random key of a training step; a probe counts as a step."""
    return jax.random.fold_in(jax.random.key(seed), step)


def row_keys(key, names: list[str], samples: int):
    """key_B: a row's key depends on the step's key, the task's name and the number of the sample."""
    task_P = jnp.asarray([zlib.crc32(name.encode()) for name in names], jnp.uint32)
    keys_PN = jax.vmap(lambda task: jax.vmap(lambda n: jax.random.fold_in(jax.random.fold_in(key, task), n))(
        jnp.arange(samples)))(task_P)
    return keys_PN.reshape(-1)


def generate(model, adapter, prompts: list[list[int]], samples: int, sampling: SamplingParams, key_B, min_prompts: int = 0,
             on_finished: Callable[[np.ndarray, Rollouts], None] = lambda rows, out: None) -> Rollouts:
    """`samples` completions of each prompt; key_B from `row_keys`.

    With fewer than `min_prompts` prompts, copies of the last one fill up the batch, so that the programs compiled for that many
    are used again.  Between blocks `on_finished` gets the rows of the result that are finished, each row once."""
    cfg, chat = model.cfg, model.chat
    check_room(prompts, sampling.max_new_tokens, cfg)
    # A row's first step is fed the last token of its prompt, so that prefill needs no logits.
    filled = prompts + prompts[-1:] * (min_prompts - len(prompts))
    tokens_PS, mask_PS = left_pad([ids[:-1] for ids in filled], PREFILL_BUCKET)
    prompt_kv = prefill(model.params, adapter, tokens_PS, mask_PS, prompt_slots(mask_PS.shape[1]), cfg)
    mask_PS = np.pad(mask_PS, ((0, 0), (0, prompt_slots(mask_PS.shape[1]) - mask_PS.shape[1])))
    state = first_state(cfg, filled, samples, sampling, key_B, prompt_kv[0][0].dtype)

    out = empty_rollouts(prompts, samples, sampling.max_new_tokens)
    B, rows = len(out.prompt_B), np.arange(len(filled) * samples)  # each live row's row of the result
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
        on_finished(rows[~was_done & done if until < sampling.max_new_tokens else ~was_done], out)
        if done.all():
            break
        state, rows = compact(state, rows, done, sizes)
    return out


def empty_rollouts(prompts: list[list[int]], samples: int, max_new_tokens: int) -> Rollouts:
    """Rollouts of these prompts before the first token."""
    B = len(prompts) * samples
    return Rollouts(prompt_ids=prompts, prompt_B=np.repeat(np.arange(len(prompts)), samples),
                    ids_BT=np.zeros((B, max_new_tokens), np.int32), logprobs_BT=np.zeros((B, max_new_tokens), np.float32),
                    entropy_BT=np.zeros((B, max_new_tokens), np.float32), length_B=np.zeros(B, np.int32),
                    finish_B=["length"] * B)


def check_room(prompts: list[list[int]], max_new_tokens: int, cfg: ModelConfig) -> None:
    """InputError if the longest prompt and a completion exceed the model's positions."""
    if (longest := max(map(len, prompts), default=0) + max_new_tokens) > cfg.max_position_embeddings:
        raise InputError(f"prompt and completion need {longest} positions, the model has {cfg.max_position_embeddings}: "
                         f"lower MAX_NEW_TOKENS={max_new_tokens} or shorten the prompt")


def left_pad(sequences: list[list[int]], bucket: int):
    """(tokens, mask), left-padded to a multiple of `bucket`, so that all rows decode their first token at the same place."""
    width = max(1, -(-max(map(len, sequences)) // bucket)) * bucket
    tokens = np.zeros((len(sequences), width), np.int32)
    mask = np.zeros((len(sequences), width), bool)
    for row, ids in enumerate(sequences):
        tokens[row, width - len(ids):] = ids
        mask[row, width - len(ids):] = True
    return tokens, mask


def prompt_slots(width: int) -> int:
    """S of the prompts' cache, for prompts padded to that width."""
    return -(-width // PROMPT_BUCKET) * PROMPT_BUCKET


def first_state(cfg: ModelConfig, prompts, samples, sampling: SamplingParams, key_B, dtype) -> DecodeState:
    """Rows about to be fed the last token of their prompt, with empty caches; those without a key are done."""
    prompt_B = np.repeat(np.arange(len(prompts), dtype=np.int32), samples)
    live = len(key_B)
    if live < len(prompt_B):
        key_B = key_B[np.minimum(np.arange(len(prompt_B)), live - 1)]
    own_kv = [tuple(jnp.zeros(shape, dtype) for shape in own_shapes(cfg, len(prompt_B), sampling))
              for _ in range(cfg.num_hidden_layers)]
    rows = jnp.arange(len(prompt_B))
    return DecodeState(own_kv=own_kv, token_B=jnp.asarray([prompts[p][-1] for p in prompt_B], jnp.int32), done_B=rows >= live,
                       place_B=rows, prompt_len_B=jnp.asarray([len(prompts[p]) for p in prompt_B], jnp.int32), key_B=key_B)


def own_shapes(cfg: ModelConfig, rows: int, sampling: SamplingParams):
    """Shapes of one layer's k_BKCT and v_BKTC."""
    T = -(-sampling.max_new_tokens // sampling.block) * sampling.block
    return (rows, cfg.num_key_value_heads, cfg.head_dim, T), (rows, cfg.num_key_value_heads, T, cfg.head_dim)


def row_sizes(rows: int) -> list[int]:
    """Batch sizes, largest first: the full one, then powers of two and three quarters of them, down to 4."""
    ladder = [n for power in range(10, 1, -1) for n in (2**power, 3 * 2 ** (power - 2))]
    return [rows, *(n for n in ladder if 4 <= n < rows)]


def compact(state: DecodeState, rows, done, sizes):
    """Drop finished rows if the live ones fit a smaller size; some finished ones may stay to fill it."""
    size = min(n for n in sizes if n >= (~done).sum())
    if size >= len(rows):
        return state, rows
    keep = np.sort(np.argsort(done, kind="stable")[:size])  # live rows first, order kept
    return take_rows(state, keep), rows[keep]


@jax.jit
def take_rows(state: DecodeState, keep) -> DecodeState:
    """The state of some rows."""
    return jax.tree.map(lambda leaf: leaf[keep], state)


def record(out: Rollouts, rows, was_done, block, start, until, stops):
    """Write a block's tokens into the result, for rows that were live when the block began; NotFinite if their logits are not."""
    ids, logprobs, entropy = (np.asarray(part)[:, : until - start] for part in block)
    for i, row in enumerate(rows):
        if was_done[i]:
            continue
        hit = np.flatnonzero(np.isin(ids[i], stops))
        n = hit[0] + 1 if len(hit) else until - start
        if not np.isfinite([logprobs[i, :n], entropy[i, :n]]).all():
            at = start + int(np.argmin(np.isfinite(logprobs[i, :n]) & np.isfinite(entropy[i, :n]))) + 1
            raise NotFinite(f"the model's logits are not finite at sampled token {at} of prompt {out.prompt_B[row] + 1}: model "
                            "or adapter is damaged, was trained with too high a LEARNING_RATE, or exceeds the range of DTYPE")
        for target, values in ((out.ids_BT, ids), (out.logprobs_BT, logprobs), (out.entropy_BT, entropy)):
            target[row, start : start + n] = values[i, :n]
        out.length_B[row] = start + n
        out.finish_B[row] = "stop" if len(hit) else "length"


# ---- on the device ---------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=("samples", "cfg", "sampling", "stops", "vocab_used"), donate_argnames="state")
def decode_block(params, adapter, prompt_kv, mask_PS, state: DecodeState, start, until, samples, cfg, sampling, stops,
                 vocab_used):
    """Sample tokens `start` to `until` of every row, fewer if all rows stop.

    Returns the state and (ids, logprobs, entropy), each (B, block)."""
    B, P = state.token_B.shape[0], mask_PS.shape[0]
    zeros = jnp.zeros((B, sampling.block), jnp.float32)
    row_PN = jnp.zeros(P * samples, jnp.int32).at[state.place_B].set(jnp.arange(B)).reshape(P, samples)
    vocab_ok_V1 = (jnp.arange(cfg.vocab_size) < vocab_used)[:, None]  # unused rows of the embedding
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
        key_B = jax.vmap(jax.random.fold_in, (0, None))(state.key_B, t)
        token_B, logprob_B, entropy_B = sample_tokens(logits_VB, key_B, sampling)
        column = t - start
        written = tuple(array.at[:, column].set(value) for array, value in
                        ((ids, token_B), (logprobs, logprob_B), (entropies, entropy_B)))
        done_B = state.done_B | jnp.isin(token_B, stop_ids)
        return t + 1, state._replace(own_kv=own_kv, token_B=token_B, done_B=done_B), written

    _, state, block = jax.lax.while_loop(live, step, (jnp.int32(start), state, (zeros.astype(jnp.int32), zeros, zeros)))
    return state, block


def sample_tokens(logits_VB, key_B, sampling: SamplingParams):
    """(token_B, its log-probability, the entropy), the latter two at the temperature, before top-k and top-p.

    Greedy sampling (temperature 0) reports the values of temperature 1.  Sums over the vocabulary go tile by tile, which is
    faster and more accurate in fp32."""
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
    """values_ZWB: the vocabulary in tiles, padded with zeros."""
    V, B = values_VB.shape
    return jnp.pad(values_VB, ((0, -V % VOCAB_TILE), (0, 0))).reshape(-1, VOCAB_TILE, B)


def keep_top_k(mass_BV, k: int):
    """Zero all but the k largest; ties with the k-th stay; 0 keeps all."""
    if not k:
        return mass_BV
    return jnp.where(mass_BV < jax.lax.top_k(mass_BV, min(k, mass_BV.shape[-1]))[0][:, -1:], 0.0, mass_BV)


def keep_top_p(mass_BV, p: float):
    """Zero all ids outside the smallest set of likeliest ids that holds a share p of the mass; the likeliest id always stays."""
    if p >= 1:
        return mass_BV
    sorted_BV = -jnp.sort(-mass_BV, -1)
    before_BV = jnp.cumsum(sorted_BV, -1) - sorted_BV
    inside_BV = before_BV < p * mass_BV.sum(-1, keepdims=True)
    smallest_B1 = jnp.where(inside_BV, sorted_BV, jnp.inf).min(-1, keepdims=True)
    return jnp.where(mass_BV < smallest_B1, 0.0, mass_BV)


def inverse_cdf(mass_VB, u_B):
    """Inverse-CDF sampling from unnormalised probabilities, with uniform u_B.

    It takes one random number a row; Gumbel noise would take one for every id of the vocabulary."""
    mass_ZWB = by_tile(mass_VB)
    mass_ZB = mass_ZWB.sum(1)
    tile_B, rest_B = _search(mass_ZB, u_B * mass_ZB.sum(0))
    in_tile_B, _ = _search(jnp.take_along_axis(mass_ZWB, tile_B[None, None], 0)[0], rest_B)
    return tile_B * VOCAB_TILE + in_tile_B


def _search(mass, value_B):
    """(index_B, rest_B): the first entry along axis 0 whose running sum exceeds the value, and the value less the sum before it.

    If rounding puts the value at or past the end, it is the last entry with any mass."""
    running = jnp.cumsum(mass, 0)
    last_B = mass.shape[0] - 1 - jnp.argmax(mass[::-1] > 0, 0)
    index_B = jnp.minimum((running <= value_B).sum(0), last_B)
    before_B = jnp.take_along_axis(running - mass, index_B[None], 0)[0]
    return index_B, value_B - before_B


# ---- from the settings -----------------------------------------------------------------------------------------------


def sampling_of(settings: Settings) -> SamplingParams:
    """How the settings say to sample."""
    g = settings.generation
    return SamplingParams(temperature=g.temperature, top_k=g.top_k, top_p=g.top_p, max_new_tokens=g.max_new_tokens,
                          block=g.decode_block)
