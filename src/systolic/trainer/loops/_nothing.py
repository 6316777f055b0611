"""Batches that are None: what a `collate_fn` returns that found no good sample. As in Lightning none is trained on."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ._feed import FedBatch

if TYPE_CHECKING:
    from .._run import Run


def is_nothing(batch: FedBatch) -> bool:
    """Whether the loader gave None; costs a look at an empty list for every other batch."""
    return not batch.leaves and batch.whole is None


def pass_over(run: Run, batch: FedBatch, updates: bool) -> None:
    """Count a batch that is None; no step runs, and only `on_train_batch_end` is called for it.

    Args:
        run: the run.
        batch: the batch.
        updates: whether an optimizer would have stepped after it: as in Lightning it counts as one that stepped.
    """
    if not run.told_of_nothing:
        run.told_of_nothing = True
        warnings.warn(
            "The train_dataloader yielded None. Nothing is learned from such a batch; if that is meant, ignore this warning.",
            stacklevel=2,
        )
    run.counters.batches_seen += 1
    run.counters.batches_that_stepped += updates
    run.progress.count(batch.index, updates, batch.stamp)
    run.progress.stepped_unreported = False
