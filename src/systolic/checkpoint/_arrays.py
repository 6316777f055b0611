"""Contents of a checkpoint in two parts: large arrays, which may lie on devices, and the rest, with gaps in their places."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import torch

from ..distributed import process_count
from ..runtime import Cell, DeviceTensor, jax_dtype, to_jax_array, to_torch_tensor
from ..utilities._torch_internals import tree_flatten, tree_flatten_with_path, tree_unflatten
from ._snapshot import snapshot

Array = jax.Array | np.ndarray[Any, Any]

_LARGE_ON_DEVICES = 2048
"""Numbers from which on a tensor on the devices is an array of its own; the others share buffers there."""

_LARGE_ON_HOST = 2**16
"""Bytes from which on a tensor in host memory is an array of its own."""


@dataclass(frozen=True)
class Parts:
    """Contents of a checkpoint in two parts.

    Attributes:
        rest: the contents, with meta tensors of the same shapes and dtypes in the places of arrays.
        gaps: of each meta tensor in `rest`, in order, the name of its array; None where the contents had a meta tensor.
        arrays: by name; those on devices as they lie there.
    """

    rest: dict[str, Any]
    gaps: list[str | None]
    arrays: dict[str, Array]


def take_apart(contents: dict[str, Any]) -> Parts:
    """Put the large tensors of a checkpoint aside. Nothing is fetched but small ones, which the rest holds.

    A value that occurs under several names (tied weights) is one array.

    Args:
        contents: dicts, lists and tuples of tensors and plain values; every process gives the same tensors on devices.
    """
    arrays: dict[str, Array] = {}
    known: dict[object, tuple[str, torch.Tensor]] = {}
    gaps: list[str | None] = []
    leaves, structure = tree_flatten_with_path(contents)
    left: list[Any] = []
    for path, leaf in leaves:
        found = _array_of(leaf)
        if found is not None:
            identity, array = found
            if identity not in known:
                name = _free_name(path, arrays)
                arrays[name] = array
                known[identity] = name, torch.empty(leaf.shape, dtype=leaf.dtype, device="meta")
            name, leaf = known[identity]
            gaps.append(name)
        elif _is_gap(leaf):
            gaps.append(None)
        left.append(leaf)
    return Parts(snapshot(tree_unflatten(left, structure)), gaps, arrays)


def put_together(rest: dict[str, Any], gaps: Sequence[str | None], tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The contents that `take_apart` was given, with ordinary tensors.

    Args:
        rest: the contents with gaps.
        gaps: whose they are.
        tensors: by the names of arrays.

    Raises:
        ValueError: there are more gaps or fewer, or an array is missing, or has another shape or dtype.
    """
    leaves, structure = tree_flatten(rest)
    names: Iterator[str | None] = iter(gaps)
    if sum(map(_is_gap, leaves)) != len(gaps):
        raise ValueError(f"there are {sum(map(_is_gap, leaves))} gaps for arrays, and names for {len(gaps)}")
    filled: list[Any] = []
    for leaf in leaves:
        name = next(names) if _is_gap(leaf) else None
        filled.append(leaf if name is None else _fitting(leaf, name, tensors))
    return tree_unflatten(filled, structure)


def descriptions(rest: dict[str, Any], gaps: Sequence[str | None]) -> dict[str, torch.Tensor]:
    """Meta tensors with the shapes and dtypes of the arrays, by name."""
    return {name: leaf for name, leaf in zip(gaps, filter(_is_gap, tree_flatten(rest)[0]), strict=True) if name is not None}


def to_tensor(array: np.ndarray[Any, Any], like: torch.Tensor) -> torch.Tensor:
    """An array that was read, as a tensor; shares its memory.

    Raises:
        ValueError: its shape or dtype is another one.
    """
    if array.shape != tuple(like.shape) or array.dtype != jax_dtype(like.dtype):
        raise ValueError(f"an array is {array.dtype} {list(array.shape)}, and {like.dtype} {list(like.shape)} was saved")
    return to_torch_tensor(array, like.dtype)


def _array_of(leaf: object) -> tuple[object, Array] | None:
    """The array that a value is, and what tells it from others; None for what stays in the rest."""
    if isinstance(leaf, DeviceTensor):
        cell = leaf._cell
        if not isinstance(cell, Cell) or not cell.is_whole_array:
            return None
        array = cell.buffer.array
        is_small = cell.shape.numel() <= _LARGE_ON_DEVICES and array.is_fully_replicated
        return None if is_small else (id(cell), array)
    # of several processes only the first one's host tensors count, so that they are no arrays that all of them write
    if not isinstance(leaf, torch.Tensor) or process_count() > 1 or not _is_plain(leaf):
        return None
    if leaf.numel() * leaf.element_size() < _LARGE_ON_HOST:
        return None
    identity = leaf.data_ptr(), leaf.shape, leaf.stride(), leaf.dtype
    return identity, to_jax_array(leaf.detach())


def _is_plain(tensor: torch.Tensor) -> bool:
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        return False
    try:
        jax_dtype(tensor.dtype)
    except TypeError:  # a dtype without a twin, whose values stay in PyTorch's format
        return False
    return True


def _is_gap(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_meta and leaf.layout == torch.strided


def _free_name(path: Sequence[Any], taken: Mapping[str, object]) -> str:
    """The keys that lead to a value, as a name that every storage takes."""
    keys = (next(getattr(step, name) for name in ("key", "idx", "name") if hasattr(step, name)) for step in path)
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", ".".join(map(str, keys)))
    number, free = 1, name
    while free in taken:
        number, free = number + 1, f"{name}-{number + 1}"
    return free


def _fitting(gap: torch.Tensor, name: str, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    if name not in tensors:
        raise ValueError(f"the array {name!r} is missing")
    found = tensors[name]
    if found.shape != gap.shape or found.dtype != gap.dtype:
        raise ValueError(f"the array {name!r} is {found.dtype} {list(found.shape)}, its place {gap.dtype} {list(gap.shape)}")
    return found
