"""More simulated cores than JAX was started with: its CPU backend is started again, beside the old one.

In a notebook `Trainer(devices=1)` comes first and `devices=8` later. To start with eight costs a run on one core the threads
that eight need: with 16 threads on two processors a step of an LSTM took 320 ms in place of 198 (2026-11). What lies on the
old cores stays there, with its programs, for as long as somebody refers to it; whoever begins a run asks for the cores of now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax

from ..distributed import process_count
from ..utilities._jax_internals import backends, clear_backends
from ._backends import jax_devices

if TYPE_CHECKING:
    from ..utilities._jax_internals import Device


_chosen = {-1, 0}  # numbers of CPU devices that are not the user's: JAX's default, and those that a Trainer asked for


def choose_cores(cores: int) -> None:
    """Have JAX make so many CPU devices when it starts.

    Args:
        cores: how many.

    Raises:
        RuntimeError: it has started.
    """
    jax.config.update("jax_num_cpu_devices", cores)
    _chosen.add(cores)


def may_start_again() -> bool:
    """Whether JAX can make other CPU devices.

    It can where nobody has told it how many there are, it has started no other platform, and the process talks to no others.
    """
    told: int = jax.config.jax_num_cpu_devices  # pyright: ignore[reportAttributeAccessIssue]
    return told in _chosen and set(backends()) <= {"cpu"} and process_count() == 1


def start_again(cores: int) -> None:
    """Have JAX make so many CPU devices when it is asked next.

    Args:
        cores: how many; more than there are.
    """
    clear_backends()
    choose_cores(cores)


def devices_of_now(devices: Sequence[Device]) -> list[Device]:
    """The same devices by their numbers, where JAX has started again since they were found."""
    if not devices or devices[0].platform != "cpu" or process_count() > 1:
        return list(devices)
    now = jax_devices("cpu")
    return list(devices) if devices[0].client is now[0].client else [now[device.id] for device in devices]
