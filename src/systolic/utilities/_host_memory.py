"""How much memory this process and this machine have, from the operating system's own tables."""

from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path


def resident_bytes() -> int:
    """Bytes of main memory that this process holds now (Linux; elsewhere the most that it ever held)."""
    table = Path("/proc/self/statm")
    if not table.exists():
        return peak_resident_bytes()
    return int(table.read_text().split()[1]) * resource.getpagesize()


def peak_resident_bytes() -> int:
    """The most bytes of main memory that this process held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB, macOS in bytes


def available_bytes() -> int | None:
    """Bytes of main memory that programs can still get without swapping; None where the system does not tell."""
    table = Path("/proc/meminfo")
    if not table.exists():
        return None
    fields = dict(line.split(":") for line in table.read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


def return_freed_memory() -> None:
    """Give freed memory back to the system.

    The TPU compiler works in several threads, and glibc keeps what each of them freed: a hundred to three hundred MB for every
    program, so that a sweep over slices or batch sizes would end with all of the machine's memory.
    """
    # other C libraries have no such function, and no libtpu
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
