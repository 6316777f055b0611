"""Collating samples of different lengths into batches of few shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import default_collate

from ..exceptions import MisconfigurationException
from ._buckets import bucket_of, check_buckets

PadValue: TypeAlias = int | float | bool
Field: TypeAlias = str | int


class PadCollate:
    """A `collate_fn` that pads samples to the smallest bucket that holds the batch's longest, and adds a mask.

    Lengths are counted along the first dimension of a sample's tensors. The mask is boolean, of shape (samples, bucket), True
    where there is data. Samples that are dicts get it under `mask_key`, tuples as one more element at their end; a single
    tensor becomes the pair (tensor, mask).

    Args:
        buckets: the lengths to pad to; their number bounds the number of shapes.
        pad_value: what padding consists of. A number pads every tensor that has a dimension; a dict names the fields to pad
            (keys of dict samples, positions in tuples) with the value for each: `{"ids": 0, "labels": -100}`.
        mask_key: the mask's key in dicts. None adds no mask: the step then has to tell padding by its values.

    Raises:
        MisconfigurationException: a bucket is no positive integer; when called: a sample is longer than the largest bucket,
            its fields have different lengths, or it has the key of the mask already.

    Example:
        >>> collate = PadCollate(buckets=[4, 8], pad_value={"ids": 0})
        >>> batch = collate([{"ids": torch.tensor([5, 6, 7]), "label": 1}, {"ids": torch.tensor([8]), "label": 0}])
        >>> batch["ids"].tolist(), batch["label"].tolist()
        ([[5, 6, 7, 0], [8, 0, 0, 0]], [1, 0])
        >>> batch["mask"].sum(1).tolist()
        [3, 1]
    """

    def __init__(
        self, buckets: Iterable[int], pad_value: PadValue | Mapping[Any, PadValue] = 0, mask_key: str | None = "mask"
    ) -> None:
        self.buckets = check_buckets(buckets)
        self.pad_value = pad_value
        self.mask_key = mask_key

    def __call__(self, samples: Sequence[Any]) -> Any:
        """One batch."""
        first = samples[0]
        if isinstance(first, Mapping):
            batch, mask = self._padded({key: [sample[key] for sample in samples] for key in first})
            if self.mask_key is None:
                return batch
            if self.mask_key in batch:
                raise MisconfigurationException(
                    f"The samples have a field {self.mask_key!r}, which is where the mask of the padding should go. Choose "
                    "another name with PadCollate(mask_key=...), or None for no mask."
                )
            return {**batch, self.mask_key: mask}
        if isinstance(first, tuple | list):
            batch, mask = self._padded(dict(enumerate(map(list, zip(*samples, strict=True)))))
            fields = list(batch.values())
            return tuple(fields) if self.mask_key is None else (*fields, mask)
        batch, mask = self._padded({0: list(samples)})
        return batch[0] if self.mask_key is None else (batch[0], mask)

    def _padded(self, columns: dict[Any, list[Any]]) -> tuple[dict[Any, Any], torch.Tensor]:
        values = self._values(columns)
        ragged = {name: [_tensor(value, name) for value in columns[name]] for name in values}
        lengths = _lengths(ragged)
        size = bucket_of(max(lengths), self.buckets)
        batch = {
            name: _stacked(ragged[name], size, values[name]) if name in ragged else default_collate(column)
            for name, column in columns.items()
        }
        return batch, torch.arange(size) < torch.tensor(lengths)[:, None]

    def _values(self, columns: dict[Any, list[Any]]) -> dict[Any, PadValue]:
        """Fields to pad, with the values to pad them with."""
        if isinstance(self.pad_value, Mapping):
            missing = [name for name in self.pad_value if name not in columns]
            if missing:
                raise MisconfigurationException(f"PadCollate should pad the fields {missing}; samples have {list(columns)}.")
            return dict(self.pad_value)
        found = {name: self.pad_value for name, column in columns.items() if _has_length(column[0])}
        if not found:
            raise MisconfigurationException(
                f"PadCollate found nothing to pad: no field of {list(columns)} is a tensor with a dimension."
            )
        return found


def _has_length(value: object) -> bool:
    return isinstance(value, torch.Tensor | np.ndarray) and value.ndim > 0


def _tensor(value: object, name: Field) -> torch.Tensor:
    tensor = torch.as_tensor(value)
    if tensor.ndim == 0:
        raise MisconfigurationException(f"PadCollate should pad the field {name!r}, which has no dimension: {value!r:.80}.")
    return tensor


def _lengths(ragged: dict[Any, list[torch.Tensor]]) -> list[int]:
    """The length of each sample, on which its fields agree."""
    rows = list(zip(*([len(value) for value in column] for column in ragged.values()), strict=True))
    for index, row in enumerate(rows):
        if len(set(row)) > 1:
            raise MisconfigurationException(
                f"Sample {index} of a batch has fields of different lengths, {dict(zip(ragged, row, strict=True))}, and one "
                'mask cannot describe them. Name those to pad together: PadCollate(pad_value={"ids": 0, "labels": -100}).'
            )
    return [row[0] for row in rows]


def _stacked(values: list[torch.Tensor], size: int, pad_value: PadValue) -> torch.Tensor:
    first = values[0]
    found = torch.full((len(values), size, *first.shape[1:]), pad_value, dtype=first.dtype)
    for row, value in zip(found, values, strict=True):
        row[: len(value)] = value
    return found
