"""Checks of integers in functions that PyTorch splits, while it traces, into ops that take any integer."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import torch
from torch.nn import functional

from ...exceptions import OutOfRangeError
from ..lowering import lowers
from ..lowering._context import current

_LIBRARY = torch.library.Library("systolic", "FRAGMENT")
_LIBRARY.define("within(Tensor values, int low, int high, str what, str op) -> Tensor")
_LIBRARY.define("counted(Tensor values, Tensor count, int low, int bound, str op) -> Tensor")

within: Callable[[torch.Tensor, int, int, str, str], torch.Tensor] = torch.ops.systolic.within.default
"""The same values; the host raises an error where one is below `low` or not below `high`."""


counted: Callable[[torch.Tensor, torch.Tensor, int, int, str], torch.Tensor] = torch.ops.systolic.counted.default
"""Places in a dimension of which so many elements count, from its beginning; the host raises where one is not among them."""


@torch.library.register_fake("systolic::within", lib=_LIBRARY)
def _fake(values: torch.Tensor, low: int, high: int, what: str, op: str) -> torch.Tensor:
    return torch.empty_like(values)


@torch.library.impl("systolic::within", "CPU", lib=_LIBRARY)
def _on_values(values: torch.Tensor, low: int, high: int, what: str, op: str) -> torch.Tensor:
    """For a constant of the step, whose values are there while it is traced."""
    outside = values[(values < low) | (values >= high)]
    if outside.numel():
        raise OutOfRangeError(f"{op}: {what} {int(outside[0])} is not in the range from {low} to {high - 1}.")
    return values.clone()


@lowers(torch.ops.systolic.within.default)
def _lower(values: jax.Array, low: int, high: int, what: str, op: str) -> jax.Array:
    current().require_in_range(values, high, low=low, what=what, op=op)
    return values


@torch.library.register_fake("systolic::counted", lib=_LIBRARY)
def _fake_counted(values: torch.Tensor, count: torch.Tensor, low: int, bound: int, op: str) -> torch.Tensor:
    return torch.empty_like(values)


@lowers(torch.ops.systolic.counted.default)
def _lower_counted(values: jax.Array, count: jax.Array, low: int, bound: int, op: str) -> jax.Array:
    count = count.astype(values.dtype)
    current().require_counted(values, count, bound, low=low, op=op)
    # inside of the array, whatever it is: a second error would stand beside the first one
    return jnp.clip(jnp.where(values < 0, values + count, values), 0, bound - 1)


_one_hot = functional.one_hot


def one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """PyTorch's function of this name; where it would have to look for the largest class, it refuses as before."""
    if num_classes > 0 and tensor.dtype == torch.int64:
        tensor = within(tensor, 0, num_classes, "class", "one_hot")
    return _one_hot(tensor, num_classes)
