"""Saving, reading and removing checkpoints, on this machine or on any file system that fsspec knows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..exceptions import MisconfigurationException
from ..utilities._suggest import suggest
from . import _files, _remote, _sharded
from ._location import CONTENTS, MapLocation, PathLike, is_remote, location

Options = Mapping[str, Any] | None

# what fsspec's local file system takes, and what every file system of fsspec does
_LOCAL_OPTIONS = {"auto_mkdir", "use_listings_cache", "listings_expiry_time", "max_paths", "skip_instance_cache"}


def atomic_save(checkpoint: dict[str, Any], path: PathLike, storage_options: Options = None) -> None:
    """Write a checkpoint so that `path` holds the whole of it or what it held before, whatever happens.

    Missing directories are created. Warns when the file will need `weights_only=False` to be read.

    Args:
        checkpoint: what to save; `torch.load(path, weights_only=True)` gives it back when it consists of tensors,
            numbers, strings, and the dicts and lists of these.
        path: the file or URL to write or replace.
        storage_options: what fsspec's file system for this path is made with. For a local path `{"auto_mkdir": False}`
            means that a missing directory is an error.

    Raises:
        MisconfigurationException: the options or the kind of URL are not known.

    Example:
        >>> import torch
        >>> from systolic.checkpoint import atomic_save, load
        >>> atomic_save({"state_dict": {"x": torch.ones(2)}}, "memory://run/a.ckpt")
        >>> load("memory://run/a.ckpt")["state_dict"]["x"]
        tensor([1., 1.])
    """
    where = location(path)
    if is_remote(path):
        _remote.save(checkpoint, where, storage_options or {})
        return
    _require_local_options(where, storage_options or {})
    _files.save(checkpoint, where, makes_directories=(storage_options or {}).get("auto_mkdir", True))


def load(
    path: PathLike, map_location: MapLocation = "cpu", weights_only: bool | None = None, storage_options: Options = None
) -> dict[str, Any]:
    """Read a checkpoint of systolic or Lightning.

    Args:
        path: the file, directory of shards, or URL.
        map_location: where tensors go, as in `torch.load`.
        weights_only: refuse files that hold anything but tensors and plain Python values. False runs code that the
            file may contain: only for files that you trust. None is True, unless the environment variable
            `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` is set, as for `torch.load`.
        storage_options: what fsspec's file system for this URL is made with.

    Raises:
        CheckpointNotFoundError: there is no such file.
        CheckpointFormatError: the file is damaged, is something else, or holds more than plain values.
    """
    if is_remote(path):
        return _remote.load(location(path), storage_options or {}, map_location, weights_only)
    where = location(path)
    if _sharded.is_sharded(where):
        return _sharded.load(where, map_location, weights_only)
    return _files.load(where, map_location, weights_only)


def copy_atomically(source: PathLike, target: PathLike, storage_options: Options = None) -> None:
    """Make `target` a copy of the file or directory `source`, complete at every moment that it can be seen."""
    if is_remote(source) or is_remote(target):
        _remote.copy(_url(source), _url(target), storage_options or {})
    elif _sharded.is_sharded(location(source)):
        _sharded.copy(location(source), location(target))
    else:
        _files.copy(location(source), location(target))


def link_atomically(source: PathLike, link: PathLike, storage_options: Options = None) -> None:
    """Make `link` a symbolic link to `source`; a copy where the storage has no links."""
    if is_remote(source) or is_remote(link):
        copy_atomically(source, link, storage_options)
    else:
        _files.link(location(source), location(link))


def remove(path: PathLike, storage_options: Options = None) -> None:
    """Delete a checkpoint file or directory; one that is gone already is no error."""
    if is_remote(path):
        _remote.remove(location(path), storage_options or {})
    elif _sharded.is_sharded(location(path)) and not os.path.islink(location(path)):
        _sharded.remove(location(path))
    else:
        _files.remove(location(path))


def exists(path: PathLike, storage_options: Options = None) -> bool:
    """Whether there is something of this name, other than what a killed process left of a directory."""
    where = location(path)
    if is_remote(path):
        return _remote.exists(where, storage_options or {})
    return os.path.lexists(where) and not _sharded.is_left_over(where)


def is_whole(path: PathLike) -> bool:
    """Whether a local checkpoint is complete and undamaged by its checksums; those elsewhere are taken to be."""
    where = location(path)
    return is_remote(path) or (_sharded.is_whole(where) if _sharded.is_sharded(where) else _files.is_whole(where))


def names_in(directory: PathLike, storage_options: Options = None) -> list[str]:
    """The names in a directory; none if there is no such directory."""
    if is_remote(directory):
        return _remote.names_in(location(directory), storage_options or {})
    return _files.names_in(location(directory))


def modified(path: PathLike, storage_options: Options = None) -> float:
    """When a checkpoint was written, in seconds since 1970."""
    if is_remote(path):
        return _remote.modified(location(path), storage_options or {})
    where = location(path)
    return os.path.getmtime(os.path.join(where, CONTENTS) if _sharded.is_committed(where) else where)


def _url(path: PathLike) -> str:
    return location(path) if is_remote(path) else f"file://{location(path)}"


def _require_local_options(path: str, options: Mapping[str, Any]) -> None:
    for key in options:
        if key not in _LOCAL_OPTIONS:
            raise MisconfigurationException(
                f"storage_options has {key!r}, which local files do not have, and {path!r} is a local file. Expected one of "
                f"{', '.join(sorted(map(repr, _LOCAL_OPTIONS)))}, or a URL such as 'gs://bucket/a.ckpt'."
                f"{suggest(key, _LOCAL_OPTIONS)}"
            )
