"""Attention on TPU without the matrix of scores: on every core for its part of the batch and the heads."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from ...hardware import chip_of
from ...sharding import TENSOR_AXIS, batch_spec
from ..lowering._bits import mask_key
from ._flash_problem import FlashProblem, Operands
from ._plain_attention import Mask, plain_attention

Shaped = jax.Array | jax.ShapeDtypeStruct
"""An array, or what is known of one before the program is traced."""

LANES = 128
"""Tiles are multiples of a register's width."""

SMALLEST_LENGTH = 64
"""Below it, less than a quarter of a tile would be scores. At it the kernels take 0.6 of the plain form's cycles.

(libtpu 0.0.52 for v5e, 768 heads of 64 x 64 scores with dropout.)
"""

LARGEST_FEATURES = 256
"""Wider heads were not tried."""

WITHOUT_KERNELS = ("TPU v2", "TPU v3")
"""Chips that Pallas's TPU compiler does not know, as JAX calls them."""

_LARGEST_TILE = 1024
"""Queries or keys of a tile; larger ones were not tried."""

_TILE_OVERHEAD = 64
"""What a tile costs beside its scores, in rows and in columns of them.

From bundles that libtpu 0.0.52 schedules for v5e, for tiles from 128 x 128 (34 for 1,024 scores and their gradients) to
1,024 x 1,024 (20).
"""

_SCORES_OF_A_STEP = 2 * 512 * 512
"""Small tiles of several heads go together, so that a step of the grid has work for thousands of cycles."""

_MOST_SEEN = 4096
"""Tiles of a mask that are told apart: they lie in scalar memory."""

_LEAST_MEMORY = 16 * 2**20
"""Bytes of vector memory that every chip gives a kernel."""

_SHARE_OF_MEMORY = 3 / 8
"""A kernel's part of vector memory where that is more; the rest is for what XLA fetches ahead.

With it the gradients of 8,192 queries of 128 features stay there, and scores are computed once for all gradients: 7,746
bundles a tile on v6e in place of 9,518 in two passes.
"""

_BESIDE_BLOCKS = 2 * 2**20
"""Bytes of it that are not for blocks, sums and scores."""

_BYTES_OF_SCORE = 8
"""A tile of scores exists twice in vector memory, in float32; the rest is in registers."""

_BYTES_ON_V4 = 14
"""The same where products of 32-bit integers, for dropout, are made of narrower ones."""

_BYTES_FOR_EXACTNESS = 12
"""In addition, where operands of float32 are split into three of bfloat16."""

_BYTES_FOR_EXACT_DROPOUT = 8
"""In addition to both, where a mask of dropout is there beside them."""


@dataclass(frozen=True)
class _Settings:
    """Static arguments of one call.

    Attributes:
        exact: multiply float32 as such, not rounded to bfloat16.
        mesh: the cores that share the batch and the heads; None for one.
        mask_trained: give the mask's gradient, too.
        mask_shared: all batch elements add to that gradient.
    """

    causal: bool
    scale: float
    dropout: float
    exact: bool
    interpret: bool
    mesh: Mesh | None
    mask_trained: bool = False
    mask_shared: bool = False

    def training(self, query: Shaped, mask: Shaped) -> _Settings:
        """The same with the gradient of a mask, as all cores have it."""
        return dataclasses.replace(self, mask_trained=True, mask_shared=_sizes(mask)[0] < query.shape[0])


@dataclass(frozen=True)
class _Kept:
    """Arrays that backward needs.

    Attributes:
        arrays: the operands, the result and the sums of its rows.
        mask_trained: whether the mask's gradient is wanted.
    """

    arrays: tuple[Any, ...]
    mask_trained: bool


jax.tree_util.register_dataclass(_Kept, data_fields=["arrays"], meta_fields=["mask_trained"])


def flash_supports(query: Shaped, key: Shaped, value: Shaped, mask: Shaped | None, mesh: Mesh | None) -> bool:
    """Whether the kernels compute this attention; `gives_mask_gradient` says of which masks they have gradients."""
    return (
        _kind(mesh) not in WITHOUT_KERNELS
        and query.ndim == key.ndim == value.ndim == 4
        and query.dtype in (jnp.bfloat16, jnp.float32)
        and query.shape[0] == key.shape[0] == value.shape[0]
        and key.shape[:3] == value.shape[:3]
        and query.shape[1] % key.shape[1] == 0
        and min(query.shape[2], key.shape[2]) >= SMALLEST_LENGTH
        and query.shape[3] == key.shape[3] <= LARGEST_FEATURES
        and value.shape[3] <= LARGEST_FEATURES
        and (mask is None or _broadcasts(mask, (*query.shape[:3], key.shape[2])))
    )


def gives_mask_gradient(query: Shaped, key: Shaped, value: Shaped, mask: Shaped, mesh: Mesh | None) -> bool:
    """Whether the kernels give this mask's gradient: it has a number for each query and key of each head, and there is room.

    A gradient to which all batch elements add stays in vector memory from the first to the last.
    """
    if _sizes(mask)[1:] != (*query.shape[1:3], key.shape[2]):
        return False
    # what takes most room
    settings = _Settings(causal=False, scale=1.0, dropout=0.5, exact=query.dtype == jnp.float32, interpret=False, mesh=mesh)
    needs = _needs(settings.training(query, mask), query, key, value, mask)
    return needs(LANES, LANES, LANES, LANES) <= _room(mesh)


def _sizes(mask: Shaped) -> tuple[int, ...]:
    """Of batch, heads, queries and keys."""
    return (1,) * (4 - len(mask.shape)) + tuple(mask.shape)


def _broadcasts(mask: Shaped, shape: tuple[int, ...]) -> bool:
    sizes = _sizes(mask)
    kinds = (jnp.bool_, jnp.bfloat16, jnp.float32)
    return mask.dtype in kinds and len(sizes) == 4 and all(size in (1, whole) for size, whole in zip(sizes, shape, strict=True))


def flash_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: Mask,
    draw: Mask,
    *,
    causal: bool,
    scale: float,
    dropout: float,
    mesh: Mesh | None,
    interpret: bool = False,
) -> jax.Array:
    """Attention as `plain_attention` has it, with the same random mask.

    Args:
        query: (batch, heads, length, features), bfloat16 or float32.
        key: (batch, heads or a divisor, other length, features).
        value: (batch, heads of the key, other length, other features).
        mask: broadcasts to (batch, heads, length, other length); booleans say what takes part, numbers are added.
        draw: random key data, for dropout.
        causal: whether position i sees the positions up to i only.
        scale: what scores are multiplied by.
        dropout: the share of probabilities that is set to zero.
        mesh: the cores that share the batch and the heads; None for one.
        interpret: run the kernels without a TPU.
    """
    if math.frexp(scale)[0] == 0.5:
        # a power of two, as for 64 features, changes no digit of the query, and there are fewer of those than scores
        query, scale = query * jnp.asarray(scale, query.dtype), 1.0
    # Pallas knows no precision between the two: what is asked to be "high" is exact
    asked = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
    exact = asked in ("high", "highest") and query.dtype == jnp.float32
    settings = _Settings(causal, scale, dropout if draw is not None else 0.0, exact, interpret, mesh)
    attend: Any = _attend
    return attend(settings, query, key, value, mask, draw)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(settings: _Settings, query: jax.Array, key: jax.Array, value: jax.Array, mask: Mask, draw: Mask) -> jax.Array:
    return _on_each_core(settings, _forward_of_core, (query, key, value, mask, draw))[0]


def _forward(settings: _Settings, query: Any, key: Any, value: Any, mask: Any, draw: Any) -> tuple[jax.Array, Any]:
    arrays = tuple(None if one is None else one.value for one in (query, key, value, mask, draw))
    is_trained, given = mask is not None and mask.perturbed, arrays[3]
    if given is not None and is_trained and not gives_mask_gradient(query.value, key.value, value.value, given, settings.mesh):
        options = {"causal": settings.causal, "scale": settings.scale, "dropout": settings.dropout}
        result, pull = jax.vjp(lambda q, k, v, m: plain_attention(q, k, v, m, arrays[4], **options), *arrays[:4])
        return result, pull
    result, sums = _on_each_core(settings, _forward_of_core, arrays)
    return result, _Kept((*arrays, result, sums), is_trained)


def _backward(settings: _Settings, kept: Any, cotangent: Any) -> tuple[jax.Array | None, ...]:
    cotangent = cotangent if isinstance(cotangent, jax.Array) else jnp.zeros(cotangent.shape, cotangent.dtype)
    if not isinstance(kept, _Kept):
        return *kept(cotangent), None
    arrays = (*kept.arrays, cotangent)
    if not kept.mask_trained:
        return *_on_each_core(settings, _backward_of_core, arrays), None, None
    query, mask = arrays[0], arrays[3]
    return *_on_each_core(settings.training(query, mask), _backward_of_core, arrays), None


# with symbolic zeros, the forward rule hears which arguments somebody wants the gradients of
_attend.defvjp(_forward, _backward, symbolic_zeros=True)


# a model's layers call it alike: JAX traces the kernel once, and the program has its ops where they would stand anyway
@functools.partial(jax.jit, static_argnums=(0, 1), inline=True)
def _on_each_core(settings: _Settings, function: Any, arrays: tuple[Any, ...]) -> Any:
    """`function` on every core's part of the batch and the heads.

    XLA cannot split a kernel: left alone, every core would gather the batch and compute all of it. Programs are traced with
    64-bit types switched on; a kernel's indices would become int64, which it cannot have.
    """
    query, key, mesh = arrays[0], arrays[1], settings.mesh
    with jax.enable_x64(False):
        if mesh is None or mesh.size == 1:
            return function(settings, query.shape[1], (), (), *arrays)
        batch = batch_spec((query.shape[0],), mesh)
        by_batch = batch[0] if len(batch) else None
        cores = mesh.shape.get(TENSOR_AXIS, 1)
        by_heads = TENSOR_AXIS if cores > 1 and key.shape[1] % cores == 0 else None
        split = PartitionSpec(by_batch, by_heads)
        mask, draw = arrays[3], None if arrays[4] is None else PartitionSpec()
        of_mask = None if mask is None else _spec_of_mask(mask, split)
        specs = (split, split, split, of_mask, draw, *[split] * (len(arrays) - 5))
        results = (split, split, split, of_mask) if settings.mask_trained else split
        of_core = functools.partial(function, settings, query.shape[1], by_batch or (), by_heads or ())
        return jax.shard_map(of_core, mesh=mesh, in_specs=specs, out_specs=results, check_vma=False)(*arrays)


def _spec_of_mask(mask: jax.Array, split: PartitionSpec) -> PartitionSpec:
    parts = [axis if size > 1 else None for axis, size in zip(split, _sizes(mask), strict=False)]
    return PartitionSpec(*parts[4 - mask.ndim :] if mask.ndim > 2 else ())


Axes = str | tuple[str, ...]


def _kernels() -> ModuleType:
    """The kernels, imported with the first attention on a TPU: with Pallas they take half a second."""
    return importlib.import_module("._flash_kernels", __package__)


def _forward_of_core(
    settings: _Settings, heads: int, by_batch: Axes, by_heads: Axes,
    query: jax.Array, key: jax.Array, value: jax.Array, mask: Mask, draw: Mask,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    problem = _problem(settings, heads, query, key, value, mask)
    operands = _operands(problem, query, key, value, mask, _seed(draw, query, by_batch, by_heads))
    return _kernels().flash_forward(problem, operands)


def _backward_of_core(
    settings: _Settings, heads: int, by_batch: Axes, by_heads: Axes,
    query: jax.Array, key: jax.Array, value: jax.Array, mask: Mask, draw: Mask,
    result: jax.Array, sums: jax.Array, cotangent: jax.Array,
) -> tuple[jax.Array, ...]:  # fmt: skip
    problem = _problem(settings, heads, query, key, value, mask)
    operands = _operands(problem, query, key, value, mask, _seed(draw, query, by_batch, by_heads))
    of_query, of_key, of_value, *of_mask = _kernels().flash_backward(problem, operands, result, sums, cotangent)
    gradients = of_query, _of_shared_heads(of_key, key), _of_shared_heads(of_value, value)
    if mask is None or not settings.mask_trained:
        return gradients
    own = of_mask[0][:, :, : key.shape[2], : query.shape[2]].swapaxes(2, 3)
    whole = lax.psum(own, by_batch) if settings.mask_shared and by_batch else own
    return *gradients, whole.reshape(mask.shape).astype(mask.dtype)


def _of_shared_heads(gradient: jax.Array, like: jax.Array) -> jax.Array:
    """The sum over heads of the query that share one of the key, if the kernel left it to be taken."""
    batch, heads, length, width = like.shape
    if gradient.shape[1] == heads:
        return gradient
    return gradient.reshape(batch, heads, -1, length, width).sum(2).astype(like.dtype)


def _problem(settings: _Settings, heads: int, query: Shaped, key: Shaped, value: Shaped, mask: Shaped | None) -> FlashProblem:
    own_heads, lengths = query.shape[1], (query.shape[2], key.shape[2])
    needs, room = _needs(settings, query, key, value, mask), _room(settings.mesh)
    tiles = ((rows, columns) for rows in _SIZES for columns in _SIZES if needs(rows, columns, rows, columns) <= room)
    # a mask of queries and keys is mostly a causal one, of which tiles that hide everything are skipped, too; one that each
    # head has of its own is mostly of distances, and hides nothing
    is_causal = settings.causal or (mask is not None and _is_whole(mask) and _sizes(mask)[1] == 1)
    rows, columns = min(tiles, key=lambda tile: _cost(lengths, tile, is_causal))
    whole, all_keys = -(-lengths[0] // rows) * rows, -(-lengths[1] // columns) * columns
    at_once = needs(rows, columns, whole, columns) <= room
    kept = whole if at_once else rows
    most = min(room // needs(rows, columns, kept, columns), _SCORES_OF_A_STEP // (rows * columns))
    group = own_heads // key.shape[1]
    together = max(n for n in range(1, max(1, most) + 1) if own_heads % n == 0 and (n % group == 0 or group % n == 0))
    # gradients of all keys stay until the last of the heads that share them; with a mask's gradient, other steps are between
    fit = together * needs(rows, columns, kept, all_keys) <= room and not settings.mask_shared
    return FlashProblem(
        group=group,
        all_heads=heads,
        lengths=lengths,
        rows=rows,
        columns=columns,
        heads=together,
        causal=settings.causal,
        scale=settings.scale,
        dropout=settings.dropout,
        at_once=at_once,
        groups_sum=together % group == 0 or fit,
        memory=_vector_memory(settings.mesh),
        mask_trained=settings.mask_trained,
        mask_shared=settings.mask_shared,
        exact=settings.exact,
        interpret=settings.interpret,
    )


_SIZES = range(LANES, _LARGEST_TILE + 1, LANES)


def _cost(lengths: tuple[int, int], tile: tuple[int, int], causal: bool) -> int:
    """The price of tiles of this size, in scores: fewer, larger ones have less overhead, and more that is padding or hidden."""
    rows, columns = (-(-length // size) for length, size in zip(lengths, tile, strict=True))
    visited = sum(min(columns, -(-(row + 1) * tile[0] // tile[1])) for row in range(rows)) if causal else rows * columns
    return visited * (tile[0] + _TILE_OVERHEAD) * (tile[1] + _TILE_OVERHEAD)


def _kind(mesh: Mesh | None) -> str:
    """The chip as JAX calls it; empty where none is known."""
    return "" if mesh is None else mesh.devices.flat[0].device_kind


def _vector_memory(mesh: Mesh | None) -> int:
    chip = chip_of(_kind(mesh))
    return _LEAST_MEMORY if chip is None else max(_LEAST_MEMORY, int(chip.vector_memory * _SHARE_OF_MEMORY))


def _room(mesh: Mesh | None) -> int:
    return _vector_memory(mesh) - _BESIDE_BLOCKS


def _needs(
    settings: _Settings, query: Shaped, key: Shaped, value: Shaped, mask: Shaped | None
) -> Callable[[int, int, int, int], int]:
    """Vector memory of a head in backward, for tiles of rows and columns, with gradients of so many queries and keys."""
    # a block of fewer features fills whole registers, too
    width = -(-max(key.shape[3], value.shape[3]) // LANES) * LANES
    of_score = _bytes_of_a_score(settings, mask)

    def needs(rows: int, columns: int, kept: int, kept_keys: int) -> int:
        own = _bytes_of_a_head(width, query.dtype.itemsize, of_score, rows, columns, kept, kept_keys)
        # two of the block, as of every other, in float32
        return own + (8 * -(-query.shape[2] // rows) * rows * -(-key.shape[2] // columns) * columns * settings.mask_shared)

    return needs


def _bytes_of_a_score(settings: _Settings, mask: Shaped | None) -> int:
    """Vector memory for each score of a tile, with the mask's blocks."""
    own = _BYTES_ON_V4 if _kind(settings.mesh) == "TPU v4" else _BYTES_OF_SCORE
    own += _BYTES_FOR_EXACTNESS if settings.exact else 0
    own += _BYTES_FOR_EXACT_DROPOUT if settings.exact and settings.dropout else 0
    if mask is None or not _is_whole(mask):
        return own
    blocks = 4 if settings.mask_trained and not settings.mask_shared else 2
    return own + blocks * jnp.dtype(mask.dtype).itemsize


def _is_whole(mask: Shaped | None) -> bool:
    """Whether a mask has a number for each query and key."""
    return mask is not None and len(mask.shape) >= 2 and min(mask.shape[-2:]) > 1


def _bytes_of_a_head(width: int, itemsize: int, of_score: int, rows: int, columns: int, kept: int, kept_keys: int) -> int:
    """Vector memory of a head in backward, which keeps gradients of `kept` queries and of `kept_keys` keys.

    Two of every block, since the next step's is fetched meanwhile: queries, cotangents, keys, values, and the gradients of
    these; the sums of the gradients, in float32; and the scores with their mask, `of_score` bytes each.
    """
    blocks = 2 * itemsize * (2 * rows + 2 * columns + 2 * kept_keys + kept)
    return width * (blocks + 4 * (kept + 2 * kept_keys)) + of_score * rows * columns


def _operands(
    problem: FlashProblem, query: jax.Array, key: jax.Array, value: jax.Array, mask: Mask, seed: jax.Array
) -> Operands:
    tiled = _tiled_mask(mask, problem)
    # a tile that nobody looks at has a gradient of zeros, which somebody must write
    seen = None if problem.mask_trained else _seen_tiles(tiled, problem)
    return Operands(query, key, value, tiled, seen, seed)


def _seen_tiles(mask: jax.Array | None, problem: FlashProblem) -> jax.Array | None:
    """Whether anybody sees anything in a tile, int32[1 or batch, tiles by columns]; None where there is no choice."""
    rows, columns = problem.tiles
    if mask is None or rows * columns == 1 or mask.shape[0] * rows * columns > _MOST_SEEN:
        return None
    # a number that is added hides only as -inf: a row of equal ones, as small as they may be, looks everywhere
    visible = mask != 0 if mask.dtype == jnp.int8 else mask != -jnp.inf
    batch, heads, *sizes = visible.shape
    height, width = (count if size > 1 else 1 for count, size in zip((columns, rows), sizes, strict=True))
    tiles = visible.reshape(batch, heads, height, sizes[0] // height, width, sizes[1] // width)
    return jnp.broadcast_to(tiles.any((1, 3, 5)), (batch, columns, rows)).reshape(batch, -1).astype(jnp.int32)


def _tiled_mask(mask: Mask, problem: FlashProblem) -> jax.Array | None:
    """A mask as kernels take it: four dimensions, the last two swapped, whole tiles, booleans as 8-bit integers."""
    if mask is None:
        return None
    whole = mask.reshape(_sizes(mask)).swapaxes(2, 3)
    whole = whole.astype(jnp.int8) if whole.dtype == jnp.bool_ else whole
    tiles = (problem.columns, problem.rows)
    missing = [-size % tile if size > 1 else 0 for size, tile in zip(whole.shape[2:], tiles, strict=True)]
    return jnp.pad(whole, ((0, 0), (0, 0), *((0, size) for size in missing))) if any(missing) else whole


def _seed(draw: Mask, query: jax.Array, by_batch: Axes, by_heads: Axes) -> jax.Array:
    """Two words of the random mask's key, and the numbers of this core's first batch element and head."""
    words = jnp.zeros(2, jnp.uint32) if draw is None else mask_key(draw, 0)
    split = zip((by_batch, by_heads), query.shape[:2], strict=True)
    first = [jnp.asarray(lax.axis_index(axes) * size if axes else 0, jnp.int32) for axes, size in split]
    return jnp.concatenate([lax.bitcast_convert_type(words, jnp.int32), jnp.stack(first)])
