"""A command whose terminal is closed while it writes."""

import errno
import io
import os
import subprocess
import sys

import pytest

from rl.run.signals import outlive_terminal

WRITES = """
import os, sys, warnings
from rl.run.signals import outlive_terminal
if sys.argv[2] == "outlive":
    outlive_terminal()
print("here", flush=True)
sys.stdin.readline()
for stream in (sys.stdout, sys.stderr):
    stream.write("nobody reads this\\n")
    print("nor this", file=stream, flush=True)
warnings.warn("nor that")
os.write(1, b"nor what goes past Python\\n")
sys.stdout.write("nor what is left for the end")
open(sys.argv[1], "w").write("done")
"""


def on_terminal(root, *arguments):
    """(process, our end): the script with stdout and stderr on a terminal of its own, stdin a pipe."""
    ours, theirs = os.openpty()
    process = subprocess.Popen([sys.executable, "-c", WRITES, *map(str, arguments)], cwd=root, stdin=subprocess.PIPE,
                               stdout=theirs, stderr=theirs, text=True)
    os.close(theirs)
    said = b""
    while not said.endswith(b"\n"):
        said += os.read(ours, 1024)
    assert said == b"here\r\n"
    return process, ours


def test_what_is_written_after_the_end_of_the_terminal_is_lost_and_nothing_else(root, tmp_path):
    """The work goes on to its end and to exit code 0."""
    process, ours = on_terminal(root, tmp_path / "file", "outlive")
    os.close(ours)
    process.communicate("go on\n", timeout=60)
    assert process.returncode == 0 and (tmp_path / "file").read_text() == "done"


def test_without_it_such_a_command_ends(root, tmp_path):
    """What the test above would pass over if a closed terminal took what is written anyway."""
    process, ours = on_terminal(root, tmp_path / "file", "die")
    os.close(ours)
    process.communicate("go on\n", timeout=60)
    assert process.returncode != 0 and not (tmp_path / "file").exists()


def test_other_errors_are_errors(monkeypatch):
    """A full disk is nobody's closed terminal; and what is no terminal is left as it is."""
    class Full:
        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdout", Full())
    monkeypatch.setattr(sys, "stderr", other := io.StringIO())
    outlive_terminal()
    assert sys.stderr is other and sys.stdout.isatty()
    with pytest.raises(OSError, match="No space"):
        sys.stdout.write("text")
