"""The host's copy of a checkpoint: what the devices hold is copied once, then they may go on."""

from __future__ import annotations

import copy
from typing import Any

import jax
import torch

from ..runtime import Cell, DeviceTensor, is_readable_alone
from ..utilities._torch_internals import tree_leaves, tree_map

_IMMUTABLE = (int, float, complex, str, bytes, bool, type(None), type, torch.dtype, torch.device, torch.Size)


def snapshot(contents: object, *, detached: bool = False) -> Any:
    """`contents` with ordinary tensors in place of those on the devices.

    A value that occurs under several names (tied weights) is copied once, and the copies share their memory, so that
    `torch.save` writes it once. Host memory grows by the size of the state on the devices; nothing is left there.

    Args:
        contents: dicts, lists and tuples of tensors and plain values.
        detached: copy ordinary tensors and other mutable objects too, for a save that goes on while training does.
    """
    copies: dict[Any, torch.Tensor] = {}

    def leaf(value: object) -> Any:
        if isinstance(value, DeviceTensor):
            key = id(value._cell)
            if key not in copies:
                copies[key] = value._cell.snapshot()
            return copies[key]
        if not detached or isinstance(value, _IMMUTABLE):
            return value
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            return copy.deepcopy(value)
        key = (value.untyped_storage().data_ptr(), value.storage_offset(), value.shape, value.stride(), value.dtype)
        if key not in copies:
            copies[key] = value.detach().clone()
        return copies[key]

    with jax.profiler.TraceAnnotation("checkpoint: copy"):
        return tree_map(leaf, contents)


def send_parts(contents: object) -> None:
    """Help the first process to take its `snapshot`, while all read together: parts that only this one has are sent.

    One array at a time is here as a whole, for an instant.

    Args:
        contents: as the first process has them.
    """
    known: set[int] = set()
    for leaf in tree_leaves(contents):
        cell = leaf._cell if isinstance(leaf, DeviceTensor) else None
        if isinstance(cell, Cell) and id(cell) not in known and not is_readable_alone(cell.buffer.array):
            known.add(id(cell))
            cell.snapshot()
