"""Advantages against numbers by hand, loops over samples and subsets, and hostile rewards."""

from itertools import combinations
from math import comb, sqrt

import numpy as np
import pytest

from rl.training.advantages import advantages, batch_scaled, most_varied, overlong, scaled_by_reward, with_signal

KINDS = [("grpo", 1), ("rloo", 1), ("passk", 1), ("passk", 3), ("passk", 7)]


# ---- grpo

def test_advantages_by_hand():
    """Rewards 0 0 0 1 have mean 1/4 and std sqrt(3)/4."""
    np.testing.assert_allclose(advantages([[0, 0, 0, 1.0]]), [[-1 / 3**0.5] * 3 + [3**0.5]], rtol=1e-6)


@pytest.mark.known_bug(5)
@pytest.mark.parametrize("rewards", [
    [0.1] * 8, [1e6] * 8, [0.0] * 8, [0.1] * 7 + [np.nextafter(0.1, 1)], [0.1] * 4 + [np.nextafter(0.1, 1)] * 4,
    [1e6] * 7 + [1e6 + 1], [1e6] * 7 + [np.nextafter(1e6, 0)], [-1e6, 1e6] * 4, [0, 5e-324, 0, 0, 0, 0, 0, 0],
    [1e300, -1e300, 0, 0, 0, 0, 0, 0], [np.nan] * 8, [np.nan] * 7 + [1.0]])
def test_advantages_are_bounded(rewards):
    """Finite, at most sqrt(N - 1), and exactly 0 for equal rewards, whatever their scale."""
    a = advantages([rewards])[0]

    assert np.isfinite(a).all() and np.abs(a).max() <= np.float32(7**0.5)
    ok = np.array(rewards)[np.isfinite(rewards)]
    assert (a == 0).all() == (len(ok) < 2 or ok.max() == ok.min())


def test_unscaled_grpo_is_the_distance_from_the_mean():
    """Rewards 0 0 0 1 are 1/4 below and 3/4 above it."""
    np.testing.assert_allclose(advantages([[0, 0, 0, 1.0]], scaled=False), [[-0.25] * 3 + [0.75]])


# ---- scales of the whole step


REWARDS = np.array([[0, 0, 0, 1.2], [1.1, 1.2, 1.3, 1.1], [0, 0, 0, 0], [1.5, np.nan, 0, 0]])


@pytest.mark.parametrize("kind", ["grpo", "rloo"])
def test_the_batch_is_the_scale(kind):
    """By a loop: unscaled advantages over the std of the fifteen finite rewards, so that groups keep their proportions."""
    spread = np.std([r for row in REWARDS for r in row if r == r])
    got = batch_scaled(REWARDS, kind)

    for row, found in zip(REWARDS, got, strict=True):
        finite = [r for r in row if r == r]
        bias = len(finite) / (len(finite) - 1) if kind == "rloo" else 1
        want = [(r - np.mean(finite)) * bias / spread if r == r else 0 for r in row]
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    assert not batch_scaled([[0.3] * 4] * 2).any() and not batch_scaled([[np.nan] * 4]).any()


def test_style_is_quieter_under_the_batch_than_under_the_group():
    """A group whose samples are all right has advantages as large as any other in one case, and a tenth of them in the other."""
    loud, quiet = advantages(REWARDS[:2]), batch_scaled(REWARDS[:2])

    assert np.abs(loud[1]).max() > 0.8 * np.abs(loud[0]).max()
    assert np.abs(quiet[1]).max() < 0.2 * np.abs(quiet[0]).max()


def test_each_part_has_its_own_scale():
    """By a loop over groups and parts; a part that is equal within a group adds nothing, a failed sample stays out."""
    right = np.where(np.isnan(REWARDS), np.nan, REWARDS > 0)
    rest = REWARDS - right
    total = np.zeros(REWARDS.shape)
    for part, weight in ((right, 1.0), (rest, 0.5)):
        for g, row in enumerate(part):
            ok = np.isfinite(row)
            if np.ptp(row[ok]) > 0:
                total[g, ok] += weight * (row[ok] - row[ok].mean()) / row[ok].std()
    want = total / total[np.isfinite(REWARDS)].std()

    np.testing.assert_allclose(scaled_by_reward((right, rest), (1.0, 0.5)), want, rtol=1e-4, atol=1e-6)
    assert not scaled_by_reward(([[1.0, 1.0]], [[0.2, 0.2]]), (1.0, 0.5)).any()


# ---- the samples that are trained on


@pytest.mark.parametrize("size", [2, 3, 5, 7])
def test_the_most_varied_samples_are_chosen(size):
    """No subset of that size has a larger variance, by trying all; failed samples are never chosen, and 0 chooses all others."""
    rng = np.random.default_rng(size)
    for reward in (rng.random(8), rng.choice([0, 1, 1.2, 1.4], 8), np.zeros(8), [0, 0, 0, 0, 0, 0, 0, 1.3],
                   [1.2, np.nan, 0, 1.1, np.nan, 0, 1.3, 0]):
        [chosen] = most_varied([reward], size)
        finite = np.flatnonzero(np.isfinite(reward))
        best = max(np.var(np.take(reward, subset)) for subset in combinations(finite, min(size, len(finite))))

        assert chosen.sum() == min(size, len(finite)) and not chosen[~np.isfinite(reward)].any()
        assert np.var(np.array(reward)[chosen]) == pytest.approx(best)
        np.testing.assert_array_equal(most_varied([reward], 0)[0], np.isfinite(reward))


# ---- rloo and passk


@pytest.mark.parametrize("scaled", [False, True])
def test_rloo_leaves_each_sample_out_of_its_baseline(scaled):
    """By a loop: the reward minus the mean of all others; scaled, over the std of the group."""
    reward = np.random.default_rng(0).choice([0, 1, 1.23, 1.5], (4, 6))
    want = [[row[n] - np.mean([r for m, r in enumerate(row) if m != n]) for n in range(6)] for row in reward]
    want = np.array(want) / (reward.std(1, keepdims=True) if scaled else 1)

    np.testing.assert_allclose(advantages(reward, "rloo", scaled), want, rtol=1e-5, atol=1e-6)


def best_of_subsets(reward, k, scaled):
    """The definition of the advantage, over every k-subset."""
    subsets = list(combinations(range(len(reward)), k))
    best = np.array([max(reward[n] for n in subset) for subset in subsets], np.float64)
    own = [np.mean([b for b, subset in zip(best, subsets, strict=True) if n in subset]) for n in range(len(reward))]
    return (np.array(own) - best.mean()) / (best.std() if scaled else 1)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_passk_is_the_mean_over_all_subsets(k, scaled):
    """The closed form equals enumeration, with ties and in any order."""
    rng = np.random.default_rng(k)
    for _ in range(20):
        reward = rng.choice([0, 0, 1, 1.23, 1.26, 1.5], 7)
        if np.sort(reward)[k - 1] < reward.max():
            np.testing.assert_allclose(advantages([reward], "passk", scaled, k)[0], best_of_subsets(reward, k, scaled),
                                       rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("right", range(1, 8))
@pytest.mark.parametrize("k", [2, 4])
def test_passk_of_right_and_wrong_is_the_published_formula(right, k):
    """With c wrong of N: R = 1 - C(c, k) / C(N, k), s = sqrt(R (1 - R)); a right sample has (1 - R) / s, a wrong one
    (1 - R - C(c - 1, k - 1) / C(N - 1, k - 1)) / s; all have 0 if fewer than k are wrong."""
    N, wrong = 8, 8 - right
    got = advantages([[1.0] * right + [0.0] * wrong], "passk", True, k)[0]
    R = 1 - comb(wrong, k) / comb(N, k)
    want = [0.0] * N
    if wrong >= k:
        s = sqrt(R * (1 - R))
        want = [(1 - R) / s] * right + [(1 - R - comb(wrong - 1, k - 1) / comb(N - 1, k - 1)) / s] * wrong

    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


def test_pass_at_one_is_grpo():
    """The best of one sample is the sample."""
    reward = np.random.default_rng(1).normal(size=(5, 8))
    np.testing.assert_allclose(advantages(reward, "passk", True, 1), advantages(reward), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("kind, k", KINDS)
def test_advantages_sum_to_zero_and_follow_the_rewards(kind, k, scaled):
    """Advantages sum to zero and are a rising function of the rewards."""
    for reward in np.random.default_rng(2).choice([0, 1, 1.2, 1.5], (30, 8)):
        a = advantages([reward], kind, scaled, k)[0]
        order = np.argsort(reward)

        assert abs(a.sum()) < 1e-5 and (np.diff(a[order]) >= -1e-6).all()
        assert all(np.ptp(a[reward == value]) < 1e-6 for value in set(reward))


@pytest.mark.known_bug(5)
@pytest.mark.parametrize("kind, k", KINDS)
@pytest.mark.parametrize("rewards", [[0.1] * 8, [0.1] * 7 + [np.nextafter(0.1, 1)], [1e6] * 7 + [1e6 + 1], [np.nan] * 8,
                                     [1e300, -1e300, 0, 0, 0, 0, 0, 0], [np.nan] * 3 + [1, 0, 1, 1, 0], [0, 1] + [np.nan] * 6])
def test_every_kind_is_finite(kind, k, rewards):
    """Scaled, for hostile rewards: no NaN, at most sqrt(N - 1) times N / (N - 1), 0 for a failed grade."""
    a = advantages([rewards], kind, True, k)[0]
    n = np.isfinite(rewards).sum()

    assert np.isfinite(a).all() and not a[np.isnan(rewards)].any()
    assert np.abs(a).max() <= sqrt(max(n - 1, 0)) * (n / (n - 1) if n > 1 else 1) * (1 + 1e-6)


def test_a_failed_grade_counts_as_not_sampled():
    """The others have the advantages of a group without it; with fewer than k left, passk has no signal."""
    for kind, k in KINDS[:4]:
        got = advantages([[1.5, np.nan, 0.0, 1.0, 0.0, 1.2]], kind, True, k)[0]
        np.testing.assert_array_equal(np.delete(got, 1), advantages([[1.5, 0.0, 1.0, 0.0, 1.2]], kind, True, k)[0])
    assert not advantages([[1.0, 0.0, np.nan, np.nan]], "passk", True, 3).any()


# ---- length, signal


@pytest.mark.parametrize("longest, soft", [(20, 5), (20, 20), (192, 32), (7, 1)])
def test_the_length_penalty_is_dapos(longest, soft):
    """Its three cases, for every length: 0, linear, -1 at the limit."""
    for length in range(1, longest + 3):
        if length <= longest - soft:
            want = 0.0
        elif length <= longest:
            want = ((longest - soft) - length) / soft
        else:
            want = -1.0
        assert overlong([length], longest, soft)[0] == pytest.approx(want)
    assert overlong(longest, longest, soft) == -1


def test_signal_needs_an_advantage_in_the_loss():
    """A group has none if its only advantages belong to masked samples."""
    a = np.array([[0, 0, 0], [1, -1, 0], [1, -1, 0], [2, -1, -1.0]])
    trained = np.array([[1, 1, 1], [1, 1, 1], [0, 0, 1], [0, 0, 0]], bool)

    assert with_signal(a, trained).tolist() == [False, True, False, False]
