"""The devices of a slice that is not here, as libtpu's compiler describes them."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jax.experimental import topologies

from ..exceptions import MisconfigurationException
from ._slices import Slice

if TYPE_CHECKING:
    from jaxlib._jax import Device

MISSING = 'Preflight needs the TPU compiler, which is not installed here. Install it with: pip install "systolic[tpu]"'

_LIBTPU_ENVIRONMENT = {
    # else libtpu asks Google Cloud's metadata server which machine this is, and complains when nobody answers
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    # libtpu lets one process a machine use it, because chips belong to one; a compiler can be used by many
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def slice_devices(slice: Slice) -> list[Device]:
    """The devices of a slice, in JAX's order; programs can be compiled for them.

    Raises:
        MisconfigurationException: libtpu is not installed.
        ValueError: the chips cannot be connected in this shape.
    """
    if importlib.util.find_spec("libtpu") is None:
        raise MisconfigurationException(MISSING)
    return list(_devices(slice.topology, slice.chip.tensor_cores > slice.chip.devices, slice.count))


@functools.cache
def _devices(topology: str, megacore: bool, count: int) -> tuple[Device, ...]:
    options: dict[str, object] = {"chip_config_name": "megacore"} if megacore else {}
    if count > 1:
        options["num_slices"] = count
    with _quiet_libtpu():
        try:
            description = topologies.get_topology_desc(platform="tpu", topology_name=topology, **options)
        except Exception as error:
            raise ValueError(f"The TPU compiler knows no topology {topology!r}: {error}") from error
    return tuple(description.devices)


@contextlib.contextmanager
def _quiet_libtpu() -> Iterator[None]:
    """Settings that libtpu reads while it starts; on a machine with a TPU, those that are set there stay."""
    ours = {name: value for name, value in _LIBTPU_ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)
