"""Products in float32 where fewer bits would do."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ._model import Advice, Figure
from ._products import Matmul
from ._step import TracedStep

_PASSES = {"default": 1, "high": 3, "highest": 6}
"""Passes of a float32 product through the matrix unit (https://docs.jax.dev/en/latest/jax.lax.html#jax.lax.Precision)."""

_WORTH = 0.5


def advise_precision(step: TracedStep, products: tuple[Matmul, ...]) -> Iterator[Advice]:
    """Say what float32 costs: passes through the matrix unit, and bytes."""
    flops = sum(one.flops for one in products)
    wide = sum(one.flops for one in products if one.dtype == torch.float32)
    if not flops or wide < _WORTH * flops:
        return
    share = Figure("precision", "products in float32", 100 * wide / flops, "%", "captured graph: FLOPs of forward by dtype")
    passes = _PASSES[step.matmul_precision]
    how = Figure("precision", "passes of each", passes, "", f"matmul_precision={step.matmul_precision!r}")
    if passes > 1:
        yield Advice(
            "precision",
            f"Every float32 product goes through the matrix unit {passes} times. Trainer(matmul_precision='default') takes one "
            'pass; so does precision="bf16-mixed".',
            (share, how),
        )
    else:
        yield Advice(
            "precision",
            "Products round float32 operands to bfloat16 in one pass already; what float32 costs is bytes. Activations in "
            'precision="bf16-mixed" take half of them, at the price of conversions: compare both with --advise.',
            (share, how),
        )
