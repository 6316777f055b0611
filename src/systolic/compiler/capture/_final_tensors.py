"""Final tensors of a step, by place, and what becomes of the tensor objects that stood there before.

In eager PyTorch an attribute holds an object, and two attributes may hold one. A compiled step keeps the objects that were
there and gives them new values, where nobody could tell the difference; else it puts other objects into their places.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ...utilities._torch_internals import FunctionalTensor, apply_pending_writes, has_data_mutation, tree_leaves
from .._errors import CaptureError
from ._object_graph import ObjectGraph, Path, describe
from ._output_tree import ExistingTensor, LeafOutput, OutputList, OutputTree, TensorOutput, ViewOutput, view_base
from ._slots import Slot, is_recurrent_cache, with_same_memory
from ._spans import Span, overlapping_spans

_NEW = -1
"""Stands for a place that is no slot's."""


class FinalTensors:
    """The end of a traced step.

    Args:
        objects: the walk made before the step.
        slots: the tensors that were there.
        stand_ins: by slot: what the step was given for it.
        before: a shallow copy of each container, with what stood in it as the step began.
        outputs: collects the tensors to return.

    Attributes:
        rebound: by slot: the tensor of the same kind that took its place everywhere, so that the slot's object may take
            that tensor's value and stay.
    """

    def __init__(
        self,
        objects: ObjectGraph,
        slots: list[Slot],
        stand_ins: list[torch.Tensor],
        before: dict[Path, Any],
        outputs: OutputList,
    ) -> None:
        self._slots = slots
        self._stand_ins = stand_ins
        self._outputs = outputs
        self._slot_of = {id(s.tensor): i for i, s in enumerate(slots)} | {id(t): i for i, t in enumerate(stand_ins)}
        self._slot_at = {path: index for index, slot in enumerate(slots) for path in slot.paths}
        self._standing: dict[Path, torch.Tensor] = {}
        self._holders: defaultdict[int, set[int]] = defaultdict(set)
        for path, tensor in _changed_or_known(objects, before):
            tensor = self._canonical(tensor)
            self._standing[path] = tensor
            self._holders[id(tensor)].add(self._slot_at.get(path, _NEW))
        self._stays = [self._still_stands(index) for index in range(len(slots))]
        self._by_storage = {_storage(t): i for i, t in enumerate(stand_ins) if self._stays[i]}
        found = {index: self._rebinding(index) for index in range(len(slots))}
        self.rebound = {index: now for index, now in found.items() if now is not None}

    def value(self, index: int) -> torch.Tensor:
        """Value of a slot's object after the step."""
        return self.rebound.get(index, self._stand_ins[index])

    def replaced(self) -> set[int]:
        """Slots whose place gets another object, and whose own one nobody wrote to before."""
        for index in self.rebound:
            apply_pending_writes(self._stand_ins[index])
        return {index for index in self.rebound if not has_data_mutation(self._stand_ins[index].elem)}  # type: ignore[attr-defined]

    def updates_in_place(self, path: Path, now: torch.Tensor) -> bool:
        """Whether a tensor that stands where another one stood is an ordinary update of that one."""
        index = self._slot_at.get(path)
        return index is not None and (self._canonical(now) is self._stand_ins[index] or index in self.rebound)

    def tree(self, structure: object) -> OutputTree:
        """A value that the step left, with its tensors as outputs, or as the objects that were there before."""
        return self._outputs.tree(structure, self._leaf, shares=True)

    def _canonical(self, tensor: torch.Tensor) -> torch.Tensor:
        index = self._slot_of.get(id(tensor))
        return tensor if index is None else self._stand_ins[index]

    def _still_stands(self, index: int) -> bool:
        slot, stand_in = self._slots[index], self._stand_ins[index]
        if slot.grad_of is not None:
            return self._stand_ins[slot.grad_of].grad is stand_in
        return any(self._standing.get(path) is stand_in for path in slot.paths)

    def _rebinding(self, index: int) -> torch.Tensor | None:
        slot, found = self._slots[index], [self._standing.get(path) for path in self._slots[index].paths]
        now = found[0] if found else None
        if now is None or any(other is not now for other in found) or now is self._stand_ins[index]:
            return None
        other = self._slot_of.get(id(now))
        is_free = self._holders[id(now)] == {index} and (other is None or not self._stays[other])
        if not (is_free and isinstance(now, FunctionalTensor) and _same_kind(slot, now)):
            return None
        base = self._base(now)
        if base is not None and self._is_whole(now, base) and not with_same_memory([slot, self._slots[base]]):
            return None  # its place gets another object over the other tensor's memory
        return now

    def _base(self, tensor: torch.Tensor) -> int | None:
        """The slot whose memory a tensor looks at, when that one stays in its place."""
        if not isinstance(tensor, FunctionalTensor) or id(tensor) in self._slot_of:
            return None
        return self._by_storage.get(_storage(tensor))

    def _is_whole(self, tensor: torch.Tensor, base: int) -> bool:
        return not tensor.requires_grad and _layout(tensor) == _layout(self._stand_ins[base])

    def _leaf(self, tensor: torch.Tensor) -> Any:
        index = self._slot_of.get(id(tensor))
        if index is not None and index not in self.rebound:
            return ExistingTensor(self._slots[index], aliased=False)
        if not isinstance(tensor, FunctionalTensor):
            return tensor  # an ordinary tensor that the step got hold of in another way
        base = self._base(tensor)
        if base is not None and self._is_whole(tensor, base):
            return ExistingTensor(self._slots[base], aliased=True)
        if base is not None:
            return ViewOutput(self._outputs.add(tensor), self._slots[base])
        if not (tensor.is_leaf and (tensor.requires_grad or isinstance(tensor, nn.Parameter))):
            return TensorOutput(self._outputs.add(tensor))
        grad = None if tensor.grad is None else self._outputs.add(tensor.grad)
        return LeafOutput(self._outputs.add(tensor), isinstance(tensor, nn.Parameter), tensor.requires_grad, grad)

    def changed_flags(self) -> Iterator[tuple[torch.Tensor, bool]]:
        """The tensors whose `requires_grad` the step has changed, with the new flag."""
        for index, (slot, stand_in) in enumerate(zip(self._slots, self._stand_ins, strict=True)):
            stays = slot.grad_of is None and index not in self.rebound and slot.tensor.is_leaf and stand_in.is_leaf
            if stays and stand_in.requires_grad != slot.tensor.requires_grad:
                yield slot.tensor, stand_in.requires_grad

    def require_followable(self, lines: Mapping[int, str]) -> None:
        """Refuse a step that leaves tensors of the state in each other's memory, or of another shape.

        Args:
            lines: by id of a stand-in: the line that gave it other memory, or another shape.

        Raises:
            CaptureError: names the tensors and the line.
        """
        kept = [i for i, slot in enumerate(self._slots) if slot.grad_of is None and i not in self.rebound]
        for index in kept:
            slot, now = self._slots[index], self._stand_ins[index]
            if now.shape != slot.tensor.shape or now.dtype != slot.tensor.dtype:
                raise CaptureError(
                    f"The step leaves {describe(slot.paths[0])} with another shape or dtype. Expected: "
                    f"{tuple(slot.tensor.shape)}, {slot.tensor.dtype}. Received: {tuple(now.shape)}, {now.dtype}."
                    f"{self._line((index,), lines)}Options: convert the value with .to(dtype) or .reshape(shape); assign a new "
                    "nn.Parameter or buffer to the module; or change it outside of the step."
                )
        shared_before = {frozenset(pair) for pair in with_same_memory(self._slots)}
        for group in overlapping_spans([_span(self._stand_ins[index]) for index in kept]):
            first, *others = (kept[position] for position in group)
            for other in others:
                if frozenset((first, other)) not in shared_before:
                    raise self._sharing_error(first, other, lines)
        for one, other in shared_before:
            if one in kept and other in kept and _span(self._stand_ins[one]) != _span(self._stand_ins[other]):
                raise self._sharing_error(one, other, lines)

    def _sharing_error(self, one: int, other: int, lines: Mapping[int, str]) -> CaptureError:
        names = " and ".join(describe(self._slots[index].paths[0]) for index in sorted((one, other)))
        return CaptureError(
            f"The step changes whether {names} look at the same memory, as `a.data = b.data` does: in eager PyTorch a later "
            f"write to one would (or would no longer) be seen in the other. On the devices each has memory of its own."
            f"{self._line((one, other), lines)}Options: copy the values, `a.data.copy_(b.data)` or `a.data = b.data.clone()`; "
            "or tie the parameter itself, `module_a.weight = module_b.weight`, before training."
        )

    def _line(self, indices: Sequence[int], lines: Mapping[int, str]) -> str:
        found = [lines[id(self._stand_ins[index])] for index in indices if id(self._stand_ins[index]) in lines]
        return f"\n  used at {found[0]}\n" if found else " "

    def require_fresh_views(self, read: set[int], written: set[int]) -> None:
        """Refuse a step that reads a view which an earlier step stored, when it writes to the tensor behind the view.

        Args:
            read: the slots whose values the program needs.
            written: the slots that it changes.

        Raises:
            CaptureError: names the view and its tensor.
        """
        for index in sorted(read):
            now = self.rebound.get(index)
            base = self._base_before(index) if now is None else self._base(now)
            if base is not None and base in written and not with_same_memory([self._slots[index], self._slots[base]]):
                view, tensor = (describe(self._slots[i].paths[0]) for i in (index, base))
                raise CaptureError(
                    f"{view} is a view of {tensor} that an earlier step stored. The step reads it and changes {tensor}: in "
                    "eager PyTorch the view would follow, on the devices it has memory of its own.\n"
                    "Options: take the view anew in the step before it is read; or store a copy, with .clone()."
                )

    def _base_before(self, index: int) -> int | None:
        base = view_base(self._slots[index].tensor)
        return None if base is None else self._slot_of.get(id(base))


def _changed_or_known(objects: ObjectGraph, before: dict[Path, Any]) -> Iterator[tuple[Path, torch.Tensor]]:
    """Every tensor that stands in a container, with its path; what a container held before is left to the object graph."""
    for path, container in objects.every_container():
        old = before[path]
        if isinstance(container, list | deque):
            known = dict(enumerate(old))
            first = 0 if path in objects.containers else len(old)
            entries: Any = ((key, container[key]) for key in range(first, len(container)))
        else:
            known, entries = old, container.items()
        for key, value in entries:
            if isinstance(value, torch.Tensor | tuple) or value is not known.get(key):
                yield from _tensors_in((*path, key), value)


def _tensors_in(path: Path, value: object) -> Iterator[tuple[Path, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, tuple):
        for index, element in enumerate(value):
            yield from _tensors_in((*path, index), element)
    else:
        yield from (((*path, None), leaf) for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _same_kind(slot: Slot, now: torch.Tensor) -> bool:
    """Whether a slot's object can take the value of another tensor without a difference to be seen."""
    was = slot.tensor
    if was.shape != now.shape or was.dtype != now.dtype or isinstance(now, nn.Parameter):
        return False
    if is_recurrent_cache(slot):
        return True  # nobody looks at it before it is made anew
    if isinstance(was, nn.Parameter):
        return False
    if not now.is_leaf:
        return not was.requires_grad
    return now.requires_grad == was.requires_grad and now.grad is None


def _storage(tensor: torch.Tensor) -> int:
    """Identity of the memory that a traced tensor looks at."""
    assert isinstance(tensor, FunctionalTensor), "a stand-in is a traced tensor"
    return tensor.elem.untyped_storage()._cdata


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype


def _span(tensor: torch.Tensor) -> Span:
    return Span.of(tensor, _storage(tensor), int(tensor.storage_offset()) * tensor.element_size())
