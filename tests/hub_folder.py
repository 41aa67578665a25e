"""Small checkpoints in the hub's layout, as transformers 5 saves them; written with NumPy, safetensors and tokenizers."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "a"), ("Ġ", "hello"), ("i", "n")]
TEMPLATE = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nBe of help.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

CONFIG = {"vocab_size": 272, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 512, "initializer_range": 0.2,
          "attention_dropout": 0.0, "use_cache": True, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
WITH_LAYER_TYPES = {"rms_norm_eps": 1e-6, "layer_types": ["full_attention"] * 2, "max_window_layers": 28, "sliding_window": None,
                    "use_sliding_window": False, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
# With a context of 64 there are wavelengths below, between and above llama3's two bounds.
FAMILIES = {
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], **WITH_LAYER_TYPES},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "head_dim": 24, "attention_bias": False, **WITH_LAYER_TYPES},
    "llama": {"architectures": ["LlamaForCausalLM"], "head_dim": 24, "rms_norm_eps": 1e-5, "attention_bias": False,
              "mlp_bias": False, "pretraining_tp": 1, "rope_parameters": {
                  "rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 64}}}


def tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer: 256 bytes, a few merges, three control tokens and one added token that is plain text."""
    names = sorted(pre_tokenizers.ByteLevel.alphabet()) + ["".join(pair) for pair in MERGES]
    made = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=MERGES))
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(name, normalized=False) for name in CONTROL])
    made.add_tokens([AddedToken("<tool_call>", normalized=False)])
    first = CONTROL[0], made.token_to_id(CONTROL[0])  # some tokenizers do this; a rendered template must not get it as well
    made.post_processor = processors.TemplateProcessing(single=f"{CONTROL[0]} $A", special_tokens=[first])
    return made


def write_texts(folder: Path, template: str | None = TEMPLATE, **generation) -> None:
    """tokenizer.json, tokenizer_config.json and generation_config.json."""
    made = tokenizer()
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"} | ({"chat_template": template} if template else {})
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    generation = {"eos_token_id": [made.token_to_id("<|im_end|>")]} | generation
    (folder / "generation_config.json").write_text(json.dumps(generation))


def write_checkpoint(folder: Path, *, family="qwen2", tied=True, dtype=np.float32, shards=1, seed=0,
                     **config) -> dict[str, np.ndarray]:
    """A random model, H != K, biases and norms away from their defaults; returns the tensors by name."""
    own = {"model_type": family, "tie_word_embeddings": tied, "dtype": np.dtype(dtype).name}
    about = CONFIG | FAMILIES[family] | own | config
    rng = np.random.default_rng(seed)
    tensors = {name: random_tensor(rng, name, shape, about["initializer_range"]).astype(dtype)
               for name, shape in shapes_of(about).items()}
    write_texts(folder)
    (folder / "config.json").write_text(json.dumps(about))
    save_sharded(folder, tensors, shards)
    return tensors


def shapes_of(about: dict) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a model with that config.json."""
    D, F, V = about["hidden_size"], about["intermediate_size"], about["vocab_size"]
    C = about.get("head_dim") or D // about["num_attention_heads"]
    HC, KC = about["num_attention_heads"] * C, about["num_key_value_heads"] * C
    layer = {"input_layernorm.weight": (D,), "post_attention_layernorm.weight": (D,), "self_attn.q_proj.weight": (HC, D),
             "self_attn.k_proj.weight": (KC, D), "self_attn.v_proj.weight": (KC, D), "self_attn.o_proj.weight": (D, HC),
             "mlp.gate_proj.weight": (F, D), "mlp.up_proj.weight": (F, D), "mlp.down_proj.weight": (D, F)}
    if about["model_type"] == "qwen2":
        layer |= {"self_attn.q_proj.bias": (HC,), "self_attn.k_proj.bias": (KC,), "self_attn.v_proj.bias": (KC,)}
    if about["model_type"] == "qwen3":
        layer |= {"self_attn.q_norm.weight": (C,), "self_attn.k_norm.weight": (C,)}
    ends = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,)}
    return ends | ({} if about["tie_word_embeddings"] else {"lm_head.weight": (V, D)}) | {
        f"model.layers.{i}.{name}": shape for i in range(about["num_hidden_layers"]) for name, shape in layer.items()}


def random_tensor(rng, name: str, shape: tuple[int, ...], scale: float) -> np.ndarray:
    """Matrices of that standard deviation; biases around 0 and weights of norms around 1."""
    noise = rng.standard_normal(shape)
    return scale * noise if len(shape) == 2 else 0.3 * noise + (0 if name.endswith("bias") else 1)


def save_sharded(folder: Path, tensors: dict[str, np.ndarray], shards: int) -> None:
    """model.safetensors, or so many files of about the same size and their index."""
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    total, before, files = sum(value.nbytes for value in tensors.values()), 0, [{} for _ in range(shards)]
    for name, value in tensors.items():
        files[shards * before // total][name] = value
        before += value.nbytes
    weight_map = {}
    for number, part in enumerate(files, 1):
        file = f"model-{number:05d}-of-{shards:05d}.safetensors"
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
