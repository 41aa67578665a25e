"""Paths under CACHE_DIR and in a run's config.yaml, permanent checkpoints, and the hub's token."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import jax
import pytest

from rl import command
from rl.models.pretrained import resolve
from rl.run.files import checkpoint_folder, checkpoints, lasting_checkpoints
from rl.settings import config
from rl.settings.declared import Settings
from rl.settings.paths import ROOT, with_absolute_paths, with_relative_paths
from rl.training import lora

KWARGS = {"math_path": "math", "levels": [1], "deep": {"gsm8k_path": "/abs/gsm8k"}}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache folder with a model and a run, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for folder in ("models/mine", "artifacts/runs/old/checkpoints/step_00004"):
        (tmp_path / "cache" / folder).mkdir(parents=True)
    return tmp_path / "cache"


def load(**values):
    """Settings with these."""
    return config.load({name.upper(): value for name, value in values.items()}).settings


def test_without_a_cache_paths_mean_what_they_say():
    """By default paths are unchanged."""
    found = load(tasks_file="gsm8k", out="x", model="mine", lora="old", provider_kwargs=json.dumps(KWARGS))
    assert (found.data.tasks_file, found.run.out, found.model.model, found.model.lora) == ("gsm8k", "x", "mine", "old")
    assert json.loads(found.data.provider_kwargs) == KWARGS
    assert with_absolute_paths(Settings()) == Settings() == with_relative_paths(Settings())


def test_relative_paths_lie_in_the_cache(cache):
    """Each kind in its folder, as an absolute path; paths that are absolute stay."""
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


def test_the_reference_systems_path_of_an_adapter(cache):
    """checkpoints/lora_step00600.npz is the checkpoint of that step, permanent or not; with CACHE_DIR below it."""
    cfg, run = resolve("tiny").cfg, cache / "artifacts/runs/old/checkpoints"
    for folder in (run / "step_00004", run / "permanent/step_00600"):
        folder.mkdir(parents=True, exist_ok=True)
        lora.save_peft(folder, lora.init(jax.random.key(0), cfg, 2, 4.0), "tiny")
    for step in ("lora_step00004.npz", "lora_step00600.npz", "step_00600"):
        assert lora.rank_of(lora.load(run / step, cfg)) == 2
        found = load(cache_dir="cache", lora=f"old/checkpoints/{step}").model.lora
        assert found == str(run / step) and lora.rank_of(lora.load(found, cfg)) == 2
    with pytest.raises(lora.AdapterError, match="no such file"):
        lora.load(run / "lora_step00005.npz", cfg)


def test_the_hubs_files_lie_in_the_cache_and_nothing_is_downloaded(cache, monkeypatch):
    """Only with CACHE_DIR; a variable that is set stays."""
    for name in ("HF_HUB_CACHE", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "")    # so that both are restored
        monkeypatch.delenv(name)
    command.use_cache(Settings())
    assert "HF_HUB_CACHE" not in os.environ and "HF_HUB_OFFLINE" not in os.environ
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    command.use_cache(load(cache_dir="cache"))
    assert (os.environ["HF_HUB_CACHE"], os.environ["HF_HUB_OFFLINE"]) == (str(cache / "models"), "0")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    command.use_cache(load(cache_dir="cache"))
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_a_run_records_what_was_written_and_its_cache_may_move(cache, tmp_path):
    """config.yaml has relative paths; a resumed run finds everything in CACHE_DIR, also after a move."""
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


ASK = """
from rl.models.hub import tokenizer_file
from rl.models.pretrained import resolve
for ask in (tokenizer_file, resolve):
    try:
        ask("owner/gated")
    except ValueError as error:
        print(error)
"""


def test_the_hubs_token_is_sent(tmp_path):
    """The hub's library sends HF_TOKEN when a tokenizer or a model is fetched; without it no token is sent."""
    sent = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self):
            if "owner/gated" in self.path:
                sent.append(self.headers.get("Authorization"))
            self.send_error(404)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        env = os.environ | {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HUB_OFFLINE": "0",
                            "HF_HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub"), "PYTHONPATH": str(ROOT)}
        for token, header in (("hf_x", "Bearer hf_x"), ("", None)):
            subprocess.run([sys.executable, "-c", ASK], env=env | {"HF_TOKEN": token}, cwd=tmp_path, check=True, timeout=120)
            assert len(sent) >= 2 and set(sent) == {header}
            sent.clear()
        server.shutdown()


def test_checkpoints_are_found_in_both_places(tmp_path):
    """Multiples of KEEP_EVERY in permanent, or in older runs beside the others; incomplete ones are ignored."""
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
