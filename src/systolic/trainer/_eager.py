"""Eager execution with the interface of the compiled engine (`compile=False`): the debugger's way, and the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..compiler import Compile


class EagerResult:
    """Result of a step."""

    __slots__ = ("_value",)
    is_dispatched = True

    def __init__(self, value: Any) -> None:
        self._value = value

    @property
    def arrays(self) -> Sequence[Any]:
        """Nothing lies on devices."""
        return ()

    def value(self) -> Any:
        """The returned structure."""
        return self._value

    def fetch(self) -> None:
        """The value is on the host."""

    def is_ready(self) -> bool:
        """The step has run."""
        return True

    def wait(self) -> None:
        """The step has run."""

    def names(self, name: str) -> frozenset[str]:
        """The keys of the dict that the step returned under `name`."""
        return frozenset(self._value[name])

    def scalars(self, name: str) -> dict[str, float]:
        """The numbers in the dict that the step returned under `name`."""
        return {key: torch.as_tensor(value).item() for key, value in self._value[name].items()}


class EagerEngine:
    """Runs the step function as it is, in plain PyTorch on the CPU.

    Attributes:
        steps_behind: none: it raises where it happens.
    """

    steps_behind = 0

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.compiles: list[Compile] = []

    def run(
        self,
        leaves: Sequence[Any],
        structure: Any,
        rebuild: Callable[[list[Any]], tuple[Any, ...]],
        numbers: dict[str, Any],
    ) -> EagerResult:
        """Run one step; arguments as for the compiled engine."""
        del structure
        return EagerResult(self.function(*rebuild(list(leaves)), **numbers))

    def model_flops(self) -> None:
        """Eager PyTorch is not counted."""

    def flush(self) -> None:
        """Nothing waits: every step runs when it is asked for."""

    def verify(self) -> None:
        """Eager PyTorch has raised where it happened."""

    def release(self) -> None:
        """Nothing was moved."""
