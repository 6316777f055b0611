"""Processes that were forked after JAX had started: they are told so, where they would wait for ever."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..utilities._jax_internals import backends_are_initialized

if TYPE_CHECKING:
    import jax

_parent: int | None = None


def require_not_forked(array: jax.Array | None = None) -> None:
    """Refuse to ask devices anything in a process that was forked from one that had started them.

    Args:
        array: what is to be read; one that lies in host memory, computed, can be.

    Raises:
        RuntimeError: it was. A fork copies the memory of JAX's threads and not the threads, so nobody would answer.
    """
    if _parent is None:
        return
    if array is None or not _is_here(array):
        raise RuntimeError(
            f"This process ({os.getpid()}) was forked from process {_parent}, which had started JAX; JAX's threads are not "
            "copied by a fork, so that nothing could run on the devices here. Expected: a process of its own. Start it with "
            '`multiprocessing.get_context("spawn")` (or "forkserver"), or fork before anything is trained or compiled. '
            "`Trainer(compile=False)`, and modules whose `fit` has ended, work in a fork, too."
        )


def _is_here(array: jax.Array) -> bool:
    """Whether the values lie in host memory already."""
    ready: bool = array.is_ready()  # pyright: ignore[reportAttributeAccessIssue]: JAX's type stubs lack it
    return ready and all(device.platform == "cpu" for device in array.devices())


def _note() -> None:
    global _parent
    if backends_are_initialized():
        _parent = os.getppid()


os.register_at_fork(after_in_child=_note)
