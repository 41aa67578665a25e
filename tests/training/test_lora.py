"""Adapters: initial values, merging, both file formats, and errors for adapters that do not fit."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save

from model_config import PROJECTIONS, SHAPES, Spec, param_specs
from qwen2_jax import forward, project
from rl.settings.declared import ModelSettings
from rl.training import lora
from rl.training.memory import adapted_width
from tests import oracles, small_model

CFG, PARAMS, ADAPTER = small_model.CFG, small_model.params(), small_model.adapter()


def logits(params, adapter):
    tokens = jnp.asarray([small_model.prompt(20)])
    return np.asarray(forward(params, adapter, tokens, jnp.ones_like(tokens, bool), CFG))


def leaves(adapter):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(adapter)]


def test_a_new_adapter_changes_nothing_and_a_trained_one_does():
    """b starts at zero, so logits equal the base model's bit for bit; with another b they differ."""
    new = lora.init(jax.random.key(0), CFG, 4, 8.0)
    assert (logits(PARAMS, new) == logits(PARAMS, None)).all() and lora.delta_norm(new) == 0
    assert abs(logits(PARAMS, ADAPTER) - logits(PARAMS, None)).max() > 0.1


def test_the_adapter_is_added_as_its_formula_says():
    """x @ w + alpha / rank * (x @ a) @ b in float64 NumPy, for one projection."""
    base, pair = PARAMS["layers"][0]["mlp"]["up_proj"], ADAPTER["layers"][0]["mlp"]["up_proj"]
    x = np.random.default_rng(0).standard_normal((5, CFG.hidden_size))
    w, a, b = (np.asarray(m, np.float64) for m in (base["weight"], pair["a"], pair["b"]))

    found, = project(jnp.float32(x), [base], [pair], ADAPTER["scale"])
    np.testing.assert_allclose(found, x @ w + 8 / 4 * (x @ a) @ b, atol=1e-5)


def test_the_real_models_count():
    """Rank 16 on all seven projections of the 0.5B has 8,798,208 values."""
    shapes = jax.eval_shape(lambda: lora.init(jax.random.key(0), SHAPES["0.5B"], 16, 32.0))
    assert lora.count(shapes) == 16 * adapted_width(SHAPES["0.5B"]) == 8_798_208
    two = jax.eval_shape(lambda: lora.init(jax.random.key(0), SHAPES["0.5B"], 16, 32.0, ("q_proj", "v_proj")))
    assert lora.count(two) == 16 * adapted_width(SHAPES["0.5B"], ["v_proj", "q_proj"]) == 16 * 24 * (2 * 896 + 896 + 128)


def test_merged_parameters_give_the_same_logits():
    """Merging the adapter changes no logits, nor the original weights."""
    before = np.asarray(PARAMS["layers"][0]["self_attn"]["q_proj"]["weight"])
    np.testing.assert_allclose(logits(lora.merge(PARAMS, ADAPTER), None), logits(PARAMS, ADAPTER), atol=1e-4)
    assert (before == np.asarray(PARAMS["layers"][0]["self_attn"]["q_proj"]["weight"])).all()


def test_a_part_of_an_adapter_is_measured(tmp_path):
    """LORA_SCALE: 0 gives the base's logits, 1 the adapter's, and half adds half of each product; tables say which."""
    lora.save_npz(tmp_path / "a.npz", ADAPTER)
    settings = ModelSettings(lora=str(tmp_path / "a.npz"))
    found = {scale: lora.to_measure(replace(settings, lora_scale=scale), CFG) for scale in (0.0, 0.5, 1.0)}

    np.testing.assert_array_equal(logits(PARAMS, found[0.0]), logits(PARAMS, None))
    np.testing.assert_array_equal(logits(PARAMS, found[1.0]), logits(PARAMS, ADAPTER))
    np.testing.assert_allclose(logits(PARAMS, found[0.5]), logits(PARAMS, {**ADAPTER, "scale": ADAPTER["scale"] / 2}), rtol=1e-6)
    assert lora.to_measure(ModelSettings(lora_scale=0.5), CFG) is None
    assert (lora.label(settings), lora.label(replace(settings, lora_scale=0.5)), lora.label(ModelSettings(lora_scale=0.5))) == (
        f"{tmp_path / 'a.npz'}", f"{tmp_path / 'a.npz'} x 0.5", "")


def test_delta_norm_is_the_norm_of_the_merged_difference():
    """It equals the float64 Frobenius norm of what merging adds."""
    total = sum((2.0 * np.asarray(p["a"], np.float64) @ np.asarray(p["b"], np.float64)).ravel() @
                (2.0 * np.asarray(p["a"], np.float64) @ np.asarray(p["b"], np.float64)).ravel()
                for layer in ADAPTER["layers"] for part in layer.values() for p in part.values())
    assert lora.delta_norm(ADAPTER) == pytest.approx(total**0.5, rel=1e-5)


def test_both_formats_round_trip(tmp_path):
    """Every bit and the scale come back from an .npz and from a PEFT folder."""
    lora.save_npz(tmp_path / "a.npz", ADAPTER)
    lora.save_peft(tmp_path, ADAPTER, "base")
    for path in (tmp_path / "a.npz", tmp_path):
        for got, want in zip(leaves(lora.load(path, CFG, 4)), leaves(ADAPTER), strict=True):
            assert got.dtype == want.dtype and (got == want).all()
    assert json.loads((tmp_path / "adapter_config.json").read_text())["lora_alpha"] == 8.0


TWO = ("down_proj", "v_proj")    # not in the order of PROJECTIONS


def test_a_new_adapter_has_its_targets_and_no_more():
    """Every layer has exactly the named projections, which start from the same values as among all seven."""
    all_, two = (lora.init(jax.random.key(0), CFG, 4, 8.0, targets) for targets in (PROJECTIONS, TWO))
    assert lora.targets_of(all_) == list(PROJECTIONS) and lora.targets_of(two) == ["v_proj", "down_proj"]
    assert lora.rank_of(two) == lora.rank_of(lora.init(jax.random.key(0), CFG, 4, 8.0, ("up_proj",))) == 4
    for layer, full in zip(two["layers"], all_["layers"], strict=True):
        assert [list(layer[part]) for part in layer] == [["v_proj"], ["down_proj"]]
        assert (layer["mlp"]["down_proj"]["a"] == full["mlp"]["down_proj"]["a"]).all()
    assert (logits(PARAMS, two) == logits(PARAMS, None)).all()


def test_two_targets_equal_seven_with_five_zeros():
    """An adapter on two projections gives the logits of one on seven whose other b are zero, merged too."""
    moved = small_model.adapter()
    two = {**moved, "layers": [{part: {name: p for name, p in group.items() if name in TWO} for part, group in layer.items()}
                               for layer in moved["layers"]]}
    zeroed = {**moved, "layers": [{part: {name: p if name in TWO else {**p, "b": 0 * p["b"]} for name, p in group.items()}
                                   for part, group in layer.items()} for layer in moved["layers"]]}
    np.testing.assert_allclose(logits(PARAMS, two), logits(PARAMS, zeroed), atol=1e-5)
    np.testing.assert_allclose(logits(lora.merge(PARAMS, two), None), logits(PARAMS, two), atol=1e-4)
    assert abs(logits(PARAMS, two) - logits(PARAMS, None)).max() > 0.1
    assert lora.delta_norm(two) == pytest.approx(lora.delta_norm(zeroed), rel=1e-5)


def test_targets_round_trip(tmp_path):
    """Both formats hold the named projections only; other LORA_TARGETS are an error that says what to set."""
    two = lora.init(jax.random.key(0), CFG, 4, 8.0, TWO)
    lora.save_npz(tmp_path / "a.npz", two)
    lora.save_peft(tmp_path, two, "base")
    assert json.loads((tmp_path / "adapter_config.json").read_text())["target_modules"] == ["v_proj", "down_proj"]
    for path in (tmp_path / "a.npz", tmp_path):
        found = lora.load(path, CFG, 4, TWO)
        assert lora.targets_of(found) == ["v_proj", "down_proj"] == lora.targets_of(lora.load(path, CFG))
        assert jax.tree.structure(found) == jax.tree.structure(two) and len(lora.to_peft(found)) == 2 * 2 * 2
        with pytest.raises(lora.AdapterError, match="on v_proj, down_proj, .*LORA_TARGETS=q_proj.*Set LORA_TARGETS=v_proj,"):
            lora.load(path, CFG, 4, ["q_proj"])
    with np.load(tmp_path / "a.npz") as archive:
        kept = {name: archive[name] for name in archive.files if "layers.1.mlp" not in name}
    np.savez(tmp_path / "incomplete.npz", **kept)
    with pytest.raises(lora.AdapterError, match="layers.1.mlp.down_proj.lora_A: missing"):
        lora.load(tmp_path / "incomplete.npz", CFG)


def test_an_empty_adapter_is_refused(tmp_path):
    """A PEFT folder whose pattern matches no projection of this model."""
    lora.save_peft(tmp_path, ADAPTER, "base")
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"target_modules": "nothing"}))
    (tmp_path / "adapter_model.safetensors").write_bytes(save({"x": np.zeros(1, np.float32)}))
    with pytest.raises(lora.AdapterError, match="x has no place"):
        lora.load(tmp_path, CFG)
    (tmp_path / "adapter_model.safetensors").write_bytes(save({}))
    with pytest.raises(lora.AdapterError, match="adapts no projection"):
        lora.load(tmp_path, CFG)


@pytest.mark.slow
@pytest.mark.known_bug(19)
def test_peft_loads_ours_to_the_same_logits(tmp_path):
    """peft and transformers read the adapter folder and give the same logits to 1e-4, not the base model's."""
    torch, transformers, peft = map(oracles.package, ("torch", "transformers", "peft"))
    config = transformers.Qwen2Config(
        vocab_size=CFG.vocab_size, hidden_size=CFG.hidden_size, intermediate_size=CFG.intermediate_size, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2, rope_theta=CFG.rope_theta, rms_norm_eps=CFG.rms_norm_eps,
        tie_word_embeddings=True, attn_implementation="eager")
    theirs = transformers.Qwen2ForCausalLM(config).eval()
    state = {}
    specs = jax.tree.leaves(param_specs(CFG), is_leaf=lambda leaf: isinstance(leaf, Spec))
    for spec, value in zip(specs, jax.tree.leaves(PARAMS), strict=True):
        value = np.array(value)
        state[spec.name] = torch.from_numpy(np.ascontiguousarray(value.T if spec.transposed else value))
    theirs.load_state_dict(state, strict=False)
    lora.save_peft(tmp_path, ADAPTER, "base")
    tokens = torch.tensor([small_model.prompt(20)])
    with torch.no_grad():
        base = theirs(tokens).logits.numpy()
        adapted = peft.PeftModel.from_pretrained(theirs, str(tmp_path)).eval()(tokens).logits.numpy()

    np.testing.assert_allclose(base, logits(PARAMS, None), atol=1e-4)
    np.testing.assert_allclose(adapted, logits(PARAMS, ADAPTER), atol=1e-4)
    assert abs(adapted - base).max() > 0.1


@pytest.mark.known_bug(19)
@pytest.mark.parametrize("cfg, rank, words", [
    (CFG, 8, r"rank \[4\].*LORA_RANK=8.*Set LORA_RANK=4"),
    (replace(CFG, num_hidden_layers=3), 4, "not an adapter of this model.*missing"),
    (replace(CFG, num_hidden_layers=1), 4, "layers.1.*has no place in this model"),
    (replace(CFG, hidden_size=64), 4, r"shape \(4, 48\)"),
])
def test_other_models_and_ranks_are_refused(tmp_path, cfg, rank, words):
    """The error names what does not fit and what to set."""
    lora.save_npz(tmp_path / "a.npz", ADAPTER)
    with pytest.raises(lora.AdapterError, match=words):
        lora.load(tmp_path / "a.npz", cfg, rank)


@pytest.mark.parametrize("rank", [None, 4])
def test_an_adapter_of_two_ranks_is_refused(tmp_path, rank):
    """One projection of rank 2 among others of rank 4; no single LORA_RANK describes it."""
    tensors, name = lora.to_peft(ADAPTER), "base_model.model.model.layers.1.mlp.down_proj.lora_"
    tensors |= {f"{name}A.weight": tensors[f"{name}A.weight"][:2], f"{name}B.weight": tensors[f"{name}B.weight"][:, :2]}
    np.savez(tmp_path / "a.npz", scale=2.0, **tensors)
    with pytest.raises(lora.AdapterError, match=r"rank \[2, 4\]"):
        lora.load(tmp_path / "a.npz", CFG, rank)


@pytest.mark.parametrize("base, model, fits", [
    ("Qwen/Qwen2.5-Coder-0.5B-Instruct", "0.5B", True), ("0.5B", "Qwen/Qwen2.5-Coder-0.5B-Instruct", True),
    ("/data/Qwen2.5-Coder-0.5B-Instruct", "0.5B", True), ("someone/qwen2.5-coder-0.5b-instruct", "0.5B", True),
    ("/c/models--Qwen--Qwen2.5-Coder-0.5B-Instruct/snapshots/ab12", "0.5B", True),
    ("models/tiny", "tiny", True), ("", "0.5B", True), ("Qwen/Other-Model", ".", True), ("Qwen/Other-Model", "", True),
    ("Qwen/Other-Model", "tiny", False), ("Qwen/Qwen2.5-Coder-1.5B-Instruct", "0.5B", False),
    ("/c/models--Qwen--Other-Model/snapshots/ab12", "0.5B", False), ("/data/model", "0.5B", False)])
def test_equal_shapes_do_not_make_it_the_same_model(tmp_path, base, model, fits):
    """The names decide, with or without owner or folder; a file without a name, or a MODEL that is a path, fits any."""
    lora.save_peft(tmp_path, ADAPTER, base)
    if fits:
        assert lora.rank_of(lora.load(tmp_path, CFG, model=model)) == 4
    else:
        with pytest.raises(lora.AdapterError, match=f"trained on {base}, .* MODEL={model}.*base_model_name_or_path"):
            lora.load(tmp_path, CFG, model=model)


@pytest.mark.parametrize("damage", ["absent", "empty", "torn", "text", "no config"])
def test_unreadable_adapters_are_refused(tmp_path, damage):
    """A missing, empty, truncated or foreign file is an error that names the path."""
    path = tmp_path / "a.npz"
    lora.save_npz(path, ADAPTER)
    if damage == "no config":
        path = tmp_path / "folder"
        path.mkdir()
    elif damage == "absent":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "torn": path.read_bytes()[:5000], "text": b"hello"}[damage])
    with pytest.raises(lora.AdapterError, match=path.name):
        lora.load(path, CFG)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("stored", ["npz", "peft", "peft float16", "npz float64"])
def test_values_that_are_not_finite_are_refused(tmp_path, stored, value):
    """One NaN or inf, in either format and any float type, is an error that names the tensor; so is 1e300, inf in float32."""
    tensors, name = lora.to_peft(ADAPTER), "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight"
    tensors = {key: array.astype(stored.split()[1]) if " " in stored else array for key, array in tensors.items()}
    tensors[name] = tensors[name].copy()
    tensors[name][0, 0] = 1e300 if stored.endswith("64") else value
    lora.save_peft(tmp_path, ADAPTER, "base")
    path = tmp_path / "a.npz" if stored.startswith("npz") else tmp_path
    np.savez(tmp_path / "a.npz", scale=2.0, **tensors)
    (tmp_path / "adapter_model.safetensors").write_bytes(save(tensors))
    with pytest.raises(lora.AdapterError, match=f"{path}.* not finite .*{name}"):
        lora.load(path, CFG)


@pytest.mark.parametrize("changes", [{"lora_alpha": float("nan")}, {"lora_alpha": float("inf")}, {"lora_alpha": "16"},
                                     {"r": 0}, {"r": -4}, {"r": 2.5}, {"r": float("nan")}, {"lora_alpha": 1e300}], ids=str)
def test_a_rank_or_alpha_that_gives_no_scale_is_refused(tmp_path, changes):
    """alpha / r has to be a finite number, in a PEFT folder and in an .npz."""
    lora.save_peft(tmp_path, ADAPTER, "base")
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(lora.AdapterError, match="r = .*lora_alpha = "):
        lora.load(tmp_path, CFG)
    np.savez(tmp_path / "a.npz", scale=np.nan, **lora.to_peft(ADAPTER))
    with pytest.raises(lora.AdapterError, match="scale"):
        lora.load(tmp_path / "a.npz", CFG)
