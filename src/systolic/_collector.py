"""Python's garbage collector, while the package is imported."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the collector off, if it was on.

    An import makes some hundred thousand objects that all stay: walking through them again and again takes a tenth of its time
    and finds nothing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():
                # To and fro, all objects become old ones: else the first collection would walk through them after all.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
