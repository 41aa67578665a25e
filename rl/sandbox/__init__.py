"""Runs untrusted functions and says whether their answers are right: the trust boundary.

Everything here runs outside, in the trainer's process, and trusts nothing that comes back; everything in inside/ runs beside the
candidate, with the standard library alone. Start with sandbox.py; `python -m rl.sandbox --help` measures it."""

from rl.sandbox.sandbox import VERDICTS, ReferenceFails, Result, Sandbox, Suite, case_limit, suspicions
from rl.sandbox.server import SandboxError

__all__ = ["VERDICTS", "ReferenceFails", "Result", "Sandbox", "SandboxError", "Suite", "case_limit", "suspicions"]
