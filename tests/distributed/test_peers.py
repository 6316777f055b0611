"""Processes that a cluster starts find each other; one whose peers stay away ends with an error that says so."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from distributed.processes import free_port, run_processes

from systolic.distributed._arrived import arrived, is_connected
from systolic.distributed._peers import find_peers, require_sound_slices
from systolic.exceptions import MisconfigurationException

HERE = Path(__file__).parent
SLURM = {
    "SLURM_JOB_ID": "1",
    "SLURM_STEP_NODELIST": "127.0.0.1",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_NODES": "2",
}
OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://127.0.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}


def found(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], told: dict[str, str] | None = None) -> Any:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    peers = find_peers(told or {}, False, 5)
    return None if peers is None else (peers.coordinator, peers.processes, peers.process, peers.own_gpus, peers.told_by)


@pytest.mark.tables
@pytest.mark.parametrize(("variables", "index"), [(SLURM, "SLURM_PROCID"), (OPEN_MPI, "OMPI_COMM_WORLD_RANK")])
def test_processes_that_a_cluster_starts_meet(variables: dict[str, str], index: str) -> None:
    port = {"JAX_COORDINATOR_PORT": str(free_port())}
    told = [variables | port | {index: str(number)} for number in range(2)]
    seen = run_processes(HERE / "agreeing.py", 2, 2, told=told)
    assert [(one["index"], one["count"], one["local"], one["devices"]) for one in seen] == [(0, 2, 2, 4), (1, 2, 2, 4)]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (SLURM, ("127.0.0.1:61441", 2, 0, None, "Slurm")),
        # two on one host: a GPU for each
        (SLURM | {"SLURM_STEP_NUM_NODES": "1", "SLURM_LOCALID": "1"}, ("127.0.0.1:61441", 2, 0, [1], "Slurm")),
        # a step of four tasks in a job of eight
        (SLURM | {"SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "4"}, ("127.0.0.1:61441", 4, 0, [0], "Slurm")),
        (SLURM | {"SLURM_NTASKS": "1"}, None),
        (SLURM | {"SLURM_JOB_NAME": "bash"}, None),
        (OPEN_MPI, ("127.0.0.1:62624", 2, 0, None, "Open MPI")),
        (OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, ("127.0.0.1:62624", 2, 0, [0], "Open MPI")),
        (OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "1"}, None),
    ],
)
def test_what_clusters_say(variables: dict[str, str], expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, variables) == expected


def test_open_mpi_5_needs_to_be_told_where_to_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = {name: value for name, value in OPEN_MPI.items() if not name.startswith("OMPI_MCA")}
    with pytest.raises(MisconfigurationException, match="SYSTOLIC_COORDINATOR=HOST:PORT"):
        found(monkeypatch, newer)
    assert found(monkeypatch, newer, {"SYSTOLIC_COORDINATOR": "a:1"}) == ("a:1", 2, 0, None, "Open MPI")


def test_systolics_own_variables_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"SYSTOLIC_COORDINATOR": "a:1", "SYSTOLIC_PROCESSES": "3", "SYSTOLIC_PROCESS": "2"}
    assert found(monkeypatch, SLURM, own) == ("a:1", 3, 2, None, "SYSTOLIC_COORDINATOR")


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("kind", "hosts", "expected"),
    [
        ("tpu", "localhost,other", {"coordinator": "localhost:8482", "processes": 2, "process": 1, "own_gpus": None}),
        ("tpu", "localhost", None),
        ("cpu", "localhost,other", None),  # a slice's hosts belong together for runs on TPUs alone
        # tpu7x: two processes on each of two hosts
        (
            "tpu",
            "localhost:8471,localhost:8472,other:8471,other:8472",
            {"coordinator": "localhost:8482", "processes": 4, "process": 1, "own_gpus": None},
        ),
    ],
)
def test_hosts_of_a_slice(kind: str, hosts: str, expected: Any) -> None:
    run = seen_on_a_slice(kind, hosts, ("1", "0", "") if "," in hosts else None)
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout.splitlines()[-1])
    assert seen == (None if expected is None else expected | {"told_by": "the hosts of the TPU slice"})


def seen_on_a_slice(kind: str, hosts: str, slices: tuple[str, str, str] | None) -> subprocess.CompletedProcess[str]:
    """What the process 1 of a slice finds; of several slices it is told how many, which one, and the coordinator."""
    variables = {"TPU_WORKER_ID": "1", "JAX_FORCE_TPU_INIT": "1", "JAX_PLATFORMS": "cpu"}
    variables["TPU_PROCESS_ADDRESSES" if ":" in hosts else "TPU_WORKER_HOSTNAMES"] = hosts
    names = ("MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR_ADDRESS")
    if slices is not None:
        variables |= dict(zip(names, slices, strict=True))
    return subprocess.run(
        [sys.executable, str(HERE / "peers_seen.py"), kind],
        env=os.environ | variables | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def waiting_in_vain(process: int, **more: str) -> subprocess.CompletedProcess[str]:
    """A process of two whose peer does not come."""
    told = {
        "SYSTOLIC_COORDINATOR": f"127.0.0.1:{free_port()}",
        "SYSTOLIC_PROCESSES": "2",
        "SYSTOLIC_PROCESS": str(process),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return subprocess.run(
        [sys.executable, str(HERE / "arriving.py"), "3"],
        env=os.environ | told | more,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


# promise 25: J#22436, a process of a pod that was started alone says what is missing
@pytest.mark.thin(2)
@pytest.mark.parametrize("process", [0, 1])
def test_a_process_whose_peers_stay_away_ends_with_an_error(process: int) -> None:
    run = waiting_in_vain(process)
    assert run.returncode == 1, run.stderr
    assert f"process {process} of 2 (told by SYSTOLIC_COORDINATOR) waits at 127.0.0.1" in run.stderr
    assert "waited 3 seconds" in run.stderr
    assert "Expected: 2 processes" in run.stderr
    assert ("Came: 0 of the 1 others." if process == 0 else "The message of process 0 says who came.") in run.stderr
    assert "Check failure" not in run.stderr


def arriving(numbers: Iterable[int], processes: int, seconds: int = 30) -> list[subprocess.Popen[str]]:
    """Some processes of a run, each of which waits so many seconds for the others."""
    told = {"SYSTOLIC_PROCESSES": str(processes), "PYTHONPATH": os.pathsep.join(sys.path)}
    where = f"127.0.0.1:{free_port()}"
    return [
        subprocess.Popen(
            [sys.executable, str(HERE / "arriving.py"), str(seconds)],
            env=os.environ | told | {"SYSTOLIC_COORDINATOR": where, "SYSTOLIC_PROCESS": str(number)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in numbers
    ]


@pytest.mark.tables
def test_who_came_is_named() -> None:
    """Two of the three others come; all three wait long enough for each other to have started."""
    started = arriving((0, 1, 3), 4)
    said = [process.communicate(timeout=300)[1] for process in started]
    assert [process.returncode for process in started] == [1, 1, 1], said
    assert "Came: 2 of the 3 others: 127.0.0.1 (2 processes)." in said[0], said[0]


@pytest.mark.slow
@pytest.mark.parametrize("killed", [pytest.param(0, marks=pytest.mark.tables), 1])
def test_one_that_dies_before_all_have_met_ends_the_others_within_a_minute(killed: int) -> None:
    """Three of four have come when one of them is killed; the others would wait for the fourth for ten minutes."""
    started = arriving(range(3), 4, 600)
    for process in started:
        assert process.stderr is not None
        process.stderr.readline()  # it waits for the others
    started[killed].kill()
    limit = time.monotonic() + 60
    others = [process for number, process in enumerate(started) if number != killed]
    said = [process.communicate(timeout=limit - time.monotonic())[1] for process in others]
    started[killed].communicate()
    assert [process.returncode for process in others] == [1, 1], said
    if killed:
        assert "of those that had come 127.0.0.1 left before all were there" in said[0]
    assert all("process 0 of this run is gone" in text for text in said[1 if killed else 0 :]), said


def test_connections_are_read_from_the_systems_table() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        taken, _ = server.accept()
        assert arrived(server.getsockname()[1]) == {}
        assert is_connected(server.getsockname()[1])
        assert not is_connected(ours.getsockname()[1] - 1)
        child = subprocess.Popen(
            [sys.executable, "-c", f"import socket; s = socket.create_connection({server.getsockname()!r}); s.recv(1)"]
        )
        other, _ = server.accept()
        assert arrived(server.getsockname()[1]) == {"127.0.0.1": 1}
        for one in (other, taken, ours):
            one.close()
        child.wait(60)


@pytest.mark.parametrize(
    "told",
    [
        {"NUM_SLICES": "2", "SLICE_ID": "0"},
        {"NUM_SLICES": "2", "SLICE_ID": "2", "COORDINATOR_ADDRESS": "a:1"},
        {"COORDINATOR_ADDRESS": "a:1"},
    ],
)
def test_variables_that_an_earlier_job_has_left_are_refused(told: dict[str, str]) -> None:
    with pytest.raises(MisconfigurationException, match="unset all variables that begin with MEGASCALE_"):
        require_sound_slices({f"MEGASCALE_{name}": value for name, value in told.items()})
    require_sound_slices({})
    require_sound_slices({"MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1", "MEGASCALE_COORDINATOR_ADDRESS": "a:1"})


@pytest.mark.tables
def test_a_coordinator_that_is_gone_is_named_with_the_variables_that_told_of_it() -> None:
    run = seen_on_a_slice("tpu", "localhost,other", ("2", "0", "gone.invalid:8080"))
    assert run.returncode == 1, run.stdout
    assert "systolic: looks for the host of process 0 for" in run.stderr
    assert "Failed to recognize coordinator address gone.invalid" in run.stderr
    expected = (
        "It was told of several slices by MEGASCALE_COORDINATOR_ADDRESS=gone.invalid:8080, MEGASCALE_NUM_SLICES=2, "
        "MEGASCALE_SLICE_ID=0. If an earlier job has left these, unset them."
    )
    assert expected in run.stderr.splitlines()[-1]


def test_a_wait_for_slices_names_the_variables_that_told_of_them() -> None:
    run = waiting_in_vain(0, MEGASCALE_NUM_SLICES="7")
    assert run.returncode == 1, run.stderr
    assert "told of several slices by MEGASCALE_NUM_SLICES=7. If an earlier job has left these, unset them." in run.stderr
