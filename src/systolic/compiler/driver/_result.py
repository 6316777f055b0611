"""Result of one run of a compiled step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from ...runtime import Cell, DeviceTensor, to_host_array
from ..capture import Number, current_text, filled
from ._program import Program, fill


class StepResult:
    """Result of one run. Nothing is fetched before somebody looks.

    Attributes:
        arrays: the program's results on the devices.
        is_dispatched: whether the step was handed to the devices.
    """

    __slots__ = ("_cells", "_numbers", "_result", "_texts", "_wanted", "arrays", "is_dispatched", "program")

    def __init__(self, program: Program, arrays: list[jax.Array], numbers: Sequence[Number]) -> None:
        self.program = program
        self.arrays = arrays
        self.is_dispatched = True
        self._numbers = numbers
        self._cells: dict[int, Cell] | None = None
        self._wanted = False
        self._result = program.captured.result
        # when somebody looks, the next batch may be at hand
        texts = program.captured.texts
        self._texts = {id(text): current_text(text) for text in texts} if texts else _NO_TEXTS

    def value(self) -> Any:
        """The returned structure, with DeviceTensors."""
        return fill(self.program, self._result_cells(), self._result, self._numbers, {}, {**self._texts})

    def fetch(self) -> None:
        """Begin to copy small results to the host, without waiting."""
        self._wanted = True
        for array in self.arrays:
            if array.size <= _FETCHED_ELEMENTS and not array.is_deleted():
                array.copy_to_host_async()

    def is_ready(self) -> bool:
        """Whether the step has run."""
        arrays: list[Any] = self.arrays  # JAX's type stubs lack `is_ready`
        return self.is_dispatched and all(a.is_deleted() or a.is_ready() for a in arrays)

    def scalars(self, name: str) -> dict[str, float]:
        """The numbers in the dict that the step returned under `name`; waits for the step."""
        hosts: dict[int, Any] = {}

        def number(index: int) -> float:
            group, offset = self.program.places[index]
            if self.arrays[group].is_deleted():  # user code kept a result, and a later step overwrote its array
                return self._result_cells()[index].host().item()
            if group not in hosts:
                hosts[group] = self._flat(group)
            return hosts[group][offset].item()

        leaves = self.program.captured.result.entry(name)
        return {key: filled(leaf, number, number, self._numbers) for key, leaf in leaves.items()}

    def names(self, name: str) -> frozenset[str]:
        """The keys of the dict that the step returned under `name`; waits for nothing."""
        return self.program.names(name)

    def wait(self) -> None:
        """Wait until the step has run."""
        jax.block_until_ready(self.arrays or self.program.buffers[0].array)

    def apply_effects(self) -> None:
        """Leave in Python objects what the step left there."""
        cells = self.program.kept_cells(self.arrays)
        made: dict[int, DeviceTensor] = {}
        objects: dict[int, object] = {**self._texts}
        for effect in self.program.captured.effects:
            effect.apply(lambda tree: fill(self.program, cells, tree, self._numbers, made, objects))
        self._result = self._result.with_host_values()

    def _flat(self, group: int) -> Any:
        return to_host_array(self.arrays[group]).reshape(-1)  # host sync: values to report

    def _result_cells(self) -> dict[int, Cell]:
        if self._cells is None:
            self._cells = self.program.result_cells(self.arrays)
        return self._cells


_NO_TEXTS: dict[int, str] = {}
_FETCHED_ELEMENTS = 4096
"""Results up to this size are logged values; larger ones are outputs that nobody may want."""
