"""Batches of loaders that do not tell how many they have: several processes go on to the next one together, or not at all."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...data import StreamBatch, concatenate_batches, digest_of, flatten_batch, has_agreed_length
from ...distributed import gather
from ...exceptions import MisconfigurationException
from ._feed import FedBatch, device_leaves

if TYPE_CHECKING:
    from .._run import Run


@dataclass(frozen=True)
class _Next:
    """A process's next batch, as it tells the others."""

    index: int
    is_last: bool
    parts: int
    rows: int
    digest: str


def in_step(batches: Iterator[FedBatch], run: Run, loader: object) -> Iterator[FedBatch]:
    """The batches; where processes could have other numbers of them, they meet before each.

    Args:
        batches: of one loader.
        run: whose they are.
        loader: where they come from.
    """
    if not run.is_shared or has_agreed_length(loader):
        return batches
    return _meeting(batches, run, own=not run.config.use_distributed_sampler)


def _meeting(batches: Iterator[FedBatch], run: Run, own: bool) -> Generator[FedBatch]:
    last: FedBatch | None = None
    try:
        while True:
            batch = next(batches, None)
            found = gather("read a batch", None if batch is None else _told(batch, first=last is None, own=own))
            there = [one for one in found if one is not None]
            if not there:
                return
            if own:
                batch = _put_together(batch, last, there, len(found), run)
            elif any(one != found[0] for one in found):
                raise _apart(found)
            assert batch is not None, "all processes have one"
            last = batch
            yield batch
    finally:
        if isinstance(batches, Generator):
            batches.close()


def _told(batch: FedBatch, first: bool, own: bool) -> _Next:
    stream = batch.sharing if isinstance(batch.sharing, StreamBatch) else None
    rows = stream.rows if stream is not None else 0
    digest = "" if own or not first else (stream.digest if stream is not None else digest_of(batch.whole))
    return _Next(batch.index, batch.is_last, 1 if stream is None else stream.count, rows, digest)


def _put_together(
    batch: FedBatch | None, last: FedBatch | None, there: list[_Next], processes: int, run: Run
) -> FedBatch | None:
    """Of streams that each process has of its own: the parts as they lie, or where these are not alike, all rows in all."""
    if batch is not None and not isinstance(batch.sharing, StreamBatch):
        return batch
    is_last = all(one.is_last for one in there)
    alike = len(there) == processes and len({(one.rows, one.parts) for one in there}) == 1 and there[0].parts > 1
    if alike and batch is not None:
        batch.is_last = is_last
        return batch
    parts: list[Any] = [
        part for part in gather("send a part of a batch", None if batch is None else batch.whole) if part is not None
    ]
    whole = concatenate_batches(parts)
    tensors, spec = flatten_batch(whole)
    statics = spec.statics if run.placement is not None else []
    stamp = batch.stamp if batch is not None else last.stamp if last is not None else None
    leaves, dataloader_idx = device_leaves(tensors, run.placement), run.evaluated.current if run.evaluated is not None else 0
    return FedBatch(whole, leaves, spec, dataloader_idx, there[0].index, is_last, statics, stamp)


def _apart(found: list[_Next | None]) -> MisconfigurationException:
    told = "; ".join(f"process {process}: {_words(one)}" for process, one in enumerate(found))
    if all(one is not None for one in found) and len({one.digest for one in found if one is not None}) > 1:
        problem = "do not read the same samples"
    else:
        problem = "do not have the same batches"
    return MisconfigurationException(
        f"The processes {problem}. Expected: the same samples in the same order in every process, each of which takes its rows "
        f"of every global batch. Received: {told}. Where the dataset gives every process samples of its own, say so with "
        "Trainer(use_distributed_sampler=False): then each process's batches are its parts, and may be unequally many."
    )


def _words(one: _Next | None) -> str:
    if one is None:
        return "no batch more"
    digest = f", digest {one.digest}" if one.digest else ""
    rows = f", of {one.rows * one.parts} samples" if one.rows else ""
    return f"batch {one.index}{rows}{digest}{', its last' if one.is_last else ''}"
