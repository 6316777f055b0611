from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path

import pytest

from systolic.utilities._host_memory import return_freed_memory


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_freed_memory_goes_back_to_the_system() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    size, count = 100_000, 2_000  # below the size for which malloc asks the system each time
    blocks = [libc.malloc(ctypes.c_size_t(size)) for _ in range(count)]
    for block in blocks:
        ctypes.memset(ctypes.c_void_p(block), 1, size)
    # the last one stays, so that the heap cannot shrink from its end
    for block in blocks[:-1]:
        libc.free(ctypes.c_void_p(block))
    held = resident()
    return_freed_memory()
    given_back = held - resident()
    libc.free(ctypes.c_void_p(blocks[-1]))
    assert given_back > 0.9 * size * count


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
