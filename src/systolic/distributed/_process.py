"""Identity of this process, and the number of processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax

from ..exceptions import MisconfigurationException

# the client has no public name; it is the service that `jax.distributed.initialize` starts
from ..utilities._jax_internals import global_state
from ._failure import FailureWatch

if TYPE_CHECKING:
    from ..utilities._jax_internals import Device

COORDINATOR, PROCESSES, PROCESS = "SYSTOLIC_COORDINATOR", "SYSTOLIC_PROCESSES", "SYSTOLIC_PROCESS"
"""The environment variables of a process that is one of several: where they meet, how many, and which one it is."""

# Python's errors take longer than that to reach nobody. JAX's default, 100 s, is longer than anybody watches a dead run;
# with much less, a host that compiles on all of its cores would be taken for dead.
_HEARTBEAT_SECONDS = 40
_ARRIVAL_SECONDS = 120


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


def join_processes(environment: Mapping[str, str] = os.environ) -> None:
    """Meet the other processes of the run, where the environment says that there are any.

    Must come before JAX's backend is started. On a single host nothing is started; a second call does nothing.

    Args:
        environment: where `SYSTOLIC_COORDINATOR` (host:port), `SYSTOLIC_PROCESSES` and `SYSTOLIC_PROCESS` are looked up.

    Raises:
        MisconfigurationException: only some of the variables are there, or they are no numbers.
    """
    told = {name: environment[name] for name in (COORDINATOR, PROCESSES, PROCESS) if environment.get(name)}
    if not told or jax.distributed.is_initialized():
        return
    if len(told) < 3 or not (told[PROCESSES].isdigit() and told[PROCESS].isdigit()):
        raise MisconfigurationException(
            f"A process of several is told so by three environment variables: {COORDINATOR} (host:port), {PROCESSES} (how "
            f"many) and {PROCESS} (which one, from 0). Received: {told}. Set all three, or none for a run of one process."
        )
    jax.distributed.initialize(
        coordinator_address=told[COORDINATOR],
        num_processes=int(told[PROCESSES]),
        process_id=int(told[PROCESS]),
        initialization_timeout=_ARRIVAL_SECONDS,
        heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
    )
    FailureWatch(global_state.client, int(told[PROCESS])).start()
