"""What rewards see and what they give: the records, and base classes whose defaults suit most rewards.

    Completion -> Grader -> Grade -> GradedSample     one sampled answer on its way through grading
    TrainingSample                                    the same completion as a reward with a name sees it
    Reward, Combiner                                  numbers for a batch of samples, and one number from several

A run has one `Grader`. It is a reward of its own (programs, Reasoning Gym) or a `RewardGrader` (setup.py), which asks several
rewards and combines them."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:    # most of what imports this needs no array
    import numpy as np

RIGHT = 0.5    # a correctness reward above this means that the answer is right
EXTRA = "extra_reward"    # the name of a combiner's own hook among the scores


class Completion(NamedTuple):
    """One sampled answer to a task, not yet graded."""

    task: object
    text: str
    tokens: int = 0    # sampled ids, the stop id included
    finish: str = "stop"    # "stop", or "length" where the token limit cut it
    hidden_TD: "np.ndarray | None" = None    # the state that each token was drawn from, where the grader wants them


class Grade(NamedTuple):
    """What a grader says of a completion."""

    code: str
    verdict: str               # for programs one of the sandbox's VERDICTS
    correct: bool
    reward: float              # nan where verdict is "internal_error"
    style: float | None = None    # this and the next four are a program's; None for answers that are no programs
    depth: int | None = None
    calls: int | None = None
    pure: bool | None = None
    idle: int | None = None
    detail: str = ""
    flags: tuple[str, ...] = ()
    scores: dict[str, float] = {}    # further measures by name
    wall_s: float = 0.0        # seconds of grading; differs from run to run, so only the metrics have it


class GradedSample(NamedTuple):
    """A completion with its grade; the fields after `finish` are the grade's."""

    text: str
    tokens: int        # sampled ids, the stop id included
    finish: str        # "stop", or "length" where the token limit cut it
    code: str
    verdict: str
    correct: bool
    reward: float      # nan: the grader failed; the sample counts nowhere but in grader/internal_error_rate
    style: float | None    # this and the next four are a program's; None for answers that are no programs
    depth: int | None
    calls: int | None
    pure: bool | None
    idle: int | None
    detail: str
    flags: tuple[str, ...]
    scores: dict[str, float] = {}    # further measures by name

    @classmethod
    def of(cls, completion: Completion, grade: Grade) -> "GradedSample":
        """The completion with the grade that it got."""
        taken = grade._asdict()
        return cls(completion.text, completion.tokens, completion.finish, *(taken[name] for name in cls._fields[3:]))

    @classmethod
    def from_row(cls, row: dict) -> "GradedSample":
        """The sample of a row that a run wrote; other keys of the row are ignored."""
        known = {"scores": {}} | {name: row[name] for name in cls._fields if name in row}    # old rows have no scores
        return cls(**known | {"flags": tuple(row["flags"]), "reward": math.nan if row["reward"] is None else row["reward"]})


class GradedGroup(NamedTuple):
    """The graded samples of one prompt."""

    task: str
    prompt: list[dict]                # the messages, so that a pool can be trained on
    samples: Sequence[GradedSample]


class TrainingSample(NamedTuple):
    """One completion as rewards see it; samples of one prompt stand side by side."""

    prompt: str
    completion: str
    reference: str     # the right answer; "" where the task has none
    tokens: int        # sampled ids, the stop id included
    finish: str        # "stop", or "length" where the token limit cut it
    metadata: dict     # the task itself under "task", and whatever else it says of itself
    hidden_TD: "np.ndarray | None" = None    # the state that each token was drawn from, where the combiner wants them

    @classmethod
    def of(cls, completion: Completion) -> "TrainingSample":
        """What rewards may know of the completion."""
        task = completion.task
        return cls(task.question, completion.text, task.answer or "", completion.tokens, completion.finish,
                   {"task": task, **task.metadata}, completion.hidden_TD)


class Grader:
    """Turns completions into grades.

    One that is registered as a reward says what its tasks must have (`needs`), which process it asks (`open_judge`) and how it
    is made for a run (`for_run`)."""

    needs = ""    # the attribute that a task must have to be graded: "reference", "family"
    whole_groups = False    # True: must see all samples of a step at once; False: takes each as soon as it has ended
    wants_hidden = False    # True: looks at hidden_TD, which costs a forward pass
    has_cases = False    # True: there are other hidden cases on which a pass can be graded again

    def grade(self, completions: Sequence[Completion]) -> list[Grade]:
        """One Grade for each completion, in order."""
        raise NotImplementedError

    def second_grader(self, tasks: Sequence):
        """A context manager with a grader of these tasks on cases that training never used, in processes of its own."""
        raise NotImplementedError    # never called where has_cases is False

    @classmethod
    def open_judge(cls, settings):
        """The process that this grader asks: a context manager with a `description`."""
        return no_judge()

    @classmethod
    def for_run(cls, judge, tasks: Sequence, settings, case_shift: int = 0) -> "Grader":
        """The grader of these tasks; case_shift is added to CASE_SEED, for other hidden cases."""
        raise NotImplementedError


def no_judge():
    """In place of a judge, where answers are compared and nothing is run."""
    return nullcontext(SimpleNamespace(description="none: answers are compared, not run"))


class Reward:
    """One number for each sample of a batch, in order; nan where it cannot tell. Plain functions will do as well.

    Before a model is read it is called once with made-up samples of one task."""

    def __call__(self, samples: Sequence[TrainingSample]) -> list[float]:
        """The numbers."""
        raise NotImplementedError

    def check_prompts(self, prompts: dict[str, str]) -> None:
        """InputError where the reward cannot pay for all tasks to train on (name -> prompt); called before a model is read."""


class FunctionReward(Reward):
    """A function, or an object of some other class, as a Reward."""

    def __init__(self, function: Callable[[Sequence[TrainingSample]], list[float]]):
        self._function = function
        self.check_prompts = getattr(function, "check_prompts", self.check_prompts)    # foreign classes may have it

    def __call__(self, samples):
        """What the function gives."""
        return self._function(samples)


class Combiner:
    """Which rewards a run asks, and one number a sample from them (COMBINE).

    A class from outside needs `reward_names` and `combine_rewards` only."""

    unchanged = False    # True: pays its one reward as it is, and that reward is a Grader
    wants_hidden = False    # True: extra_reward looks at the samples' hidden_TD
    correctness: str | None = None    # the reward that says what is right; None: the first with "correct" in its name
    extra_reward: Callable[[Sequence[TrainingSample]], list[float]] | None = None    # one more entry in what is combined

    def reward_names(self) -> tuple[str, ...]:
        """The names of the rewards that combine_rewards wants."""
        raise NotImplementedError

    def combine_rewards(self, scores: dict[str, list[float]]) -> list[float]:
        """One total a sample, from each reward's numbers in the same order."""
        raise NotImplementedError
