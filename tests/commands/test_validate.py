"""validate_forward.py passes on a sound model, fails on a broken one, and its own float64 model is right."""

import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import qwen2_jax
import validate_forward as validate
from rl.models.pretrained import resolve
from tests import oracles
from tests.hub_folder import write_checkpoint
from tests.models.test_pretrained import copies, write_gguf

PROMPTS = [[5], [9, 250, 17, 17, 3, 100], [61, 60, 59]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint whose activations are of an ordinary size."""
    path = tmp_path_factory.mktemp("validate")
    write_checkpoint(path, tied=False, initializer_range=0.1)
    return path


@pytest.fixture
def few(monkeypatch):
    """Four prompts in place of ten: each length costs a compilation. The command compares with transformers."""
    oracles.package("transformers")
    monkeypatch.setattr(validate, "TEXTS", validate.TEXTS[:2])


@pytest.mark.slow
@pytest.mark.parametrize("family, tied", [("qwen2", True), ("qwen2", False), ("qwen3", True), ("llama", False)])
def test_float64_model_is_transformers_in_double(tmp_path, family, tied):
    """Independent of our forward: at float64 transformers agrees to what its fp32 norms, softmax and angles leave."""
    write_checkpoint(tmp_path, family=family, tied=tied)
    source = resolve(str(tmp_path))
    model = oracles.opened(tmp_path, "float64")
    found = validate.float64_run(source.tensors.__getitem__, source.cfg, PROMPTS)
    for i, ids in enumerate(PROMPTS):
        theirs = validate.transformers_run(model, [ids], pad_id=0)
        np.testing.assert_allclose(found.logits[i], theirs.logits[0], atol=2e-5)
        assert len(found.hidden) == len(theirs.hidden) == 4
        for a, b in zip(found.hidden, theirs.hidden, strict=True):
            np.testing.assert_allclose(a[i], b[0], atol=2e-5)


def test_head_chunks_change_nothing(folder, monkeypatch):
    """The chunk of vocabulary rows is a matter of memory alone."""
    source = resolve(str(folder))
    whole = validate.float64_run(source.tensors.__getitem__, source.cfg, PROMPTS)
    monkeypatch.setattr(validate, "VOCAB_CHUNK", 7)
    chunked = validate.float64_run(source.tensors.__getitem__, source.cfg, PROMPTS)

    for a, b in zip(whole.logits, chunked.logits, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.fixture(scope="module")
def exact(folder):
    """The checkpoint and what float64 makes of PROMPTS."""
    source = resolve(str(folder))
    return source, validate.float64_run(source.tensors.__getitem__, source.cfg, PROMPTS)


@pytest.mark.parametrize("whose", ["ours", pytest.param("transformers", marks=pytest.mark.slow)])
def test_a_layer_by_itself_is_the_layer_in_its_place(exact, whose):
    """Fed with what came before it anyway, every layer of either model gives what it gave, and its error is rounding."""
    source, truth = exact
    if whose == "ours":
        params = validate.load(source, np.float32).params
        run = partial(validate.our_run, params, source.cfg, PROMPTS, 0)
    else:
        run = partial(validate.transformers_run, oracles.opened(source.path), PROMPTS, 0)
    plain = run()
    for a, b in zip(plain.hidden, run(fed=plain.hidden).hidden, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)
    assert len(errors := validate.layer_errors(run(fed=truth.hidden), truth)) == 2 and 0 < max(errors) < 12


def with_one_weight_changed(params, layer, name):
    """1e-3 more in one weight of a layer."""
    part, p = name.split(".")
    own = params["layers"][layer][part][p]
    layers = list(params["layers"])
    layers[layer] = {**layers[layer], part: {**layers[layer][part], p: {**own, "weight": own["weight"].at[3, 5].add(1e-3)}}}
    return {**params, "layers": layers}


@pytest.mark.parametrize("name", ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
                                  "mlp.up_proj", "mlp.down_proj"])
@pytest.mark.parametrize("layer", [0, 1])
def test_one_weight_shows_in_its_layer(exact, name, layer):
    """1e-3 more in a single weight: that layer is beyond its limit, the other is not, and the tensor is named."""
    source, truth = exact
    changed = with_one_weight_changed(validate.load(source, np.float32).params, layer, name)
    errors = validate.layer_errors(validate.our_run(changed, source.cfg, PROMPTS, 0, fed=truth.hidden), truth)
    told = validate.exceeded_layers({"ours": errors, "transformers": [1.0, 1.0]})

    assert len(told) == 1 and told[0].startswith(f"layer {layer + 1} by itself")
    assert validate.changed_parameters(changed, source) == [f"model.layers.{layer}.{name}.weight"]


@pytest.mark.slow
def test_one_changed_weight_fails_the_command(folder, few, monkeypatch, capsys):
    """Exit 1, for the layer as for the tensor."""
    load = validate.load
    monkeypatch.setattr(validate, "load", lambda source, dtype: (model := load(source, dtype))._replace(
        params=with_one_weight_changed(model.params, 1, "mlp.up_proj")))
    assert validate.main([str(folder)]) == 1
    told = capsys.readouterr().out.split("FAILED", 1)[1]

    assert "layer 2 by itself" in told and "not the file's: model.layers.1.mlp.up_proj.weight" in told


@pytest.mark.slow
def test_a_sound_model_passes(folder, capsys, few):
    """Exit 0, with a row for each prompt and for each layer."""
    assert validate.main([str(folder)]) == 0
    told = capsys.readouterr().out

    assert told.count(" tokens") == 4 and "layer 1" in told and "final norm" in told and "all limits hold" in told


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_other_families_pass(tmp_path, capsys, few, family):
    """The command holds its limits on them as well."""
    write_checkpoint(tmp_path, family=family, initializer_range=0.1)

    assert validate.main([str(tmp_path)]) == 0, capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_a_gguf_passes(tmp_path, capsys, few, family):
    """A .gguf file goes through the same comparison, its tensors in transformers' model."""
    write_checkpoint(tmp_path / "model", family=family, initializer_range=0.1)
    write_gguf(tmp_path / "m.gguf", copies(tmp_path / "model"), arch=family)

    assert validate.main([str(tmp_path / "m.gguf")]) == 0, capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name, broken, complaint", [
    ("rms_norm", lambda x, weight, eps: x * weight, "transformers"),
    ("rope_angles", lambda positions, cfg: qwen2_jax.rope_angles(positions + positions // 40, cfg), "float64"),
])
def test_a_broken_forward_fails(folder, few, monkeypatch, capsys, name, broken, complaint):
    """Exit 1, and the limit that does not hold is told: a last norm left out, a position off from the fortieth on."""
    monkeypatch.setattr(validate, name, broken)

    assert validate.main([str(folder)]) == 1
    assert "FAILED" in (told := capsys.readouterr().out) and complaint in told.split("FAILED", 1)[1]


@pytest.mark.slow
def test_padding_is_part_of_the_check(folder, few, monkeypatch, capsys):
    """A forward that looks at padding fails, though each prompt by itself is right."""
    monkeypatch.setattr(validate, "Causal", lambda mask: qwen2_jax.Causal(mask | True))

    assert validate.main([str(folder)]) == 1
    capsys.readouterr()


def test_prompts_differ_in_length(folder):
    """At least eight lengths, from a single token on."""
    lengths = {len(ids) for ids in validate.prompts_of(resolve(str(folder)))}

    assert len(lengths) >= 8 and min(lengths) == 1


def run_of(logits):
    return validate.Run([[np.zeros((1, 2))]], [np.full((1, 3), logits)])


def logits_of(difference, error, theirs):
    """The three pairs' worst logit differences, in a run alone; the batch's are smaller."""
    pairs = dict(zip(validate.PAIRS, (difference, error, theirs), strict=True))
    return {f"{pair}, {way}": [0.0, value if way == "single" else None, value / 2]
            for pair, value in pairs.items() for way in ("batch", "single")}


@pytest.mark.parametrize("difference, error, theirs, half, failures", [
    (1.11e-4, 4.81e-5, 1.12e-4, 1.0, 0),  # an AVX2 machine's, where nothing is wrong
    (1.6e-4, 4.9e-5, 1.12e-4, 1.0, 0), (1.7e-4, 4.9e-5, 1.12e-4, 1.0, 1), (1e-5, 5.1e-5, 1.12e-4, 1.0, 1),
    (1e-5, 4.6e-5, 3e-5, 1.0, 1), (1e-5, 4.4e-5, 3e-5, 1.0, 0),
    (float("inf"), float("inf"), 4e-5, 1.0, 2), (float("inf"), 1e-5, float("inf"), 1.0, 2),
    (1e-5, 1e-5, 4e-5, float("inf"), 1), (1e-5, 1e-5, 4e-5, float("nan"), 1), (2e-4, 9e-5, 4e-5, float("nan"), 3)])
def test_limits(difference, error, theirs, half, failures):
    """Ours 5e-5 from float64 and 1.5 times transformers' error, the two apart by no more than both allow, half finite."""
    assert len(validate.exceeded_limits(logits_of(difference, error, theirs), run_of(half), 1.0)) == failures


@pytest.mark.parametrize("ours, theirs, failures", [([11.9, 1.0], [1.0, 1.0], 0), ([12.1, 1.0], [1.0, 1.0], 1),
                                                    ([14.0, 12.1], [15.0, 1.0], 1), ([float("nan")] * 2, [1.0, 1.0], 2)])
def test_limits_of_layers(ours, theirs, failures):
    """12 eps, or what transformers has in the same layer."""
    assert len(validate.exceeded_layers({"ours": ours, "transformers": theirs})) == failures


def test_chance_in_the_last_bits_is_no_failure():
    """Where both errors are of the size of rounding their ratio means nothing."""
    logits = {f"{pair}, {way}": [value] for way in ("batch", "single") for pair, value in
              (("ours - transformers", 1e-7), ("ours - float64", 1.2e-7), ("transformers - float64", 3e-8))}

    assert validate.exceeded_limits(logits, run_of(1.0), 1.0) == []


def test_difference_of_what_is_not_finite():
    """A NaN on either side is an infinite difference, so that no comparison can let it pass."""
    assert validate.max_difference(np.array([1.0, np.nan]), np.array([1.0, 2.0])) == float("inf")
    assert validate.max_difference(np.array([1.0, 2.5]), np.array([1.0, 2.0])) == 0.5


@pytest.mark.slow
def test_a_model_that_is_not_there(capsys, monkeypatch, tmp_path):
    """Exit 2 with one message, whether the argument or MODEL names it; the argument wins."""
    oracles.package("transformers")
    monkeypatch.setenv("MODEL", str(tmp_path / "other"))

    assert validate.main([str(tmp_path / "none")]) == 2 and "none: no such file" in capsys.readouterr().err
    assert validate.main([]) == 2 and "other: no such file" in capsys.readouterr().err


def test_bad_input(capsys, monkeypatch, tmp_path):
    """Exit 2 with one message: too many arguments, torch not installed; --help is 0."""
    assert validate.main(["a", "b"]) == 2
    assert validate.main(["--help"]) == 0 and "validate_forward.py 0.5B" in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "torch", None)
    assert validate.main([str(tmp_path)]) == 2 and "requirements-oracles.txt" in capsys.readouterr().err


@pytest.mark.real
def test_real_checkpoint_in_a_process_of_its_own(real_model, root):
    """The command, as typed, holds its limits on the real 0.5B."""
    done = subprocess.run([sys.executable, "validate_forward.py", real_model], cwd=root, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
