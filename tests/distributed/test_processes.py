"""Processes meet and agree: real ones, over the loopback interface."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed.processes import run_processes

from systolic import distributed
from systolic.exceptions import MisconfigurationException

HERE = Path(__file__).parent


def test_two_processes_meet_and_agree() -> None:
    seen = run_processes(HERE / "agreeing.py", 2, 4)
    assert [one.pop("index") for one in seen] == [0, 1]
    assert [one.pop("main") for one in seen] == [True, False]
    assert seen[0] == seen[1]
    assert seen[0] == {
        "count": 2,
        "local": 4,
        "devices": 8,
        "any": [True, False, True],
        "all": [False, True],
        "broadcast": [{"from": 0}, [1]],
        "gathered": [True, True],
        "own_rows": [1, 1, 1, 1],
    }


def test_one_process_agrees_with_itself_and_starts_nothing() -> None:
    distributed.join_processes({})
    assert distributed.process_count() == 1
    assert distributed.process_index() == 0
    assert distributed.is_main_process()
    assert distributed.agree(True, "all")
    assert not distributed.agree(False)
    assert distributed.broadcast("x") == "x"
    distributed.barrier()


@pytest.mark.parametrize(
    "told",
    [
        {"SYSTOLIC_PROCESS": "0"},
        {"SYSTOLIC_COORDINATOR": "a:1", "SYSTOLIC_PROCESSES": "2"},
        {"SYSTOLIC_COORDINATOR": "a:1", "SYSTOLIC_PROCESSES": "two", "SYSTOLIC_PROCESS": "0"},
    ],
)
def test_a_process_that_is_told_half_is_refused(told: dict[str, str]) -> None:
    with pytest.raises(MisconfigurationException, match="Set all three, or none"):
        distributed.join_processes(told)
