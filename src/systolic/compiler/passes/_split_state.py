"""Find out which values of a step lie as the split state does, and where split state has to be gathered.

XLA splits a whole program by the few placements that it is told, and where a weight and a batch are split over the same axis
it has to guess which of both to move. Here is said what ZeRO does: a parameter is gathered by the op that computes with it,
in the dtype that this op takes; its gradient, and all that the optimizer computes, lie as the parameter does.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Container, Iterator, Mapping

import torch
from jax.sharding import Mesh, PartitionSpec
from torch import fx

from ...sharding import named_sharding, without_fsdp
from ...utilities._torch_internals import OpOverload
from ..lowering import ValuePlacement
from ._rewrites import arguments_of
from ._table_lookups import table_lookups

aten = torch.ops.aten

_COPIES = (aten._to_copy.default, aten.clone.default, aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default)
_LIKE = (aten.zeros_like.default, aten.ones_like.default, aten.full_like.default, aten.empty_like.default, aten.copy.default)
_SUMS = (
    aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.linalg_vector_norm.default, aten.amax.default,
    aten.amin.default, aten.max.default, aten.min.default, aten.any.default, aten.all.default, aten.norm.Scalar,
)  # fmt: skip


def split_state(
    graph: fx.Graph, before: Mapping[fx.Node, PartitionSpec], after: Mapping[fx.Node, PartitionSpec], mesh: Mesh
) -> ValuePlacement | None:
    """Placement of the values of a step; None when all of its state is whole on every device.

    Args:
        graph: what is lowered.
        before: placeholders of the state with their placement.
        after: nodes that are the state's new values, with their placement.
        mesh: the devices.
    """
    held = {node: spec for node, spec in before.items() if any(spec)}
    if not held and not any(any(spec) for spec in after.values()):
        return None
    computed = _computed_for(after, before)
    forms = dict(_forms(graph, held, computed))
    results = {node: spec for node, spec in (forms | computed).items() if node.op != "placeholder"}
    gathered = {node: without_fsdp(spec) for node, spec in (held | forms).items()}
    lookups = dict(table_lookups(graph, held | forms, computed, mesh))
    users = frozenset(user for node in gathered for user in node.users if user in results or _takes_parts(user)) | {*lookups}
    sums = {node: spec for node, spec in computed.items() if any(spec) and not _is_elementwise(node) and node not in lookups}
    gradients = {node: without_fsdp(spec) for node, spec in sums.items()}
    return ValuePlacement(
        {node: named_sharding(mesh, spec) for node, spec in results.items()},
        {node: named_sharding(mesh, spec) for node, spec in gradients.items()},
        {node: named_sharding(mesh, spec) for node, spec in gathered.items()},
        users,
        lookups,
    )


def _computed_for(
    after: Mapping[fx.Node, PartitionSpec], before: Mapping[fx.Node, PartitionSpec]
) -> dict[fx.Node, PartitionSpec]:
    """New values of the state and what they are computed from, element by element, back to the products: the gradients.

    Whole state is among them, too: left alone, XLA splits the biases' gradients, and exchanges their pieces many times. Where
    it is computed from split state (ZeRO's first stage: a parameter from its moments), a part is computed, and then gathered.
    """
    found: dict[fx.Node, PartitionSpec] = {}
    known = ChainMap(found, dict(before))
    for node, spec in sorted(after.items(), key=lambda one: not any(one[1])):
        chain = list(_chain(node, known))
        touched = (found.get(source) for link in chain for source in link.all_input_nodes if _shape(source) == _shape(node))
        inner = next((other for other in touched if other is not None and any(other)), spec)
        found |= dict.fromkeys(chain, inner)
        found[node] = spec
    return found


def _chain(node: fx.Node, known: Container[fx.Node]) -> Iterator[fx.Node]:
    """The node and what it is computed from element by element, as far as that is not known."""
    seen: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node in seen or node in known:
            continue
        seen.add(node)
        yield node
        if _is_elementwise(node):
            shape = _shape(node)
            waiting += [source for source in node.all_input_nodes if _shape(source) == shape]


def _forms(
    graph: fx.Graph, held: Mapping[fx.Node, PartitionSpec], computed: Mapping[fx.Node, PartitionSpec]
) -> Iterator[tuple[fx.Node, PartitionSpec]]:
    """Copies of the state, cast or transposed, which are gathered in its place: half the bytes, and at the product."""
    known = dict(held)
    for node in graph.nodes:
        sources = [source for source in node.all_input_nodes if source in known]
        if node.op != "call_function" or len(sources) != 1 or node in computed:
            continue
        spec = _of_form(node, known[sources[0]])
        if spec is not None:
            known[node] = spec
            yield node, spec


def _of_form(node: fx.Node, spec: PartitionSpec) -> PartitionSpec | None:
    axes = [*spec]
    rank = len(_shape(node) or ())
    axes += [None] * (rank - len(axes))
    if node.target in _COPIES:
        return spec
    if node.target is aten.t.default:
        return PartitionSpec(*reversed(axes))
    if node.target is aten.transpose.int:
        first, second = arguments_of(node)[1:3]
        axes[first], axes[second] = axes[second], axes[first]
        return PartitionSpec(*axes)
    if node.target is aten.permute.default:
        return PartitionSpec(*(axes[dim] for dim in arguments_of(node)[1]))
    return None


def _is_elementwise(node: fx.Node) -> bool:
    target = node.target
    return isinstance(target, OpOverload) and (torch.Tag.pointwise in target.tags or target in _COPIES or target in _LIKE)


def _takes_parts(node: fx.Node) -> bool:
    return node.op == "output" or node.target in _SUMS or node.target in _LIKE


def _shape(node: fx.Node) -> tuple[int, ...] | None:
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None
