"""Shapes of the batch that all cores of a slice would share, from a batch of one core."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from ...data import CombinedLoader, MergedLoader
from ...exceptions import MisconfigurationException
from ...runtime import jax_dtype
from .._hook_changes import call_on_batch
from .._padding import padder_for
from .._stage import Stage
from ..loops._feed import FedBatch, feed

if TYPE_CHECKING:
    from .._run import Run


@dataclass(frozen=True)
class Sample:
    """The batch of a step, as shapes.

    Attributes:
        batch: one that was loaded, for its structure.
        leaves: shape and JAX dtype of its tensors in the batch of all cores.
        global_batch: samples over all cores.
        core_batch: samples on each core.
        notes: what the reader of a report should know.
    """

    batch: FedBatch
    leaves: list[tuple[tuple[int, ...], Any]]
    global_batch: int
    core_batch: int
    notes: tuple[str, ...] = ()


def sample(run: Run, given: Any, scaled: Any, batch_size: int | None, stage: Stage, *indices: int) -> Sample:
    """Load one batch and scale its shapes to all cores of the run.

    A slice of 2,048 cores has batches that a laptop should not load, and often larger than the data set at hand. So one
    core's batch is loaded, and the first dimension of its tensors is multiplied.

    Args:
        run: with the devices of the slice.
        given: the user's loader.
        scaled: that loader as fit would use it, its batches scaled to all cores.
        batch_size: samples on each core, instead of the loader's.
        stage: its hook before a step is called with the loaded batch, and may change it.
        indices: the hook's arguments after the batch.

    Raises:
        MisconfigurationException: the batch cannot be scaled to `batch_size`.
    """
    cores = run.config.batch_parts
    scales = run.config.use_distributed_sampler and _are_data_loaders(given)
    one = _first(run, given if scales else scaled, stage, indices)
    size = _size(one)
    if scales and all(leaf.ndim == 0 or leaf.shape[0] == size for leaf in one.leaves):
        return _resized(one, size, (batch_size or size) * cores, cores)
    if batch_size is not None and not scales:
        resized = _resized(one, size, batch_size * cores, cores)
        note = f"the loader's batches of {size} samples are global; they were taken to be {batch_size * cores}"
        return replace(resized, notes=(note,))
    if batch_size is not None:
        raise MisconfigurationException(
            "The batch size cannot be changed from outside: not every tensor of a batch has the samples in its first "
            f"dimension. Received shapes {[tuple(leaf.shape) for leaf in one.leaves]} for {size} samples."
        )
    whole = one if not scales else _first(run, scaled, stage, indices)
    total = _size(whole)
    note = "the batch was loaded as it is, because its tensors do not all have the samples in their first dimension"
    return Sample(whole, [_kind(leaf) for leaf in whole.leaves], total, -(-total // cores), (note,) if scales else ())


def samples_per_epoch(given: Any) -> int | None:
    """How many samples the loader has, where it says so."""
    dataset = getattr(given, "dataset", None)
    try:
        return len(dataset) if dataset is not None else None
    except TypeError:
        return None


def _first(run: Run, loader: Iterable[Any], stage: Stage, indices: Sequence[int]) -> FedBatch:
    """The first batch as the step would get it, after the hook that may change it; its tensors stay on the host."""
    options = {"transform": run.before_transfer(), "precision": run.config.numerics, "pad": padder_for(run, loader)}
    batches = feed(_fresh(loader), None, depth=0, limit=1, **options)
    batch = next(iter(batches))
    call_on_batch(run.hooks, stage.batch_start, batch, None, *indices)
    batch.statics = batch.spec.statics  # on the host they were left out, and the step will be compiled
    return batch


def _fresh(loader: Any) -> Any:
    loader = CombinedLoader(loader, "max_size_cycle") if isinstance(loader, list | tuple | dict) else loader
    return (batch for batch, _, _ in loader) if isinstance(loader, CombinedLoader) else loader


def _are_data_loaders(given: Any) -> bool:
    if isinstance(given, CombinedLoader):
        return all(map(_are_data_loaders, given.flattened))
    if isinstance(given, dict):
        return all(map(_are_data_loaders, given.values()))
    if isinstance(given, list | tuple):
        return all(map(_are_data_loaders, given))
    return isinstance(given, DataLoader | MergedLoader)


def _resized(batch: FedBatch, size: int, total: int, cores: int) -> Sample:
    leaves = []
    for leaf in batch.leaves:
        shape, dtype = _kind(leaf)
        leaves.append(((total, *shape[1:]) if shape and shape[0] == size else shape, dtype))
    return Sample(batch, leaves, total, total // cores)


def _size(batch: FedBatch) -> int:
    """The samples in a batch: the first dimension of its first tensor that has one."""
    return next((leaf.shape[0] for leaf in batch.leaves if leaf.ndim), 1)


def _kind(leaf: torch.Tensor) -> tuple[tuple[int, ...], Any]:
    return tuple(leaf.shape), jax_dtype(leaf.dtype)
