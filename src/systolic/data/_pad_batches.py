"""Filling up batches that have fewer samples than the others."""

from __future__ import annotations

import copy
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from ..exceptions import MisconfigurationException
from ._batch import flatten_batch

MASK_KEY: Final = "mask"


@dataclass
class PaddedBatch:
    """A batch that was filled up.

    Attributes:
        batch: what the step gets, with its mask.
        size: how many samples are real, a float32 scalar.
    """

    batch: Any
    size: torch.Tensor


class BatchPadder:
    """Fills up the batches of one loader to the loader's batch size.

    What is added repeats the last sample, so that no step meets values that it could not have met; boolean tensors, which
    are masks, get False. The batch gets a mask that is True for real samples: a dict under "mask" (a mask of this name that
    is there already is continued instead), a tuple or list as one more element, a tensor as the pair (tensor, mask).

    Args:
        loader: says its batch size; where it does not, batches are filled up to the largest one so far.
    """

    def __init__(self, loader: object) -> None:
        sampler = getattr(loader, "batch_sampler", None)
        known = getattr(loader, "batch_size", None) or getattr(sampler, "batch_size", None)
        self.rows = known if isinstance(known, int) else 0

    def __call__(self, batch: object) -> PaddedBatch:
        """The batch with as many samples as the others, and its mask.

        Raises:
            MisconfigurationException: it is not known where the samples are, or where a mask could go.
        """
        leaves, spec = flatten_batch(batch)
        tensors = [torch.as_tensor(leaf) for leaf in leaves]
        size = _samples(tensors)
        self.rows = max(self.rows, size)
        filled = spec.unflatten([_filled(tensor, self.rows) for tensor in tensors])
        return PaddedBatch(_with_mask(filled, torch.arange(self.rows) < size), torch.tensor(float(size)))


def mask_of(batch: MutableMapping[str, Any] | Sequence[Any]) -> Any:
    """The mask of a batch that was filled up."""
    return batch[MASK_KEY] if isinstance(batch, MutableMapping) else batch[-1]


def _samples(tensors: list[torch.Tensor]) -> int:
    sizes = {tensor.shape[0] for tensor in tensors if tensor.ndim}
    if len(sizes) != 1 or 0 in sizes:
        raise MisconfigurationException(
            "Trainer(pad_batches=True) adds samples, and needs batches whose tensors all have the samples in their first "
            f"dimension. Received shapes {[tuple(tensor.shape) for tensor in tensors]}. Pad in the collate function, or use "
            "drop_last=True, and leave pad_batches out."
        )
    return sizes.pop()


def _filled(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    if tensor.ndim == 0 or tensor.shape[0] == rows:
        return tensor
    missing = tensor[-1:].expand(rows - tensor.shape[0], *tensor.shape[1:])
    return torch.cat([tensor, torch.zeros_like(missing) if tensor.dtype == torch.bool else missing])


def _with_mask(batch: Any, mask: torch.Tensor) -> Any:
    if isinstance(batch, MutableMapping):
        there = batch.get(MASK_KEY)
        if there is None:
            batch = copy.copy(batch)
            batch[MASK_KEY] = mask
        elif not isinstance(there, torch.Tensor) or there.dtype != torch.bool or there.ndim == 0:
            raise MisconfigurationException(
                f"Trainer(pad_batches=True) puts its mask at batch[{MASK_KEY!r}], where this batch has something else: "
                "expected a boolean tensor with the samples in its first dimension, or nothing. Give that field another name."
            )
        return batch
    if type(batch) in (tuple, list):
        return type(batch)([*batch, mask])
    if isinstance(batch, torch.Tensor):
        return batch, mask
    raise MisconfigurationException(
        f"Trainer(pad_batches=True) cannot add a mask to a batch of type {type(batch).__name__}: expected a dict, a tuple, a "
        "list or a tensor."
    )
