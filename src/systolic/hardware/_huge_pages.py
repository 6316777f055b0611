"""Huge pages for the memory of a run on the processor: whether they would be had, and how to have them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ._chips import chip_files

# "Memory Allocation Tunables" in glibc's manual: 1 asks the system for transparent huge pages, from version 2.35 on.
HUGE_PAGES = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"
"""The environment variable, and its value, with which the C library asks for huge pages."""
_FIRST_GLIBC = (2, 35)
_MODE = "sys/kernel/mm/transparent_hugepage/enabled"


def wants_huge_pages(environment: Mapping[str, str], root: Path = Path("/")) -> bool:
    """Whether a run on this machine's processor would have its memory in huge pages if the environment asked for them.

    A step takes and frees hundreds of megabytes, each time in pages that the system has to clear: of 4 KB, a tenth to a
    quarter of a step's time goes there, of 2 MB next to nothing (`benchmarks/RESULTS.md`, "Simulated cores and huge pages").

    Args:
        environment: the variables of the process, which the C library has read when it began.
        root: the directory whose `dev` and `sys` are looked at.

    Returns:
        False on a machine with a TPU or a GPU, where the system gives huge pages to all or to nobody, with another C library,
        and where somebody has decided about them.
    """
    if chip_files(root) or any(root.glob("dev/nvidia[0-9]*")) or (root / "dev/kfd").exists():
        return False
    mode = root / _MODE
    if not mode.exists() or "[madvise]" not in mode.read_text():
        return False
    return _glibc() >= _FIRST_GLIBC and "glibc.malloc.hugetlb" not in environment.get("GLIBC_TUNABLES", "")


def _glibc() -> tuple[int, int]:
    """The version of the C library; (0, 0) for another than glibc."""
    try:
        version = re.match(r"glibc (\d+)\.(\d+)", os.confstr("CS_GNU_LIBC_VERSION") or "")
    except (AttributeError, OSError, ValueError):  # no such function on Windows, no such name elsewhere
        version = None
    return (int(version[1]), int(version[2])) if version else (0, 0)
