"""How checkpoints get to storage: Lightning's plugin interface, and its implementation for files."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax

from . import _storage
from ._location import PathLike, is_remote


class CheckpointIO:
    """Writes, reads and removes checkpoints. Give an instance to `Trainer(plugins=[...])`.

    Override `save_checkpoint`, `load_checkpoint` and `remove_checkpoint` for another storage; `copy_checkpoint`,
    `link_checkpoint`, `exists`, `names_in` and `modified` as well when its paths are neither local files nor URLs that
    fsspec knows.

    Attributes:
        writes_later: whether `save_checkpoint` returns before the checkpoint is written. It is then given copies of
            everything that training could change.
        copies: whether it makes these copies itself, before it returns, and is given what training goes on with.
        saves_from_devices: whether `save_checkpoint` is called in every process, with tensors that are still on the devices;
            else in the first one, with copies on the host.
    """

    writes_later = False
    copies = False
    saves_from_devices = False

    def save_checkpoint(self, checkpoint: dict[str, Any], path: PathLike, storage_options: Any = None) -> None:
        """Write a checkpoint: a dict of CPU tensors and plain values."""
        raise NotImplementedError

    def load_checkpoint(self, path: PathLike, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Read a checkpoint."""
        raise NotImplementedError

    def remove_checkpoint(self, path: PathLike) -> None:
        """Delete a checkpoint; one that is gone already is no error."""
        raise NotImplementedError

    def copy_checkpoint(self, source: PathLike, target: PathLike) -> None:
        """Make `target` a copy of `source`."""
        _storage.copy_atomically(source, target)

    def link_checkpoint(self, source: PathLike, link: PathLike) -> None:
        """Make `link` stand for `source`."""
        _storage.link_atomically(source, link)

    def exists(self, path: PathLike) -> bool:
        """Whether there is a checkpoint, or will be when what was asked for is done."""
        return _storage.exists(path)

    def names_in(self, directory: PathLike) -> list[str]:
        """The names of the files in a directory; none if there is no such directory."""
        return _storage.names_in(directory)

    def modified(self, path: PathLike) -> float:
        """When a checkpoint was written, in seconds since 1970."""
        return _storage.modified(path)

    def is_whole(self, path: PathLike) -> bool:
        """Whether a checkpoint can be told to be undamaged, or cannot be told to be damaged; `ckpt_path="last"` asks."""
        del path
        return True

    def check(self) -> None:
        """Raise what has gone wrong in the background so far; waits for nothing. Called after every step of training."""

    def wait(self) -> None:
        """Return when everything that was asked for is done; raises what went wrong."""

    def teardown(self) -> None:
        """Called when a run has ended."""


class TorchCheckpointIO(CheckpointIO):
    """One file for each checkpoint, written atomically with `torch.save`; local, or on any file system that fsspec knows.

    Args:
        storage_options: what fsspec makes the file systems of URLs with, such as `{"token": "google_default"}`; local files
            need none.

    Example:
        >>> import torch
        >>> from systolic.plugins import TorchCheckpointIO
        >>> TorchCheckpointIO().save_checkpoint({"state_dict": {"x": torch.ones(2)}}, "memory://run/b.ckpt")
        >>> TorchCheckpointIO().load_checkpoint("memory://run/b.ckpt")["state_dict"]["x"]
        tensor([1., 1.])
    """

    storage_options: Mapping[str, Any] = MappingProxyType({})  # for subclasses with an __init__ of their own

    def __init__(self, storage_options: Mapping[str, Any] | None = None) -> None:
        self.storage_options = dict(storage_options or {})

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: PathLike, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        """Write the file.

        Args:
            checkpoint: a dict of CPU tensors and plain values.
            path: a local path or a URL.
            storage_options: for fsspec, besides those of this object.

        Raises:
            MisconfigurationException: an option that local files do not have.
        """
        own = self.storage_options if is_remote(path) else {}
        with jax.profiler.TraceAnnotation("checkpoint: write"):
            _storage.atomic_save(checkpoint, path, {**own, **(storage_options or {})})

    def load_checkpoint(self, path: PathLike, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Read the file, to the CPU unless `map_location` says otherwise."""
        where = "cpu" if map_location is None else map_location
        return _storage.load(path, where, weights_only, self.storage_options)

    def remove_checkpoint(self, path: PathLike) -> None:
        """Delete the file."""
        _storage.remove(path, self.storage_options)

    def copy_checkpoint(self, source: PathLike, target: PathLike) -> None:
        """Make `target` a copy of `source`."""
        _storage.copy_atomically(source, target, self.storage_options)

    def link_checkpoint(self, source: PathLike, link: PathLike) -> None:
        """Make `link` a symbolic link to `source`; a copy where the storage has no links."""
        _storage.link_atomically(source, link, self.storage_options)

    def exists(self, path: PathLike) -> bool:
        """Whether there is a checkpoint."""
        return _storage.exists(path, self.storage_options)

    def is_whole(self, path: PathLike) -> bool:
        """Whether the checksums of a local file fit its contents; reads all of it."""
        return _storage.is_whole(path)

    def names_in(self, directory: PathLike) -> list[str]:
        """The names of the files in a directory; none if there is no such directory."""
        return _storage.names_in(directory, self.storage_options)

    def modified(self, path: PathLike) -> float:
        """When a checkpoint was written, in seconds since 1970."""
        return _storage.modified(path, self.storage_options)
