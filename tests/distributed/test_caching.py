"""Programs on disk, with several processes: each finds them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from distributed.processes import run_processes

SCRIPT = Path(__file__).with_name("caching.py")


def run(directory: Path, shared: bool) -> list[dict[str, Any]]:
    return run_processes(SCRIPT, 2, 2, str(directory), "shared" if shared else "own")


@pytest.fixture(autouse=True)
def every_program_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


# promise 23: X#5058, on every host of a pod
@pytest.mark.slow
@pytest.mark.parametrize(("shared", "steps_written"), [pytest.param(False, 2 + 2, marks=pytest.mark.tables), (True, 1 + 2)])
def test_a_second_start_compiles_no_step_in_any_process(shared: bool, steps_written: int, tmp_path: Path) -> None:
    """With a directory for each host as with one for all; a step of all processes is written once in each directory."""
    cold = run(tmp_path, shared)
    written = sorted(path.name for path in tmp_path.rglob("*-cache"))
    warm = run(tmp_path, shared)
    steps = [one["compiled"].count('"jit_step"') for one in (*cold, *warm)]
    assert steps == [2, 2 if not shared else steps[1], 0, 0]  # of `fit`, and of `predict`; a late process finds the first one's
    assert all(one["hits"] > 2 for one in warm)
    assert sum(name.startswith("jit_step-") for name in written) == steps_written
    assert sorted(path.name for path in tmp_path.rglob("*-cache")) == written
    assert all(one["weights"] == cold[0]["weights"] for one in (*cold, *warm))
