"""From several rewards of a sample to one number: what a run pays for (COMBINE).

f, c, l, u are the format, correctness, length and utilisation rewards (rl/rewards/words/rewards.py):

    AdditiveObjective                  f + c + l + u, and the extras
    WeightedLengthPenaltyObjective     correctness_weight * c + length_penalty_lambda * interaction + f + u, and the extras,
                                       interaction = c * l, or c * l * f
    LatentObjective                    f + what a hook on the model's hidden states pays

- only_where_correct (the default): l and u count only where c > 0.5. So no wrong answer is worth more than a right one of the
  same format, and in a group of wrong answers length makes no difference: without it such groups train for shortness alone.
- strict_format_gate: a sample with f <= 0.5 gets non_strict_penalty instead of everything else.
- enable_length_penalty: whether l is asked for at all; enable_token_utilisation the same for u, off by default because it
  needs a file of a frozen model's answers.
- A sample without a number (nan) in one of the rewards has none in total: it is masked, never learnt from.

The extras are rewards of the user's own, added unchanged: what they pay, they pay wrong answers too."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from rl.errors import InputError
from rl.registry import register_objective
from rl.rewards.base import EXTRA, RIGHT, Combiner, TrainingSample

# ---- sums of rewards --------------------------------------------------------------------------------------------------


INTERACTIONS = ("correctness_length", "correctness_length_format")
# An entry that acts only where another one is true.
ACTS_WITH = {"non_strict_penalty": "strict_format_gate", "utilisation": "enable_token_utilisation",
             **dict.fromkeys(("length", "length_penalty_lambda", "length_penalty_interaction"), "enable_length_penalty")}


@dataclass(frozen=True)
class _Sum(Combiner):
    """The sum of the rewards, and what its weighted form shares with it."""

    correctness: str = "gsm8k_correctness_reward"
    format: str = "format_tag_reward"
    length: str = "length_penalty_reward"
    utilisation: str = "token_utilisation_reward"
    extras: Sequence[str] = ()
    enable_length_penalty: bool = True
    enable_token_utilisation: bool = False
    only_where_correct: bool = True
    strict_format_gate: bool = False
    non_strict_penalty: float = -1.0

    def __post_init__(self):
        problems = [problem for known in fields(self) if (problem := _wrong_type(known, getattr(self, known.name)))]
        if not problems:
            names = self.reward_names()
            problems += [f"{name} is asked for twice" for name in sorted({name for name in names if names.count(name) > 1})]
            problems += self._problems()
        if problems:
            raise InputError(f"{type(self).__name__}: {'; '.join(problems)}")

    @classmethod
    def idle_kwargs(cls, given: dict) -> dict[str, str]:
        """Entry -> the switch without which it does nothing, of all that would do nothing here."""
        default = {field.name: field.default for field in fields(cls)}
        return {name: switch for name, switch in ACTS_WITH.items() if name in given and given[name] != default.get(name)
                and not given.get(switch, default[switch])}

    def reward_names(self) -> tuple[str, ...]:
        """The rewards that combine_rewards wants."""
        return (self.format, self.correctness, *[self.length] * self.enable_length_penalty,
                *[self.utilisation] * self.enable_token_utilisation, *self.extras)

    def combine_rewards(self, scores: dict[str, list[float]]) -> list[float]:
        """One total a sample; InputError where a reward is missing or has another number of values than the others."""
        names = self.reward_names()
        check_scores(scores, names)
        return [self._total(dict(zip(names, values, strict=True))) for values in zip(*map(scores.get, names), strict=True)]

    def _total(self, score):
        if any(math.isnan(value) for value in score.values()):
            return math.nan
        f, c = score[self.format], score[self.correctness]
        if self.strict_format_gate and f <= RIGHT:
            return self.non_strict_penalty
        counts = c > RIGHT or not self.only_where_correct
        l = score[self.length] if counts and self.enable_length_penalty else 0.0
        u = score[self.utilisation] if counts and self.enable_token_utilisation else 0.0
        return self._combined(f, c, l) + u + sum(score[name] for name in self.extras)

    def _combined(self, f, c, l):
        return f + c + l

    def _problems(self):
        # What is gated off must not be worth more than a wrong answer.
        return [] if self.non_strict_penalty <= 0 else [f"non_strict_penalty={self.non_strict_penalty} should be 0 or less"]


@register_objective("additive")
@dataclass(frozen=True)
class AdditiveObjective(_Sum):
    """The sum of the rewards."""


@register_objective("weighted_length_penalty")
@dataclass(frozen=True)
class WeightedLengthPenaltyObjective(_Sum):
    """Correctness and its product with length, each with a weight; format and utilisation added."""

    correctness_weight: float = 1.0
    length_penalty_lambda: float = 1.0
    length_penalty_interaction: str = "correctness_length"

    def _combined(self, f, c, l):
        interaction = c * l * (f if self.length_penalty_interaction == "correctness_length_format" else 1.0)
        return self.correctness_weight * c + self.length_penalty_lambda * interaction + f

    def _problems(self):
        problems, interaction = super()._problems(), self.length_penalty_interaction
        if interaction not in INTERACTIONS:
            problems.append(f"length_penalty_interaction={interaction!r} should be {' or '.join(INTERACTIONS)}")
        # Else right answers would be worth less than wrong ones.
        if self.correctness_weight <= 0:
            problems.append(f"correctness_weight={self.correctness_weight} should be above 0")
        if self.length_penalty_lambda < 0:
            problems.append(f"length_penalty_lambda={self.length_penalty_lambda} should be 0 or more")
        return problems


def _wrong_type(known, value):
    """What is wrong with the type of a field's value; nothing where it is that of the default."""
    if known.name == "extras":
        good, wanted = isinstance(value, list | tuple) and all(isinstance(name, str) for name in value), "a list of names"
    elif isinstance(known.default, float):
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        wanted = "a number"
    else:
        good, wanted = isinstance(value, type(known.default)), "true or false" if isinstance(known.default, bool) else "text"
    return None if good else f"{known.name}={value!r} should be {wanted}"


def check_scores(scores: dict[str, list[float]], names: Sequence[str]) -> None:
    """InputError that names every reward which is missing or whose number of values is not that of the first."""
    problems = [f"{name} is missing" for name in names if name not in scores]
    there = [name for name in names if name in scores]
    problems += [f"{name} gave {len(scores[name])} values, {there[0]} {len(scores[there[0]])}" for name in there
                 if len(scores[name]) != len(scores[there[0]])]
    if problems:
        raise InputError(f"rewards: {'; '.join(problems)}. Each must give one number a sample, in order")


# ---- rewards on hidden states -----------------------------------------------------------------------------------------


@register_objective("latent")
@dataclass(frozen=True)
class LatentObjective(Combiner):
    """The format reward plus extra_reward, which is 0 until a subclass defines it. Correctness is asked for but not paid.

        class Mine(LatentObjective):
            def extra_reward(self, samples):
                return [0.1 * float(sample.hidden_TD.std()) for sample in samples]

        COMBINE=path/to/file.py:Mine python train_grpo.py        # or objective: {class_path: ...} in YAML

    GRPO makes paid samples likelier, so a reward on hidden states moves the model although no gradient flows through it: towards
    tokens that come with such states. What the hook pays, it pays wrong answers too. The states are float32, one for each
    sampled token, those that its logits came from; they cost a forward pass, made only where there is a hook."""

    format: str = "format_tag_reward"
    correctness: str = "gsm8k_correctness_reward"

    @property
    def wants_hidden(self) -> bool:
        """Whether a subclass has a hook."""
        return type(self).extra_reward is not LatentObjective.extra_reward

    def reward_names(self) -> tuple[str, ...]:
        """The rewards that are asked for."""
        return self.format, self.correctness

    def extra_reward(self, samples: Sequence[TrainingSample]) -> list[float]:
        """One number a sample, from its hidden_TD and everything else that is known of it."""
        return [0.0] * len(samples)

    def combine_rewards(self, scores: dict[str, list[float]]) -> list[float]:
        """Format and extra, nan where one of them or correctness is: nothing is learnt from such a sample."""
        check_scores(scores, (*self.reward_names(), EXTRA))
        columns = zip(scores[self.format], scores[EXTRA], scores[self.correctness], strict=True)
        return [math.nan if math.isnan(c) else f + extra for f, extra, c in columns]
