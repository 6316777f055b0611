"""Several slices at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console

from ..runtime import cache_suspended, processor_count
from ._build import describe, lower
from ._compiled import Lowered
from ._report import PreflightReport
from ._slices import Slice
from ._step import TracedStep

_BYTES_PER_COMPILER = 6 * 2**30
"""Memory that one compilation may need: GPT-2 124M takes 4 GB."""

_CORES_PER_COMPILER = 2
"""The compiler uses several threads itself."""


def reports_on(pairs: Sequence[tuple[TracedStep, Slice]], tell: Callable[[str], None]) -> list[PreflightReport]:
    """Compile steps for slices, several at once where processors and memory allow.

    Args:
        pairs: what to compile for what.
        tell: gets a line whenever something begins.
    """
    with cache_suspended(), ThreadPoolExecutor(_workers(len(pairs))) as pool:
        running = []
        for step, slice in pairs:
            tell(f"lowering {step.model} for {slice.name}")
            running.append(pool.submit(Lowered.compile, lower(step, slice)))
        reports = []
        for number, ((step, slice), compiled) in enumerate(zip(pairs, running, strict=True), 1):
            tell(f"compiling {step.model} for {slice.name} ({number} of {len(pairs)})")
            reports.append(describe(step, slice, compiled.result()))
        return reports


def _workers(programs: int) -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    allowed = min(processor_count() // _CORES_PER_COMPILER, memory // _BYTES_PER_COMPILER)
    return max(1, min(programs, allowed))


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line on the terminal that says what is being done; nothing where standard error is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("preflight") as status:
        yield status.update
