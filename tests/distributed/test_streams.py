"""Whatever a loader is, two processes train on the batches of one, evaluate exactly, and predict for a part each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from distributed.processes import run_processes

SCRIPT = Path(__file__).with_name("streams.py")
DIVIDES, PARTIAL, FEWER = 64, 61, 50

KINDS = [
    pytest.param("stream", PARTIAL),
    *(
        pytest.param(kind, count, marks=pytest.mark.tables(every=6))
        for kind, count in [
            ("stream", DIVIDES),
            ("stream", 3),
            ("stream of workers", PARTIAL),
            ("dropping stream", FEWER),
            ("stream of joined batches", FEWER),
            ("batches", FEWER),
            ("batch sampler", PARTIAL),
            ("dropping", PARTIAL),
            ("rows", PARTIAL),
            ("rows", 1),
            ("own streams", DIVIDES),
            ("own streams", PARTIAL),
        ]
    ),
]


# promise 18: iterable datasets and counts that do not divide, in several processes
@pytest.mark.parametrize(("kind", "count"), KINDS)
def test_two_processes_do_what_one_does(kind: str, count: int, tmp_path: Path) -> None:
    require_alike(kind, count, tmp_path)


# promise 11: L#18176, more than 2**15 samples in several processes
@pytest.mark.slow
def test_large_datasets(tmp_path: Path) -> None:
    require_alike("large rows", 2**15 + 1001, tmp_path)


def require_alike(kind: str, count: int, tmp_path: Path) -> None:
    """One process of eight cores and two of four come to the same."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    [alone] = run_processes(SCRIPT, 1, 8, str(tmp_path / "one"), kind, str(count))
    found = run_processes(SCRIPT, 2, 4, str(tmp_path / "two"), kind, str(count))
    for one in found:
        assert one["losses"] == pytest.approx(alone["losses"], rel=1e-4)
        assert one["weights"] == pytest.approx(alone["weights"], rel=1e-5)
        assert one["total"] == pytest.approx(alone["total"], rel=1e-5)
        assert one["mean"] == pytest.approx(alone["mean"], rel=1e-5)
    together = sorted(value for one in found for batch in one["predictions"] for value in batch)
    # of sums that nearly cancel the rounding of their parts remains
    assert together == pytest.approx(sorted(value for batch in alone["predictions"] for value in batch), rel=1e-4, abs=1e-6)
    sizes = [sum(one["sizes"]) for one in found]
    assert sum(sizes) == sum(alone["sizes"])
    assert max(sizes) - min(sizes) <= (8 if kind != "batches" else 16)
    require_written(tmp_path / "two", found, kind)


def require_written(directory: Path, found: list[dict[str, Any]], kind: str) -> None:
    """Each process wrote its part, with the samples that it is of."""
    for process, one in enumerate(found):
        indices, predictions = torch.load(directory / f"{process}-all.pt")
        assert [p["y"].flatten().tolist() for p in predictions] == one["predictions"]
        for number, prediction in enumerate(predictions):
            own, written = torch.load(directory / f"{process}-{number}.pt")
            assert torch.equal(written["y"], prediction["y"])
            if kind in ("batch sampler", "dropping", "rows", "large rows"):
                assert own == indices[0][number]
                assert len(own) == prediction["n"]
    if kind in ("batch sampler", "dropping", "rows", "large rows"):
        every = sorted(i for p in range(2) for b in torch.load(directory / f"{p}-all.pt")[0] for part in b for i in part)
        assert every == list(range(sum(sum(one["sizes"]) for one in found)))
