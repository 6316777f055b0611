"""Links and times, by hand."""

from __future__ import annotations

import pytest

from systolic.preflight import parse_slice
from systolic.preflight._links import collective_seconds

MIB = 2**20


def test_one_chip_sends_nothing() -> None:
    assert collective_seconds(parse_slice("v5litepod-1"), "all-reduce", MIB) == 0
    # two cores of one chip share its memory; links are not used
    assert collective_seconds(parse_slice("tpu7x-2"), "all-reduce", MIB) == 0


def test_a_ring_of_all_links_of_a_small_slice() -> None:
    # 2 x 4 chips without wraparound: two axes of 50 GB/s, and 1 + 3 hops each way
    expected = 2 * MIB * (7 / 8) / (2 * 50e9) + 2 * 4 * 1e-6
    assert collective_seconds(parse_slice("v5litepod-8"), "all-reduce", MIB) == pytest.approx(expected)


def test_an_axis_that_is_closed_has_both_directions() -> None:
    expected = MIB * (255 / 256) / (2 * 2 * 50e9) + 2 * 8 * 1e-6
    assert collective_seconds(parse_slice("v5litepod-256"), "all-gather", MIB) == pytest.approx(expected)


def test_between_slices_the_network_decides() -> None:
    one, two = parse_slice("v5litepod-256"), parse_slice("2x v5litepod-256")
    between = collective_seconds(two, "all-reduce", MIB) - collective_seconds(one, "all-reduce", MIB)
    assert between == pytest.approx(2 * MIB / 2 / (64 * 25e9))


@pytest.mark.parametrize("name", ["v3-8", "v4-8", "v5litepod-8", "v5p-8", "v6e-8", "tpu7x-8"])
def test_the_clock_follows_from_peak_and_matrix_units(name: str) -> None:
    chip = parse_slice(name).chip
    per_cycle = chip.peak_flops / chip.clock_hz
    units = per_cycle / (2 * chip.mxu**2)
    assert units == pytest.approx(round(units), rel=0.01)
    assert round(units) % chip.tensor_cores == 0
