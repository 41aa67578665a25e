"""What a run will need, from shapes alone: XLA's own plan of the largest programs, without weights or data.

The peak is the larger of sampling and updating.  Each figure is a buffer that must exist then: the frozen weights, the
adapter with its moments and gradient, the caches, the layer inputs kept for the backward pass, and the temporaries that XLA
plans for the program at work.  A CPU's plan is not a GPU's; on a GPU compare with the allocator's peak_bytes_in_use."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from attention import Packed
from qwen2_jax import BLOCKS, ModelConfig, Spec, param_specs, projection_shapes, rope_angles
from rl import lora
from rl.generate import PROMPT_BUCKET, State, decode_block, own_shapes
from rl.grpo import chunk_gradient
from rl.loop import objective_of, sampling_of
from rl.packing import Sampled, bucket, sample_slots
from rl.settings import Settings


def nbytes(tree) -> int:
    """Bytes of all arrays of a tree."""
    return sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


def adapted_width(cfg: ModelConfig) -> int:
    """Trained values per unit of LoRA rank: in + out of every projection of every layer."""
    shapes = [shape for part in projection_shapes(cfg).values() for shape in part.values()]
    return cfg.num_hidden_layers * sum(d + e for d, e in shapes)


def shaped(dims, dtype=jnp.int32):
    """A stand-in for an array."""
    return jax.ShapeDtypeStruct(dims, dtype)


def memory(cfg: ModelConfig, dtype, settings: Settings, prompt_tokens: int) -> dict[str, int]:
    """Bytes by use, and the predicted `peak`, of training with prompts of up to so many tokens, every sample at full length."""
    params = jax.tree.map(lambda spec: shaped(spec.kept_shape, dtype), param_specs(cfg), is_leaf=lambda x: isinstance(x, Spec))
    adapter = jax.eval_shape(partial(lora.init, cfg=cfg, rank=settings.model.lora_rank, alpha=1.0), jax.random.key(0))
    sampler, caches = _sampler(cfg, dtype, settings, prompt_tokens, params, adapter)
    update, kept = _update(cfg, dtype, settings, prompt_tokens, params, adapter)
    figures = {"weights": nbytes(params), "adapter, gradient and moments": 4 * nbytes(adapter["layers"]),
               "key/value caches": caches, "sampler temporaries": sampler,
               "kept for the backward pass": kept, "update temporaries": update}
    fixed = figures["weights"] + figures["adapter, gradient and moments"]
    return {**figures, "peak": fixed + max(caches + sampler, kept + update)}


def _sampler(cfg, dtype, settings, prompt_tokens, params, adapter):
    """(temporaries of a decoding block, bytes of the caches) with every row alive."""
    sampling, P = sampling_of(settings), settings.trainer.tasks_per_step
    B, S = P * settings.generation.group, -(-prompt_tokens // PROMPT_BUCKET) * PROMPT_BUCKET
    K, C = cfg.num_key_value_heads, cfg.head_dim
    prompt_kv, own_kv = ([tuple(shaped(shape, dtype) for shape in shapes)] * cfg.num_hidden_layers
                         for shapes in (((P, K, C, S), (P, K, S, C)), own_shapes(cfg, B, sampling)))
    state = State(own_kv, shaped((B,)), shaped((B,), bool), shaped((B,)), shaped((B,)),
                  jax.eval_shape(lambda: jax.random.split(jax.random.key(0), B)))
    plan = decode_block.lower(params, adapter, prompt_kv, shaped((P, S), bool), state, 0, sampling.block,
                              settings.generation.group, cfg, sampling, (0,), cfg.vocab_size).compile().memory_analysis()
    return plan.temp_size_in_bytes, nbytes(prompt_kv) + nbytes(own_kv)


def _update(cfg, dtype, settings, prompt_tokens, params, adapter):
    """(largest temporaries of one group's update, bytes kept from its forward pass) with every sample at full length."""
    N, T, objective = settings.generation.group, settings.generation.max_new_tokens, objective_of(settings)
    S, R = bucket(prompt_tokens, 64), bucket(N * max(1, T - 1), 128)
    x_QD = shaped((S + R, cfg.hidden_size), dtype)
    layout = Packed(shaped((S,), bool), shaped((N, sample_slots(T - 1))), shaped((R,)), shaped((R,)))
    rope = jax.eval_shape(partial(rope_angles, cfg=cfg), shaped((S + R,)))
    layer, lora_layer = params["layers"][0], adapter["layers"][0]

    def forward(lora_layer, x_QD, layer, scale, rope, layout):
        return jax.vjp(lambda lo, x: BLOCKS[objective.remat](x, layer, lo, scale, rope, layout, None, cfg)[0], lora_layer, x_QD)

    def backward(lora_layer, x_QD, d_QD, layer, scale, rope, layout):
        return forward(lora_layer, x_QD, layer, scale, rope, layout)[1](d_QD)

    rest = (layer, adapter["scale"], rope, layout)
    plan = jax.jit(backward).lower(lora_layer, x_QD, x_QD, *rest).compile().memory_analysis()
    given = {(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves((lora_layer, rest))}  # kept by reference, not copied
    kept = sum(nbytes(leaf) for leaf in jax.tree.leaves(jax.eval_shape(forward, lora_layer, x_QD, *rest)[1])
               if (leaf.shape, leaf.dtype) not in given)
    C = objective.logit_chunk
    d_hidden_QD = shaped((S + R, cfg.hidden_size), jnp.float32)
    whole_C, real_C = shaped((C,)), shaped((C,), jnp.float32)
    sampled = Sampled(whole_C, whole_C, real_C, real_C, whole_C, real_C, real_C, real_C if objective.loss == "gspo" else None)
    head = chunk_gradient.lower(d_hidden_QD, x_QD, params, sampled, cfg=cfg, objective=objective,
                                vocab_used=cfg.vocab_size).compile().memory_analysis()
    hidden = 2 * (S + R) * cfg.hidden_size * 4
    return max(plan.temp_size_in_bytes, head.temp_size_in_bytes + hidden), cfg.num_hidden_layers * kept
