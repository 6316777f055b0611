"""Find lookups in embedding tables that are split by their features, and sums of such tables' gradients.

A table is larger than what a step takes from it: Llama 3's has 128,256 rows of 4,096 numbers, of which a core looks up some
thousand. Fetching the table (2.1 GB in float32, and as much for its gradient) is what a split by rows comes to. Split by
features, every device looks up its features of everybody's rows, and they are exchanged: tokens in place of words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from jax.sharding import Mesh, PartitionSpec
from torch import fx

from ...sharding import FSDP_AXIS, batch_parts, batch_spec, named_sharding, without_fsdp
from ..lowering import TableLookup
from ._rewrites import arguments_of

aten = torch.ops.aten

BY_FEATURES = PartitionSpec(None, FSDP_AXIS)
"""How a table [words, features] lies that is split by its features."""


def table_lookups(
    graph: fx.Graph, tables: Mapping[fx.Node, PartitionSpec], gradients: Mapping[fx.Node, PartitionSpec], mesh: Mesh
) -> Iterator[tuple[fx.Node, TableLookup]]:
    """Lookups that take their table as it lies, and gradients that are summed as their table lies.

    Args:
        graph: what is lowered.
        tables: split state, and copies of it, with their placement.
        gradients: what is computed for split state, with its placement.
        mesh: the devices.
    """
    for node in graph.nodes:
        if node.target is aten.embedding.default:
            table, indices = arguments_of(node)[:2]
            if tables.get(table) == BY_FEATURES and _pays(indices, _shape(table)[0], mesh):
                yield node, _lookup(indices, node, mesh)
        elif node.target is aten.embedding_dense_backward.default:
            rows, indices, words = arguments_of(node)[:3]
            if gradients.get(node) == BY_FEATURES and _pays(indices, words, mesh):
                yield node, _lookup(indices, rows, mesh)


def _lookup(indices: fx.Node, rows: fx.Node, mesh: Mesh) -> TableLookup:
    shape = _shape(rows)
    common = without_fsdp(batch_spec(_shape(indices), mesh))
    axes = [*common, *[None] * (len(shape) - 1 - len(common))]
    by_features, by_rows = PartitionSpec(*axes, FSDP_AXIS), batch_spec(shape, mesh)
    return TableLookup(indices, rows, *(named_sharding(mesh, spec) for spec in (common, by_features, by_rows)))


def _pays(indices: fx.Node, words: int, mesh: Mesh) -> bool:
    """Whether a device exchanges less for its tokens than for the table; a lookup of one word has no dimension to split."""
    shape = _shape(indices)
    return bool(shape) and math.prod(shape) <= words * batch_parts(mesh)


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)
