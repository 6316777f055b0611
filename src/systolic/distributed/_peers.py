"""Detection of the other processes of a run: whoever started them tells each where they meet, how many, and which one it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from ..exceptions import MisconfigurationException
from ..utilities._jax_internals import GceTpuCluster, GkeTpuCluster, OmpiCluster, SlurmCluster

COORDINATOR, PROCESSES, PROCESS = "SYSTOLIC_COORDINATOR", "SYSTOLIC_PROCESSES", "SYSTOLIC_PROCESS"
"""The environment variables of a process that is one of several: where they meet, how many, and which one it is."""

# Slurm's names for shells that somebody types into: a script that is started there is one process, however many tasks the
# allocation could have
_INTERACTIVE = ("bash", "interactive")

_SECONDS_OF_SILENCE = 10

_TPU_CLUSTERS = (GkeTpuCluster, GceTpuCluster)


@dataclass(frozen=True)
class Peers:
    """The processes of a run.

    Attributes:
        coordinator: host:port of process 0, where all meet.
        processes: how many there are.
        process: which one this is, from 0.
        own_gpus: the GPUs of this host that this process drives; None for all of them.
        told_by: who said so.
    """

    coordinator: str
    processes: int
    process: int
    own_gpus: list[int] | None
    told_by: str

    @property
    def host(self) -> str:
        """Name or address of the host of process 0."""
        return self.coordinator.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port at which process 0 listens there."""
        return int(self.coordinator.rpartition(":")[2])


def find_peers(environment: Mapping[str, str], on_tpu: bool, seconds: int) -> Peers | None:
    """The processes of the run that this process belongs to; None for a run of one process.

    Variables of systolic's own come first, then Open MPI, Slurm and the hosts of a TPU slice, as JAX detects them.

    Args:
        environment: where systolic's own variables are looked up.
        on_tpu: whether the run may be one on TPUs: the hosts of a slice belong together for it alone.
        seconds: how long to look for the host of process 0 by its name.

    Raises:
        MisconfigurationException: what was told is not enough.
    """
    peers = _told(environment) or _of_open_mpi(environment, seconds) or _of_slurm(seconds)
    return peers if peers is not None or not on_tpu else _of_slice(seconds)


def _told(environment: Mapping[str, str]) -> Peers | None:
    told = {name: environment[name] for name in (COORDINATOR, PROCESSES, PROCESS) if environment.get(name)}
    if not told or (set(told) == {COORDINATOR} and _mpi_processes() > 1):
        return None
    if len(told) < 3 or not (told[PROCESSES].isdigit() and told[PROCESS].isdigit()):
        raise MisconfigurationException(
            f"A process of several is told so by three environment variables: {COORDINATOR} (host:port), {PROCESSES} (how "
            f"many) and {PROCESS} (which one, from 0). Received: {told}. Set all three, or none for a run of one process."
        )
    return Peers(told[COORDINATOR], int(told[PROCESSES]), int(told[PROCESS]), None, COORDINATOR)


def _mpi_processes() -> int:
    return int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))


def _of_open_mpi(environment: Mapping[str, str], seconds: int) -> Peers | None:
    processes = _mpi_processes()
    if processes == 1:
        return None
    coordinator = environment.get(COORDINATOR)
    if not coordinator and not OmpiCluster.is_env_present():
        raise MisconfigurationException(
            f"Open MPI started {processes} processes, and since its version 5 does not tell where they can meet. Expected: "
            f"{COORDINATOR}=HOST:PORT, the host of process 0 and any free port. Received: nothing. Start them with "
            f"`mpirun -x {COORDINATOR}=HOST:PORT ...`."
        )
    local = int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]), int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", "1"))
    where = coordinator or OmpiCluster.get_coordinator_address(seconds, _port())
    return Peers(where, processes, int(os.environ["OMPI_COMM_WORLD_RANK"]), _gpus_of(*local), "Open MPI")


def _of_slurm(seconds: int) -> Peers | None:
    if not SlurmCluster.is_env_present() or os.environ.get("SLURM_JOB_NAME") in _INTERACTIVE:
        return None
    # of the step: a job may start a step of fewer tasks than it has, which would wait for the others for ever
    processes = int(os.environ.get("SLURM_STEP_NUM_TASKS", SlurmCluster.get_process_count()))
    if processes == 1:
        return None
    on_each = -(-processes // int(os.environ.get("SLURM_STEP_NUM_NODES", "1")))
    where = SlurmCluster.get_coordinator_address(seconds, _port())
    own = _gpus_of(int(os.environ["SLURM_LOCALID"]), on_each)
    return Peers(where, processes, SlurmCluster.get_process_id(), own, "Slurm")


def _of_slice(seconds: int) -> Peers | None:
    hosts = os.environ.get("TPU_PROCESS_ADDRESSES") or os.environ.get("TPU_WORKER_HOSTNAMES")
    if hosts and "," not in hosts and "MEGASCALE_NUM_SLICES" not in os.environ:
        return None  # JAX would ask a metadata server about further slices, for minutes where there is none
    require_sound_slices(os.environ)
    cluster = next((c for c in _TPU_CLUSTERS if c.is_env_present()), None)
    processes = (
        1 if cluster is None else cluster.get_process_count()
    )  # on a TPU VM each of these questions goes over the network
    if cluster is None or processes == 1:
        return None
    return Peers(_coordinator_of(cluster, seconds), processes, cluster.get_process_id(), None, "the hosts of the TPU slice")


def _coordinator_of(cluster: type[GkeTpuCluster | GceTpuCluster], seconds: int) -> str:
    """The place where the processes of a slice meet; JAX looks for that host by its name, and says nothing meanwhile."""
    silent = min(_SECONDS_OF_SILENCE, seconds // 2)
    try:
        return cluster.get_coordinator_address(silent, _port())
    except RuntimeError as error:
        sys.stderr.write(f"systolic: looks for the host of process 0 for {seconds - silent} seconds more. {error}.\n")
    try:
        return cluster.get_coordinator_address(seconds - silent, _port())
    except RuntimeError as error:
        raise MisconfigurationException(
            f"Nobody knows the host of process 0 by its name: {error}. Expected: the name of a host that runs. "
            f"Start the script on all hosts of the slice. {told_of_slices(os.environ)}"
        ) from error


def told_of_slices(environment: Mapping[str, str]) -> str:
    """A sentence about variables that an earlier job may have left: whoever obeys them waits for slices that are gone.

    Args:
        environment: where `MEGASCALE_*` are looked up.

    Returns:
        Nothing where there are none.
    """
    told = sorted(name for name in environment if name.startswith("MEGASCALE_"))
    if not told:
        return ""
    values = ", ".join(f"{name}={environment[name]}" for name in told)
    return f"It was told of several slices by {values}. If an earlier job has left these, unset them."


def require_sound_slices(environment: Mapping[str, str]) -> None:
    """Refuse variables of several slices that contradict themselves, as where an earlier job has left some of them.

    Args:
        environment: where `MEGASCALE_*` are looked up.

    Raises:
        MisconfigurationException: they do.
    """
    told = {name: environment.get(f"MEGASCALE_{name}", "") for name in ("NUM_SLICES", "SLICE_ID", "COORDINATOR_ADDRESS")}
    if not any(told.values()) or told["NUM_SLICES"] in ("", "1") and not told["COORDINATOR_ADDRESS"]:
        return
    sound = told["NUM_SLICES"].isdigit() and told["SLICE_ID"].isdigit() and int(told["SLICE_ID"]) < int(told["NUM_SLICES"])
    if not sound or not told["COORDINATOR_ADDRESS"]:
        raise MisconfigurationException(
            "The variables of a run over several slices contradict themselves. Expected: MEGASCALE_NUM_SLICES, "
            "MEGASCALE_SLICE_ID from 0 to one less, and MEGASCALE_COORDINATOR_ADDRESS, or none of them. Received: "
            f"{', '.join(f'MEGASCALE_{name}={value!r}' for name, value in told.items())}. Where an earlier job has left them, "
            "unset all variables that begin with MEGASCALE_."
        )


def _port() -> str | None:
    return os.environ.get("JAX_COORDINATOR_PORT")  # JAX's own variable for it


def _gpus_of(local: int, processes: int) -> list[int] | None:
    """One process on a host drives all of its GPUs; several drive one each, as JAX has it."""
    return [local] if processes > 1 else None
