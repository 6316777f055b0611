"""Conditions on the host's numbers, and these themselves, as arguments: fit ends where Lightning's does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import lightning
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic

T = torch.Tensor
Body = Callable[[Any, T, int], T]


def frozen_at_first(module: Any, x: T, i: int) -> T:
    for parameter in module.inner.parameters():
        parameter.requires_grad = module.current_epoch >= 1
    return module(x)


def frozen_as_a_module(module: Any, x: T, i: int) -> T:
    module.inner.requires_grad_(module.current_epoch >= 1)
    module.outer.bias.requires_grad_(module.global_step > 2)
    return module(x)


def trained_later(module: Any, x: T, i: int) -> T:
    module.norm.train(module.current_epoch >= 1)
    return module(x)


def without_gradients(module: Any, x: T, i: int) -> T:
    with torch.set_grad_enabled(module.current_epoch >= 1):
        h = module.inner(x)
    with torch.autocast("cpu", enabled=module.current_epoch < 0):
        return module.outer(h).square().mean()


def chosen_by_a_list(module: Any, x: T, i: int) -> T:
    late = module.current_epoch >= 1
    weight = [1.0, 0.5][late] + float(late) + (late ^ (i > 0)) + int(i > 0) + (late & (i > 0))
    return module(x) * weight


def logged(module: Any, x: T, i: int) -> T:
    module.log("warm", module.current_epoch >= 1)
    module.note = f"{module.current_epoch >= 1}"
    return torch.where(torch.tensor(module.current_epoch >= 1), module(x), module.outer.weight.sum())


def options(module: Any, x: T, i: int) -> T:
    late, later = module.current_epoch >= 1, i > 0
    h = module.inner(x)
    h = F.batch_norm(F.dropout(h, 0.0, training=late), module.norm.running_mean, module.norm.running_var, training=i % 2 == 0)
    ordered = h.sort(0, descending=late).values * torch.arange(8.0)
    spread = h.std(0, unbiased=late).mean() + torch.linalg.norm(h, dim=1, keepdim=later).mean()
    written = h.index_put((torch.tensor([0]),), torch.ones(8), accumulate=later).square().mean()
    return ordered.square().mean() * 1e-3 + h.topk(2, dim=1, largest=later).values.mean() + spread + written


def instances(module: Any, x: T, i: int) -> T:
    assert isinstance(i, int)
    assert not isinstance(i, bool | float)
    assert isinstance(module.global_step, int)
    assert isinstance(module(x).item(), float)
    return module(x) * random.Random(i).random()


def shapes(module: Any, x: T, i: int) -> T:
    """Sizes, ranges and diagonals that the program has to know."""
    h = module.inner(x)
    near = (h @ h.T).tril(i).sum() * 1e-2 + h.norm(p=i + 1, dim=1).mean()
    many = (
        x.repeat(module.current_epoch + 1, 1).mean() * module.outer.bias.sum() + h.view(2 ** (i + 1), -1).sum(0).square().mean()
    )
    return module(x) * torch.arange(i, i + 3).float().mean() + near + many * 1e-2 + torch.eye(i + 2).sum() * h[i:].mean()


BODIES: dict[str, Body] = {
    body.__name__: body
    for body in (
        frozen_at_first, frozen_as_a_module, trained_later, without_gradients, chosen_by_a_list, logged, options, instances, shapes,
    )
}  # fmt: skip


def fitted(framework: Any, body: Body) -> tuple[Any, Any]:
    class Module(framework.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.inner, self.norm, self.outer = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)

        def forward(self, x: T) -> T:
            return self.outer(self.norm(self.inner(x))).square().mean()

        def training_step(self, batch: list[T], batch_idx: int) -> T:
            return body(self, batch[0], batch_idx)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    module = Module()
    x = torch.randn(48, 4, generator=torch.Generator().manual_seed(1))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = framework.Trainer(max_epochs=3, accelerator="cpu", devices=1, **quiet)
    trainer.fit(module, DataLoader(TensorDataset(x), batch_size=16))
    return module, trainer


def require_as_lightning(body: Body, rtol: float, atol: float) -> None:
    """Weights, frozen ones, modes, metrics and what the step notes at the module are Lightning's after fit."""
    mine, trainer = fitted(systolic, body)
    theirs, reference = fitted(lightning, body)
    for (path, one), other in zip(mine.state_dict().items(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol, msg=lambda text, path=path: f"{path}: {text}")
    assert [p.requires_grad for p in mine.parameters()] == [p.requires_grad for p in theirs.parameters()]
    assert {key: float(value) for key, value in trainer.callback_metrics.items()} == {
        key: float(value) for key, value in reference.callback_metrics.items()
    }
    noted = [[getattr(module, name, None) for name in ("note", "count")] for module in (mine, theirs)]
    assert noted[0] == noted[1]
    assert mine.norm.training is theirs.norm.training


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BODIES)
def test_a_condition_is_a_boolean(name: str) -> None:
    require_as_lightning(BODIES[name], rtol=1e-5, atol=1e-6)


def test_a_generator_of_ones_own_that_draws_by_values_is_refused() -> None:
    def noisy(module: Any, x: T, i: int) -> T:
        return module(x + torch.bernoulli(x.sigmoid(), generator=torch.Generator().manual_seed(5)))

    with pytest.raises(systolic.UnsupportedOpError, match="draws from a generator of its own"):
        fitted(systolic, noisy)
