"""Merged checkpoints and PEFT adapters, compared with transformers and peft."""

import json
import os
import resource
import shutil
import sys

import jax.numpy as jnp
import numpy as np
import peft
import pytest
import torch
from transformers import AutoModelForCausalLM

from qwen2_jax import forward
from rl import command
from rl.errors import InputError
from rl.models import export, pretrained
from rl.models.hub import hub_name
from rl.models.peft import AdapterError, read_adapter
from rl.models.tensors import DTYPES, write_tensors
from rl.training import lora
from tests.hub_folder import write_checkpoint
from tests.small_model import adapter as random_adapter

torch.set_num_threads(1)    # tiny products; more threads only wait for each other
TOKENS = [[5, 41, 2, 260, 17, 99, 3, 120, 44, 8]]
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def ours(folder, adapter=None):
    source = pretrained.resolve(str(folder))
    tokens = jnp.asarray(TOKENS)
    params = pretrained.load(source, jnp.float32).params
    return np.asarray(forward(params, adapter, tokens, jnp.ones_like(tokens, bool), source.cfg), np.float64)


def theirs(model):
    with torch.no_grad():
        return model(torch.tensor(TOKENS)).logits.double().numpy()


def opened(folder, dtype=torch.float32):
    return AutoModelForCausalLM.from_pretrained(str(folder), dtype=dtype).eval()


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A checkpoint saved by transformers, and an adapter of it as a PEFT folder that names it."""
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
    """transformers without peft, and this program, get the logits that peft gets from base and adapter; texts are copied."""
    model, adapter, values = base
    code, out, err = merge(adapter, tmp_path / "a" / "merged")
    assert code == 0 and f"MODEL={tmp_path / 'a' / 'merged'}" in out, err

    with_peft = theirs(peft.PeftModel.from_pretrained(opened(model), str(adapter)).eval())
    np.testing.assert_allclose(theirs(opened(tmp_path / "a" / "merged")), with_peft, atol=1e-4)
    np.testing.assert_allclose(ours(tmp_path / "a" / "merged"), ours(model, values), atol=1e-4)
    assert abs(with_peft - ours(model)).max() > 0.1
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "a" / "merged" / name).read_bytes() == (model / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["merged"]


@pytest.mark.parametrize("kept, requested, found", [
    (torch.float16, None, torch.float16), (torch.bfloat16, None, torch.bfloat16), (torch.bfloat16, "float32", torch.float32),
    (torch.float32, "bfloat16", torch.bfloat16)])
def test_dtype_is_the_checkpoints_or_the_requested_one(merge, tmp_path, kept, requested, found):
    """The sum is computed in fp32 and rounded once; config.json names the dtype. Sharded and untied checkpoints too."""
    model = write_checkpoint(tmp_path / "model", tied=False, dtype=kept, shards=2)
    values = random_adapter(pretrained.resolve(str(tmp_path / "model")).cfg)
    lora.save_npz(tmp_path / "a.npz", values)
    option = [f"--dtype={requested}"] if requested else []
    code, _, err = merge(tmp_path / "a.npz", tmp_path / "out", *option, MODEL=tmp_path / "model")
    assert code == 0, err

    merged = opened(tmp_path / "out", "auto").state_dict()
    p, name = values["layers"][1]["mlp"]["down_proj"], "model.layers.1.mlp.down_proj.weight"
    exact = model.state_dict()[name].double().numpy() + 2.0 * (np.asarray(p["a"], np.float64) @ np.asarray(p["b"], np.float64)).T
    assert merged[name].dtype == found
    np.testing.assert_allclose(merged[name].double().numpy(), exact, rtol=4 * torch.finfo(found).eps, atol=1e-6)
    untouched = "model.layers.0.input_layernorm.weight"
    assert (merged[untouched] == model.state_dict()[untouched].to(found)).all()
    assert not (tmp_path / "out" / "model.safetensors.index.json").exists()


def test_what_is_written_is_what_the_library_reads(tmp_path):
    """Every dtype, an empty and a scalar tensor are read back bit for bit by safetensors."""
    from safetensors.torch import load_file

    rng = np.random.default_rng(0)
    arrays = {f"{name}{shape}": rng.standard_normal(shape).astype(dtype) for name, dtype in DTYPES.items()
              for shape in ((3, 5), (), (0, 4), (7,))}
    write_tensors(tmp_path / "x.safetensors", {name: (value.dtype, value.shape) for name, value in arrays.items()}, arrays.get)
    found = load_file(tmp_path / "x.safetensors")
    assert found.keys() == arrays.keys()
    for name, value in arrays.items():
        assert tuple(found[name].shape) == value.shape
        assert (found[name].double().numpy() == value.astype(np.float64)).all(), name


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

def peft_adapter(model, folder, base="", **config):
    """An adapter made and saved by peft itself, both halves random; returns its logits."""
    torch.manual_seed(1)
    about = {"target_modules": ALL, "lora_dropout": 0.1, "task_type": "CAUSAL_LM", "init_lora_weights": True} | config
    wrapped = peft.get_peft_model(opened(model), peft.LoraConfig(**about)).eval()
    with torch.no_grad():
        for name, value in wrapped.named_parameters():
            if "lora_" in name:
                value.copy_(0.2 * torch.randn_like(value))
    wrapped.save_pretrained(str(folder))
    return theirs(wrapped)


@pytest.mark.parametrize("config", [
    {"r": 5, "lora_alpha": 12},
    {"r": 4, "lora_alpha": 8, "use_rslora": True},
    {"r": 3, "lora_alpha": 9, "target_modules": ["q_proj", "v_proj"]},
    {"r": 3, "lora_alpha": 9, "target_modules": r".*layers\.1\.mlp\.(up|down)_proj"},
    {"r": 2, "lora_alpha": 4, "target_modules": "all-linear", "exclude_modules": ["lm_head"]},
    {"r": 3, "lora_alpha": 9, "layers_to_transform": [0]},
], ids=str)
def test_an_adapter_that_peft_saved_gives_its_logits(base, tmp_path, config):
    """Other ranks and alphas, rank-stabilised scaling, fewer projections or layers: the logits are those of peft."""
    wanted = peft_adapter(base[0], tmp_path / "theirs", **config)
    adapter = lora.load(tmp_path / "theirs", pretrained.resolve(str(base[0])).cfg)
    np.testing.assert_allclose(ours(base[0], adapter), wanted, atol=1e-4)
    assert abs(wanted - ours(base[0])).max() > 0.05 and lora.rank_of(adapter) == config["r"]


def test_a_half_precision_adapter_is_read(base, tmp_path):
    """bf16 tensors, as most trainers save them, become fp32 unchanged."""
    peft_adapter(base[0], tmp_path / "theirs", r=4)
    from safetensors.torch import load_file, save_file
    path = tmp_path / "theirs" / "adapter_model.safetensors"
    halved = {name: value.bfloat16() for name, value in load_file(path).items()}
    save_file(halved, path)
    found = lora.load(tmp_path / "theirs", pretrained.resolve(str(base[0])).cfg)
    a = halved["base_model.model.model.layers.1.mlp.up_proj.lora_A.weight"].float().numpy()
    assert (np.asarray(found["layers"][1]["mlp"]["up_proj"]["a"]) == a.T).all()


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
    from safetensors.numpy import load_file, save_file
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
