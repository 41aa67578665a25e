"""The floating-point operations that work has to do, its products alone: what a time is compared with by the machine's limit.

`bench` is what benchmarks/bench.py measures: settings, a model, its prompts, and how many tokens are sampled in all."""


from model_config import PROJECTIONS, ModelConfig, projection_shapes


def projection_flop(cfg: ModelConfig, rank: int, targets=PROJECTIONS, names=PROJECTIONS) -> float:
    """Of these projections of one layer and their adapters, for one token."""
    shapes = {name: shape for part in projection_shapes(cfg).values() for name, shape in part.items()}
    return 2 * sum(d * e + rank * (d + e) * (name in targets) for name, (d, e) in shapes.items() if name in names)


def layer_flop(cfg: ModelConfig, rank: int, targets=PROJECTIONS) -> float:
    """Of all projections of all layers and their adapters, for one token."""
    return cfg.num_hidden_layers * projection_flop(cfg, rank, targets)


def layers_of(bench) -> float:
    """The same of the model and the adapter at hand."""
    m = bench.settings.model
    return layer_flop(bench.model.cfg, m.lora_rank, m.lora_targets.split(","))


def head_flop(cfg: ModelConfig) -> float:
    """Of the vocabulary projection, for one token."""
    return 2 * cfg.vocab_size * cfg.hidden_size


def prompts_flop(bench) -> float:
    """Prompts but for their last tokens, with which sampling begins. Of the last layer nothing but keys and values is read."""
    m, cfg = bench.settings.model, bench.model.cfg
    targets = m.lora_targets.split(",")
    unread = projection_flop(cfg, m.lora_rank, targets, set(PROJECTIONS) - {"k_proj", "v_proj"})
    return sum(len(p.ids) - 1 for p in bench.prompts) * (layers_of(bench) - unread)


def sampler_flop(bench) -> float:
    """Prompts once; then for each sampled token one through layers and head."""
    return prompts_flop(bench) + bench.tokens * (layers_of(bench) + head_flop(bench.model.cfg))


def update_flop(bench) -> float:
    """Forward, and backward by the inputs: the weights are frozen. What remat computes again is no work that had to be done."""
    tokens = sum(len(p.ids) for p in bench.prompts) + bench.tokens
    return 2 * (tokens * layers_of(bench) + bench.tokens * head_flop(bench.model.cfg))
