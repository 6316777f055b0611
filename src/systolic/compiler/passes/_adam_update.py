"""Adam's update without a division by the learning rate.

The form of Adam and AdamW that PyTorch shows to a trace divides the denominator by the step size, and so by the learning
rate. A warm-up that begins at zero makes 0 / 0 of every element whose gradients were all zero so far (the embedding of a
word that no batch had). The eager form on the CPU multiplies, and leaves such elements as they are.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import fx
from torch.fx.node import Argument

from ._rewrites import replace_call

aten = torch.ops.aten


class _Denominator(NamedTuple):
    """Parts of `root / (correction * size) + eps / size`, size being minus the step size."""

    root: fx.Node
    correction: fx.Node
    size: fx.Node
    eps: Argument


def rewrite_adam_updates(graph: fx.Graph) -> None:
    """Make `p + size * m / (root / correction + eps)` of `p + m / (root / (correction * size) + eps / size)`.

    Args:
        graph: of a step; nodes without users stay for the clean-up.
    """
    for update in [node for node in graph.nodes if node.target is aten.addcdiv.default and not node.kwargs]:
        parameter, mean, denominator = update.args
        parts = _parts(denominator)
        if parts is None:
            continue
        with graph.inserting_before(update):
            # XLA divides by a scalar so, too, each parameter's in a kernel of its own, which `with_scalars_in_vectors` spares
            inverse = graph.call_function(aten.reciprocal.default, (parts.correction,))
            quotient = graph.call_function(aten.mul.Tensor, (parts.root, inverse))
            new = graph.call_function(aten.add.Tensor, (quotient, parts.eps))
            scaled = graph.call_function(aten.mul.Tensor, (mean, parts.size))
        inverse.meta, scaled.meta = dict(parts.correction.meta), dict(mean.meta)
        quotient.meta, new.meta = dict(denominator.meta), dict(denominator.meta)
        replace_call(graph, update, aten.addcdiv.default, (parameter, scaled, new))


def _parts(denominator: fx.Node) -> _Denominator | None:
    """The parts of a denominator that is made so; None for any other."""
    quotient, share = _arguments(denominator, aten.add.Tensor)
    root, divisor = _arguments(quotient, aten.div.Tensor)
    correction, size = _arguments(divisor, aten.mul.Tensor)
    reciprocal, eps = _arguments(share, aten.mul.Tensor)
    if not isinstance(root, fx.Node) or not isinstance(correction, fx.Node) or not isinstance(size, fx.Node):
        return None
    is_share = isinstance(reciprocal, fx.Node) and reciprocal.target is aten.reciprocal.default and reciprocal.args == (size,)
    return _Denominator(root, correction, size, eps) if is_share else None


def _arguments(node: Argument, target: object) -> tuple[Argument, Argument]:
    """Both arguments of a call of `target`; twice None for another node."""
    if not isinstance(node, fx.Node) or node.target is not target or node.kwargs or len(node.args) != 2:
        return None, None
    first, second = node.args
    return first, second
