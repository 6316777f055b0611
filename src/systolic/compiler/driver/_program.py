"""A captured graph as a compiled XLA program, bound to the buffers that hold its state."""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch
from torch import fx

from ...runtime import (
    Buffer,
    Cell,
    DeviceTensor,
    Placement,
    cells_of,
    flush,
    to_jax_array,
)
from ..capture import (
    Captured,
    Number,
    OutputTree,
    SlotInput,
    TrainState,
)
from ._check_watch import CheckWatch, NamedStep
from ._host_parts import argument_graphs
from ._layout import kind_of, lay_out, outputs_of, places_of
from ._number_words import number_record, words
from ._step_function import Executable, executable_of, repeated
from ._ways import Misses, waits


class Program:
    """One compiled step, with the buffers that hold its state.

    Attributes:
        captured: the step.
        before: programs that run before it, each with the functions of the host to which it gives arguments.
    """

    def __init__(self, captured: Captured, placement: Placement, executables: dict[str, Executable], watch: CheckWatch) -> None:
        self.captured = captured
        self.watch = watch
        self.placement = placement
        self.buffers, self.layout = lay_out(captured, _cells(captured, placement))
        self.places = places_of(captured, self.layout)
        self._donated = self.buffers[: len(self.layout.donated)]
        self._kept = self.buffers[len(self.layout.donated) :]
        self._constants = [t.constant for t in captured.inputs if not isinstance(t, SlotInput) and t.constant is not None]
        self._constant_arrays: list[Any] = [None] * len(self._constants)
        self._constant_versions: list[Any] = [None] * len(self._constants)
        self._scalars: Any = None
        self._scalar_values: list[Any] = []
        self._names: dict[str, frozenset[str]] = {}
        self._scalar_record = number_record(captured.graph, len(captured.inputs))
        if not captured.digest:
            captured.digest = _digest(captured.graph)
        self.waits = waits(captured.speculations)
        self.raises = any(one.only_raises for one in captured.speculations)
        guessed = [(s.text, s.holds, s.only_raises) for s in captured.speculations]
        self.fingerprint = f"{captured.digest} {self.layout} {guessed}"
        self.is_new = self.fingerprint not in executables
        if self.is_new:
            executables[self.fingerprint] = executable_of(captured, self.layout, placement)
        self.function = executables[self.fingerprint].function
        self.checks = executables[self.fingerprint].checks
        self.options = executables[self.fingerprint].options
        self.before = [(Program(one, placement, executables, watch), parts) for one, parts in argument_graphs(captured)]

    @property
    def leaves_nothing(self) -> bool:
        """Whether a step is over when the devices have it: it changes no Python objects, and keeps nothing of its batch."""
        return not (self.captured.effects or self.captured.texts or self.waits or self.before)

    def has_its_state(self) -> bool:
        """Whether the state's tensors lie in the program's buffers: the end of another run of the same module moves them."""
        own, slots = set(map(id, self.buffers)), self.captured.slots
        used = {one.slot for one in self.captured.inputs if isinstance(one, SlotInput)} | self.captured.slot_outputs.keys()
        cells = [tensor._cell for tensor in (slots[slot].tensor for slot in used) if isinstance(tensor, DeviceTensor)]
        return len(cells) == len(used) and all(isinstance(cell, Cell) and id(cell.buffer) in own for cell in cells)

    def arguments(self, leaves: Sequence[Any], numbers: Sequence[Number]) -> tuple[Any, ...]:
        """Arguments of the compiled function for these inputs."""
        for buffer in self.buffers:
            if buffer.mirrored:
                flush(buffer)
        return (
            [buffer.array for buffer in self._donated],
            [buffer.array for buffer in self._kept],
            leaves,
            self._current_constants() if self._constants else (),
            self._scalar_array(numbers) if self.captured.scalars else None,
            self.watch.outcome,
            self.placement.key.array if self.layout.draws else None,
        )

    def feed(
        self,
        leaves: Sequence[Any],
        numbers: Sequence[Number],
        misses: Misses,
        went: Callable[[Program, jax.Array], bool],
        named: Callable[[Program], NamedStep],
    ) -> bool:
        """Call the functions of the host whose results the program takes.

        Args:
            leaves: of the arguments.
            numbers: the symbolic numbers.
            misses: is told where a result has another form than the program takes.
            went: tells, of a program and its verdict, whether the batch goes the way that it was traced for.
            named: names the step, of a program that may have found an error in it.

        Returns:
            Whether the program is one for this batch, by its way and by the form of the results.
        """
        place = 0
        for program, parts in self.before:
            began = time.perf_counter()
            with jax.enable_x64(True):
                _, arrays, outcome, _ = program.function(*program.arguments(leaves, numbers))
            if program.waits and not went(program, arrays.pop()):
                return False
            if program.checks:
                self.watch.require_fine(outcome, program.checks, named(program))
            cells = program.result_cells(arrays)
            for part in parts:
                # host sync: the function wants values, and the program its result
                result = misses.result(place, part, fill(program, cells, part.arguments, numbers))
                place += 1
                part.cost.add(time.perf_counter() - began)
                if not part.takes(result):
                    misses.add_form(self.captured)
                    return False
                began = time.perf_counter()
        return True

    def sums(self) -> list[int]:
        """Sums of what the host gave, by which processes can tell that it was something else in another."""
        tensors = [tensor for _, parts in self.before for part in parts for tensor in part.tensors]
        return [zlib.crc32(np.ascontiguousarray(to_jax_array(tensor)).tobytes()) for tensor in tensors]

    def keep(self, state: list[jax.Array], outcome: jax.Array, key: jax.Array | None, steps: Sequence[NamedStep]) -> None:
        """Put the new state where everybody finds it; `steps` are those of the call."""
        self.watch.add(outcome, self.checks, steps)
        self.take_back(state)
        if key is not None:
            self.placement.key.array = key

    def take_back(self, state: list[jax.Array]) -> None:
        """Put the state that a run returned where everybody finds it: the new one, or the old one where it kept that."""
        # the old arrays were donated and are deleted: tensors refer to cells, not to arrays, so that whoever holds a
        # tensor finds the new one
        for buffer, array in zip(self._donated, state, strict=True):
            buffer.array = array

    def _current_constants(self) -> list[Any]:
        versions = [_version(t) for t in self._constants]
        for place, (tensor, version) in enumerate(zip(self._constants, versions, strict=True)):
            if version != self._constant_versions[place]:  # one that is drawn is another one in every step
                # a copy: JAX may read the host's own memory, at a time when user code has already written the next value there
                self._constant_arrays[place] = self.placement.replicate(to_jax_array(_host(tensor).clone()))
        self._constant_versions = versions
        return self._constant_arrays

    def scalar_words(self, numbers: Sequence[Number]) -> Any:
        """Words that the program gets for these symbolic numbers."""
        return words([expression(numbers) for expression in self.captured.scalars], self._scalar_record)

    def repeated(self, times: int) -> Any:
        """A function that runs this many steps: leaves, scalars and results have a first dimension for the step."""
        assert not self.waits, "steps that may have to run again run alone"
        return repeated(self.captured, self.layout, self.placement, self.checks, times, self.options)

    def _scalar_array(self, numbers: Sequence[Number]) -> Any:
        values = [expression(numbers) for expression in self.captured.scalars]
        if values != self._scalar_values:
            self._scalar_values = values
            self._scalars = self.placement.shard(words(values, self._scalar_record))
        return self._scalars

    def result_cells(self, arrays: list[jax.Array]) -> dict[int, Cell]:
        """Results that one run returned to its caller, by output number, as cells that own their arrays."""
        return self._cells_of(self.layout.results[: self.layout.returned], arrays[: self.layout.returned])

    def kept_cells(self, arrays: list[jax.Array]) -> dict[int, Cell]:
        """Values that one run computed for attributes and other places that keep them, by output number."""
        return self._cells_of(self.layout.results[self.layout.returned :], arrays[self.layout.returned :])

    def names(self, name: str) -> frozenset[str]:
        """The keys of the dict that the step returns under `name`: the same object each time."""
        if name not in self._names:
            self._names[name] = frozenset(self.captured.result.entry(name))
        return self._names[name]

    def _cells_of(self, groups: Sequence[tuple[int, ...]], arrays: list[jax.Array]) -> dict[int, Cell]:
        cells: dict[int, Cell] = {}
        for group, array in zip(groups, arrays, strict=True):
            kinds = [kind_of(outputs_of(self.captured.graph)[i]) for i in group]
            cells.update(zip(group, cells_of(Buffer(array), kinds), strict=True))
        return cells


def _version(tensor: torch.Tensor) -> Any:
    """A value that differs when the tensor may have changed; one that another program updates always may."""
    return object() if isinstance(tensor, DeviceTensor) else tensor._version


def _host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor._cell.host() if isinstance(tensor, DeviceTensor) else tensor


def fill(
    program: Program,
    cells: dict[int, Cell],
    tree: OutputTree,
    numbers: Sequence[Number],
    made: dict[int, DeviceTensor] | None = None,
    objects: dict[int, object] | None = None,
) -> Any:
    """Build the Python value that an output tree stands for, tensors as DeviceTensors.

    Args:
        program: the program that ran.
        cells: its outputs.
        tree: the value.
        numbers: the symbolic numbers of this run.
        made: by output: the object made for another tree of this run; what was one object in the step stays one.
        objects: the same for objects of the user's classes.
    """

    def tensor(index: int) -> Any:
        return DeviceTensor(cells[index]) if made is None else made.setdefault(index, DeviceTensor(cells[index]))

    def number(index: int) -> Any:
        return cells[index].host().item()  # host sync: user code keeps the number outside of the step

    return tree.fill(tensor, number, numbers, objects)


def _cells(captured: Captured, placement: Placement) -> list[Cell]:
    state = TrainState.of_slots(captured.slots)
    return placement.cells(state.tensors, state.entries)


def _digest(graph: fx.Graph) -> str:
    """Equal for graphs that compute the same in the same order."""
    digest = hashlib.sha256()
    numbers = {node: index for index, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        target = node.target if node.op == "call_function" else node.op
        arguments = fx.map_arg((node.args, node.kwargs), lambda n: f"%{numbers[n]}")
        value = node.meta.get("val")
        kind = (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else type(value)
        # an op's random number is none of its arguments: without it a program that repeats a mask would be taken for one that
        # draws another
        digest.update(f"{target}{arguments}{kind}{node.meta.get('draw', '')}\n".encode())
    return digest.hexdigest()
