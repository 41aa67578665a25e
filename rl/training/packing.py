"""Packing for the update: a prompt and its samples end to end in one sequence (`attention.Packed`).

NumPy on the host.  Lengths are rounded up to a few sizes, so that few programs are compiled."""

from typing import NamedTuple

import numpy as np

from attention import Packed
from rl.training.advantages import with_signal
from rl.training.loss import Loss, Targets, token_weight


class PackedGroup(NamedTuple):
    """A prompt and its samples, or some of them, packed."""

    tokens_Q: np.ndarray
    positions_Q: np.ndarray
    layout: Packed
    targets: Targets

    @property
    def n_tokens(self) -> int:
        """Sampled tokens, without padding."""
        return int((self.targets.weight_M > 0).sum())

    @property
    def n_samples(self) -> int:
        """Samples with at least one token."""
        return len(np.unique(self.targets.sample_M[self.targets.weight_M > 0]))


def bucket(n: int, smallest: int) -> int:
    """n rounded up to the next size: four sizes per octave, so that padding is at most a quarter and compilations are few."""
    size = smallest
    while size < n:
        step = max(1, 2 ** (size.bit_length() - 1) // 4)
        size += step
    return size


def attention_length(longest: int) -> int:
    """T of `Packed`: the power of two that holds the longest sample, at least 32."""
    return 1 << max(5, (longest - 1).bit_length() if longest else 0)


def pack(prompt_ids, samples, sampler_logprobs, advantage_N, loss: Loss) -> PackedGroup:
    """Pack one prompt with N samples, arrays of sampled ids with the stop id.  An empty sample is left out of the loss.

    It keeps its row in attention, so that shapes and compiled programs stay the same."""
    S = bucket(len(prompt_ids), 64)
    inputs = [ids[:-1] for ids in samples]  # the last sampled token is predicted, never fed
    lengths = np.array([len(ids) for ids in inputs])
    Y = bucket(max(1, lengths.sum()), 128)
    T = attention_length(int(lengths.max()))
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])

    tokens_Q, positions_Q = np.zeros(S + Y, np.int32), np.zeros(S + Y, np.int32)
    tokens_Q[: len(prompt_ids)], positions_Q[:S] = prompt_ids, np.arange(S)
    index_NT = np.zeros((len(samples), T), np.int32)
    sample_Y, t_Y = np.zeros(Y, np.int32), np.zeros(Y, np.int32)
    source = []
    for n, (ids, start, length) in enumerate(zip(inputs, starts, lengths, strict=True)):
        here = slice(start, start + length)
        tokens_Q[S:][here], positions_Q[S:][here] = ids, len(prompt_ids) + np.arange(length)
        index_NT[n, :length] = np.arange(start, start + length)
        sample_Y[here], t_Y[here] = n, np.arange(length)
        source += [len(prompt_ids) - 1, *range(S + start, S + start + length)] if len(samples[n]) else []

    counts = [len(ids) for ids in samples]
    weight_N = [token_weight(max(1, count), loss) for count in counts]
    M = -(-len(source) // loss.logit_chunk) * loss.logit_chunk
    padded = lambda values, dtype: np.pad(np.asarray(values, dtype), (0, M - len(source)))  # noqa: E731
    spread = lambda value_N, dtype: padded(np.repeat(value_N, counts), dtype)  # noqa: E731
    return PackedGroup(
        tokens_Q, positions_Q,
        layout=Packed(mask_S=np.arange(S) < len(prompt_ids), index_NT=index_NT, sample_Y=sample_Y, t_Y=t_Y),
        targets=Targets(
            source_M=padded(source, np.int32), target_M=padded(np.concatenate(samples), np.int32),
            sampler_logprob_M=padded(np.concatenate(sampler_logprobs), np.float32),
            advantage_M=spread(advantage_N, np.float32), sample_M=spread(np.arange(len(samples)), np.int32),
            weight_M=spread(weight_N, np.float32)))


def teaching(advantage_PN, trained_PN, loss: Loss) -> np.ndarray:
    """Which groups have a gradient."""
    return trained_PN.any(1) if loss.needs_no_signal else with_signal(advantage_PN, trained_PN)


def pack_groups(rollouts, advantage_PN, trained_PN, loss: Loss, at_once: int = 0) -> list[PackedGroup]:
    """The groups that have a gradient, packed; samples that are not trained on are left out.

    With `at_once` a group is packed in parts of that many samples, each with its prompt.  The loss is a sum over samples, so
    the gradient is the same."""
    P, N = advantage_PN.shape
    length_PN = np.where(trained_PN, np.reshape(rollouts.length_B, (P, N)), 0)
    groups = []
    for p in np.flatnonzero(teaching(advantage_PN, trained_PN, loss)):
        for start in range(0, N, at_once or N):
            part = range(start, min(start + (at_once or N), N))
            if length_PN[p, part].any():
                cut = lambda array, p=p, part=part: [array[p * N + n, : length_PN[p, n]] for n in part]  # noqa: E731
                groups.append(pack(rollouts.prompt_ids[p], cut(rollouts.ids_BT), cut(rollouts.logprobs_BT), advantage_PN[p, part],
                                   loss))
    return groups
