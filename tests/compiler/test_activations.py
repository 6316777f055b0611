"""Bytes that a captured step keeps for its backward pass, and what it computes once more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from preflight.planning.planned import Wide, cell, steps_of

from systolic.compiler import activations_of

pytest.importorskip("libtpu")


def test_what_two_products_keep_and_compute_again() -> None:
    way = cell("v5litepod-1", core_batch=8)
    steps = steps_of(Wide(256, blocks=2))
    none, dots, full = (activations_of(steps.traced(replace(way, remat=remat)).captured) for remat in ("none", "dots", "full"))
    sample = 8 * 4  # bytes of one feature of the batch
    # of each block its input (of the first one the batch, which is none of these), its hidden layer after the ReLU; the
    # difference that the loss squares, and the loss
    assert none.kept == sample * (256 + 128 + 256 + 128) + 4
    assert (none.again_flops, none.again_bytes) == (0, 0)
    # the hidden layers' products are kept in place of the ReLUs, which are computed once more, as are the difference and a one
    assert dots.again_flops == 0
    assert dots.again_bytes == sample * (2 * 256 + 128) + 4
    # only what goes into the second block is kept, the difference, and the loss
    assert full.kept == sample * (128 + 128) + 4
    # each block's first product once more; the second one's result is not needed
    assert full.again_flops == 2 * 2 * 8 * 128 * 256
    assert full.again_bytes == sample * 2 * (256 + 256)
