"""Program for all sizes that values decide, once a second size has come up; see `compiler/passes/_bounded_sizes.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch
from torch import fx

from ..capture import Captured, SlotInput, Speculation, TensorInput
from ..passes import rule_of, with_bounded_sizes

_MOST_TRIES = 4


def for_all_sizes(captured: Captured, earlier: Iterable[Captured]) -> Captured:
    """A capture of the same step for all sizes, if an earlier one differs in nothing else; else the capture itself.

    Args:
        captured: the newest capture.
        earlier: those before it for arguments of the same shapes, the newest first.
    """
    if captured.computes_with_sizes or not any(one.is_size for one in captured.speculations):
        return captured
    for other in islice((one for one in earlier if _may_differ_in_sizes_alone(captured, one)), _MOST_TRIES):
        bounded = with_bounded_sizes(captured.graph, other.graph, rule_of)
        if bounded is None:
            continue
        outputs = _outputs(captured.graph)
        kept = [
            _for_several(one) if one.is_size and outputs[one.outputs[0]] in bounded.counts else one
            for one in captured.speculations
        ]
        return dataclasses.replace(captured, graph=bounded.graph, speculations=kept, digest="")
    return captured


def _may_differ_in_sizes_alone(captured: Captured, other: Captured) -> bool:
    return (
        not other.computes_with_sizes
        and _questions(captured.speculations) == _questions(other.speculations)
        and len(captured.inputs) == len(other.inputs)
        and all(map(_same_input, captured.inputs, other.inputs))
    )


def _questions(speculations: Iterable[Speculation]) -> list[object]:
    """Questions of a trace, without the sizes that were the answers."""
    return [(one.line, one.outputs) if one.is_size else (one.text, one.holds) for one in speculations]


def _same_input(one: SlotInput | TensorInput, other: SlotInput | TensorInput) -> bool:
    if isinstance(one, SlotInput) or isinstance(other, SlotInput):
        return one == other
    a, b = one.constant, other.constant
    if a is None or b is None or a is b:
        return a is b and one.leaf == other.leaf
    # made of a size, it is a constant of one batch
    return a.shape == b.shape and a.dtype == b.dtype and type(a) is type(b) is torch.Tensor and torch.equal(a, b)


def _outputs(graph: fx.Graph) -> list[fx.Node]:
    (output,) = (node for node in graph.nodes if node.op == "output")
    return list(output.args[0])  # type: ignore[arg-type]


def _for_several(speculation: Speculation) -> Speculation:
    """In place of the condition that a mask selects so many elements: that it selects two or more.

    Of one element and of none PyTorch does other things: it broadcasts, squeezes, and means nothing.
    """
    return dataclasses.replace(speculation, condition=_is_several, text=f"Ge(v0, 2) at {speculation.line}")


def _is_several(values: Any) -> Any:
    return values[0] > 1
