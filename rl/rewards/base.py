"""What rewards are given and what they give: one completion in, one grade out. Contracts and records, no behaviour."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np


class TrainingSample(NamedTuple):
    """One completion, as rewards see it; samples of one prompt stand side by side."""
    prompt: str
    completion: str
    reference: str     # the right answer; "" where there is none
    tokens: int        # sampled ids, the stop id included
    finish: str        # "stop", or "length" where the token limit cut it
    metadata: dict     # what else the task says of itself
    hidden_TD: "np.ndarray | None" = None    # the state that each token was drawn from, where the objective asks for them


class Reward(Protocol):
    """What build_reward gives: one number for each sample, in order; nan where it cannot tell.

    Before a model is read it is called once with made-up samples of one task. It may also have `check_prompts` (task name ->
    prompt, of all tasks to train on), called then too: an InputError from it says for what it cannot pay."""

    def __call__(self, samples: Sequence[TrainingSample]) -> list[float]: ...


class Combiner(Protocol):
    """What build_objective gives: which rewards it needs, and one number a sample from them.

    It may also have `extra_reward` (samples -> numbers), one more entry of that name in what is combined, and `wants_hidden`,
    True where that looks at the samples' hidden_TD (rl/rewards/combining.py)."""

    def reward_names(self) -> tuple[str, ...]:
        """The names of the rewards that combine_rewards wants."""

    def combine_rewards(self, scores: dict[str, list[float]]) -> list[float]:
        """One total a sample, from each reward's numbers in the same order."""



class Grade(NamedTuple):
    code: str
    verdict: str               # one of the sandbox's VERDICTS
    correct: bool
    reward: float              # nan when verdict == "internal_error"
    style: float | None        # this and the next four are a program's; None where the answer is none
    depth: int | None
    calls: int | None
    pure: bool | None
    idle: int | None
    detail: str
    flags: tuple[str, ...]
    scores: dict[str, float] = {}    # measures beside the reward, by name; none where style is the measure
    wall_s: float = 0.0        # seconds in the sandbox; differs from run to run, so it goes to the metrics alone



class GradedSample(NamedTuple):
    """One completion with its grade; the fields after `finish` are the grade's own."""
    text: str
    tokens: int        # sampled ids, the stop id included
    finish: str        # "stop", or "length" where the token limit cut it
    code: str
    verdict: str
    correct: bool
    reward: float      # nan: the grader failed, the sample counts nowhere but in grader/internal_error_rate
    style: float | None    # this and the next four are a program's; None where the answer is none
    depth: int | None
    calls: int | None
    pure: bool | None
    idle: int | None
    detail: str
    flags: tuple[str, ...]
    scores: dict[str, float] = {}    # measures beside the reward, by name

    @classmethod
    def of(cls, text: str, tokens: int, finish: str, grade) -> "GradedSample":
        """A completion with the grade that it got (rl/rewards/lisp.py)."""
        return cls(text, tokens, finish, *(getattr(grade, name) for name in cls._fields[3:]))

    @classmethod
    def from_row(cls, row: dict) -> "GradedSample":
        """The sample of a row that was written by `jsonable` and read back; the row may say more, such as its step."""
        found = {"scores": {}} | {name: row[name] for name in cls._fields if name in row}    # rows were once without scores
        return cls(**found | {"flags": tuple(row["flags"]), "reward": math.nan if row["reward"] is None else row["reward"]})


class GradedGroup(NamedTuple):
    task: str
    prompt: list[dict]                # the messages, so that a pool can train on them
    samples: Sequence[GradedSample]
