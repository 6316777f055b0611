"""Rules that split the whole state: which dimension, and what stays whole."""

from __future__ import annotations

import pytest
from jax.sharding import PartitionSpec as P

from systolic.exceptions import MisconfigurationException
from systolic.sharding import FullySharded, MeshShape, StateEntry, StateKind, shard_by_plan, without_fsdp

LARGE, SMALL = (64, 256), (16, 16)


def entry(shape: tuple[int, ...], kind: StateKind = "parameter", of: str = "layer.weight") -> StateEntry:
    return StateEntry(f"some.{of}", shape, kind, of if kind != "buffer" else "", shape if kind != "buffer" else ())


@pytest.mark.parametrize(
    ("shape", "kind", "expected"),
    [
        (LARGE, "parameter", P(None, "fsdp")),
        (LARGE, "gradient", P(None, "fsdp")),
        (LARGE, "optimizer", P(None, "fsdp")),
        (LARGE, "buffer", P()),
        (SMALL, "parameter", P()),
        ((4096,), "parameter", P("fsdp")),
        ((1001, 64), "parameter", P(None, "fsdp")),
        ((1001, 99), "parameter", P()),
        ((3, 3, 64, 128), "parameter", P(None, None, None, "fsdp")),
    ],
)
def test_the_largest_dimension_that_divides_is_split(shape: tuple[int, ...], kind: StateKind, expected: P) -> None:
    assert FullySharded(MeshShape(fsdp=8))(entry(shape, kind)) == expected


def test_parameters_may_stay_whole() -> None:
    rule = FullySharded(MeshShape(fsdp=8), kinds=("gradient", "optimizer"))
    assert rule(entry(LARGE)) == P()
    assert rule(entry(LARGE, "optimizer")) == P(None, "fsdp")


@pytest.mark.parametrize(
    ("style", "shape", "expected", "gathered"),
    [
        ("colwise", LARGE, P("tensor", "fsdp"), P("tensor", None)),
        ("rowwise", LARGE, P("fsdp", "tensor"), P(None, "tensor")),
        # no dimension is left that divides: both axes split the same one
        ("rowwise", (63, 256), P(None, ("tensor", "fsdp")), P(None, "tensor")),
        ("replicate", LARGE, P(None, "fsdp"), P(None, None)),
        (("fsdp", "tensor"), LARGE, P("fsdp", "tensor"), P(None, "tensor")),
    ],
)
def test_a_plan_comes_first(style: str | tuple[str, str], shape: tuple[int, ...], expected: P, gathered: P) -> None:
    rule = FullySharded(MeshShape(fsdp=4, tensor=2), shard_by_plan({"layer.weight": style}))
    assert rule(entry(shape)) == expected
    assert without_fsdp(expected) == gathered


def test_patterns_fit_one_part_of_a_name_each() -> None:
    rule = shard_by_plan({"net.layers.*.up": "colwise", "net.layers.*.down": "rowwise"}, frozenset({"net.layers.1.up.weight"}))
    assert rule(entry(LARGE, of="net.layers.0.up.weight")) == P("tensor")
    assert rule(entry((256,), of="net.layers.0.up.bias")) == P("tensor")
    assert rule(entry((256,), of="net.layers.0.down.bias")) == P()
    assert rule(entry(LARGE, of="net.layers.1.up.weight")) == P(None, "tensor"), "[in, out]"
    assert rule(entry(LARGE, of="net.layers.0.inner.up.weight")) == P()


def test_the_axes_of_a_mesh_make_up_the_devices() -> None:
    assert MeshShape(data=2, fsdp=-1, tensor=2).filled(8) == MeshShape(2, 2, 2)
    with pytest.raises(ValueError, match="makes 3 devices or a multiple of them, and the run has 8"):
        MeshShape(fsdp=3).filled(8)
    with pytest.raises(ValueError, match="one of them may be -1"):
        MeshShape(data=-1, fsdp=-1).filled(8)


def test_unknown_styles_and_axes_are_refused() -> None:
    with pytest.raises(
        MisconfigurationException, match=r"Invalid style for 'a'.*Received: 'colwize'.*[Dd]id you mean 'colwise'"
    ):
        shard_by_plan({"a": "colwize"})
    with pytest.raises(MisconfigurationException, match=r"Invalid axes for 'a'.*Received: \('model',\)"):
        shard_by_plan({"a": ("model",)})
