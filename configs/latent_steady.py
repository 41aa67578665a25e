"""An example of a reward on hidden states: it pays completions whose states change little from one token to the next.

It shows how to write such a reward, and that it trains; no benefit is claimed."""

import numpy as np

from rl.rewards.combining import LatentObjective


class Steady(LatentObjective):
    """Format plus half the mean cosine between neighbouring states: at most 1.5."""

    def extra_reward(self, samples):
        """From -0.5 to 0.5; 0 for a completion of a single token."""
        return [0.5 * _mean_cosine(sample.hidden_TD) for sample in samples]


def _mean_cosine(hidden_TD):
    unit_TD = hidden_TD / np.maximum(np.linalg.norm(hidden_TD, axis=1, keepdims=True), 1e-12)
    return float((unit_TD[1:] * unit_TD[:-1]).sum(1).mean()) if len(unit_TD) > 1 else 0.0
