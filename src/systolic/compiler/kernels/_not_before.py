"""Values that may be used only when others are there: what is computed from them once more is computed late."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import torch

from ..lowering import lowers
from ..lowering._channels_last import Value, array_of, held_like, takes_channels_last

_LIBRARY = torch.library.Library("systolic", "FRAGMENT")
_LIBRARY.define("not_before(Tensor[] values, Tensor[] others) -> Tensor[]")

not_before: Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], list[torch.Tensor]] = (
    torch.ops.systolic.not_before.default
)
"""The same values, of which XLA does not know that they are the same, and which it has only after the others."""


@torch.library.register_fake("systolic::not_before", lib=_LIBRARY)
def _fake(values: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.empty_like(value) for value in values]


@lowers(torch.ops.systolic.not_before.default)
@takes_channels_last
def _lower(values: Sequence[Value], others: Sequence[Value]) -> list[Value]:
    arrays = [array_of(value) for value in values]
    held, _ = jax.lax.optimization_barrier((arrays, [array_of(other) for other in others]))
    return [held_like(array, value) for array, value in zip(held, values, strict=True)]
