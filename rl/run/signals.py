"""How a run ends from outside: signals as an exception that waits for a safe moment, and streams whose terminal is closed.

Ctrl-C, SIGTERM and SIGHUP interrupt a run between two writes; a second signal ends the process at once. A run that outlives its
terminal (nohup, disown) keeps running: what it prints is lost."""

import errno
import os
import signal
import sys
import threading
from contextlib import contextmanager

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP arrived; `exit_code` is the command's exit code.

    Not an Exception, so that no handler of those (in graders, in trackers) swallows it."""

    def __init__(self, signum):
        super().__init__(signal.Signals(signum).name)
        self.exit_code = EXIT_CODES[signum]


class Signals:
    """Turns the first signal into Interrupted, at once or, inside `held`, at the end of that block.

    Python's handlers wait until the main thread returns from a compilation or a step on the device. A second signal must not
    wait, so a thread counts the signals, reading the pipe that the C-level handler writes to."""

    def __init__(self):
        self._caught = None
        self._holding = False

    def __enter__(self):
        read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        threading.Thread(target=_exit_at_second_signal, args=(read,), daemon=True).start()
        ours = set(EXIT_CODES)
        if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:    # nohup
            ours.remove(signal.SIGHUP)
        self._before = {signum: signal.signal(signum, self._handle) for signum in ours}
        return self

    def __exit__(self, *_):
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._write)

    def _handle(self, signum, _frame):
        if self._caught is not None:    # the second: the thread ends the process
            return
        self._caught = signum
        if not self._holding:
            raise Interrupted(signum)

    @contextmanager
    def held(self):
        """A block that a first signal does not interrupt: state, log and step change together or not at all."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
        if self._caught is not None:
            raise Interrupted(self._caught)


def _exit_at_second_signal(read: int) -> None:
    """Ends the process at the second signal; returns when the other end of the pipe is closed.

    SIGHUP is never the second one: shell and kernel both send it, and a script may have forwarded another signal before."""
    seen = 0
    while data := os.read(read, 64):
        for signum in data:
            seen += signum in EXIT_CODES and not (seen and signum == signal.SIGHUP)
            if seen == 2:
                os._exit(EXIT_CODES[signum])
    os.close(read)


# ---- closed terminals -------------------------------------------------------------------------------------------------


class _TolerantStream:
    """A stream of a terminal; what is written after the terminal was closed is discarded."""

    def __init__(self, stream):
        self._stream = stream

    def write(self, text: str) -> int:
        """The stream's write."""
        self._unless_closed(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """The stream's flush."""
        self._unless_closed(self._stream.flush)

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def _unless_closed(self, call, *arguments) -> None:
        try:
            call(*arguments)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            devnull = os.open(os.devnull, os.O_WRONLY)    # also for what the stream has buffered, and for writes that bypass it
            os.dup2(devnull, self._stream.fileno())
            os.close(devnull)


def outlive_terminal() -> None:
    """Make writes to stdout and stderr harmless once their terminal is closed, so that a run left there (`disown`) goes on."""
    sys.stdout, sys.stderr = (_TolerantStream(stream) if stream and stream.isatty() else stream
                              for stream in (sys.stdout, sys.stderr))
