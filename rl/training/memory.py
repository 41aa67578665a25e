"""What a run will need, from shapes alone: XLA's own plan of the largest programs, without weights or data.

The peak is the larger of sampling and updating.  Each figure is a buffer that must exist then: the frozen weights, the
adapter with its moments and gradient, the caches, the layer inputs kept for the backward pass, and the temporaries that XLA
plans for the program at work.  A CPU's plan is not a GPU's; on a GPU compare with the allocator's peak_bytes_in_use."""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attention import Packed
from model_config import PROJECTIONS, ModelConfig, Spec, param_specs, projection_shapes
from qwen2_jax import BLOCKS, rope_angles
from rl.settings.declared import Settings
from rl.training import lora
from rl.training.loss import Targets, loss_of
from rl.training.packing import bucket, sample_slots
from rl.training.sampler import State, decode_block, own_shapes, prompt_slots, sampling_of
from rl.training.update import chunk_gradient


def nbytes(tree) -> int:
    """Bytes of all arrays of a tree."""
    return sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


def adapted_width(cfg: ModelConfig, targets: Sequence[str] = PROJECTIONS) -> int:
    """Trained values per unit of LoRA rank: in + out of every adapted projection of every layer."""
    shapes = [shape for part in projection_shapes(cfg).values() for name, shape in part.items() if name in targets]
    return cfg.num_hidden_layers * sum(d + e for d, e in shapes)


def shaped(dims, dtype=jnp.int32):
    """A stand-in for an array."""
    return jax.ShapeDtypeStruct(dims, dtype)


QUICKEST = ("none", "dots", "mlp", "full")  # values of REMAT, each slower than the one before and smaller


def planned_memory(cfg: ModelConfig, dtype, settings: Settings, prompt_tokens: int) -> dict[str, int]:
    """Bytes by use, and the predicted `peak`, of training with prompts of up to so many tokens, every sample at full length."""
    params, adapter = _model(cfg, dtype, settings)
    sampler, caches = _sampler(cfg, dtype, settings, prompt_tokens, params, adapter)
    samples = settings.model.update_samples or settings.generation.group
    update = Update(cfg, dtype, settings, prompt_tokens, params, adapter, samples)
    kept, temporaries = update.kept(loss_of(settings).remat), update.temporaries
    figures = {"weights": nbytes(params), "adapter, gradient and moments": 4 * nbytes(adapter["layers"]),
               "key/value caches": caches, "sampler temporaries": sampler,
               "kept for the backward pass": kept, "update temporaries": temporaries}
    fixed = figures["weights"] + figures["adapter, gradient and moments"]
    return {**figures, "peak": fixed + max(caches + sampler, kept + temporaries)}


class Picked(NamedTuple):
    """How the update is made."""

    remat: str
    samples: int  # of a group at a time
    over: int = 0  # bytes that it is planned to take where they are too many; 0: it fits


def pick_update(cfg: ModelConfig, dtype, settings: Settings, prompt_tokens: int, budget: float) -> Picked:
    """REMAT and UPDATE_SAMPLES, where they are left open the quickest with which the update is planned to fit into so many bytes.

    Whole groups first, whatever the backward pass computes again; then half of a group at a time, a quarter, ..., one sample.
    Where nothing fits, the smallest."""
    m, params, adapter = settings.model, *_model(cfg, dtype, settings)
    samples = [m.update_samples or settings.generation.group]
    while not m.update_samples and samples[-1] > 1:
        samples.append(samples[-1] // 2)
    remats = QUICKEST if m.remat == "auto" else (m.remat,)
    fixed = nbytes(params) + 4 * nbytes(adapter["layers"])
    for at_once in samples:
        update = Update(cfg, dtype, settings, prompt_tokens, params, adapter, at_once)
        for remat in remats if at_once == samples[0] else remats[-1:]:
            room = budget - fixed - update.kept(remat)
            # where there is so much that the temporaries need no plan, none is made: it takes seconds
            if room > budget / 2 or (room > 0 and room > update.temporaries):
                return Picked(remat, at_once)
    return Picked(remats[-1], samples[-1], fixed + update.kept(remats[-1]) + update.temporaries)


def _model(cfg, dtype, settings):
    """Shapes of the parameters and of the adapter."""
    params = jax.tree.map(lambda spec: shaped(spec.kept_shape, dtype), param_specs(cfg), is_leaf=lambda x: isinstance(x, Spec))
    new = partial(lora.init, cfg=cfg, rank=settings.model.lora_rank, alpha=1.0, targets=settings.model.lora_targets.split(","))
    return params, jax.eval_shape(new, jax.random.key(0))


def _sampler(cfg, dtype, settings, prompt_tokens, params, adapter):
    """(temporaries of a decoding block, bytes of the caches) with every row alive."""
    sampling, P = sampling_of(settings), settings.trainer.tasks_per_step
    B, S = P * settings.generation.group, prompt_slots(prompt_tokens)
    K, C = cfg.num_key_value_heads, cfg.head_dim
    prompt_kv, own_kv = ([tuple(shaped(shape, dtype) for shape in shapes)] * cfg.num_hidden_layers
                         for shapes in (((P, K, C, S), (P, K, S, C)), own_shapes(cfg, B, sampling)))
    state = State(own_kv, shaped((B,)), shaped((B,), bool), shaped((B,)), shaped((B,)),
                  jax.eval_shape(lambda: jax.random.split(jax.random.key(0), B)))
    plan = decode_block.lower(params, adapter, prompt_kv, shaped((P, S), bool), state, 0, sampling.block,
                              settings.generation.group, cfg, sampling, (0,), cfg.vocab_size).compile().memory_analysis()
    return plan.temp_size_in_bytes, nbytes(prompt_kv) + nbytes(own_kv)


class Update:
    """The update of so many samples of a group, each at full length."""

    def __init__(self, cfg, dtype, settings, prompt_tokens, params, adapter, samples):
        self._cfg, self._params, self._objective = cfg, params, loss_of(settings)
        N, T = samples, settings.generation.max_new_tokens
        S, R = bucket(prompt_tokens, 64), bucket(N * max(1, T - 1), 128)
        self._x_QD, self._lora = shaped((S + R, cfg.hidden_size), dtype), adapter["layers"][0]
        layout = Packed(shaped((S,), bool), shaped((N, sample_slots(T - 1))), shaped((R,)), shaped((R,)))
        rope = jax.eval_shape(partial(rope_angles, cfg=cfg), shaped((S + R,)))
        self._rest = (params["layers"][0], adapter["scale"], rope, layout)

    def _forward(self, remat, lora_layer, x_QD, layer, scale, rope, layout):
        return jax.vjp(lambda lo, x: BLOCKS[remat](x, layer, lo, scale, rope, layout, None, self._cfg)[0], lora_layer, x_QD)

    def kept(self, remat: str) -> int:
        """Bytes from the forward pass of all layers, but for what is there anyway."""
        def of_a_layer(lora_layer, x_QD, *rest):
            # What is there anyway is told by identity: by its shape, x of 896 tokens would be a weight of 896 x 896.
            given = {id(leaf) for leaf in jax.tree.leaves((lora_layer, rest))}
            pull_back = self._forward(remat, lora_layer, x_QD, *rest)[1]
            return [leaf for leaf in jax.tree.leaves(pull_back) if id(leaf) not in given]

        return self._cfg.num_hidden_layers * nbytes(jax.eval_shape(of_a_layer, self._lora, self._x_QD, *self._rest))

    @cached_property
    def temporaries(self) -> int:
        """Bytes of the larger of a layer's backward pass and of one chunk of the vocabulary projection's."""
        def backward(lora_layer, x_QD, d_QD, *rest):
            return self._forward(self._objective.remat, lora_layer, x_QD, *rest)[1](d_QD)

        layer = jax.jit(backward).lower(self._lora, self._x_QD, self._x_QD, *self._rest).compile().memory_analysis()
        C, loss = self._objective.logit_chunk, self._objective.loss
        d_hidden_QD, whole_C, real_C = shaped(self._x_QD.shape, jnp.float32), shaped((C,)), shaped((C,), jnp.float32)
        sampled = Targets(whole_C, whole_C, real_C, real_C, whole_C, real_C, real_C, real_C if loss == "gspo" else None)
        head = chunk_gradient.lower(d_hidden_QD, self._x_QD, self._params, sampled, cfg=self._cfg, objective=self._objective,
                                    vocab_used=self._cfg.vocab_size).compile().memory_analysis()
        return max(layer.temp_size_in_bytes, head.temp_size_in_bytes + 2 * nbytes(d_hidden_QD))
