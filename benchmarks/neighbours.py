"""Processes as busy as a trainer beside a measurement: JAX matrix products on all cores, or loops where JAX is not installed.

They end with the `with` block, or by themselves when the process that started them has ended.
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
    """Runs as much load as this many trainers, all of it busy when the block begins; gives its description, "" for none."""
    if importlib.util.find_spec("jax"):
        program, count, description = MATMULS, trainers, f"{trainers} processes with JAX matrix products on all cores"
    else:
        count = trainers * LOOPS_PER_CORE * (os.cpu_count() or 1)
        program, description = LOOP, f"{count} processes with endless loops (JAX is not installed)"
    processes = []
    try:
        for _ in range(count):
            processes.append(_started(program))
        for process in processes:
            if not process.stdout.readline():
                raise ChildProcessError("a busy process ended at once; its output is above")
        yield description if count else ""
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdout.close()


def _started(program):
    # On the CPU: work on an accelerator would not compete with the sandbox.
    return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            env=os.environ | {"JAX_PLATFORMS": "cpu"})
