"""Floating point operations of the products in a compiled program: two for each multiplication with its addition."""

from __future__ import annotations

import math
import re

from ._hlo_text import Computation, Instruction

_LABELS = re.compile(r"dim_labels=\w+_(\w+)->")
_DILATED = re.compile(r"lhs_dilate=([\dx]+)")
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")


def product_flops(instruction: Instruction, computation: Computation) -> int:
    """FLOPs of a `dot` or `convolution`, the form that products take on a TPU; 0 for everything else.

    Of the program as the compiler rewrote it: where it packs pixels beside each other, there are more than in the mathematics.
    Taps that fall on the zeros between a dilated input's elements do not count; those on its padding do.
    """
    if instruction.opcode not in ("convolution", "dot"):
        return 0
    left, right = computation.operands(instruction)[:2]
    outputs = instruction.results[0].elements
    if instruction.opcode == "dot":
        found = _CONTRACTED.search(instruction.attributes)
        dimensions = [int(n) for n in found[1].split(",") if n] if found else []
        return 2 * outputs * math.prod(left.shape[n] for n in dimensions)
    labels = _LABELS.search(instruction.attributes)
    assert labels, f"{instruction.name} says nothing of its dimensions"
    dilated = _DILATED.search(instruction.attributes)
    zeros = math.prod(map(int, dilated[1].split("x"))) if dilated else 1
    return 2 * outputs * right.elements // right.shape[labels[1].index("o")] // zeros
