"""Where things lie: CACHE_DIR's places, what a run records of them, names of tokens, permanent checkpoints."""

import json
import sys
from pathlib import Path

import pytest

from rl import command
from rl.errors import InputError
from rl.models import pretrained
from rl.rewards.setup import objective_of_rewards
from rl.run import tracker
from rl.run.files import checkpoint_folder, checkpoints, lasting_checkpoints
from rl.settings import config
from rl.settings.declared import Settings
from rl.settings.paths import as_written, located
from tests.run.test_tracker import FakeWandb

KWARGS = {"math_path": "math", "levels": [1], "deep": {"gsm8k_path": "/abs/gsm8k"}}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache folder with a model and a run in it, named from beside it."""
    monkeypatch.chdir(tmp_path)
    for folder in ("models/mine", "artifacts/runs/old/checkpoints/step_00004"):
        (tmp_path / "cache" / folder).mkdir(parents=True)
    return tmp_path / "cache"


def load(**values):
    """Settings with these."""
    return config.load({name.upper(): value for name, value in values.items()}).settings


def test_without_a_cache_paths_mean_what_they_say():
    """The default changes nothing, and nothing is looked up on the disk."""
    found = load(tasks_file="gsm8k", out="x", model="mine", lora="old", provider_kwargs=json.dumps(KWARGS))
    assert (found.data.tasks_file, found.run.out, found.model.model, found.model.lora) == ("gsm8k", "x", "mine", "old")
    assert json.loads(found.data.provider_kwargs) == KWARGS and located(Settings()) == Settings() == as_written(Settings())


def test_relative_paths_lie_in_the_cache(cache):
    """Each kind in its folder, absolute so that it can be given back from anywhere; absolute paths stay."""
    found = load(cache_dir="cache", tasks_file="gsm8k", out="x", model="mine", lora="old/checkpoints/step_00004",
                 provider_kwargs=json.dumps(KWARGS), reward_kwargs='{"u": {"zero_shot": "zero.jsonl", "tag": "think"}}')
    assert found.data.tasks_file == str(cache / "datasets/gsm8k") and found.run.out == str(cache / "artifacts/runs/x")
    assert found.model.model == str(cache / "models/mine")
    assert found.model.lora == str(cache / "artifacts/runs/old/checkpoints/step_00004")
    assert json.loads(found.data.provider_kwargs) == KWARGS | {"math_path": str(cache / "datasets/math")}
    assert json.loads(found.reward.reward_kwargs)["u"] == {"zero_shot": str(cache / "artifacts/eval/zero.jsonl"), "tag": "think"}
    stays = load(cache_dir="cache", tasks_file="/data", out="/out", model="0.5B", lora="elsewhere")
    assert (stays.data.tasks_file, stays.run.out, stays.model.model, stays.model.lora) == ("/data", "/out", "0.5B", "elsewhere")
    assert command.run_folder(load(cache_dir="cache")).parent == cache / "artifacts/runs"


def test_a_run_records_what_was_written_and_its_cache_may_move(cache, tmp_path):
    """config.yaml has the relative paths; a resume finds the run in CACHE_DIR, and everything where the cache is now."""
    run = cache / "artifacts/runs/x"
    run.mkdir()
    (run / "config.yaml").write_text(config.dump(load(cache_dir="cache", tasks_file="gsm8k", model="mine", out="x")))
    assert "tasks_file: gsm8k\n" in (run / "config.yaml").read_text() and "model: mine\n" in (run / "config.yaml").read_text()

    again = config.load({"CACHE_DIR": "cache", "RESUME": "x", "TASKS_FILE": "gsm8k"}).settings
    assert command.run_folder(again) == run and again.data.tasks_file == str(cache / "datasets/gsm8k")
    by_path = config.load({"RESUME": "cache/artifacts/runs/x"}).settings
    assert command.run_folder(by_path) == Path("cache/artifacts/runs/x") and by_path.model.model == str(cache / "models/mine")
    cache.rename(tmp_path / "moved")
    moved = config.load({"CACHE_DIR": "moved", "RESUME": "x"}).settings
    assert command.run_folder(moved) == tmp_path / "moved/artifacts/runs/x"
    assert moved.data.tasks_file == str(tmp_path / "moved/datasets/gsm8k")


def test_tokens_come_from_the_variables_that_auth_names(tmp_path, monkeypatch):
    """HF_TOKEN_ENV's for the hub, and only once it is asked; WANDB_KEY_ENV's for the tracker. Names, never tokens."""
    asked = []

    def download(repo_id, **named):
        asked.append((named["local_files_only"], named.get("token")))
        raise FileNotFoundError("nothing here")
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.setenv("MY_TOKEN", "hf_x")
    with pytest.raises(pretrained.ModelError):
        command.find_model(load(model="owner/name", hf_token_env="MY_TOKEN"))
    assert asked == [(True, None), (False, "hf_x")]
    counted = load(hf_token_env="MY_TOKEN", combine="additive",
                   reward_kwargs="{length_penalty_reward: {tokenizer_name: owner/name}}")
    with pytest.raises(InputError, match="tokenizer 'owner/name': no folder, .*nothing here"):
        objective_of_rewards(counted)
    assert asked[2:] == [(True, None), (False, "hf_x")]
    with pytest.raises(config.SettingsError, match="HF_TOKEN_ENV takes a variable's name"):
        load(hf_token_env="hf-abc def")

    monkeypatch.setitem(sys.modules, "wandb", fake := FakeWandb())
    for key in ("k", None):
        with tracker.Tracker("wandb", tmp_path, key) as tracked:
            tracked.begin({}, "2026", 0, False)
    inits = [named["settings"] for call, _, named in fake.calls if call == "init"]
    assert inits == [{"console": "off", "api_key": "k"}, {"console": "off"}]
    assert load().auth.wandb_key_env == "WANDB_API_KEY"


def test_checkpoints_are_found_in_both_places(tmp_path):
    """Multiples of KEEP_EVERY under permanent, or in an older run beside the others; incomplete ones count nowhere."""
    for step, keep in ((0, 4), (4, 4), (8, 4), (9, 4)):
        checkpoint_folder(tmp_path, step, keep).mkdir(parents=True)
        (checkpoint_folder(tmp_path, step, keep) / "state.json").touch()
    checkpoint_folder(tmp_path, 12, 4).mkdir()
    assert {step: str(folder.relative_to(tmp_path)) for step, folder in checkpoints(tmp_path).items()} == {
        0: "checkpoints/step_00000", 4: "checkpoints/permanent/step_00004", 8: "checkpoints/permanent/step_00008",
        9: "checkpoints/step_00009"}
    assert [*lasting_checkpoints(tmp_path, 4)] == [4, 8, 9] == [*lasting_checkpoints(tmp_path, 0)]
    old = tmp_path / "old"
    for step in (0, 2, 4, 5, 6):
        (old / f"checkpoints/step_{step:05d}").mkdir(parents=True)
        (old / f"checkpoints/step_{step:05d}/state.json").touch()
    assert [*lasting_checkpoints(old, 4)] == [4, 6] and [*lasting_checkpoints(old, 0)] == [6]
    assert lasting_checkpoints(tmp_path / "none", 4) == {}
