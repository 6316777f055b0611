"""Programs on disk, with several processes: the first one writes them."""

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


@pytest.mark.tables
def test_the_first_process_alone_writes(tmp_path: Path) -> None:
    first, second = run(tmp_path, shared=False)
    assert first["written"] > 0
    assert second["written"] == 0
    assert '"jit_step"' in second["compiled"]


@pytest.mark.tables
def test_a_place_that_all_see(tmp_path: Path) -> None:
    """Of simulated cores JAX's keys tell the processes apart: it spares the first one, and does the other no harm."""
    cold = run(tmp_path, shared=True)
    warm = run(tmp_path, shared=True)
    assert '"jit_step"' in cold[0]["compiled"]
    assert warm[0]["hits"] > 0
    assert '"jit_step"' not in warm[0]["compiled"]
    assert warm[0]["written"] == cold[0]["written"] > 0
    assert all(one["weights"] == cold[0]["weights"] for one in (*cold, *warm))
