"""XLA's options for the program of a captured step."""

from __future__ import annotations

from collections.abc import Collection

from torch import fx

from ...hardware import chip_of
from ...runtime import CompilerOptions, Placement, compiler_options
from ...sharding import TENSOR_AXIS, batch_parts
from ..passes import has_large_products


def options_of(graph: fx.Graph, batch: Collection[fx.Node], placement: Placement) -> CompilerOptions | None:
    """Options for `jax.jit`; None for XLA's own choice.

    Args:
        graph: the step.
        batch: its placeholders for what the loader gives.
        placement: the devices.
    """
    device, mesh = placement.devices[0], placement.mesh
    chip = chip_of(device.device_kind)
    if chip is None:
        return compiler_options(device)
    # the other half is what an operation's own tiles are in
    room = chip.vector_memory // 2
    parts = {"batch_parts": batch_parts(mesh), "weight_parts": mesh.shape.get(TENSOR_AXIS, 1)}
    return compiler_options(device, large_products=has_large_products(graph, batch, room, **parts))
