"""Cross-entropy as one op: PyTorch's two steps keep the logarithms of all probabilities, in float32, for the backward.

For a language model these are the largest arrays of a step. The op keeps the logits, which are there anyway (often in
half precision), and computes logarithms and probabilities again where they are used, inside the fusion that uses them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch
from torch import fx

from ..lowering import lowers
from ..lowering._context import current
from ..lowering._loss import class_weights, hits, reduced, require_classes, target_scales
from ..lowering._pullback import wide
from ._rewrites import replace_call

aten = torch.ops.aten

_LIBRARY = torch.library.Library("systolic", "FRAGMENT")
_SETTINGS = "Tensor target, Tensor? weight, int reduction, int ignore_index"
_LIBRARY.define(f"cross_entropy(Tensor logits, {_SETTINGS}) -> (Tensor, Tensor)")
_LIBRARY.define(f"cross_entropy_backward(Tensor grad, Tensor logits, {_SETTINGS}, Tensor total_weight) -> Tensor")
FORWARD = torch.ops.systolic.cross_entropy.default
BACKWARD = torch.ops.systolic.cross_entropy_backward.default


def join_cross_entropy(graph: fx.Graph) -> None:
    """Replace `nll_loss(log_softmax(x))` and its derivative; nodes without users stay for the clean-up."""
    for node in list(graph.nodes):
        if node.target in (aten.nll_loss_forward.default, aten.nll_loss2d_forward.default):
            logits = _logits(node.args[0])
            if logits is not None:
                replace_call(graph, node, FORWARD, (logits, *node.args[1:]))
        elif node.target in (aten.nll_loss_backward.default, aten.nll_loss2d_backward.default):
            _join_backward(graph, node)


def _join_backward(graph: fx.Graph, node: fx.Node) -> None:
    grad, log_probabilities, *settings = node.args
    logits = _logits(log_probabilities)
    if logits is None:
        return
    for user in list(node.users):
        if user.target is aten._log_softmax_backward_data.default and user.args[:2] == (node, log_probabilities):
            replace_call(graph, user, BACKWARD, (grad, logits, *settings))


def _logits(log_probabilities: object) -> fx.Node | None:
    """Logits that a node is the log_softmax of, over the classes; None for any other node."""
    if not isinstance(log_probabilities, fx.Node) or log_probabilities.target is not aten._log_softmax.default:
        return None
    logits, dim, _ = log_probabilities.args
    assert isinstance(logits, fx.Node), "log_softmax takes a tensor"
    assert isinstance(dim, int), "log_softmax works along one dimension"
    rank = logits.meta["val"].dim()
    return logits if rank and dim % rank == min(1, rank - 1) else None


def _log_sum(logits: jax.Array, classes: int) -> tuple[jax.Array, jax.Array]:
    """Logits less their largest one, and the logarithm of the sum of their exponentials: log_softmax is the difference."""
    logits = wide(logits)
    shifted = logits - jnp.max(logits, classes, keepdims=True)
    return shifted, jnp.log(jnp.exp(shifted).sum(classes, keepdims=True))


@lowers(FORWARD)
def _cross_entropy(
    logits: jax.Array, target: jax.Array, weight: jax.Array | None, reduction: int, ignore_index: int
) -> tuple[jax.Array, jax.Array]:
    classes = min(1, logits.ndim - 1)
    require_classes(target, logits.shape[classes], ignore_index)
    picked, scale = class_weights(target, weight, ignore_index, logits.shape[classes], logits.dtype)
    shifted, log_sum = _log_sum(logits, classes)
    if current().platform == "tpu":
        # a TPU reads the logits once for this and the sum above; picking single elements would be another pass
        chosen = jnp.where(hits(logits.shape, picked, classes), shifted, 0).sum(classes)
    else:
        chosen = jnp.take_along_axis(shifted, jnp.expand_dims(picked, classes), classes).squeeze(classes)
    return reduced(chosen - log_sum.squeeze(classes), target, scale, reduction, ignore_index, logits.dtype)


@lowers(BACKWARD)
def _cross_entropy_backward(
    grad: jax.Array,
    logits: jax.Array,
    target: jax.Array,
    weight: jax.Array | None,
    reduction: int,
    ignore_index: int,
    total_weight: jax.Array,
) -> jax.Array:
    hit, scale = target_scales(grad, logits, target, weight, reduction, ignore_index, total_weight)
    shifted, log_sum = _log_sum(logits, min(1, logits.ndim - 1))
    probabilities = jnp.exp(shifted - log_sum)
    return jnp.where(hit, probabilities * scale - scale, probabilities * scale)
