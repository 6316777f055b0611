"""Description of a checkpoint: what is in it, without reading its tensors into memory."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from . import _contents, _files, _remote, _sharded
from ._errors import CheckpointFormatError
from ._location import PathLike, is_remote, location

_VERSIONS = {"systolic_version": "systolic", "pytorch-lightning_version": "Lightning"}
_LONGEST = 200
"""Characters of a value that are shown."""

_MOST_VALUES = 1_000_000


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a checkpoint.

    Attributes:
        name: the keys that lead to it in its part, joined by dots.
        shape: its shape.
        dtype: as `float32`.
        bytes: its values take.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int


@dataclass(frozen=True)
class Part:
    """One entry of a checkpoint, or one item of an entry that is a list: the weights, the state of an optimizer, ...

    Attributes:
        name: its key, with its number where it is one of a list.
        tensors: those in it.
        values: the other values in it, by the keys that lead to them, as Python writes them.
    """

    name: str
    tensors: list[TensorEntry]
    values: dict[str, str]

    @property
    def bytes(self) -> int:
        """How much its tensors take, each counted for itself."""
        return sum(tensor.bytes for tensor in self.tensors)


@dataclass(frozen=True)
class Description:
    """Description of a checkpoint.

    Attributes:
        path: where it is.
        format: how it is stored.
        versions: of systolic, where that wrote it, and of the Lightning whose layout it has.
        epoch: of the run; None where the file does not say.
        step: optimizer steps; None where the file does not say.
        bytes: it takes in storage.
        tensor_bytes: its tensors take in memory, those that share theirs counted once.
        checksum: which checksums are stored, and that they fit; None where there are none.
        parts: its entries, in order.
    """

    path: str
    format: str
    versions: dict[str, str]
    epoch: int | None
    step: int | None
    bytes: int
    tensor_bytes: int
    checksum: str | None
    parts: list[Part]

    def as_dict(self) -> dict[str, Any]:
        """The description in JSON's types."""
        return asdict(self)


def describe(path: PathLike) -> Description:
    """Describe a checkpoint of systolic or Lightning. All of it is read once to check it, no tensor is kept in memory.

    Args:
        path: a file, directory of shards, or URL.

    Raises:
        CheckpointNotFoundError: there is none.
        CheckpointFormatError: it is damaged, is something else, or holds more than tensors and plain values.

    Example:
        >>> import tempfile, torch
        >>> from systolic.checkpoint import atomic_save, describe
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     atomic_save({"state_dict": {"w": torch.ones(2, 3)}, "epoch": 4}, f"{directory}/a.ckpt")
        ...     found = describe(f"{directory}/a.ckpt")
        >>> found.epoch, found.parts[0].tensors
        (4, [TensorEntry(name='w', shape=(2, 3), dtype='float32', bytes=24)])
    """
    where = location(path)
    if is_remote(path):
        checkpoint = _remote.load(where, {}, "meta", weights_only=True)
        return _described(where, checkpoint, "one file, in another file system", _remote.size(where, {}), None)
    if _sharded.is_sharded(where):
        checkpoint, checksum = _sharded.described(where)
        return _described(where, checkpoint, "a directory of shards, by orbax", _sharded.size(where), checksum)
    checkpoint = _files.load(where, "cpu", weights_only=True, mapped=True)
    stored = _contents.stored_checksums(where)
    kind = "one file, an archive of PyTorch's" if stored is not None else "one file, PyTorch's format before version 1.6"
    return _described(where, checkpoint, kind, os.path.getsize(where), stored or None)


def _described(path: str, checkpoint: Mapping[str, Any], kind: str, size: int, checksum: str | None) -> Description:
    tensors = [leaf for leaf in _require_finite(path, checkpoint) if isinstance(leaf, torch.Tensor)]
    return Description(
        path=path,
        format=kind,
        versions={name: str(checkpoint[key]) for key, name in _VERSIONS.items() if key in checkpoint},
        epoch=_number(checkpoint.get("epoch")),
        step=_number(checkpoint.get("global_step")),
        bytes=size,
        tensor_bytes=_bytes_in_memory(tensors),
        checksum=checksum,
        parts=[part for key, value in checkpoint.items() for part in _parts(key, value)],
    )


def _require_finite(path: str, checkpoint: Mapping[str, Any]) -> list[object]:
    """All values of a checkpoint, if it can be walked through: pickled lists may hold themselves, or each other many times.

    Raises:
        CheckpointFormatError: they do.
    """
    try:
        found = [leaf for _, leaf in itertools.islice(_leaves(checkpoint, ()), _MOST_VALUES + 1)]
    except RecursionError as error:
        raise CheckpointFormatError(f"{path!r} is not a checkpoint: its lists or dicts are nested without end.") from error
    if len(found) > _MOST_VALUES:
        raise CheckpointFormatError(f"{path!r} is not shown: it holds more than {_MOST_VALUES:,} values.")
    return found


def _parts(key: object, value: object) -> Iterator[Part]:
    if key == "callbacks" and isinstance(value, dict):
        for name, state in value.items():
            yield _part(f"{key}[{name}]", state)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield _part(f"{key}[{index}]", item)
    else:
        yield _part(str(key), value)


def _part(name: str, value: object) -> Part:
    tensors: list[TensorEntry] = []
    values: dict[str, str] = {}
    for keys, leaf in _leaves(value, ()):
        path = ".".join(map(str, keys))
        if isinstance(leaf, torch.Tensor):
            dtype = str(leaf.dtype).removeprefix("torch.")
            tensors.append(TensorEntry(path, tuple(leaf.shape), dtype, leaf.numel() * leaf.element_size()))
        else:
            text = repr(leaf)
            values[path] = text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
    return Part(name, tensors, values)


def _leaves(value: object, keys: tuple[object, ...]) -> Iterator[tuple[tuple[object, ...], object]]:
    """Values in dicts, lists and tuples, with the keys that lead there."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*keys, key))
    elif isinstance(value, list | tuple) and any(isinstance(item, dict | list | tuple | torch.Tensor) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, (*keys, index))
    else:
        yield keys, value


def _bytes_in_memory(tensors: list[torch.Tensor]) -> int:
    """Memory of the values, shared ones counted once; of a part of some memory that part."""
    sizes: dict[tuple[object, ...], int] = {}
    for tensor in tensors:
        if tensor.layout == torch.strided:
            place = tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape)
        else:
            place = id(tensor), 0, tuple(tensor.shape)
        sizes[place] = tensor.numel() * tensor.element_size()
    return sum(sizes.values())


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
