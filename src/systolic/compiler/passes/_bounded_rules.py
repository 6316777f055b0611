"""The rules of all ops that arrays of bounded sizes may go through."""

from __future__ import annotations

from typing import Any

from . import _bounded_attention as _bounded_attention
from . import _bounded_convolution as _bounded_convolution
from . import _bounded_losses as _bounded_losses
from . import _bounded_norms as _bounded_norms
from . import _bounded_order as _bounded_order
from . import _bounded_pairs as _bounded_pairs
from . import _bounded_positions as _bounded_positions
from . import _bounded_slices as _bounded_slices
from . import _bounded_sums as _bounded_sums
from ._bounded_shapes import is_pointwise, pointwise
from ._bounded_table import PARTED, RULES, Rule


def rule_of(op: Any) -> tuple[Rule | None, bool]:
    """How nodes of an op are written, None where that is not known; and whether what counts may be in several parts.

    Args:
        op: the target of a node, such as `torch.ops.aten.sum.default`, or "output".
    """
    if op in RULES:
        return RULES[op], op in PARTED
    return (pointwise if is_pointwise(op) else None), True
