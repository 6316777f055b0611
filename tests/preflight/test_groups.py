"""Groups of cores: the axes of the mesh that they lie along, the links that they use, and where libtpu puts cores."""

from __future__ import annotations

import pytest

from systolic.preflight import parse_slice
from systolic.preflight._collectives import collectives_of
from systolic.preflight._groups import axis_of, axis_within, between_slices, chip_place, group_of
from systolic.preflight._hlo import analyse
from systolic.preflight._hlo_groups import groups_of
from systolic.preflight._links import collective_seconds
from systolic.sharding import MeshShape

MIB = 2**20
EIGHT, TWO = parse_slice("v5litepod-8"), parse_slice("2x v5litepod-8")
CUBE = MeshShape(data=2, fsdp=2, tensor=2)


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("replica_groups={{0,1},{2,3},{4,5},{6,7}},", "tensor"),
        ("replica_groups=mesh['axis_0'=4,'axis_1'=1,'axis_2'=2] {'axis_2'}", "tensor"),
        ("replica_groups=[4,2]<=[2,2,2]T(0,2,1),", "fsdp"),
        ("replica_groups={{0,4},{1,5},{2,6},{3,7}}", "data"),
        ("replica_groups=[2,4]<=[4,2]T(1,0), dimensions={0}", "data x fsdp"),
        ("replica_groups=mesh['a'=4,'b'=2] {'a'}", "data x fsdp"),
        ("replica_groups=[1,8]<=[8]", "data x fsdp x tensor"),
        ("replica_groups={{0,3},{1,2},{4,7},{5,6}}", None),
    ],
)
def test_groups_lie_along_axes_of_the_mesh(text: str, axis: str | None) -> None:
    assert axis_of(EIGHT, CUBE, groups_of(text)) == axis


def test_a_permutation_stays_within_an_axis() -> None:
    assert axis_within(EIGHT, CUBE, groups_of("source_target_pairs={{0,1},{1,0},{2,3},{3,2}}")) == "tensor"
    assert axis_within(EIGHT, CUBE, groups_of("source_target_pairs={{0,4},{4,0}}")) == "data"


def test_without_a_strategy_all_lie_along_the_axis_of_the_data() -> None:
    assert axis_of(EIGHT, None, groups_of("replica_groups=[1,8]<=[8]")) == "data"
    # the part of a group that lies in a slice: the program of each slice names its own cores
    assert axis_of(TWO, None, groups_of("replica_groups=[1,8]<=[8]")) == "data"
    assert axis_of(TWO, MeshShape(data=2, fsdp=8), groups_of("replica_groups=[1,8]<=[8]")) == "fsdp"


def test_neighbours_use_their_own_links_and_others_share() -> None:
    # 2 x 4 chips, numbered in blocks of 2 x 2; an axis that is not closed has the bandwidth of one link
    link, hop = 50e9, 1e-6
    pair, far = group_of(EIGHT, (0, 1)), group_of(EIGHT, (0, 4))
    assert collective_seconds(EIGHT, "all-gather", MIB, pair) == pytest.approx(MIB / 2 / link + hop)
    # three chips in a row, of which two take part: one and a half groups go over the links between them
    assert collective_seconds(EIGHT, "all-gather", MIB, far) == pytest.approx(MIB / 2 * 1.5 / link + 2 * hop)
    every = group_of(EIGHT, tuple(range(8)))
    assert collective_seconds(EIGHT, "all-reduce", MIB, every) == collective_seconds(EIGHT, "all-reduce", MIB)
    assert collective_seconds(EIGHT, "collective-permute", MIB, pair) == pytest.approx(MIB / link + hop)


def test_cores_of_one_chip_need_no_link() -> None:
    three = parse_slice("v3-8")
    assert collective_seconds(three, "all-reduce", MIB, group_of(three, (0, 1))) == 0
    assert group_of(three, (0, 2)).sharing == 2, "the other cores of these chips use the same link"


def test_each_core_of_a_slice_with_its_like_in_the_other() -> None:
    # eight groups of two cores, over the network of one host of a slice
    found = collective_seconds(TWO, "all-reduce", MIB, between_slices(TWO, 2))
    assert found == pytest.approx(2 * MIB / 2 * 8 / 25e9)
    assert found == collective_seconds(TWO, "all-reduce", MIB, group_of(TWO, (3, 11)))


@pytest.mark.parametrize(
    "name",
    [
        "v2-32",
        "v3-8",
        "v3-128",
        "v4-32",
        "v5litepod-1",
        "v5litepod-8",
        "v5litepod-64",
        "v5p-128",
        "v6e-8",
        "tpu7x-8",
        "2x v6e-8",
    ],
)
def test_cores_lie_where_libtpu_puts_them(name: str) -> None:
    pytest.importorskip("libtpu")
    from systolic.preflight import slice_devices

    slice = parse_slice(name)
    devices, own = slice_devices(slice), slice.devices // slice.count
    ours = [(*chip_place(slice, core % own), 0)[:3] for core in range(slice.devices)]
    assert ours == [tuple(device.coords) for device in devices]
    assert len({device.process_index for device in devices}) == slice.hosts


BETWEEN = """HloModule step

ENTRY %main (x: f32[1024]) -> f32[1024] {
  %x = f32[1024]{0} parameter(0)
  %after = token[] after-all()
  %sent = (f32[1024]{0}, u32[], token[]) send(%x, %after), channel_id=3, is_host_transfer=true, frontend_attributes={RUNTIME}
  %got = (f32[1024]{0}, u32[], token[]) recv(%after), channel_id=2, is_host_transfer=true, frontend_attributes={RUNTIME}
  %s = token[] send-done(%sent), channel_id=3, is_host_transfer=true, frontend_attributes={HANDLER}
  %g = (f32[1024]{0}, token[]) recv-done(%got), channel_id=2, is_host_transfer=true, frontend_attributes={HANDLER}
  ROOT %out = f32[1024]{0} get-tuple-element(%g), index=0
}
"""
HANDLER = '_xla_host_transfer_handler_name="xla_megascale_runtime"'
RUNTIME = f'{HANDLER},_xla_megascale_target="{{1,2}}x{{0:7}}",_xla_megascale_transfer_type="ALL_REDUCE"'


def test_exchanges_between_slices_are_collectives_and_no_transfers_to_the_host() -> None:
    found = analyse(BETWEEN.replace("RUNTIME", RUNTIME).replace("HANDLER", HANDLER))
    [one] = collectives_of(found, TWO, MeshShape(data=2, fsdp=8))
    assert (one.kind, one.axis, one.slices, one.bytes, one.hidden) == ("all-reduce", "data", 2, 4096, True)
    assert not found.operations
