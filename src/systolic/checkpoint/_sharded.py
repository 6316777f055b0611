"""Checkpoints as directories: large arrays in shards, which orbax writes, and one file with everything else.

    x.ckpt/
        contents.ckpt      an ordinary checkpoint file, with gaps in the places of arrays, and the index of what fills them
        arrays-<number>/   orbax's files

`contents.ckpt` is the mark that a directory is complete: it is written last, takes its name in one instant, and names the
arrays that belong to it. A process that is killed at any time leaves what was there before, or the new checkpoint.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ..distributed import barrier, broadcast, is_main_process, process_count, process_index
from ..utilities._private import make_directories
from ..utilities._torch_internals import tree_map
from . import _files, _orbax
from ._arrays import Array, descriptions, put_together, take_apart, to_tensor
from ._contents import SHARDED, read, require_dict
from ._errors import CheckpointFormatError
from ._location import CONTENTS, TEMPORARY_SUFFIX, MapLocation

_ARRAYS = re.compile(r"arrays-[0-9a-f]{32}")
_FORMAT = 1
_CHUNK = 2**20

Index = dict[str, Any]
Reader = Callable[[str, dict[str, torch.Tensor]], dict[str, torch.Tensor]]
"""From a directory of arrays, and what was saved there, to the tensors."""


def is_sharded(path: str) -> bool:
    """Whether there is a directory with a checkpoint in it, or with arrays of one that was not completed."""
    return os.path.isdir(path) and (is_committed(path) or bool(_arrays_in(path)))


def is_committed(path: str) -> bool:
    """Whether a directory holds a checkpoint that was completed."""
    return os.path.isfile(os.path.join(path, CONTENTS))


def is_left_over(path: str) -> bool:
    """Whether there is a directory as a process leaves it that is killed in its first save: at first it is empty."""
    return os.path.isdir(path) and not is_committed(path) and (bool(_arrays_in(path)) or not _files.names_in(path))


def save(checkpoint: dict[str, Any], path: str) -> None:
    """Write a checkpoint so that `path` holds the whole of it or what it held before. All processes must call this.

    Args:
        checkpoint: its tensors may lie on devices; of what does not, the first process's values count.
        path: a directory that all processes see; the first one's counts.
    """
    require_dict(checkpoint)
    parts = take_apart(checkpoint)
    path, name = broadcast((path, f"arrays-{uuid.uuid4().hex}"))
    # a file or a link of this name cannot become a directory in one instant: it stays until the directory is complete
    directory = path if not os.path.lexists(path) or (os.path.isdir(path) and not os.path.islink(path)) else _beside(path, name)
    if is_main_process():
        _make(directory)
    files = _write_arrays(parts.arrays, directory, name)
    if is_main_process():
        index = {"format": _FORMAT, "arrays": name if parts.arrays else None, "gaps": parts.gaps, "files": files}
        _files.save({**parts.rest, SHARDED: index}, os.path.join(directory, CONTENTS))
        _remove_arrays(directory, lambda other: other != name)  # of the checkpoint before, and of saves that were cut off
        if directory != path:
            os.unlink(path)
            os.rename(directory, path)
    barrier("checkpoint saved")


def _write_arrays(arrays: Mapping[str, Array], directory: str, name: str) -> dict[str, tuple[int, int]]:
    """Write arrays into a new directory of a checkpoint's; size and CRC-32 of every file."""
    if not arrays:
        return {}
    try:
        _orbax.write(arrays, os.path.join(directory, name))
        return _gathered_checksums(os.path.join(directory, name))
    except BaseException:
        if is_main_process():
            _remove_arrays(directory, lambda other: other.startswith(name))  # orbax adds to the name until it has finished
        raise


def load(path: str, map_location: MapLocation, weights_only: bool | None, reader: Reader | None = None) -> dict[str, Any]:
    """Read a checkpoint; every process reads all of it.

    Args:
        path: the directory.
        map_location: where tensors go, as in `torch.load`.
        weights_only: refuse everything but tensors and plain Python values.
        reader: reads the arrays; default: into host memory.

    Raises:
        CheckpointFormatError: it is damaged, was not completed, or holds more than plain values.
    """
    rest, index = _contents_of(path, weights_only)
    damaged = _damaged_file(path, index)
    if damaged is not None:
        raise CheckpointFormatError(
            f"{path!r} is damaged: {damaged} is missing, or its checksum does not fit. Take another checkpoint, or copy it "
            "again."
        )
    wanted = _descriptions(path, rest, index)
    try:
        tensors = (reader or read_arrays)(os.path.join(path, index["arrays"]), wanted) if wanted else {}
        whole = put_together(rest, index["gaps"], tensors)
    except ValueError as error:
        raise CheckpointFormatError(f"{path!r} cannot be read: {str(error).splitlines()[0]}") from error
    return whole if map_location in (None, "cpu") else _moved(whole, map_location)


def read_arrays(directory: str, wanted: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Read arrays into host memory."""
    arrays = _orbax.read(directory, wanted)
    return {name: to_tensor(arrays.pop(name), like) for name, like in wanted.items()}


def described(path: str) -> tuple[dict[str, Any], str]:
    """The contents of a directory with meta tensors in the places of arrays, and its checksums in words.

    Raises:
        CheckpointFormatError: as for `load`.
    """
    rest, index = _contents_of(path, weights_only=True)
    damaged = _damaged_file(path, index)
    if damaged is not None:
        raise CheckpointFormatError(f"{path!r} is damaged: {damaged} is missing, or its checksum does not fit.")
    _descriptions(path, rest, index)
    return rest, f"CRC-32 of {len(index['files'])} files of arrays, and of the records of {CONTENTS}"


def is_whole(path: str) -> bool:
    """Whether a directory was completed, and the checksums of all its files fit; reads all of it."""
    try:
        described(path)
    except CheckpointFormatError:
        return False
    return True


def size(path: str) -> int:
    """Bytes of all files in a directory."""
    return sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names)


def copy(source: str, target: str) -> None:
    """Make `target` a copy of the directory `source`; what it held before stays until the copy is complete."""
    name = _contents_of(source, weights_only=False)[1]["arrays"]
    if os.path.islink(target) or os.path.isfile(target):
        os.unlink(target)
    _make(target)
    if name is not None and os.path.abspath(source) != os.path.abspath(target):
        copied = os.path.join(target, name)
        shutil.rmtree(copied, ignore_errors=True)  # of a copy that was cut off
        shutil.copytree(os.path.join(source, name), copied)
    _files.copy(os.path.join(source, CONTENTS), os.path.join(target, CONTENTS))
    _remove_arrays(target, lambda other: other != name)


def remove(path: str) -> None:
    """Delete a directory: first the mark that it is complete, so that half of it is never taken for a checkpoint."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(path, CONTENTS))
    shutil.rmtree(path)


def _make(directory: str) -> None:
    """Make the directory of a checkpoint, which whoever may read a file beside it may read."""
    make_directories(Path(directory).parent)
    with suppress(FileExistsError):
        os.mkdir(directory)


def _beside(path: str, name: str) -> str:
    folder, own = os.path.split(path)
    return os.path.join(folder, f".{own[:100]}.{name}{TEMPORARY_SUFFIX}")


def _arrays_in(path: str) -> list[str]:
    """Directories of arrays, those that orbax has begun included."""
    return [name for name in os.listdir(path) if _ARRAYS.match(name)]


def _remove_arrays(path: str, chosen: Callable[[str], bool]) -> None:
    for name in filter(chosen, _arrays_in(path)):
        shutil.rmtree(os.path.join(path, name), ignore_errors=True)


def _contents_of(path: str, weights_only: bool | None) -> tuple[dict[str, Any], Index]:
    if not is_committed(path):
        raise CheckpointFormatError(
            f"{path!r} was not completed: it has no {CONTENTS!r}, which is written last. Take another checkpoint, or copy all "
            "of it again."
        )
    rest = read(os.path.join(path, CONTENTS), path, "cpu", weights_only, is_part=True)
    index = rest.pop(SHARDED, None)
    if not _is_index(index):
        raise CheckpointFormatError(
            f"{path!r} is not a checkpoint of this version of systolic: {CONTENTS!r} has no index of format {_FORMAT}."
        )
    return rest, index


def _is_index(index: object) -> bool:
    if not isinstance(index, dict) or index.get("format") != _FORMAT:
        return False
    name, gaps, files = index.get("arrays"), index.get("gaps"), index.get("files")
    return (
        (name is None or (isinstance(name, str) and _ARRAYS.fullmatch(name) is not None))
        and isinstance(gaps, list)
        and all(gap is None or isinstance(gap, str) for gap in gaps)
        and (name is not None or not any(gaps))
        and isinstance(files, dict)
        and all(isinstance(file, str) and _stays_inside(file) for file in files)
    )


def _stays_inside(file: str) -> bool:
    """Whether a relative path leads nowhere else: a file may have been written by anybody."""
    return not os.path.isabs(file) and ".." not in file.split("/")


def _descriptions(path: str, rest: dict[str, Any], index: Index) -> dict[str, torch.Tensor]:
    try:
        return descriptions(rest, index["gaps"])
    except ValueError as error:
        raise CheckpointFormatError(f"{path!r} is damaged: its index does not fit its contents.") from error


def _gathered_checksums(directory: str) -> dict[str, tuple[int, int]]:
    """Size and CRC-32 of every file below a directory; each process reads its share, and all get all."""
    names = sorted(_files_below(directory))
    own = {name: _checksum(os.path.join(directory, name)) for name in names[process_index() :: process_count()]}
    found: dict[str, tuple[int, int]] = {}
    for process in range(process_count()):
        found |= broadcast(own, process)
    return {name: found[name] for name in sorted(found)}


def _files_below(directory: str) -> Iterable[str]:
    for folder, _, names in os.walk(directory):
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), directory)


def _checksum(file: str) -> tuple[int, int]:
    crc = length = 0
    with open(file, "rb") as opened:
        while chunk := opened.read(_CHUNK):
            crc, length = zlib.crc32(chunk, crc), length + len(chunk)
    return length, crc


def _damaged_file(path: str, index: Index) -> str | None:
    """The first file of the arrays that is not as it was written; None if all are."""
    for name, expected in index["files"].items():
        file = os.path.join(path, index["arrays"] or "", name)
        if not os.path.isfile(file) or _checksum(file) != tuple(expected):
            return file
    return None


def _moved(contents: dict[str, Any], map_location: MapLocation) -> dict[str, Any]:
    """Contents with the tensors in host memory at the places where `torch.load` would have put them."""
    known: dict[int, torch.Tensor] = {}

    def leaf(value: object) -> Any:
        if not isinstance(value, torch.Tensor) or value.is_meta:
            return value
        if id(value) not in known:
            known[id(value)] = _placed(value, map_location)
        return known[id(value)]

    return tree_map(leaf, contents)


def _placed(tensor: torch.Tensor, map_location: MapLocation) -> torch.Tensor:
    if map_location is None or isinstance(map_location, str | torch.device):
        return tensor.to(map_location or "cpu")
    if isinstance(map_location, dict):
        return tensor.to(map_location.get("cpu", "cpu"))
    storage = map_location(tensor.untyped_storage(), "cpu")
    if storage is None:
        return tensor
    return torch.empty(0, dtype=tensor.dtype, device=storage.device).set_(storage, 0, tensor.shape, tensor.stride())
