"""Layers whose sizes leave part of the matrix unit idle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ._model import Advice, Figure
from ._products import Matmul
from ._slices import Slice

_WORTH = 0.01
"""Layers that idle less than this share of all products' time are not worth a change."""

_LISTED = 8


@dataclass(frozen=True)
class _Layer:
    """A layer's product on a matrix unit whose tiles are `side` x `side`."""

    product: Matmul
    side: int
    count: int

    @property
    def fill(self) -> float:
        """Share of its tiles that holds numbers of the layer."""
        return self.product.k * self.product.n / (self._tiles_up() * self.side**2)

    @property
    def cost(self) -> float:
        """FLOPs that its tiles could do in the same time."""
        return self.count * self.product.flops / self.fill

    @property
    def idle(self) -> float:
        """FLOPs of its tiles that are lost."""
        return self.cost * (1 - self.fill)

    def _tiles_up(self) -> int:
        return -(-self.product.k // self.side) * -(-self.product.n // self.side)

    def widened(self) -> tuple[int, int]:
        """Sizes that cost no more."""
        return self._up(self.product.k), self._up(self.product.n)

    def narrowed(self) -> tuple[int, int]:
        """The multiples below, for dimensions that are larger than the matrix unit."""
        return self._down(self.product.k), self._down(self.product.n)

    def saved(self) -> float:
        """Share of the layer's tiles that narrowing saves."""
        k, n = self.narrowed()
        return 1 - -(-k // self.side) * -(-n // self.side) / self._tiles_up()

    def _up(self, size: int) -> int:
        return -(-size // self.side) * self.side

    def _down(self, size: int) -> int:
        return size // self.side * self.side if size > self.side else size


def advise_padding(products: tuple[Matmul, ...], slice: Slice) -> Iterator[Advice]:
    """Name the layers that are not multiples of the matrix unit, and what other sizes would cost.

    The matrix unit multiplies tiles of 128 x 128 (256 x 256 on v6e and tpu7x); what does not fill a tile is padded with
    zeros and takes the same time (scaling book, chapter on TPUs).
    """
    groups: dict[tuple[str, str, int, int], list[Matmul]] = defaultdict(list)
    for one in products:
        groups[one.module, one.line, one.k, one.n].append(one)
    layers = [_Layer(same[0], slice.chip.mxu, len(same)) for same in groups.values()]
    whole = sum(layer.cost for layer in layers)
    found = sorted((layer for layer in layers if layer.idle > _WORTH * whole), key=lambda layer: layer.idle, reverse=True)
    if not found:
        return
    side, idle = slice.chip.mxu, sum(layer.idle for layer in found) / whole
    yield Advice(
        "matrix unit",
        f"Layers whose sizes are not multiples of {side} leave {idle:.0%} of the matrix unit's time in products idle. Rounding "
        "a size down to a multiple saves tiles; rounding it up costs no more of them, but activations and optimizer grow.",
        tuple(figure for layer in found[:_LISTED] for figure in _evidence(layer)),
    )


def _evidence(layer: _Layer) -> Iterator[Figure]:
    product, side = layer.product, layer.side
    sizes, padded = f"{product.k} x {product.n}", "{} x {}".format(*layer.widened())
    times = f", {layer.count} times" if layer.count > 1 else ""
    counted = f"captured graph: sizes / tiles of {side} x {side}"
    name = f"{product.module} ({product.line}), {sizes}, padded to {padded}{times}: filled"
    yield Figure("matrix unit", name, 100 * layer.fill, "%", counted)
    if layer.saved() > 0:
        narrow = "{} x {}".format(*layer.narrowed())
        yield Figure("matrix unit", f"  as {narrow}: tiles saved", 100 * layer.saved(), "%", counted)
