"""What depends on the machine: dtype, attention kernel, memory, the compilation cache; counting of compiled programs."""

import ctypes
import os
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp

from model_config import ModelConfig
from rl.errors import InputError

COMPILED = "/jax/core/compile/backend_compile_duration"  # one a program, also if it is fetched from the cache
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
M_MMAP_THRESHOLD, MAPPED_FROM = -3, 1 << 20  # glibc's parameter, and its value in bytes


def pick_dtype(wanted: str):
    """The dtype of the frozen weights, and why; auto is fp32 on a CPU, bf16 on a GPU, fp16 on one without bf16."""
    if wanted != "auto":
        return jnp.dtype(wanted), "DTYPE says so"
    device = jax.devices()[0]
    if device.platform == "cpu":
        return jnp.dtype("float32"), "half-precision products are slower on a CPU"
    capability = float(getattr(device, "compute_capability", "8.0"))
    if capability < 8:
        return jnp.dtype("float16"), f"compute capability {capability} has no bfloat16"
    return jnp.dtype("bfloat16"), f"compute capability {capability}"


def pick_attention(wanted: str, cfg: ModelConfig, dtype) -> tuple[ModelConfig, str]:
    """The config with its attention kernel set, and why; InputError if ATTENTION=cudnn does not run here."""
    if wanted == "einsum":
        return cfg, "ATTENTION says so"
    try:
        q_BTHC = jnp.zeros((1, 64, cfg.num_attention_heads, cfg.head_dim), dtype)
        kv_BUKC = jnp.zeros((1, 64, cfg.num_key_value_heads, cfg.head_dim), dtype)
        mask = jnp.ones((1, 1, 64, 64), bool)
        jax.nn.dot_product_attention(q_BTHC, kv_BUKC, kv_BUKC, mask=mask, implementation="cudnn").block_until_ready()
    except Exception as error:  # the type depends on the jax version and on the cause: platform, dtype, head size, library
        reason = next(iter(str(error).splitlines()), type(error).__name__).strip().rstrip(".")
        if wanted == "cudnn":
            raise InputError(f"ATTENTION=cudnn does not run here: {reason}; use ATTENTION=auto or einsum") from error
        return cfg, f"cudnn does not run here: {reason}"
    return replace(cfg, attention="cudnn"), "cudnn runs here"


def memory_budget(wanted_gb: float) -> tuple[float, str]:
    """Bytes to plan for, and whose limit that is."""
    if wanted_gb:
        return wanted_gb * 1e9, "MEMORY_GB"
    if (limit := (jax.devices()[0].memory_stats() or {}).get("bytes_limit")):
        return float(limit), "the GPU's"
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cgroup = Path("/sys/fs/cgroup/memory.max")  # a container's share
    allowed = cgroup.read_text().strip() if cgroup.exists() else "max"
    return min(total, float(allowed.replace("max", "inf"))) / 2, "half of this machine's"


def use_compilation_cache() -> str:
    """Keep compiled programs between runs in JAX_COMPILATION_CACHE_DIR, else in the user's cache folder; returns the folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rl-lisp-python" / "jax"
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(default))
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    return folder


def return_freed_memory() -> bool:
    """Make glibc return freed arrays to the system at once, unless MALLOC_MMAP_THRESHOLD_ is set; whether that worked.

    By default glibc raises the size from which it does so to 32 MB once such an array is freed.  Smaller arrays then live in its
    heap, which activations of many sizes fragment, so that peak memory grows from step to step."""
    if "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return False
    try:
        return bool(ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MAPPED_FROM))
    except (AttributeError, OSError, TypeError):  # another C library
        return False


class Compiling:
    """A context manager that counts the programs compiled within it, or fetched from the cache, and their seconds."""

    def __enter__(self):
        self.programs, self.seconds = 0, 0.0
        jax.monitoring.register_event_duration_secs_listener(self._on_event)
        return self

    def __exit__(self, *_):
        jax.monitoring.unregister_event_duration_listener(self._on_event)

    def _on_event(self, event: str, seconds: float, **_) -> None:
        self.programs += event == COMPILED
        self.seconds += seconds if event in (COMPILED, LOWERED) else 0.0


def explain_memory(error: Exception) -> str | None:
    """Which settings help against an out-of-memory error; None for any other error."""
    if "RESOURCE_EXHAUSTED" not in str(error) and not isinstance(error, MemoryError):
        return None
    return ("out of memory. What helps, in order of effect: lower GROUP or MAX_NEW_TOKENS, REMAT=full, LOGIT_CHUNK=128, "
            "DTYPE=bfloat16 (float16 on Turing cards), a smaller MODEL; on a GPU also XLA_PYTHON_CLIENT_MEM_FRACTION=0.92. "
            "--dry-run predicts the peak.")
