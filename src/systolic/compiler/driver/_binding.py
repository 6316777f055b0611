"""Moving the tensors of the objects that a step uses to the devices, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch import nn

from ...runtime import DeviceTensor, Placement, bring_back, let_plain_tensors_take_values, make_cells, move_in_place
from ...sharding import StateEntry
from ..capture import ObjectGraph, Path, TrainState, describe, let_go, overlapping, set_at, slots_of


def bind(objects: ObjectGraph, placement: Placement) -> None:
    """Move every tensor that a walk found to the devices, keeping the tensor objects."""
    let_plain_tensors_take_values()
    slots = [(tensor, paths) for tensor, paths in objects.slots() if not isinstance(tensor, DeviceTensor)]
    grads = {id(g): g for g in objects.grads.values() if not isinstance(g, DeviceTensor)}
    for slot in slots:
        _require_dense(*slot)
    shared = overlapping([tensor for tensor, _ in slots])
    movable = [t for t, _ in slots] + list(grads.values())
    entry_of = {id(tensor): entry for entry, tensor in _named(objects)}
    entries = [entry_of[id(t)] for t in movable]
    shardings = [placement.state_sharding(entry) for entry in entries]
    cells = make_cells([t.detach() for t in movable], shardings, [entry.kind for entry in entries])
    placement.shared_memory += [[cells[index] for index in group] for group in shared]
    moved = {id(tensor) for tensor, _ in slots}
    # its history holds the leaves that it was made of (the old weight_norm keeps such a weight), and a tensor that is held
    # cannot be swapped; the object itself is replaced below
    with_history = {id(tensor): tensor for tensor, _ in slots if not tensor.is_leaf}
    for tensor in with_history.values():
        if not tensor._is_view():
            tensor.detach_()
    # what is a gradient cannot be swapped itself: its owner, which a swap leaves a copy of it or which is on the devices
    # already (a step of eager PyTorch came between), gets another one
    owners = {id(g): objects.tensors[path] for path, g in objects.grads.items()}
    with let_go(objects, moved - with_history.keys()):
        for tensor, cell in zip(movable, cells, strict=True):
            if id(tensor) in owners and id(tensor) not in moved:
                owners[id(tensor)].grad = DeviceTensor(cell)
                continue
            # a tensor with history cannot be swapped while others hold it, and swapped it would be a leaf that takes gradients
            if id(tensor) not in with_history:
                move_in_place(tensor, cell)
            else:
                for path in next(paths for t, paths in slots if t is tensor):
                    set_at(objects, path, DeviceTensor(cell))


def place_module(module: nn.Module, placement: Placement) -> None:
    """Move a module's tensors to the devices before its first step.

    What a hook keeps of them (`module.state_dict()`, `[p.data for p in module.parameters()]`) are tensors over the same memory:
    taken of ordinary tensors, they would stay at the values of before the first step.

    Args:
        module: the module that steps are going to run.
        placement: the devices.
    """
    bind(ObjectGraph({"model": module}, has_values=True), placement)


def _named(objects: ObjectGraph) -> Iterator[tuple[StateEntry, torch.Tensor]]:
    state = TrainState.of_slots(slots_of(objects))
    yield from zip(state.entries, state.tensors, strict=True)


def _require_dense(tensor: torch.Tensor, paths: list[Path]) -> None:
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise ValueError(
            f"{describe(paths[0])} is a {tensor.layout} tensor. systolic compiles dense tensors only; "
            "call .to_dense() on it before training."
        )


def release(roots: MutableMapping[str, Any], opened: Mapping[int, frozenset[str] | None] | None = None) -> None:
    """The reverse of `bind`; `opened` as for `ObjectGraph`."""
    objects = ObjectGraph(roots, opened=opened or {})
    kept = {id(tensor) for tensor, _ in objects.slots()}
    # what is kept elsewhere and is a gradient, too, is swapped while its owner does not hold it
    both = [(objects.tensors[path], grad) for path, grad in objects.grads.items() if id(grad) in kept]
    for owner, _ in both:
        owner.grad = None
    with let_go(objects, {id(tensor) for tensor, _ in objects.slots() if isinstance(tensor, DeviceTensor)}):
        for tensor, _ in objects.slots():
            if isinstance(tensor, DeviceTensor):
                bring_back(tensor)
            if tensor.is_leaf and isinstance(tensor.grad, DeviceTensor):
                bring_back(tensor.grad)
    for owner, grad in both:
        owner.grad = grad
