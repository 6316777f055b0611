"""Saving where the disk may fail: training goes on, and the last checkpoint that was written stays."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ..exceptions import MisconfigurationException
from ._io import CheckpointIO
from ._location import PathLike, location
from ._wrapping_io import WrappingCheckpointIO


class TolerantCheckpointIO(WrappingCheckpointIO):
    """Warn of a checkpoint that cannot be written, instead of ending the run.

    For runs that shall survive a full disk or a file system that is away for a while. Every save is tried. While saves fail,
    nothing is removed: the newest checkpoint that was written stays, with its predecessors' removal left until a save succeeds.
    Without this plugin a failing save ends the run with the same error.

    Args:
        checkpoint_io: what writes; a `TorchCheckpointIO` by default. To write in the background too, give this object to
            `AsyncCheckpointIO`.
        max_failures: how many saves in a row may fail; the next one raises its error. No limit by default.

    Raises:
        MisconfigurationException: `max_failures` is no positive number, or `checkpoint_io` writes later (`AsyncCheckpointIO`)
            or from the devices (`ShardedCheckpointIO`), so that it does not tell what failed when it is asked to save.

    Example:
        >>> import systolic as L
        >>> from systolic.plugins import AsyncCheckpointIO, TolerantCheckpointIO
        >>> plugin = AsyncCheckpointIO(TolerantCheckpointIO(max_failures=20))
        >>> trainer = L.Trainer(accelerator="cpu", plugins=[plugin], max_epochs=1, logger=False)
    """

    def __init__(self, checkpoint_io: CheckpointIO | None = None, max_failures: int | None = None) -> None:
        super().__init__(checkpoint_io)
        if self.checkpoint_io.saves_from_devices or self.checkpoint_io.writes_later:
            raise MisconfigurationException(
                f"TolerantCheckpointIO({type(checkpoint_io).__name__}()): expected a plugin whose `save_checkpoint` has "
                "written the checkpoint, or raised, when it returns. Write AsyncCheckpointIO(TolerantCheckpointIO())."
            )
        if max_failures is not None and (
            isinstance(max_failures, bool) or not isinstance(max_failures, int) or max_failures < 1
        ):
            raise MisconfigurationException(
                "Invalid value for argument `max_failures` of TolerantCheckpointIO. Expected a positive integer or None. "
                f"Received: {max_failures!r}."
            )
        self.max_failures = max_failures
        self.failures = 0
        self._newest = ""
        self._missing: set[str] = set()
        self._superseded: list[PathLike] = []

    def save_checkpoint(self, checkpoint: dict[str, Any], path: PathLike, storage_options: Any = None) -> None:
        """Write the checkpoint, or warn; what was to be removed since the last success goes then.

        Raises:
            OSError: more than `max_failures` saves in a row have failed.
        """
        try:
            self.checkpoint_io.save_checkpoint(checkpoint, path, storage_options)
        except OSError as error:
            self._failed(path, error)
            return
        self.failures, self._newest = 0, location(path)
        self._missing.clear()
        superseded, self._superseded = self._superseded, []
        for old in superseded:
            if location(old) != self._newest:
                self.remove_checkpoint(old)

    def remove_checkpoint(self, path: PathLike) -> None:
        """Delete a checkpoint; while saves fail, when one has succeeded."""
        if self.failures:
            self._superseded.append(path)
        else:
            self._try("removed", path, self.checkpoint_io.remove_checkpoint, path)

    def copy_checkpoint(self, source: PathLike, target: PathLike) -> None:
        """Copy a checkpoint, unless it could not be written."""
        if location(source) not in self._missing:
            self._try("written", target, self.checkpoint_io.copy_checkpoint, source, target)

    def link_checkpoint(self, source: PathLike, link: PathLike) -> None:
        """Link a checkpoint, unless it could not be written."""
        if location(source) not in self._missing:
            self._try("written", link, self.checkpoint_io.link_checkpoint, source, link)

    def _failed(self, path: PathLike, error: OSError) -> None:
        if self.max_failures is not None and self.failures >= self.max_failures:
            error.add_note(f"{self.failures} saves before this one failed as well (TolerantCheckpointIO(max_failures=...)).")
            raise error
        self.failures += 1
        self._missing.add(location(path))
        good = f"the newest checkpoint is {self._newest}" if self._newest else "no checkpoint has been written so far"
        warnings.warn(
            f"A checkpoint was not saved: {error}. Training goes on; {good}. {self.failures} in a row failed.", stacklevel=3
        )

    def _try(self, done: str, path: PathLike, action: Callable[..., None], *arguments: PathLike) -> None:
        try:
            action(*arguments)
        except OSError as error:
            warnings.warn(f"The checkpoint {location(path)} was not {done}: {error}. Training goes on.", stacklevel=3)
