"""Checkpoints in local files.

A name only ever appears in a directory when its file is complete: data goes to a temporary file beside it first. So a
process killed at any instant leaves the old checkpoint or the new one.
"""

import errno
import os
import shutil
import time
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from ..utilities._private import make_directories
from . import _archive
from ._contents import damaged_part, read, require_dict, warn_if_not_plain
from ._errors import CheckpointNotFoundError, missing_checkpoint
from ._location import CONTENTS, TEMPORARY_SUFFIX, MapLocation

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_ABANDONED_AFTER_S = 3600.0
_BEFORE_THE_LOCK_S = 2.0
"""A process that was stopped between making its file and locking it is not taken for a dead one."""


def save(checkpoint: dict[str, Any], path: str, *, makes_directories: bool = True) -> None:
    """Write a checkpoint so that `path` holds the whole of it or what it held before, whatever happens."""
    require_dict(checkpoint)
    with _told_of(path), _replacing(path, makes_directories) as temporary:
        with _begun(temporary) as file:
            _archive.write(checkpoint, file)
            os.fsync(file.fileno())
            warn_if_not_plain(temporary, path)


@contextmanager
def _told_of(path: str) -> Iterator[None]:
    """Inside the block, errors of the operating system name the checkpoint, not the temporary file beside it."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        reason = "there is a directory of this name" if error.errno == errno.EISDIR else error.strerror
        ways = f" {_WAYS_ON[error.errno]}" if error.errno in _WAYS_ON else ""
        # the class follows from the number: FileNotFoundError, PermissionError, ...
        raise OSError(
            error.errno, f"The checkpoint cannot be saved: {reason}.{ways} What was there before is intact", path
        ) from error


_WAYS_ON = {
    errno.ENOSPC: "Make room on this file system, keep fewer files (ModelCheckpoint(save_top_k=...)), or save elsewhere.",
    errno.EDQUOT: "Your quota there is used up: make room, keep fewer files, or save elsewhere.",
    errno.EROFS: "Save elsewhere.",
    errno.EACCES: "Save where this user may write.",
}


def copy(source: str, target: str) -> None:
    """Make `target` a copy of the file `source`, complete at every moment that it can be seen."""
    with _replacing(target) as temporary:
        with open(source, "rb") as original, _begun(temporary) as file:
            shutil.copyfileobj(original, file, 2**20)
            file.flush()
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


def load(path: str, map_location: MapLocation, weights_only: bool | None, *, mapped: bool = False) -> dict[str, Any]:
    """Read a checkpoint; `mapped` leaves the values of tensors in the file until somebody looks at them.

    Raises:
        CheckpointNotFoundError: there is no such file.
        CheckpointFormatError: the file is damaged, is something else, or holds more than plain values.
    """
    _require_file(path)
    return read(path, path, map_location, weights_only, mapped=mapped)


def is_whole(path: str) -> bool:
    """Whether a file is a complete archive whose checksums fit; reads all of it."""
    return zipfile.is_zipfile(path) and damaged_part(path) is None


def names_in(directory: str) -> list[str]:
    """The names in a directory, without those of files that are being written; none if there is no such directory."""
    if not os.path.isdir(directory):
        return []
    return sorted(name for name in os.listdir(directory) if not name.endswith(TEMPORARY_SUFFIX))


@contextmanager
def _replacing(target: str, makes_directories: bool = True) -> Iterator[str]:
    """Yield the name of a temporary file that takes the place of `target` when the block ends well."""
    directory, name = os.path.split(target)
    if makes_directories:
        make_directories(Path(directory))
    # Unique, so that two processes which write the same checkpoint cannot mix their bytes.
    temporary = os.path.join(directory, f".{name[:100]}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
    try:
        yield temporary
        _give_name(temporary, target)
    except BaseException:
        remove(temporary)
        raise
    _sync_directory(directory)
    _remove_abandoned(directory)


def _give_name(temporary: str, target: str) -> None:
    """Rename a complete file; a checkpoint that is a directory gives way to it, which takes two steps."""
    if not os.path.isfile(os.path.join(target, CONTENTS)) or os.path.islink(target):
        os.replace(temporary, target)
        return
    aside = f"{temporary}.before{TEMPORARY_SUFFIX}"
    os.rename(target, aside)
    os.replace(temporary, target)
    remove(aside)


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
    """Delete temporary files of processes that were killed while they saved: a live one has its file locked."""
    now = time.time()
    with os.scandir(directory) as entries:
        names = [entry.path for entry in entries if entry.name.endswith(TEMPORARY_SUFFIX)]
    for name in names:
        with suppress(FileNotFoundError):
            age = now - os.lstat(name).st_mtime
            if age > _ABANDONED_AFTER_S or (age > _BEFORE_THE_LOCK_S and _is_abandoned(name)):
                remove(name)


@contextmanager
def _begun(temporary: str) -> Iterator[IO[bytes]]:
    """A new file that is locked while it is written, so that others can tell it from what a killed process left."""
    with open(temporary, "x+b") as file:
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks: there the age decides
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield file
        os.utime(temporary)  # between the end of the lock and the new name it is young


def _is_abandoned(name: str) -> bool:
    """Whether nobody writes to a temporary file; False where that cannot be told."""
    if os.path.islink(name):
        return True  # renamed at once when it is made
    if fcntl is None:
        return False
    try:
        with open(name, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:  # locked, another user's, or no locks here
        return False
    return True


def _require_file(path: str) -> None:
    if os.path.isfile(path):
        return
    is_directory = os.path.isdir(path)
    directory = path if is_directory else os.path.dirname(path)
    if not os.path.isdir(directory):
        raise CheckpointNotFoundError(f"Checkpoint file not found: {path}: there is no directory {directory!r}.")
    raise missing_checkpoint(path, os.path.basename(path), names_in(directory), is_directory=is_directory)
