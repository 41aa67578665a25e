"""Merged checkpoints and PEFT adapters, compared with the sums by hand and with transformers and peft."""

import json
import os
import resource
import shutil
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from qwen2_jax import forward
from rl import command
from rl.errors import InputError
from rl.models import export, pretrained
from rl.models.hub import hub_name
from rl.models.peft import AdapterError, read_adapter
from rl.models.tensors import DTYPES, write_tensors
from rl.training import lora
from tests import oracles
from tests.hub_folder import write_checkpoint
from tests.small_model import adapter as random_adapter
from validate_forward import float64_run

TOKENS = [[5, 41, 2, 260, 17, 99, 3, 120, 44, 8]]
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def ours(folder, adapter=None):
    source = pretrained.resolve(str(folder))
    tokens = jnp.asarray(TOKENS)
    params = pretrained.load(source, jnp.float32).params
    return np.asarray(forward(params, adapter, tokens, jnp.ones_like(tokens, bool), source.cfg), np.float64)


def theirs(model):
    return oracles.logits(model, TOKENS)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A checkpoint, an adapter of it as a PEFT folder that names it, and the adapter's values."""
    folder = tmp_path_factory.mktemp("base")
    write_checkpoint(folder / "model")
    adapter = random_adapter(pretrained.resolve(str(folder / "model")).cfg)
    (folder / "adapter").mkdir()
    lora.save_peft(folder / "adapter", adapter, str(folder / "model"))
    return folder / "model", folder / "adapter", adapter


@pytest.fixture
def merge(monkeypatch, capfd, load_script):
    """Run scripts/merge_adapter.py in this process: (exit code, stdout, stderr)."""
    script = load_script("merge_adapter")

    def run(*arguments, **environ):
        monkeypatch.setattr(sys, "argv", ["merge_adapter.py", *map(str, arguments)])
        with monkeypatch.context() as patch:
            for name, value in environ.items():
                patch.setenv(name, str(value))
            with pytest.raises(SystemExit) as ended:
                command.run(script.main, script.__doc__, flags=("--dtype=",))
        out, err = capfd.readouterr()
        return ended.value.code, out, err
    return run


# Merged

@pytest.mark.known_bug(19)
def test_a_merged_folder_gives_the_logits_of_base_and_adapter(merge, base, tmp_path):
    """Texts are copied; the adapter makes a difference."""
    model, adapter, values = base
    code, out, err = merge(adapter, tmp_path / "a" / "merged")
    assert code == 0 and f"MODEL={tmp_path / 'a' / 'merged'}" in out, err

    np.testing.assert_allclose(ours(tmp_path / "a" / "merged"), ours(model, values), atol=1e-4)
    assert abs(ours(model, values) - ours(model)).max() > 0.1
    code, out, err = merge(adapter, tmp_path / "half", LORA_SCALE="0.5")
    assert code == 0 and " x 0.5, " in out, err
    np.testing.assert_allclose(ours(tmp_path / "half"), ours(model, values | {"scale": values["scale"] / 2}), atol=1e-4)
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "a" / "merged" / name).read_bytes() == (model / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["merged"]


@pytest.mark.slow
@pytest.mark.known_bug(19)
def test_transformers_opens_a_merged_folder(merge, base, tmp_path):
    """Without peft it gets the logits that peft gets from base and adapter."""
    model, adapter, _ = base
    assert merge(adapter, tmp_path / "merged")[0] == 0
    with_peft = theirs(oracles.adapted(model, adapter))
    np.testing.assert_allclose(theirs(oracles.opened(tmp_path / "merged", "auto")), with_peft, atol=1e-4)
    assert abs(with_peft - ours(model)).max() > 0.1


@pytest.mark.parametrize("kept, requested, found", [
    (jnp.float16, None, jnp.float16), (jnp.bfloat16, None, jnp.bfloat16), (jnp.bfloat16, "float32", jnp.float32),
    (jnp.float32, "bfloat16", jnp.bfloat16)], ids=lambda value: value if value is None else np.dtype(value).name)
def test_dtype_is_the_checkpoints_or_the_requested_one(merge, tmp_path, kept, requested, found):
    """The sum is computed in fp32 and rounded once; config.json names the dtype. Sharded and untied checkpoints too."""
    model = write_checkpoint(tmp_path / "model", tied=False, dtype=kept, shards=2)
    values = random_adapter(pretrained.resolve(str(tmp_path / "model")).cfg)
    lora.save_npz(tmp_path / "a.npz", values)
    option = [f"--dtype={requested}"] if requested else []
    code, _, err = merge(tmp_path / "a.npz", tmp_path / "out", *option, MODEL=tmp_path / "model")
    assert code == 0, err

    merged = load_file(tmp_path / "out" / "model.safetensors")
    p, name = values["layers"][1]["mlp"]["down_proj"], "model.layers.1.mlp.down_proj.weight"
    exact = model[name].astype(np.float64) + 2.0 * (np.asarray(p["a"], np.float64) @ np.asarray(p["b"], np.float64)).T
    assert merged.keys() == model.keys() and {value.dtype for value in merged.values()} == {np.dtype(found)}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == np.dtype(found).name
    np.testing.assert_allclose(merged[name].astype(np.float64), exact, rtol=4 * float(jnp.finfo(found).eps), atol=1e-6)
    untouched = "model.layers.0.input_layernorm.weight"
    assert (merged[untouched] == model[untouched].astype(found)).all()
    assert not (tmp_path / "out" / "model.safetensors.index.json").exists()


def test_what_is_written_is_what_the_library_reads(tmp_path):
    """Every dtype, an empty and a scalar tensor are read back bit for bit by safetensors."""
    rng = np.random.default_rng(0)
    arrays = {f"{name}{shape}": rng.standard_normal(shape).astype(dtype) for name, dtype in DTYPES.items()
              for shape in ((3, 5), (), (0, 4), (7,))}
    write_tensors(tmp_path / "x.safetensors", {name: (value.dtype, value.shape) for name, value in arrays.items()}, arrays.get)
    found = load_file(tmp_path / "x.safetensors")
    assert found.keys() == arrays.keys()
    for name, value in arrays.items():
        assert (found[name].shape, found[name].dtype) == (value.shape, value.dtype)
        assert (found[name] == value).all(), name


BAD = [
    ((), {}, "expected ADAPTER and OUT, got 0"),
    (("adapter", "out", "more"), {}, "expected ADAPTER and OUT, got 3"),
    (("adapter", "out", "--dtype", "int8"), {}, "--dtype int8: choose one of float32, bfloat16, float16"),
    (("adapter", "out", "--force"), {}, "unknown option --force"),
    (("nowhere", "out"), {}, "nowhere: no such file or folder"),
    (("adapter", "adapter"), {}, "exists: choose another folder"),
    (("bare.npz", "out"), {}, "does not say which model.*MODEL="),
    (("adapter", "out"), {"MODEL": "0.6"}, "MODEL=0.6: no such file"),
    (("adapter", "out"), {"MODEL": "other"}, "is not an adapter of this model"),
    (("adapter", "out"), {"STEPS": "x"}, "STEPS=x"),
]


@pytest.mark.parametrize("arguments, environ, words", BAD, ids=lambda value: str(value)[:40])
def test_bad_input_is_one_message_and_nothing_is_written(merge, base, tmp_path, monkeypatch, arguments, environ, words):
    """Exit code 2, one message with the value and the way on, no traceback, no folder."""
    import re
    monkeypatch.chdir(tmp_path)
    shutil.copytree(base[1], "adapter")
    lora.save_npz("bare.npz", base[2])
    write_checkpoint(tmp_path / "other", num_hidden_layers=1)
    code, _, err = merge(*arguments, **environ)
    assert code == 2 and re.search(words, err) and "Traceback" not in err, err
    assert not (tmp_path / "out").exists() and not [*tmp_path.glob(".out*")]


def test_another_base_is_reported(merge, base, tmp_path):
    """MODEL is used with a warning if the adapter names another model; a hub id and its short name are the same model."""
    shutil.copytree(base[0], tmp_path / "copy")
    code, _, err = merge(base[1], tmp_path / "out", MODEL=tmp_path / "copy")
    assert code == 0 and "warning" in err and str(base[0]) in err
    assert hub_name("0.5B") == "Qwen/Qwen2.5-Coder-0.5B-Instruct" == hub_name(hub_name("0.5B"))


@pytest.mark.parametrize("size", [2_000, 60_000])
def test_a_disk_that_fills_up_leaves_nothing(merge, base, tmp_path, size):
    """A write that fails, in the header or between tensors, gives one line and leaves no folder, nor a temporary one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        code, _, err = merge(base[1], tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 2 and "File too large; nothing was written" in err and not any(tmp_path.iterdir())


def test_too_little_space_is_reported_before_anything_is_written(base, tmp_path, monkeypatch):
    """With both figures in bytes."""
    monkeypatch.setattr(export.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 99, 1))
    with pytest.raises(InputError, match="bytes, 1 are free.*--dtype"):
        export.write_merged(pretrained.resolve(str(base[0])), base[2], tmp_path / "out")
    assert not any(tmp_path.iterdir())


def test_a_base_that_is_not_finite_is_refused(base, tmp_path):
    """NaN in a weight, adapted or not, is named instead of being copied."""
    source = pretrained.resolve(str(base[0]))
    for name in ("model.norm.weight", "model.layers.0.mlp.up_proj.weight"):
        class Damaged(dict):
            entries = source.tensors.entries

        tensors = Damaged({key: source.tensors[key].copy() for key in source.tensors})
        tensors[name].reshape(-1)[3] = np.nan
        with pytest.raises(InputError, match=f"{name} has values that are NaN"):
            export.write_merged(source._replace(tensors=tensors), base[2], tmp_path / "out")
        assert not any(tmp_path.iterdir())


def test_values_out_of_range_are_refused(base, tmp_path):
    """float16 ends at 65,504: the tensor is named instead of being written as infinity."""
    large = {**base[2], "scale": jnp.float32(1e6)}
    with pytest.raises(InputError, match="layers.0.*beyond the range of float16.*bfloat16"):
        export.write_merged(pretrained.resolve(str(base[0])), large, tmp_path / "out", "float16")
    assert not any(tmp_path.iterdir())


def test_quantised_files_are_refused(base, tmp_path):
    """Nothing can be merged into a .gguf; the message says what to use instead."""
    source = pretrained.resolve(str(base[0]))._replace(path=tmp_path / "x.gguf")
    with pytest.raises(InputError, match="quantised.*checkpoint folder or hub id"):
        export.write_merged(source, base[2], tmp_path / "out")


# PEFT adapters trained elsewhere

KINDS = [    # a config, and the projections and layers that it names
    ({"r": 5, "lora_alpha": 12}, ALL, (0, 1)),
    ({"r": 4, "lora_alpha": 8, "use_rslora": True}, ALL, (0, 1)),
    ({"r": 3, "lora_alpha": 9, "target_modules": ["q_proj", "v_proj"]}, ("q_proj", "v_proj"), (0, 1)),
    ({"r": 3, "lora_alpha": 9, "target_modules": r".*layers\.1\.mlp\.(up|down)_proj"}, ("up_proj", "down_proj"), (1,)),
    ({"r": 2, "lora_alpha": 4, "target_modules": "all-linear", "exclude_modules": ["lm_head"]}, ALL, (0, 1)),
    ({"r": 3, "lora_alpha": 9, "layers_to_transform": [0]}, ALL, (0,)),
]


@pytest.mark.parametrize("config, projections, layers", KINDS, ids=str)
def test_an_adapter_in_pefts_layout_gives_the_merged_logits(base, tmp_path, config, projections, layers):
    """Other ranks and alphas, rank-stabilised scaling, fewer projections or layers: the logits are those of the float64 model
    with alpha / r, or alpha / sqrt(r), times B A added to its weights by hand."""
    source, rng, stored = pretrained.resolve(str(base[0])), np.random.default_rng(1), {}
    merged = {name: source.tensors[name].astype(np.float64) for name in source.tensors}
    scale = config["lora_alpha"] / (config["r"] ** 0.5 if config.get("use_rslora") else config["r"])
    for layer in layers:
        for projection in projections:
            name = f"model.layers.{layer}.{'self_attn' if projection[0] in 'qkvo' else 'mlp'}.{projection}"
            rows, columns = merged[f"{name}.weight"].shape
            a, b = (0.2 * rng.standard_normal(shape, np.float32) for shape in ((config["r"], columns), (rows, config["r"])))
            stored |= {f"base_model.model.{name}.lora_A.weight": a, f"base_model.model.{name}.lora_B.weight": b}
            merged[f"{name}.weight"] += scale * b.astype(np.float64) @ a
    about = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "", "target_modules": ALL, "bias": "none"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(about | config))
    save_file(stored, tmp_path / "adapter_model.safetensors")

    adapter = lora.load(tmp_path, source.cfg)
    np.testing.assert_allclose(ours(base[0], adapter), float64_run(merged.__getitem__, source.cfg, TOKENS).logits, atol=1e-4)
    assert lora.rank_of(adapter) == config["r"]


def peft_adapter(model, folder, **config):
    """An adapter made and saved by peft itself, both halves random; returns its logits."""
    torch, peft = oracles.package("torch"), oracles.package("peft")
    torch.manual_seed(1)
    about = {"target_modules": ALL, "lora_dropout": 0.1, "task_type": "CAUSAL_LM", "init_lora_weights": True} | config
    wrapped = peft.get_peft_model(oracles.opened(model), peft.LoraConfig(**about)).eval()
    with torch.no_grad():
        for name, value in wrapped.named_parameters():
            if "lora_" in name:
                value.copy_(0.2 * torch.randn_like(value))
    wrapped.save_pretrained(str(folder))
    return theirs(wrapped)


@pytest.mark.slow
@pytest.mark.parametrize("config", [config for config, _, _ in KINDS], ids=str)
def test_an_adapter_that_peft_saved_gives_its_logits(base, tmp_path, config):
    """The same kinds, made and saved by peft: the logits are those of peft."""
    wanted = peft_adapter(base[0], tmp_path / "theirs", **config)
    adapter = lora.load(tmp_path / "theirs", pretrained.resolve(str(base[0])).cfg)
    np.testing.assert_allclose(ours(base[0], adapter), wanted, atol=1e-4)
    assert abs(wanted - ours(base[0])).max() > 0.05 and lora.rank_of(adapter) == config["r"]


def test_a_half_precision_adapter_is_read(base, tmp_path):
    """bf16 tensors, as most trainers save them, become fp32 unchanged."""
    shutil.copytree(base[1], tmp_path / "halved")
    path = tmp_path / "halved" / "adapter_model.safetensors"
    halved = {name: value.astype(jnp.bfloat16) for name, value in load_file(path).items()}
    save_file(halved, path)
    found = lora.load(tmp_path / "halved", pretrained.resolve(str(base[0])).cfg)
    a = halved["base_model.model.model.layers.1.mlp.up_proj.lora_A.weight"].astype(np.float32)
    assert (np.asarray(found["layers"][1]["mlp"]["up_proj"]["a"]) == a.T).all()


@pytest.mark.slow
@pytest.mark.parametrize("config, words", [
    ({"use_dora": True}, "use_dora = True: DoRA"),
    ({"rank_pattern": {"q_proj": 2}}, "rank_pattern = .*the same rank"),
    ({"alpha_pattern": {"q_proj": 2}}, "alpha_pattern"),
    ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ({"bias": "lora_only"}, "bias = 'lora_only'"),
    ({"target_modules": ["q_proj", "embed_tokens"]}, "embed_tokens.* has no place in this model"),
])
def test_kinds_that_are_not_supported_are_refused_by_name(base, tmp_path, config, words):
    """peft's other adapters are recognised by their config, or by tensors that the model has no place for."""
    peft_adapter(base[0], tmp_path / "theirs", r=4, **config)
    with pytest.raises(AdapterError, match=words):
        lora.load(tmp_path / "theirs", pretrained.resolve(str(base[0])).cfg)


@pytest.mark.parametrize("change, words", [
    ({"peft_type": "LOHA"}, "peft_type = 'LOHA': only LORA"),
    ({"init_lora_weights": "pissa"}, "init_lora_weights = 'pissa'"),
    ({"use_newest_trick": True, "use_dora": True}, "use_newest_trick = True: unknown entry.*|use_dora"),
    ({"trainable_token_indices": [3]}, "embedding"),
    ({"rank_pattern": {"q_proj": 2}}, "rank_pattern = .*the same rank"),
    ({"alpha_pattern": {"q_proj": 2}}, "alpha_pattern"),
    ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ({"bias": "lora_only"}, "bias = 'lora_only'"),
])
def test_config_entries_are_judged_by_name(base, tmp_path, change, words):
    """All unsupported entries are in one message, unknown ones too."""
    shutil.copytree(base[1], tmp_path / "changed")
    path = tmp_path / "changed" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(AdapterError, match=words) as caught:
        read_adapter(tmp_path / "changed")
    assert all(key in str(caught.value) for key in change)


def test_a_lost_tensor_is_not_taken_for_one_left_out(base, tmp_path):
    """A projection that the config names must have tensors in every layer."""
    shutil.copytree(base[1], tmp_path / "changed")
    tensors = load_file(tmp_path / "changed" / "adapter_model.safetensors")
    del tensors["base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"]
    save_file(tensors, tmp_path / "changed" / "adapter_model.safetensors")
    with pytest.raises(AdapterError, match="layers.1.mlp.up_proj.lora_B: missing"):
        lora.load(tmp_path / "changed", pretrained.resolve(str(base[0])).cfg)


def test_pickled_adapters_are_not_opened(base, tmp_path):
    """adapter_model.bin can run code; the message says how to save it again."""
    shutil.copytree(base[1], tmp_path / "old")
    os.rename(tmp_path / "old" / "adapter_model.safetensors", tmp_path / "old" / "adapter_model.bin")
    with pytest.raises(AdapterError, match="can run code.*safe_serialization"):
        read_adapter(tmp_path / "old")
