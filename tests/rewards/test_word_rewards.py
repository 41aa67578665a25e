"""Rewards for answers in words, on samples worked out by hand."""
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl.errors import InputError
from rl.registry import build_reward
from rl.rewards.base import Completion, TrainingSample
from rl.rewards.combining import AdditiveObjective
from rl.rewards.words.answers import reference_answer
from rl.rewards.words.rewards import (
    format_tag_reward,
    groups,
    gsm8k_correctness_reward,
    length_penalty_reward,
    thinking,
)
from tasks.word_problems import TextTask


def sample(completion, prompt="p", reference="7", **metadata):
    return TrainingSample(prompt, completion, reference, len(completion), "stop", metadata)


def of_length(words, prompt="p", answer="7"):
    return sample(f"<think>{'w ' * words}</think>\n\\boxed{{{answer}}}", prompt)


MALFORMED = sample("no block, but a long text about it \\boxed{7}")


# Format

@pytest.mark.parametrize(("completion", "paid"), [
    ("<think>2 + 5</think>\\boxed{7}", 1.0), ("  <think>\na\n</think>\n\n\\boxed{\\frac{1}{2}}\n", 1.0),
    ("<think></think>\\boxed{7}", 1.0), ("<think>\\boxed{6}?</think>\\boxed{7}", 1.0),
    ("<think>a</think>\\boxed{\\boxed{7}}", 1.0),
    ("\\boxed{7}", 0.0), ("<think>a</think>", 0.0), ("<think>a</think>7", 0.0), ("<think>a</think>\\boxed{}", 0.0),
    ("<think>a</think>\\boxed{ }", 0.0), ("<think>a</think>\\boxed{\\boxed{}}", 0.0), ("<think>a</think>So \\boxed{7}", 0.0),
    ("<think>a</think>\\boxed{7}.", 0.0), ("So <think>a</think>\\boxed{7}", 0.0), ("<think>a</think>\\boxed{7}\\boxed{7}", 0.0),
    ("<think>a</think><think>b</think>\\boxed{7}", 0.0), ("<think>a<think>b</think>\\boxed{7}", 0.0),
    ("<think>a</think></think>\\boxed{7}", 0.0), ("</think>a<think>\\boxed{7}", 0.0), ("<think>a \\boxed{7}", 0.0),
    *[(f"<think>a</think>\\boxed{{{empty}}}", 0.0) for empty in (
        "\\text{}", "\\text{ }", "{}", "$ $", "\\, \\quad", "\\mathrm{\\text{}}", "\\textbf{\\boxed{}}", "\\(\\)", "~")],
    *[(f"<think>a</think>\\boxed{{{answer}}}", 1.0) for answer in (
        "\\{\\}", "\\text{no}", "\\emptyset", "{7}", "\\text{}7", "?")],
    ("<think>a</think>\\boxed{7", 0.0), ("<think>a</think>\\boxed 7", 0.0), ("<Think>a</Think>\\boxed{7}", 0.0), ("", 0.0)])
def test_format(completion, paid):
    """One block, then one box that is not empty, and nothing else."""
    assert format_tag_reward([sample(completion)]) == [paid]


def test_the_tag_is_a_setting():
    """It is set by the name that YAML uses."""
    reward = build_reward("format_tag_reward", tag="reason")

    assert reward([sample("<reason>a</reason>\\boxed{7}"), sample("<think>a</think>\\boxed{7}")]) == [1.0, 0.0]


# Correctness

@pytest.mark.parametrize(("completion", "reference", "paid"), [
    ("so #### 1,080", "She has 1,080 <<2*540=1080>> left.\n#### 1,080", 1.0), ("\\boxed{$1080.00}", "x\n#### 1,080", 1.0),
    ("1080", "#### 1080", 0.0), ("\\boxed{1081}", "#### 1080", 0.0), ("\\boxed{1080.001}", "#### 1080", 0.0),
    ("\\boxed{\\dfrac{7}{20}}", "Thus \\boxed{\\frac{7}{20}}.", 1.0), ("\\boxed{0.35}", "Thus \\boxed{\\frac{7}{20}}.", 1.0),
    ("\\boxed{0.3333333}", "\\boxed{\\frac13}", 1.0), ("\\boxed{0.3333}", "\\boxed{\\frac13}", 0.0),
    ("\\boxed{7}, or \\boxed{8}", "7", 0.0), ("<think>\\boxed{7}</think>", "7", 0.0), ("<think>a</think>\\boxed{7}", "7", 1.0),
    ("", "7", 0.0)])
def test_correctness(completion, reference, paid):
    """The final answer against references of GSM8K, of MATH and bare ones."""
    assert gsm8k_correctness_reward([sample(completion, reference=reference)]) == [paid]


def test_the_policy_last_takes_the_last_marker():
    """Evaluation takes the last of several markers, which training treats as a hedge."""
    samples = [sample("\\boxed{6} \\boxed{7}"), sample("\\boxed{7} \\boxed{6}")]

    assert gsm8k_correctness_reward(samples) == [0.0, 0.0] and gsm8k_correctness_reward(samples, policy="last") == [1.0, 0.0]


def test_a_sample_without_a_reference_has_no_correctness():
    """It is neither right nor wrong but nan, so that it is masked."""
    right, unknown = gsm8k_correctness_reward([sample("\\boxed{7}"), sample("\\boxed{7}", reference="")])

    assert right == 1.0 and math.isnan(unknown)


def test_the_form_counts_if_the_task_asks_for_it():
    """With metadata["same_form"] the same value written differently is wrong."""
    written = "\\boxed{x^2+2x+1}"

    assert gsm8k_correctness_reward([sample(written, reference="(x+1)^2"),
                                     sample(written, reference="(x+1)^2", same_form=True)]) == [1.0, 0.0]


def test_the_second_opinion_is_asked_only_about_undecided_pairs():
    """Not about certain ones, and not about a missing answer."""
    asked = []
    samples = [sample("\\boxed{7}"), sample("\\boxed{8}"), sample("7"), sample("\\boxed{\\sin 7}"),
               sample("\\boxed{7 miles}", reference="7 km")]

    paid = gsm8k_correctness_reward(samples, second_opinion=lambda *pair: asked.append(pair) or True)

    assert paid == [1.0, 0.0, 0.0, 1.0, 0.0] and asked == [("\\sin 7", "7")]


def test_references():
    """GSM8K's #### line, MATH's last box, or the text itself."""
    assert reference_answer("a\n#### -1,234") == "-1234"
    assert reference_answer("\\boxed{1} so \\boxed{\\frac{1}{2}}") == "\\frac{1}{2}"
    assert reference_answer("4 apples") == "4 apples"


# Groups

def test_groups():
    """Chunks in order, or runs of one task's samples; runs of the same task that are not adjacent are two groups."""
    samples = [sample("", prompt) for prompt in "aabbba"]

    assert groups(samples) == [[0, 1], [2, 3, 4], [5]] and groups(samples, 3) == [[0, 1, 2], [3, 4, 5]] and groups([]) == []
    for size in (4, -1):
        with pytest.raises(InputError, match=f"group_size {size}: 6 samples"):
            groups(samples, size)


def test_two_tasks_with_equal_prompts_are_two_groups():
    """Told apart by their names, so 2 and 4 words are compared with L = 3, and 20 and 40 with L = 30."""
    one, other = (TextTask(name, "How many?", "7", "gsm8k") for name in ("one", "other"))
    samples = [TrainingSample.of(Completion(task, of_length(words).completion))
               for task, words in ((one, 2), (one, 4), (other, 20), (other, 40))]

    assert samples[0].prompt == samples[2].prompt and groups(samples) == [[0, 1], [2, 3]]
    assert length_penalty_reward(samples) == pytest.approx([2 / 3, 1 / 3] * 2)
    named = [sample("", name=name) for name in ("one", "one", "other")]
    assert groups(named) == [[0, 1], [2]], "the name alone will do"


# Length

def test_length_against_the_mean_of_the_group():
    """2, 4 and 6 words and a malformed sample: L = 3, so 1 - 2/6, 1 - 4/6, 1 - 6/6 and 0."""
    samples = [of_length(2), of_length(4), of_length(6), MALFORMED]

    assert length_penalty_reward(samples) == pytest.approx([2 / 3, 1 / 3, 0.0, 0.0])
    assert length_penalty_reward([of_length(1)] * 3 + [of_length(17)]) == pytest.approx([0.9, 0.9, 0.9, 0.0]), "clipped at 0"


def test_groups_do_not_mix():
    """Each group has its own L, whether groups are formed by prompt or by size."""
    samples = [of_length(2, "a"), of_length(4, "a"), of_length(20, "b"), of_length(40, "b")]

    assert length_penalty_reward(samples) == pytest.approx([2 / 3, 1 / 3] * 2)
    assert length_penalty_reward(samples, group_size=4) == pytest.approx([1 - 2 / 33, 1 - 4 / 33, 1 - 20 / 33, 0.0])


def test_a_group_of_length_zero_is_paid_nothing():
    """L = 0 if all samples are malformed, or all blocks empty."""
    assert length_penalty_reward([MALFORMED, MALFORMED]) == length_penalty_reward([of_length(0), of_length(0)]) == [0.0, 0.0]
    assert length_penalty_reward([]) == []


@pytest.mark.parametrize("completion", [
    "<think>a</think>", "<think>a</think>7", "<think>a</think>\\boxed{}", "<think>a</think>\\boxed{7",
    "<think>a</think>\\boxed 7", "<think>a</think>\\boxed{7} is right",
    "<think>a</think>So \\boxed{7}", "So <think>a</think>\\boxed{7}",
    "<think>a</think>\\boxed{7}\\boxed{7}", "<think>a</think><think>a</think>\\boxed{7}", "\\boxed{7}", "<think>a"])
def test_a_malformed_completion_is_paid_nothing_for_its_length(completion, tmp_path):
    """It counts as 0 words: beside 4 words L = 2, so both get 0; beside 1 and 3 words L = 4/3, so these get 5/8 and 0.

    A right answer with text behind it is worth its correctness alone, 1."""
    malformed = sample(completion)
    file = zero_shot(tmp_path, row("p", "<think>a b</think>\\boxed{7}", True))
    reward = build_reward("token_utilisation_reward", zero_shot=file)

    assert length_penalty_reward([malformed, of_length(4)]) == [0.0, 0.0]
    assert length_penalty_reward([of_length(1), malformed, of_length(3)]) == pytest.approx([5 / 8, 0.0, 0.0])
    assert reward([malformed, of_length(1)]) == [0.0, 0.5]
    samples, additive = [malformed, of_length(1), of_length(3)], AdditiveObjective()
    scores = {name: build_reward(name)(samples) for name in additive.reward_names()}
    right = gsm8k_correctness_reward(samples)[0]
    assert additive.combine_rewards(scores) == pytest.approx([right, 2 + 5 / 8, 2.0])


def test_length_in_tokens():
    """Only the block is tokenized."""
    seen = []
    samples = [sample("<think>ab</think>\\boxed{7}"), sample("<think>abcd</think>\\boxed{7}")]

    assert length_penalty_reward(samples, tokenizer=lambda text: seen.append(text) or list(text)) == pytest.approx([2 / 3, 1 / 3])
    assert seen == ["ab", "abcd"]


@given(st.lists(st.none() | st.integers(0, 50), min_size=1, max_size=12))
def test_length_reward_is_a_share(lengths):
    """It lies in [0, 1], is 0 for malformed samples, and never rises with length."""
    samples = [MALFORMED if length is None else of_length(length) for length in lengths]
    paid = length_penalty_reward(samples)

    assert all(0 <= value <= 1 for value in paid)
    assert all(value == 0 for value, length in zip(paid, lengths, strict=True) if length is None)
    known = sorted((length, value) for value, length in zip(paid, lengths, strict=True) if length is not None)
    assert [value for _, value in known] == sorted((value for _, value in known), reverse=True)


# Utilisation

def zero_shot(tmp_path, *rows):
    file = tmp_path / "zero_shot.jsonl"
    file.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return str(file)


def row(prompt, completion, correct):
    return {"prompt": prompt, "completion": completion, "correct": correct, "answer": "7"}


def test_utilisation_is_the_share_saved(tmp_path):
    """Right answers to prompt a took 4 and 6 words, so N = 5: 2 words save 0.6, 5 and 9 words nothing; malformed gets 0."""
    file = zero_shot(tmp_path, row("a", "<think>1 2 3 4</think>\\boxed{7}", True), row("a", "<think>x</think>\\boxed{8}", False),
                     row("a", "<think>1 2 3 4 5 6</think>\\boxed{7}", True), "", row("b", "<think>1</think>", False),
                     row("c", "no block \\boxed{7}", True))
    reward = build_reward("token_utilisation_reward", zero_shot=file)

    assert reward([of_length(2, "a"), of_length(5, "a"), of_length(9, "a"), sample("\\boxed{7}", "a")]) == [0.6, 0.0, 0.0, 0.0]
    assert reward([of_length(1, "b"), of_length(0, "b")]) == [0.0, 0.0], "never right, so nothing to compare with"
    assert reward([of_length(0, "c"), of_length(1, "c")]) == pytest.approx([1.0, 2 / 3]), "the whole completion counts: 3 words"


def test_utilisation_in_tokens(tmp_path):
    """The same tokenizer counts both sides, so units cannot be mixed."""
    reward = build_reward("token_utilisation_reward", zero_shot=zero_shot(tmp_path, row("a", "<think>abcd</think>", True)),
                          tokenizer=list)

    assert reward([sample("<think>a</think>\\boxed{7}", "a")]) == [0.75]


def test_prompts_missing_from_the_file(tmp_path):
    """They are an error, since a file made with another prompt would silently pay nothing, unless missing is "zero"."""
    file = zero_shot(tmp_path, row("a", "<think>a b</think>", True))

    with pytest.raises(InputError, match="1 prompts of this step have no row, the first is 'b'"):
        build_reward("token_utilisation_reward", zero_shot=file)([of_length(1, "a"), of_length(1, "b")])
    assert build_reward("token_utilisation_reward", zero_shot=file, missing="zero")(
        [of_length(1, "a"), of_length(1, "b")]) == [0.5, 0.0]
    with pytest.raises(InputError, match="missing='ignore'"):
        build_reward("token_utilisation_reward", zero_shot=file, missing="ignore")


def test_a_bad_zero_shot_file(tmp_path):
    """All bad lines are named at once; an absent or empty file is an error too."""
    with pytest.raises(InputError, match="line 2: prompt, correct missing or of the wrong type; line 3: prompt, completion, "
                                         "correct missing .*; line 4: "):
        build_reward("token_utilisation_reward", zero_shot=zero_shot(
            tmp_path, row("a", "b", True), {"prompt": 1, "completion": "", "correct": "yes"}, "[]", "{"))
    with pytest.raises(InputError, match="no rows"):
        build_reward("token_utilisation_reward", zero_shot=zero_shot(tmp_path))
    with pytest.raises(InputError, match="cannot be read"):
        build_reward("token_utilisation_reward", zero_shot=str(tmp_path / "none.jsonl"))


@given(st.text(alphabet="<>/think \\boxed{}7#", max_size=60))
def test_no_completion_raises(text):
    """Any text is worth a number."""
    samples = [sample(text), of_length(3)]

    for reward in (format_tag_reward, gsm8k_correctness_reward, length_penalty_reward):
        assert all(0 <= value <= 1 for value in reward(samples))
    assert thinking(text) is None or thinking(text) in text
