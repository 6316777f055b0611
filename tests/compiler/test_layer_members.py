"""Runs of layers that look alike, and the random numbers inside of a loop over them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import fx

from systolic.compiler.lowering import BACKWARD, SCOPE
from systolic.compiler.lowering._bits import mask_key
from systolic.compiler.passes._isomorphic import alike
from systolic.compiler.passes._layer_members import Run, runs, visits

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("aaaa", [Run(0, 1, 4)]),
        ("xaaay", [Run(1, 1, 3)]),
        ("aab", []),
        ("ababab", [Run(0, 2, 3)]),
        ("llllglllglllg", [Run(1, 4, 3)]),
        ("aaabbb", [Run(0, 1, 3), Run(3, 1, 3)]),
        ("", []),
    ],
)
def test_runs(labels: str, expected: list[Run]) -> None:
    assert runs(labels) == expected


def chain(factors: list[float], width: int = 4) -> tuple[fx.Graph, list[fx.Node]]:
    """A graph of layers that multiply, one after another."""
    graph = fx.Graph()
    node = graph.placeholder("x")
    node.meta["val"] = torch.empty(width)
    layers: list[fx.Node] = []
    for number, factor in enumerate(factors):
        node = graph.call_function(aten.mul.Tensor, (node, factor))
        node.meta |= {"val": torch.empty(width), SCOPE: f"model.layers.{number}", BACKWARD: False}
        layers.append(node)
    graph.output(node)
    return graph, layers


def test_parts_are_alike_where_every_argument_is() -> None:
    _, layers = chain([2.0, 2.0, 2.0])
    found = alike([(layer,) for layer in layers], None)
    assert found is not None
    assert found.inputs == (tuple(layer.all_input_nodes[0] for layer in layers),)


@pytest.mark.parametrize("other", [3.0, 2, True], ids=["number", "integer", "flag"])
def test_parts_with_other_arguments_differ(other: float) -> None:
    _, layers = chain([2.0, other, 2.0])
    assert alike([(layer,) for layer in layers], None) is None


@pytest.mark.parametrize("value", [torch.empty(5), torch.empty(4, dtype=torch.bfloat16)], ids=["shape", "dtype"])
def test_parts_with_other_values_differ(value: torch.Tensor) -> None:
    _, layers = chain([2.0, 2.0, 2.0])
    layers[1].meta["val"] = value
    assert alike([(layer,) for layer in layers], None) is None


def test_a_second_way_through_a_list_is_one_of_its_own() -> None:
    graph, layers = chain([2.0] * 4)
    for number, layer in enumerate(layers):
        layer.meta[SCOPE] = f"model.layers.{number % 2}"
    found = visits(list(graph.nodes), 0)
    assert [visit.members for visit in found] == [{0: (layers[0],), 1: (layers[1],)}, {0: (layers[2],), 1: (layers[3],)}]
    assert visits(list(graph.nodes), 1) == []


@pytest.mark.parametrize("number", [0, 1, 63, 64 * 1000 + 7, 2**31 - 1])
def test_a_mask_has_one_key_inside_and_outside_of_a_loop(number: int) -> None:
    key = jax.random.key(3)
    inside = jax.jit(lambda n: mask_key(key, n))(jnp.uint32(number))
    assert np.array_equal(inside, mask_key(key, number))
    assert not np.array_equal(inside, mask_key(key, number + 1))
