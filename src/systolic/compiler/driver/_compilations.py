"""Compilations of a step: what is kept of each, and who is told while one goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax

from ..._collector import collector_off
from ...runtime import keep_compiled_programs, watched_cache
from ._memory_limit import PlannedMemory, planned_memory, require_memory
from ._same_program import require_same_program


@dataclass(frozen=True)
class Compile:
    """One compilation: why, and how long it took.

    Attributes:
        reason: "first call", or what changed since the last program that could have been used.
        trace_seconds: PyTorch's tracing.
        compile_seconds: lowering and XLA; 0.0 when an equal program was already there.
        is_new_executable: whether XLA was asked for a program.
        saved_seconds: what XLA took in an earlier run, when the program was read from the cache on disk.
        effects: what the host does after every step of the program, in words.
        memory: what XLA plans for the program on each device; None where it does not tell, or made no program.
    """

    reason: str
    trace_seconds: float
    compile_seconds: float
    is_new_executable: bool
    saved_seconds: float = 0.0
    effects: tuple[str, ...] = ()
    memory: PlannedMemory | None = None


class CompileListener(Protocol):
    """Is told of tracing and compilations; an error ends either without a word."""

    def tracing(self, reason: str) -> None:
        """PyTorch's tracing begins."""

    def compiling(self, reason: str, fingerprint: str) -> None:
        """XLA's compilation begins, of what was traced just now or earlier; equal programs have equal fingerprints."""

    def finished(self, trace_seconds: float, compile_seconds: float, saved_seconds: float) -> None:
        """Both have ended; the cache on disk made compiling shorter by `saved_seconds`."""


def compile_ahead(
    function: jax.stages.Wrapped, arguments: Sequence[Any], reason: str, is_shared: bool, memory_limit: int | None
) -> Compile:
    """Have XLA compile a jitted function for these arguments, through the cache on disk.

    Args:
        function: what is compiled.
        arguments: of shapes and dtypes alone.
        reason: why.
        is_shared: whether several processes compile it, all of which need the same program.
        memory_limit: bytes that it may need on one device; None for any number.

    Raises:
        OutOfMemoryError: it needs more.
    """
    started = time.perf_counter()
    keep_compiled_programs()
    with jax.enable_x64(True), watched_cache() as cache:
        with collector_off():
            lowered = function.lower(*arguments)
        if is_shared:
            require_same_program(lowered, reason)
        compiled = lowered.compile()
    memory = planned_memory(compiled)
    require_memory(memory, memory_limit)
    return Compile(reason, 0.0, time.perf_counter() - started, True, cache.saved_seconds, memory=memory)


class NoListener:
    """Nobody is told."""

    def tracing(self, reason: str) -> None:
        pass

    def compiling(self, reason: str, fingerprint: str) -> None:
        pass

    def finished(self, trace_seconds: float, compile_seconds: float, saved_seconds: float) -> None:
        pass
