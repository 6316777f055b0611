"""Values on the devices of several processes that do not come: one of them has ended, and takes no part in what makes them.

Steps are counted (`_places.py`). This is for every other program over the devices of several processes: gathered arrays, what a
script runs with JAX itself.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import Any

import jax

from ..utilities._jax_internals import backends, backends_are_initialized

_PATIENCE_SECONDS = 20
"""A process that says that it has ended has done its part; what the others do after it takes moments."""


class AwaitedValues:
    """Values that this process's programs have not made yet."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def missing(self, ended: Collection[int]) -> int | None:
        """The process without which some values have not come for a while; to be called often.

        Args:
            ended: processes that have come to their end.
        """
        now = time.monotonic()
        needed = {id(value): involved & set(ended) for value, involved in _awaited()} if ended else {}
        self._since = {value: self._since.get(value, now) for value, absent in needed.items() if absent}
        late = [value for value, since in self._since.items() if now - since >= _PATIENCE_SECONDS]
        return min(needed[late[0]]) if late else None

    def any(self) -> bool:
        """Whether this process still waits for values that it makes with others."""
        return any(True for _ in _awaited())


def _awaited() -> Iterator[tuple[jax.Array, set[int]]]:
    """Arrays over devices of several processes that are not there yet, with the numbers of these processes."""
    if not backends_are_initialized():  # asking for them would start JAX
        return
    for backend in backends().values():
        for array in backend.live_arrays():
            processes = {device.process_index for device in array.sharding.device_set}
            if len(processes) > 1 and not _is_there(array):
                yield array, processes


def _is_there(array: Any) -> bool:
    try:
        return array.is_ready()
    except RuntimeError:  # given to a program meanwhile, whose results are awaited now
        return True
