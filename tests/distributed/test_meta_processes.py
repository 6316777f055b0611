"""Two processes give a module of the meta device the values that it has on the CPU of the first one."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed.processes import run_processes

SCRIPT = Path(__file__).parent / "meta_values.py"


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_draw_the_same_values(strategy: str) -> None:
    first, second = run_processes(SCRIPT, 2, 2, "cpu", strategy, "2")
    meta = run_processes(SCRIPT, 2, 2, "meta", strategy, "2")
    assert first["losses"] == second["losses"]
    assert len(first["losses"]) == 32
    for one in meta:
        assert (one["losses"], one["weights"]) == (first["losses"], first["weights"])
        assert one["on_host"] < 0.02 * first["on_host"]  # the biases, which are too small to go alone
