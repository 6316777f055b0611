"""Checkpoints on any file system that fsspec knows: `gs://`, `s3://`, `memory://` and some thirty more.

As with local files a name only ever appears when its object is complete: data goes to an object with a temporary name, which
is then moved. A file that fsspec opened for writing is completed when it is closed, also by an error, so writing to the name
itself could leave half a checkpoint.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, cast

import fsspec
import torch
from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.registry import registry

from ..exceptions import MisconfigurationException
from ..utilities._suggest import suggest
from . import _archive
from ._contents import read, require_dict, warn_if_not_plain
from ._errors import missing_checkpoint
from ._location import TEMPORARY_SUFFIX, MapLocation

if TYPE_CHECKING:
    from typing_extensions import Buffer

Options = Mapping[str, Any]

_CHUNK = 4 * 2**20


def save(checkpoint: dict[str, Any], url: str, options: Options) -> None:
    """Write a checkpoint in pieces of 4 MiB: no second copy of it is made on the host."""
    require_dict(checkpoint)
    fs, path = _file_system(url, options)
    with _replacing(fs, path) as temporary:
        with _created(fs, temporary) as file:
            _archive.write_all(checkpoint, cast(IO[bytes], _InPieces(file)), checksums=torch.serialization.get_crc32_options())
        with fs.open(temporary, "rb") as file:
            warn_if_not_plain(file, url)


def load(url: str, options: Options, map_location: MapLocation, weights_only: bool | None) -> dict[str, Any]:
    """Read a checkpoint.

    Raises:
        CheckpointNotFoundError: there is no such object.
        CheckpointFormatError: it is damaged, is something else, or holds more than plain values.
    """
    fs, path = _file_system(url, options)
    if not fs.isfile(path):
        _raise_missing(fs, path, url)
    with fs.open(path, "rb") as file:
        return read(file, url, map_location, weights_only)


def copy(source: str, target: str, options: Options) -> None:
    """Make `target` a copy of `source`; within one file system the data does not come here."""
    fs, path = _file_system(source, options)
    other, target_path = _file_system(target, options)
    with _replacing(other, target_path) as temporary:
        if fs is other:
            fs.cp_file(path, temporary)
            return
        with fs.open(path, "rb") as file, _created(other, temporary) as written:
            shutil.copyfileobj(file, written, _CHUNK)


def remove(url: str, options: Options) -> None:
    """Delete an object or a directory; one that is gone already is no error."""
    fs, path = _file_system(url, options)
    with suppress(FileNotFoundError):
        fs.rm(path, recursive=fs.isdir(path))


def exists(url: str, options: Options) -> bool:
    """Whether there is such an object."""
    fs, path = _file_system(url, options)
    return fs.exists(path)


def size(url: str, options: Options) -> int:
    """How many bytes an object has."""
    fs, path = _file_system(url, options)
    return fs.size(path)


def modified(url: str, options: Options) -> float:
    """When an object was written, in seconds since 1970."""
    fs, path = _file_system(url, options)
    return fs.modified(path).timestamp()


def names_in(url: str, options: Options) -> list[str]:
    """The names in a directory, without those of files that are being written; none if there is no such directory."""
    fs, path = _file_system(url, options)
    return _names(fs, path)


def _names(fs: AbstractFileSystem, path: str) -> list[str]:
    try:
        entries = fs.ls(path, detail=False)
    except (FileNotFoundError, NotADirectoryError):
        return []
    names = (entry.rstrip("/").rsplit("/", 1)[-1] for entry in entries)
    return sorted(name for name in names if not name.endswith(TEMPORARY_SUFFIX))


def _file_system(url: str, options: Options) -> tuple[Any, str]:
    try:
        fs, path = url_to_fs(url, **options)
    except ImportError as error:
        raise MisconfigurationException(f"{url!r}: a package for this kind of storage is not installed. {error}.") from error
    except (ValueError, TypeError) as error:
        protocol = url.split("://")[0]
        known = sorted({*fsspec.available_protocols(), *registry})
        if protocol not in known:
            raise MisconfigurationException(
                f"{url!r}: fsspec knows no file system {protocol!r}.{suggest(protocol, known)} Install the package that brings "
                f"it, or use one of {', '.join(known)}."
            ) from error
        given = sorted(options) or "nothing in them"  # not the values: they may be secrets
        raise MisconfigurationException(
            f"{url!r}: the file system {protocol!r} does not work with storage_options that have {given}: {error}"
        ) from error
    fs.invalidate_cache()  # each thread has a file system of its own, which knows nothing of what another one has written
    return fs, path


@contextmanager
def _replacing(fs: AbstractFileSystem, path: str) -> Iterator[str]:
    """Yield the name of a temporary object that takes the place of `path` when the block ends well."""
    name = path.rpartition("/")[2]
    temporary = f"{path.removesuffix(name)}.{name[:100]}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"
    try:
        yield temporary
        fs.mv(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            fs.rm(temporary)
        raise


def _created(fs: AbstractFileSystem, path: str) -> Any:
    try:
        return fs.open(path, "wb")
    except FileNotFoundError:  # object stores have no directories; where there are some, this one is missing
        fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        return fs.open(path, "wb")


class _InPieces:
    """Hands on what is written in pieces: fsspec's files keep everything that one call gives them until it is uploaded."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: Buffer) -> int:
        """Write bytes, or anything that is seen as bytes."""
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _CHUNK):
            self._file.write(view[start : start + _CHUNK])
        return len(view)

    def flush(self) -> None:
        """Nothing: a part of an object is too short to be sent before its time."""


def _raise_missing(fs: AbstractFileSystem, path: str, url: str) -> None:
    is_directory = fs.isdir(path)
    directory, _, name = path.rpartition("/")
    raise missing_checkpoint(url, name, _names(fs, path if is_directory else directory), is_directory=is_directory)
