"""Arrays of NumPy that a step writes to while it is traced: a program cannot do that again.

`self.confusion[y, guess] += 1` is done by NumPy, in memory of the host, with the numbers of the batch that happened to be
traced.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .._errors import CaptureError
from ._object_graph import Path, describe

_MAX_BYTES = 1 << 24
"""A larger array is data."""


class ArrayWrites:
    """The arrays that a step can reach, as they were.

    Args:
        arrays: they, by path.
    """

    def __init__(self, arrays: Iterable[tuple[Path, np.ndarray[Any, Any]]]) -> None:
        self._before: list[tuple[Path, np.ndarray[Any, Any], np.ndarray[Any, Any]]] = [
            (path, array, array.copy()) for path, array in arrays if array.nbytes <= _MAX_BYTES
        ]

    def require_none(self) -> None:
        """Refuse a step that has written to one of them; puts back what was there.

        Raises:
            CaptureError: names the array.
        """
        # of an array of objects the bytes are their addresses, and those of before are alive
        written = [(path, array, old) for path, array, old in self._before if array.tobytes() != old.tobytes()]
        for _, array, old in written:
            array[...] = old
        if written:
            raise CaptureError(
                f"The step writes to {describe(written[0][0])}, an array of NumPy in the host's memory. It is traced once, and "
                "its program cannot write there again.\n"
                "Options: make it a buffer, self.register_buffer(name, torch.zeros(...)), and write with torch; add to it in a "
                "function that systolic.host calls after every step; or append to a list, and add up at the epoch's end."
            )
