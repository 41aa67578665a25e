"""TensorBoard or Weights & Biases beside metrics.jsonl, which has everything whatever happens here.

Their packages are imported only when TRACKER asks for them. A tracker that fails at any moment is told of once and left
off; training goes on. TensorBoard's files are written by the thread that trains: the package's usual writer has a thread of
its own, and when that one dies of a full disk, the next steps wait for it for ever."""

import os
import re
import time
from pathlib import Path

from rl.errors import InputError

PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}
PROJECT = "rl-lisp-python"


class Tracker:
    """A context manager around a run; `begin`, then `step` after every step. With kind "none" all of it does nothing."""

    def __init__(self, kind: str, run: Path, wandb_key: str | None = None):
        self._kind, self._run, self._key, self._sink = kind, run, wandb_key, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._sink:
            self._attempt(self._sink.close)

    def begin(self, settings: dict, started: str, step: int, resumed: bool) -> None:
        """Open it for a run that begins after `step`; `started`, when the run first was, tells it from others of its name."""
        if self._kind == "tensorboard":
            self._attempt(lambda: self._open(TensorBoard(self._run, step, resumed)))
        elif self._kind == "wandb":
            self._attempt(lambda: self._open(Wandb(self._run, settings, started, self._key)))

    def step(self, step: int, metrics: dict) -> None:
        """Pass the step's row on; values that do not exist (null) are left out."""
        if self._sink:
            values = {name: float(value) for name, value in metrics.items() if value is not None}
            self._attempt(lambda: self._sink.step(step, values))

    def _open(self, sink) -> None:
        self._sink = sink

    def _attempt(self, action) -> None:
        try:
            action()
        except Exception as error:  # disks, networks, servers, other people's packages: none may end a run
            self._sink = None
            print(f"warning: TRACKER={self._kind} failed and is off from here on ({type(error).__name__}: {error}); "
                  "metrics.jsonl has every step", flush=True)


def check(kind: str) -> None:
    """InputError with the command that helps where the tracker's package cannot be imported."""
    try:
        if kind == "tensorboard":
            import tensorboardX.event_file_writer  # noqa: F401
        elif kind == "wandb":
            import wandb  # noqa: F401
    except Exception as error:  # not there, or there and broken
        raise InputError(f"TRACKER={kind} needs the package {PACKAGES[kind]} ({type(error).__name__}: {error}): "
                         f"pip install {PACKAGES[kind]}, or leave TRACKER out; metrics.jsonl is written anyway") from error


class TensorBoard:
    """RUN/tensorboard, for `tensorboard --logdir RUN`; a resumed run takes back what was logged after its checkpoint."""

    def __init__(self, run: Path, step: int, resumed: bool):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.proto.summary_pb2 import Summary

        (run / "tensorboard").mkdir(exist_ok=True)
        self._event, self._summary = Event, Summary
        self._file = EventsWriter(str(run / "tensorboard" / "events"))
        if resumed:
            back = SessionLog(status=SessionLog.START)
            self._file.write_event(Event(wall_time=time.time(), step=step + 1, session_log=back))
        self._file.flush()

    def step(self, step: int, values: dict[str, float]) -> None:
        """All values of one step, on the disk when this returns."""
        found = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._file.write_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=found)))
        self._file.flush()

    def close(self) -> None:
        """No more steps."""
        self._file.close()


class Wandb:
    """A run of Weights & Biases in RUN/wandb, offline unless WANDB_MODE says otherwise; steps it has seen stay as they were."""

    def __init__(self, run: Path, settings: dict, started: str, key: str | None = None):
        import wandb

        name = re.sub(r"[^\w-]+", "-", run.resolve().name)
        self._run = wandb.init(project=PROJECT, name=run.name, id=f"{name}-{re.sub(r'[^0-9]', '', started)}"[-64:], dir=str(run),
                               config=settings, resume="allow", mode=os.environ.get("WANDB_MODE", "offline"),
                               # the lines of a run are ours, and so is its bar; a key is only needed to send
                               settings={"console": "off"} | ({"api_key": key} if key else {}))

    def step(self, step: int, values: dict[str, float]) -> None:
        """All values of one step."""
        self._run.log(values, step=step)

    def close(self) -> None:
        """No more steps."""
        self._run.finish()
