"""transformers and peft (requirements-oracles.txt), opened by slow tests to compare with; a test is skipped without them."""

import numpy as np
import pytest
from tokenizers import Tokenizer


def package(name: str):
    """torch, transformers or peft."""
    module = pytest.importorskip(name, reason=f"needs {name}: requirements-oracles.txt")
    if name == "torch":
        module.set_num_threads(1)    # tiny products: more threads only wait for each other
    return module


def opened(folder, dtype="float32"):
    """The folder's model as transformers opens it."""
    package("torch")
    return package("transformers").AutoModelForCausalLM.from_pretrained(str(folder), dtype=dtype).eval()


def adapted(folder, adapter):
    """The folder's model with the adapter in that folder, as peft opens it."""
    return package("peft").PeftModel.from_pretrained(opened(folder), str(adapter)).eval()


def logits(model, tokens) -> np.ndarray:
    """Logits of a batch of ids, in float64."""
    torch = package("torch")
    with torch.no_grad():
        return model(torch.tensor(np.asarray(tokens))).logits.double().numpy()


def save_again(folder, to, dtype="float32", shards=1):
    """Have transformers write the folder's model elsewhere, in a dtype and in at least so many files; its texts are copied."""
    model = opened(folder, dtype)
    size = sum(value.numel() * value.element_size() for value in model.parameters())
    model.save_pretrained(to, max_shard_size=10 * size if shards == 1 else size // shards)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (to / name).write_bytes((folder / name).read_bytes())


def ids(made: Tokenizer, template: str, messages: list[dict], **names) -> list[int]:
    """The ids of a conversation, without thinking and with the date that rl/models/chat.py uses."""
    oracle = package("transformers").PreTrainedTokenizerFast(tokenizer_object=made, chat_template=template, **names)
    return oracle.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False,
                                      enable_thinking=False, date_string="26 Jul 2024")
