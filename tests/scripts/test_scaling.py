"""The page of docs/scaling.md is made of what the TPU compiler says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scaling", ROOT / "benchmarks" / "scaling.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["scaling"] = module
    spec.loader.exec_module(module)
    return module


# promise 21
@pytest.mark.slow
def test_a_row_for_each_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    scaling = script()
    monkeypatch.setattr(scaling, "LAYERS", 1)
    whole, split = rows = list(scaling.compiled(["v5litepod-8"]))
    assert (whole.strategy, split.strategy) == ("ddp", "fsdp")
    state = [row.report.memory.parameters + row.report.memory.optimizer_state for row in rows]
    assert state[1] < state[0] / 8 * 1.01
    lines = scaling.document(rows).splitlines()
    assert [line.split(" | ")[2] for line in lines if line.startswith("| v5litepod-8")] == ["ddp", "fsdp"]
    assert all(line.endswith(" 100% |") for line in lines if line.startswith("| v5litepod-8"))
