"""The tensors that a step reads or writes."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ...runtime import DeviceTensor, ViewCell
from .._errors import CaptureError
from ._object_graph import ObjectGraph, Path, describe, set_at
from ._script_modules import ScriptAttributes


@dataclass
class Slot:
    """A tensor that the step reads or writes: one parameter, buffer, optimizer moment, gradient, ...

    Attributes:
        tensor: the user's tensor object.
        paths: where it was found; one tensor may be reachable in several ways (tied weights).
        grad_of: the slot whose `.grad` it is, if it is one.
    """

    tensor: torch.Tensor
    paths: list[Path]
    grad_of: int | None = None


def slots_of(objects: ObjectGraph) -> list[Slot]:
    """Every distinct tensor that a walk found, then the gradients."""
    slots = [Slot(tensor, paths) for tensor, paths in objects.slots()]
    for slot in slots:
        _require_own_cell(slot)
    owner = {path: index for index, slot in enumerate(slots) for path in slot.paths}
    grads: dict[int, Slot] = {}
    for path, grad in objects.grads.items():
        grads.setdefault(owner[path], Slot(grad, [], grad_of=owner[path]))
    return slots + list(grads.values())


def take_gradients(slots: list[Slot]) -> None:
    """Let the slots of gradients have those that are there now."""
    for slot in slots:
        if slot.grad_of is not None:
            gradient = slots[slot.grad_of].tensor.grad
            assert gradient is not None
            slot.tensor = gradient


def is_recurrent_cache(slot: Slot) -> bool:
    """Whether a tensor stands only where recurrent modules list their weights once more, anew in every forward."""
    return all("_flat_weights" in path for path in slot.paths)


def _require_own_cell(slot: Slot) -> None:
    if isinstance(slot.tensor, DeviceTensor) and isinstance(slot.tensor._cell, ViewCell):
        raise CaptureError(
            f"{describe(slot.paths[0])} is a view of another tensor of the state (a row, a transpose, ...). On the devices "
            "each tensor has memory of its own, so the view would not follow. Store a copy, with .clone(), or take the "
            "view inside the step."
        )


def with_same_memory(slots: list[Slot]) -> list[tuple[int, int]]:
    """Pairs of slots that are different objects over one cell (`self.last = weight.detach()`): a later one, and the first."""
    first: dict[int, int] = {}
    pairs: list[tuple[int, int]] = []
    for index, slot in enumerate(slots):
        if isinstance(slot.tensor, DeviceTensor):
            known = first.setdefault(id(slot.tensor._cell), index)
            if known != index:
                pairs.append((index, known))
    return pairs


def cells_of_slots(slots: list[Slot]) -> list[Any]:
    """Cells that hold the values of the slots' objects; None for an object that is not on the devices."""
    return [getattr(slot.tensor, "_cell", None) for slot in slots]


def require_unexchanged(slots: list[Slot], cells: list[Any]) -> None:
    """Refuse a step that exchanged the real objects of the state while it was traced: it would happen then only.

    Args:
        slots: the tensors of the state.
        cells: what `cells_of_slots` said before the trace.
    """
    for slot, now, before in zip(slots, cells_of_slots(slots), cells, strict=True):
        if now is not before:
            raise CaptureError(
                f"The step exchanges {describe(slot.paths[0])} with another tensor past the tracer. Call it as "
                "`torch.utils.swap_tensors(a, b)`, not by a name imported from there; or exchange the values with copy_."
            )


@contextlib.contextmanager
def let_go(objects: ObjectGraph, tensors: Collection[int]) -> Iterator[None]:
    """Inside the block, TorchScript's modules hold none of these tensors: one that they hold cannot be swapped for another.

    Args:
        objects: the walk that has found them.
        tensors: their ids.
    """
    tables = {path for path, table in objects.containers.items() if isinstance(table, ScriptAttributes)}
    held = [(p, t) for p, t in objects.tensors.items() if id(t) in tensors and not tables.isdisjoint((p[:-1], p[:-2]))]
    for path, tensor in held:
        set_at(objects, path, torch.empty(0, dtype=tensor.dtype))
    try:
        yield
    finally:
        for path, tensor in held:
            set_at(objects, path, tensor)
