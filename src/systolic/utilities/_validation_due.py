"""After which training batches validation runs."""

from __future__ import annotations


def batches_between(interval: int | float, batches: int | float) -> int | float:
    """After how many training batches validation runs; infinity: after the last one only.

    Args:
        interval: `val_check_interval`: an integer counts batches, a float is a part of the epoch.
        batches: of an epoch; infinity where that is unknown.

    Example:
        >>> batches_between(0.25, 10), batches_between(3, 10), batches_between(1.0, 10)
        (2, 3, inf)
    """
    if isinstance(interval, int):
        return interval
    if interval == 1.0 or batches == float("inf"):
        return float("inf")
    return max(1, int(batches * interval))


def epoch_validates(epoch: int, every_n_epochs: int | None) -> bool:
    """Whether there is validation in an epoch, counted from 0, at all.

    Example:
        >>> [epoch_validates(epoch, 2) for epoch in range(4)]
        [False, True, False, True]
    """
    return every_n_epochs is None or (epoch + 1) % every_n_epochs == 0


def validation_is_due(
    epoch: int, every_n_epochs: int | None, batch_idx: int, is_last: bool, every: int | float, seen: int, stopping: bool = False
) -> bool:
    """Whether validation runs right after a training batch.

    Args:
        epoch: the current one, from 0.
        every_n_epochs: `check_val_every_n_epoch`; None counts batches across epochs.
        batch_idx: the batch's number in the epoch.
        is_last: whether it is the epoch's last.
        every: what `batches_between` returned.
        seen: batches of all epochs, this one included.
        stopping: whether training stops after this batch, so that it is the last chance.

    Example:
        >>> [i for i in range(6) if validation_is_due(0, 1, i, i == 5, every=2, seen=i + 1)]
        [1, 3, 5]
    """
    if not epoch_validates(epoch, every_n_epochs):
        return False
    if stopping or (is_last and every == float("inf")):
        return True
    return (seen if every_n_epochs is None else batch_idx + 1) % every == 0
