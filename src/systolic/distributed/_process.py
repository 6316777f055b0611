"""Identity of this process, and the number of processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax

from ..exceptions import MisconfigurationException

# the client has no public name; it is the service that `jax.distributed.initialize` starts
from ..utilities._jax_internals import global_state
from ._arrival import waiting_for
from ._failure import FailureWatch
from ._hosts import meet_hosts
from ._last_words import name_the_first
from ._peers import find_peers

if TYPE_CHECKING:
    from ..utilities._jax_internals import Device

# Python's errors take longer than that to reach nobody. JAX's default, 100 s, is longer than anybody watches a dead run;
# with much less, a host that compiles on all of its cores would be taken for dead.
_HEARTBEAT_SECONDS = 40
ARRIVAL = "SYSTOLIC_ARRIVAL_SECONDS"
"""The environment variable that says how long to wait for processes that have not come."""

_ARRIVAL_SECONDS = 120
_SECONDS_FOR_ERROR = 60
"""JAX's own limit is later than ours, whose error says more."""


def process_count() -> int:
    """How many processes drive the run; 1 unless JAX's distributed runtime was started.

    Example:
        >>> from systolic.distributed import process_count
        >>> process_count()
        1
    """
    # asked first, because jax.process_count() would start the backend, after which the number of cores is fixed
    return jax.process_count() if jax.distributed.is_initialized() else 1


def process_index() -> int:
    """The number of this process, from 0."""
    return jax.process_index() if jax.distributed.is_initialized() else 0


def is_main_process() -> bool:
    """Whether this is the process that writes files and talks."""
    return process_index() == 0


def local_devices(devices: list[Device]) -> list[Device]:
    """Those of some devices that this process drives, in their order."""
    index = process_index()
    return [device for device in devices if device.process_index == index]


def on_every_process(own: list[Device], devices: list[Device]) -> list[Device]:
    """The devices that stand in each process where those of this one do, process by process.

    Args:
        own: some of this process's.
        devices: all that there are.
    """
    if process_count() == 1:
        return own
    of_process: dict[int, list[Device]] = {}
    for device in devices:
        of_process.setdefault(device.process_index, []).append(device)
    places = [of_process[process_index()].index(device) for device in own]
    return [of_process[process][place] for process in sorted(of_process) for place in places]


def join_processes(
    environment: Mapping[str, str] = os.environ, *, on_tpu: bool = False, arrival_seconds: int | None = None
) -> None:
    """Meet the other processes of the run, where somebody says that there are any; see `find_peers`.

    Must come before JAX's backend is started. On a single host nothing is started; a second call does nothing. Where the others
    do not come, this process ends with an error.

    Args:
        environment: where `SYSTOLIC_COORDINATOR` (host:port), `SYSTOLIC_PROCESSES` and `SYSTOLIC_PROCESS` are looked up.
        on_tpu: whether the run may be one on TPUs.
        arrival_seconds: how long to wait for the others; default: `SYSTOLIC_ARRIVAL_SECONDS`, or two minutes.

    Raises:
        MisconfigurationException: only some of the variables are there, or they are no numbers.
    """
    if jax.distributed.is_initialized():
        return
    arrival_seconds = arrival_seconds or _told_seconds(environment)
    peers = find_peers(environment, on_tpu, arrival_seconds)
    if peers is None:
        return
    name_the_first(peers)
    with waiting_for(peers, arrival_seconds):
        jax.distributed.initialize(
            coordinator_address=peers.coordinator,
            num_processes=peers.processes,
            process_id=peers.process,
            local_device_ids=peers.own_gpus,
            cluster_detection_method="deactivate",  # it would take one GPU of a host whose only process this is
            initialization_timeout=arrival_seconds + _SECONDS_FOR_ERROR,
            heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
        )
    FailureWatch(global_state.client, peers.process, peers.processes, peers.host).start()
    meet_hosts(global_state.client, peers.process, peers.processes, environment)


def _told_seconds(environment: Mapping[str, str]) -> int:
    told = environment.get(ARRIVAL) or str(_ARRIVAL_SECONDS)
    if not told.isdigit() or int(told) == 0:
        raise MisconfigurationException(
            f"{ARRIVAL} says how many seconds to wait for processes that have not come. Expected: an integer from 1, for "
            f"example {_ARRIVAL_SECONDS}. Received: {told!r}."
        )
    return int(told)
