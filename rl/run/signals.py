"""Ctrl-C, SIGTERM or a closed terminal as an exception that waits for a safe moment; a second signal ends the process at once.

A run that is to outlive its terminal (nohup, disown) keeps writing to a stream whose terminal is gone."""

import errno
import os
import signal
import sys
import threading
from contextlib import contextmanager

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP arrived; `exit_code` is what the command should end with.

    No Exception, so that nothing that catches those on its way takes it for a fault of its own."""

    def __init__(self, signum):
        super().__init__(signal.Signals(signum).name)
        self.exit_code = EXIT_CODES[signum]


class Signals:
    """Turns the first signal into Interrupted, at once or, inside `held`, at the end of that block.

    Python's handlers wait until the main thread is back from a compilation or a step on the device. A second signal must
    not, so a thread of its own counts them, from the pipe that the C-level handler writes to."""

    def __init__(self):
        self._caught = None
        self._holding = False

    def __enter__(self):
        read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        threading.Thread(target=_end_at_the_second, args=(read,), daemon=True).start()
        ours = set(EXIT_CODES)
        if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:    # nohup: the run is to outlive its terminal
            ours.remove(signal.SIGHUP)
        self._before = {signum: signal.signal(signum, self._handle) for signum in ours}
        return self

    def __exit__(self, *_):
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._write)

    def _handle(self, signum, _frame):
        if self._caught is not None:    # the second: the thread is ending the process
            return
        self._caught = signum
        if not self._holding:
            raise Interrupted(signum)

    @contextmanager
    def held(self):
        """A block that a first signal does not cut: state, log and step move together or not at all."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
        if self._caught is not None:
            raise Interrupted(self._caught)


def _end_at_the_second(read: int) -> None:
    """Ends the process when two of our signals have come; returns when the pipe's other end is closed.

    A closed terminal is no second signal: shell and kernel both tell of it, and a script may have passed on another before."""
    seen = 0
    while data := os.read(read, 64):
        for signum in data:
            seen += signum in EXIT_CODES and not (seen and signum == signal.SIGHUP)
            if seen == 2:
                os._exit(EXIT_CODES[signum])
    os.close(read)


# ---- closed terminals -------------------------------------------------------------------------------------------------


class _Lasting:
    """A stream of a terminal that takes what is written after the terminal has gone, and throws it away."""

    def __init__(self, stream):
        self._stream = stream

    def write(self, text: str) -> int:
        """As the stream's own."""
        self._unless_gone(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """As the stream's own."""
        self._unless_gone(self._stream.flush)

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def _unless_gone(self, call, *arguments) -> None:
        try:
            call(*arguments)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)    # for what the stream still holds, and for those who write beside it
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


def outlive_terminal() -> None:
    """Let stdout and stderr be written to when their terminal is gone: a run left alone there (`disown`) must not end by that."""
    sys.stdout, sys.stderr = (_Lasting(stream) if stream and stream.isatty() else stream for stream in (sys.stdout, sys.stderr))
