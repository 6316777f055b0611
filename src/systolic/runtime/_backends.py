"""Starting JAX: with the platforms that this machine has, and no others."""

from __future__ import annotations

import copyreg
import glob
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax

from ..hardware import chip_files
from ._fork import require_not_forked

if TYPE_CHECKING:
    from ..utilities._jax_internals import Device


def jax_devices(platform: str | None = None) -> list[Device]:
    """`jax.devices(platform)`, starting JAX where it has not started yet.

    Raises:
        RuntimeError: JAX has no such platform, or had started before this process was forked.
    """
    require_not_forked()
    _leave_out_absent_tpus()
    return jax.devices(platform)


def device_with(platform: str, number: int) -> Device:
    """The device of a platform that has this number."""
    return next(device for device in jax_devices(platform) if device.id == number)


def _reduced(device: Device) -> tuple[Callable[[str, int], Device], tuple[str, int]]:
    return device_with, (device.platform, device.id)


# JAX cannot pickle or copy its devices; a Trainer holds some, and a module during fit holds the Trainer's
copyreg.pickle(jax.Device, _reduced)


def gpu_files() -> list[str]:
    """The device files of GPUs (NVIDIA's, AMD's)."""
    return glob.glob("/dev/nvidia[0-9]*") + glob.glob("/dev/kfd")


def _leave_out_absent_tpus() -> None:
    """Keep JAX from starting libtpu on a machine without TPUs, unless the user chose the platforms.

    JAX starts it wherever it is installed. Without chips it asks the network for them, prints errors, and sets a
    profiling timer whose signal can end the process. Too late, and without effect, when JAX has started.
    """
    if jax.config.values["jax_platforms"] or chip_files() or gpu_files():
        return
    jax.config.update("jax_platforms", "cpu")
