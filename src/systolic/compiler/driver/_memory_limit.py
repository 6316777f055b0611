"""Refusing a program that does not fit, before it runs into the limit."""

from __future__ import annotations

import jax

from ...exceptions import OutOfMemoryError


def require_memory(compiled: jax.stages.Compiled, limit: int | None) -> None:
    """Raise where a program needs more memory than it may have.

    Args:
        compiled: what JAX's `lower(...).compile()` returned.
        limit: bytes on one device; None for no limit.

    Raises:
        OutOfMemoryError: XLA plans more than that; says what for.
    """
    analysis = compiled.memory_analysis() if limit is not None else None
    if limit is None or analysis is None:  # None where the compiler does not tell
        return
    parts = {
        "arguments": analysis.argument_size_in_bytes,
        "results": analysis.output_size_in_bytes - analysis.alias_size_in_bytes,
        "values in between": analysis.temp_size_in_bytes,
    }
    if sum(parts.values()) > limit:
        listed = ", ".join(f"{name} {size:,}" for name, size in parts.items())
        raise OutOfMemoryError(
            f"The step needs {sum(parts.values()):,} bytes on each device ({listed}). The limit is {limit:,}."
        )
