"""Floating-point operations of the matrix products that the work needs, which bench.py compares with the machine's limit.

`bench` is bench.py's Bench: settings, a model, its prompts, and the number of sampled tokens."""

from model_config import PROJECTIONS, ModelConfig, projection_shapes


def projection_flop(cfg: ModelConfig, rank: int, targets=PROJECTIONS, names=PROJECTIONS) -> float:
    """Per token: the projections `names` of one layer, with adapters on `targets`."""
    shapes = {name: shape for part in projection_shapes(cfg).values() for name, shape in part.items()}
    return 2 * sum(d * e + rank * (d + e) * (name in targets) for name, (d, e) in shapes.items() if name in names)


def layer_flop(cfg: ModelConfig, rank: int, targets=PROJECTIONS) -> float:
    """Per token: all projections of all layers, with adapters on `targets`."""
    return cfg.num_hidden_layers * projection_flop(cfg, rank, targets)


def layers_of(bench) -> float:
    """Per token: all projections of this model and its adapter."""
    m = bench.settings.model
    return layer_flop(bench.model.cfg, m.lora_rank, m.lora_targets.split(","))


def head_flop(cfg: ModelConfig) -> float:
    """Per token: the vocabulary projection."""
    return 2 * cfg.vocab_size * cfg.hidden_size


def prompts_flop(bench) -> float:
    """Prefill: all prompt tokens but the last of each, without what the last layer computes besides keys and values."""
    m, cfg = bench.settings.model, bench.model.cfg
    targets = m.lora_targets.split(",")
    unused = projection_flop(cfg, m.lora_rank, targets, set(PROJECTIONS) - {"k_proj", "v_proj"})
    return sum(len(p.ids) - 1 for p in bench.prompts) * (layers_of(bench) - unused)


def sampler_flop(bench) -> float:
    """Prefill, then layers and head once for each sampled token."""
    return prompts_flop(bench) + bench.tokens * (layers_of(bench) + head_flop(bench.model.cfg))


def update_flop(bench) -> float:
    """Forward, and backward with respect to the activations, for the weights are frozen; recomputation does not count."""
    tokens = sum(len(p.ids) for p in bench.prompts) + bench.tokens
    return 2 * (tokens * layers_of(bench) + bench.tokens * head_flop(bench.model.cfg))
