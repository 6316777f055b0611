"""Names of slices."""

from __future__ import annotations

import pytest

from systolic.preflight import parse_slice, slice_devices, slice_names

# name: topology, chips, TensorCores, devices that JAX shows, hosts
KNOWN = {
    "v2-8": ("v2:2x2", 4, 8, 8, 1),
    "v3-8": ("v3:2x2", 4, 8, 8, 1),
    "v3-2048": ("v3:32x32", 1024, 2048, 2048, 256),
    "v4-8": ("v4:2x2x1", 4, 8, 4, 1),
    "v4-128": ("v4:4x4x4", 64, 128, 64, 16),
    "v5litepod-1": ("v5e:1x1", 1, 1, 1, 1),
    "v5litepod-4": ("v5e:2x2", 4, 4, 4, 1),
    "v5litepod-8": ("v5e:2x4", 8, 8, 8, 1),
    "v5litepod-16": ("v5e:4x4", 16, 16, 16, 4),
    "v5litepod-256": ("v5e:16x16", 256, 256, 256, 64),
    "v5p-8": ("v5p:2x2x1", 4, 8, 4, 1),
    "v5p-128": ("v5p:4x4x4", 64, 128, 64, 16),
    "v5p-2048": ("v5p:8x8x16", 1024, 2048, 1024, 256),
    "v6e-1": ("v6e:1x1", 1, 1, 1, 1),
    "v6e-4": ("v6e:2x2", 4, 4, 4, 1),
    "v6e-8": ("v6e:2x4", 8, 8, 8, 1),
    "v6e-256": ("v6e:16x16", 256, 256, 256, 64),
    "tpu7x-8": ("tpu7x:2x2x1", 4, 8, 8, 1),
    "tpu7x-64": ("tpu7x:2x4x4", 32, 64, 64, 8),
}


@pytest.mark.parametrize("name", KNOWN)
def test_an_accelerator_type_counts_what_google_counts(name: str) -> None:
    one = parse_slice(name)
    assert (one.topology, one.chips, one.tensor_cores, one.devices, one.hosts) == KNOWN[name]
    assert one.name == name


@pytest.mark.parametrize("name", sorted(set(slice_names())))
def test_every_name_means_itself_and_the_compiler_knows_it(name: str) -> None:
    pytest.importorskip("libtpu")
    one = parse_slice(name)
    assert one.name == name
    assert len(slice_devices(one)) == one.devices


@pytest.mark.parametrize(
    ("name", "same"),
    [("v5e:2x4", "v5litepod-8"), ("V5E-8", "v5litepod-8"), (" v4:2x2x1 ", "v4-8"), ("v4:2x2", "v4-8"), ("v7x-8", "tpu7x-8")],
)
def test_other_spellings(name: str, same: str) -> None:
    assert parse_slice(name) == parse_slice(same)


def test_a_shape_without_a_name_is_spelled_as_a_topology() -> None:
    assert parse_slice("v5e:2x8").name == "v5e:2x8"


@pytest.mark.parametrize("name", ["2x v5litepod-256", "2xv5litepod-256", "2 x v5e:16x16"])
def test_several_slices(name: str) -> None:
    one = parse_slice(name)
    assert (one.count, one.chips, one.devices, one.hosts) == (2, 512, 512, 128)
    assert one.name == "2x v5litepod-256"
    pytest.importorskip("libtpu")
    assert len(slice_devices(one)) == 512


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("v5litepod-7", "'v5litepod-8'"),
        ("v5lightpod-8", "'v5litepod-8'"),
        ("v4-7", "'v4-8'"),
        ("tpuv5p-8", "'v5p-8'"),
        ("v3-0", "'v3-8'"),
        ("", "v5litepod-N"),
        ("v5e:0x4", "v5litepod-4"),
        ("v4:2x2x2x2", "v4-16"),
    ],
)
def test_an_unknown_slice_names_near_ones(name: str, near: str) -> None:
    with pytest.raises(ValueError, match="Unknown slice") as caught:
        parse_slice(name)
    assert near in str(caught.value)


def test_a_shape_that_cannot_be_connected() -> None:
    pytest.importorskip("libtpu")
    with pytest.raises(ValueError, match="knows no topology"):
        slice_devices(parse_slice("v5e:17x3"))
