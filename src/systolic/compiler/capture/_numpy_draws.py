"""Note what the capturing thread draws from NumPy's global generator, by any function and any reference to it.

All of them, `np.random.rand` as well as methods of the `RandomState` that other packages hold, take the lock of the bit
generator for each draw. While a step is captured the global `RandomState` works with a stand-in for its bit generator:
the same memory, and the same lock with a note around it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .._capture_thread import is_capture_thread

_numpy_random: Any = np.random  # the type stubs leave out two functions of NumPy's public interface


@contextlib.contextmanager
def noting_numpy_draws(note: Callable[[], None]) -> Iterator[None]:
    """Inside the block, `note` is called for every draw of this thread from NumPy's global generator.

    A generator of the user's own making (`np.random.set_bit_generator`) is not watched.
    """
    original: Any = _numpy_random.get_bit_generator()
    if type(original) is not np.random.MT19937:
        yield
        return
    watched = _Watched(original, note)
    _work_with(watched, original.lock)
    watched.is_installed = True
    try:
        yield
    finally:
        watched.is_installed = False
        _work_with(original, original.lock)


def _work_with(generator: np.random.MT19937, lock: contextlib.AbstractContextManager[object]) -> None:
    with lock:  # nobody draws meanwhile
        # the exchange forgets the normal number that the global generator has in reserve; the state holds it
        state = np.random.get_state(legacy=False)
        _numpy_random.set_bit_generator(generator)
        np.random.set_state(state)


class _NotingLock:
    """A bit generator's lock that says when the state was changed under it.

    A `RandomState` takes it to read its state, too; that is no draw.
    """

    def __init__(self, original: np.random.MT19937, note: Callable[[], None]) -> None:
        self._original: Any = original
        self._note = note
        self._before: list[bytes] = []  # of the capturing thread; NumPy takes the lock within the lock

    def __enter__(self) -> None:
        self._original.lock.acquire()
        if is_capture_thread():
            self._before.append(_position(self._original))

    def __exit__(self, *_: object) -> None:
        drawn = is_capture_thread() and _position(self._original) != self._before.pop()
        self._original.lock.release()
        if drawn:
            self._note()


def _position(generator: np.random.MT19937) -> bytes:
    state: Any = generator.state["state"]
    return bytes(state["key"]) + bytes([state["pos"] % 256, state["pos"] // 256])


class _Watched(np.random.MT19937):
    """A generator that is another one in all but its lock.

    Attributes:
        is_installed: whether the global generator works with it.
    """

    is_installed = False

    def __init__(self, original: np.random.MT19937, note: Callable[[], None]) -> None:
        super().__init__(0)
        self._original = original
        self._lock = _NotingLock(original, note)
        self._note = note

    @property
    def lock(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The lock that notes."""
        return self._lock

    @property
    def capsule(self) -> Any:
        """The memory of the original."""
        return self._original.capsule

    @property
    def state(self) -> Any:
        """The state of the original."""
        return self._original.state

    @state.setter
    def state(self, value: Any) -> None:
        self._original.state = value
        if self.is_installed and is_capture_thread():
            self._note()

    def _legacy_seeding(self, seed: Any) -> None:
        self._original._legacy_seeding(seed)  # pyright: ignore[reportAttributeAccessIssue]

    def __reduce__(self) -> Any:
        return self._original.__reduce__()  # a copy that somebody makes now is one of the original
