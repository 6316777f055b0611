"""Which blocks the paths of modules show."""

from __future__ import annotations

from systolic.compiler.passes._blocks import blocks_of


def test_members_of_a_list_with_the_same_layers() -> None:
    scopes = ["model", "model.wte", *(f"model.h.{i}{end}" for i in range(3) for end in ("", ".attn", ".mlp.0", ".mlp.2"))]
    found = blocks_of([*scopes, "model.head"])
    assert {scope: found[scope] for scope in ("model.h.0", "model.h.2.mlp.2")} == {
        "model.h.0": "model.h.0",
        "model.h.2.mlp.2": "model.h.2",
    }
    assert not {"model", "model.wte", "model.head"} & set(found)


def test_a_list_of_different_parts_is_looked_into() -> None:
    scopes = ["model.0", *(f"model.1.{i}.{part}" for i in range(2) for part in ("norm", "linear")), "model.2"]
    assert set(blocks_of(scopes).values()) == {"model.1.0", "model.1.1"}


def test_single_layers_are_joined() -> None:
    found = blocks_of([f"model.{i}" for i in range(9)])
    assert set(found.values()) == {"model.0", "model.3", "model.6"}
    assert found["model.8"] == "model.6"


def test_of_lists_inside_each_other_the_outermost_counts() -> None:
    scopes = [f"model.layers.{i}.blocks.{j}.norm" for i in range(2) for j in range(2)]
    assert set(blocks_of(scopes).values()) == {"model.layers.0", "model.layers.1"}


def test_without_lists_there_are_none() -> None:
    assert blocks_of(["", "model", "model.down", "model.up"]) == {}
