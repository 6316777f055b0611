"""Tensors that code between the steps puts in the place of others (`self.last = loss`): the same graph, other buffers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import torch
from torch import nn

from ...runtime import DeviceTensor, ViewCell
from ..capture import Captured, ObjectGraph, Path, with_same_memory


def other_tensors(captured: Captured, now: ObjectGraph, changed: Iterable[Path]) -> frozenset[Path]:
    """The paths at which there is another tensor than before, of a kind for which the same graph holds.

    Args:
        captured: the step, with the objects as they were.
        now: the objects as they are.
        changed: paths of what is not as it was.
    """
    before = captured.objects.tensors
    return frozenset(p for p in changed if p in before and p in now.tensors and _is_alike(before[p], now.tensors[p]))


def let_take_their_places(captured: Captured, now: ObjectGraph) -> bool:
    """Let a step that was traced with other tensors have those that are there now; returns whether it can.

    What is one tensor must have been one, and what shares memory must have shared it: a trace knows of that.

    Args:
        captured: the step; its slots and objects are changed.
        now: the objects as they are, on the devices.
    """
    slot_at = {path: index for index, slot in enumerate(captured.slots) for path in slot.paths}
    found: dict[int, torch.Tensor] = {}
    for path, tensor in now.tensors.items():
        index = slot_at.get(path)
        if index is None or found.setdefault(index, tensor) is not tensor or _is_view(tensor):
            return False
    slots = [dataclasses.replace(slot, tensor=found.get(index, slot.tensor)) for index, slot in enumerate(captured.slots)]
    if len(set(map(id, found.values()))) < len(found) or with_same_memory(slots) != with_same_memory(captured.slots):
        return False
    for slot, other in zip(captured.slots, slots, strict=True):
        slot.tensor = other.tensor
    captured.objects = now
    return True


def _is_alike(before: torch.Tensor, now: torch.Tensor) -> bool:
    """Whether a trace sees no difference: neither takes part in autograd, and memory looks the same."""
    return (
        before.shape == now.shape
        and before.dtype == now.dtype
        and before.layout == now.layout == torch.strided
        and before.stride() == now.stride()
        and not (before.requires_grad or now.requires_grad)
        and not isinstance(before, nn.Parameter)
        and not isinstance(now, nn.Parameter)
        and all(type(one) in (torch.Tensor, DeviceTensor) for one in (before, now))
    )


def _is_view(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, DeviceTensor) and isinstance(tensor._cell, ViewCell)
