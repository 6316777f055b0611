"""Batches of samples of like length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch.utils.data import Sampler

from ..exceptions import MisconfigurationException
from ._buckets import bucket_of, check_buckets


class MapStyle(Protocol):
    """A dataset whose samples have numbers."""

    def __len__(self) -> int:
        """How many samples there are."""
        ...

    def __getitem__(self, index: int, /) -> Any:
        """A sample."""
        ...


def measure_lengths(dataset: MapStyle, length: Callable[[Any], int] = len) -> list[int]:
    """The length of every sample of a dataset, which is read once from its beginning to its end.

    Args:
        dataset: with `__len__` and `__getitem__`.
        length: the length of a sample, such as `lambda sample: len(sample["ids"])`.
    """
    return [length(dataset[index]) for index in range(len(dataset))]


class BucketBatchSampler(Sampler[list[int]]):
    """A `batch_sampler` whose batches hold samples of one bucket, so that little of a batch is padding.

    Every sample comes once an epoch. With `shuffle`, samples are drawn anew within their bucket, and batches in any order;
    the order depends on `seed` and the epoch alone. On several cores it makes larger batches, not other ones: `batch_size`
    counts samples on one core, as in a DataLoader.

    Args:
        lengths: the length of every sample of the dataset; `measure_lengths` finds them.
        batch_size: samples in a batch.
        buckets: the lengths that PadCollate pads to.
        shuffle: whether each epoch has another order.
        drop_last: drop what does not fill a batch, in each bucket. Otherwise every bucket can end with a smaller batch, which
            is one more shape; `Trainer(pad_batches=True)` fills it.
        seed: of the order.

    Raises:
        MisconfigurationException: a sample is longer than the largest bucket, or an argument is no positive integer.

    Example:
        >>> sampler = BucketBatchSampler([3, 9, 2, 8], batch_size=2, buckets=[4, 16], shuffle=False)
        >>> list(sampler)
        [[0, 2], [1, 3]]
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        buckets: Iterable[int],
        *,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
    ) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise MisconfigurationException(f"Invalid batch_size {batch_size!r}: expected an integer >= 1.")
        self.lengths = lengths
        self.batch_size = batch_size
        self.buckets = check_buckets(buckets)
        self.shuffle, self.drop_last, self.seed = shuffle, drop_last, seed
        self.epoch = 0
        groups: dict[int, list[int]] = defaultdict(list)
        for index, length in enumerate(lengths):
            groups[bucket_of(length, self.buckets)].append(index)
        self._groups = [groups[bucket] for bucket in sorted(groups)]

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; the Trainer does so."""
        self.epoch = epoch

    def scaled(self, factor: int) -> BucketBatchSampler:
        """The same sampler with `factor` times as many samples in a batch."""
        options: dict[str, Any] = {"shuffle": self.shuffle, "drop_last": self.drop_last, "seed": self.seed}
        found = BucketBatchSampler(self.lengths, self.batch_size * factor, self.buckets, **options)
        found.set_epoch(self.epoch)
        return found

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        batches: list[list[int]] = []
        for group in self._groups:
            order = torch.randperm(len(group), generator=generator).tolist() if self.shuffle else range(len(group))
            members = [group[position] for position in order]
            batches += [members[start : start + self.batch_size] for start in range(0, len(members), self.batch_size)]
        if self.drop_last:
            batches = [batch for batch in batches if len(batch) == self.batch_size]
        if self.shuffle:
            batches = [batches[position] for position in torch.randperm(len(batches), generator=generator).tolist()]
        return iter(batches)

    def __len__(self) -> int:
        if self.drop_last:
            return sum(len(group) // self.batch_size for group in self._groups)
        return sum(-(-len(group) // self.batch_size) for group in self._groups)
