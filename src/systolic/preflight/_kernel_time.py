"""Predicted time of Pallas kernels, of which the compiler tells no cycles."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from ..hardware import Chip
from ._hlo_analysis import CustomCall


@dataclass(frozen=True)
class AttentionCycles:
    """Cycles of a TensorCore's vector unit for 1,024 scores (a register of float32) in tiles of 1,024 x 1,024.

    Attributes:
        forward: of attention.
        backward: of its gradients; where they take two passes, each takes what forward does.
        dropout: in addition, where probabilities are dropped.
        splash_forward: of JAX's splash kernel, for models that call it; in its own tiles.
        splash_backward: of its gradients, in one pass.
    """

    forward: float
    backward: float
    dropout: float
    splash_forward: float = 0.0
    splash_backward: float = 0.0


ATTENTION_CYCLES: Final = {
    "v4": AttentionCycles(7.4, 9.8, 13.7),
    "v5e": AttentionCycles(4.8, 7.9, 1.1, 6.0, 8.7),
    "v5p": AttentionCycles(4.9, 8.0, 1.3),
    "v6e": AttentionCycles(4.0, 6.4, 1.2, 4.3, 6.0),
    "tpu7x": AttentionCycles(3.5, 6.4, 1.5),
}
"""Fitted to the instruction bundles, one a cycle, of kernels as libtpu 0.0.42.1 schedules them.

A step of the grid takes the root of the sum of the squares of these cycles and of the matrix unit's (FLOPs / peak): the two
overlap in part. Causal attention with 64, 128 and 256 features, in tiles of 512 x 512 and of 1,024 x 1,024, with dropout and
without: within an eighth of the bundles (on v4 a sixth), which tests/preflight/test_kernel_time.py has. A v4 has no product of
32-bit integers, of which the random mask is made; one of its kernels takes 1.4 times what is predicted, gradients of 4,096
queries with 64 features, one head a step.
"""

_LARGE_TILE: Final = 1024
_SMALLER_TILES: Final = 0.4
"""Exponent: tiles half as long take 1.32 times the cycles of the vector unit for each score, on every chip."""

_KERNEL: Final = re.compile(
    r"attention_(forward|partial_backward|backward)(?:_mask)?(_dropout)?_(\d+)x(\d+)|splash_m[hq]a_(fwd|dkv)"
)


def kernel_seconds(call: CustomCall, chip: Chip) -> float:
    """Time of a kernel in a step, on one device: of attention by its scores, of others by a roofline.

    Kernels that the compiler has an estimate for take none: they are in the cycles already.
    """
    if call.operation.cycles is not None:
        return 0.0
    size = call.bytes if call.bytes is not None else call.operation.hbm_bytes
    arithmetic = math.hypot((call.flops or 0) / chip.flops_per_device, _vector_seconds(call, chip))
    return max(arithmetic, size / chip.bandwidth_per_device) * call.operation.times


def _vector_seconds(call: CustomCall, chip: Chip) -> float:
    """Seconds for masks, exponentials, sums and random bits."""
    found = _KERNEL.search(call.kernel)
    cycles = ATTENTION_CYCLES.get(chip.name)
    if found is None or cycles is None:
        return 0.0
    kind, dropout, rows, columns, splash = found.groups()
    each = {
        "forward": cycles.forward,
        "backward": cycles.backward,
        "partial_backward": cycles.forward,
        "fwd": cycles.splash_forward,
        "dkv": cycles.splash_backward,
    }[kind or splash]
    each += cycles.dropout if dropout else 0.0
    if rows:
        each *= (_LARGE_TILE / math.sqrt(int(rows) * int(columns))) ** _SMALLER_TILES
    cores = chip.tensor_cores // chip.devices
    return (call.exponentials or 0) / 1024 * each / chip.clock_hz / cores
