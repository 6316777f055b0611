"""Gradient accumulation: equal to eager PyTorch, to Lightning, and to one large batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from trainer.three_ways import compare, loader, regression, require_equal, run, samples

import systolic as L


def sgd(self: Any) -> Any:
    return torch.optim.SGD(self.parameters(), lr=0.1)


def plain(base: Any) -> Any:
    return regression(base, configure_optimizers=sgd)


def test_incomplete_last_window() -> None:
    outcome = compare(regression, accumulate_grad_batches=3)
    assert outcome.steps == [0, 0, 1, 1, 2, 2, 2, 3, 3, 4]


def test_with_clipping_on_two_cores() -> None:
    compare(regression, accumulate_grad_batches=2, gradient_clip_val=0.3, devices=2)


# promise 24: A#480
def test_equals_one_large_batch() -> None:
    small = run("compiled", plain, train=loader(24, 4), accumulate_grad_batches=3)
    large = run("compiled", plain, train=loader(24, 12))
    for name, value in small.parameters.items():
        torch.testing.assert_close(value, large.parameters[name], rtol=1e-5, atol=1e-6)
    assert small.trainer.global_step == large.trainer.global_step == 4


@pytest.mark.filterwarnings("ignore:.*`training_step` returned `None`")
def test_skipped_batches_in_a_window() -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        return None if batch_idx in (0, 2) else self.loss(batch)

    outcome = compare(lambda base: regression(base, training_step=training_step), accumulate_grad_batches=3)
    assert outcome.trainer.global_step == 4


def test_hooks_run_once_a_window() -> None:
    def on_before_optimizer_step(self: Any, optimizer: Any) -> None:
        for p in self.parameters():
            p.grad.mul_(0.5)

    def on_after_backward(self: Any) -> None:
        self.first.weight.grad.add_(0.01)

    methods = {"on_before_optimizer_step": on_before_optimizer_step, "on_after_backward": on_after_backward}
    compare(lambda base: regression(base, **methods), accumulate_grad_batches=2)


class Stream(IterableDataset[Any]):
    """Samples without a length."""

    def __iter__(self) -> Any:
        data = samples()
        return iter([data[i] for i in range(len(data))])


@pytest.mark.parametrize("prefetch", [0, 2])
def test_unknown_length_still_ends_with_an_update(prefetch: int) -> None:
    options: dict[str, Any] = {"accumulate_grad_batches": 3, "train": DataLoader(Stream(), batch_size=4)}
    compiled = run("compiled", regression, prefetch_batches=prefetch, **options)
    require_equal(compiled, run("eager", regression, **options))
    require_equal(compiled, run("lightning", regression, **options))
    assert compiled.trainer.global_step == 4


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3"])
def test_bad_window(value: Any) -> None:
    with pytest.raises(L.MisconfigurationException, match=r"accumulate_grad_batches.*an integer >= 1"):
        L.Trainer(accumulate_grad_batches=value, max_epochs=1)
