"""A plugin around another one, to which it leaves everything that it does not do by itself."""

from __future__ import annotations

from typing import Any

from ._io import CheckpointIO, TorchCheckpointIO
from ._location import MapLocation, PathLike


class WrappingCheckpointIO(CheckpointIO):
    """Base of plugins that change how another one is called.

    Args:
        checkpoint_io: what writes and reads; a `TorchCheckpointIO` by default.
    """

    def __init__(self, checkpoint_io: CheckpointIO | None = None) -> None:
        self.checkpoint_io = TorchCheckpointIO() if checkpoint_io is None else checkpoint_io

    def load_checkpoint(
        self, path: PathLike, map_location: MapLocation = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read a checkpoint."""
        return self.checkpoint_io.load_checkpoint(path, map_location, weights_only)

    def exists(self, path: PathLike) -> bool:
        """Whether there is a checkpoint."""
        return self.checkpoint_io.exists(path)

    def names_in(self, directory: PathLike) -> list[str]:
        """The names of the files in a directory."""
        return self.checkpoint_io.names_in(directory)

    def is_whole(self, path: PathLike) -> bool:
        """Whether a checkpoint is undamaged."""
        return self.checkpoint_io.is_whole(path)

    def modified(self, path: PathLike) -> float:
        """When a checkpoint was written, in seconds since 1970."""
        return self.checkpoint_io.modified(path)

    def check(self) -> None:
        """Raise what has gone wrong in the background so far."""
        self.checkpoint_io.check()

    def wait(self) -> None:
        """Return when everything is written."""
        self.checkpoint_io.wait()

    def teardown(self) -> None:
        """Finish what was begun."""
        self.checkpoint_io.teardown()
