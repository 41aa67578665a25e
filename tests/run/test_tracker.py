"""Trackers beside metrics.jsonl: off by default, told with a stand-in and the real packages, and never the end of a run."""

import json
import struct
import sys
from types import SimpleNamespace

import pytest

from rl.errors import InputError
from rl.run import tracker
from rl.run.tracker import Tracker
from rl.settings import config


class FakeWandb:
    """What the run asks of the package, written down; `broken` names the call that fails."""

    def __init__(self, broken=""):
        self.calls, self.broken = [], broken

    def _call(self, call, *arguments, **named):
        self.calls.append((call, arguments, named))
        if call == self.broken:
            raise ConnectionError("no such host")

    def init(self, **named):
        """Start a run."""
        self._call("init", **named)
        return SimpleNamespace(log=lambda values, step: self._call("log", values, step), finish=lambda: self._call("finish"))


def tracked(kind, run, resumed=False):
    """Three steps with a value that does not exist."""
    with Tracker(kind, run) as it:
        it.begin({"steps": 3}, "2026-01-02T03:04:05", 0, resumed)
        for step in (1, 2, 3):
            it.step(step, {"reward": step / 2, "style": None, "skipped_steps": 0})


def test_nothing_is_imported_or_written_by_default(tmp_path, monkeypatch):
    """TRACKER=none neither needs nor touches anything."""
    for name in tracker.PACKAGES.values():
        monkeypatch.setitem(sys.modules, name, None)    # importing it would fail
    tracker.check("none")
    tracked("none", tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("kind, package", tracker.PACKAGES.items())
def test_a_missing_package_is_named_with_its_install_line(kind, package, monkeypatch):
    """Before anything heavy; the message holds the command and the way without."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=f"TRACKER={kind} needs the package {package}.*pip install {package}, or leave TRACKER"):
        tracker.check(kind)


def test_wandb_gets_every_step_and_stays_offline(tmp_path, monkeypatch):
    """Settings as config, a stable id, files in the run's folder, nulls left out; WANDB_MODE decides about the network."""
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    tracker.check("wandb")
    run = tmp_path / "2026 my run"
    run.mkdir()
    tracked("wandb", run)
    init = fake.calls[0][2]
    assert init["settings"] == {"console": "off"}, "no key: the package finds that itself"
    assert (init["mode"], init["dir"], init["config"], init["resume"]) == ("offline", str(run), {"steps": 3}, "allow")
    assert init["id"] == "2026-my-run-20260102030405"
    assert fake.calls[1:] == [*[("log", ({"reward": step / 2, "skipped_steps": 0.0}, step), {}) for step in (1, 2, 3)],
                              ("finish", (), {})]
    monkeypatch.setenv("WANDB_MODE", "online")
    tracked("wandb", run, resumed=True)
    again = fake.calls[5][2]
    assert again["mode"] == "online" and again["id"] == init["id"]


@pytest.mark.parametrize("broken", ["init", "log", "finish"])
def test_a_tracker_that_fails_is_told_of_once(tmp_path, monkeypatch, capsys, broken):
    """One line with the reason, no exception, and it is not asked again."""
    fake = FakeWandb(broken)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    tracked("wandb", tmp_path)
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert said.startswith("warning: TRACKER=wandb failed and is off from now on (ConnectionError: no such host); metrics.jsonl")
    assert [name for name, *_ in fake.calls].count(broken) == 1 and fake.calls[-1][0] == broken


def events(folder):
    """Every event of the folder's files, by file name, checksums verified by length alone; read without the writer's code."""
    from tensorboardX.proto.event_pb2 import Event
    for path in sorted(folder.iterdir()):
        data, at = path.read_bytes(), 0
        while at < len(data):
            size, = struct.unpack_from("<Q", data, at)
            yield Event.FromString(data[at + 12:at + 12 + size])
            at += 16 + size


def test_tensorboard_files_hold_every_step(tmp_path):
    """The real package: each value under its name and step as soon as the step is over; a resume takes later steps back."""
    pytest.importorskip("tensorboardX", reason="needs tensorboardX")
    tracker.check("tensorboard")
    tracked("tensorboard", tmp_path)
    found = [(event.step, value.tag, value.simple_value) for event in events(tmp_path / "tensorboard")
             for value in event.summary.value]
    assert found == [(step, name, value) for step in (1, 2, 3) for name, value in (("reward", step / 2), ("skipped_steps", 0.0))]
    with Tracker("tensorboard", tmp_path) as it:
        it.begin({}, "", 1, True)
    back = [event.step for event in events(tmp_path / "tensorboard") if event.HasField("session_log")]
    assert back == [2], "TensorBoard drops what other files say of steps from here on"


def test_tensorboard_itself_reads_them(tmp_path):
    """The viewer's own reader sees the curve, without the steps that a resume took back."""
    pytest.importorskip("tensorboardX", reason="needs tensorboardX")
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard")
    tracked("tensorboard", tmp_path)
    first, = (tmp_path / "tensorboard").iterdir()
    first.rename(first.with_name(first.name.replace("tfevents.", "tfevents.0")))    # a second file may come in the same second
    with Tracker("tensorboard", tmp_path) as it:
        it.begin({}, "", 1, True)
        it.step(2, {"reward": 7.0})
    seen = reader.EventAccumulator(str(tmp_path / "tensorboard"))
    seen.Reload()
    assert [(event.step, event.value) for event in seen.Scalars("reward")] == [(1, 0.5), (2, 7.0)]


def test_tensorboard_on_a_disk_that_is_full(tmp_path, capsys):
    """The step goes on at once, and the warning comes once: nothing waits for a thread that has died."""
    import resource
    pytest.importorskip("tensorboardX", reason="needs tensorboardX")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Tracker("tensorboard", tmp_path) as it:
        it.begin({}, "", 0, False)
        size = next((tmp_path / "tensorboard").iterdir()).stat().st_size
        capsys.readouterr()
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 200, before[1]))
        try:
            for step in range(1, 60):
                it.step(step, {"reward": 1.0})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert capsys.readouterr().out.count("TRACKER=tensorboard failed") == 1


@pytest.mark.slow
def test_the_real_wandb_offline(tmp_path, monkeypatch, capsys):
    """The package itself takes what we give it, without a failure to tell of, and writes into the run's folder alone."""
    pytest.importorskip("wandb", reason="needs wandb")
    (tmp_path / "home").mkdir()
    for name in ("HOME", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = tmp_path / "run"
    run.mkdir()
    tracked("wandb", run)
    written, = (run / "wandb").glob("offline-run-*/run-*.wandb")
    assert written.stat().st_size > 0, "when its own process writes the rest is its business"
    assert "failed" not in capsys.readouterr().out


def test_a_resumed_run_may_change_its_tracker(tmp_path):
    """TRACKER is logging, not what is computed."""
    (tmp_path / "config.yaml").write_text(config.dump(config.load({"REPORT_TO": "wandb"}).settings))
    assert config.load({"RESUME": str(tmp_path)}).settings.run.tracker == "wandb"
    assert config.load({"RESUME": str(tmp_path), "TRACKER": "none"}).settings.run.tracker == "none"
    assert json.dumps(config.load({}).settings.run.tracker) == '"none"'
