"""A complete checkpoint in the hub's layout, small enough to be made by every test session.

A Qwen2 of about 110,000 random values with a byte-level BPE tokenizer, ChatML's control tokens and template, a tied embedding,
and more embedding rows than token ids. The files are the same in every run; making them needs neither torch nor transformers,
and both can open them. It writes noise: tests that need right answers bring their own texts."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from rl.tasks import REQUEST, STYLE_HINT, SYSTEM
from tasks.lc_easy_tasks import provide

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
USED, ROWS = 512, 544    # used token ids, rows of the embedding
WIDTH, MLP, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 64, 128, 2, 4, 2, 16
WORDS = Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEFAULT_SYSTEM = "You are a helpful assistant."
TEMPLATE = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
            f"{{{{ '<|im_start|>system\\n{DEFAULT_SYSTEM}<|im_end|>\\n' }}}}{{% endif %}}"
            "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def make_tiny(folder: Path, seed: int = 0) -> Path:
    """Make `folder` and write the checkpoint into it; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tiny_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    end_of_text, _, im_end = map(tokenizer.token_to_id, CONTROL)
    files = {
        "config.json": {
            "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "vocab_size": ROWS,
            "hidden_size": WIDTH, "intermediate_size": MLP, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS, "max_position_embeddings": 2048, "rope_theta": 10000.0, "rms_norm_eps": 1e-6,
            "tie_word_embeddings": True, "torch_dtype": "float32", "bos_token_id": end_of_text, "eos_token_id": im_end},
        "generation_config.json": {
            "bos_token_id": end_of_text, "pad_token_id": end_of_text, "eos_token_id": [im_end, end_of_text],
            "do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.1},
        "tokenizer_config.json": {
            "tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
            "unk_token": None, "add_prefix_space": False, "clean_up_tokenization_spaces": False, "model_max_length": 2048,
            "chat_template": TEMPLATE}}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")
    save_file(tiny_tensors(seed), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def tiny_tokenizer() -> Tokenizer:
    """Byte-level BPE trained on the tasks' prompts and solutions, so that a prompt takes a few hundred ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(WORDS, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tasks, _ = provide("")
    texts = [REQUEST, STYLE_HINT, SYSTEM, *(f"{task.signature}\n{task.text}\n{task.reference}" for task in tasks)]
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=USED - len(CONTROL), show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in CONTROL])
    return tokenizer


def tiny_tensors(seed: int) -> dict[str, np.ndarray]:
    """Random weights by checkpoint name, large enough for predictions that are far from uniform."""
    rng = np.random.default_rng(seed)
    inner, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes = {"model.embed_tokens.weight": (ROWS, WIDTH), "model.norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        shapes |= {f"{at}{norm}_layernorm.weight": (WIDTH,) for norm in ("input", "post_attention")}
        shapes |= {f"{at}self_attn.{p}_proj.weight": (out, WIDTH) for p, out in (("q", inner), ("k", kv), ("v", kv))}
        shapes |= {f"{at}self_attn.{p}_proj.bias": (out,) for p, out in (("q", inner), ("k", kv), ("v", kv))}
        shapes |= {f"{at}self_attn.o_proj.weight": (WIDTH, inner), f"{at}mlp.down_proj.weight": (WIDTH, MLP)}
        shapes |= {f"{at}mlp.{p}_proj.weight": (MLP, WIDTH) for p in ("gate", "up")}
    scales = {name: 0.1 if len(shape) == 1 else 0.3 for name, shape in shapes.items()}
    return {name: (name.endswith("norm.weight") + scales[name] * rng.standard_normal(shape)).astype(np.float32)
            for name, shape in shapes.items()}
