"""Whether verdicts depend on the load: the same programs graded again and again beside 0, 4 and 12 busy processes.

    python benchmarks/sandbox_flips.py [REPEATS]      # 20

The programs are right, and near a limit, or hang: a list of ten million items against the floor of 0.1 s, long integers against
CASE_SECONDS, short sleeps, an endless loop. A line for each load and program; exit status 1 if any verdict differs from the
expected one. With less than two free cores at its start, load 0 is not idle; the line says what the machine's load was.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.neighbours import LOOP
from rl.sandbox import Sandbox

LOADS, REPEATS = (0, 4, 12), 20
REFERENCE = "def f(n):\n    return n\n"
PROGRAMS = {    # name: (verdict, source)
    "ten million items": ("pass", "def f(n):\n    x = [0] * 10**7\n    return n\n"),
    "long integers": ("pass", "def f(n):\n    r = 1\n    for i in range(1, 1500 * (n == 3)):\n        r = int(str(r)) * i\n"
                              "    return n\n"),
    "short sleeps": ("pass", "import time\ndef f(n):\n    time.sleep(0.35)\n    return n\n"),
    "endless loop": ("timeout", "def f(n):\n    while True:\n        pass\n"),
    "sleeps for ever": ("timeout", "import time\ndef f(n):\n    time.sleep(60)\n    return n\n"),
}


def flips(box: Sandbox, suite, repeats: int, load: int) -> int:
    """Grades every program `repeats` times beside `load` busy processes, prints a line for each; how many verdicts are off."""
    neighbours = [subprocess.Popen([sys.executable, "-S", "-c", LOOP], stdout=subprocess.PIPE) for _ in range(load)]
    try:
        for process in neighbours:
            process.stdout.readline()
        off = 0
        for name, (verdict, source) in PROGRAMS.items():
            results = box.grade([(f"{source}# {load} {number}", suite) for number in range(repeats)])
            found = Counter(result.verdict for result in results)
            off += repeats - found[verdict]
            cpu, wall = (sorted(times)[-1] for times in zip(*((r.cpu_s, r.wall_s) for r in results), strict=True))
            print(f"load {load} (machine {os.getloadavg()[0]:.1f}): {name}: {dict(found)}; at most {cpu:.2f} s CPU, "
                  f"{wall:.2f} s wall", flush=True)
        return off
    finally:
        for process in neighbours:
            process.kill()
            process.wait()
            process.stdout.close()


def main(arguments: list[str]) -> int:
    """Runs all loads; the exit status."""
    repeats = int(arguments[0]) if arguments else REPEATS
    with Sandbox(workers=2) as box:
        suite = box.expect(REFERENCE, "f", [(n,) for n in range(4)])
        off = sum(flips(box, suite, repeats, load) for load in LOADS)
    print(f"{off} flips of {repeats * len(PROGRAMS) * len(LOADS)} verdicts")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
