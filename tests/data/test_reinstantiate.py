"""DataLoader subclasses are made again faithfully, or refused with the reason."""

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, TensorDataset, default_collate

from systolic.data import scale_loader
from systolic.exceptions import MisconfigurationException

DATA = TensorDataset(torch.arange(40))


def sizes(loader: Any) -> list[int]:
    return [len(batch[0]) for batch in loader]


class Plain(DataLoader[Any]):
    pass


class Tagged(DataLoader[Any]):
    def __init__(self, *args: Any, tag: str, scale: int = 1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tag = tag
        self._scale = scale

    def __iter__(self) -> Any:
        return ([batch[0] * self._scale] for batch in super().__iter__())


class OwnCollate(DataLoader[Any]):
    def __init__(self, dataset: Any, batch_size: int = 1, shuffle: bool = True, **kwargs: Any) -> None:
        super().__init__(dataset, batch_size=batch_size, shuffle=shuffle, collate_fn=self.negate, **kwargs)

    def negate(self, samples: Any) -> Any:
        return [-default_collate(samples)[0]]


class OwnDataset(DataLoader[Any]):
    def __init__(self, count: int, batch_size: int, shuffle: bool = False) -> None:
        self.count = count
        super().__init__(TensorDataset(torch.arange(count)), batch_size=batch_size, shuffle=shuffle)


class Forgetful(DataLoader[Any]):
    def __init__(self, dataset: Any, secret: int, **kwargs: Any) -> None:
        super().__init__(dataset, **kwargs)


class Fixed(DataLoader[Any]):
    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset, batch_size=5)


class Failing(DataLoader[Any]):
    made = 0

    def __init__(self, dataset: Any, **kwargs: Any) -> None:
        type(self).made += 1
        if type(self).made > 1:
            raise RuntimeError("only one, please")
        super().__init__(dataset, **kwargs)


def test_subclass_without_constructor() -> None:
    scaled = scale_loader(Plain(DATA, batch_size=5), 2)
    assert type(scaled) is Plain
    assert sizes(scaled) == [10] * 4


def test_own_arguments_are_read_from_attributes() -> None:
    scaled = scale_loader(Tagged(DATA, batch_size=5, tag="a", scale=3), 2)
    assert isinstance(scaled, Tagged)
    assert scaled.tag == "a"
    assert next(iter(scaled))[0].tolist() == [3 * number for number in range(10)]


def test_an_argument_fixed_by_the_subclass_is_left_to_it() -> None:
    scaled = scale_loader(OwnCollate(DATA, 5, shuffle=False), 2)
    assert isinstance(scaled, OwnCollate)
    assert isinstance(scaled.sampler, SequentialSampler)
    assert next(iter(scaled))[0].tolist() == [-number for number in range(10)]


@pytest.mark.parametrize(("shuffle", "kind"), [(True, RandomSampler), (False, SequentialSampler)])
def test_constructor_that_takes_no_sampler(shuffle: bool, kind: type) -> None:
    scaled = scale_loader(OwnDataset(40, 5, shuffle), 2)
    assert isinstance(scaled, OwnDataset)
    assert type(scaled.sampler) is kind
    assert sizes(scaled) == [10] * 4


@pytest.mark.parametrize(
    ("loader", "reason"),
    [
        (lambda: Forgetful(DATA, 3, batch_size=5), r"\['secret'\] are not attributes"),
        (lambda: Fixed(DATA), "does not have the batch_size asked for"),
        (lambda: Failing(DATA, batch_size=5), "only one, please"),
    ],
)
def test_what_cannot_be_made_again_is_refused(loader: Any, reason: str) -> None:
    with pytest.raises(MisconfigurationException, match=reason) as caught:
        scale_loader(loader(), 2)
    assert "use_distributed_sampler=False" in str(caught.value)
