"""`torch.optim.SparseAdam` in a step: it moves the rows that were looked up, and leaves the moments of others alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lightning
import pytest
import torch
import torch.nn.functional as F
from beside_lightning import trainer_of
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic
from systolic import CaptureError

T = torch.Tensor
ROWS, COUNT = 30, 64


def pairs(module: Any, x: T, i: int) -> T:
    """As in word2vec: two tables, one of them looked up twice."""
    u, v = module.table(x[:, 0]), module.other(x[:, 1])
    return -F.logsigmoid((u * v).sum(1)).mean() - F.logsigmoid(-(u * module.other(x[:, 2])).sum(1)).mean()


def of_nothing(module: Any, x: T, i: int) -> T:
    """Rows that were looked up and have a gradient of zero: they move by what they have of earlier steps."""
    each = module.table(x[:, 0]).square().sum(1) + module.other(x[:, 1]).square().sum(1)
    return (each * (x[:, 0] % 2 == i % 2)).sum() / len(x)


def padded(module: Any, x: T, i: int) -> T:
    return F.embedding(x, module.table.weight, padding_idx=-ROWS + 3, sparse=True).tanh().square().mean() + _once(module, x)


def without_gradient(module: Any, x: T, i: int) -> T:
    """What a loss does not come back to is not looked up."""
    with torch.no_grad():
        target = module.table(x[:, 1])
    return (module.table(x[:, 0]) - target - module.table(x[:, 2]).detach()).square().mean() + _once(module, x)


def bags(module: Any, x: T, i: int) -> T:
    bag = F.embedding_bag(x, module.table.weight, mode="sum", sparse=True, padding_idx=2)
    return (
        bag.square().mean()
        + F.embedding_bag(x.flatten(), module.other.weight, x[:, 0] * 0 + torch.arange(len(x)) * 3, sparse=True).sum()
    )


def twice(module: Any, x: T, i: int) -> T:
    """Gradients of an earlier pass were taken away again."""
    module.table(x[:, 1]).square().sum().backward()
    module.zero_grad()
    return module.table(x[:, 0]).square().mean() + _once(module, x)


def _once(module: Any, x: T) -> T:
    return module.other(x[:, 0]).square().mean()


BODIES: dict[str, Callable[[Any, T, int], T]] = {
    one.__name__: one for one in (pairs, of_nothing, padded, without_gradient, bags, twice)
}


def _module(library: Any, body: Callable[[Any, T, int], T], scheduled: bool = False, **options: Any) -> Any:
    class Module(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.table, self.other = nn.Embedding(ROWS, 4, sparse=True), nn.Embedding(ROWS, 4, sparse=True)

        def training_step(self, batch: Any, i: int) -> T:
            return body(self, batch[0], i)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SparseAdam(list(self.parameters()), 0.1, **options)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)] if scheduled else []

    return Module()


def _fitted(library: Any, module: Any, devices: int = 1, **options: Any) -> Any:
    x = torch.randint(0, ROWS, (COUNT, 3), generator=torch.Generator().manual_seed(1))
    trainer = trainer_of(library, devices=devices, max_epochs=2, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if library is lightning else "error")
        trainer.fit(module, DataLoader(TensorDataset(x), batch_size=8 // devices))
    return trainer.optimizers[0].state_dict()["state"]


def _require_equal(body: Callable[[Any, T, int], T], devices: int = 1, **options: Any) -> None:
    ours, theirs = (_module(library, body, **options) for library in (systolic, lightning))
    states = _fitted(systolic, ours, devices), _fitted(lightning, theirs)
    torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(*states, rtol=1e-4, atol=1e-6)


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", BODIES)
def test_it_equals_lightning(name: str) -> None:
    _require_equal(BODIES[name])


def test_on_four_cores() -> None:
    _require_equal(of_nothing, 4)


def test_with_a_scheduler_and_maximised() -> None:
    _require_equal(pairs, scheduled=True, maximize=True)


def test_gradients_of_earlier_steps_are_refused() -> None:
    with pytest.raises(CaptureError, match="adds to a gradient of earlier steps") as refusal:
        _fitted(systolic, _module(systolic, pairs), accumulate_grad_batches=2)
    assert "zero_grad()" in str(refusal.value)


def test_a_parameter_that_no_sparse_lookup_reads_is_refused_as_in_pytorch() -> None:
    dense = lambda module, x, i: module.table.weight[x[:, 0]].square().mean()  # noqa: E731
    for library in (lightning, systolic):
        with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients"):
            _fitted(library, _module(library, dense))
