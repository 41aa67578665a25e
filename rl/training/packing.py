"""Groups as the update takes them: a prompt and its samples end to end in one sequence without padding (`attention.Packed`).

NumPy on the host; shapes come from short lists of lengths, so that few programs are compiled."""

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
    sampled: Targets

    @property
    def n_tokens(self) -> int:
        """Sampled tokens, padding left out."""
        return int((self.sampled.weight_M > 0).sum())

    @property
    def n_samples(self) -> int:
        """Samples that have any of them."""
        return len(np.unique(self.sampled.sample_M[self.sampled.weight_M > 0]))


def bucket(n: int, smallest: int) -> int:
    """n rounded up to a length in use: four of them an octave, so padding is at most a quarter and compiles are few."""
    size = smallest
    while size < n:
        step = max(1, 2 ** (size.bit_length() - 1) // 4)
        size += step
    return size


def sample_slots(longest: int) -> int:
    """Slots a sample gets inside attention: the power of two that holds the longest, at least 32."""
    return 1 << max(5, (longest - 1).bit_length() if longest else 0)


def pack(prompt_ids, samples, sampler_logprobs, advantage_N, objective: Loss) -> PackedGroup:
    """Lay one group out for the update.  samples: N arrays of sampled ids, stop id included; an empty one is left out.

    What is left out keeps its row in attention, so that the shapes, and the programs compiled for them, stay the same."""
    S = bucket(len(prompt_ids), 64)
    inputs = [ids[:-1] for ids in samples]  # the last sampled token is predicted, never fed
    lengths = np.array([len(ids) for ids in inputs])
    R = bucket(max(1, lengths.sum()), 128)  # sample tokens in the packed sequence
    T = sample_slots(int(lengths.max()))
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])

    tokens_Q, positions_Q = np.zeros(S + R, np.int32), np.zeros(S + R, np.int32)
    tokens_Q[: len(prompt_ids)], positions_Q[:S] = prompt_ids, np.arange(S)
    slot_NT = np.zeros((len(samples), T), np.int32)
    row_R, column_R = np.zeros(R, np.int32), np.zeros(R, np.int32)
    source = []
    for n, (ids, start, length) in enumerate(zip(inputs, starts, lengths, strict=True)):
        here = slice(start, start + length)
        tokens_Q[S:][here], positions_Q[S:][here] = ids, len(prompt_ids) + np.arange(length)
        slot_NT[n, :length] = np.arange(start, start + length)
        row_R[here], column_R[here] = n, np.arange(length)
        source += [len(prompt_ids) - 1, *range(S + start, S + start + length)] if len(samples[n]) else []

    counts = [len(ids) for ids in samples]
    weight_N = [token_weight(max(1, count), objective) for count in counts]
    M = -(-len(source) // objective.logit_chunk) * objective.logit_chunk
    padded = lambda values, dtype: np.pad(np.asarray(values, dtype), (0, M - len(source)))  # noqa: E731
    spread = lambda value_N, dtype: padded(np.repeat(value_N, counts), dtype)  # noqa: E731
    return PackedGroup(tokens_Q, positions_Q, Packed(np.arange(S) < len(prompt_ids), slot_NT, row_R, column_R),
                 Targets(padded(source, np.int32), padded(np.concatenate(samples), np.int32),
                         padded(np.concatenate(sampler_logprobs), np.float32), spread(advantage_N, np.float32),
                         spread(np.arange(len(samples)), np.int32), spread(weight_N, np.float32)))


def teaching(advantage_PN, trained_PN, objective: Loss) -> np.ndarray:
    """Which groups teach something."""
    return trained_PN.any(1) if objective.needs_no_signal else with_signal(advantage_PN, trained_PN)


def pack_groups(rollouts, advantage_PN, trained_PN, objective: Loss, at_once: int = 0) -> list[PackedGroup]:
    """The groups that teach something, packed, without the samples that are not to be trained on.

    With `at_once` so many samples of a group at a time, each part with the prompt of its own: the loss is a sum over samples, so
    its gradient is the same."""
    P, N = advantage_PN.shape
    length_PN = np.where(trained_PN, np.reshape(rollouts.length_B, (P, N)), 0)
    groups = []
    for p in np.flatnonzero(teaching(advantage_PN, trained_PN, objective)):
        for start in range(0, N, at_once or N):
            part = range(start, min(start + (at_once or N), N))
            if length_PN[p, part].any():
                cut = lambda array, p=p, part=part: [array[p * N + n, : length_PN[p, n]] for n in part]  # noqa: E731
                groups.append(pack(rollouts.prompt_ids[p], cut(rollouts.ids_BT), cut(rollouts.logprobs_BT), advantage_PN[p, part],
                                   objective))
    return groups
