"""How checkpoints get to storage: Lightning's plugin interface, and its implementation for local files."""

from __future__ import annotations

import os
from typing import Any

from systolic.checkpoint._files import PathLike, atomic_save, copy_atomically, link_atomically, load, remove


class CheckpointIO:
    """Writes, reads and removes checkpoints. Give an instance to `Trainer(plugins=[...])`.

    Override `save_checkpoint`, `load_checkpoint` and `remove_checkpoint` for another storage; `copy_checkpoint`,
    `link_checkpoint` and `exists` as well when its paths are no local files.

    Attributes:
        writes_later: whether `save_checkpoint` returns before the checkpoint is written. It is then given copies of
            everything that training could change.
    """

    writes_later = False

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
        copy_atomically(source, target)

    def link_checkpoint(self, source: PathLike, link: PathLike) -> None:
        """Make `link` stand for `source`."""
        link_atomically(source, link)

    def exists(self, path: PathLike) -> bool:
        """Whether there is a checkpoint, or will be when what was asked for is done."""
        return os.path.lexists(path)

    def wait(self) -> None:
        """Return when everything that was asked for is done; raises what went wrong."""

    def teardown(self) -> None:
        """Called when a run has ended."""


class TorchCheckpointIO(CheckpointIO):
    """One local file for each checkpoint, written atomically with `torch.save`.

    Example:
        >>> import tempfile, torch
        >>> from systolic.plugins import TorchCheckpointIO
        >>> path = tempfile.mkdtemp() + "/a.ckpt"
        >>> TorchCheckpointIO().save_checkpoint({"state_dict": {"x": torch.ones(2)}}, path)
        >>> TorchCheckpointIO().load_checkpoint(path)["state_dict"]["x"]
        tensor([1., 1.])
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: PathLike, storage_options: Any = None) -> None:
        """Write the file.

        Raises:
            TypeError: with `storage_options`, which local files do not have.
        """
        if storage_options is not None:
            raise TypeError(
                "`storage_options` was given, and local files have none. Write a systolic.plugins.CheckpointIO whose "
                "save_checkpoint uses them, and give it to Trainer(plugins=[...])."
            )
        atomic_save(checkpoint, path)

    def load_checkpoint(self, path: PathLike, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Read the file, to the CPU unless `map_location` says otherwise."""
        return load(path, "cpu" if map_location is None else map_location, weights_only is not False)

    def remove_checkpoint(self, path: PathLike) -> None:
        """Delete the file."""
        remove(path)
