"""Memory that was freed and that the C library keeps."""

from __future__ import annotations

import ctypes
import sys


def return_freed_memory() -> None:
    """Give freed memory back to the system.

    The TPU compiler works in several threads, and glibc keeps what each of them freed: a hundred to three hundred MB for every
    program, so that a sweep over slices or batch sizes would end with all of the machine's memory.
    """
    # other C libraries have no such function, and no libtpu
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
