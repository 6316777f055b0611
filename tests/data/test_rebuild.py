"""Scaling a user's loader from the batch of one core to the batch of all cores."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
)

from systolic.data import MergedLoader, scale_loader, set_epoch
from systolic.exceptions import MisconfigurationException

SAMPLES = 103


class Numbers(Dataset[int]):
    def __init__(self, size: int = SAMPLES) -> None:
        self.size = size

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(index)
        return index

    def __len__(self) -> int:
        return self.size


class Stream(IterableDataset[Any]):
    """The numbers, shared out between workers; `batch` makes the dataset yield ready batches."""

    def __init__(self, batch: int | None = None) -> None:
        self.batch = batch

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        numbers = range(SAMPLES) if worker is None else range(worker.id, SAMPLES, worker.num_workers)
        if self.batch is None:
            yield from numbers
        else:
            yield from (torch.tensor(numbers[i : i + self.batch]) for i in range(0, len(numbers), self.batch))


def batches_of(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def samples_of(loader: Any) -> list[int]:
    return [sample for batch in batches_of(loader) for sample in batch]


def test_eight_cores_get_eight_times_the_batch_and_the_last_keeps_its_size() -> None:
    loader = scale_loader(DataLoader(Numbers(600), batch_size=32), 8)
    assert [len(batch) for batch in batches_of(loader)] == [256, 256, 88]
    assert samples_of(loader) == list(range(600))
    assert len(loader) == 3


def test_103_samples_on_8_cores_are_103_samples() -> None:
    loader = scale_loader(DataLoader(Numbers(), batch_size=4), 8)
    assert [len(batch) for batch in batches_of(loader)] == [32, 32, 32, 7]
    assert sorted(samples_of(loader)) == list(range(SAMPLES))


def test_one_core_and_switched_off_leave_the_loader_alone() -> None:
    loader = DataLoader(Numbers(), batch_size=4)
    assert scale_loader(loader, 1) is loader
    assert scale_loader(loader, 8, use_distributed_sampler=False) is loader


def test_other_iterables_are_their_own_global_batches() -> None:
    batches = [torch.ones(3)]
    assert scale_loader(batches, 8) is batches


def test_factor_below_one_is_refused() -> None:
    with pytest.raises(MisconfigurationException, match="factor=0"):
        scale_loader(DataLoader(Numbers()), 0)


def double(samples: list[int]) -> torch.Tensor:
    return default_collate(samples) * 2


def begin(worker: int) -> None:
    torch.manual_seed(worker)


def test_every_argument_is_kept() -> None:
    generator = torch.Generator()
    loader = DataLoader(
        Numbers(),
        batch_size=4,
        num_workers=2,
        collate_fn=double,
        drop_last=True,
        timeout=50,
        worker_init_fn=begin,
        multiprocessing_context="spawn",
        generator=generator,
        prefetch_factor=3,
        persistent_workers=True,
        pin_memory=True,
        in_order=False,
    )
    scaled = scale_loader(loader, 2)
    assert isinstance(scaled, DataLoader)
    assert scaled.batch_size == 8
    assert not scaled.pin_memory
    for name in ("dataset", "num_workers", "collate_fn", "drop_last", "timeout", "worker_init_fn", "generator"):
        assert getattr(scaled, name) is getattr(loader, name) or getattr(scaled, name) == getattr(loader, name)
    for name in ("multiprocessing_context", "prefetch_factor", "persistent_workers", "in_order", "sampler"):
        assert getattr(scaled, name) is getattr(loader, name)


def test_workers_collate_and_drop_last() -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, collate_fn=double, drop_last=True)
    scaled = scale_loader(loader, 8)
    assert [len(batch) for batch in batches_of(scaled)] == [32, 32, 32]
    assert samples_of(scaled) == [2 * number for number in range(96)]


class Backwards(Sampler[int]):
    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        yield from ((number + self.epoch) % SAMPLES for number in reversed(range(SAMPLES)))

    def __len__(self) -> int:
        return SAMPLES


@pytest.mark.parametrize(
    "make_sampler",
    [
        lambda: SequentialSampler(Numbers()),
        lambda: RandomSampler(Numbers()),
        lambda: RandomSampler(Numbers(), replacement=True, num_samples=50),
        lambda: SubsetRandomSampler(range(10, 60)),
        lambda: WeightedRandomSampler([1.0, 2.0, 3.0], 40),
        Backwards,
    ],
)
def test_samplers_are_kept_and_give_the_same_order(make_sampler: Any) -> None:
    sampler = make_sampler()
    loader = DataLoader(Numbers(), batch_size=4, sampler=sampler)
    scaled = scale_loader(loader, 4)
    assert isinstance(scaled, DataLoader)
    assert scaled.sampler is sampler
    torch.manual_seed(0)
    expected = samples_of(loader)
    torch.manual_seed(0)
    assert samples_of(scaled) == expected


def test_shuffling_is_new_every_epoch() -> None:
    torch.manual_seed(0)
    loader = scale_loader(DataLoader(Numbers(), batch_size=4, shuffle=True), 8)
    first, second = samples_of(loader), samples_of(loader)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(SAMPLES))


def test_batch_sampler_is_scaled() -> None:
    batch_sampler = BatchSampler(Backwards(), 4, drop_last=True)
    scaled = scale_loader(DataLoader(Numbers(), batch_sampler=batch_sampler), 8)
    assert [len(batch) for batch in batches_of(scaled)] == [32, 32, 32]
    assert samples_of(scaled) == list(reversed(range(7, SAMPLES)))


class Buckets(Sampler[list[int]]):
    def __init__(self, drop_last: bool = False) -> None:
        self.sampler = Backwards()
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        yield from ([start, start + 1] for start in range(0, 14, 2))

    def __len__(self) -> int:
        return 7


@pytest.mark.parametrize(("drop_last", "sizes"), [(False, [6, 6, 2]), (True, [6, 6])])
def test_arbitrary_batch_samplers_are_joined(drop_last: bool, sizes: list[int]) -> None:
    scaled = scale_loader(DataLoader(Numbers(), batch_sampler=Buckets(drop_last)), 3)
    assert [len(batch) for batch in batches_of(scaled)] == sizes
    assert len(scaled) == len(sizes)
    assert samples_of(scaled) == list(range(sum(sizes)))


class Mapped(BatchSampler):
    """A subclass with an iteration of its own."""

    def __iter__(self) -> Iterator[list[int]]:
        yield from ([0, 1], [2], [3, 4, 5])

    def __len__(self) -> int:
        return 3


def test_a_batch_sampler_subclass_keeps_its_own_batches() -> None:
    batch_sampler = Mapped(SequentialSampler(Numbers()), 2, drop_last=False)
    scaled = scale_loader(DataLoader(Numbers(), batch_sampler=batch_sampler), 2)
    assert batches_of(scaled) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("inside_batch_sampler", [True, False])
def test_a_distributed_sampler_is_replaced_by_the_order_it_deals_out(shuffle: bool, inside_batch_sampler: bool) -> None:
    data = Numbers(96)
    replicas = [DistributedSampler(data, num_replicas=4, rank=rank, shuffle=shuffle, seed=5) for rank in range(4)]
    if inside_batch_sampler:
        loader = DataLoader(data, batch_sampler=BatchSampler(replicas[0], 8, drop_last=False))
    else:
        loader = DataLoader(data, batch_size=8, sampler=replicas[0])
    with pytest.warns(UserWarning, match="1/4 of the dataset.*sharded twice.*replaced"):
        scaled = scale_loader(loader, 4)
    for epoch in (0, 3):
        set_epoch(scaled, epoch)
        shards = []
        for replica in replicas:
            replica.set_epoch(epoch)
            shards.append(list(BatchSampler(replica, 8, drop_last=False)))
        expected = [sorted(sum(parts, [])) for parts in zip(*shards, strict=True)]
        assert [sorted(batch) for batch in batches_of(scaled)] == expected


def test_a_replaced_distributed_sampler_pads_nothing_and_keeps_its_epoch() -> None:
    sampler = DistributedSampler(Numbers(), num_replicas=8, rank=3, drop_last=True)
    sampler.set_epoch(2)
    with pytest.warns(UserWarning, match="sharded twice"):
        scaled = scale_loader(DataLoader(Numbers(), batch_size=4, sampler=sampler), 8)
    generator = torch.Generator().manual_seed(2)
    assert samples_of(scaled) == torch.randperm(SAMPLES, generator=generator).tolist()


def test_a_distributed_sampler_is_kept_when_asked_for_and_explained() -> None:
    sampler = DistributedSampler(Numbers(), num_replicas=4, rank=1)
    loader = DataLoader(Numbers(), batch_size=4, sampler=sampler)
    with pytest.warns(UserWarning, match=r"num_replicas=4, rank=1.*kept"):
        assert scale_loader(loader, 8, use_distributed_sampler=False) is loader


def test_a_distributed_sampler_under_a_user_batch_sampler_is_explained_as_kept() -> None:
    sampler = DistributedSampler(Numbers(), num_replicas=4, rank=1)
    loader = DataLoader(Numbers(), batch_sampler=Mapped(sampler, 2, drop_last=False))
    with pytest.warns(UserWarning, match="kept"):
        scale_loader(loader, 2)


def test_one_replica_needs_no_warning() -> None:
    sampler = DistributedSampler(Numbers(), num_replicas=1, rank=0)
    scaled = scale_loader(DataLoader(Numbers(), sampler=sampler), 2)
    assert isinstance(scaled, DataLoader)
    assert scaled.sampler is sampler


def test_set_epoch_reaches_every_sampler_once() -> None:
    class Counting(Backwards):
        calls = 0

        def set_epoch(self, epoch: int) -> None:
            super().set_epoch(epoch)
            self.calls += 1

    sampler = Counting()
    scaled = scale_loader(DataLoader(Numbers(), batch_size=2, sampler=sampler), 2)
    set_epoch(scaled, 7)
    assert (sampler.epoch, sampler.calls) == (7, 1)
    buckets = Buckets()
    set_epoch(scale_loader(DataLoader(Numbers(), batch_sampler=buckets), 2), 4)
    assert buckets.sampler.epoch == 4


def test_iterable_dataset_is_batched_larger() -> None:
    scaled = scale_loader(DataLoader(Stream(), batch_size=4), 8)
    assert [len(batch) for batch in batches_of(scaled)] == [32, 32, 32, 7]
    assert samples_of(scaled) == list(range(SAMPLES))


def test_iterable_dataset_with_workers_counts_every_sample_once() -> None:
    scaled = scale_loader(DataLoader(Stream(), batch_size=4, num_workers=2), 4)
    assert sorted(samples_of(scaled)) == list(range(SAMPLES))


def test_batches_made_by_the_dataset_are_joined() -> None:
    scaled = scale_loader(DataLoader(Stream(batch=10), batch_size=None), 4)
    assert isinstance(scaled, MergedLoader)
    assert [len(batch) for batch in batches_of(scaled)] == [40, 40, 23]
    assert samples_of(scaled) == list(range(SAMPLES))


def test_datasets_that_take_index_lists() -> None:
    data = TensorDataset(torch.arange(SAMPLES))
    loader = DataLoader(data, batch_size=None, sampler=BatchSampler(SequentialSampler(data), 4, drop_last=False))
    scaled = scale_loader(loader, 8)
    assert [len(batch[0]) for batch in scaled] == [32, 32, 32, 7]


def test_map_datasets_of_ready_batches_are_joined() -> None:
    data = [torch.full((2,), index) for index in range(5)]
    scaled = scale_loader(DataLoader(data, batch_size=None), 2)  # type: ignore[arg-type]
    assert len(scaled) == 3
    assert batches_of(scaled) == [[0, 0, 1, 1], [2, 2, 3, 3], [4, 4]]
