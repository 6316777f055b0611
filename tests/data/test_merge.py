"""Joining collated batches."""

from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from systolic.data import concatenate_batches
from systolic.exceptions import MisconfigurationException


class Pair(NamedTuple):
    x: Any
    y: Any


def test_structures_of_tensors() -> None:
    first = {"x": torch.ones(2, 3), "pair": Pair(np.zeros(2), (torch.tensor(1.0), None)), "kind": "a"}
    second = {"x": torch.ones(1, 3), "pair": Pair(np.ones(1), (torch.tensor(2.0), None)), "kind": "a"}
    joined = concatenate_batches([first, second])
    assert joined["x"].shape == (3, 3)
    assert type(joined["pair"]) is Pair
    np.testing.assert_array_equal(joined["pair"].x, [0.0, 0.0, 1.0])
    assert joined["pair"].y[0].tolist() == [1.0, 2.0]
    assert joined["pair"].y[1] is None
    assert joined["kind"] == "a"


def test_mappingproxy_is_made_again() -> None:
    joined = concatenate_batches([MappingProxyType({"x": torch.ones(2)}), MappingProxyType({"x": torch.ones(1)})])
    assert type(joined) is MappingProxyType
    assert len(joined["x"]) == 3


def test_lists_of_samples_are_put_in_a_row() -> None:
    joined = concatenate_batches([{"name": ["a", "b"]}, {"name": ["c"]}])
    assert joined == {"name": ["a", "b", "c"]}
    images = concatenate_batches([[torch.ones(2), torch.ones(3)], [torch.ones(4)]])
    assert [len(image) for image in images] == [2, 3, 4]


@pytest.mark.parametrize("batches", [[{"n": 1}, {"n": 2}], [{"x": torch.ones(1)}, {"y": torch.ones(1)}]])
def test_what_differs_is_refused(batches: list[Any]) -> None:
    with pytest.raises(MisconfigurationException, match="cannot be joined"):
        concatenate_batches(batches)
