"""Environment variables that decide what a run does, and those that no longer do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..compat import OBSOLETE, obsolete_settings
from ..hardware import HUGE_PAGES, wants_huge_pages
from ._finding import Finding, Level
from ._versions import AUTOLOAD

MEANINGS = {
    "JAX_PLATFORMS": "the platforms that JAX may use",
    "XLA_FLAGS": "options of the compiler",
    "LIBTPU_INIT_ARGS": "options of the TPU's compiler and runtime",
    "TPU_LIBRARY_PATH": "the libtpu that is loaded instead of the installed one",
    "TPU_VISIBLE_CHIPS": "the chips that this process may use",
    "TPU_VISIBLE_DEVICES": "the chips that this process may use",
    "TPU_PROCESS_BOUNDS": "how processes divide a slice",
    "TPU_CHIPS_PER_PROCESS_BOUNDS": "how processes divide a host's chips",
    "TPU_SKIP_MDS_QUERY": "do not ask Google Cloud what this machine is",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "let several processes load libtpu",
    "CUDA_VISIBLE_DEVICES": "the GPUs that this process may use",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "whether GPU memory is taken at the start",
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "how much of the GPU memory is taken",
    "JAX_DEFAULT_MATMUL_PRECISION": "how exact matrix products are",
    "JAX_COMPILATION_CACHE_DIR": "where compiled programs are kept",
    "SYSTOLIC_CACHE_DIR": "where compiled programs are kept, unless JAX_COMPILATION_CACHE_DIR is set",
    AUTOLOAD: "whether `import torch` loads installed backends, such as TorchTPU",
    "GLIBC_TUNABLES": "how the C library has its memory",
    "NPROC": "the size of XLA's thread pool for simulated cores",
}


def initial_environment() -> dict[str, str]:
    """The variables that this process was started with; JAX and libtpu set some of their own when they are imported."""
    entries = Path("/proc/self/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def check_environment(environment: Mapping[str, str], has_chips: bool = False) -> list[Finding]:
    """Check what the environment says about training.

    Args:
        environment: the variables.
        has_chips: whether this machine has TPU chips.

    Returns:
        A warning for every obsolete variable and for one that keeps JAX from the chips, else a line of what it means.
    """
    findings = [Finding(Level.OK, f"{n}={environment[n]!r}: {text}") for n, text in MEANINGS.items() if n in environment]
    platforms = environment.get("JAX_PLATFORMS", "")
    if has_chips and platforms and "tpu" not in platforms.split(","):
        findings.append(
            Finding(
                Level.ERROR, f"JAX_PLATFORMS={platforms!r} keeps JAX from the TPU chips of this machine", "unset JAX_PLATFORMS"
            )
        )
    findings += [Finding(Level.WARNING, text) for text in obsolete_settings(environment)]
    return findings or [
        Finding(Level.OK, f"none of the {len(MEANINGS) + len(OBSOLETE)} environment variables that matter is set")
    ]


def check_huge_pages(environment: Mapping[str, str], root: Path = Path("/")) -> list[Finding]:
    """A warning where steps on the processor would be faster with memory in huge pages.

    Args:
        environment: the variables.
        root: the directory whose `dev` and `sys` are looked at.
    """
    if not wants_huge_pages(environment, root):
        return []
    text = "memory comes in pages of 4 KB: steps on this processor may take a tenth to a third longer than with huge pages"
    return [Finding(Level.WARNING, text, f"start Python with {HUGE_PAGES} in the environment (docs/memory.md)")]
