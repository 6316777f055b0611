"""Rates over a window."""

from __future__ import annotations

import pytest
from lightning.fabric.utilities.throughput import Throughput as Reference

from systolic.utilities.throughput import Throughput


@pytest.mark.parametrize("world_size", [1, 4])
def test_same_numbers_as_lightning(world_size: int) -> None:
    ours, reference = (make(available_flops=100.0, world_size=world_size, window_size=3) for make in (Throughput, Reference))
    for number in range(1, 8):
        for one in (ours, reference):
            one.update(time=number**1.5, batches=number, samples=8 * number, lengths=32 * number, flops=20 + number)
    assert ours.compute() == pytest.approx(reference.compute())


def test_no_rates_from_one_point() -> None:
    throughput = Throughput()
    throughput.update(time=1.0, batches=1, samples=2)
    assert throughput.compute() == {"time": 1.0, "batches": 1, "samples": 2}
    throughput.reset()
    throughput.update(time=0.5, batches=1, samples=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"time": 0.5}, "never decrease"),
        ({"batches": 0}, "never decrease"),
        ({"samples": 1, "batches": 2}, "never decrease|at least the number of batches"),
        ({"lengths": 3}, "at least the number of samples"),
    ],
)
def test_totals_that_make_no_sense(wrong: dict[str, float], message: str) -> None:
    throughput = Throughput()
    throughput.update(time=1.0, batches=1, samples=2)
    with pytest.raises(ValueError, match=message):
        throughput.update(**{"time": 2.0, "batches": 2, "samples": 4, **wrong})


def test_window_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="window_size >= 2"):
        Throughput(window_size=1)
