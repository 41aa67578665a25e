"""The hidden states that sampled tokens were drawn from: one more forward pass, without gradient, over what was sampled.

The update's own forward pass (`rl/grpo.py`) on the update's own layout, a few samples of a group at a time."""

import numpy as np

from rl.grpo import hidden_states
from rl.objectives import Objective
from rl.packing import pack

AT_ONCE = 8  # samples in one pass; without a gradient nothing is kept of a layer, so this is less than any update takes


def hidden_of(model, adapter, rollouts) -> list[np.ndarray]:
    """hidden_TD of each row, in order: for each of its T sampled tokens the state, after the final norm, that gave its logits."""
    return [hidden_TD for p in range(len(rollouts.prompt_ids)) for hidden_TD in _of_prompt(model, adapter, rollouts, p)]


def _of_prompt(model, adapter, rollouts, p):
    rows = np.flatnonzero(rollouts.prompt_B == p)
    for start in range(0, len(rows), AT_ONCE):
        part = rows[start : start + AT_ONCE]
        ids = [rollouts.ids_BT[row, : rollouts.length_B[row]] for row in part]
        logprobs = [rollouts.logprobs_BT[row, : rollouts.length_B[row]] for row in part]
        group = pack(rollouts.prompt_ids[p], ids, logprobs, np.zeros(len(part)), Objective())
        hidden_QD = np.asarray(hidden_states(model.params, adapter, group, model.cfg, "none"), np.float32)
        counts = [len(row_ids) for row_ids in ids]
        yield from np.split(hidden_QD[group.sampled.source_M[: sum(counts)]], np.cumsum(counts)[:-1])
