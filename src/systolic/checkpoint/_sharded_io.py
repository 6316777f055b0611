"""The plugin that writes checkpoints as directories of shards."""

from __future__ import annotations

from typing import Any

from ..exceptions import MisconfigurationException
from . import _orbax, _sharded, _storage
from ._io import CheckpointIO
from ._location import PathLike, is_remote, location


class ShardedCheckpointIO(CheckpointIO):
    """A directory for each checkpoint: every process writes the shards that lie on its devices, and nothing is gathered.

    For state that is too large for one host's memory, or for one file. The directory holds what the file would hold, appears
    complete or not at all, and is read wherever a file is: `ckpt_path`, `load_from_checkpoint`, on any number of cores and
    processes, under any strategy, by any plugin of systolic's. `systolic checkpoint convert` makes one file of it. Needs
    `pip install "systolic[orbax]"`.

    With several processes, all of them must see the directory (NFS, Lustre, a mounted bucket).

    Raises:
        MisconfigurationException: orbax-checkpoint is not installed.

    Example:
        >>> import systolic as L
        >>> from systolic.plugins import ShardedCheckpointIO
        >>> trainer = L.Trainer(
        ...     accelerator="cpu", devices=8, strategy="fsdp", plugins=[ShardedCheckpointIO()], logger=False
        ... )
    """

    saves_from_devices = True

    def __init__(self) -> None:
        _orbax.require_orbax()

    def save_checkpoint(self, checkpoint: dict[str, Any], path: PathLike, storage_options: object = None) -> None:
        """Write the directory. All processes must call this; returns when it is complete.

        Args:
            checkpoint: a dict of tensors, also such on devices, and plain values.
            path: a local path.
            storage_options: None: these are for URLs.

        Raises:
            MisconfigurationException: the path is a URL.
        """
        if is_remote(path) or storage_options:
            raise MisconfigurationException(
                f"ShardedCheckpointIO writes to file systems that all hosts have mounted. Expected a local path and no "
                f"storage_options. Received: {str(path)!r}, {storage_options!r}. Mount the bucket (gcsfuse), or write one file "
                "with TorchCheckpointIO."
            )
        _sharded.save(checkpoint, location(path))

    def load_checkpoint(self, path: PathLike, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Read a directory, or a file of `TorchCheckpointIO`; to the CPU unless `map_location` says otherwise."""
        return _storage.load(path, "cpu" if map_location is None else map_location, weights_only)

    def remove_checkpoint(self, path: PathLike) -> None:
        """Delete a checkpoint; one that is gone already is no error."""
        _storage.remove(path)

    def is_whole(self, path: PathLike) -> bool:
        """Whether the checkpoint was completed, and its checksums fit; reads all of it."""
        return _storage.is_whole(path)
