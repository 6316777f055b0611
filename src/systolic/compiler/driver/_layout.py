"""Places of a step's state and results: in which arrays they lie together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jax.sharding import Sharding
from torch import fx

from ...runtime import Buffer, Cell, TensorKind, plan_buffers
from ..capture import Captured, Gradient, OptimizerState, OutputTree, SlotInput, output_numbers, templates_of


@dataclass(frozen=True)
class Piece:
    """Place of a value in a buffer: `offset` -1 means that it is the whole buffer."""

    buffer: int
    offset: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """How a graph's values are packed into arrays; everything by number, so that it can be compared.

    Attributes:
        inputs: by placeholder: ("state", piece), ("leaf", i) or ("constant", i).
        donated: the state's buffers that are overwritten, which come first: how each lies on the devices, before and after.
        kept: how the others lie.
        updates: by donated buffer: its pieces in order, each with the output that replaces it (None: unchanged).
        results: groups of outputs that share an array each.
        returned: how many of these groups are what the caller gets; effects keep the others.
        draws: whether the program needs a random key.
        scans: whether repeated layers are one loop.
    """

    inputs: tuple[tuple[str, Any], ...]
    donated: tuple[Sharding, ...]
    kept: tuple[Sharding, ...]
    updates: tuple[tuple[tuple[Piece, int | None], ...], ...]
    results: tuple[tuple[int, ...], ...]
    returned: int
    draws: bool
    scans: bool

    @property
    def shardings(self) -> tuple[Sharding, ...]:
        """How every buffer of the state lies."""
        return *self.donated, *self.kept


def lay_out(captured: Captured, cells: list[Cell]) -> tuple[list[Buffer], Layout]:
    """The buffers of a step's state, those that it changes first, and what lies where in them and in its results."""
    used = {i.slot for i in captured.inputs if isinstance(i, SlotInput)} | set(captured.slot_outputs)
    changed = list(dict.fromkeys(cells[s].buffer for s in captured.slot_outputs))
    kept = [b for b in dict.fromkeys(cells[s].buffer for s in sorted(used)) if b not in set(changed)]
    buffers = changed + kept
    number = {id(buffer): index for index, buffer in enumerate(buffers)}
    new_value = {id(cells[s]): o for s, o in captured.slot_outputs.items()}

    def piece(cell: Cell) -> Piece:
        return Piece(number[id(cell.buffer)], cell.offset, tuple(cell.shape))

    inputs: list[tuple[str, Any]] = []
    constants = 0
    for source in captured.inputs:
        if isinstance(source, SlotInput):
            inputs.append(("state", piece(cells[source.slot])))
        elif source.constant is not None:
            inputs.append(("constant", constants))
            constants += 1
        else:
            inputs.append(("leaf", source.leaf))
    # also of tensors that the step leaves alone: their buffer is donated as a whole, and what is not written again is lost
    updates = tuple(tuple((piece(c), new_value.get(id(c))) for c in buffer.cells) for buffer in changed)
    returned, kept_results = _result_groups(captured)
    results = tuple(returned + kept_results)
    donated, left = (tuple(buffer.array.sharding for buffer in some) for some in (changed, kept))
    return buffers, Layout(
        tuple(inputs), donated, left, updates, results, len(returned), _draws(captured.graph), captured.scan_layers
    )


def _result_groups(captured: Captured) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Groups of outputs that are returned to the caller, and of outputs that effects keep.

    They share no array, though an output may be in both: what effects keep becomes state, and later steps overwrite it.
    """
    moments, gradients, others = set[int](), set[int](), set[int]()
    for effect in captured.effects:
        owner = moments if isinstance(effect, OptimizerState) else gradients if isinstance(effect, Gradient) else others
        owner.update(index for tree in templates_of(effect) for index in _indices(tree))
    # apart as the state's kinds are when they come from a checkpoint (`plan_buffers`)
    kept = (gradients - moments, others - gradients - moments, moments)
    return _grouped(captured, _indices(captured.result)), [group for some in kept for group in _grouped(captured, some)]


def _grouped(captured: Captured, indices: Iterable[int]) -> list[tuple[int, ...]]:
    outputs = outputs_of(captured.graph)
    chosen = sorted(set(indices))
    plan = plan_buffers([kind_of(outputs[i]) for i in chosen])
    return [tuple(chosen[k] for k in group) for group in plan]


def places_of(captured: Captured, layout: Layout) -> dict[int, tuple[int, int]]:
    """Beginning, in the arrays, of each output that is returned to the caller: array and element."""
    outputs = outputs_of(captured.graph)
    found: dict[int, tuple[int, int]] = {}
    for number, group in enumerate(layout.results[: layout.returned]):
        offset = 0
        for index in group:
            found[index] = number, offset
            offset += kind_of(outputs[index])[0].numel()
    return found


def _indices(tree: OutputTree) -> list[int]:
    return [index for leaf in tree.leaves for index in output_numbers(leaf)]


def outputs_of(graph: fx.Graph) -> Sequence[Any]:
    """The nodes that a graph returns, by output number."""
    return next(iter(reversed(graph.nodes))).args[0]


def placeholders_of(graph: fx.Graph, layout: Layout, kind: str) -> dict[fx.Node, Any]:
    """A graph's inputs of a kind, with where each comes from."""
    nodes = [node for node in graph.nodes if node.op == "placeholder"]
    return {node: place for node, (found, place) in zip(nodes, layout.inputs, strict=False) if found == kind}


def kind_of(node: fx.Node) -> TensorKind:
    """Shape and dtype as which a node's value leaves a program, of a symbolic number too."""
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype
    if isinstance(value, torch.SymInt):
        return torch.Size(()), torch.int64
    if isinstance(value, torch.SymBool):
        return torch.Size(()), torch.bool
    if node.target is torch.ops.aten._local_scalar_dense.default and node.all_input_nodes[0].meta["val"].dtype == torch.float64:
        return torch.Size(()), torch.float64
    return torch.Size(()), torch.float32


def _draws(graph: fx.Graph) -> bool:
    ops = (n.target for n in graph.nodes if n.op == "call_function")
    return any(torch.Tag.nondeterministic_seeded in getattr(op, "tags", ()) for op in ops)
