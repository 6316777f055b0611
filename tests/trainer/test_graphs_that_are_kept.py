"""Outputs that keep their graph, and with it the weights that it has saved, while steps run: an agent without `no_grad`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from as_lightning import Package, require_same
from beside_lightning import trainer_of
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import systolic

T = torch.Tensor


class Stream(IterableDataset[Any]):
    def __init__(self, play: Any) -> None:
        self.play = play

    def __iter__(self) -> Iterator[Any]:
        return self.play()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Parameter(torch.ones(1, 8) / 4)

    def forward(self, x: T) -> T:
        return self.first(x).tanh() @ self.last.t()


def play(package: Package, kept: list[T]) -> Any:
    class Critic(package.L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.net = Net()
            kept.append(self.net(torch.ones(2, 4)))
            kept.append(self.net(kept[-1].expand(2, 4)))

        def samples(self) -> Iterator[Any]:
            generator = torch.Generator().manual_seed(1)
            for _ in range(4):
                states = torch.randn(8, 4, generator=generator)
                values = self.net(states)  # with its graph
                again = self.net(values.expand(8, 4))
                yield from zip(states, (values + again).squeeze(1).tolist(), strict=True)

        def training_step(self, batch: Any, i: int) -> T:
            return (self.net(batch[0]).squeeze(1) - batch[1].float() - 1).pow(2).mean()

        def on_train_batch_end(self, *_: Any) -> None:
            kept.append(self.net(torch.ones(2, 4)))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.01)

        def train_dataloader(self) -> Any:
            return DataLoader(Stream(self.samples), batch_size=8)

    module, trainer = Critic(), package.trainer(max_epochs=3)
    trainer.fit(module)
    trainer.fit_loop.max_epochs = 4
    trainer.fit(module)
    return [value.detach() for value in kept], [weight.detach().clone() for weight in module.parameters()]


def test_values_with_their_graph_are_kept_while_steps_run() -> None:
    require_same(lambda package: play(package, []))


class Viewed(systolic.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def training_step(self, batch: Any, i: int) -> T:
        return self.net(batch[0]).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.mark.parametrize("is_local", [True, False])
def test_a_view_that_somebody_holds_is_refused(is_local: bool) -> None:
    module, held = Viewed(), dict[str, T]()
    row = module.net.last[0] if is_local else None
    if not is_local:
        held["row"] = module.net.last[0]
    with pytest.raises(RuntimeError, match="Expected use_count"):
        trainer_of(systolic).fit(module, DataLoader(TensorDataset(torch.ones(8, 4)), 4))
    assert row is not None or held


def test_a_kept_graph_goes_not_backward_to_moved_weights() -> None:
    module = Viewed()
    value = module.net(module.net(torch.ones(2, 4)).expand(2, 4))
    trainer_of(systolic).fit(module, DataLoader(TensorDataset(torch.ones(8, 4)), 4))
    with pytest.raises(RuntimeError, match="before a step: its value has moved since"):
        value.sum().backward()
