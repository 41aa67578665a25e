"""Ctrl-C and SIGTERM as an exception that waits for a safe moment; a second signal ends the process at once."""

import os
import signal
from contextlib import contextmanager

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Interrupted(Exception):
    """SIGINT or SIGTERM arrived; `exit_code` is what the command should end with."""

    def __init__(self, signum):
        super().__init__(signal.Signals(signum).name)
        self.exit_code = EXIT_CODES[signum]


class Signals:
    """Turns the first signal into Interrupted, at once or, inside `held`, at the end of that block."""

    def __init__(self):
        self._caught = None
        self._holding = False

    def __enter__(self):
        self._before = {signum: signal.signal(signum, self._handle) for signum in EXIT_CODES}
        return self

    def __exit__(self, *_):
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _handle(self, signum, _frame):
        if self._caught is not None:
            os._exit(EXIT_CODES[signum])
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
