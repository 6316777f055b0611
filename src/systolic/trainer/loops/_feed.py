"""From a loader to batches on the devices."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from ...compiler import CAPTURE_LOCK
from ...data import (
    ArrayBatches,
    BatchPadder,
    BatchSpec,
    PaddedBatch,
    Sharing,
    StreamBatch,
    array_batches,
    flatten_batch,
    is_vectorised,
    num_batches,
)
from ...precision import Precision
from ...runtime import Placement, to_jax_array
from .._progress import Reading, Stamp
from ._reading import NumberedBatch, numbered, read

# JAX warns of every fork, because a child that calls JAX could hang; the workers of a DataLoader do not call it
warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)


@dataclass(slots=True)  # not frozen: that would cost a microsecond a batch
class FedBatch:
    """A batch, ready for a step.

    Attributes:
        whole: what the step gets, on the host: `host`, or the padded batch around it.
        leaves: its tensors on the devices (or as they are, in eager mode).
        spec: how to put them together again.
        dataloader_idx: which loader it came from.
        index: its number in that loader.
        is_last: whether no batch follows.
        statics: what it holds besides tensors, for the compiler to watch; empty in eager mode.
        stamp: what was true when it was read, in training.
        sharing: how several processes share it.
    """

    whole: Any
    leaves: list[Any]
    spec: BatchSpec
    dataloader_idx: int
    index: int
    is_last: bool
    statics: list[Any]
    stamp: Stamp | None = None
    sharing: Sharing | None = None

    @property
    def own_rows(self) -> int:
        """How many samples of the batch this process has read, where it shares the batch."""
        shapes = [leaf.shape for leaf in flatten_batch(self.whole)[0]]
        return next((shape[0] for shape in shapes if self.sharing is not None and self.sharing.parts(shape) > 1), 0)

    @property
    def host(self) -> Any:
        """Batch that the loader gave, for hooks; None where no hook looks."""
        return self.whole.batch if isinstance(self.whole, PaddedBatch) else self.whole


def feed(
    loader: Iterable[Any],
    placement: Placement | None,
    *,
    transform: Callable[[Any, int], Any] | None = None,
    precision: Precision | None = None,
    pad: BatchPadder | None = None,
    depth: int = 2,
    dataloader_idx: int = 0,
    limit: int | float = float("inf"),
    shown: bool = True,
    reading: Reading | None = None,
    sharing: Sharing | None = None,
) -> Iterator[FedBatch]:
    """Batches of one loader, copied to the devices ahead of their use.

    Args:
        loader: anything that yields batches.
        placement: the devices; None leaves tensors where they are (eager mode) and starts no thread.
        transform: the user's `on_before_batch_transfer` and `transfer_batch_to_device`.
        precision: what floating tensors are converted to, before the hook; None leaves them as they are.
        pad: fills up batches, after the hook.
        depth: how many batches may wait on the devices; 0 copies each batch when it is needed, without a thread.
        dataloader_idx: the loader's number, handed on.
        limit: how many batches to take.
        shown: whether hooks look at batches as the loader gives them.
        reading: where in its epoch the loader is, for training.
        sharing: how several processes share its batches; None where each reads them whole.
    """
    converts = precision if precision is not None and precision.parameters is not None else None

    def prepare(item: NumberedBatch) -> FedBatch:
        index, batch, is_last, stamp = item
        shared: Sharing | None = sharing
        if isinstance(batch, StreamBatch):
            batch, shared = batch.batch, batch
        if converts is not None:
            batch = converts.convert_input(batch)
        if transform is not None:
            with CAPTURE_LOCK:
                batch = transform(batch, dataloader_idx)
        whole = batch if pad is None else pad(batch)
        tensors, spec = flatten_batch(whole)
        statics = spec.statics if placement is not None else []
        leaves = device_leaves(tensors, placement, shared)
        return FedBatch(whole, leaves, spec, dataloader_idx, index, is_last, statics, stamp, shared)

    in_place = placement is not None and placement.shares_host_memory and transform is None
    if placement is not None and in_place and pad is None and converts is None and not shown:
        plain = array_batches(loader)
        if plain is not None:
            return _fed_arrays(plain, placement, dataloader_idx, int(min(limit, num_batches(loader))))
    batches = numbered(loader, limit, reading)
    batches = batches if converts is None else converts.undisturbed(batches)
    # where nothing is copied and a batch is one indexing, a thread would cost more than it hides
    ahead = 0 if placement is None or (in_place and is_vectorised(loader)) else depth
    return read(batches, prepare, ahead, reading)


def _fed_arrays(batches: ArrayBatches, placement: Placement, dataloader_idx: int, end: int) -> Iterator[FedBatch]:
    """Batches that need no more than to be handed on: 3 us each, where tensors and a copy of them take 20."""
    spec, statics = batches.spec, batches.spec.statics
    for index, arrays in enumerate(islice(batches.arrays, end)):
        leaves = [placement.shard(array, is_final=True) for array in arrays]
        yield FedBatch(None, leaves, spec, dataloader_idx, index, index + 1 >= end, statics)


def device_leaves(
    tensors: Sequence[torch.Tensor | np.ndarray[Any, Any]],
    placement: Placement | None,
    sharing: Sharing | None = None,
) -> list[Any]:
    """A batch's tensors on the devices; without devices as PyTorch's."""
    if placement is None:
        return [torch.from_numpy(t) if isinstance(t, np.ndarray) else t for t in tensors]
    arrays = [to_jax_array(t) if isinstance(t, torch.Tensor) else t for t in tensors]
    return [placement.shard(array, parts=1 if sharing is None else sharing.parts(array.shape)) for array in arrays]
