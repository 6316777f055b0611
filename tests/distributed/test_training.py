"""The same script on one process of eight cores and on two of four: the same training, and one set of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed.processes import run_processes

HERE = Path(__file__).parent


# promise 18: L#8358, several processes train as one
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    (alone,) = run_processes(HERE / "training.py", 1, 8, str(tmp_path / "one"))
    first, second = run_processes(HERE / "training.py", 2, 4, str(tmp_path / "two"), "several")
    assert alone["devices"] == first["devices"] == 8
    assert [first.pop("process"), second.pop("process")] == [0, 1]
    assert first == second
    assert first["agreed"] == [False, True]
    assert first["sent"] == [{"from": 0}, 1]
    assert first["losses"] == pytest.approx(alone["losses"], rel=1e-4)
    assert first["accuracy"] == pytest.approx(alone["accuracy"])
    assert first["weights"] == pytest.approx(alone["weights"], rel=1e-5, abs=1e-6)
    assert names(tmp_path / "two") == names(tmp_path / "one")


def names(root: Path) -> list[str]:
    """The files below a directory; those of TensorBoard have the time and the process's id in their names."""
    return sorted(
        "events" if "tfevents" in path.name else str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()
    )
