"""`python -m rl.sandbox`: tries the sandbox on programs with known verdicts (benchmarks/sandbox_report.py)."""

import runpy

runpy.run_module("benchmarks.sandbox_report", run_name="__main__")
