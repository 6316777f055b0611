"""The same step once more, with something changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ._report import PreflightReport


@dataclass(frozen=True)
class Variant:
    """Variant of a run: the settings that are changed; None leaves the run's own.

    Attributes:
        batch_size: samples per core.
        precision: the Trainer's.
        accumulation: by how much `accumulate_grad_batches` is multiplied.
    """

    batch_size: int | None = None
    precision: str | None = None
    accumulation: int = 1


Trial = Callable[[Variant], PreflightReport]
"""Compiles a variant of a step for the same slice.

Raises:
    MisconfigurationException: the batch of this run cannot be changed from outside.
"""
