"""Contents of a checkpoint file, wherever it lies: reading it, and what to say when that fails."""

from __future__ import annotations

import errno
import io
import os
import pickle
import re
import warnings
import zipfile
import zlib
from typing import IO, Any

import torch
from torch.serialization import get_safe_globals, get_unsafe_globals_in_checkpoint

from ..utilities._torch_internals import ArchiveReader
from ._errors import CheckpointFormatError
from ._location import MapLocation

File = str | IO[bytes]
"""The path of a local file, or an open file of another file system."""

SHARDED = "systolic_sharded"
"""Entry of the file in a directory of shards, which says what is beside it."""

_SMALLEST_ZIP = 22

# The instructions of a pickle that name a class or function, found by their bytes: reading a file as PyTorch does takes Python
# milliseconds, in a thread beside the steps. What only looks like such a name is read once more than it had to be.
_NAMED = re.compile(rb"(?=c([\w.<>\-\x80-\xff]+)\n([\w.<>\-\x80-\xff]+)\n)")
_PLAIN: set[tuple[bytes, bytes]] = set()
"""What was named in files that PyTorch has read without `weights_only=False`."""


def require_dict(checkpoint: object) -> None:
    """Raise for anything that cannot be saved as a checkpoint."""
    if not isinstance(checkpoint, dict):
        raise TypeError(f"A checkpoint is a dict, received {type(checkpoint).__name__}.")


def read(
    file: File, name: str, map_location: MapLocation, weights_only: bool | None, *, mapped: bool = False, is_part: bool = False
) -> dict[str, Any]:
    """The checkpoint in a file.

    Args:
        file: where it is.
        name: what errors call it.
        map_location: where tensors go, as in `torch.load`.
        weights_only: refuse everything but tensors and plain Python values; None: as `torch.load` does, which heeds the
            environment variable `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` then.
        mapped: leave the values of tensors in the file until somebody looks at them, where its format lets one.
        is_part: the file is that of a directory of shards.

    Raises:
        CheckpointFormatError: the file is damaged, is something else, or holds more than plain values.
    """
    if isinstance(file, str) and (part := damaged_part(file)) is not None:
        raise CheckpointFormatError(
            f"{name!r} is damaged: its checksum does not fit its contents ({part}). Take another checkpoint, or copy it again."
        )
    try:
        mmap = mapped and isinstance(file, str) and zipfile.is_zipfile(file)
        checkpoint = torch.load(file, map_location=map_location, weights_only=weights_only, mmap=mmap)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, AttributeError, ImportError) as error:
        raise CheckpointFormatError(_explain(file, name, error)) from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # PyTorch's reader says so of an archive that was cut off
            raise
        raise CheckpointFormatError(_explain(file, name, error)) from error
    _require_checkpoint(checkpoint, name, is_part)
    return checkpoint


def _require_checkpoint(checkpoint: object, name: str, is_part: bool) -> None:
    if not isinstance(checkpoint, dict):
        raise CheckpointFormatError(
            f"{name!r} is not a checkpoint: it holds an object of type {type(checkpoint).__name__}, not a dict with "
            "a 'state_dict'. Write checkpoints with trainer.save_checkpoint(path) or a ModelCheckpoint callback."
        )
    if "state_dict" not in checkpoint:
        keys = ", ".join(repr(key) for key in list(checkpoint)[:5])
        raise CheckpointFormatError(
            f"{name!r} is not a checkpoint: it has no 'state_dict', only {keys or 'nothing'}. If it is a bare "
            "state_dict of a model, load it with model.load_state_dict(torch.load(path)) before the Trainer starts."
        )
    if SHARDED in checkpoint and not is_part:
        raise CheckpointFormatError(f"{name!r} is a part of a checkpoint. Pass the path of the directory that it is in.")


def damaged_part(path: str) -> str | None:
    """Place of the damage in a local file, by the checksums that PyTorch puts beside every tensor; None if it is as written.

    A file that is no archive, or was written without checksums, is left to be judged by reading it.
    """
    if not zipfile.is_zipfile(path):
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() if _has_checksums(archive) else None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def stored_checksums(path: str) -> str | None:
    """Description of the checksums in a local file; "" for an archive without any, None for a file that is no archive."""
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        if not _has_checksums(archive):
            return ""
        return f"CRC-32 of {len(archive.infolist())} records"


def _has_checksums(archive: zipfile.ZipFile) -> bool:
    """Whether checksums were computed: after `torch.serialization.set_crc32_options(False)` there is a 0 in their places."""
    return any(record.CRC for record in archive.infolist())


def warn_if_not_plain(file: File, name: str) -> None:
    """Warn when a file needs `weights_only=False` to be read. Of tensors nothing is read."""
    # a file of another file system is read once: each look at it fetches megabytes
    named = set(_NAMED.findall(ArchiveReader(file).get_record("data.pkl"))) if isinstance(file, str) else None
    if named is not None and named <= _PLAIN:
        return
    try:
        torch.load(file, map_location="meta", weights_only=True)
        if named is not None and not get_safe_globals():  # what is allowed now need not be so later
            _PLAIN.update(named)
    except pickle.UnpicklingError:
        warnings.warn(
            f"{name!r} holds more than tensors and plain values ({_unsafe_names(file)}), so "
            "torch.load(weights_only=True) will refuse it. Look in hparams, state_dict() and on_save_checkpoint() for "
            "these objects, and save strings, numbers, lists or dicts in their place.",
            stacklevel=5,
        )


def _unsafe_names(file: File) -> str:
    _rewind(file)
    try:
        return ", ".join(sorted(get_unsafe_globals_in_checkpoint(file))) or "unknown objects"  # pyright: ignore[reportArgumentType]
    except pickle.UnpicklingError:  # this scan knows fewer of pickle's instructions than loading does
        return "unknown objects"


def _explain(file: File, name: str, error: Exception) -> str:
    size = _size(file)
    if size < _SMALLEST_ZIP or not zipfile.is_zipfile(file):  # which fails on shorter files of some file systems
        return (
            f"{name!r} ({size} bytes) is not a checkpoint, or was cut off when it was copied. Take another checkpoint, "
            "or copy it again and compare the sizes."
        )
    if isinstance(error, pickle.UnpicklingError):
        return (
            f"{name!r} is damaged, or holds more than tensors and plain values: {_unsafe_names(file)}. If you trust its "
            "origin, pass weights_only=False, or allow these classes with torch.serialization.add_safe_globals([...])."
        )
    return f"{name!r} cannot be read: {str(error).splitlines()[0] if str(error) else type(error).__name__}"


def _rewind(file: File) -> None:
    if not isinstance(file, str):
        file.seek(0)


def _size(file: File) -> int:
    return os.path.getsize(file) if isinstance(file, str) else file.seek(0, io.SEEK_END)
