"""Two processes go back to one checkpoint, after the same batch, and train on as one process does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from distributed.processes import run_processes

SCRIPT = Path(__file__).parent / "rewinding.py"


@pytest.mark.tables
def test_processes_go_back_together(tmp_path: Path) -> None:
    (alone,) = run_processes(SCRIPT, 1, 4, str(tmp_path / "one"))
    first, second = run_processes(SCRIPT, 2, 2, str(tmp_path / "two"), "several")
    assert [one.pop("process") for one in (alone, first, second)] == [0, 0, 1]
    assert [one.pop("told") for one in (alone, first, second)] == [1, 1, 0]  # the first one talks
    assert first == second
    assert (first["rewinds"], first["bad_batches"], first["steps"]) == (1, [5], 3 * 8 - 1)
    assert first["weights"] == pytest.approx(alone["weights"], rel=1e-5)
    assert first["loss"] == pytest.approx(alone["loss"], rel=1e-5)
    assert json.loads((tmp_path / "two/skip_batches.json").read_text()) == [5]
