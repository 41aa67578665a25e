"""Trackers: off by default, tested with a fake and with the real packages, and unable to end a run."""

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
    """Records the calls to the package; `broken` names the call that fails."""

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
    """Three steps, with a metric that is None."""
    with Tracker(kind, run) as it:
        it.begin({"steps": 3}, "2026-01-02T03:04:05", 0, resumed)
        for step in (1, 2, 3):
            it.step(step, {"reward": step / 2, "style": None, "skipped_steps": 0})


def test_nothing_is_imported_or_written_by_default(tmp_path, monkeypatch):
    """TRACKER=none imports no package and writes nothing."""
    for name in tracker.PACKAGES.values():
        monkeypatch.setitem(sys.modules, name, None)    # importing it would fail
    tracker.check("none")
    tracked("none", tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("kind, package", tracker.PACKAGES.items())
def test_a_missing_package_is_named_with_its_install_line(kind, package, monkeypatch):
    """The message has the install command and the alternative."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=f"TRACKER={kind} needs the package {package}.*pip install {package}, or leave TRACKER"):
        tracker.check(kind)


def test_wandb_gets_every_step_and_stays_offline(tmp_path, monkeypatch):
    """Settings as config, a stable id, files in the run's folder, None left out; WANDB_MODE decides about the network."""
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
    tracker.Wandb(run, {"cache_dir": str(tmp_path / "cache")}, "2026")
    assert fake.calls[-1][2]["dir"] == str(tmp_path / "cache/logs") and (tmp_path / "cache/logs").is_dir(), "wandb adds wandb/"


@pytest.mark.parametrize("broken", ["init", "log", "finish"])
def test_a_tracker_that_fails_is_reported_once(tmp_path, monkeypatch, capsys, broken):
    """One line with the reason, no exception, and no further call."""
    fake = FakeWandb(broken)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    tracked("wandb", tmp_path)
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert said.startswith("warning: TRACKER=wandb failed and is off from now on (ConnectionError: no such host); metrics.jsonl")
    assert [name for name, *_ in fake.calls].count(broken) == 1 and fake.calls[-1][0] == broken


def events(folder):
    """All events in the folder, in order of file names, read without the writer's code; checksums are skipped."""
    from tensorboardX.proto.event_pb2 import Event
    for path in sorted(folder.iterdir()):
        data, at = path.read_bytes(), 0
        while at < len(data):
            size, = struct.unpack_from("<Q", data, at)
            yield Event.FromString(data[at + 12:at + 12 + size])
            at += 16 + size


def test_tensorboard_files_hold_every_step(tmp_path):
    """The real package: every value with name and step, on disk after each step; a resume discards later steps."""
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
    """TensorBoard's own reader sees the curve without the discarded steps."""
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
    """Steps go on at once with a single warning: nothing waits for a dead thread."""
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
    """The package accepts our calls without a failure and writes into the run's folder only."""
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
    """TRACKER does not change what is computed."""
    (tmp_path / "config.yaml").write_text(config.dump(config.load({"REPORT_TO": "wandb"}).settings))
    assert config.load({"RESUME": str(tmp_path)}).settings.run.tracker == "wandb"
    assert config.load({"RESUME": str(tmp_path), "TRACKER": "none"}).settings.run.tracker == "none"
    assert json.dumps(config.load({}).settings.run.tracker) == '"none"'
