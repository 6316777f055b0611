"""Python's garbage collector, while the package is imported and while steps are traced."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[bool]:
    """Keep the collector off, if it was on: what a trace makes stays until its end, and is a tenth of its time to walk through.

    Yields:
        Whether it was on.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield was_on
    finally:
        if was_on:
            gc.enable()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the collector off, if it was on, and let it take all objects for old ones afterwards.

    An import makes some hundred thousand objects that all stay: walking through them again and again takes a tenth of its time
    and finds nothing.
    """
    with collector_off() as was_on:
        try:
            yield
        finally:
            if was_on and not gc.get_freeze_count():
                # To and fro, all objects become old ones: else the first collection would walk through them after all.
                gc.freeze()
                gc.unfreeze()
