"""Buckets: the few lengths that ragged data is padded to."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import torch

from ..exceptions import MisconfigurationException


def check_buckets(buckets: Iterable[int]) -> tuple[int, ...]:
    """The buckets in ascending order, each once.

    Raises:
        MisconfigurationException: there is none, or one is no positive integer.
    """
    found = list(buckets)
    if not found or any(isinstance(b, bool) or not isinstance(b, int) or b < 1 for b in found):
        raise MisconfigurationException(
            f"Invalid buckets {found!r}: expected one or more positive integers, the lengths to pad to, such as [64, 128, 256]."
        )
    return tuple(sorted(set(found)))


def bucket_of(length: int, buckets: Sequence[int]) -> int:
    """The smallest bucket that holds `length`.

    Raises:
        MisconfigurationException: none does.
    """
    position = bisect_left(buckets, length)
    if position == len(buckets):
        raise MisconfigurationException(
            f"A sample has length {length}, and the largest bucket is {buckets[-1]}. Add a larger bucket, or shorten the "
            "samples in the dataset."
        )
    return buckets[position]


def masked_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of the values where the mask is True: what `values.mean()` would be without the padding.

    Args:
        values: any shape, such as (samples, length) from a loss with `reduction="none"`.
        mask: boolean; its shape is that of the first dimensions of `values`.

    Returns:
        A scalar; 0 where the mask is False everywhere.

    Example:
        >>> masked_mean(torch.tensor([[1.0, 3.0, 99.0]]), torch.tensor([[True, True, False]]))
        tensor(2.)
    """
    mask = mask.bool().reshape(mask.shape + (1,) * (values.ndim - mask.ndim)).expand_as(values)
    return torch.where(mask, values, torch.zeros_like(values)).sum() / mask.sum().clamp(min=1)
