"""`python -m rl.sandbox`: the sandbox by itself, on files of attempts with known verdicts (benchmarks/sandbox_report.py)."""

import runpy

runpy.run_module("benchmarks.sandbox_report", run_name="__main__")
