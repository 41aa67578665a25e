"""Predicted memory of a run, from shapes alone: XLA's own plan of the largest programs, without weights or data.

The peak is that of sampling or of the update, whichever is larger.  It sums the buffers that exist at that time: the frozen
weights, the adapter with its moments and gradient, the caches, what the layers keep for the backward pass, and the temporaries
that XLA plans for the running program.  The plan of a CPU differs from a GPU's, whose real peak is the allocator's
peak_bytes_in_use."""

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
from rl.training.packing import attention_length, bucket
from rl.training.sampler import DecodeState, decode_block, own_shapes, prompt_slots, sampling_of
from rl.training.update import chunk_gradient

FASTEST_FIRST = ("none", "dots", "mlp", "full")  # values of REMAT; each is slower and smaller than the one before


def planned_memory(cfg: ModelConfig, dtype, settings: Settings, prompt_tokens: int) -> dict[str, int]:
    """Bytes by use, and the predicted `peak`, of training on prompts of that length with every sample at full length."""
    params, adapter = _model(cfg, dtype, settings)
    sampler, caches = _sampler(cfg, dtype, settings, prompt_tokens, params, adapter)
    samples = settings.model.update_samples or settings.generation.group
    update = UpdateMemory(cfg, dtype, settings, prompt_tokens, params, adapter, samples)
    kept, temporaries = update.kept(loss_of(settings).remat), update.temporaries
    figures = {"weights": nbytes(params), "adapter, gradient and moments": 4 * nbytes(adapter["layers"]),
               "key/value caches": caches, "sampler temporaries": sampler,
               "kept for the backward pass": kept, "update temporaries": temporaries}
    fixed = figures["weights"] + figures["adapter, gradient and moments"]
    return {**figures, "peak": fixed + max(caches + sampler, kept + temporaries)}


class UpdateChoice(NamedTuple):
    """REMAT and UPDATE_SAMPLES as chosen by `pick_update`."""

    remat: str
    samples: int
    oversize: int = 0  # planned bytes if they exceed the budget; 0: it fits


def pick_update(cfg: ModelConfig, dtype, settings: Settings, prompt_tokens: int, budget: float) -> UpdateChoice:
    """The fastest update that is planned to fit into `budget` bytes; REMAT and UPDATE_SAMPLES stay as set, if they are.

    First whole groups with any REMAT, then half a group at a time, a quarter, ..., one sample; the smallest if nothing fits."""
    m, params, adapter = settings.model, *_model(cfg, dtype, settings)
    samples = [m.update_samples or settings.generation.group]
    while not m.update_samples and samples[-1] > 1:
        samples.append(samples[-1] // 2)
    remats = FASTEST_FIRST if m.remat == "auto" else (m.remat,)
    fixed = nbytes(params) + 4 * nbytes(adapter["layers"])
    for at_once in samples:
        update = UpdateMemory(cfg, dtype, settings, prompt_tokens, params, adapter, at_once)
        for remat in remats if at_once == samples[0] else remats[-1:]:
            room = budget - fixed - update.kept(remat)
            # Planning the temporaries takes seconds; with so much room they fit in any case.
            if room > budget / 2 or (room > 0 and room > update.temporaries):
                return UpdateChoice(remat, at_once)
    return UpdateChoice(remats[-1], samples[-1], fixed + update.kept(remats[-1]) + update.temporaries)


def adapted_width(cfg: ModelConfig, targets: Sequence[str] = PROJECTIONS) -> int:
    """Trained values per unit of LoRA rank: in + out of every adapted projection of every layer."""
    shapes = [shape for part in projection_shapes(cfg).values() for name, shape in part.items() if name in targets]
    return cfg.num_hidden_layers * sum(d + e for d, e in shapes)


def abstract(shape, dtype=jnp.int32):
    """An array without data."""
    return jax.ShapeDtypeStruct(shape, dtype)


def nbytes(tree) -> int:
    """Bytes of all arrays of a tree."""
    return sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


def _model(cfg, dtype, settings):
    """Parameters and adapter, without data."""
    params = jax.tree.map(lambda spec: abstract(spec.kept_shape, dtype), param_specs(cfg), is_leaf=lambda x: isinstance(x, Spec))
    new = partial(lora.init, cfg=cfg, rank=settings.model.lora_rank, alpha=1.0, targets=settings.model.lora_targets.split(","))
    return params, jax.eval_shape(new, jax.random.key(0))


def _sampler(cfg, dtype, settings, prompt_tokens, params, adapter):
    """(temporaries of a block of decoding with every row live, bytes of the caches)."""
    sampling, P = sampling_of(settings), settings.trainer.tasks_per_step
    B, S = P * settings.generation.group, prompt_slots(prompt_tokens)
    K, C = cfg.num_key_value_heads, cfg.head_dim
    prompt_kv, own_kv = ([tuple(abstract(shape, dtype) for shape in shapes)] * cfg.num_hidden_layers
                         for shapes in (((P, K, C, S), (P, K, S, C)), own_shapes(cfg, B, sampling)))
    state = DecodeState(own_kv=own_kv, token_B=abstract((B,)), done_B=abstract((B,), bool), place_B=abstract((B,)),
                        prompt_len_B=abstract((B,)), key_B=jax.eval_shape(lambda: jax.random.split(jax.random.key(0), B)))
    plan = decode_block.lower(params, adapter, prompt_kv, abstract((P, S), bool), state, 0, sampling.block,
                              settings.generation.group, cfg, sampling, (0,), cfg.vocab_size).compile().memory_analysis()
    return plan.temp_size_in_bytes, nbytes(prompt_kv) + nbytes(own_kv)


class UpdateMemory:
    """Memory of the update of N = samples of a group at a time, each at full length."""

    def __init__(self, cfg, dtype, settings, prompt_tokens, params, adapter, samples):
        self._cfg, self._params, self._loss = cfg, params, loss_of(settings)
        N, T = samples, settings.generation.max_new_tokens
        S, Y = bucket(prompt_tokens, 64), bucket(N * max(1, T - 1), 128)
        self._x_QD, self._lora = abstract((S + Y, cfg.hidden_size), dtype), adapter["layers"][0]
        layout = Packed(mask_S=abstract((S,), bool), index_NT=abstract((N, attention_length(T - 1))), sample_Y=abstract((Y,)),
                        t_Y=abstract((Y,)))
        rope = jax.eval_shape(partial(rope_angles, cfg=cfg), abstract((S + Y,)))
        self._rest = (params["layers"][0], adapter["scale"], rope, layout)

    def _forward(self, remat, lora_layer, x_QD, layer, scale, rope, layout):
        return jax.vjp(lambda lo, x: BLOCKS[remat](x, layer, lo, scale, rope, layout, None, self._cfg)[0], lora_layer, x_QD)

    def kept(self, remat: str) -> int:
        """Bytes that the forward pass of all layers keeps for the backward pass, without buffers that already exist."""
        def of_a_layer(lora_layer, x_QD, *rest):
            # Existing buffers are recognised by identity: by shape, x of 896 tokens would pass for a weight of 896 x 896.
            existing = {id(leaf) for leaf in jax.tree.leaves((lora_layer, rest))}
            pull_back = self._forward(remat, lora_layer, x_QD, *rest)[1]
            return [leaf for leaf in jax.tree.leaves(pull_back) if id(leaf) not in existing]

        return self._cfg.num_hidden_layers * nbytes(jax.eval_shape(of_a_layer, self._lora, self._x_QD, *self._rest))

    @cached_property
    def temporaries(self) -> int:
        """Bytes of the backward pass of a layer, or of one chunk of the vocabulary projection, whichever is larger."""
        def backward(lora_layer, x_QD, d_QD, *rest):
            return self._forward(self._loss.remat, lora_layer, x_QD, *rest)[1](d_QD)

        layer = jax.jit(backward).lower(self._lora, self._x_QD, self._x_QD, *self._rest).compile().memory_analysis()
        d_hidden_QD = abstract(self._x_QD.shape, jnp.float32)
        ints_M, floats_M = abstract((self._loss.logit_chunk,)), abstract((self._loss.logit_chunk,), jnp.float32)
        targets = Targets(source_M=ints_M, target_M=ints_M, sampler_logprob_M=floats_M, advantage_M=floats_M, sample_M=ints_M,
                          weight_M=floats_M, base_logprob_M=floats_M,
                          sample_log_ratio_M=floats_M if self._loss.kind == "gspo" else None)
        head = chunk_gradient.lower(d_hidden_QD, self._x_QD, self._params, targets, cfg=self._cfg, loss=self._loss,
                                    vocab_used=self._cfg.vocab_size).compile().memory_analysis()
        return max(layer.temp_size_in_bytes, head.temp_size_in_bytes + 2 * nbytes(d_hidden_QD))
