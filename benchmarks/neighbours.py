"""Busy processes beside a measurement, as a trainer would be: JAX matrix products on all cores, or plain loops without JAX.

They end with the `with` block, and by themselves when the process that started them is gone.
"""

import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator

LOOPS_PER_CORE = 2

LOOP = """
import os
parent = os.getppid()
print("ready", flush=True)
while os.getppid() == parent:
    pass
"""
MATMULS = """
import os
parent = os.getppid()
import jax
import jax.numpy as jnp
step = jax.jit(lambda x: x @ x / jnp.linalg.norm(x))
x = step(jnp.ones((1024, 1024))).block_until_ready()
print("ready", flush=True)
while os.getppid() == parent:
    x = step(x).block_until_ready()
"""


@contextlib.contextmanager
def busy(trainers: int) -> Iterator[str]:
    """Runs that many neighbours, all of them working when the block begins; gives words that say what they are, if any."""
    if importlib.util.find_spec("jax"):
        program, count, words = MATMULS, trainers, f"{trainers} processes with JAX matrix products on all cores"
    else:
        count = trainers * LOOPS_PER_CORE * (os.cpu_count() or 1)
        program, words = LOOP, f"{count} processes with endless loops (no JAX here)"
    processes = []
    try:
        for _ in range(count):
            processes.append(_started(program))
        for process in processes:
            if not process.stdout.readline():
                raise ChildProcessError("a busy neighbour ended at once; what it said is above")
        yield words if count else ""
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdout.close()


def _started(program):
    # On the CPU: on an accelerator it would load nothing that the sandbox uses.
    return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            env=os.environ | {"JAX_PLATFORMS": "cpu"})
