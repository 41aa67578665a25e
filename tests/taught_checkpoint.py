"""The tiny checkpoint, trained to answer a few tasks right half of the time, so that rewards differ.

A few seconds of full-weight Adam on two answers per task, the reference and `return None`; reproducible on one machine."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from attention import Causal
from model_config import Spec, param_specs
from qwen2_jax import head_logits, padded_positions, run_layers
from rl.models import pretrained
from rl.settings.declared import DataSettings
from rl.tasks import encode_prompts, load_tasks
from tests.tiny_checkpoint import make_tiny

TASKS = 4
# Fifty updates take longer than compiling one: the compiler's defaults, whatever conftest.py asks for.
OPTIMISED = {"xla_backend_optimization_level": 3, "xla_cpu_use_fusion_emitters": True}


def taught_names() -> list[str]:
    """The training tasks with the shortest references."""
    tasks = sorted(load_tasks(DataSettings()), key=lambda task: (len(task.reference), task.name))
    return [task.name for task in tasks[:TASKS]]


def teach(folder: Path, updates: int = 50) -> Path:
    """Make the tiny checkpoint in `folder` and train it; returns the folder."""
    source = pretrained.resolve(str(make_tiny(folder)))
    cfg, params = source.cfg, pretrained.load(source, jnp.float32).params
    prompts = encode_prompts(load_tasks(DataSettings(task_names=",".join(taught_names()))), source.chat, False, 1024)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = [(p.ids, tokenizer.encode(f"{text}<|im_end|>").ids) for p in prompts for text in (
        f"```python\n{p.task.reference.strip()}\n```", f"```python\n{p.task.signature}\n    return None\n```")]
    width = max(len(ids) + len(answer) for ids, answer in rows)
    tokens, mask = (np.zeros((len(rows), width), kind) for kind in (np.int32, bool))
    for row, (ids, answer) in enumerate(rows):
        n = len(ids) + len(answer)
        tokens[row, :n], mask[row, :n] = ids + answer, True
    # Row and position of the token before each token of an answer.
    at = np.array([(row, len(ids) + n - 1) for row, (ids, answer) in enumerate(rows) for n in range(len(answer))]).T
    optimiser = optax.adam(optax.cosine_decay_schedule(2e-2, updates))

    def loss(params):
        hidden, _ = run_layers(params, None, tokens, padded_positions(mask), Causal(mask), [None] * cfg.num_hidden_layers, cfg)
        logprobs = jax.nn.log_softmax(head_logits(params, hidden[*at]).T)
        return -logprobs[np.arange(len(at[0])), tokens[at[0], at[1] + 1]].mean()

    @partial(jax.jit, compiler_options=OPTIMISED)
    def update(params, state):
        value, gradient = jax.value_and_grad(loss)(params)
        changes, state = optimiser.update(gradient, state)
        return optax.apply_updates(params, changes), state, value

    state = optimiser.init(params)
    for _ in range(updates):
        params, state, value = update(params, state)
    specs = jax.tree.leaves(param_specs(cfg), is_leaf=lambda leaf: isinstance(leaf, Spec))
    tensors = {spec.name: np.ascontiguousarray(np.asarray(leaf).T if spec.transposed else np.asarray(leaf))
               for spec, leaf in zip(specs, jax.tree.leaves(params), strict=True)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
