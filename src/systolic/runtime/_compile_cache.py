"""Compiled programs are kept on disk, so that the next run of a script does not compile them again.

The cache is JAX's own: its keys hold the program, the compiler's version and options, and the kind and number of devices.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import jax

from ..distributed import process_count
from ..utilities._jax_internals import compilation_cache
from ..utilities._private import make_directories, why_not_private
from ._kept_by_all import keep_programs_of_all, tell_directory

# Programs that compile faster than this are compiled again: reading them is hardly faster. JAX's own bound is 1 s.
_WORTH_KEEPING_SECONDS = 0.1
_MAX_BYTES = 10 * 2**30

_HIT = "/jax/compilation_cache/cache_hits"
_MISS = "/jax/compilation_cache/cache_misses"
_SAVED = "/jax/compilation_cache/compile_time_saved_sec"


@dataclass
class CacheUse:
    """Use of the cache in one compilation.

    Attributes:
        hits: programs that were read.
        misses: programs that were compiled and written.
        saved_seconds: what compiling took the first time, less what reading took; JAX notes whole seconds.
    """

    hits: int = 0
    misses: int = 0
    saved_seconds: float = 0.0


def keep_compiled_programs(environment: Mapping[str, str] = os.environ) -> None:
    """Switch JAX's cache on, unless the user has decided about it.

    The directory is SYSTOLIC_CACHE_DIR (empty: no cache), else `systolic` in the user's cache folder; settings of JAX
    (JAX_COMPILATION_CACHE_DIR, `jax.config`) take precedence and are left as they are.
    """
    _switch_on(environment)
    directory = jax.config.values["jax_compilation_cache_dir"]
    if process_count() > 1 and directory:
        keep_programs_of_all(_processor())
        tell_directory(directory)


def _switch_on(environment: Mapping[str, str]) -> None:
    if jax.config.values["jax_compilation_cache_dir"] or not jax.config.values["jax_enable_compilation_cache"]:
        return
    directory = cache_directory(environment)
    if not directory or "JAX_COMPILATION_CACHE_DIR" in environment:
        return
    if "://" not in directory:  # JAX writes to buckets too, and bounds only directories
        if not _can_be_made(directory):
            return
        _set_unless_chosen("jax_compilation_cache_max_size", -1, _MAX_BYTES, environment)
    _set_unless_chosen("jax_persistent_cache_min_compile_time_secs", 1.0, _WORTH_KEEPING_SECONDS, environment)
    jax.config.update("jax_compilation_cache_dir", directory)


def cache_directory(environment: Mapping[str, str] = os.environ) -> str:
    """Directory where programs of this kind of processor are kept; empty when the cache is switched off."""
    base = environment.get("SYSTOLIC_CACHE_DIR")
    if base is None:
        base = str(_user_cache(environment) / "systolic" / "programs")
    return f"{base.rstrip('/')}/{_processor()}" if base else ""


def described_programs(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Directory for descriptions of programs for devices that are not here; None when the cache is switched off.

    JAX's cache cannot read such programs: there is no device to load them to.
    """
    base = environment.get("SYSTOLIC_CACHE_DIR")
    if base is None:
        return _user_cache(environment) / "systolic" / "preflight"
    return Path(base) / "preflight" if base and "://" not in base else None


@contextlib.contextmanager
def cache_suspended() -> Iterator[None]:
    """Inside the block JAX's cache is neither read nor written."""
    before = jax.config.values["jax_enable_compilation_cache"]
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # JAX decides once, and forgets the decision here
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
        compilation_cache.reset_cache()


@contextlib.contextmanager
def watched_cache() -> Iterator[CacheUse]:
    """Inside the block, count what the cache does."""
    use = CacheUse()

    def count(event: str, **kwargs: str | int) -> None:
        use.hits += event == _HIT
        use.misses += event == _MISS

    def add(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == _SAVED:
            use.saved_seconds += max(duration_secs, 0.0)

    jax.monitoring.register_event_listener(count)
    jax.monitoring.register_event_duration_secs_listener(add)
    try:
        yield use
    finally:
        jax.monitoring.unregister_event_listener(count)
        jax.monitoring.unregister_event_duration_listener(add)


@functools.cache
def _can_be_made(directory: str) -> bool:
    """Make the directory; warn once where that is not possible, and where others could put programs into it."""
    try:
        make_directories(Path(directory))
        # programs that are read are run: nobody else may write them
        reason = why_not_private(Path(directory))
    except OSError as error:
        reason = str(error)
    if reason is not None:
        warnings.warn(
            f"Compiled programs are not kept for the next run: {reason}. Set SYSTOLIC_CACHE_DIR to a directory that you "
            "alone can write to, or to nothing to switch the cache off.",
            stacklevel=2,
        )
        return False
    return True


def _set_unless_chosen(name: str, default: float, value: float, environment: Mapping[str, str]) -> None:
    if name.upper() not in environment and jax.config.values[name] == default:
        jax.config.update(name, value)


def _user_cache(environment: Mapping[str, str]) -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@functools.cache
def _processor() -> str:
    """A name for processors with the same instructions.

    JAX's key does not promise to hold them, and a home directory may be shared by different machines.
    """
    facts = platform.processor()
    with contextlib.suppress(OSError):  # only Linux has this file
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        facts = " ".join(sorted(next((s for s in lines if s.startswith(("flags", "Features"))), facts).split()))
    return f"{platform.machine()}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"
