"""Tensors and containers that code between the steps puts in the place of others (`self.last = loss`, `self.outputs = []`).

The graph stays the same; its state is in other buffers, and what the step leaves in a container it leaves in the one there.
"""

from __future__ import annotations

import argparse
import dataclasses
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from ...runtime import DeviceTensor, Placement, ViewCell
from ..capture import (
    Captured,
    ObjectGraph,
    Path,
    counts_if_read,
    is_plain_object,
    is_record,
    own_attributes,
    retargeted_effects,
    with_same_memory,
)
from ._binding import bind

_KINDS = (list, dict, OrderedDict, defaultdict, Counter, deque, set, types.SimpleNamespace, argparse.Namespace)
_KEYS = (str, int, float, bool, type(None))


def other_objects(captured: Captured, now: ObjectGraph, changed: Iterable[Path]) -> frozenset[Path]:
    """The paths at which there is another tensor or container than before, of a kind for which the same graph holds.

    Args:
        captured: the step, with the objects as they were.
        now: the objects as they are.
        changed: paths of what is not as it was. What a container holds has paths of its own.
    """
    before = captured.objects
    objects, other = dict(before.objects()), dict(now.objects())
    return frozenset(
        path
        for path in changed
        if (path in before.tensors and path in now.tensors and _is_alike(before.tensors[path], now.tensors[path]))
        or (path in objects and path in other and _is_like(objects[path], other[path]) and _same_keys(before, now, path))
        or _are_like_plain(before.values.get(path), now.values.get(path))
    )


def lists_in_place(captured: Captured, now: ObjectGraph) -> set[int]:
    """The ids of lists that stand where lists stood to which the step only appends."""
    before = captured.objects
    known = {id(item) for item in before.lists.values()}
    appended = before.lists.keys() - before.containers.keys()
    return {id(now.lists[path]) for path in appended if path in now.lists} - known


def watches_lists_of(captured: Captured, later: Captured) -> bool:
    """Whether a step looks into lists of which it was known later that steps only append to them.

    The later program holds whatever is in them; this one would keep the first ones, with the outputs of an epoch.

    Args:
        captured: the step.
        later: the same step, traced later.
    """
    appended = later.objects.lists.keys() - later.objects.containers.keys()
    return not appended.isdisjoint(captured.objects.lists.keys() & captured.objects.containers.keys())


def let_take_their_places(captured: Captured, now: ObjectGraph, placement: Placement) -> bool:
    """Let a step that was traced with other objects have those that are there now; returns whether it can.

    What is one tensor must have been one, and what shares memory must have shared it: a trace knows of that.

    Args:
        captured: the step; its slots, effects and objects are changed.
        now: the objects as they are, whose tensors are moved to the devices.
        placement: the devices.
    """
    bind(now, placement)
    slot_at = {path: index for index, slot in enumerate(captured.slots) for path in slot.paths}
    found: dict[int, torch.Tensor] = {}
    for path, tensor in now.tensors.items():
        index = slot_at.get(path)
        if index is None or found.setdefault(index, tensor) is not tensor or _is_view(tensor):
            return False
    slots = [dataclasses.replace(slot, tensor=found.get(index, slot.tensor)) for index, slot in enumerate(captured.slots)]
    if len(set(map(id, found.values()))) < len(found) or with_same_memory(slots) != with_same_memory(captured.slots):
        return False
    effects = retargeted_effects(captured, now)
    if effects is None:
        return False
    for slot, other in zip(captured.slots, slots, strict=True):
        slot.tensor = other.tensor
    captured.effects, captured.objects = effects, now
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


def _is_like(before: Any, now: Any) -> bool:
    """Whether two containers differ in what they hold only."""
    return (
        type(before) is type(now)
        and (type(now) in _KINDS or is_record(now) or is_plain_object(now))
        and (type(now) is not defaultdict or before.default_factory is now.default_factory)
        and (type(now) is not deque or before.maxlen == now.maxlen)
    )


def _are_like_plain(before: object, now: object) -> bool:
    """Whether two objects of a class of the user's have the same attributes; those that a trace reads are watched."""
    if before is now or type(before) is not type(now) or not is_plain_object(now):
        return False
    if type(now).__getattribute__ is not object.__getattribute__:  # nobody knows what was read
        return False
    one, other = own_attributes(before), own_attributes(now)
    return one.keys() == other.keys() and all(
        one[name] is other[name] or (counts_if_read(one[name]) and counts_if_read(other[name])) for name in one
    )


def _same_keys(before: ObjectGraph, now: ObjectGraph, path: Path) -> bool:
    """Whether two containers have the same keys in the same order; those of lists that are only appended to do not count."""
    keys, others = before.keys.get(path, []), now.keys.get(path, [])
    return len(keys) == len(others) and all(
        one is other or (type(one) is type(other) and isinstance(one, _KEYS) and one == other)
        for one, other in zip(keys, others, strict=True)
    )


def _is_view(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, DeviceTensor) and isinstance(tensor._cell, ViewCell)
