"""What the machine decides: number format, attention kernel, compilation (cached, counted), what to say when memory runs out."""

import ctypes
import os
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp

from model_config import ModelConfig
from rl.errors import InputError

COMPILED = "/jax/core/compile/backend_compile_duration"  # also where the program came out of the cache
M_MMAP_THRESHOLD, MAPPED_FROM = -3, 1 << 20  # glibc's name for it; bytes
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"


def pick_dtype(wanted: str):
    """The frozen weights' dtype and the reason for it; auto is fp32 on a CPU, bf16 on a GPU, fp16 where bf16 is missing."""
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
    """The config with its attention kernel set, and the reason; InputError where a kernel that was asked for does not run."""
    if wanted == "einsum":
        return cfg, "ATTENTION says so"
    try:
        q_BTHC = jnp.zeros((1, 64, cfg.num_attention_heads, cfg.head_dim), dtype)
        kv_BSKC = jnp.zeros((1, 64, cfg.num_key_value_heads, cfg.head_dim), dtype)
        mask = jnp.ones((1, 1, 64, 64), bool)
        jax.nn.dot_product_attention(q_BTHC, kv_BSKC, kv_BSKC, mask=mask, implementation="cudnn").block_until_ready()
    except Exception as error:  # each jax version refuses in its own way: wrong platform, dtype, head size, missing library
        reason = next(iter(str(error).splitlines()), type(error).__name__).strip().rstrip(".")
        if wanted == "cudnn":
            raise InputError(f"ATTENTION=cudnn does not run here: {reason}; use ATTENTION=auto or einsum") from error
        return cfg, f"cudnn does not run here: {reason}"
    return replace(cfg, attention="cudnn"), "cudnn runs here"


def memory_budget(wanted_gb: float) -> tuple[float, str]:
    """Bytes to plan for, and where the figure comes from."""
    if wanted_gb:
        return wanted_gb * 1e9, "MEMORY_GB"
    if (limit := (jax.devices()[0].memory_stats() or {}).get("bytes_limit")):
        return float(limit), "the GPU's"
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cgroup = Path("/sys/fs/cgroup/memory.max")  # a container's share
    allowed = cgroup.read_text().strip() if cgroup.exists() else "max"
    return min(total, float(allowed.replace("max", "inf"))) / 2, "half of this machine's"


def use_compilation_cache() -> str:
    """Keep compiled programs between runs, where JAX_COMPILATION_CACHE_DIR says or in the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rl-lisp-python" / "jax"
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(default))
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    return folder


def return_freed_memory() -> bool:
    """Have glibc give freed arrays back to the system at once, True where that was set; MALLOC_MMAP_THRESHOLD_ goes before it.

    By itself it raises the size from which it does so to 32 MB, after the first such array is freed. What is smaller then comes
    from its heap, which activations of many sizes leave full of holes: the peak grows from step to step beyond what is in use."""
    if "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return False
    try:
        return bool(ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MAPPED_FROM))
    except (AttributeError, OSError, TypeError):  # another C library
        return False


class Compiling:
    """A context manager that counts the programs compiled within it, or fetched from the cache, and the seconds that took."""

    def __enter__(self):
        self.programs, self.seconds = 0, 0.0
        jax.monitoring.register_event_duration_secs_listener(self._hear)
        return self

    def __exit__(self, *_):
        jax.monitoring.unregister_event_duration_listener(self._hear)

    def _hear(self, event: str, seconds: float, **_) -> None:
        self.programs += event == COMPILED
        self.seconds += seconds if event in (COMPILED, LOWERED) else 0.0


def explain_memory(error: Exception) -> str | None:
    """For an out-of-memory error, the settings that help; None for any other error."""
    if "RESOURCE_EXHAUSTED" not in str(error) and not isinstance(error, MemoryError):
        return None
    return ("out of memory. What helps, most first: lower GROUP or MAX_NEW_TOKENS, REMAT=full, LOGIT_CHUNK=128, "
            "DTYPE=bfloat16 (float16 on Turing cards), a smaller MODEL; on a GPU also XLA_PYTHON_CLIENT_MEM_FRACTION=0.92. "
            "--dry-run predicts the peak.")
