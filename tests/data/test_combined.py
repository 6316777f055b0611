"""CombinedLoader: Lightning's modes over any nesting."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from systolic.data import CombinedLoader, scale_loader, set_epoch
from systolic.exceptions import MisconfigurationException

SHORT, LONG = range(2), range(10, 15)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("min_size", [(0, 10), (1, 11)]),
        ("max_size", [(0, 10), (1, 11), (None, 12), (None, 13), (None, 14)]),
        ("max_size_cycle", [(0, 10), (1, 11), (0, 12), (1, 13), (0, 14)]),
    ],
)
def test_joint_modes(mode: Any, expected: list[Any]) -> None:
    combined = CombinedLoader({"a": SHORT, "b": LONG}, mode)
    got = list(combined)
    assert [(batch["a"], batch["b"]) for batch, _, _ in got] == expected
    assert [index for _, index, _ in got] == list(range(len(expected)))
    assert {dataloader for _, _, dataloader in got} == {0}
    assert len(combined) == len(expected)
    assert len(list(combined)) == len(expected)


def test_sequential() -> None:
    combined = CombinedLoader([SHORT, LONG], "sequential")
    assert list(combined) == [(0, 0, 0), (1, 1, 0), (10, 0, 1), (11, 1, 1), (12, 2, 1), (13, 3, 1), (14, 4, 1)]
    assert len(combined) == 7


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (1, [(0, 0, 0), (10, 0, 1)]),
        ([0, 2], [(10, 0, 1), (11, 1, 1)]),
        ([float("inf"), 0], [(0, 0, 0), (1, 1, 0)]),
        ([0, 0], []),
    ],
)
def test_sequential_limits(limits: Any, expected: list[Any]) -> None:
    combined = CombinedLoader([SHORT, LONG], "sequential")
    combined.limits = limits
    assert list(combined) == expected
    assert len(combined) == len(expected)


@pytest.mark.parametrize(("mode", "length"), [("min_size", 2), ("max_size", 3), ("max_size_cycle", 3)])
def test_limits_count_in_len(mode: Any, length: int) -> None:
    combined = CombinedLoader([SHORT, LONG], mode)
    combined.limits = [9, 3]
    assert len(combined) == length
    assert combined.limits == [9, 3]


def test_limits_need_one_number_a_loader() -> None:
    combined = CombinedLoader([SHORT, LONG])
    with pytest.raises(ValueError, match="each of 2 loaders, received 1"):
        combined.limits = [1]
    combined.limits = None
    assert combined.limits is None


@dataclass
class Loaders:
    train: Any
    extra: Any


def test_nesting_comes_back() -> None:
    combined = CombinedLoader({"a": [SHORT, (SHORT,)], "b": Loaders(SHORT, {"c": LONG})})
    assert combined.flattened == [SHORT, SHORT, SHORT, LONG]
    batch, _, _ = next(iter(combined))
    assert batch == {"a": [0, (0,)], "b": Loaders(0, {"c": 10})}


def test_a_single_loader_and_lists_of_numbers_are_loaders() -> None:
    assert [batch for batch, _, _ in CombinedLoader(SHORT)] == [0, 1]
    combined = CombinedLoader([[1, 2], [3, 4]])
    assert combined.flattened == [[1, 2], [3, 4]]
    assert [batch for batch, _, _ in combined] == [[1, 3], [2, 4]]


def test_a_dataclass_that_is_a_loader_stays_whole() -> None:
    @dataclass
    class Mine:
        data: Any

        def __iter__(self) -> Iterator[int]:
            return iter(self.data)

    assert [batch for batch, _, _ in CombinedLoader([Mine(SHORT)])] == [[0], [1]]


def test_replacing_the_loaders_keeps_the_structure() -> None:
    combined = CombinedLoader({"a": SHORT, "b": LONG})
    combined.flattened = [LONG, SHORT]
    assert combined.iterables == {"a": LONG, "b": SHORT}
    with pytest.raises(ValueError, match=r"length \(1\) and existing length \(2\)"):
        combined.flattened = [LONG]


def test_scaled_loaders_inside() -> None:
    data = TensorDataset(torch.arange(103))
    combined = CombinedLoader([DataLoader(data, batch_size=4), DataLoader(data, batch_size=2)], "max_size")
    combined.flattened = [scale_loader(loader, 8) for loader in combined.flattened]
    set_epoch(combined, 1)
    batches = [batch for batch, _, _ in combined]
    assert [len(batch[0][0]) if batch[0] else 0 for batch in batches] == [32, 32, 32, 7, 0, 0, 0]
    assert sum(len(batch[1][0]) for batch in batches) == 103


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


def test_length_of_streams() -> None:
    streams = [DataLoader(Stream()), SHORT]
    assert len(CombinedLoader(streams, "min_size")) == 2
    with pytest.raises(TypeError, match="no length"):
        len(CombinedLoader(streams, "max_size"))


def test_unknown_mode_and_unrepeatable_loader() -> None:
    with pytest.raises(ValueError, match="Unsupported mode 'largest'.*min_size"):
        CombinedLoader([SHORT], "largest")  # type: ignore[arg-type]
    with pytest.raises(MisconfigurationException, match="read once"):
        list(CombinedLoader([iter(SHORT), LONG], "max_size_cycle"))


def test_random_numbers_are_drawn_as_by_plain_iteration() -> None:
    data = TensorDataset(torch.arange(50))
    loader = DataLoader(data, batch_size=7, shuffle=True)
    torch.manual_seed(3)
    expected = [batch[0].tolist() for batch in loader]
    torch.manual_seed(3)
    assert [batch[0][0].tolist() for batch, _, _ in CombinedLoader([loader])] == expected
