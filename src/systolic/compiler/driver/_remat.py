"""`Trainer(remat=)`: choose what a step keeps, and change its graph by that."""

from __future__ import annotations

from collections.abc import Callable

from torch import fx

from ...exceptions import MisconfigurationException
from ...utilities._suggest import suggest
from ...utilities._torch_internals import OpOverload
from ..capture import Captured, SlotInput
from ..passes import DOTS, Activations, Remat, activations, has_backward, rematerialise

RematPolicy = Callable[[OpOverload], bool]
"""Takes an op, `torch.ops.aten.mm.default`; says whether its results are kept for the backward pass."""

_CHOICES: dict[str, Remat | None] = {
    "none": None,
    "dots": Remat(DOTS.__contains__),
    "full": Remat(lambda op: False, blocks_only=True),
}

REMATS = tuple(_CHOICES)
"""Names that `Trainer(remat=)` takes."""


def choose_remat(value: str | RematPolicy) -> Remat | None:
    """From the Trainer's argument to what a step keeps; None for a step as it was captured.

    Args:
        value: "none", "dots", "full", or a function that takes an op and says whether its results are kept.

    Raises:
        ValueError: it is something else.

    Example:
        >>> choose_remat("none") is None
        True
    """
    if isinstance(value, str) and value in _CHOICES:
        return _CHOICES[value]
    if not isinstance(value, str) and callable(value):
        return Remat(value)
    hint = suggest(value, _CHOICES) if isinstance(value, str) else ""
    raise ValueError(
        f"Invalid value for argument `remat`. Expected one of {', '.join(map(repr, _CHOICES))}, or a function that takes an "
        f"op such as torch.ops.aten.mm.default and says whether its results are kept. Received: {value!r}.{hint}"
    )


def apply_remat(captured: Captured, remat: Remat) -> None:
    """Change a captured step's graph, if it has a backward pass.

    Raises:
        MisconfigurationException: blocks are asked for, and the model has none.
    """
    graph = captured.graph
    if not has_backward(graph):
        return
    if rematerialise(graph, _state_of(captured), remat) is None:
        raise MisconfigurationException(
            "remat='full' keeps the borders of repeated blocks, members of a ModuleList or Sequential with the same layers, "
            "and found none in this step. Put the layers into such a list, wrap parts of the model in "
            "torch.utils.checkpoint.checkpoint, or use remat='dots'."
        )


def activations_of(captured: Captured) -> Activations:
    """Values that a captured step keeps for its backward pass, and what it computes once more."""
    return activations(captured.graph, _state_of(captured))


def _state_of(captured: Captured) -> set[fx.Node]:
    """Placeholders of the state."""
    placeholders = (node for node in captured.graph.nodes if node.op == "placeholder")
    return {node for node, source in zip(placeholders, captured.inputs, strict=False) if isinstance(source, SlotInput)}
