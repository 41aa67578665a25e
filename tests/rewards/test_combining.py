"""From several rewards to one: each formula on a group worked out by hand, and the promise that right answers come first."""
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl.errors import InputError
from rl.registry import build_objective
from rl.rewards.combining import AdditiveObjective, WeightedLengthPenaltyObjective

F, C, L, U = "format_tag_reward", "gsm8k_correctness_reward", "length_penalty_reward", "token_utilisation_reward"
# Four samples: right and well formed; right but not well formed; wrong and well formed; wrong and not well formed.
SCORES = {F: [1.0, 0.0, 1.0, 0.0], C: [1.0, 1.0, 0.0, 0.0], L: [0.5, 0.25, 0.75, 1.0], U: [0.25, 0.5, 1.0, 0.125]}


def combined(objective, **changes):
    return objective.combine_rewards({**SCORES, **changes})


def test_the_sum():
    """f + c + l + u; by default l and u only where the answer is right."""
    assert combined(AdditiveObjective(enable_token_utilisation=True)) == [2.75, 1.75, 1.0, 0.0]
    assert combined(AdditiveObjective(enable_token_utilisation=True, only_where_correct=False)) == [2.75, 1.75, 2.75, 1.125]


def test_switches_choose_the_rewards():
    """Length is asked for unless switched off, utilisation only when switched on, and what is not asked for counts nothing."""
    assert AdditiveObjective().reward_names() == (F, C, L)
    assert AdditiveObjective(enable_length_penalty=False).reward_names() == (F, C)
    assert AdditiveObjective(enable_token_utilisation=True, extras=["mine"]).reward_names() == (F, C, L, U, "mine")
    assert combined(AdditiveObjective()) == [2.5, 1.25, 1.0, 0.0]
    assert combined(AdditiveObjective(enable_length_penalty=False)) == [2.0, 1.0, 1.0, 0.0]
    assert combined(AdditiveObjective(extras=("mine",)), mine=[1, 2, 3, -1]) == [3.5, 3.25, 4.0, -1.0]
    assert combined(AdditiveObjective(enable_length_penalty=False, extras=(L,))) == [2.5, 1.25, 1.75, 1.0]
    assert AdditiveObjective(correctness="lisp", format="one_block").reward_names() == ("one_block", "lisp", L)


def test_the_weighted_sum():
    """2 c + 0.5 c l + f + u, and with the other interaction 2 c + 0.5 c l f + f + u."""
    weights = {"correctness_weight": 2.0, "length_penalty_lambda": 0.5, "enable_token_utilisation": True}

    assert combined(WeightedLengthPenaltyObjective(**weights)) == [3.5, 2.625, 1.0, 0.0]
    assert combined(WeightedLengthPenaltyObjective(
        **weights, length_penalty_interaction="correctness_length_format")) == [3.5, 2.5, 1.0, 0.0]
    assert combined(WeightedLengthPenaltyObjective(**weights, only_where_correct=False)) == [3.5, 2.625, 2.0, 0.125]
    assert combined(WeightedLengthPenaltyObjective(enable_length_penalty=False)) == [2.0, 1.0, 1.0, 0.0]


def test_half_right_answers():
    """A correctness between 0 and 1 is multiplied in; up to a half it counts as wrong for the guard."""
    objective = WeightedLengthPenaltyObjective(length_penalty_lambda=4.0)

    assert objective.combine_rewards({F: [0.0, 0.0], C: [0.75, 0.5], L: [0.5, 0.5]}) == [0.75 + 1.5, 0.5]


@pytest.mark.parametrize("kind", [AdditiveObjective, WeightedLengthPenaltyObjective])
def test_the_format_gate(kind):
    """What is not well formed gets the penalty instead of all else, right or wrong; 0.5 is not well formed yet."""
    assert combined(kind(strict_format_gate=True)) == [2.5, -1.0, 1.0, -1.0]
    assert combined(kind(strict_format_gate=True, non_strict_penalty=-0.25), **{F: [1, 0.5, 0.6, 0]}) == [2.5, -0.25, 0.6, -0.25]


@pytest.mark.known_bug(16)
def test_a_group_of_wrong_answers_learns_nothing_from_length():
    """Equal totals, so no advantage; a known way for training to collapse into short wrong answers."""
    scores = {F: [1.0] * 4, C: [0.0] * 4, L: [0.9, 0.5, 0.1, 0.0], U: [0.9, 0.0, 0.1, 0.3]}

    for kind in (AdditiveObjective, WeightedLengthPenaltyObjective):
        assert len(set(kind(enable_token_utilisation=True).combine_rewards(scores))) == 1


UNIT = st.floats(0, 1)
SAMPLE = st.tuples(st.sampled_from([0.0, 1.0]), UNIT, UNIT)    # correct, length, utilisation


@pytest.mark.known_bug(16)
@given(UNIT, SAMPLE, SAMPLE, st.booleans(), st.booleans(), st.floats(0.01, 5), st.floats(0, 5),
       st.sampled_from(["correctness_length", "correctness_length_format"]))
def test_no_wrong_answer_outranks_a_right_one(f, one, other, gate, utilisation, weight, factor, interaction):
    """At equal format, whatever the lengths and weights, with the guard that is on by default."""
    right, wrong = (1.0, *one[1:]), (0.0, *other[1:])
    scores = {F: [f, f], C: [right[0], wrong[0]], L: [right[1], wrong[1]], U: [right[2], wrong[2]]}
    switches = {"strict_format_gate": gate, "enable_token_utilisation": utilisation}
    for objective in (AdditiveObjective(**switches), WeightedLengthPenaltyObjective(
            **switches, correctness_weight=weight, length_penalty_lambda=factor, length_penalty_interaction=interaction)):
        better, worse = objective.combine_rewards(scores)

        assert better > worse or (gate and f <= 0.5 and better == worse == -1.0)


def test_what_has_no_number_has_none_in_total():
    """A sample on which a reward failed is masked, gate or not; the others keep their value."""
    for gate in (False, True):
        first, second, *_ = combined(AdditiveObjective(strict_format_gate=gate), **{L: [0.5, math.nan, 0, 0]})
        assert first == 2.5 and math.isnan(second)


def test_rewards_of_the_wrong_length():
    """All that are missing, or have another number of values, are named."""
    with pytest.raises(InputError, match=f"{L} is missing; {C} gave 1 values, {F} 2"):
        AdditiveObjective().combine_rewards({F: [1.0, 1.0], C: [1.0]})
    assert AdditiveObjective().combine_rewards({F: [], C: [], L: []}) == []


def test_bad_settings_are_named_together():
    """Values under which the promise would not hold, and values of another type, such as YAML's quoted false."""
    with pytest.raises(InputError) as caught:
        WeightedLengthPenaltyObjective(correctness_weight=0, length_penalty_lambda=-1.0, length_penalty_interaction="length",
                                       non_strict_penalty=1.0, extras=[F])
    for part in ("correctness_weight=0 ", "length_penalty_lambda=-1.0", "'length' should be correctness_length or",
                 f"{F} is asked", "non_strict_penalty=1.0"):
        assert part in str(caught.value)
    with pytest.raises(InputError, match="only_where_correct='false' should be true or false; non_strict_penalty='x' should be a "
                                         "number"):
        AdditiveObjective(only_where_correct="false", non_strict_penalty="x")
    with pytest.raises(InputError, match="extras='mine' should be a list of names"):
        AdditiveObjective(extras="mine")
    with pytest.raises(InputError, match="non_strict_penalty=nan"):
        AdditiveObjective(non_strict_penalty=math.nan)


def test_they_are_registered():
    """YAML reaches them by name."""
    assert build_objective("additive") == AdditiveObjective()
    assert build_objective("weighted_length_penalty", length_penalty_lambda=0.2).length_penalty_lambda == 0.2
    with pytest.raises(InputError, match="takes no 'length_lambda'"):
        build_objective("weighted_length_penalty", length_lambda=0.2)
