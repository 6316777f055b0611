"""Hosts and processes are not the same: three processes on two hosts, and on one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from distributed.processes import free_port, run_processes

SCRIPT = Path(__file__).with_name("preparing.py")


def told(hosts: list[str]) -> list[dict[str, str]]:
    shared = {"SYSTOLIC_COORDINATOR": f"127.0.0.1:{free_port()}", "SYSTOLIC_PROCESSES": str(len(hosts))}
    return [
        shared | {"SYSTOLIC_PROCESS": str(index)} | ({"SYSTOLIC_HOST": host} if host else {})
        for index, host in enumerate(hosts)
    ]


@pytest.mark.parametrize(
    ("hosts", "per_node", "num_nodes", "places", "prepared"),
    [
        (["a", "b", "b"], True, 2, [[0, 0, 0, 2, 3], [1, 1, 0, 2, 3], [2, 1, 1, 2, 3]], [0, 1]),
        pytest.param(
            ["a", "b", "b"], False, 0, [[0, 0, 0, 2, 3], [1, 1, 0, 2, 3], [2, 1, 1, 2, 3]], [0], marks=pytest.mark.tables
        ),
        pytest.param(["", "", ""], True, 1, [[0, 0, 0, 1, 3], [1, 0, 1, 1, 3], [2, 0, 2, 1, 3]], [0], marks=pytest.mark.slow),
    ],
)
def test_hosts_with_several_processes(
    hosts: list[str], per_node: bool, num_nodes: int, places: list[list[int]], prepared: list[int], tmp_path: Path
) -> None:
    arguments = (str(tmp_path), "per node" if per_node else "once", str(num_nodes))
    found = run_processes(SCRIPT, 3, 1, *arguments, told=told(hosts))
    assert [one["place"] for one in found] == places
    for what in ("data", "module"):
        assert sorted(path.name for path in tmp_path.glob(f"{what} *")) == [f"{what} {process}" for process in prepared]


@pytest.mark.tables
def test_the_launcher_plays_hosts_with_several_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "systolic", "launch", "--processes", "3", "--processes-per-host", "2", "--"]
    run = subprocess.run(
        [*command, sys.executable, str(SCRIPT), str(tmp_path), "per node", "2"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    places = [json.loads(line[4:])["place"] for line in sorted(run.stdout.splitlines()) if '{"place"' in line]
    assert places == [[0, 0, 0, 2, 3], [1, 0, 1, 2, 3], [2, 1, 0, 2, 3]]
    assert sorted(path.name for path in tmp_path.glob("data *")) == ["data 0", "data 2"]


@pytest.mark.tables
def test_a_number_of_hosts_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="`num_nodes`. Expected 2: this run's 3 processes are on 2 hosts. Received: 3"):
        run_processes(SCRIPT, 3, 1, str(tmp_path), "per node", "3", told=told(["a", "b", "b"]))
