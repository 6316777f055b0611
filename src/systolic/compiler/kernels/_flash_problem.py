"""The problem and the operands of the attention kernels for TPU, apart from the kernels: importing Pallas takes time."""

from __future__ import annotations

from dataclasses import dataclass

import jax


@dataclass(frozen=True)
class FlashProblem:
    """Attention of one core, and how it is cut.

    Attributes:
        group: heads of the query that share one of the key.
        all_heads: heads of the query on all cores.
        lengths: of queries and keys; the last tiles may reach beyond them.
        rows: queries of a tile.
        columns: keys of a tile.
        heads: heads of the query that one step of the grid goes through.
        causal: whether position i sees the positions up to i only.
        scale: what scores are multiplied by.
        dropout: the share of probabilities that is set to zero.
        at_once: compute scores once for all gradients, and keep those of all queries of a head in vector memory, in float32;
            else in two passes, of which one keeps those of a tile.
        groups_sum: add up the gradients of a key's head over the heads of the query that share it, in vector memory, in
            float32; else each head of the query gives its own, and they are added up outside.
        memory: bytes of vector memory that a kernel may take.
        mask_trained: give the mask's gradient, too.
        mask_shared: batch elements share it: they add to one gradient, which stays in vector memory from the first to the last.
        exact: multiply float32 as such, not rounded to bfloat16.
        interpret: run the kernels without a TPU.
    """

    group: int
    all_heads: int
    lengths: tuple[int, int]
    rows: int
    columns: int
    heads: int
    causal: bool
    scale: float
    dropout: float
    at_once: bool
    groups_sum: bool
    memory: int
    mask_trained: bool
    mask_shared: bool
    exact: bool
    interpret: bool

    @property
    def key_heads(self) -> int:
        """Heads of the key that one step of the grid goes through."""
        return max(1, self.heads // self.group)

    @property
    def steps_of_group(self) -> int:
        """Steps of the grid, tile for tile, that go through the heads of the query which share one of the key."""
        return max(1, self.group // self.heads)

    @property
    def keys_wait(self) -> bool:
        """Whether the gradients of all keys stay in vector memory, since a later step's heads of the query add to them."""
        return self.groups_sum and self.steps_of_group > 1

    @property
    def kept_columns(self) -> int:
        """Tiles of keys whose gradients are in vector memory at a time."""
        return self.tiles[1] if self.keys_wait else 1

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles along queries and along keys."""
        return -(-self.lengths[0] // self.rows), -(-self.lengths[1] // self.columns)


@dataclass(frozen=True)
class Operands:
    """Arrays of one core.

    Attributes:
        query: (batch, heads, length, features).
        key: (batch, key heads, other length, features).
        value: (batch, key heads, other length, other features).
        mask: (1 or batch, 1 or heads, 1 or other length, 1 or length), transposed as tiles are and padded to whole tiles: 8-bit
            integers that say what takes part, or numbers that are added; None for none.
        seen: int32[1 or batch, tiles]: by columns, whether the mask lets anybody see anything in a tile; None to visit all.
        seed: int32[4]: two words of the dropout's key, and the numbers of the first batch element and the first head.
    """

    query: jax.Array
    key: jax.Array
    value: jax.Array
    mask: jax.Array | None
    seen: jax.Array | None
    seed: jax.Array
