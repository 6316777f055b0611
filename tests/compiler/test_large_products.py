"""Which steps are compiled with more vector memory for their tiles."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx

from systolic.compiler.passes import has_large_products

MIB = 2**20


def graph_of(build: Any) -> tuple[fx.Graph, fx.Node]:
    """A graph of aten ops with its batch; `build(graph, batch)` adds products."""
    graph = fx.Graph()
    batch = graph.placeholder("batch")
    batch.meta["val"] = torch.empty(8192, 2048, dtype=torch.bfloat16, device="meta")  # 32 MiB
    build(graph, batch)
    return graph, batch


def weight(graph: fx.Graph, *shape: int) -> fx.Node:
    node = graph.placeholder(f"weight{len(graph.nodes)}")
    node.meta["val"] = torch.empty(*shape, dtype=torch.bfloat16, device="meta")
    return node


def call(graph: fx.Graph, op: Any, *args: Any) -> fx.Node:
    node = graph.call_function(op, args)
    node.meta["val"] = op(*fx.map_arg(args, lambda source: source.meta["val"]))
    return node


def linear(graph: fx.Graph, batch: fx.Node) -> None:
    call(graph, torch.ops.aten.mm.default, batch, weight(graph, 2048, 8192))  # 32 MiB


def narrow(graph: fx.Graph, batch: fx.Node) -> None:
    call(graph, torch.ops.aten.addmm.default, weight(graph, 64), batch, weight(graph, 2048, 64))


def mostly_narrow(graph: fx.Graph, batch: fx.Node) -> None:
    linear(graph, batch)
    for _ in range(200):
        narrow(graph, batch)


def convolution(graph: fx.Graph, batch: fx.Node) -> None:
    linear(graph, batch)
    images = call(graph, torch.ops.aten.view.default, batch, [8, 2048, 32, 32])
    arguments = (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    call(graph, torch.ops.aten.convolution.default, images, weight(graph, 8192, 2048, 1, 1), *arguments)


def two_of_the_batch(graph: fx.Graph, batch: fx.Node) -> None:
    call(graph, torch.ops.aten.mm.default, call(graph, torch.ops.aten.t.default, batch), batch)


@pytest.mark.parametrize(
    ("build", "memory", "batch_parts", "weight_parts", "expected"),
    [
        (linear, 31 * MIB, 1, 1, True),
        (linear, 32 * MIB, 1, 1, False),
        # a core has a part of the batch, and all of a weight unless tensor parallelism divides it
        (linear, 31 * MIB, 2, 1, False),
        (linear, 15 * MIB, 2, 1, True),
        (linear, 31 * MIB, 1, 2, False),
        (two_of_the_batch, 15 * MIB, 2, 8, True),
        (narrow, MIB, 1, 1, False),
        (mostly_narrow, 31 * MIB, 1, 1, False),
        (convolution, 31 * MIB, 1, 1, False),
    ],
)
def test_most_work_is_in_products_of_two_large_operands(
    build: Any, memory: int, batch_parts: int, weight_parts: int, expected: bool
) -> None:
    graph, batch = graph_of(build)
    assert has_large_products(graph, [batch], memory, batch_parts=batch_parts, weight_parts=weight_parts) is expected


def test_a_step_without_products_has_no_large_ones() -> None:
    graph, batch = graph_of(lambda graph, batch: call(graph, torch.ops.aten.relu.default, batch))
    assert not has_large_products(graph, [batch], 0)
