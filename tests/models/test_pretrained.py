"""Checkpoints in the hub's layout and .gguf files give the logits of their tensors; damaged ones are refused by name."""

import json
import shutil
import struct
import sys

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_config import SHAPES
from qwen2_jax import forward
from rl.errors import InputError
from rl.models import pretrained
from rl.models.chat import Chat
from rl.models.gguf import GgufFile
from rl.models.hub import HUB_IDS, tokenizer_file
from rl.models.pretrained import ModelError, load, resolve
from rl.models.tensors import SafeTensors
from rl.settings.declared import LEAVES
from rl.settings.paths import ROOT
from tests import oracles
from tests.hub_folder import CONTROL, MERGES, TEMPLATE, tokenizer, write_checkpoint
from validate_forward import float64_run

TOKENS = np.array([[5, 9, 250, 17, 17, 3, 100], [61, 60, 59, 58, 57, 56, 55]])
MESSAGES = [{"role": "system", "content": "a b"}, {"role": "user", "content": "hello <|im_end|> é"}]


def our_logits(path, dtype=jnp.float32):
    model = load(resolve(str(path)), dtype)
    return np.asarray(forward(model.params, None, TOKENS, np.ones(TOKENS.shape, bool), model.cfg))


def their_logits(path):
    return oracles.logits(oracles.opened(path), TOKENS)


def exact_logits(path, tensors):
    """Those of these tensors, by the NumPy model of validate_forward.py; the config alone is the folder's."""
    return np.stack(float64_run(tensors.__getitem__, resolve(str(path)).cfg, TOKENS.tolist()).logits)


@pytest.fixture
def folder(tmp_path):
    """A complete two-layer checkpoint in three shards."""
    write_checkpoint(tmp_path / "model", shards=3)
    return tmp_path / "model"


# ---- loading ----


FLOATS = [jnp.float32, jnp.float16, jnp.bfloat16]
each_float = pytest.mark.parametrize("dtype", FLOATS, ids=[np.dtype(dtype).name for dtype in FLOATS])
tied_or_not = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
in_one_or_three = pytest.mark.parametrize("shards", [1, 3])


@each_float
@tied_or_not
@in_one_or_three
def test_logits_are_those_of_the_tensors(tmp_path, tied, shards, dtype):
    """One file or several, tied or not, in each float type: the fp32 logits are those of a float64 model of the tensors."""
    tensors = write_checkpoint(tmp_path, tied=tied, shards=shards, dtype=dtype)
    assert len(list(tmp_path.glob("*.safetensors"))) == shards

    np.testing.assert_allclose(our_logits(tmp_path), exact_logits(tmp_path, tensors), atol=5e-5, rtol=2e-5)


@pytest.mark.slow
@each_float
@tied_or_not
@in_one_or_three
def test_logits_are_those_of_transformers(tmp_path, tied, shards, dtype):
    """The same of folders that transformers has written, which it opens itself."""
    write_checkpoint(tmp_path / "ours", tied=tied)
    oracles.save_again(tmp_path / "ours", tmp_path / "theirs", np.dtype(dtype).name, shards)
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) >= shards

    np.testing.assert_allclose(our_logits(tmp_path / "theirs"), their_logits(tmp_path / "theirs"), atol=2e-5, rtol=2e-5)


def test_width_of_heads_is_free(tmp_path):
    """head_dim need not be hidden_size / heads."""
    tensors = write_checkpoint(tmp_path, head_dim=8, num_attention_heads=6, num_key_value_heads=3)

    np.testing.assert_allclose(our_logits(tmp_path), exact_logits(tmp_path, tensors), atol=5e-5, rtol=2e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_parameters_have_the_dtype_asked_for(tmp_path, dtype):
    """Every parameter is rounded once, from the file's value."""
    tensors = write_checkpoint(tmp_path, dtype=jnp.bfloat16)
    params = load(resolve(str(tmp_path)), dtype).params
    want = tensors["model.layers.1.mlp.down_proj.weight"].T.astype(dtype)

    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(dtype)}
    np.testing.assert_array_equal(np.asarray(params["layers"][1]["mlp"]["down_proj"]["weight"]), want)


def copies(folder):
    return dict(SafeTensors(folder))


def test_a_tied_model_may_carry_its_head(tmp_path):
    """Some savers write lm_head.weight for tied models too: a copy changes nothing, a different matrix is refused."""
    write_checkpoint(tmp_path)
    before, tensors = our_logits(tmp_path), copies(tmp_path)
    rewrite(tmp_path, tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]})
    np.testing.assert_array_equal(our_logits(tmp_path), before)

    rewrite(tmp_path, tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1})
    assert "tie_word_embeddings" in refusal(tmp_path, our_logits)


def test_old_spelling_of_config(tmp_path):
    """rope_theta, rope_scaling null and torch_dtype, as in checkpoints of transformers 4."""
    tensors = write_checkpoint(tmp_path, rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    config = json.loads((tmp_path / "config.json").read_text())
    assert config.pop("rope_parameters")["rope_theta"] == 500.0
    new = our_logits(tmp_path)
    old = {"rope_theta": 500.0, "rope_scaling": None, "torch_dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(config | old))

    np.testing.assert_array_equal(our_logits(tmp_path), new)
    cfg = resolve(str(tmp_path)).cfg
    assert cfg.rope_theta == 500.0 and (abs(new - exact_logits(tmp_path, tensors)) < 1e-4).all()


def test_parameters_outlive_the_file(tmp_path):
    """Overwriting a file in place does not change a loaded model, though jax could share memory with a mapped file."""
    write_checkpoint(tmp_path)
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    end = 8 + struct.unpack("<Q", whole[:8])[0]
    fill = b" " * (-end % 64)  # tensors then start where jax can use them without a copy
    path.write_bytes(struct.pack("<Q", end - 8 + len(fill)) + whole[8:end] + fill + whole[end:])
    params = load(resolve(str(tmp_path)), jnp.float32).params
    before = jax.tree.map(np.array, params)
    with path.open("r+b") as file:
        file.seek(end + len(fill))
        file.write(bytes(len(whole) - end))

    jax.tree.map(np.testing.assert_array_equal, params, before)


def test_resolve_reads_no_weights(folder, monkeypatch):
    """Finding and checking a model reads no tensor."""
    monkeypatch.setattr(SafeTensors, "__getitem__", lambda self, name: pytest.fail(f"{name} was read"))
    source = resolve(str(folder))

    assert (source.name, source.path, source.cfg.num_hidden_layers) == (str(folder), folder, 2)
    assert source.chat.encode(MESSAGES) == Chat(tokenizer(), TEMPLATE).encode(MESSAGES)


# ---- damage ----


def rewrite(folder, tensors):
    """Replace all weights of a folder by these in one file."""
    from safetensors.numpy import save_file
    for path in [*folder.glob("*.safetensors"), *folder.glob("*.index.json")]:
        path.unlink()
    save_file(tensors, folder / "model.safetensors")


def refusal(path, act=resolve):
    with pytest.raises(ModelError) as caught:
        act(str(path))
    assert isinstance(caught.value, InputError)  # what commands turn into exit code 2
    return str(caught.value)


def shard(folder):
    return sorted(folder.glob("*.safetensors"))[1]


def test_missing_shard(folder):
    """The missing file is named before any weights are read."""
    name = shard(folder).name
    shard(folder).unlink()

    assert f"{name} is missing" in refusal(folder)


def test_dangling_link(folder):
    """A link in the cache whose target was deleted counts as missing."""
    path = shard(folder)
    path.unlink()
    path.symlink_to(folder / "gone")

    assert f"{path.name} is missing" in refusal(folder)


@pytest.mark.parametrize("keep", [-1, 0.5, 100, 3, 0])
def test_truncated_shard(folder, keep):
    """A file cut anywhere is named with its size and the way on."""
    path = shard(folder)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole))] if isinstance(keep, float) else whole[:keep])

    assert f"{path.name} ({path.stat().st_size:,} bytes) is cut off or damaged" in refusal(folder)
    assert "fetch it again" in refusal(folder)


def test_all_damaged_files_are_in_one_message(folder):
    """Two damaged shards, a missing tokenizer and an unsupported config."""
    for path in sorted(folder.glob("*.safetensors"))[:2]:
        path.write_bytes(path.read_bytes()[:-8])
    (folder / "tokenizer.json").unlink()
    edit_config(folder, hidden_act="gelu")
    text = refusal(folder)

    assert text.count("is cut off or damaged") == 2 and "tokenizer.json" in text and "hidden_act" in text


def test_other_damage_to_weights(folder):
    """Extra bytes, a damaged header, offsets that do not match, a Git LFS pointer."""
    path = shard(folder)
    whole = path.read_bytes()
    header = json.loads(whole[8 : 8 + struct.unpack("<Q", whole[:8])[0]])
    first = next(name for name in header if name != "__metadata__")
    header[first]["shape"][0] += 1
    text = json.dumps(header).encode()
    for content, complaint in ((whole + b"x", "is cut off or damaged"), (whole[:8] + b"!" + whole[9:], "is cut off or damaged"),
                               (struct.pack("<Q", len(text)) + text + whole[-99:], "is cut off or damaged"),
                               (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "git lfs pull")):
        path.write_bytes(content)
        assert complaint in refusal(folder) and path.name in refusal(folder)


def test_index_and_shards_must_agree(folder):
    """A tensor that the index lists but the file lacks is named."""
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.layers.7.mlp.up_proj.weight"] = shard(folder).name
    index.write_text(json.dumps(content))

    assert "model.layers.7.mlp.up_proj.weight" in refusal(folder)


@pytest.mark.parametrize("change, complaint", [
    (lambda t: t | {"model.norm.weight": np.ones(63, np.float32)}, "model.norm.weight has shape (63,), the config wants (64,)"),
    (lambda t: {name: a for name, a in t.items() if "1.mlp.up" not in name}, "model.layers.1.mlp.up_proj.weight is missing"),
    (lambda t: t | {"model.layers.0.self_attn.o_proj.bias": np.ones(64, np.float32)}, "model.layers.0.self_attn.o_proj.bias"),
    (lambda t: t | {"model.norm.weight": np.ones(64, np.int8)}, "model.norm.weight is stored as I8"),
])
def test_weights_that_do_not_fit_the_config(folder, change, complaint):
    """Misshapen, missing, extra and integer tensors are refused by name."""
    rewrite(folder, change(copies(folder)))

    assert complaint in refusal(folder, lambda path: load(resolve(path), jnp.float32))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@each_float
@pytest.mark.parametrize("name", ["model.embed_tokens.weight", "model.layers.1.mlp.down_proj.weight",
                                  "model.layers.0.self_attn.k_proj.bias", "model.norm.weight"])
def test_weights_that_are_not_finite(tmp_path, name, dtype, value):
    """A single NaN or inf in any kind of tensor is refused at load, by the tensor's name."""
    write_checkpoint(tmp_path, dtype=dtype)
    tensors = copies(tmp_path)
    tensors[name] = tensors[name].copy()
    tensors[name].reshape(-1)[-1] = value
    rewrite(tmp_path, tensors)

    told = refusal(tmp_path, lambda path: load(resolve(path), jnp.float32))
    assert f"{name} has values that are NaN, infinite or beyond the range of float32" in told and "1 tensors" in told


def test_weights_beyond_the_range_of_the_dtype(tmp_path):
    """1e5 is a number in the file and none in float16."""
    write_checkpoint(tmp_path)
    tensors = copies(tmp_path)
    tensors["model.norm.weight"] = np.full_like(tensors["model.norm.weight"], 1e5)
    rewrite(tmp_path, tensors)

    load(resolve(str(tmp_path)), jnp.float32)
    assert "model.norm.weight" in refusal(tmp_path, lambda path: load(resolve(path), jnp.float16))


def test_a_gguf_with_weights_that_are_not_finite(tmp_path):
    """The same check on dequantised tensors."""
    write_checkpoint(tmp_path / "model")
    tensors = copies(tmp_path / "model")
    name = "model.layers.0.mlp.up_proj.weight"
    tensors[name] = np.where(np.arange(tensors[name].size).reshape(tensors[name].shape) == 5, np.nan, tensors[name])
    write_gguf(tmp_path / "m.gguf", tensors)

    assert name in refusal(tmp_path / "m.gguf", lambda path: load(resolve(path), jnp.float32))


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.slow
@pytest.mark.parametrize("changes", [
    {"rope_theta": 7.0, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    {"rope_theta": 500.0, "rope_parameters": {"rope_type": "default"}}, {"rope_parameters": None},
    {"rope_theta": 500.0, "rope_scaling": {"type": "default", "rope_theta": 9.0}, "rope_parameters": {"rope_theta": 80.0}},
    {"rope_parameters": LLAMA3, "max_position_embeddings": 8, "rope_theta": 50.0},
    {"rope_parameters": LLAMA3 | {"original_max_position_embeddings": 4}, "rope_theta": 50.0},
    {"rope_parameters": LLAMA3 | {"original_max_position_embeddings": 64}, "original_max_position_embeddings": 4},
    {"rms_norm_eps": 0.1}, {"use_sliding_window": False, "sliding_window": 2, "max_window_layers": 0}],
    ids=str)
def test_a_config_means_what_it_means_in_transformers(folder, changes):
    """Wherever the RoPE base and its scaling stand, in either spelling or both, the logits are those of transformers."""
    edit_config(folder, **changes)
    np.testing.assert_allclose(our_logits(folder), their_logits(folder), atol=2e-5, rtol=2e-5)


# Entries of config.json that cannot change the logits of the weights that stand beside it.
WITHOUT_EFFECT = {"initializer_range", "use_cache", "attention_dropout", "pad_token_id", "bos_token_id", "eos_token_id",
                  "sliding_window", "max_window_layers", "pretraining_tp"}
READ = {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "head_dim", "hidden_act", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings", "rope_parameters",
        "use_sliding_window", "layer_types", "attention_bias", "mlp_bias"}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["Qwen2", "Qwen3", "Llama"])
def test_every_entry_of_a_config_is_accounted_for(family):
    """Each field of transformers' own config class is read, refused, or known not to change the logits."""
    import dataclasses

    transformers = oracles.package("transformers")
    fields = {field.name for field in dataclasses.fields(getattr(transformers, f"{family}Config"))}
    general = {field.name for field in dataclasses.fields(transformers.PreTrainedConfig)}
    assert fields - general <= READ | WITHOUT_EFFECT


@pytest.mark.parametrize("changes, named", [
    ({"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}}, "rope_parameters"),
    ({"rope_theta": 0, "rope_parameters": None}, "rope_theta"), ({"rope_theta": "1e4", "rope_parameters": None}, "rope_theta"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor")])
def test_rope_that_is_not_supported(folder, changes, named):
    """One RoPE for each type of layer, a base that is not a positive number, and partly rotated heads are refused."""
    edit_config(folder, **changes)
    assert named in refusal(folder)


@pytest.mark.parametrize("changes", [
    {"rope_scaling": {"type": "yarn", "factor": 4.0}}, {"use_sliding_window": True}, {"hidden_act": "gelu"},
    {"model_type": "mistral"}, {"quantization_config": {"bits": 4}}, {"layer_types": ["full_attention", "sliding_attention"]},
], ids=lambda changes: next(iter(changes)))
def test_configs_that_would_change_the_result(folder, changes):
    """What the forward pass does not support is refused by its name in config.json."""
    edit_config(folder, **changes)

    assert next(iter(changes)) in refusal(folder)


def test_files_with_a_byte_order_mark(folder):
    """As some editors write them: the same model, tokenizer and prompt."""
    before, ids = our_logits(folder), resolve(str(folder)).chat.encode(MESSAGES)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    for path in [*folder.glob("*.json"), folder / "chat_template.jinja"]:
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    np.testing.assert_array_equal(our_logits(folder), before)
    assert resolve(str(folder)).chat.encode(MESSAGES) == ids


def test_scaled_rope_in_the_new_spelling(folder):
    """transformers 5 writes the scaling to rope_parameters."""
    edit_config(folder, rope_parameters={"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0})

    assert "llama3" in refusal(folder) or "rope_scaling" in refusal(folder)


@pytest.mark.parametrize("name, complaint", [("config.json", "config.json is missing"), ("tokenizer.json", "tokenizer.json"),
                                             ("tokenizer_config.json", "Instruct")])
def test_missing_text_file(folder, name, complaint):
    """A missing file that the model needs is named."""
    (folder / name).unlink()

    assert complaint in refusal(folder)


def test_tokenizer_of_another_model(folder):
    """A tokenizer with more ids than embedding rows is refused."""
    edit_config(folder, vocab_size=260)

    assert "260 rows" in refusal(folder)


def test_folder_with_other_weights_only(folder):
    """A checkpoint in pickle format is named as such."""
    for path in [*folder.glob("*.safetensors"), *folder.glob("*.index.json")]:
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"x")

    assert "pytorch_model.bin" in refusal(folder) and "safetensors" in refusal(folder)


# ---- names and the hub ----


@pytest.mark.parametrize("name, near", [("0.5b", "0.5B"), ("15B", "1.5B"), ("tinny", "tiny")])
def test_unknown_name_shows_the_nearest(name, near):
    """A misspelt short name gets the nearest one as a suggestion."""
    assert f"did you mean {near}?" in refusal(name)


@pytest.mark.parametrize("name", ["/no/such/folder", "no/such/folder", "file.gguf", "some/model.gguf", "some/model.GGUF", "",
                                  "a b", "../x"])
def test_path_that_is_not_there(name, monkeypatch, tmp_path):
    """A path that does not exist is an error without asking the hub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *a, **k: pytest.fail("asked the hub"))

    if name:
        assert "no such file or folder" in refusal(name)
    else:
        refusal(name)


def test_a_file_other_than_gguf(folder):
    """Whoever names the weights is told to name their folder."""
    assert "name the folder" in refusal(shard(folder))


@pytest.mark.parametrize("model", ["0.5B", "someone/some-model"])
@pytest.mark.parametrize("local", [True, False], ids=["hf_cache", "hub cache"])
def test_offline_message_names_three_ways(tmp_path, monkeypatch, model, local):
    """Without a network one message names the download command for the cache in use, a local folder, and tiny."""
    monkeypatch.chdir(tmp_path)
    if local:
        (tmp_path / "hf_cache").mkdir()
    text = refusal(model)

    assert f"hf download {HUB_IDS.get(model, model)}" in text and "MODEL=/path/to/folder" in text and "MODEL=tiny" in text
    assert ("--cache-dir hf_cache" in text) == local


def cached(tmp_path, model="someone/some-model"):
    """A model in ./hf_cache, in the hub cache's layout; returns its snapshot folder."""
    repo = tmp_path / "hf_cache" / f"models--{model.replace('/', '--')}"
    snapshot = repo / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    write_checkpoint(snapshot)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(snapshot.name)
    return snapshot


@pytest.mark.parametrize("model", ["someone/some-model", "0.5B"])
def test_the_local_cache_is_used(tmp_path, monkeypatch, model):
    """A complete model in ./hf_cache is used without the network, by hub id and by short name."""
    monkeypatch.chdir(tmp_path)
    snapshot = cached(tmp_path, HUB_IDS.get(model, model))

    assert resolve(model).path.resolve() == snapshot
    assert resolve(model).name == model


def test_a_tokenizer_of_the_hub_is_cached_or_fetched_once(tmp_path, monkeypatch):
    """tokenizer.json from ./hf_cache; if it is missing there, it alone is fetched; one message if the hub has none either."""
    monkeypatch.chdir(tmp_path)
    file = cached(tmp_path) / "tokenizer.json"
    assert tokenizer_file("someone/some-model").resolve() == file

    aside, calls = file.rename(tmp_path / "aside"), []

    def download(repo_id, local_files_only, allow_patterns, **options):
        calls.append((repo_id, local_files_only, allow_patterns))
        if not local_files_only and aside.exists():
            aside.rename(file)
        return str(file.parent)
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert tokenizer_file("someone/some-model") == file
    assert calls == [("someone/some-model", local, ["tokenizer.json"]) for local in (True, False)]
    file.unlink()
    with pytest.raises(InputError, match="it has no tokenizer.json"):
        tokenizer_file("someone/some-model")


def test_incomplete_cache_offline(tmp_path, monkeypatch):
    """What the cache lacks is named together with the command that fetches it."""
    monkeypatch.chdir(tmp_path)
    (cached(tmp_path) / "model.safetensors").unlink()
    text = refusal("someone/some-model")

    assert "model.safetensors" in text and "hf download someone/some-model --cache-dir hf_cache" in text


def test_incomplete_cache_is_completed(tmp_path, monkeypatch):
    """With a network the rest is fetched, but only files of the model."""
    monkeypatch.chdir(tmp_path)
    snapshot, calls = cached(tmp_path), []
    aside = (snapshot / "model.safetensors").rename(tmp_path / "aside")

    def download(repo_id, local_files_only=False, **options):
        calls.append((repo_id, local_files_only, options))
        if not local_files_only:
            shutil.copy(aside, snapshot / "model.safetensors")
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    source = resolve("someone/some-model")

    assert len(source.tensors) > 20 and [local for _, local, _ in calls] == [True, False]
    assert calls[1][2]["allow_patterns"] == pretrained.HUB_FILES and calls[1][2]["etag_timeout"] <= 10


def test_a_folder_goes_before_the_hub(tmp_path, monkeypatch):
    """owner/name is a folder if one exists."""
    monkeypatch.chdir(tmp_path)
    write_checkpoint(tmp_path / "owner" / "name")

    assert str(resolve("owner/name").path) == "owner/name"


def test_short_names_have_shapes():
    """Each short name has a hub id and a shape built in."""
    assert HUB_IDS["0.5B"] == "Qwen/Qwen2.5-Coder-0.5B-Instruct" and HUB_IDS["qwen3-4B"] == "Qwen/Qwen3-4B"
    assert HUB_IDS["llama-3.2-1B"] == "meta-llama/Llama-3.2-1B-Instruct" and HUB_IDS.keys() == SHAPES.keys()
    assert all(name in LEAVES["model"].help for name in HUB_IDS)
    for name, hub_id in HUB_IDS.items():
        assert pretrained.shapes_without_weights(hub_id) == pretrained.shapes_without_weights(name) == SHAPES[name]


# ---- GGUF ----

KINDS = gguf.GGMLQuantizationType
TOKEN_NAMES = [*sorted(tokenizer().get_vocab(), key=tokenizer().get_vocab().get), *(f"[PAD{i}]" for i in range(267, 272))]
GGUF_NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "q_proj": "attn_q", "k_proj": "attn_k",
              "v_proj": "attn_v", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm",
              "o_proj": "attn_output", "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}


def write_gguf(path, tensors, kind=KINDS.Q8_0, ends=None, arch="qwen2", **changes):
    """A GGUF file of a folder's tensors; ends: [(name, array, kind)] of the embedding and the head."""
    writer = gguf.GGUFWriter(path, arch)
    facts = {"block_count": 2, "context_length": 512, "embedding_length": 64, "feed_forward_length": 96,
             "attention.head_count": 4, "attention.head_count_kv": 2,
             "rope.freq_base": 10000.0, "attention.layer_norm_rms_epsilon": 1e-6} | (
                 {"attention.key_length": 24, "attention.value_length": 24} if arch == "qwen3" else {})
    for key, value in facts.items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(f"{arch}.{key}", value)
    kinds = [3 if name in CONTROL else 4 if name == "<tool_call>" else 5 if name.startswith("[PAD") else 1
             for name in TOKEN_NAMES]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(changes.pop("pre", "qwen2"))
    writer.add_token_list(TOKEN_NAMES)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_eos_token_id(TOKEN_NAMES.index("<|im_end|>"))
    writer.add_pad_token_id(TOKEN_NAMES.index("<|endoftext|>"))
    writer.add_chat_template(TEMPLATE)
    for key, value in changes.items():
        add = {str: writer.add_string, float: writer.add_float32}.get(type(value), writer.add_uint32)
        add(key.replace("__", "."), value)
    for name, array, one in ends or [("token_embd.weight", tensors["model.embed_tokens.weight"], KINDS.F32)]:
        writer.add_tensor(name, gguf.quants.quantize(array, one), raw_dtype=one)
    for name, array in tensors.items():
        if name == "model.norm.weight":
            writer.add_tensor("output_norm.weight", array)
        elif name.startswith("model.layers."):
            _, _, layer, *middle, leaf = name.split(".")
            one = kind if array.ndim == 2 else KINDS.F32
            writer.add_tensor(f"blk.{layer}.{GGUF_NAMES[middle[-1]]}.{leaf}", gguf.quants.quantize(array, one), raw_dtype=one)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def tensors(tmp_path):
    write_checkpoint(tmp_path / "model")
    return copies(tmp_path / "model")


def test_gguf_in_full_precision_is_the_folder(tmp_path, tensors):
    """An unquantised GGUF has the folder's parameters, config and stop ids."""
    write_gguf(tmp_path / "m.gguf", tensors, KINDS.F32)
    ours, theirs = (load(resolve(str(tmp_path / name)), jnp.float32) for name in ("m.gguf", "model"))

    assert ours.cfg == theirs.cfg
    assert ours.cfg.rms_norm_eps == 1e-6  # not the nearest float32
    jax.tree.map(np.testing.assert_array_equal, ours.params, theirs.params)
    assert (ours.chat.stop_ids, ours.chat.pad_id, ours.chat.vocab_used) == (theirs.chat.stop_ids, theirs.chat.pad_id, 267)
    assert ours.chat.ignored_sampling == ""


def test_gguf_in_capitals(tmp_path, tensors):
    """The suffix may be .GGUF."""
    write_gguf(tmp_path / "M.GGUF", tensors, KINDS.F32)

    assert resolve(str(tmp_path / "M.GGUF")).cfg == resolve(str(tmp_path / "model")).cfg


def test_gguf_of_qwen3_is_the_folder(tmp_path):
    """Normed heads with a head_dim of their own, under the names that llama.cpp's converter gives them."""
    write_checkpoint(tmp_path / "model", family="qwen3")
    write_gguf(tmp_path / "m.gguf", copies(tmp_path / "model"), KINDS.F32, arch="qwen3")
    ours, theirs = (load(resolve(str(tmp_path / name)), jnp.float32) for name in ("m.gguf", "model"))

    assert ours.cfg == theirs.cfg and ours.cfg.qk_norm
    jax.tree.map(np.testing.assert_array_equal, ours.params, theirs.params)


def test_gguf_of_llama_is_refused_by_name(tmp_path, tensors):
    """Its files reorder channels, which no shape shows."""
    write_gguf(tmp_path / "m.gguf", tensors, arch="llama")

    assert "general.architecture = 'llama'" in refusal(tmp_path / "m.gguf")


@pytest.mark.parametrize("kind", [KINDS.Q8_0, KINDS.Q4_0, KINDS.Q5_1, KINDS.F16, KINDS.BF16], ids=lambda kind: kind.name)
def test_gguf_is_dequantised(tmp_path, tensors, kind):
    """Tensors equal those of gguf's own reader and dequantisation."""
    write_gguf(tmp_path / "m.gguf", tensors, kind)
    found = GgufFile(tmp_path / "m.gguf")

    assert found.keys() == tensors.keys()
    for tensor in gguf.GGUFReader(tmp_path / "m.gguf").tensors:
        if tensor.name == "blk.1.ffn_down.weight":
            want = gguf.dequantize(tensor.data, tensor.tensor_type)
            np.testing.assert_array_equal(found["model.layers.1.mlp.down_proj.weight"], want)
            np.testing.assert_allclose(want, tensors["model.layers.1.mlp.down_proj.weight"], atol=0.1)
    for name in ("model.layers.0.self_attn.q_proj.bias", "model.norm.weight"):
        np.testing.assert_array_equal(found[name], tensors[name])


@pytest.mark.parametrize("worse", [KINDS.Q4_0, KINDS.Q5_1])
@pytest.mark.parametrize("better_first", [True, False])
def test_the_better_quantised_end_serves_both(tmp_path, tensors, worse, better_first):
    """If a tied model has both embedding and head, the one with more bits per weight is used and the model stays tied."""
    embedding = tensors["model.embed_tokens.weight"]
    ends = [("token_embd.weight", embedding, KINDS.Q8_0 if better_first else worse),
            ("output.weight", embedding, worse if better_first else KINDS.Q8_0)]
    write_gguf(tmp_path / "m.gguf", tensors, ends=ends)
    source = resolve(str(tmp_path / "m.gguf"))
    want = gguf.dequantize(gguf.quants.quantize(embedding, KINDS.Q8_0), KINDS.Q8_0)

    assert source.cfg.tie_word_embeddings
    np.testing.assert_array_equal(source.tensors["model.embed_tokens.weight"], want)
    assert "lm_head" not in load(source, jnp.float32).params


def test_two_different_ends_stay_two(tmp_path, tensors):
    """An untied model keeps its own head, though no metadata says that it has one."""
    head = np.random.default_rng(0).standard_normal((272, 64)).astype(np.float32)
    write_gguf(tmp_path / "m.gguf", tensors, ends=[("token_embd.weight", tensors["model.embed_tokens.weight"], KINDS.F32),
                                                   ("output.weight", head, KINDS.F32)])
    model = load(resolve(str(tmp_path / "m.gguf")), jnp.float32)

    assert not model.cfg.tie_word_embeddings
    np.testing.assert_array_equal(np.asarray(model.params["lm_head"]), head)
    np.testing.assert_array_equal(np.asarray(model.params["embed_tokens"]), tensors["model.embed_tokens.weight"])


@pytest.mark.parametrize("changes, complaint", [
    ({"qwen2__rope__scaling__type": "yarn"}, "yarn"),
    ({"qwen2__rope__scaling__factor": 4.0}, "rope.scaling.factor = 4.0"),
    ({"qwen2__rope__scale_linear": 2.0}, "rope.scale_linear = 2.0"),
    ({"qwen2__attention__sliding_window": 64}, "use_sliding_window"),
    ({"pre": "llama-bpe"}, "llama-bpe"), ({"split__count": 2}, "split"), ({"qwen2__rope__dimension_count": 8}, "partial_rotary")])
def test_gguf_that_would_change_the_result(tmp_path, tensors, changes, complaint):
    """Scaled RoPE, sliding windows, partly rotated heads, other tokenizers and split files are refused by name."""
    write_gguf(tmp_path / "m.gguf", tensors, **changes)

    assert complaint in refusal(tmp_path / "m.gguf")


def test_gguf_with_a_tensor_too_many(tmp_path, tensors):
    """A bias that the model does not have is refused, as in a folder."""
    tensors["model.layers.0.self_attn.o_proj.bias"] = np.ones(64, np.float32)
    write_gguf(tmp_path / "m.gguf", tensors)

    assert "o_proj.bias" in refusal(tmp_path / "m.gguf", lambda path: load(resolve(path), jnp.float32))


def test_gguf_whose_merges_make_no_token(tmp_path, tensors, monkeypatch):
    """A damaged token is reported as damage, though the tokenizers library raises a bare Exception."""
    monkeypatch.setattr(sys.modules[__name__], "TOKEN_NAMES", ["hx" if name == "he" else name for name in TOKEN_NAMES])
    write_gguf(tmp_path / "m.gguf", tensors)

    assert "tokens and merges do not match" in refusal(tmp_path / "m.gguf")


@pytest.fixture(scope="module")
def gguf_bytes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf")
    write_checkpoint(folder)
    write_gguf(folder / "m.gguf", dict(SafeTensors(folder)))
    return (folder / "m.gguf").read_bytes()


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_gguf_cut_anywhere(gguf_bytes, tmp_path_factory, data):
    """A file cut at any byte is refused as cut off, without any other error."""
    cut = data.draw(st.one_of(st.integers(0, len(gguf_bytes) - 64), st.integers(0, 12000)))
    path = tmp_path_factory.getbasetemp() / "cut.gguf"
    path.write_bytes(gguf_bytes[:cut])

    assert "cut off" in refusal(path) or cut < 4


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 9000), st.binary(min_size=1, max_size=8))
def test_gguf_with_a_damaged_header(gguf_bytes, tmp_path_factory, at, noise):
    """Noise in the header leads to a refusal or a readable model, never to another error or an endless loop."""
    path = tmp_path_factory.getbasetemp() / "noise.gguf"
    path.write_bytes(gguf_bytes[:at] + noise + gguf_bytes[at + len(noise) :])
    try:
        load(resolve(str(path)), jnp.float32)
    except ModelError:
        pass


def test_missing_gguf_package_names_the_install_line(tmp_path, tensors, monkeypatch):
    """Only a .gguf file needs the package; without it the message says how to install it."""
    write_gguf(tmp_path / "m.gguf", tensors)
    monkeypatch.setitem(sys.modules, "gguf", None)
    resolve(str(tmp_path / "model"))

    assert "pip install gguf" in refusal(tmp_path / "m.gguf")


# ---- the real checkpoint ----

SAMPLE = [
    "def f(x):\n    return [y for y in x if y]\n", "it's we'll I'M don'T", "   leading\t\ttabs \n\n\n end   ", "1234567 3.14e-10",
    "naïve e\u0301 日本語 한국어 العربية 🙂👩‍👩‍👧",
    "<|im_start|>user\nhi<|im_end|><tool_call>{}</tool_call><|fim_prefix|>x<|repo_name|>",
    "a\r\nb\rc\u2028d\u00a0e\u200b", "!!!???...--->>> ===\n#### x", "", " ", "\n", "CamelCase_snake-kebab", "[PAD151665]",
    "\x00\x1f",
]


@pytest.mark.real
def test_real_gguf_tokenizer_is_the_hubs(real_model):
    """The GGUF's tokenizer gives the ids and texts of tokenizer.json, on odd text and on source code."""
    folder, chat = Chat.from_folder(real_model), GgufFile(real_model / "model.gguf").chat()
    sources = [path.read_text() for path in sorted(ROOT.glob("rl/**/*.py"))]

    for text in [*SAMPLE, *sources, "".join(map(chr, range(1, 0xD800, 7)))]:
        messages = [{"role": "user", "content": text}]
        ids = folder.encode(messages)
        assert chat.encode(messages) == ids
        assert chat.decode(ids) == folder.decode(ids)
    assert (chat.stop_ids, chat.pad_id, chat.vocab_used) == (folder.stop_ids, folder.pad_id, folder.vocab_used)


@pytest.mark.real
def test_real_gguf_parameters_are_the_folders(real_model):
    """The folder is the GGUF rounded to float16, its embedding from the better of the two; at float16 they are equal."""
    folder, file = resolve(str(real_model)), resolve(str(real_model / "model.gguf"))

    assert file.cfg == folder.cfg == SHAPES["0.5B"]
    assert set(file.tensors) == set(folder.tensors)
    for name in folder.tensors:
        np.testing.assert_array_equal(file.tensors[name].astype(np.float16), folder.tensors[name], err_msg=name)
