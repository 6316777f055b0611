"""Ragged samples in batches of few shapes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from systolic.data import BucketBatchSampler, PadCollate, masked_mean, measure_lengths, scale_loader, set_epoch
from systolic.exceptions import MisconfigurationException


def ids(*lengths: int) -> list[torch.Tensor]:
    return [torch.arange(1, length + 1) for length in lengths]


class TestPadCollate:
    def test_pads_to_the_smallest_bucket_that_holds_the_longest(self) -> None:
        collate = PadCollate(buckets=[8, 4, 16])
        for longest, bucket in ((1, 4), (4, 4), (5, 8), (16, 16)):
            tensor, mask = collate(ids(1, longest))
            assert tensor.shape == mask.shape == (2, bucket)
            assert mask.sum(1).tolist() == [1, longest]
            assert torch.equal(tensor != 0, mask)

    def test_dicts_get_a_key(self) -> None:
        samples = [{"ids": t, "weight": np.ones((len(t), 3), np.float32), "label": 7, "name": "x"} for t in ids(2, 3)]
        batch = pickle.loads(pickle.dumps(PadCollate([4], pad_value={"ids": -1, "weight": 0.5}, mask_key="valid")))(samples)
        assert list(batch) == ["ids", "weight", "label", "name", "valid"]
        assert batch["ids"].tolist() == [[1, 2, -1, -1], [1, 2, 3, -1]]
        assert batch["weight"].shape == (2, 4, 3)
        assert batch["weight"][0, 2:].unique().tolist() == [0.5]
        assert batch["label"].tolist() == [7, 7]
        assert batch["name"] == ["x", "x"]

    def test_lists_of_numbers_are_padded_when_named(self) -> None:
        batch = PadCollate([4], pad_value={"ids": 0})([{"ids": [1, 2]}, {"ids": [3]}])
        assert batch["ids"].tolist() == [[1, 2, 0, 0], [3, 0, 0, 0]]

    def test_tuples_get_one_more_element(self) -> None:
        x, label, mask = PadCollate([4])([(t, 5) for t in ids(2, 3)])
        assert (x.shape, label.tolist(), mask.sum().item()) == ((2, 4), [5, 5], 5)

    def test_no_mask_on_request(self) -> None:
        assert list(PadCollate([4], mask_key=None)([{"ids": t} for t in ids(2, 3)])) == ["ids"]
        assert PadCollate([4], mask_key=None)(ids(2, 3)).shape == (2, 4)

    @pytest.mark.parametrize(
        ("call", "text"),
        [
            (lambda: PadCollate([4])(ids(5)), "length 5, and the largest bucket is 4"),
            (lambda: PadCollate([]), "Invalid buckets"),
            (lambda: PadCollate([0, 4]), "Invalid buckets"),
            (lambda: PadCollate([4])([{"mask": ids(2)[0]}]), "have a field 'mask'"),
            (lambda: PadCollate([4])([(ids(2)[0], ids(3)[0])]), r"different lengths, \{0: 2, 1: 3\}"),
            (lambda: PadCollate([4], pad_value={"labels": 0})([{"ids": ids(2)[0]}]), r"fields \['labels'\]"),
            (lambda: PadCollate([4])([{"label": 3}]), "nothing to pad"),
            (lambda: PadCollate([4], pad_value={"label": 0})([{"label": 3}]), "has no dimension"),
        ],
    )
    def test_refuses(self, call: Callable[[], Any], text: str) -> None:
        with pytest.raises(MisconfigurationException, match=text):
            call()


class TestBucketBatchSampler:
    LENGTHS = [n % 30 + 1 for n in range(0, 700, 7)]

    def sampler(self, **options: Any) -> BucketBatchSampler:
        return BucketBatchSampler(self.LENGTHS, **{"batch_size": 4, "buckets": [8, 16, 32], **options})

    def test_every_sample_once_and_no_batch_across_buckets(self) -> None:
        sampler = self.sampler()
        batches = list(sampler)
        assert sorted(chain.from_iterable(batches)) == list(range(100))
        assert len(batches) == len(sampler)
        for batch in batches:
            assert len({next(b for b in (8, 16, 32) if self.LENGTHS[i] <= b) for i in batch}) == 1

    def test_drop_last_drops_in_each_bucket(self) -> None:
        sampler = self.sampler(drop_last=True)
        assert {len(batch) for batch in sampler} == {4}
        assert len(list(sampler)) == len(sampler)

    def test_shuffles_with_the_epoch(self) -> None:
        sampler = self.sampler()
        first = list(sampler)
        assert list(sampler) == first
        set_epoch(DataLoader(range(100), batch_sampler=sampler), 1)  # type: ignore[arg-type]
        assert list(sampler) != first
        assert list(self.sampler(seed=1)) == list(sampler)
        assert list(self.sampler(shuffle=False))[0] == [i for i in range(100) if self.LENGTHS[i] <= 8][:4]

    def test_cores_share_larger_batches_of_one_bucket(self) -> None:
        samples = [torch.ones(length) for length in self.LENGTHS]
        loaders = [
            scale_loader(
                DataLoader(samples, batch_sampler=self.sampler(batch_size=16 // cores), collate_fn=PadCollate([8, 16, 32])),  # type: ignore[arg-type]
                cores,
            )
            for cores in (1, 8)
        ]
        for one, eight in zip(*loaders, strict=True):
            assert torch.equal(one[0], eight[0])

    def test_lengths_can_be_measured(self) -> None:
        samples = [{"ids": t} for t in ids(3, 9, 2)]
        assert measure_lengths(samples, lambda sample: len(sample["ids"])) == [3, 9, 2]

    def test_refuses_samples_that_no_bucket_holds(self) -> None:
        with pytest.raises(MisconfigurationException, match="length 9"):
            BucketBatchSampler([9], 2, [8])
        with pytest.raises(MisconfigurationException, match="batch_size 0"):
            BucketBatchSampler([9], 0, [16])


def test_masked_mean_is_the_mean_of_what_is_there() -> None:
    values = torch.randn(3, 5, 2)
    values[0, 3:] = float("inf")
    mask = torch.arange(5) < torch.tensor([3, 5, 1])[:, None]
    assert torch.allclose(masked_mean(values, mask), values[mask].mean())
    assert masked_mean(values, torch.zeros(3, dtype=torch.bool)) == 0
