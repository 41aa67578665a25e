"""A .gguf file as a checkpoint: metadata as a config, tokens as a tokenizer, tensors dequantised to float32.

The container is parsed here, in well under a second; the optional `gguf` package only dequantises.  Tensors have the hub's
names.  If a tied model's file holds both embedding and head, the one quantised with more bits is used for both.
Not supported: files split in parts, big-endian files, architectures other than Qwen2 and Qwen3."""

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from rl.models.chat import Chat

SCALARS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
STRING, ARRAY = 8, 9
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5  # token types; all others are plain text
HUB_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
}
ARCHITECTURES = ("qwen2", "qwen3")  # llama's files reorder the channels of queries and keys and use another tokenizer
INPUT, OUTPUT = "token_embd.weight", "output.weight"
# How text is split before merging, by tokenizer.ggml.pre.
PRE_TOKENIZERS = {
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
# Converters mark every <|name|> as a control token; the checkpoint's own tokenizer decodes these as text.
PLAIN_NAMES = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>")


class Tensor(NamedTuple):
    shape: tuple[int, ...]  # outermost axis first, as in NumPy
    quantisation: int  # a GGMLQuantizationType
    start: int  # offset in the file, bytes
    size: int  # bytes


class GgufFile(Mapping):
    """The tensors of a .gguf file by hub name, each access giving a new float32 array.

    ImportError without the gguf package; ValueError if the file is damaged, cut off or one part of several."""

    def __init__(self, path: Path):
        try:
            import gguf
        except ImportError as error:
            raise ImportError("a .gguf file needs the gguf package: pip install gguf") from error
        self._gguf = gguf
        self._bytes = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
        try:
            self.metadata, tensors = self._parse()
        except (struct.error, IndexError, UnicodeDecodeError, OverflowError) as error:
            raise ValueError(f"the file is cut off or damaged in its header ({error}): fetch it again") from error
        end = max((t.start + t.size for t in tensors.values()), default=0)
        if end > self._bytes.size:
            raise ValueError(f"the file has {self._bytes.size:,} bytes, its header says {end:,}: it is cut off, fetch it again")
        if self.metadata.get("split.count", 1) > 1:
            raise ValueError("the model is split into several .gguf files: join them first (llama-gguf-split --merge)")
        self._tensors = self._by_hub_name(tensors)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._dequantised(self._tensors[name])

    def __iter__(self):
        return iter(self._tensors)

    def __len__(self):
        return len(self._tensors)

    def config(self) -> dict:
        """The equivalent of config.json, for ModelConfig.from_hf."""
        kind = self._field("general.architecture")
        if kind not in ARCHITECTURES:
            raise ValueError(f"general.architecture = {kind!r}: only .gguf files of {' and '.join(ARCHITECTURES)} are supported; "
                             "use the folder with safetensors")

        def field(key, default=None):
            return self._field(f"{kind}.{key}", default)

        heads, width = field("attention.head_count"), field("embedding_length")
        head_dim = field("attention.key_length", width // heads)
        rotated = field("rope.dimension_count", head_dim)
        scaling = field("rope.scaling.type", "default").replace("none", "default")
        for key in ("rope.scaling.factor", "rope.scale_linear"):
            if (factor := field(key, 1.0)) != 1.0 and scaling == "default":
                raise ValueError(f"{kind}.{key} = {factor}, but no type of scaling is named: use the folder with safetensors")
        return {
            "model_type": kind, "vocab_size": self._tensors["model.embed_tokens.weight"].shape[0], "hidden_size": width,
            "intermediate_size": field("feed_forward_length"), "num_hidden_layers": field("block_count"),
            "num_attention_heads": heads, "num_key_value_heads": field("attention.head_count_kv", heads), "head_dim": head_dim,
            "rms_norm_eps": field("attention.layer_norm_rms_epsilon"), "max_position_embeddings": field("context_length"),
            "rope_theta": field("rope.freq_base", 10000.0),
            "rope_scaling": {"rope_type": scaling, "partial_rotary_factor": rotated / head_dim},
            "use_sliding_window": bool(field("attention.sliding_window", 0)),
            "tie_word_embeddings": "lm_head.weight" not in self._tensors,
        }

    def chat(self) -> Chat:
        """The file's tokenizer and chat template."""
        names = self._field("tokenizer.ggml.tokens")
        ids = {key: self.metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom", "bos", "padding")}
        return Chat(self._tokenizer(), self.metadata.get("tokenizer.chat_template"), pad_id=ids["padding"],
                    eos_ids=[ids[key] for key in ("eos", "eot", "eom") if ids[key] is not None],
                    variables={f"{key}_token": names[ids[key]] for key in ("bos", "eos") if ids[key] is not None})

    def _tokenizer(self) -> Tokenizer:
        kind, pre = self._field("tokenizer.ggml.model"), self._field("tokenizer.ggml.pre", "default")
        if kind != "gpt2" or pre not in PRE_TOKENIZERS:
            raise ValueError(f"its tokenizer is {kind!r} with pre-tokenizer {pre!r}, only 'gpt2' with {sorted(PRE_TOKENIZERS)} "
                             "is supported; use the folder with tokenizer.json")
        names, kinds = self._field("tokenizer.ggml.tokens"), self._field("tokenizer.ggml.token_type")
        merges = [tuple(merge.split(" ")) for merge in self._field("tokenizer.ggml.merges")]
        vocab = {name: i for i, (name, kind) in enumerate(zip(names, kinds, strict=True)) if kind != UNUSED}
        try:
            tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
        except Exception as error:  # the library raises bare Exception
            raise ValueError(f"tokens and merges do not match ({error}): the file is damaged, fetch it again") from error
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(PRE_TOKENIZERS[pre]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
        tokenizer.decoder = decoders.ByteLevel()
        added = [(name, kind) for name, kind in zip(names, kinds, strict=True) if kind in (CONTROL, USER_DEFINED)]
        tokenizer.add_tokens([AddedToken(name, normalized=False, special=kind == CONTROL and name not in PLAIN_NAMES)
                              for name, kind in added])
        return tokenizer

    # ---- the container ----

    def _parse(self) -> tuple[dict, dict[str, Tensor]]:
        buffer = memoryview(self._bytes)
        if bytes(buffer[:4]) != b"GGUF":
            raise ValueError(f"not a GGUF file: it starts with {bytes(buffer[:8])!r} instead of b'GGUF'")
        version, n_tensors, n_fields = struct.unpack_from("<IQQ", buffer, 4)
        if version not in (2, 3):
            raise ValueError(f"GGUF version {version} is not supported, only 2 and 3, little-endian")
        metadata, position = {}, 24
        for _ in range(n_fields):
            key, position = _read_string(buffer, position)
            metadata[key], position = _read_value(buffer, position + 4, *struct.unpack_from("<I", buffer, position))
        found = []
        for _ in range(n_tensors):
            name, position = _read_string(buffer, position)
            n_axes, = struct.unpack_from("<I", buffer, position)
            *axes, kind, offset = struct.unpack_from(f"<{n_axes}QIQ", buffer, position + 4)
            position += 4 + 8 * n_axes + 12
            found.append((name, tuple(axes[::-1]), kind, offset))
        alignment = metadata.get("general.alignment", 32)
        data = -(-position // alignment) * alignment
        return metadata, {name: Tensor(shape=shape, quantisation=kind, start=data + offset,
                                       size=self._row_bytes(name, kind, shape[-1]) * math.prod(shape[:-1]))
                          for name, shape, kind, offset in found}

    def _row_bytes(self, name: str, kind: int, width: int) -> int:
        if kind not in self._gguf.GGML_QUANT_SIZES:
            raise ValueError(f"{name} has an unknown quantisation ({kind}); a newer package may know it: pip install -U gguf")
        per_block, block_bytes = self._gguf.GGML_QUANT_SIZES[kind]
        if width % per_block:
            raise ValueError(f"{name} has rows of {width} values, not a multiple of its quantisation's block of {per_block}")
        return width // per_block * block_bytes

    def _by_hub_name(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        named = {_hub_name(name): tensor for name, tensor in tensors.items() if name not in (INPUT, OUTPUT)}
        ends = [tensors[name] for name in (INPUT, OUTPUT) if name in tensors]
        if not ends:
            raise ValueError(f"{INPUT} is missing: the file does not hold a complete model")
        if len(ends) == 2 and not self._same_matrix(*ends):
            return named | {"model.embed_tokens.weight": ends[0], "lm_head.weight": ends[1]}
        return named | {"model.embed_tokens.weight": max(ends, key=lambda end: end.size)}

    def _same_matrix(self, one: Tensor, other: Tensor) -> bool:
        """Whether two tensors are quantisations of the same matrix, judged by 256 rows because no metadata says so.

        Quantisation to 2 bits changes a weight by a third; different matrices differ by more than their own norm."""
        if one.shape != other.shape:
            return False
        rows = np.unique(np.linspace(0, one.shape[0] - 1, 256).astype(int))
        a, b = self._dequantised(one, rows), self._dequantised(other, rows)
        return bool(np.linalg.norm(a - b) < 0.5 * min(np.linalg.norm(a), np.linalg.norm(b)))

    def _dequantised(self, tensor: Tensor, rows=slice(None)) -> np.ndarray:
        raw = np.asarray(self._bytes)[tensor.start : tensor.start + tensor.size].reshape(*tensor.shape[:-1], -1)[rows]
        try:
            return self._gguf.dequantize(np.array(raw), self._gguf.GGMLQuantizationType(tensor.quantisation))
        except NotImplementedError as error:
            raise ValueError(f"{error}; use a file with another quantisation, such as Q8_0 or Q4_K_M") from error

    def _field(self, key: str, default=None):
        value = self.metadata.get(key, default)
        if value is None:
            raise ValueError(f"{key} is missing in the metadata: the file does not hold a complete language model")
        return value


def _hub_name(name: str) -> str:
    if name == "output_norm.weight":
        return "model.norm.weight"
    parts = name.split(".")
    if parts[0] != "blk" or len(parts) != 4 or parts[2] not in HUB_NAMES:
        return name  # tensors that the model does not use are reported by their own name
    return f"model.layers.{parts[1]}.{HUB_NAMES[parts[2]]}.{parts[3]}"


def _read_string(buffer: memoryview, position: int) -> tuple[str, int]:
    length, = struct.unpack_from("<Q", buffer, position)
    start = position + 8
    if length > len(buffer) - start:
        raise IndexError(f"text of {length} bytes at byte {start}")
    return str(buffer[start : start + length], "utf-8"), start + length


def _read_value(buffer: memoryview, position: int, kind: int):
    """A metadata value and where it ends; a float32 becomes its shortest decimal, 1e-6 rather than 9.99...e-07."""
    if kind == STRING:
        return _read_string(buffer, position)
    if kind == ARRAY:
        return _read_array(buffer, position + 12, *struct.unpack_from("<IQ", buffer, position))
    if kind not in SCALARS:
        raise ValueError(f"unknown value type {kind} at byte {position}: the file is damaged or its format too new")
    dtype = np.dtype(SCALARS[kind])
    if position + dtype.itemsize > len(buffer):
        raise IndexError(f"number at byte {position}")
    value = np.frombuffer(buffer, dtype, 1, position)[0]
    return float(str(value)) if dtype.kind == "f" else value.item(), position + dtype.itemsize


def _read_array(buffer: memoryview, position: int, kind: int, count: int):
    if kind in SCALARS:
        dtype = np.dtype(SCALARS[kind])
        if position + count * dtype.itemsize > len(buffer):
            raise IndexError(f"array of {count} numbers at byte {position}")
        return np.frombuffer(buffer, dtype, count, position).tolist(), position + count * dtype.itemsize
    items = []
    for _ in range(count):
        item, position = _read_value(buffer, position, kind)
        items.append(item)
    return items, position
