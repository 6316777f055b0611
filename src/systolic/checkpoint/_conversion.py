"""Conversion of a checkpoint from a directory of shards to one file, and back."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from ..exceptions import MisconfigurationException
from ..runtime import jax_dtype
from ..utilities._private import make_directories
from . import _files, _orbax, _sharded
from ._arrays import to_tensor
from ._location import TEMPORARY_SUFFIX, PathLike, is_remote, location

_AT_ONCE = 2**28
"""Bytes of arrays that are read together, or one array if that is larger."""


def convert(source: PathLike, target: PathLike) -> None:
    """Write a checkpoint that is a directory of shards as one file, or one that is a file as a directory; same content.

    To a file: arrays go from the directory to temporary files beside the target and from there into it, so that memory holds
    256 MiB of them at a time, or one array if that is larger.

    Args:
        source: a directory or file on this machine.
        target: a path where there is nothing yet.

    Raises:
        CheckpointNotFoundError: there is no such checkpoint.
        CheckpointFormatError: it is damaged, is something else, or holds more than tensors and plain values.
        MisconfigurationException: there is something at the target, or a path is a URL.

    Example:
        >>> import tempfile, torch
        >>> from systolic.checkpoint import atomic_save, convert, load
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     atomic_save({"state_dict": {"w": torch.ones(2)}}, f"{directory}/a.ckpt")
        ...     convert(f"{directory}/a.ckpt", f"{directory}/shards.ckpt")
        ...     convert(f"{directory}/shards.ckpt", f"{directory}/b.ckpt")
        ...     load(f"{directory}/b.ckpt")["state_dict"]["w"]
        tensor([1., 1.])
    """
    if is_remote(source) or is_remote(target):
        raise MisconfigurationException(
            f"A checkpoint is converted on this machine. Expected local paths. Received: {str(source)!r}, {str(target)!r}. "
            "Copy it here first, or mount the bucket."
        )
    where, to = location(source), location(target)
    if os.path.lexists(to):
        raise MisconfigurationException(
            f"{to!r} is there already. Expected a path where there is nothing: delete it, or take another."
        )
    if _sharded.is_sharded(where):
        _to_file(where, to)
    else:
        _orbax.require_orbax()
        _sharded.save(_files.load(where, "cpu", weights_only=True, mapped=True), to)


def _to_file(source: str, target: str) -> None:
    folder, name = os.path.split(target)
    make_directories(Path(folder))
    with tempfile.TemporaryDirectory(prefix=f".{name[:100]}.", suffix=TEMPORARY_SUFFIX, dir=folder) as temporary:

        def mapped(directory: str, wanted: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            found: dict[str, torch.Tensor] = {}
            for group in _groups(wanted):
                arrays = _orbax.read(directory, group)
                for array_name, like in group.items():
                    found[array_name] = _on_disk(arrays.pop(array_name), like, os.path.join(temporary, str(len(found))))
            return found

        _files.save(_sharded.load(source, "cpu", weights_only=True, reader=mapped), target)


def _groups(wanted: dict[str, torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
    """Parts of the arrays, in order, none of which takes more than its share of memory unless it is one array."""
    group: dict[str, torch.Tensor] = {}
    size = 0
    for name, like in wanted.items():
        bytes_of_one = like.numel() * like.element_size()
        if group and size + bytes_of_one > _AT_ONCE:
            yield group
            group, size = {}, 0
        group[name] = like
        size += bytes_of_one
    if group:
        yield group


def _on_disk(array: np.ndarray, like: torch.Tensor, file: str) -> torch.Tensor:
    """The array as a tensor whose values lie in a file: the system may take its memory away at any time."""
    if array.shape != tuple(like.shape):
        raise ValueError(f"an array has the shape {list(array.shape)}, and {list(like.shape)} was saved")
    copy = np.memmap(file, dtype=jax_dtype(like.dtype), mode="w+", shape=array.shape)
    copy[...] = array
    return to_tensor(copy, like)
