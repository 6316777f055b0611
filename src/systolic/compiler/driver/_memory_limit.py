"""Memory that XLA plans for a program, and refusing one that does not fit, before it runs into the limit."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from ...exceptions import OutOfMemoryError


@dataclass(frozen=True)
class PlannedMemory:
    """Bytes that a program takes on each device, as its compiler plans them.

    Attributes:
        arguments: the state and the batch.
        results: what does not take the place of an argument.
        temporaries: values in between.
    """

    arguments: int
    results: int
    temporaries: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.arguments + self.results + self.temporaries


def planned_memory(compiled: jax.stages.Compiled) -> PlannedMemory | None:
    """The plan of a compiled program; None where the compiler does not tell.

    Args:
        compiled: what JAX's `lower(...).compile()` returned.
    """
    analysis = compiled.memory_analysis()
    if analysis is None:
        return None
    results = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    return PlannedMemory(analysis.argument_size_in_bytes, results, analysis.temp_size_in_bytes)


def require_memory(planned: PlannedMemory | None, limit: int | None) -> None:
    """Raise where a program needs more memory than it may have.

    Args:
        planned: what it needs; None where nobody knows.
        limit: bytes on one device; None for no limit.

    Raises:
        OutOfMemoryError: XLA plans more than that; says what for.
    """
    if limit is None or planned is None:
        return
    if planned.total > limit:
        parts = {"arguments": planned.arguments, "results": planned.results, "values in between": planned.temporaries}
        listed = ", ".join(f"{name} {size:,}" for name, size in parts.items())
        raise OutOfMemoryError(f"The step needs {planned.total:,} bytes on each device ({listed}). The limit is {limit:,}.")
