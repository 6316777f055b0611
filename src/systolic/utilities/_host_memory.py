"""How much memory this process and this machine have, from the operating system's own tables."""

from __future__ import annotations

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
