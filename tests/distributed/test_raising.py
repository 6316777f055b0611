"""A step that raises for the values of a batch which no process has as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed.processes import run_processes

SCRIPT = Path(__file__).with_name("raising.py")


@pytest.mark.thin(3)
@pytest.mark.parametrize("bad", [0, 7, 11])
def test_two_processes_raise_as_one(bad: int) -> None:
    (alone,) = run_processes(SCRIPT, 1, 8, str(bad))
    first, second = run_processes(SCRIPT, 2, 4, str(bad), "several")
    assert alone["devices"] == first["devices"] == 8
    assert alone["error"].startswith(f"a label of batch {bad}; This happened in the step with batch_idx {bad}")
    assert first["error"] == second["error"] == alone["error"]
    assert first["weights"] == second["weights"] == pytest.approx(alone["weights"], rel=1e-5)
