"""XLA's options for the program of a captured step."""

from __future__ import annotations

from collections.abc import Collection

from torch import fx

from ...hardware import chip_of
from ...runtime import CompilerOptions, Placement, compiler_options
from ...sharding import TENSOR_AXIS, batch_parts
from ..passes import has_large_products

_READ_ONCE = 32 * 2**20
"""Bytes of an operand that the compiler's own tiles read once.

Of products of two operands of 32 MiB each, estimates stay the same with more memory for tiles; with 56 MiB (Llama 3 8B's layers
over two cores) they fall to a half (libtpu 0.0.42.1; benchmarks/RESULTS.md).
"""


def options_of(graph: fx.Graph, batch: Collection[fx.Node], placement: Placement) -> CompilerOptions | None:
    """Options for `jax.jit`; None for XLA's own choice.

    Args:
        graph: the step.
        batch: its placeholders for what the loader gives.
        placement: the devices.
    """
    device, mesh = placement.devices[0], placement.mesh
    chip = chip_of(device.device_kind)
    if chip is None or chip.tile_memory is None:
        return compiler_options(device)
    parts = {"batch_parts": batch_parts(mesh), "weight_parts": mesh.shape.get(TENSOR_AXIS, 1)}
    return compiler_options(device, large_products=has_large_products(graph, batch, _READ_ONCE, **parts))
