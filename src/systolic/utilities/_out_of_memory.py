"""Recognising errors that say that memory is exhausted."""

from __future__ import annotations

import jax

from ..exceptions import OutOfMemoryError


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is exhausted: that of the devices, or the host's.

    Example:
        >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"))
        True
    """
    if isinstance(error, (OutOfMemoryError, MemoryError)):
        return True
    text = str(error)
    if isinstance(error, jax.errors.JaxRuntimeError):
        return "RESOURCE_EXHAUSTED" in text or "Out of memory" in text
    return "DefaultCPUAllocator: can't allocate memory" in text or "DefaultCPUAllocator: not enough memory" in text
