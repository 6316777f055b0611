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
    assert alone["rows"] == [*[64] * 22, 30] * 2
    assert first["rows"] == second["rows"] == [*[32] * 22, 30] * 2
    assert_each_reads_its_part(alone.pop("read"), first.pop("read"), second.pop("read"))
    assert first == second
    assert first["agreed"] == [False, True]
    assert first["sent"] == [{"from": 0}, 1]
    assert first["losses"] == pytest.approx(alone["losses"], rel=1e-4)
    assert first["mean_batch"] == pytest.approx(alone["mean_batch"])
    assert first["accuracy"] == pytest.approx(alone["accuracy"])
    assert first["weights"] == pytest.approx(alone["weights"], rel=1e-5, abs=1e-6)
    assert names(tmp_path / "two") == names(tmp_path / "one")


def assert_each_reads_its_part(whole: list[int], first: list[int], second: list[int]) -> None:
    """The order of one process's samples, of which each of two reads its half of every batch that they can share."""
    for epoch in range(2):
        order = whole[epoch * 1438 : (epoch + 1) * 1438]
        batches = [order[i : i + 64] for i in range(0, 1438, 64)]
        for own, half in ((first, slice(0, 32)), (second, slice(32, 64))):
            expected = [index for batch in batches[:-1] for index in batch[half]] + batches[-1]
            assert own[epoch * len(expected) : (epoch + 1) * len(expected)] == expected


def names(root: Path) -> list[str]:
    """The files below a directory; those of TensorBoard have the time and the process's id in their names."""
    return sorted(
        "events" if "tfevents" in path.name else str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()
    )
