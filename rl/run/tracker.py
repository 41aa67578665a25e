"""Metrics for TensorBoard or Weights & Biases, in addition to metrics.jsonl, which is always complete.

Their packages are imported only if TRACKER names them. A tracker that fails is reported once and turned off; training goes on.
TensorBoard's files are written by the training thread: the package's usual writer has a thread of its own, and if that one dies
on a full disk, training waits for it forever. wandb reads its key from WANDB_API_KEY or from `wandb login`."""

import os
import re
import time
from pathlib import Path

from rl.errors import InputError
from rl.settings.paths import cache_folder

PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}
PROJECT = "rl-lisp-python"


class Tracker:
    """A context manager around a run: call `begin`, then `step` after every step. With kind "none" it does nothing."""

    def __init__(self, kind: str, run: Path):
        self._kind, self._run, self._sink = kind, run, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._sink:
            self._attempt(self._sink.close)

    def begin(self, settings: dict, started: str, step: int, resumed: bool) -> None:
        """Open the tracker for a run that goes on after `step`; its name and `started`, the time of its start, identify it."""
        if self._kind == "tensorboard":
            self._attempt(lambda: self._open(TensorBoard(self._run, step, resumed)))
        elif self._kind == "wandb":
            self._attempt(lambda: self._open(Wandb(self._run, settings, started)))

    def step(self, step: int, metrics: dict) -> None:
        """Log the metrics of a step; those that are None are left out."""
        if self._sink:
            values = {name: float(value) for name, value in metrics.items() if value is not None}
            self._attempt(lambda: self._sink.step(step, values))

    def _open(self, sink) -> None:
        self._sink = sink

    def _attempt(self, action) -> None:
        try:
            action()
        except Exception as error:  # no disk, network, server or package of others may end a run
            self._sink = None
            print(f"warning: TRACKER={self._kind} failed and is off from now on ({type(error).__name__}: {error}); "
                  "metrics.jsonl has every step", flush=True)


def check(kind: str) -> None:
    """InputError with the install command if the tracker's package cannot be imported."""
    try:
        if kind == "tensorboard":
            import tensorboardX.event_file_writer  # noqa: F401
        elif kind == "wandb":
            import wandb  # noqa: F401
    except Exception as error:  # missing or broken
        raise InputError(f"TRACKER={kind} needs the package {PACKAGES[kind]} ({type(error).__name__}: {error}): "
                         f"pip install {PACKAGES[kind]}, or leave TRACKER out; metrics.jsonl is written anyway") from error


class TensorBoard:
    """Event files in RUN/tensorboard, for `tensorboard --logdir RUN`; a resumed run discards steps after its checkpoint."""

    def __init__(self, run: Path, step: int, resumed: bool):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.proto.summary_pb2 import Summary

        (run / "tensorboard").mkdir(exist_ok=True)
        self._event, self._summary = Event, Summary
        self._file = EventsWriter(str(run / "tensorboard" / "events"))
        if resumed:
            discard = SessionLog(status=SessionLog.START)    # of what other files say from this step on
            self._file.write_event(Event(wall_time=time.time(), step=step + 1, session_log=discard))
        self._file.flush()

    def step(self, step: int, values: dict[str, float]) -> None:
        """Write the values of one step; they are on disk when this returns."""
        written = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._file.write_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=written)))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Wandb:
    """A run of Weights & Biases in RUN/wandb, or with CACHE_DIR in its logs/wandb, offline unless WANDB_MODE=online; steps
    already logged stay as they are."""

    def __init__(self, run: Path, settings: dict, started: str):
        import wandb

        folder = cache_folder(settings["cache_dir"], "logs") if settings.get("cache_dir") else run
        folder.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^\w-]+", "-", run.resolve().name)
        self._run = wandb.init(project=PROJECT, name=run.name, id=f"{name}-{re.sub(r'[^0-9]', '', started)}"[-64:],
                               dir=str(folder), config=settings, resume="allow",
                               mode=os.environ.get("WANDB_MODE", "offline"),
                               settings={"console": "off"})    # it must not capture the run's lines and its progress bar

    def step(self, step: int, values: dict[str, float]) -> None:
        """Log the values of one step."""
        self._run.log(values, step=step)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
