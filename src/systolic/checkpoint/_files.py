"""Checkpoints in local files.

A name only ever appears in a directory when its file is complete: data goes to a temporary file beside it first. So a
process killed at any instant leaves the old checkpoint or the new one.
"""

import os
import shutil
import time
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from ._contents import damaged_part, read, require_dict, warn_if_not_plain
from ._errors import CheckpointNotFoundError, missing_checkpoint
from ._location import TEMPORARY_SUFFIX, MapLocation

_ABANDONED_AFTER_S = 3600.0


def save(checkpoint: dict[str, Any], path: str, *, make_directories: bool = True) -> None:
    """Write a checkpoint so that `path` holds the whole of it or what it held before, whatever happens."""
    require_dict(checkpoint)
    with _replacing(path, make_directories) as temporary:
        with open(temporary, "xb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
        warn_if_not_plain(temporary, path)


def copy(source: str, target: str) -> None:
    """Make `target` a copy of the file `source`, complete at every moment that it can be seen."""
    with _replacing(target) as temporary:
        shutil.copyfile(source, temporary)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())


def link(source: str, name: str) -> None:
    """Make `name` a symbolic link to `source`, relative so that the directory can be moved."""
    relative = os.path.relpath(source, os.path.dirname(name))
    if os.path.islink(name) and os.readlink(name) == relative:
        return
    if os.path.isdir(name) and not os.path.islink(name):
        shutil.rmtree(name)
    with _replacing(name) as temporary:
        os.symlink(relative, temporary)


def remove(path: str) -> None:
    """Delete a checkpoint file or directory; one that is gone already is no error."""
    with suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def load(path: str, map_location: MapLocation, weights_only: bool) -> dict[str, Any]:
    """Read a checkpoint.

    Raises:
        CheckpointNotFoundError: there is no such file.
        CheckpointFormatError: the file is damaged, is something else, or holds more than plain values.
    """
    _require_file(path)
    return read(path, path, map_location, weights_only)


def is_whole(path: str) -> bool:
    """Whether a file is a complete archive whose checksums fit; reads all of it."""
    return zipfile.is_zipfile(path) and damaged_part(path) is None


def names_in(directory: str) -> list[str]:
    """The names in a directory, without those of files that are being written; none if there is no such directory."""
    if not os.path.isdir(directory):
        return []
    return sorted(name for name in os.listdir(directory) if not name.endswith(TEMPORARY_SUFFIX))


@contextmanager
def _replacing(target: str, make_directories: bool = True) -> Iterator[str]:
    """Yield the name of a temporary file that takes the place of `target` when the block ends well."""
    directory, name = os.path.split(target)
    if make_directories:
        os.makedirs(directory, exist_ok=True)
    # Unique, so that two processes which write the same checkpoint cannot mix their bytes.
    temporary = os.path.join(directory, f".{name[:100]}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException:
        remove(temporary)
        raise
    _sync_directory(directory)
    _remove_abandoned(directory)


def _sync_directory(directory: str) -> None:
    """Make a rename survive a power cut; only POSIX can open directories."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_abandoned(directory: str) -> None:
    """Delete temporary files of processes that were killed while they saved; a live one changes its file all along."""
    oldest = time.time() - _ABANDONED_AFTER_S
    with os.scandir(directory) as entries:
        names = [entry.path for entry in entries if entry.name.endswith(TEMPORARY_SUFFIX)]
    for name in names:
        with suppress(FileNotFoundError):
            if os.lstat(name).st_mtime < oldest:
                os.unlink(name)


def _require_file(path: str) -> None:
    if os.path.isfile(path):
        return
    is_directory = os.path.isdir(path)
    directory = path if is_directory else os.path.dirname(path)
    if not os.path.isdir(directory):
        raise CheckpointNotFoundError(f"No checkpoint at {path!r}: there is no directory {directory!r}.")
    raise missing_checkpoint(path, os.path.basename(path), names_in(directory), is_directory=is_directory)
