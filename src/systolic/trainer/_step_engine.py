"""Protocols: the members that the loops use of an engine of steps: compiled, eager, grouped or watched by a profiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..compiler import Compile


class StepOutcome(Protocol):
    """Result of a step. Nothing is fetched before somebody looks."""

    @property
    def is_dispatched(self) -> bool:
        """Whether the step was handed to the devices."""
        ...

    @property
    def arrays(self) -> Sequence[Any]:
        """The step's results on the devices."""
        ...

    def value(self) -> Any:
        """The returned structure."""
        ...

    def fetch(self) -> None:
        """Begin to copy small results to the host, without waiting."""
        ...

    def is_ready(self) -> bool:
        """Whether the step has run."""
        ...

    def scalars(self, name: str) -> dict[str, float]:
        """The numbers in the dict that the step returned under `name`; waits for the step."""
        ...

    def names(self, name: str) -> frozenset[str]:
        """The keys of the dict that the step returned under `name`; waits for nothing."""
        ...

    def wait(self) -> None:
        """Wait until the step has run."""
        ...


class StepEngine(Protocol):
    """Runs a step function, again and again."""

    @property
    def compiles(self) -> list[Compile]:
        """Every compilation so far."""
        ...

    def run(
        self,
        leaves: Sequence[Any],
        structure: Any,
        rebuild: Callable[[list[Any]], tuple[Any, ...]],
        numbers: dict[str, Any],
    ) -> StepOutcome:
        """Run one step.

        Args:
            leaves: the tensors of the step's arguments.
            structure: a value that is equal for calls whose arguments differ in tensor values only.
            rebuild: makes the positional arguments from a list of tensors.
            numbers: Python numbers that may differ in every call.
        """
        ...

    @property
    def steps_behind(self) -> int:
        """How many steps the host took for done, from one on for which an error was raised later."""
        ...

    def flush(self) -> None:
        """Dispatch the steps that wait."""
        ...

    def verify(self) -> None:
        """Dispatch the steps that wait, and wait for the checks of all.

        Raises:
            OutOfRangeError: a step met an index that eager PyTorch refuses.
        """
        ...

    def model_flops(self) -> int | None:
        """FLOPs of the program that ran last; None where there is none."""
        ...

    def release(self) -> None:
        """Give the objects ordinary CPU tensors again, with the current values."""
        ...


class WrappedEngine:
    """An engine around another one: what is said of programs is that one's.

    Args:
        engine: the other one.

    Attributes:
        engine: it.
    """

    def __init__(self, engine: StepEngine) -> None:
        self.engine = engine

    @property
    def compiles(self) -> list[Compile]:
        """Every compilation so far."""
        return self.engine.compiles

    def model_flops(self) -> int | None:
        """As for the engine."""
        return self.engine.model_flops()

    @property
    def steps_behind(self) -> int:
        """As for the engine."""
        return self.engine.steps_behind

    def flush(self) -> None:
        """As for the engine."""
        self.engine.flush()

    def verify(self) -> None:
        """As for the engine."""
        self.engine.verify()

    def release(self) -> None:
        """As for the engine."""
        self.engine.release()


def innermost(engine: StepEngine) -> StepEngine:
    """The engine that others are around: what runs a step as one program."""
    while isinstance(engine, WrappedEngine):
        engine = engine.engine
    return engine
