"""`Trainer(scan_layers=)`: repeated layers of a step as loops."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from torch import fx

from ..capture import Captured, SlotInput
from ..lowering import LayerLoop, LoopStep, ValuePlacement
from ..passes import layer_loops, layer_order


def order_with_loops(graph: fx.Graph, is_state: Sequence[bool], placement: ValuePlacement | None) -> list[LoopStep] | None:
    """The order of what a step does, its repeated layers as loops; None, with a warning, where no layers repeat.

    Args:
        graph: what is lowered.
        is_state: by placeholder: whether it is one of the state.
        placement: how values lie on the mesh.
    """
    loops = _loops(graph, is_state, placement)
    if not loops:
        warnings.warn(
            "scan_layers=True found no layers to make a loop of: members of a ModuleList or Sequential, three or more in turn, "
            "with the same ops, shapes and settings. The program is the one without it.",
            stacklevel=2,
        )
        return None
    return layer_order(graph, loops)


def longest_loop(captured: Captured) -> int:
    """How many layers the longest loop of a step would have; 0 where no layers repeat."""
    loops = _loops(captured.graph, [isinstance(source, SlotInput) for source in captured.inputs], None)
    return max((len(loop.layers) for loop in loops), default=0)


def _loops(graph: fx.Graph, is_state: Sequence[bool], placement: ValuePlacement | None) -> list[LayerLoop]:
    placeholders = (node for node in graph.nodes if node.op == "placeholder")
    return layer_loops(graph, {node for node, held in zip(placeholders, is_state, strict=False) if held}, placement)
