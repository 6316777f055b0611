"""Ways to run: slices of a range, and divisions of a global batch."""

from __future__ import annotations

import pytest

from systolic.exceptions import MisconfigurationException
from systolic.preflight import Cell, parse_slice, slice_names, slices_in
from systolic.preflight.planning._space import cells


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "v5litepod-8..v5litepod-256",
            ["v5litepod-8", "v5litepod-16", "v5litepod-32", "v5litepod-64", "v5litepod-128", "v5litepod-256"],
        ),
        ("v5litepod-1..v5litepod-8", ["v5litepod-1", "v5litepod-4", "v5litepod-8"]),
        ("v6e-8..v6e-64,v4-8", ["v6e-8", "v6e-16", "v6e-32", "v6e-64", "v4-8"]),
        ("v4-8..v4-8", ["v4-8"]),
        ("v6e-4,v6e-4..v6e-8", ["v6e-4", "v6e-8"]),
        ("v5e:2x4..v5e:4x4", ["v5litepod-8", "v5litepod-16"]),
        ("2x v5litepod-8..2x v5litepod-16", ["2x v5litepod-8", "2x v5litepod-16"]),
    ],
)
def test_ranges_have_the_slices_with_a_name_that_double(text: str, names: list[str]) -> None:
    assert [slice.name for slice in slices_in(text)] == names


def test_sizes_between_powers_of_two_are_left_out() -> None:
    assert "v4-384" in slice_names()  # 4 x 4 x 12 chips
    assert [slice.chips for slice in slices_in("v4-8..v4-512")] == [4, 8, 16, 32, 64, 128, 256]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("v5litepod-9", "Did you mean"),
        ("v5litepod-8..v5litepod-100", "Unknown slice 'v5litepod-100'"),
        ("v5litepod-64..v5litepod-8", "the smaller one first"),
        ("v5litepod-8..v6e-64", "two slices of one generation"),
        ("v5litepod-8,", "Invalid value for --slices"),
        ("..v5litepod-8", "Invalid value for --slices"),
    ],
)
def test_mistakes_in_slices(text: str, says: str) -> None:
    with pytest.raises(MisconfigurationException, match=says):
        slices_in(text)


def test_batch_times_accumulation_times_cores_is_the_global_batch() -> None:
    slices, strategies, remats = slices_in("v5litepod-4..v5litepod-16"), ["ddp", "fsdp"], ["none", "full"]
    found = cells(slices, strategies, remats, 48)
    assert all(one.core_batch * one.accumulation * one.slice.devices == 48 for one in found)
    # 12 = 1 x 12, 2 x 6, 3 x 4, ...; 6; and 3
    assert len(found) == len(set(found)) == (6 + 4 + 2) * 2 * 2
    assert Cell(parse_slice("v5litepod-8"), "fsdp", "full", 2, 3) in found


def test_slices_over_which_the_batch_does_not_divide_are_left_out() -> None:
    found = cells(slices_in("v5litepod-4,v5litepod-8"), ["ddp"], ["none"], 4)
    assert {one.slice.name for one in found} == {"v5litepod-4"}
    with pytest.raises(MisconfigurationException, match=r"none of the slices: v5litepod-8 \(8\).* 96 would do"):
        cells(slices_in("v5litepod-8"), ["ddp"], ["none"], 100)


def test_one_core_has_nothing_to_divide() -> None:
    assert {one.strategy for one in cells(slices_in("v5litepod-1"), ["ddp", "fsdp"], ["none"], 4)} == {"ddp"}
