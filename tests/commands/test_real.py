"""The sampler on the real 0.5B checkpoint."""

import jax.numpy as jnp
import numpy as np
import pytest

from rl.models import pretrained
from rl.settings.declared import DataSettings
from rl.tasks import encode_prompts, load_tasks
from rl.training.sampler import SamplingParams, generate, row_keys, step_key
from tests import oracles

PROMPTS, TOKENS = 10, 48


@pytest.mark.real
def test_greedy_ids_are_those_of_transformers(real_model):
    """Ten prompts of different length, batched and left-padded here, one by one there: the same ids; another one only where
    transformers' own logits of the two lie within 1e-4."""
    torch = oracles.package("torch")
    source = pretrained.resolve(str(real_model))
    tasks = load_tasks(DataSettings(n_tasks=PROMPTS))
    prompts = [p.ids for p in encode_prompts(tasks, source.chat, False, 1024)]
    names = [task.name for task in tasks]
    ours = generate(pretrained.load(source, jnp.float32), None, prompts, 1, SamplingParams(0.0, max_new_tokens=TOKENS),
                    row_keys(step_key(0, 0), names, 1))
    theirs = oracles.opened(real_model)
    assert len({len(ids) for ids in prompts}) > 5
    flips = 0
    for row, ids in enumerate(prompts):
        with torch.no_grad():
            out = theirs.generate(torch.tensor([ids]), do_sample=False, repetition_penalty=1.0, temperature=None, top_p=None,
                                  top_k=None, max_new_tokens=TOKENS, eos_token_id=list(source.chat.stop_ids),
                                  pad_token_id=source.chat.pad_id, output_logits=True, return_dict_in_generate=True)
        want, got = out.sequences[0, len(ids):].tolist(), ours.ids_BT[row, : ours.length_B[row]].tolist()
        if want != got:
            at = int(np.argmax([a != b for a, b in zip(want, got, strict=False)]))
            logits = out.logits[at][0]
            assert abs(float(logits[want[at]] - logits[got[at]])) < 1e-4, (row, at)
            flips += 1
    print(f"\n{PROMPTS - flips} of {PROMPTS} prompts give transformers' ids for up to {TOKENS} tokens")
    assert flips <= 1
