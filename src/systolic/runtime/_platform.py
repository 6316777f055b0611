"""Devices that a run uses: `accelerator` and `devices` in all their spellings."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import jax

from ..compat import NUMERICS, obsolete_settings
from ..distributed import join_processes, local_devices, on_every_process
from ..exceptions import MisconfigurationException
from ..hardware import chip_files, no_tpu
from ..utilities._entries import Entry, see
from ..utilities._suggest import suggest
from ._backends import gpu_files, jax_devices
from ._restart import choose_cores, may_start_again, start_again

if TYPE_CHECKING:
    from ..utilities._jax_internals import Device

ACCELERATORS = ("auto", "tpu", "gpu", "cuda", "cpu")
Devices = int | str | Sequence[int]

# Cores that wait for each other in a collective hold a thread each, and the next step's wait beside them: with fewer
# than two threads a core XLA's pool can starve, and the process aborts in a rendezvous (8 cores did with 12 threads,
# 16 cores with 16). More threads than that and than processors get in each other's way: with 16 threads on two
# processors a step of an LSTM took 320 ms in place of 198.
_THREADS_PER_SIMULATED_CORE = 2


def find_devices(accelerator: str = "auto", devices: Devices = "auto") -> list[Device]:
    """The JAX devices for a request, of every process of the run.

    Args:
        accelerator: "auto" (TPU, then GPU, then CPU), "tpu", "gpu" (or "cuda"), "cpu".
        devices: how many (`8`, `"8"`), all (`"auto"`, `-1`, `"-1"`), or which ones by index (`[1]`, `"0,2"`).
            On the CPU "auto" is one core, and a number simulates that many. With several processes it says which
            devices of each.

    Raises:
        MisconfigurationException: unknown accelerator, a request that this machine cannot meet, no TPU present.
    """
    if not isinstance(accelerator, str) or accelerator not in ACCELERATORS:
        raise MisconfigurationException(
            f"Invalid value for argument `accelerator`. Expected one of {', '.join(map(repr, ACCELERATORS))}. "
            f"Received: {accelerator!r}.{suggest(str(accelerator), ACCELERATORS)}"
        )
    wanted = _parse(devices)
    _warn_of_old_precision()
    join_processes(on_tpu=accelerator in ("auto", "tpu"))  # before anything asks JAX for devices: then it would be too late
    platform = _platform(accelerator)
    if platform == "cpu":
        return on_every_process(_cpu_devices(wanted, devices), jax_devices("cpu"))
    available = jax_devices(platform)
    return on_every_process(_select(local_devices(available), wanted, devices, platform), available)


def _warn_of_old_precision() -> None:
    for text in obsolete_settings(os.environ, NUMERICS):
        warnings.warn(text + see(Entry.OLD_PRECISION), stacklevel=4)


def _parse(devices: Devices) -> int | list[int] | None:
    """A count, a list of indices, or None for all."""
    if isinstance(devices, str):
        text = devices.strip()
        if text in ("auto", "-1"):
            return None
        if "," in text:
            return _indices([_integer(part, devices) for part in text.split(",") if part.strip()], devices)
        return _count(_integer(text, devices), devices)
    if isinstance(devices, bool):
        raise _invalid(devices, "a bool is neither a count nor an index")
    if isinstance(devices, int):
        return None if devices == -1 else _count(devices, devices)
    if not isinstance(devices, Sequence):
        raise _invalid(devices, "expected an integer, a list of indices, or a string")
    return _indices(list(devices), devices)


def _count(count: int, request: Devices) -> int:
    if count < 1:
        raise _invalid(request, "at least one device is needed")
    return count


def _integer(text: str, request: Devices) -> int:
    try:
        return int(text)
    except ValueError:
        raise _invalid(request, f"{text!r} is not a number") from None


def _indices(indices: list[int], request: Devices) -> list[int]:
    if not indices:
        raise _invalid(request, "the list is empty")
    if any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in indices):
        raise _invalid(request, "indices are integers from 0")
    if len(set(indices)) != len(indices):
        raise _invalid(request, "an index is repeated")
    return indices


def _invalid(request: Devices, why: str, available: str = "") -> MisconfigurationException:
    return MisconfigurationException(
        f"Invalid value for argument `devices`: {why}. Received: {request!r}.{available} "
        'Allowed: a count such as 8, indices such as [0] or [0, 1], or "auto" for all.'
    )


def _platform(accelerator: str) -> str:
    if accelerator == "cpu":
        return "cpu"
    if accelerator == "tpu":
        if not _tpu_is_attached():
            raise no_tpu()
        return "tpu"
    if accelerator in ("gpu", "cuda"):
        if not _gpu_is_attached():
            raise MisconfigurationException(_NO_GPU)
        return "gpu"
    if _tpu_is_attached():
        return "tpu"
    if _gpu_is_attached():
        return "gpu"
    if chip_files() and "tpu" in (jax.config.values["jax_platforms"] or ""):  # which JAX sets itself on a TPU VM
        raise no_tpu()
    if chip_files() and importlib.util.find_spec("libtpu"):  # without libtpu, VFIO groups may be anything
        warnings.warn(f"Training on the processor. {no_tpu()}", stacklevel=4)
    return "cpu"


def _tpu_is_attached() -> bool:
    return bool(chip_files()) and _has_platform("tpu")


def _gpu_is_attached() -> bool:
    return bool(gpu_files()) and _has_platform("gpu")


def _has_platform(platform: str) -> bool:
    try:
        return bool(jax_devices(platform))
    except RuntimeError:  # JAX's word for "no such platform"
        return False


_NO_GPU = (
    "No GPU devices were found. Looked for /dev/nvidia* and /dev/kfd and asked JAX for the platform 'gpu'. "
    "Options: install systolic[gpu] on a machine with a GPU, or use accelerator='cpu'."
)


def _cpu_devices(wanted: int | list[int] | None, request: Devices) -> list[Device]:
    needed = 1 if wanted is None else wanted if isinstance(wanted, int) else max(wanted) + 1
    _create_cores(needed)
    available = _local_processors()
    if needed > len(available) and _cores_by_flag() is None and may_start_again():
        start_again(needed)
        available = _local_processors()
    if needed > len(available):
        raise MisconfigurationException(
            f"devices={request!r} asks for {needed} simulated CPU cores, but JAX was already started with "
            f"{len(available)} in this process, and cannot start again: XLA_FLAGS or JAX's configuration says how many there "
            "are, or it has other devices, or talks to others. Ask for the larger number first, start the process with "
            f'XLA_FLAGS="--xla_force_host_platform_device_count={needed}", or restart the kernel.'
            f"{see(Entry.SIMULATED_CORES)}"
        )
    return [available[0]] if wanted is None else _select(available, wanted, request, "cpu")


def _local_processors() -> list[Device]:
    with _threads_for(_cores_by_flag() or _cores_by_configuration()):
        return local_devices(_processors())


@contextmanager
def _threads_for(cores: int) -> Iterator[None]:
    """XLA's thread pool has at least two threads a simulated core if it starts meanwhile, and one a processor.

    The variable goes away again: a process that this one starts may have other cores.
    """
    if "NPROC" in os.environ:
        yield
        return
    os.environ["NPROC"] = str(max(processor_count(), _THREADS_PER_SIMULATED_CORE * cores))
    try:
        yield
    finally:
        del os.environ["NPROC"]


def processor_count() -> int:
    """How many processors this process may use; on systems that do not say so, how many there are."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processors() -> list[Device]:
    try:
        return jax_devices("cpu")
    except RuntimeError:  # JAX starts all platforms or none, and another process holds the TPU: go without it
        jax.config.update("jax_platforms", "cpu")
        return jax_devices("cpu")


def _cores_by_flag() -> int | None:
    """How many CPU devices XLA's flags have JAX make; None where they say nothing."""
    found = re.search(r"xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
    return int(found[1]) if found else None


def _cores_by_configuration() -> int:
    count: int = jax.config.jax_num_cpu_devices  # pyright: ignore[reportAttributeAccessIssue]
    return max(1, count)


def _create_cores(count: int) -> None:
    """Tell JAX how many CPU devices to make; too late when it has started, which the caller then reports."""
    if count <= _cores_by_configuration() or _cores_by_flag() is not None:
        return
    with suppress(RuntimeError):
        choose_cores(count)


def _select(available: Sequence[Device], wanted: int | list[int] | None, request: Devices, platform: str) -> list[Device]:
    has = f" This machine has {len(available)} {platform} device(s), indices 0 to {len(available) - 1}."
    if wanted is None:
        return list(available)
    if isinstance(wanted, int):
        if wanted > len(available):
            raise _invalid(request, "more devices than there are", has)
        return list(available[:wanted])
    if max(wanted) >= len(available):
        raise _invalid(request, f"index {max(wanted)} does not exist", has)
    return [available[i] for i in wanted]
