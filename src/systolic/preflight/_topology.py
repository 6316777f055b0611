"""The devices of a slice that is not here, as libtpu's compiler describes them."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import signal
import threading
from typing import TYPE_CHECKING

import jax
from jaxlib import xla_client

from ..exceptions import MisconfigurationException
from ..hardware import chip_files, quiet_libtpu
from ..utilities._jax_internals import topologies
from ._slices import Slice

if TYPE_CHECKING:
    from ..utilities._jax_internals import Device

MISSING = 'Preflight needs the TPU compiler, which is not installed here. Install it with: pip install "systolic[tpu]"'


def slice_devices(slice: Slice) -> list[Device]:
    """The devices of a slice, in JAX's order; programs can be compiled for them.

    Raises:
        MisconfigurationException: libtpu is not installed.
        ValueError: the chips cannot be connected in this shape.
    """
    if importlib.util.find_spec("libtpu") is None:
        raise MisconfigurationException(MISSING)
    of_host = (*slice.shape, 1)[:3] if slice.hosts == slice.count else None
    return list(_devices(slice.topology, slice.chip.tensor_cores > slice.chip.devices, slice.count, of_host))


@functools.cache
def _devices(topology: str, megacore: bool, count: int, of_host: tuple[int, ...] | None) -> tuple[Device, ...]:
    options: dict[str, object] = {"chip_config_name": "megacore"} if megacore else {}
    if count > 1:
        options["num_slices"] = count
    if of_host is not None:
        options["chips_per_host_bounds"] = list(of_host)  # libtpu takes four chips for what every host has
    if chip_files():
        jax.devices()  # libtpu has to start for the chips of this machine first
    with quiet_libtpu():
        if not chip_files():
            _load_compiler()
        try:
            description = topologies.get_topology_desc(platform="tpu", topology_name=topology, **options)
        except Exception as error:
            raise ValueError(f"The TPU compiler knows no topology {topology!r}: {error}") from error
    return tuple(description.devices)


def _load_compiler() -> None:
    """Load libtpu without its profiler: JAX would register it, and its next trace would start it, without chips.

    libtpu's profiler then ends the process (seen with jaxlib 0.10.2 and libtpu 0.0.52, whose interfaces differ in size).
    """
    if not xla_client.pjrt_plugin_loaded("tpu"):
        _ignore_profiling_signals()
        xla_client.load_pjrt_plugin_dynamically("tpu", importlib.import_module("libtpu").get_library_path())


def _ignore_profiling_signals() -> None:
    """Let Python know that SIGPROF is ignored, which libtpu sets behind its back, together with timers that send it.

    Libraries that put Python's signal handlers back (Lightning does after each run) would otherwise restore the default
    action, which ends the process.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()  # Python sets handlers nowhere else
    if in_main_thread and signal.getsignal(signal.SIGPROF) == signal.SIG_DFL:
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
