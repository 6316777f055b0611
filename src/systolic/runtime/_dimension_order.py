"""Order in which weights of convolutions lie in a TPU's memory: outputs fastest, then inputs, then the kernel's places.

PyTorch's order, [outputs, inputs, height, width] with the width fastest, is none that a TPU's matrix unit reads: XLA would copy
every weight, its gradient and its moments to this order and back in every step (3.9 of 61 million cycles of ResNet-50 on v6e).
Arrays keep their shape: the order is a property of the memory, which nobody sees who reads or writes values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jax.sharding import Sharding

from ..utilities._jax_internals import Format, Layout

Place = Sharding | Format

ORDERED_PLATFORMS = frozenset({"tpu"})
"""Platforms on which weights lie in this order. On others XLA's own operations read PyTorch's."""

_PLACES = {3: 16, 4: 64, 5: 128}
"""By number of dimensions: the most places that a kernel has. [experts, inputs, outputs] has more."""

_NUMBERS = 4096
"""Smaller weights are left alone: a copy of one costs nothing that could be measured."""


def place_of(sharding: Sharding, shape: Sequence[int]) -> Place:
    """The place of an array of the state: an order belongs to it where the shape is that of a convolution's weight.

    Args:
        sharding: which part lies on which device.
        shape: the array's.
    """
    ordered = math.prod(shape) >= _NUMBERS and _is_kernel(shape)
    if not ordered or next(iter(sharding.device_set)).platform not in ORDERED_PLATFORMS:
        return sharding
    return Format(Layout((*range(2, len(shape)), 1, 0)), sharding)


def sharding_of(place: Place) -> Sharding:
    """The sharding alone."""
    if isinstance(place, Sharding):
        return place
    assert place.sharding is not None
    return place.sharding


def lies_at(array: Any, place: Place) -> bool:
    """Whether an array lies at a place, in its order.

    Args:
        array: JAX's; its type's stubs lack `format`.
        place: where it should lie.
    """
    if isinstance(place, Sharding):
        return array.sharding.is_equivalent_to(place, array.ndim)
    assert isinstance(place.layout, Layout)
    layout = array.format.layout
    order = layout.major_to_minor if isinstance(layout, Layout) else None
    return order == place.layout.major_to_minor and array.sharding.is_equivalent_to(sharding_of(place), array.ndim)


def _is_kernel(shape: Sequence[int]) -> bool:
    """Whether a tensor can be a convolution's weight: few places for many pairs of features."""
    places = math.prod(shape[2:])
    return places <= _PLACES.get(len(shape), 0) and places <= shape[0] * shape[1]
