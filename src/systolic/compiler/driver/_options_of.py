"""XLA's options for the program of a captured step."""

from __future__ import annotations

import math
from collections.abc import Iterator

from jax.sharding import Sharding

from ...hardware import chip_of
from ...runtime import CompilerOptions, Placement, compiler_options
from ...sharding import TENSOR_AXIS, batch_parts
from ..capture import Captured, SlotInput, TrainState
from ..passes import has_large_products
from ._layout import Layout, placeholders_of

_READ_ONCE = 32 * 2**20
"""Bytes of an operand that the compiler's own tiles read once.

Of products of two operands of 32 MiB each, estimates stay the same with more memory for tiles; with 56 MiB (Llama 3 8B's layers
over two cores) they fall to a half (libtpu 0.0.42.1; benchmarks/RESULTS.md).
"""


_ROOM = 0.4
"""The largest share of a core's memory that its state may take where fetching is held back.

The scheduler counts the state, too, and with more than this nothing would be fetched ahead. Llama 3 8B on v6e-4, whose state
takes three quarters, fits by the compiler's own choice.
"""


def options_of(captured: Captured, layout: Layout, placement: Placement) -> CompilerOptions | None:
    """Options for `jax.jit`; None for XLA's own choice.

    Args:
        captured: the step.
        layout: its inputs, and where its state lies.
        placement: the devices.
    """
    device, mesh = placement.devices[0], placement.mesh
    chip = chip_of(device.device_kind)
    if chip is None:
        return compiler_options(device)
    batch = placeholders_of(captured.graph, layout, "leaf")
    parts = {"batch_parts": batch_parts(mesh), "weight_parts": mesh.shape.get(TENSOR_AXIS, 1)}
    large = chip.tile_memory is not None and has_large_products(captured.graph, batch, _READ_ONCE, **parts)
    fetches = _fetches_much(captured, layout, chip.hbm_per_device)
    return compiler_options(device, large_products=large, fetches_much=fetches)


def _fetches_much(captured: Captured, layout: Layout, memory: int) -> bool:
    """Whether the parameters that a core holds a part of are larger than its memory, and its state is no large share of it."""
    fetched = held = 0
    for is_parameter, shape, itemsize, sharding in _state(captured, layout):
        own = math.prod(sharding.shard_shape(shape)) * itemsize
        held += own
        whole = math.prod(shape) * itemsize
        fetched += whole if is_parameter and own < whole else 0
    return fetched > memory and held < _ROOM * memory


def _state(captured: Captured, layout: Layout) -> Iterator[tuple[bool, tuple[int, ...], int, Sharding]]:
    """Of each tensor that the step reads: whether it is a parameter, its shape, bytes of a number, and where it lies."""
    entries = TrainState.of_slots(captured.slots).entries
    for source, (_, piece) in zip(captured.inputs, layout.inputs, strict=True):
        if isinstance(source, SlotInput):
            tensor = captured.slots[source.slot].tensor
            is_parameter = entries[source.slot].kind == "parameter"
            yield is_parameter, piece.shape, tensor.element_size(), layout.shardings[piece.buffer]
