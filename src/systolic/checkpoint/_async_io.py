"""Saving in the background: the devices stop for the copy to the host, not for the disk."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ..exceptions import MisconfigurationException
from ._io import CheckpointIO
from ._location import MapLocation, PathLike, location
from ._snapshot import snapshot
from ._wrapping_io import WrappingCheckpointIO

_NICENESS = 10


class AsyncCheckpointIO(WrappingCheckpointIO):
    """Write checkpoints in a thread while training goes on.

    Everything happens in the order in which it was asked for: an old checkpoint is removed when the new one is
    complete, and not at all when writing that failed. What went wrong is raised after the next step, or at the
    end of the run. One checkpoint is in memory at a time: a save waits until the one before it is written.

    Args:
        checkpoint_io: what writes; a `TorchCheckpointIO` by default.

    Raises:
        MisconfigurationException: the plugin writes from the devices, as `ShardedCheckpointIO` does.

    Example:
        >>> import systolic as L
        >>> from systolic.plugins import AsyncCheckpointIO
        >>> trainer = L.Trainer(accelerator="cpu", plugins=[AsyncCheckpointIO()], max_epochs=1, logger=False)
    """

    writes_later = True
    copies = True

    def __init__(self, checkpoint_io: CheckpointIO | None = None) -> None:
        super().__init__(checkpoint_io)
        if self.checkpoint_io.saves_from_devices:
            raise MisconfigurationException(
                f"AsyncCheckpointIO({type(checkpoint_io).__name__}()): expected a plugin that writes copies on the host. This "
                "one writes what lies on the devices, which training goes on to change. Use it without AsyncCheckpointIO."
            )
        self._executor: ThreadPoolExecutor | None = None
        self._pending: list[Future[None]] = []
        self._coming: set[str] = set()
        self._error: BaseException | None = None
        self._errors_raised, self._failed_before = 0, -1  # what was asked for since an error was raised begins anew

    def save_checkpoint(self, checkpoint: dict[str, Any], path: PathLike, storage_options: object = None) -> None:
        """Copy what the checkpoint holds now, and write it soon."""
        self.wait()
        self._submit(path, self.checkpoint_io.save_checkpoint, snapshot(checkpoint, detached=True), path, storage_options)

    def load_checkpoint(
        self, path: PathLike, map_location: MapLocation = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read a checkpoint, after those that are being written."""
        self.wait()
        return super().load_checkpoint(path, map_location, weights_only)

    def remove_checkpoint(self, path: PathLike) -> None:
        """Delete a checkpoint, after what was asked for before."""
        self._submit(None, self.checkpoint_io.remove_checkpoint, path)

    def copy_checkpoint(self, source: PathLike, target: PathLike) -> None:
        """Copy a checkpoint, after what was asked for before."""
        self._submit(target, self.checkpoint_io.copy_checkpoint, source, target)

    def link_checkpoint(self, source: PathLike, link: PathLike) -> None:
        """Link a checkpoint, after what was asked for before."""
        self._submit(link, self.checkpoint_io.link_checkpoint, source, link)

    def exists(self, path: PathLike) -> bool:
        """Whether the checkpoint is there, or is being written."""
        return location(path) in self._coming or super().exists(path)

    def names_in(self, directory: PathLike) -> list[str]:
        """The names of the files in a directory, after those that are being written."""
        self.wait()
        return super().names_in(directory)

    def is_whole(self, path: PathLike) -> bool:
        """Whether a checkpoint is undamaged, after those that are being written."""
        self.wait()
        return super().is_whole(path)

    def modified(self, path: PathLike) -> float:
        """When a checkpoint was written, after those that are being written."""
        self.wait()
        return super().modified(path)

    def check(self) -> None:
        """Raise what has gone wrong in the background so far; waits for nothing."""
        error, self._error = self._error, None
        if error is not None:
            self._errors_raised += 1
            raise error

    def wait(self) -> None:
        """Return when everything is written; raises what went wrong in the background."""
        for future in self._pending:
            future.result()
        self._pending.clear()
        self._coming.clear()
        self.check()
        super().wait()

    def teardown(self) -> None:
        """Finish what was begun, and end the thread; raises what went wrong."""
        try:
            self.wait()
        finally:
            if self._executor is not None:
                self._executor.shutdown()
                self._executor = None
            super().teardown()

    def _submit(self, coming: PathLike | None, action: Callable[..., None], *arguments: Any) -> None:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="systolic-save", initializer=_yield_to_the_step)
        if coming is not None:
            self._coming.add(location(coming))
        self._pending.append(self._executor.submit(self._run, action, [arguments], self._errors_raised))

    def _run(self, action: Callable[..., None], held: list[tuple[Any, ...]], errors_raised: int) -> None:
        """In the thread. What follows a failure counts on a file that is not there: it is left out.

        That is all that was asked for before the error was raised, also where it is raised before the thread comes to it:
        the removal of an older checkpoint, for which the newer one is missing.
        """
        arguments = held.pop()  # the executor keeps `held` for a moment longer than the checkpoint may live
        if errors_raised == self._failed_before:
            return
        try:
            action(*arguments)
        except BaseException as error:
            error.add_note("This happened in the background, while a checkpoint was written (AsyncCheckpointIO).")
            self._error, self._failed_before = error, errors_raised


def _yield_to_the_step() -> None:
    """In the thread that writes: where cores are short, the step comes first. Only Linux has priorities of threads."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
