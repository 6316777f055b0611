"""Reading a loader's batches: numbered, stamped with where the loader is, ahead of the step or in step with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from ...data import iterate, num_batches
from ...runtime import Prefetcher
from ...utilities.random_state import HostRandomState
from .._progress import Reading, Resumed, Stamp

NumberedBatch = tuple[int, Any, bool, Stamp | None]
"""A batch between its number and whether it is the last, with what was true when it was read."""

T = TypeVar("T")
_END = object()


def numbered(loader: Iterable[Any], limit: int | float, reading: Reading | None) -> Iterator[NumberedBatch]:
    """Numbered batches, each with whether it is the last; only a loader of unknown length is read one batch ahead.

    Args:
        loader: what to read.
        limit: where an epoch ends at the latest.
        reading: where it begins; None for evaluations.
    """
    if limit == 0:
        return
    first = reading.first if reading is not None else 0
    end = min(limit, first + num_batches(loader))
    batches = _unstamped(iterate(loader)) if reading is None else _stamped(iterate(loader), reading)
    if end == math.inf:
        yield from _until_exhausted(batches, first, reading)
        return
    for index, (batch, stamp) in enumerate(batches, first):
        yield index, batch, index + 1 >= end, stamp
        if index + 1 >= end:
            return


def _unstamped(batches: Iterator[Any]) -> Iterator[tuple[Any, None]]:
    return ((batch, None) for batch in batches)


def _stamped(batches: Iterator[Any], reading: Reading) -> Iterator[tuple[Any, Stamp]]:
    """Batches with where the loader is after them."""
    source, before = reading.source, reading.before
    for number in range(2**63):
        here = reading.draws is not False  # in the thread that trains
        if number and here:
            before = HostRandomState.current()
        if before is not None and (here or not number):
            reading.under_way = (before, None if number else reading.after)
        batch = next(batches, _END)
        if batch is _END:
            reading.under_way = None
            return
        if not number and reading.after is not None:
            reading.after.restore()
        yield batch, Stamp(source.mark(), before if here else None)


def _until_exhausted(
    batches: Iterator[tuple[Any, Stamp | None]], first: int, reading: Reading | None
) -> Iterator[NumberedBatch]:
    held: list[tuple[Any, Stamp | None]] = []
    index = first
    for batch, stamp in batches:
        if held:
            earlier, earlier_stamp = held.pop()
            if earlier_stamp is not None and stamp is not None:
                earlier_stamp.next_before = stamp.before
            yield index, earlier, False, earlier_stamp
            index += 1
        held.append((batch, stamp))
        if reading is not None:
            reading.held = stamp
    if held:
        yield index, held[0][0], True, held[0][1]


def read(
    items: Iterator[NumberedBatch], prepare: Callable[[NumberedBatch], T], depth: int, reading: Reading | None
) -> Iterator[T]:
    """Prepared batches.

    Training finds out with its second batch whether reading draws from the generators of this process (random augmentation
    without workers). Then no thread reads ahead: which number goes to whom would depend on its pace, and no run would be
    like another one.

    Args:
        items: the batches.
        prepare: what to do with each.
        depth: how many may wait; 0 reads each when it is needed, without a thread.
        reading: training's; None for evaluations, which are read by the thread.
    """
    if reading is None:
        return iter(Prefetcher(items, prepare, depth)) if depth else map(prepare, items)
    return _read_for_training(items, prepare, depth, reading)


def _read_for_training(
    items: Iterator[NumberedBatch], prepare: Callable[[NumberedBatch], T], depth: int, reading: Reading
) -> Iterator[T]:
    if reading.draws is None:
        for number in range(2):
            before = HostRandomState.current()
            item = next(items, None)
            if item is None:
                return
            prepared = prepare(item)
            if number:  # with the first one the order was drawn
                reading.draws = HostRandomState.current() != before
            yield prepared
    if depth and not reading.draws:
        yield from Prefetcher(items, prepare, depth)
    else:
        yield from map(prepare, items)


def begin_reading(
    reading: Reading, batch: int, resumed: Resumed | None, shared: Sequence[torch.Generator], depends: bool
) -> None:
    """Begin an epoch, or go on in the middle of the one that was resumed.

    Args:
        reading: training's.
        batch: the number of the next batch.
        resumed: what the checkpoint knows; None where the epoch begins.
        shared: generators of the training loader that validation draws from, too.
        depends: whether batches depend on what is trained, or on what hooks do between them.
    """
    reading.first, reading.before, reading.after, reading.under_way, reading.held = batch, None, None, None, None
    # read ahead, the loader would draw before a validation or after it, as the thread happens to run, and an agent in it would
    # play with the weights of any step
    if shared or depends:
        reading.draws = True
    if resumed is None:
        return
    before = now = None if resumed.before is None else HostRandomState.current()
    if resumed.after is not None:
        before, reading.after = resumed.before, now
    reading.before = before
    reading.source.resume(resumed.place, batch, True, before, shared)
    reading.source.load_loader_states(resumed.loader_states)
