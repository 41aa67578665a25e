"""A random Qwen2 of a few thousand values for tests; H != K, and fewer used token ids than embedding rows."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from model_config import ModelConfig, Spec, param_specs
from qwen2_jax import load_params
from rl.training import lora

CFG = ModelConfig(vocab_size=320, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=6,
                  num_key_value_heads=2, head_dim=8, rope_theta=1e4, max_position_embeddings=512, attention_bias=True)
VOCAB_USED = 300
STOP_IDS = (7, 11)


def params(cfg=CFG, seed=0, dtype=jnp.float32):
    """Random parameters, large enough for predictions that are far from uniform."""
    rng, shapes = np.random.default_rng(seed), {}
    for spec in jax.tree.leaves(param_specs(cfg), is_leaf=lambda leaf: isinstance(leaf, Spec)):
        shapes[spec.name] = spec.shape

    def tensor(name):
        scale = 0.4 if len(shapes[name]) == 2 else 0.1
        return (1.0 if name.endswith("norm.weight") else 0.0) + scale * rng.standard_normal(shapes[name]).astype(np.float32)

    return load_params(tensor, cfg, dtype)


def adapter(cfg=CFG, rank=4, alpha=8.0, seed=0):
    """A random adapter whose a and b are not zero."""
    new, rng = lora.init(jax.random.key(seed), cfg, rank, alpha), np.random.default_rng(seed)
    layers = jax.tree.map(lambda leaf: leaf + 0.1 * rng.standard_normal(leaf.shape, np.float32), new["layers"])
    return {**new, "layers": layers}


def model(stop_ids=STOP_IDS, seed=0):
    """Config, parameters and a chat with stop ids: all that the sampler needs of a model."""
    chat = SimpleNamespace(stop_ids=stop_ids, vocab_used=VOCAB_USED)
    return SimpleNamespace(cfg=CFG, params=params(seed=seed), chat=chat)


def prompt(length, seed=0):
    """A random prompt of `length` ids."""
    return np.random.default_rng((seed, length)).integers(12, VOCAB_USED, length).tolist()
