"""The vectorised fetch is the DataLoader's own result: values, order, containers, random numbers."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    random_split,
)

from systolic.data import array_batches, is_vectorised, iterate, unflatten_batch

SAMPLES = 103
X = torch.randn(SAMPLES, 5, generator=torch.Generator().manual_seed(0))
Y = torch.arange(SAMPLES)
DATA = TensorDataset(X, Y)


class Noisy(Sampler[int]):
    """Draws from the global generator before every index, as a user's sampler may."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(50):
            yield int(torch.randint(SAMPLES, ()))

    def __len__(self) -> int:
        return 50


def assert_same(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert (got.dtype, got.stride()) == (expected.dtype, expected.stride())
        assert torch.equal(got, expected)
    elif isinstance(expected, dict):
        assert list(got) == list(expected)
        for key in expected:
            assert_same(got[key], expected[key])
    else:
        assert len(got) == len(expected)
        for part, expected_part in zip(got, expected, strict=True):
            assert_same(part, expected_part)


def record(start: Any, loader: DataLoader[Any], stop: int | None) -> tuple[list[Any], list[torch.Tensor]]:
    """Two epochs, each left after `stop` batches, with what random numbers come between batches and after."""
    torch.manual_seed(1)
    batches, drawn = [], []
    for _ in range(2):
        iterator = start(loader)
        drawn.append(torch.rand(()))
        for batch in islice(iterator, stop):
            batches.append(batch)
            drawn.append(torch.rand(()))
    drawn.append(torch.rand((), generator=loader.generator))
    return batches, drawn


def subset_of_subset() -> Dataset[Any]:
    inner = Subset(DATA, list(range(90, 10, -1)))
    return Subset(inner, range(5, 70))


LOADERS = {
    "sequential": lambda: DataLoader(DATA, batch_size=8),
    "drop_last": lambda: DataLoader(DATA, batch_size=8, drop_last=True),
    "even": lambda: DataLoader(TensorDataset(X[:96]), batch_size=8),
    "batch_larger_than_data": lambda: DataLoader(DATA, batch_size=500),
    "shuffle": lambda: DataLoader(DATA, batch_size=8, shuffle=True),
    "shuffle_generator": lambda: DataLoader(DATA, 8, shuffle=True, generator=torch.Generator().manual_seed(3)),
    "shuffle_drop_last": lambda: DataLoader(DATA, 8, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(3)),
    "replacement": lambda: DataLoader(DATA, 8, sampler=RandomSampler(DATA, replacement=True, num_samples=200)),
    "global_generator": lambda: DataLoader(
        DATA, 8, sampler=RandomSampler(DATA, replacement=True, num_samples=99, generator=torch.default_generator)
    ),
    "many_permutations": lambda: DataLoader(
        DATA, 8, sampler=RandomSampler(DATA, num_samples=250, generator=torch.default_generator)
    ),
    "subset_random": lambda: DataLoader(DATA, 8, sampler=SubsetRandomSampler(range(20, 90))),
    "weighted": lambda: DataLoader(DATA, 8, sampler=WeightedRandomSampler(torch.rand(SAMPLES).tolist(), 60)),
    "distributed": lambda: DataLoader(DATA, 8, sampler=DistributedSampler(DATA, num_replicas=1, rank=0)),
    "user_sampler": lambda: DataLoader(DATA, 8, sampler=Noisy()),
    "batch_sampler": lambda: DataLoader(DATA, batch_sampler=BatchSampler(Noisy(), 7, drop_last=False)),
    "batch_lists": lambda: DataLoader(DATA, batch_sampler=[[1, 2], [3], [-1, 5]]),
    "numpy_indices": lambda: DataLoader(DATA, 8, sampler=np.arange(20)),
    "negative_indices": lambda: DataLoader(DATA, 8, sampler=[-1, -2, 3, 4]),
    "bool_indices": lambda: DataLoader(TensorDataset(X), 2, sampler=[True, True]),
    "subset": lambda: DataLoader(Subset(DATA, list(range(80, 20, -1))), 8, shuffle=True),
    "subset_tensor": lambda: DataLoader(Subset(DATA, torch.arange(5, 40)), 8),
    "subset_numpy": lambda: DataLoader(Subset(DATA, np.arange(5, 40)), 8),
    "subset_negative": lambda: DataLoader(Subset(DATA, [-1, 2, -3]), 2),
    "subset_of_subset": lambda: DataLoader(subset_of_subset(), 8, shuffle=True),
    "random_split": lambda: DataLoader(random_split(DATA, [50, 53])[1], 8),
    "stack_tuple": lambda: DataLoader(StackDataset(X, Y), 8),
    "stack_dict": lambda: DataLoader(StackDataset(x=X, y=Y), 8, shuffle=True),
    "subset_of_stack": lambda: DataLoader(Subset(StackDataset(x=X, y=Y), range(30)), 8),
    "one_tensor": lambda: DataLoader(TensorDataset(Y), 8),
    "images": lambda: DataLoader(TensorDataset(torch.rand(20, 3, 4, 4).to(memory_format=torch.channels_last)), 8),
    "transposed": lambda: DataLoader(TensorDataset(torch.rand(5, 20).T), 8),
    "expanded": lambda: DataLoader(TensorDataset(torch.rand(1, 5).expand(20, 5)), 8),
    "no_features": lambda: DataLoader(TensorDataset(torch.rand(20, 0)), 8),
    "own_collate": lambda: DataLoader(DATA, 8, collate_fn=lambda samples: default_collate(samples)[0]),
    "workers": lambda: DataLoader(DATA, 40, num_workers=1),
    "no_batches": lambda: DataLoader(DATA, batch_size=None),
}
SLOW = {"images", "transposed", "expanded", "own_collate", "workers", "no_batches", "subset_negative"}


@pytest.mark.parametrize("stop", [None, 3])
@pytest.mark.parametrize("name", LOADERS)
def test_same_as_the_loader(name: str, stop: int | None) -> None:
    torch.manual_seed(0)
    expected = record(iter, LOADERS[name](), stop)
    torch.manual_seed(0)
    got = record(iterate, LOADERS[name](), stop)
    assert_same(got, expected)


@pytest.mark.parametrize("name", LOADERS)
def test_which_loaders_are_vectorised(name: str) -> None:
    assert is_vectorised(LOADERS[name]()) is (name not in SLOW)


KNOWN_ORDER = {
    *("sequential", "drop_last", "even", "batch_larger_than_data", "shuffle", "subset", "subset_tensor", "subset_numpy"),
    *("subset_of_subset", "random_split", "stack_tuple", "stack_dict", "subset_of_stack", "one_tensor"),
}


@pytest.mark.parametrize("name", LOADERS)
def test_batches_as_arrays_are_the_loaders_where_the_order_is_known(name: str) -> None:
    def start(loader: DataLoader[Any]) -> Iterator[Any]:
        found = array_batches(loader)
        assert found is not None
        return (unflatten_batch(found.spec, [torch.from_numpy(a) for a in arrays]) for arrays in found.arrays)

    if name not in KNOWN_ORDER:
        assert array_batches(LOADERS[name]()) is None
        return
    for stop in (None, 3):
        torch.manual_seed(0)
        expected = record(iter, LOADERS[name](), stop)
        torch.manual_seed(0)
        assert_same(record(start, LOADERS[name](), stop), expected)


class Augmented(TensorDataset):
    def __getitem__(self, index: int) -> Any:
        return tuple(tensor + 1 for tensor in super().__getitem__(index))


class Counting(DataLoader[Any]):
    def __iter__(self) -> Any:
        return iter([1, 2])


def test_what_only_looks_like_a_tensor_dataset_is_left_to_the_loader() -> None:
    assert not is_vectorised(DataLoader(Augmented(X)))
    assert not is_vectorised(DataLoader(TensorDataset(X.clone().requires_grad_())))
    assert not is_vectorised(DataLoader(TensorDataset(torch.nn.Parameter(X))))
    assert not is_vectorised(DataLoader(TensorDataset(X[:0]), sampler=[]))
    assert list(iterate(Counting(DATA))) == [1, 2]
    assert list(iterate([1, 2])) == [1, 2]


def test_a_collate_function_registered_for_tensors_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.data._utils.collate import default_collate_fn_map

    monkeypatch.setitem(default_collate_fn_map, torch.Tensor, lambda batch, *, collate_fn_map: len(batch))
    assert next(iterate(DataLoader(DATA, 8))) == [8, 8]


def test_batches_are_the_users_own() -> None:
    data = TensorDataset(X.clone())
    batches = [batch[0] for batch in iterate(DataLoader(data, 8))]
    weight = torch.ones(5, requires_grad=True)
    loss = (batches[0] * weight).sum()
    batches[1].add_(1)
    loss.backward()
    assert torch.equal(weight.grad, X[:8].sum(0))
    assert torch.equal(batches[2], X[16:24])
    assert torch.equal(data.tensors[0], X)


def test_a_bad_index_fails_at_its_batch_with_the_datasets_error() -> None:
    iterator = iterate(DataLoader(DATA, 2, sampler=[0, 1, 2, 500]))
    assert next(iterator)[1].tolist() == [0, 1]
    with pytest.raises(IndexError, match="500"):
        next(iterator)
