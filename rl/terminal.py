"""A terminal that may be closed while the work on it goes on."""

import errno
import os
import sys


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
