r"""Rewards for answers in words, <think>...</think> and then \boxed{...}: one number for each sample of a step.

    format_tag_reward            1 for one thinking block, then a box that is not empty, and nothing else; otherwise 0
    gsm8k_correctness_reward     1 if the final answer equals the reference, otherwise 0 (rl/rewards/words/answers.py)
    length_penalty_reward        clip(1 - n / (2 L), 0, 1): n the length of the block, L the mean n of the group
    token_utilisation_reward     clip(1 - n / N, 0, 1): N the length that the frozen model needed for the same prompt

Lengths are in tokens if a tokenizer is given, otherwise in words. A completion that the format reward pays 0 is malformed: its
n is 0, which lowers L, and both length rewards pay it 0. They pay wrong answers too: combiners count them only for right ones
(rl/rewards/combining.py)."""

import itertools
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Literal

from rl.errors import InputError
from rl.registry import register_reward
from rl.rewards.base import Reward, TrainingSample
from rl.rewards.words.answers import POLICIES, boxes, compare, final_answer, reference_answer
from rl.settings.declared import LEAVES
from rl.text_files import read_text, split_lines

LENGTH = "length_penalty_reward"
TAG = LEAVES["thinking_tag"].default
Tokenizer = Callable[[str], Sequence]    # text -> ids, without special tokens

# ---- format -----------------------------------------------------------------------------------------------------------


# Layout without content: space, braces and commands without an argument. \{\} is the empty set, so it is content.
BLANK = re.compile(r"(?:[\s{}$~]|\\[,;:!>()\[\] ]|\\(?:text(?:rm|bf|it|normal)?|mbox|math(?:rm|bf|it)|q?quad|boxed|fbox)"
                   r"(?![A-Za-z]))*")


@register_reward("format_tag_reward")
def format_tag_reward(samples: Sequence[TrainingSample], tag: str = TAG) -> list[float]:
    """1 if the completion is well formed, otherwise 0."""
    return [float(is_well_formed(sample.completion, tag)) for sample in samples]


def is_well_formed(completion: str, tag: str = TAG) -> bool:
    """Whether it is one thinking block, then one box that is not empty, and nothing else but white space."""
    before, _, rest = completion.partition(f"<{tag}>")
    answer = rest.partition(f"</{tag}>")[2].strip()
    if thinking(completion, tag) is None or before.strip() or BLANK.fullmatch(final_answer(answer) or ""):
        return False
    return answer == f"\\boxed{{{boxes(answer)[0][1]}}}" if boxes(answer) else False


def thinking(completion: str, tag: str = TAG) -> str | None:
    """The content of the one thinking block; None if there is none, or several, or an unmatched tag."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    if completion.count(opening) != 1 or completion.count(closing) != 1:
        return None
    rest = completion.partition(opening)[2]
    block, closed, _ = rest.partition(closing)
    return block if closed else None


# ---- correctness ------------------------------------------------------------------------------------------------------


@register_reward("gsm8k_correctness_reward")
def gsm8k_correctness_reward(samples: Sequence[TrainingSample], tag: str = TAG, policy: Literal[POLICIES] = "one",
                             second_opinion: Callable[[str, str], bool] | None = None) -> list[float]:
    """1 if the final answer equals the reference, 0 if not, nan without a reference.

    policy: which of several final markers counts (answers.py). second_opinion(prediction, reference) decides when the two
    cannot be compared exactly; without one, such an answer is wrong. metadata["same_form"]: it must be written alike."""
    return [_correctness(sample, tag, policy, second_opinion) for sample in samples]


def _correctness(sample, tag, policy, second_opinion):
    reference = reference_answer(sample.reference).strip()
    if not reference:
        return math.nan
    answer = final_answer(sample.completion, tag, policy)
    verdict = compare(answer, reference, bool(sample.metadata.get("same_form")))
    if verdict is None and second_opinion:
        verdict = second_opinion(answer, reference)
    return float(verdict is True)


# ---- length -----------------------------------------------------------------------------------------------------------


@register_reward(LENGTH)
def length_penalty_reward(samples: Sequence[TrainingSample], tag: str = TAG, tokenizer: Tokenizer | None = None,
                          group_size: int = 0) -> list[float]:
    """clip(1 - n / (2 L), 0, 1), L the mean length of the sample's group, malformed samples counted as 0; 0 if L is 0."""
    lengths = [_length(sample.completion, tag, tokenizer) for sample in samples]
    paid = [0.0] * len(samples)
    for group in groups(samples, group_size):
        mean = sum(lengths[i] or 0 for i in group) / len(group)
        for i in group:
            if mean > 0 and lengths[i] is not None:
                paid[i] = min(1.0, max(0.0, 1 - lengths[i] / (2 * mean)))
    return paid


def groups(samples: Sequence[TrainingSample], group_size: int = 0) -> list[list[int]]:
    """Indices of the samples by group: consecutive chunks of group_size, or if that is 0, runs of samples of the same task."""
    if group_size < 0 or (group_size and len(samples) % group_size):
        raise InputError(f"group_size {group_size}: {len(samples)} samples cannot be cut into such groups; give a divisor "
                         "of that number, or 0 for groups by task")
    if group_size:
        return [list(range(start, start + group_size)) for start in range(0, len(samples), group_size)]
    runs = itertools.groupby(range(len(samples)), key=lambda i: _task_of(samples[i]))
    return [list(run) for _, run in runs]


def _task_of(sample):
    """What tells the sample's task from others: the prompt, and the task's name if it is known."""
    task = sample.metadata.get("task")
    return sample.prompt, sample.metadata.get("name") if task is None else task.name


def _length(completion, tag, tokenizer) -> int | None:
    """Tokens or words in the thinking block; None if the completion is malformed."""
    return _count(thinking(completion, tag), tokenizer) if is_well_formed(completion, tag) else None


def _count(text, tokenizer):
    return len(tokenizer(text)) if tokenizer else len(text.split())


# ---- length against a frozen model ------------------------------------------------------------------------------------


ZERO_SHOT = {"prompt": str, "completion": str, "correct": bool}    # the fields of a row of a zero-shot file


@register_reward("token_utilisation_reward")
class TokenUtilisation(Reward):
    """The share saved of what a frozen model spent on the same prompt: clip(1 - n / N, 0, 1), 0 if malformed.

    Measured against its own group's mean, a policy would be pushed to ever shorter answers; a frozen model gives a fixed bound,
    and allows more to prompts that need more thought. `zero_shot` is a JSONL file with one row for each completion of the
    frozen model: prompt (as in the samples), completion, correct. N is the mean length of the thinking blocks of the prompt's
    correct rows; a row without one counts in full. A prompt without a correct row pays nobody, since the length of wrong
    answers does not tell what a right one needs. A prompt without any row is an InputError; with missing="zero", for a file
    that covers part of the data, it pays 0."""

    def __init__(self, zero_shot: str, tag: str = TAG, tokenizer: Tokenizer | None = None, missing: str = "error"):
        if missing not in ("error", "zero"):
            raise InputError(f"missing={missing!r}: use error or zero")
        self._file, self._tag, self._tokenizer, self._missing = zero_shot, tag, tokenizer, missing
        lengths = {}
        for row in read_zero_shot(zero_shot):
            of_prompt = lengths.setdefault(row["prompt"], [])
            if row["correct"]:
                block = thinking(row["completion"], tag)
                of_prompt.append(_count(row["completion"] if block is None else block, tokenizer))
        self._needed = {prompt: sum(of_prompt) / len(of_prompt) if of_prompt else 0.0 for prompt, of_prompt in lengths.items()}

    def check_prompts(self, prompts: dict[str, str]) -> None:
        """InputError if tasks (name -> prompt) have no rows and missing is "error"."""
        unknown = [name for name, prompt in prompts.items() if prompt not in self._needed]
        if unknown and self._missing == "error":
            raise InputError(f"token_utilisation_reward: {self._file} has no row for {len(unknown)} of the {len(prompts)} tasks, "
                             f"such as {unknown[0]}; make it with the tasks of this run (eval_runs.py --zero-shot FILE, same "
                             "TASKS, SPLIT and N_TASKS), choose tasks that it covers, or pay 0 for the others: missing: zero")

    def __call__(self, samples: Sequence[TrainingSample]) -> list[float]:
        """The share that each sample saved; InputError if prompts have no rows and missing is "error"."""
        unknown = sorted({sample.prompt for sample in samples} - self._needed.keys())
        if unknown and self._missing == "error":
            raise InputError(f"{self._file}: {len(unknown)} prompts of this step have no row, the first is {unknown[0][:80]!r}; "
                             "make the file with the same prompts (tag, style hint and data), or set missing: zero")
        return [self._saved(sample) for sample in samples]

    def _saved(self, sample):
        length, needed = _length(sample.completion, self._tag, self._tokenizer), self._needed.get(sample.prompt, 0.0)
        return 0.0 if length is None or needed <= 0 else min(1.0, max(0.0, 1 - length / needed))


def read_zero_shot(path: str) -> list[dict]:
    """The rows of a zero-shot file; InputError naming all bad lines."""
    try:
        lines = split_lines(read_text(path))
    except (OSError, ValueError) as error:
        raise InputError(f"zero_shot={path} cannot be read: {error}; eval_runs.py writes such a file") from error
    rows, problems = [], []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line) if line.strip() else None
        except ValueError:
            row = ()
        if row is not None:
            wrong = [name for name, kind in ZERO_SHOT.items() if not isinstance(row, dict) or not isinstance(row.get(name), kind)]
            problems += [f"line {number}: {', '.join(wrong)} missing or of the wrong type"] if wrong else []
            rows.append(row)
    if problems or not rows:
        more = f"; and {len(problems) - 8} more" if len(problems) > 8 else ""
        raise InputError(f"zero_shot={path}: {'; '.join(problems[:8]) or 'no rows'}{more}; each row needs {', '.join(ZERO_SHOT)}")
    return rows
