"""3 x 3 convolutions by Winograd's F(2 x 2, 3 x 3): 16 multiplications for four results in place of 36.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (arXiv:1509.09308), section 4.1: tiles of 4 x 4 that overlap
by two, weights and results are each taken to 16 sums, which are multiplied place by place, that is in one matrix product over
the channels for each place. Gradients are the same products with the sums' transposes.

Images are [N, H, W, C], a grid is a list of rows of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from ._context import current

Grid = Sequence[Sequence[jax.Array]]

# From here on the products save more than the sums cost, which are read and written: channels in * out / (in + out). The
# gradient of the weight has slower products, and gains from twice as many on (benchmarks/RESULTS.md).
_FEWEST_CHANNELS = 32
# tiles for which the weight's sums are made
_FEWEST_TILES = 64
# tiles times channels in and out, about a millisecond saved: below that it is not worth XLA's time to compile some fifty loops
_LEAST_PRODUCT = 2**22
# multiplications, of those that an ordinary convolution does: tiles that reach over the edge are for nothing
_MOST_WORK = 0.65


def winograd_wins(x: jax.Array, weight: jax.Array, padding: Sequence[int], *, of_weight: bool = False) -> bool:
    """Whether a convolution with stride and dilation 1, without groups, is faster so.

    Args:
        x: the image that the convolution reads, [N, H, W, in].
        weight: [out, in, ...].
        padding: of each dimension.
        of_weight: whether it is the gradient of the weight that is computed.
    """
    if current().platform != "cpu" or weight.shape[2:] != (3, 3) or max(padding) > 2:
        return False
    if not x.dtype == weight.dtype == jnp.float32:
        return False
    height, width = _result_sizes(x, padding)
    if min(height, width) < 1:
        return False
    down, across = _tiles_over(height), _tiles_over(width)
    tiles, pairs = x.shape[0] * down * across, weight.shape[0] * weight.shape[1]
    return (
        pairs / (weight.shape[0] + weight.shape[1]) >= _FEWEST_CHANNELS * (2 if of_weight else 1)
        and tiles >= _FEWEST_TILES
        and tiles * pairs >= _LEAST_PRODUCT
        and 16 * down * across <= _MOST_WORK * 9 * height * width
    )


def winograd(x: jax.Array, weight: jax.Array, padding: Sequence[int]) -> jax.Array:
    """`x` [N, H, W, in] with `weight` [out, in, 3, 3]."""
    return _convolved(x, _of_weight(weight), 1, padding)


def winograd_image_gradient(grad: jax.Array, weight: jax.Array, padding: Sequence[int]) -> jax.Array:
    """The gradient of the image from the result's, `grad` [N, H, W, out]: a convolution with the kernel turned round.

    The sums of a kernel that is turned round are its own, with the first and the last of each direction changed about.
    """
    weights = _of_weight(weight)
    turned = [[weights[i][j] for j in (3, 1, 2, 0)] for i in (3, 1, 2, 0)]
    return _convolved(grad, turned, 0, [2 - pad for pad in padding])


def winograd_weight_gradient(x: jax.Array, grad: jax.Array, padding: Sequence[int]) -> jax.Array:
    """The gradient of the weight, [out, in, 3, 3], from the image and the result's gradient."""
    sums, moved = _of_image(x, padding), _of_result_gradient(grad)
    products = [[_over_tiles(b, a) for a, b in zip(*rows, strict=True)] for rows in zip(sums, moved, strict=True)]
    rows = _in_both_directions(_weight_from_sums, products)
    return jnp.stack([jnp.stack(row, -1) for row in rows], -2)


def _convolved(x: jax.Array, weights: Grid, axis: int, padding: Sequence[int]) -> jax.Array:
    """`x` [N, H, W, C] with the sums of a weight, of which `axis` is the C channels."""
    products = [
        [_product(a, b, axis) for a, b in zip(*rows, strict=True)] for rows in zip(_of_image(x, padding), weights, strict=True)
    ]
    return _results(products, _result_sizes(x, padding))


def _result_sizes(x: jax.Array, padding: Sequence[int]) -> list[int]:
    return [size + 2 * pad - 2 for size, pad in zip(x.shape[1:3], padding, strict=True)]


def _tiles_over(size: int) -> int:
    return -(-size // 2)


def _of_image(x: jax.Array, padding: Sequence[int]) -> Grid:
    """16 sums of each tile, [N, tiles down, tiles across, C]."""
    down, across = (_tiles_over(size) for size in _result_sizes(x, padding))
    ends = [(pad, 2 * tiles + 2 - pad - size) for size, pad, tiles in zip(x.shape[1:3], padding, (down, across), strict=True)]
    pairs = jnp.pad(x, ((0, 0), *ends, (0, 0))).reshape(x.shape[0], down + 1, 2, across + 1, 2, x.shape[3])
    places = [[pairs[:, i // 2 : i // 2 + down, i % 2, j // 2 : j // 2 + across, j % 2] for j in range(4)] for i in range(4)]
    return _in_both_directions(lambda a, b, c, d: (a - c, b + c, c - b, b - d), places)


def _of_weight(weight: jax.Array) -> Grid:
    """16 sums of each kernel, [out, in]."""
    places = [[weight[:, :, i, j] for j in range(3)] for i in range(3)]
    return _in_both_directions(lambda a, b, c: (a, (a + b + c) / 2, (a - b + c) / 2, c), places)


def _of_result_gradient(grad: jax.Array) -> Grid:
    """16 sums of each 2 x 2 results' gradients, [N, tiles down, tiles across, out]."""
    down, across = (_tiles_over(size) for size in grad.shape[1:3])
    ends = [(0, 2 * tiles - size) for size, tiles in zip(grad.shape[1:3], (down, across), strict=True)]
    pairs = jnp.pad(grad, ((0, 0), *ends, (0, 0))).reshape(grad.shape[0], down, 2, across, 2, grad.shape[3])
    places = [[pairs[:, :, i, :, j] for j in range(2)] for i in range(2)]
    return _in_both_directions(lambda a, b: (a, a + b, a - b, -b), places)


def _weight_from_sums(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> tuple[jax.Array, ...]:
    both = (b + c) / 2
    return a + both, (b - c) / 2, both + d


def _results(products: Grid, sizes: Sequence[int]) -> jax.Array:
    """[N, *sizes, out] from the products of each tile."""
    rows = _in_both_directions(lambda a, b, c, d: (a + b + c, b - c - d), products)
    pairs = jnp.stack([jnp.stack(row, 3) for row in rows], 2)
    count, down, _, across, _, channels = pairs.shape
    return pairs.reshape(count, 2 * down, 2 * across, channels)[:, : sizes[0], : sizes[1]]


def _in_both_directions(sums: Callable[..., tuple[jax.Array, ...]], grid: Grid) -> list[list[jax.Array]]:
    """`sums` of each column, then of each row."""
    columns = [sums(*column) for column in zip(*grid, strict=True)]
    return [list(sums(*row)) for row in zip(*columns, strict=True)]


def _product(tiles: jax.Array, weight: jax.Array, axis: int) -> jax.Array:
    """[N, down, across, C] with [out, in], over the channels that are `axis` of the weight."""
    return lax.dot_general(tiles, weight, (((3,), (axis,)), ((), ())))


def _over_tiles(grad: jax.Array, tiles: jax.Array) -> jax.Array:
    """[out, in]. Over several dimensions at once XLA would turn both round in memory."""
    return lax.dot_general(grad.reshape(-1, grad.shape[3]), tiles.reshape(-1, tiles.shape[3]), (((0,), (0,)), ((), ())))
