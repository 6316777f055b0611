"""State on the devices: buffers, and the cells that are one tensor each."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import numpy as np
import torch

from ..sharding import StateKind
from ._convert import copy_to_host, put, to_host_array, to_jax_array, to_torch_tensor
from ._dimension_order import place_of
from ._dtypes import jax_dtype


class Buffer:
    """One device array. It holds one large tensor, or many small ones end to end.

    A call of a compiled program costs time per array and per device, so small tensors share one.
    """

    __slots__ = ("array", "cells", "mirrored")

    def __init__(self, array: jax.Array) -> None:
        self.array = array
        self.cells: list[Cell] = []
        self.mirrored = False


class Sharer(Protocol):
    """A tensor or view that looks at the memory of a cell that is another tensor's."""

    def look_at(self, kept: ViewCell) -> None:
        """Look at a value that was kept, instead."""
        ...


@dataclass(eq=False)
class Cell:
    """One tensor of the state.

    Attributes:
        buffer: the array that holds it.
        offset: its first element there; -1 when the whole array is this tensor.
        shape: its shape.
        dtype: its PyTorch dtype.
        mirror: host memory that user code was given to look at (and perhaps to write to).
        mirrored: the array whose values are there: a thread may have looked while a step was about to replace it.
        dirty: whether user code wrote to it there.
        sharers: what looks at it beside the tensor whose it is.
    """

    buffer: Buffer
    offset: int
    shape: torch.Size
    dtype: torch.dtype
    mirror: torch.Tensor | None = field(default=None, repr=False)
    mirrored: jax.Array | None = field(default=None, repr=False)
    dirty: bool = False
    sharers: list[weakref.ref[Sharer]] = field(default_factory=list, repr=False)

    def shared_with(self, sharer: Sharer) -> None:
        """Note what looks at this memory beside the tensor itself: `weight.data`, a view."""
        self.sharers = [known for known in self.sharers if known() is not None]
        self.sharers.append(weakref.ref(sharer))

    def is_shared_by(self, tensor: object) -> bool:
        """Whether a tensor only looks at this memory, which is another one's."""
        return any(known() is tensor for known in self.sharers)

    def forget(self, tensor: object) -> None:
        """Note that a tensor looks at this memory no more."""
        self.sharers = [known for known in self.sharers if known() is not tensor]

    def part(self) -> None:
        """Let everything else that looks at this memory keep what it holds now: the tensor is about to get other memory."""
        sharers = [sharer for known in self.sharers if (sharer := known()) is not None]
        self.sharers = []
        if sharers:
            kept = kept_value(self.host())  # host sync: somebody may look at the value
            for sharer in sharers:
                sharer.look_at(kept)

    @property
    def is_whole_array(self) -> bool:
        """Whether the buffer holds nothing else, and no unsent host copy exists."""
        return self.offset < 0 and not self.dirty

    def host(self) -> torch.Tensor:
        """The current value in host memory; waits for the device. Call `mark_written` after changing it."""
        mirror = self._current_mirror()
        if mirror is None:
            # copied, because JAX keeps the array that it gives and forbids writes to it; users write to this one
            array, values = _read(self.buffer, lambda array: np.array(to_host_array(array)))  # host sync: user code looks
            if self.offset >= 0:
                values = values[self.offset : self.offset + self.shape.numel()].reshape(tuple(self.shape)).copy()
            mirror = to_torch_tensor(values, self.dtype)
            self.mirror, self.mirrored, self.buffer.mirrored = mirror, array, True
        return mirror

    def _current_mirror(self) -> torch.Tensor | None:
        """The host memory, where what is there is the current value."""
        return self.mirror if self.mirrored is self.buffer.array or self.dirty else None

    def snapshot(self) -> torch.Tensor:
        """A copy of the current value that nobody else holds; leaves nothing behind. Waits for the device."""
        mirror = self._current_mirror()
        if mirror is not None:
            return mirror.clone()
        _, values = _read(self.buffer, copy_to_host)  # host sync: the value is wanted
        if self.offset >= 0:
            values = values[self.offset : self.offset + self.shape.numel()].reshape(tuple(self.shape))
        return to_torch_tensor(np.array(values), self.dtype)

    def mark_written(self) -> None:
        """Note that the host copy was changed: the next step takes it."""
        self.dirty = True


class KeptValue:
    """A value on the host that is no tensor's of the state any more.

    Args:
        value: the value.
    """

    def __init__(self, value: torch.Tensor) -> None:
        self._value = value

    def host(self) -> torch.Tensor:
        """The value, which may be written to."""
        return self._value

    def snapshot(self) -> torch.Tensor:
        """A copy."""
        return self._value.clone()

    def mark_written(self) -> None:
        """Nothing: no step takes it."""


def kept_value(value: torch.Tensor) -> ViewCell:
    """A cell with a copy of a value, which no step takes."""
    return ViewCell(KeptValue(value.detach().clone()), lambda host: host)


class ViewCell:
    """Part of a cell's value, or another view of it (`weight[0]`, `weight.T`); looked up anew after each step."""

    def __init__(self, base: Cell | ViewCell | KeptValue, view: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._base = base
        self._view = view
        if isinstance(base, Cell):
            base.shared_with(self)
        example = view(base.host())
        self.shape = example.shape
        self.dtype = example.dtype

    def host(self) -> torch.Tensor:
        """The current value in host memory, sharing memory with the cell's host copy."""
        return self._view(self._base.host())

    def snapshot(self) -> torch.Tensor:
        """A copy of the current value that nobody else holds."""
        return self._view(self._base.snapshot()).clone()

    def mark_written(self) -> None:
        """Note that the host copy was changed."""
        self._base.mark_written()

    def look_at(self, kept: ViewCell) -> None:
        """Be a view of another cell from now on."""
        self._base = kept

    @property
    def is_whole_array(self) -> bool:
        """A view never is."""
        return False


def flush(buffer: Buffer) -> None:
    """Send what user code wrote on the host to the device, and forget the host copies."""
    dirty = [cell for cell in buffer.cells if cell.dirty]
    if dirty:
        if dirty[0].offset < 0:
            values: Any = to_jax_array(_mirror(dirty[0]))
        else:
            values = np.array(to_host_array(buffer.array))  # host sync: user code wrote to a small tensor
            for cell in dirty:
                flat = to_jax_array(_mirror(cell)).reshape(-1)
                values[cell.offset : cell.offset + flat.size] = np.asarray(flat)
        buffer.array = put(values, place_of(buffer.array.sharding, values.shape))
    for cell in buffer.cells:
        cell.mirror = cell.mirrored = None
        cell.dirty = False
    buffer.mirrored = False


_PATIENCE_S = 60.0


def _read(buffer: Buffer, read: Callable[[jax.Array], np.ndarray[Any, Any]]) -> tuple[jax.Array, np.ndarray[Any, Any]]:
    """A buffer's array, and what a function reads of it.

    In another thread than the main one it may be given to a step meanwhile. Then the step's new array is waited for.
    """
    waited_since = time.monotonic()
    while True:
        array = buffer.array
        try:
            return array, read(array)
        except RuntimeError:
            waits = time.monotonic() - waited_since < _PATIENCE_S
            if not array.is_deleted() or threading.current_thread() is threading.main_thread() or not waits:
                raise
            if buffer.array is array:
                time.sleep(0.001)


def _mirror(cell: Cell) -> torch.Tensor:
    assert cell.mirror is not None
    return cell.mirror


SMALL_TENSOR_ELEMENTS = 2048
"""Tensors up to this size share a buffer: copying them is cheaper than passing one more array."""

TensorKind = tuple[torch.Size, torch.dtype]


def plan_buffers(
    shapes: Sequence[TensorKind], alone: Collection[int] = (), kinds: Sequence[StateKind] | None = None
) -> list[list[int]]:
    """Group tensors into buffers: the small ones of a dtype and kind together, each large one alone; as lists of indices.

    Args:
        shapes: shape and dtype of each.
        alone: small ones that share no buffer all the same.
        kinds: what each is of the state; None for values of one kind.
    """
    groups: list[list[int]] = []
    shared: dict[tuple[torch.dtype, StateKind | None], list[int]] = {}
    for index, (shape, dtype) in enumerate(shapes):
        # A run that goes on from a checkpoint finds gradients and moments at its beginning, which the run before it made on
        # its way. Were they packed with parameters, its programs would be others, and round otherwise.
        owner = dtype, kinds[index] if kinds is not None else None
        if shape.numel() > SMALL_TENSOR_ELEMENTS or index in alone:
            groups.append([index])
        elif owner in shared:
            shared[owner].append(index)
        else:
            shared[owner] = [index]
            groups.append(shared[owner])
    for group in shared.values():
        # counts of steps lie next to each other: what is computed of all of them reads one piece of the buffer
        group.sort(key=lambda index: shapes[index][0].numel() > 1)
    return groups


def make_cells(
    values: Sequence[torch.Tensor], shardings: Sequence[jax.sharding.Sharding], kinds: Sequence[StateKind] | None = None
) -> list[Cell]:
    """Copy tensors to the devices, small ones of a kind packed together where every device holds them whole.

    Args:
        values: ordinary CPU tensors.
        shardings: where each goes.
        kinds: what each is of the state; None for values of one kind.
    """

    def filled(group: list[int]) -> jax.Array:
        arrays = [to_jax_array(values[i]) for i in group]
        packed = arrays[0] if len(group) == 1 else np.concatenate([np.asarray(a).reshape(-1) for a in arrays])
        # device_put may keep the host memory that it was given; the state is donated, so it gets its own copy
        return put(np.array(packed, jax_dtype(values[group[0]].dtype)), place_of(shardings[group[0]], packed.shape))

    return _cells([(v.shape, v.dtype) for v in values], shardings, kinds, filled)


def describe_cells(
    tensors: Sequence[TensorKind], shardings: Sequence[jax.sharding.Sharding], kinds: Sequence[StateKind]
) -> list[Cell]:
    """The cells that `make_cells` would make for such tensors, over arrays that are only described."""

    def described(group: list[int]) -> Any:
        shape, dtype = tensors[group[0]]
        shape = tuple(shape) if len(group) == 1 else (sum(tensors[i][0].numel() for i in group),)
        return jax.ShapeDtypeStruct(shape, jax_dtype(dtype), sharding=place_of(shardings[group[0]], shape))

    return _cells(tensors, shardings, kinds, described)


def _cells(
    tensors: Sequence[TensorKind],
    shardings: Sequence[jax.sharding.Sharding],
    kinds: Sequence[StateKind] | None,
    array_of: Callable[[list[int]], Any],
) -> list[Cell]:
    cells: dict[int, Cell] = {}
    split = {index for index, sharding in enumerate(shardings) if not sharding.is_fully_replicated}
    for group in plan_buffers(tensors, split, kinds):
        buffer = Buffer(array_of(group))
        for index, cell in zip(group, cells_of(buffer, [tensors[i] for i in group]), strict=True):
            cells[index] = cell
    return [cells[i] for i in range(len(tensors))]


def cells_of(buffer: Buffer, tensors: Sequence[TensorKind]) -> list[Cell]:
    """Lay tensors over a buffer, in order."""
    if len(tensors) == 1:
        buffer.cells = [Cell(buffer, -1, *tensors[0])]
    else:
        offset = 0
        for shape, dtype in tensors:
            buffer.cells.append(Cell(buffer, offset, shape, dtype))
            offset += shape.numel()
    return buffer.cells
