"""The trust boundary: runs untrusted functions and says whether their answers are right.

Outside, in the trainer's process, which trusts nothing that comes back:
    sandbox.py     Suite, Sandbox and Result: start here
    pool.py        fork servers side by side
    server.py      one fork server: where time is limited
    wire.py        what comes back: reads the bytes of a candidate
    compare.py     when two answers are equal
    selftest.py    canaries that decide the sandbox's level

inside/, beside the candidate, with the standard library alone, loaded by path:
    worker.py      the fork server and its children
    kernel.py      where memory, system calls and files are limited
    stage.py       what a candidate may import and use
    values.py      plain values as text; both sides use it

`python -m rl.sandbox --help` measures it."""

from rl.sandbox.sandbox import VERDICTS, ReferenceFails, Result, Sandbox, Suite, case_limit, suspicious_names
from rl.sandbox.server import SandboxError

__all__ = ["VERDICTS", "ReferenceFails", "Result", "Sandbox", "SandboxError", "Suite", "case_limit", "suspicious_names"]
