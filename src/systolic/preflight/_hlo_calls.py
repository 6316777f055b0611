"""Custom calls of a compiled program: Pallas kernels, and those that stand for nothing."""

from __future__ import annotations

import math
import re
from typing import Final

from ._hlo_analysis import CustomCall, Operation
from ._hlo_text import Instruction

# these stand for a compiler's bookkeeping
_FREE_CALLS: Final = frozenset({"AllocateBuffer", "ConcatBitcast", "X64Combine", "X64SplitLow", "X64SplitHigh", "Sharding"})
_COST: Final = re.compile(r'"cost_estimate":\{([^{}]*)\}')


def is_free_call(instruction: Instruction) -> bool:
    """Whether a call only names a value."""
    return instruction.opcode == "custom-call" and _target(instruction) in _FREE_CALLS


def _target(call: Instruction) -> str:
    found = re.search(r'custom_call_target="([^"]*)"', call.attributes)
    return found.group(1) if found else ""


def custom_call(call: Instruction, operation: Operation) -> CustomCall:
    """Custom call that is counted as `operation`, with what it says of itself."""
    stated = _COST.search(call.attributes)
    figures = dict(re.findall(r'"(\w+)":"?(-?\d+)', stated.group(1))) if stated else {}
    flops, exponentials, size = (int(figures[name]) if name in figures else None for name in _STATED)
    # XLA numbers the instructions that a kernel's name is given to
    kernel = re.sub(r"(\.\d+|\.clone|\.remat\d*)+$", "", call.name)
    if flops is None:
        flops, exponentials = _of_splash(kernel, operation)
    return CustomCall(_target(call), kernel, flops, exponentials, size, operation)


_STATED: Final = ("flops", "transcendentals", "bytes_accessed")

# products of queries (or their gradients) with keys or values that each of JAX's splash attention kernels computes
_SPLASH_PRODUCTS: Final = {"fwd": 2, "dq": 3, "dkv": 5}
# with as many heads of keys as of queries, and with one for several
_SPLASH: Final = re.compile(r"splash_m[hq]a_(fwd|dq|dkv)")


def _of_splash(kernel: str, operation: Operation) -> tuple[int | None, int | None]:
    """FLOPs and exponentials of JAX's attention kernels, which state none, for models that call them.

    Every score has an exponential, and 2 x features FLOPs in each product. Tiles that a causal mask lets the kernel skip are
    counted as if it computed them.
    """
    found = _SPLASH.match(kernel)
    operands = [a.shape for a in operation.operands if len(a.shape) >= 3 and a.dtype in ("bf16", "f32")]
    if found is None or len(operands) < 2:
        return None, None
    query, key = operands[:2]
    scores = math.prod(query[:-1]) * key[-2]
    return _SPLASH_PRODUCTS[found[1]] * 2 * scores * query[-1], scores
