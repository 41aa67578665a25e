"""Small checkpoints in the hub's layout, written by transformers and tokenizers."""

import json
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen3Config

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

# With a context of 64 there are wavelengths below, between and above llama3's two bounds.
FAMILIES = {
    "qwen2": (Qwen2Config, {}),
    "qwen3": (Qwen3Config, {"head_dim": 24}),
    "llama": (LlamaConfig, {"head_dim": 24, "rms_norm_eps": 1e-5, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}})}


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


def transformers_ids(made: Tokenizer, template: str, messages: list[dict], **names) -> list[int]:
    """The ids that transformers gives for a conversation, without thinking and with the date that rl/models/chat.py uses."""
    oracle = PreTrainedTokenizerFast(tokenizer_object=made, chat_template=template, **names)
    return oracle.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False,
                                      enable_thinking=False, date_string="26 Jul 2024")


def write_texts(folder: Path, template: str | None = TEMPLATE, **generation) -> None:
    """tokenizer.json, tokenizer_config.json and generation_config.json."""
    made = tokenizer()
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"} | ({"chat_template": template} if template else {})
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    generation = {"eos_token_id": [made.token_to_id("<|im_end|>")]} | generation
    (folder / "generation_config.json").write_text(json.dumps(generation))


def write_checkpoint(folder: Path, *, family="qwen2", tied=True, dtype=torch.float32, shards=1, seed=0, **config):
    """A random model saved by transformers, H != K, biases and norms away from their defaults; returns the model."""
    torch.manual_seed(seed)
    about = dict(vocab_size=272, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=tied, initializer_range=0.2,
                 eos_token_id=None, bos_token_id=None)
    kind, own = FAMILIES[family]
    model = AutoModelForCausalLM.from_config(kind(**about | own | config)).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim == 1:
                value.copy_(0.3 * torch.randn_like(value) + (0 if name.endswith("bias") else 1))
    model.to(dtype)
    size = sum(value.numel() * value.element_size() for value in model.parameters())
    model.save_pretrained(folder, max_shard_size=10 * size if shards == 1 else size // shards)
    write_texts(folder)
    return model
