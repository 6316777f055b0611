"""Predicted time of Pallas kernels, of which the compiler tells no cycles."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ..hardware import Chip
from ._hlo_analysis import CustomCall


@dataclass(frozen=True)
class AttentionCycles:
    """Cycles of a TensorCore for 1,024 scores (a register of float32) beside those of the matrix unit.

    Attributes:
        forward: of attention.
        backward: of its gradients; where they take two passes, each takes what forward does.
        dropout: in addition, where probabilities are dropped.
        splash_forward: of JAX's splash kernel, for models that call it.
        splash_backward: of its gradients, in one pass.
    """

    forward: float
    backward: float
    dropout: float
    splash_forward: float = 0.0
    splash_backward: float = 0.0


ATTENTION_CYCLES: Final = {
    "v4": AttentionCycles(8.5, 12.0, 31.7),
    "v5e": AttentionCycles(4.6, 7.2, 2.9, 4.3, 5.0),
    "v5p": AttentionCycles(5.5, 9.6, 2.7),
    "v6e": AttentionCycles(4.8, 6.8, 3.1, 3.8, 4.9),
    "tpu7x": AttentionCycles(4.0, 6.2, 3.5),
}
"""Instruction bundles of the kernels as libtpu 0.0.52 schedules them, one a cycle, less FLOPs / peak.

From 4 x 12 heads of 1,024 x 1,024 scores with 64 features, in bfloat16. With 128 and 256 features, and in tiles of other sizes,
the sum was up to a quarter too long; with 128 x 128 scores it was too short by a half. A v4 has no product of 32-bit integers,
of which the random mask is made.
"""

_KERNEL: Final = re.compile(r"attention_(forward|partial_backward|backward)(?:_mask)?(_dropout)?|splash_mha_(fwd|dkv)")


def kernel_seconds(call: CustomCall, chip: Chip) -> float:
    """Time of a kernel in a step, on one device: of attention by its scores, of others by a roofline.

    Kernels that the compiler has an estimate for take none: they are in the cycles already.
    """
    if call.operation.cycles is not None:
        return 0.0
    size = call.bytes if call.bytes is not None else call.operation.hbm_bytes
    arithmetic = (call.flops or 0) / chip.flops_per_device + _beside_products(call, chip)
    return max(arithmetic, size / chip.bandwidth_per_device) * call.operation.times


def _beside_products(call: CustomCall, chip: Chip) -> float:
    """Seconds for masks, exponentials, sums and random bits."""
    found = _KERNEL.search(call.kernel)
    cycles = ATTENTION_CYCLES.get(chip.name)
    if found is None or cycles is None:
        return 0.0
    kind, dropout, splash = found.groups()
    each = {
        "forward": cycles.forward,
        "backward": cycles.backward,
        "partial_backward": cycles.forward,
        "fwd": cycles.splash_forward,
        "dkv": cycles.splash_backward,
    }[kind or splash]
    each += cycles.dropout if dropout else 0.0
    cores = chip.tensor_cores // chip.devices
    return (call.exponentials or 0) / 1024 * each / chip.clock_hz / cores
