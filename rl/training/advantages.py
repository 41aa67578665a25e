"""From rewards to advantages: how good each sample was beside the others of its prompt.  NumPy, float64 inside.

    grpo    A_n = r_n - mean of the group                                     Shao et al. 2024, arXiv 2402.03300
    rloo    A_n = r_n - mean of the group's other samples                     Ahmadian et al. 2024, arXiv 2402.14740
    passk   A_n = mean of max r over the k-subsets that hold n                Chen et al. 2025, arXiv 2508.10751, equation of
                  - mean of max r over all k-subsets                          their analytical derivation

Scaled, grpo and rloo are divided by the group's std and passk by the std of max r over all k-subsets (ddof 0 each).  passk is
the paper's formula where rewards are 0 and 1, and grpo where k = 1; taking the best reward of a subset is our reading of it
for rewards between.  A group without spread has no signal: its advantages are exactly 0."""

from math import comb, sqrt

import numpy as np


def advantages(reward_PN, kind="grpo", scaled=True, k=1) -> np.ndarray:
    """The advantage of each reward within its row; exactly 0 where all are equal, and 0 for NaN rewards.

    NaN marks a sample whose grader failed: the rest of its group is judged without it.  Scaled grpo: |A| <= sqrt(N - 1)."""
    reward_PN = np.asarray(reward_PN, np.float64)
    advantage_PN = np.zeros_like(reward_PN)
    for reward_N, advantage_N in zip(reward_PN, advantage_PN, strict=True):
        ok = np.isfinite(reward_N)
        if ok.sum() < 2 or reward_N[ok].max() == reward_N[ok].min():
            continue
        advantage_N[ok] = pass_at_k(reward_N[ok], k, scaled) if kind == "passk" else centred(reward_N[ok], scaled)
        if kind == "rloo":  # leaving n out of the mean stretches its distance from it
            advantage_N[ok] *= ok.sum() / (ok.sum() - 1)
    return advantage_PN.astype(np.float32)


def centred(reward_N, scaled: bool) -> np.ndarray:
    """Rewards that are not all equal, less their mean; scaled: over their std, and never beyond sqrt(N - 1)."""
    centred_N = reward_N - reward_N.mean()
    if not scaled:
        return centred_N
    centred_N /= np.abs(centred_N).max()  # so that squares of tiny spreads do not vanish
    limit = np.sqrt(len(reward_N) - 1)
    return np.clip(centred_N / np.sqrt(np.mean(centred_N**2)), -limit, limit)


def pass_at_k(reward_N, k: int, scaled: bool) -> np.ndarray:
    """What each sample adds to the best of k: 0 throughout where every k-subset has the same best, or there is none."""
    order_N = np.argsort(reward_N, kind="stable")
    sorted_N, N = reward_N[order_N], len(reward_N)
    if N < k or sorted_N[k - 1] == sorted_N[-1]:
        return np.zeros(N)
    spread = sorted_N[-1] - sorted_N[k - 1]
    best_N = np.maximum((sorted_N - sorted_N[-1]) / spread, -1)  # what is below the k-th is never the best of k
    share_N = np.array([comb(n, k - 1) / comb(N, k) for n in range(N)])  # of all k-subsets, those whose best is sample n
    mean = best_N @ share_N
    std = sqrt((best_N - mean) ** 2 @ share_N)
    # Of the subsets that hold n: it is the best itself, or a better one of which n - 1 of the samples below it are chosen.
    above_N = np.array([comb(n - 1, k - 2) / comb(N - 1, k - 1) if n and k > 1 else 0.0 for n in range(N)])
    itself_N = np.array([comb(n, k - 1) / comb(N - 1, k - 1) for n in range(N)])
    beaten_N = np.append(np.cumsum((best_N * above_N)[::-1])[::-1][1:], 0.0)
    advantage_N = np.empty(N)
    advantage_N[order_N] = (best_N * itself_N + beaten_N - mean) * (1 / std if scaled else spread)
    return advantage_N


def overlong(length, longest: int, soft: int) -> np.ndarray:
    """DAPO's soft length penalty (arXiv 2503.14476, eq. 13): 0 up to longest - soft tokens, then down to -1 at longest."""
    return np.clip((longest - soft - np.asarray(length, np.float64)) / soft, -1.0, 0.0)


def with_signal(advantage_PN, trained_PN) -> np.ndarray:
    """Which groups have a sample in the loss whose advantage is not 0."""
    return (np.asarray(trained_PN) & (np.asarray(advantage_PN) != 0)).any(1)
