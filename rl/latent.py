"""The latent objective: form, and whatever a hook on the model's hidden states pays.

    class Mine(LatentObjective):
        def extra_reward(self, samples):
            return [0.1 * float(sample.hidden_TD.std()) for sample in samples]

    COMBINE=path/to/file.py:Mine python train_grpo.py        # or objective: {class_path: ...} in YAML

GRPO makes samples that are paid more likelier, so a reward on hidden states moves the model although no gradient goes through
it: towards tokens that come with such states. What the hook pays, it pays wrong answers too. The states are float32, one a
sampled token, those that its logits came from (rl/hidden.py); to have them costs a forward pass, made where there is a hook."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rl.combining import check_scores
from rl.registry import TrainingSample, register_objective

EXTRA = "extra_reward"


@register_objective("latent")
@dataclass(frozen=True)
class LatentObjective:
    """The format reward plus extra_reward, which is 0 until a subclass has one. Correctness is asked for to be shown only."""

    format: str = "format_tag_reward"
    correctness: str = "gsm8k_correctness_reward"

    @property
    def wants_hidden(self) -> bool:
        """Whether there is a hook to give hidden states to."""
        return type(self).extra_reward is not LatentObjective.extra_reward

    def reward_names(self) -> tuple[str, ...]:
        """The rewards that are asked for."""
        return self.format, self.correctness

    def extra_reward(self, samples: Sequence[TrainingSample]) -> list[float]:
        """One number a sample, from its hidden_TD and all else that is known of it; nothing, unless overridden."""
        return [0.0] * len(samples)

    def combine_rewards(self, scores: dict[str, list[float]]) -> list[float]:
        """Format and extra, nan where one of them or correctness is: nothing is learnt from such a sample."""
        check_scores(scores, (*self.reward_names(), EXTRA))
        columns = zip(scores[self.format], scores[EXTRA], scores[self.correctness], strict=True)
        return [math.nan if math.isnan(c) else f + extra for f, extra, c in columns]
