"""Lines about what takes longer than a second where there is no progress bar yet."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console

from ._ticker import Ticker

_PATIENCE_S = 1.0
_AGAIN_S = 60.0


@contextlib.contextmanager
def telling(message: str) -> Iterator[None]:
    """Inside, say what is being done if it takes longer than a second, then once a minute, and at the end how long it took.

    Args:
        message: such as "Starting the devices".
    """
    began, told = time.perf_counter(), 0.0

    def tell() -> None:
        nonlocal told
        now = time.perf_counter()
        if not told or now - told >= _AGAIN_S:
            _line(f"{message}, {now - began:.0f} s ..." if told else f"{message} ...")
            told = now

    ticker = Ticker(_PATIENCE_S, tell)
    try:
        yield
    finally:
        ticker.stop()
    if told:
        _line(f"{message}: done in {time.perf_counter() - began:.1f} s")


def _line(text: str) -> None:
    Console().print(text, markup=False, highlight=False, soft_wrap=True)
