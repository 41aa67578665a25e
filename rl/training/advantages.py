"""From rewards to advantages: how much better a sample is than the other samples of its prompt.  NumPy, float64 inside.

    grpo    A_n = r_n - mean of the group                                     Shao et al. 2024, arXiv 2402.03300
    rloo    A_n = r_n - mean of the group's other samples                     Ahmadian et al. 2024, arXiv 2402.14740
    passk   A_n = mean of max r over the k-subsets that hold n                Chen et al. 2025, arXiv 2508.10751, from
                  - mean of max r over all k-subsets                          their analytical derivation

Scaled, grpo and rloo are divided by the group's std and passk by the std of max r over all k-subsets (ddof 0).  passk equals
the paper's formula for rewards of 0 and 1, which max r extends to other rewards, and grpo for k = 1.  A group of
equal rewards has no signal: its advantages are exactly 0.

A group's own std makes small differences as loud as large ones: where all samples are right, style alone counts fully. Two
other scales keep the proportions between groups:

    batch_scaled      grpo or rloo, divided by the std of all rewards of the step           Liu et al. 2025, arXiv 2508.08221
    scaled_by_reward  each part of the reward scaled within its group, then added, then     GDPO, arXiv 2601.05242
                      divided by the std of all sums of the step"""

from collections.abc import Sequence
from math import comb, sqrt

import numpy as np


def advantages(reward_PN, kind="grpo", scaled=True, k=1) -> np.ndarray:
    """The advantage of each reward within its row; exactly 0 in rows of equal rewards, and for NaN.

    NaN marks a sample whose grader failed; the rest of its group is compared without it.  Scaled grpo: |A| <= sqrt(N - 1)."""
    reward_PN = np.asarray(reward_PN, np.float64)
    advantage_PN = np.zeros_like(reward_PN)
    for reward_N, advantage_N in zip(reward_PN, advantage_PN, strict=True):
        ok = np.isfinite(reward_N)
        if ok.sum() < 2 or reward_N[ok].max() == reward_N[ok].min():
            continue
        advantage_N[ok] = pass_at_k(reward_N[ok], k, scaled) if kind == "passk" else centred(reward_N[ok], scaled)
        if kind == "rloo":  # r - mean of the others = (r - mean of all) * n / (n - 1)
            advantage_N[ok] *= ok.sum() / (ok.sum() - 1)
    return advantage_PN.astype(np.float32)


def batch_scaled(reward_PN, kind="grpo") -> np.ndarray:
    """Unscaled advantages over the std of all finite rewards; 0 where they are all equal."""
    reward_PN = np.asarray(reward_PN, np.float64)
    finite = reward_PN[np.isfinite(reward_PN)]
    spread = np.std(finite) if len(finite) and finite.max() > finite.min() else 1.0
    return (advantages(reward_PN, kind, scaled=False) / spread).astype(np.float32)


def scaled_by_reward(parts: Sequence, weights: Sequence[float], kind="grpo") -> np.ndarray:
    """The sum of weight * scaled advantage over the parts (each like reward_PN), over the std of these sums."""
    total_PN = sum(weight * advantages(part_PN, kind).astype(np.float64) for part_PN, weight in zip(parts, weights, strict=True))
    counted = total_PN[np.isfinite(np.asarray(parts[0], np.float64))]
    return (total_PN / (np.std(counted) if counted.any() else 1.0)).astype(np.float32)


def centred(reward_N, scaled: bool) -> np.ndarray:
    """Unequal rewards minus their mean; scaled: over their std, within +-sqrt(N - 1)."""
    centred_N = reward_N - reward_N.mean()
    if not scaled:
        return centred_N
    centred_N /= np.abs(centred_N).max()  # or the squares of tiny differences would underflow
    limit = np.sqrt(len(reward_N) - 1)
    return np.clip(centred_N / np.sqrt(np.mean(centred_N**2)), -limit, limit)


def pass_at_k(reward_N, k: int, scaled: bool) -> np.ndarray:
    """The passk advantage; 0 if all k-subsets have the same best reward, or there are none."""
    order_N = np.argsort(reward_N, kind="stable")
    sorted_N, N = reward_N[order_N], len(reward_N)
    if N < k or sorted_N[k - 1] == sorted_N[-1]:
        return np.zeros(N)
    spread = sorted_N[-1] - sorted_N[k - 1]
    best_N = np.maximum((sorted_N - sorted_N[-1]) / spread, -1)  # a reward below the k-th is never the best of k
    share_N = np.array([comb(n, k - 1) / comb(N, k) for n in range(N)])  # of the k-subsets, those whose best is sample n
    mean = best_N @ share_N
    std = sqrt((best_N - mean) ** 2 @ share_N)
    # In a subset that holds n, n is the best itself, or the best is one above it, with n and k - 2 others below that one.
    above_N = np.array([comb(n - 1, k - 2) / comb(N - 1, k - 1) if n and k > 1 else 0.0 for n in range(N)])
    itself_N = np.array([comb(n, k - 1) / comb(N - 1, k - 1) for n in range(N)])
    beaten_N = np.append(np.cumsum((best_N * above_N)[::-1])[::-1][1:], 0.0)
    advantage_N = np.empty(N)
    advantage_N[order_N] = (best_N * itself_N + beaten_N - mean) * (1 / std if scaled else spread)
    return advantage_N


def most_varied(reward_PN, size: int) -> np.ndarray:
    """Which `size` samples of each group have the rewards of largest variance; all of them where size is 0.

    Down-sampling of PODS (arXiv 2504.13818): such a subset is some of the lowest and some of the highest. Of equally varied ones
    the one with the most high rewards is taken; samples whose grader failed are not."""
    reward_PN = np.asarray(reward_PN, np.float64)
    chosen_PN = np.isfinite(reward_PN)
    for reward_N, chosen_N in zip(reward_PN, chosen_PN, strict=True):
        order = [n for n in np.argsort(reward_N, kind="stable") if chosen_N[n]]
        if 0 < size < len(order):
            subsets = [order[:low] + order[len(order) - size + low:] for low in range(size + 1)]
            best = max(subsets, key=lambda subset, reward_N=reward_N: np.var(reward_N[subset]))
            chosen_N[:] = np.isin(np.arange(len(reward_N)), best)
    return chosen_PN


def overlong(length, longest: int, soft: int) -> np.ndarray:
    """DAPO's soft length penalty (arXiv 2503.14476, eq. 13): 0 up to longest - soft tokens, then linear to -1 at longest."""
    return np.clip((longest - soft - np.asarray(length, np.float64)) / soft, -1.0, 0.0)


def with_signal(advantage_PN, trained_PN) -> np.ndarray:
    """Which groups have a sample that is trained on with an advantage other than 0."""
    return (np.asarray(trained_PN) & (np.asarray(advantage_PN) != 0)).any(1)
