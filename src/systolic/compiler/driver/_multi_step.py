"""Several steps in one dispatch: what a call costs the host is paid once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ...distributed import counted_step
from ...runtime import Cell, to_host_array
from ..capture import GivenResults, Number
from ._check_watch import NamedStep
from ._compilations import Compile
from ._engine import Engine
from ._program import Program
from ._result import StepResult


class MultiStepResult(StepResult):
    """Result of one step of a group. Looking at it dispatches the steps that still wait."""

    __slots__ = ("_row", "_runs")

    def __init__(self, program: Program, runs: MultiStepEngine, numbers: Sequence[Number]) -> None:
        super().__init__(program, [], numbers)
        self.is_dispatched = False
        self._runs = runs
        self._row = -1

    def dispatched(self, arrays: list[jax.Array], row: int = -1) -> None:
        """Take the results of the dispatch; `row` is the step's place in a group, -1 for a step dispatched alone."""
        self.arrays, self._row, self.is_dispatched = arrays, row, True
        if self._wanted:
            self.fetch()

    def _now(self) -> None:
        if not self.is_dispatched:
            self._runs.flush()

    def value(self) -> Any:
        """The returned structure, with DeviceTensors."""
        self._now()
        return super().value()

    def wait(self) -> None:
        """Wait until the step has run."""
        self._now()
        super().wait()

    def scalars(self, name: str) -> dict[str, float]:
        """The numbers in the dict that the step returned under `name`; waits for the step."""
        self._now()
        return super().scalars(name)

    def _flat(self, group: int) -> Any:
        if self._row < 0:
            return super()._flat(group)
        return to_host_array(self.arrays[group])[self._row].reshape(-1)  # host sync: values to report

    def _result_cells(self) -> dict[int, Cell]:
        if self._row >= 0 and self._cells is None:
            self._cells = self.program.result_cells([array[self._row] for array in self.arrays])
        return super()._result_cells()


@dataclass
class _Waiting:
    result: MultiStepResult
    leaves: Sequence[Any]
    values: list[Number]
    named: NamedStep


class MultiStepEngine:
    """Runs an engine's steps, `size` of them a dispatch, with the results of single steps.

    A step that cannot join the steps that wait (another program, the first of its kind, one that leaves something in
    Python objects) runs alone, after them.

    Args:
        engine: what captures and compiles.
        size: how many steps one dispatch holds.
    """

    def __init__(self, engine: Engine, size: int) -> None:
        self._engine = engine
        self._size = size
        self._waiting: list[_Waiting] = []
        self._dropped = 0
        self._functions: dict[str, Any] = {}

    def run(
        self,
        leaves: Sequence[Any],
        structure: object,
        rebuild: Callable[[list[Any]], tuple[Any, ...]],
        numbers: dict[str, Number],
    ) -> StepResult:
        """Take one step; arguments as for the engine."""
        try:
            self._engine.watch.look()
        except Exception:
            # they follow the step that is refused; run after it was told, they would change the state that it left
            self._dropped = len(self._waiting)
            self._waiting.clear()
            raise
        program, values = self._engine.ready(leaves, structure, numbers)
        if program is None or (self._waiting and self._waiting[0].result.program is not program):
            self.flush()
        if program is None:
            return self._engine.run(leaves, structure, rebuild, numbers)
        result = MultiStepResult(program, self, values)
        named = numbers, self._engine.again(program, leaves, rebuild, numbers, GivenResults())
        self._waiting.append(_Waiting(result, leaves, values, named))
        if len(self._waiting) == self._size:
            self._dispatch(program)
        return result

    @property
    def compiles(self) -> list[Compile]:
        """Every compilation so far."""
        return self._engine.compiles

    @property
    def steps_behind(self) -> int:
        """As for the engine, with those that waited to be dispatched."""
        return self._engine.steps_behind + self._dropped

    def model_flops(self) -> int | None:
        """FLOPs of one step of the program that ran last."""
        return self._engine.model_flops()

    def verify(self) -> None:
        """Run what waits, then as for the engine."""
        self.flush()
        self._engine.verify()

    def release(self) -> None:
        """Run what waits, then as for the engine."""
        self.flush()
        self._engine.release()

    def flush(self) -> None:
        """Dispatch what waits, one step at a time: a program for this number of steps would rarely be used again."""
        waiting, self._waiting = self._waiting, []
        for step in waiting:
            program = step.result.program
            self._count(program, step.values)
            with jax.enable_x64(True):
                state, arrays, outcome, key = program.function(*program.arguments(step.leaves, step.values))
            program.keep(state, outcome, key, [step.named])
            step.result.dispatched(arrays)

    def _dispatch(self, program: Program) -> None:
        waiting, self._waiting = self._waiting, []
        donated, kept, _, constants, _, outcome, key = program.arguments((), waiting[-1].values)
        rows = [program.scalar_words(step.values) for step in waiting]
        scalars = np.stack(rows) if program.captured.scalars else None
        leaves = [_stacked([step.leaves[i] for step in waiting]) for i in range(len(waiting[0].leaves))]
        arguments = (donated, kept, leaves, constants, scalars, outcome, key)
        function = self._function(program, arguments)
        self._count(program, [number for step in waiting for number in step.values])
        with jax.enable_x64(True):
            state, arrays, outcome, key = function(*arguments)
        program.keep(state, outcome, key, [step.named for step in waiting])
        for row, step in enumerate(waiting):
            step.result.dispatched(arrays, row)

    def _count(self, program: Program, numbers: list[Number]) -> None:
        if self._engine.placement.is_shared:
            counted_step(program.fingerprint, numbers)

    def _function(self, program: Program, arguments: tuple[Any, ...]) -> Any:
        function = self._functions.get(program.fingerprint)
        if function is None:
            function = self._functions[program.fingerprint] = program.repeated(self._size)
            reason = f"steps_per_dispatch={self._size}"
            fingerprint = f"{program.fingerprint} {reason}"
            self._engine.compiles.append(self._engine.compiled(function, arguments, reason, fingerprint))
        return function


def _stacked(batches: list[Any]) -> Any:
    """Batches that are still on the host as one array; those on the devices are stacked there, by the program."""
    return np.stack(batches) if isinstance(batches[0], np.ndarray) else batches
