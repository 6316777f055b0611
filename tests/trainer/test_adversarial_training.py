"""FGM and PGD as they are copied everywhere, in manual optimization, with a rate that the step logs: equal to Lightning."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning
from torch import nn


class FGM:
    """Moves weights along their gradient, and puts back what they were."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.backup: dict[str, torch.Tensor] = {}

    def attack(self, epsilon: float = 0.5) -> None:
        """Move the weights of one layer."""
        for name, p in self.model.named_parameters():
            if "inner" in name and p.grad is not None:
                self.backup[name] = p.data.clone()
                p.data.add_(epsilon * p.grad / torch.norm(p.grad))

    def restore(self) -> None:
        """Put them back."""
        for name, p in self.model.named_parameters():
            if name in self.backup:
                p.data = self.backup[name]
        self.backup = {}


class PGD:
    """The same in several small steps within a ball, with the gradients put back as well."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.weights: dict[str, torch.Tensor] = {}
        self.gradients: dict[str, torch.Tensor] = {}

    def attack(self, is_first: bool) -> None:
        """One small step."""
        for name, p in self.model.named_parameters():
            if "inner" in name and p.grad is not None:
                if is_first:
                    self.weights[name] = p.data.clone()
                p.data.add_(p.grad / torch.norm(p.grad), alpha=0.3)
                p.data = self.project(name, p.data)

    def project(self, name: str, data: torch.Tensor) -> torch.Tensor:
        """The nearest point of the ball."""
        way = data - self.weights[name]
        return self.weights[name] + way * torch.clamp(0.5 / torch.norm(way), max=1.0)

    def restore(self) -> None:
        """Put the weights back."""
        for name, p in self.model.named_parameters():
            if name in self.weights:
                p.data = self.weights[name]
        self.weights = {}

    def keep_gradients(self) -> None:
        """Keep the gradients of the clean batch."""
        for name, p in self.model.named_parameters():
            if p.grad is not None:
                self.gradients[name] = p.grad.clone()

    def restore_gradients(self) -> None:
        """Put them back."""
        for name, p in self.model.named_parameters():
            p.grad = self.gradients[name]


def _by_fgm(self: Any, batch: Any) -> None:
    self.other.attack()
    self.manual_backward(self.loss(batch))
    self.other.restore()


def _by_pgd(self: Any, batch: Any) -> None:
    self.other.keep_gradients()
    for number in range(3):
        self.other.attack(number == 0)
        if number < 2:
            self.zero_grad()
        else:
            self.other.restore_gradients()
        self.manual_backward(self.loss(batch))
    self.other.restore()


@pytest.mark.parametrize("kind", [FGM, PGD])
@pytest.mark.parametrize("rate", [True, False])
def test_adversarial_training(kind: type, rate: bool) -> None:
    def prepare(module: Any) -> None:
        module.automatic_optimization = False
        module.other = kind(module)

    def training_step(self: Any, batch: Any, i: int) -> None:
        optimizer, scheduler = self.optimizers(), self.lr_schedulers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        (_by_fgm if kind is FGM else _by_pgd)(self, batch)
        optimizer.step()
        if rate:
            self.log("lr", scheduler.get_last_lr()[0])
        scheduler.step()

    def configure_optimizers(self: Any) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step / 5))]

    def on_train_batch_end(self: Any, *_: Any) -> None:
        self.seen.append(float(self.trainer.callback_metrics["lr"]) if rate else 0.0)
        self.seen.append([p.detach().sum().item() for p in self.parameters()])

    methods = {
        "training_step": training_step,
        "configure_optimizers": configure_optimizers,
        "on_train_batch_end": on_train_batch_end,
    }
    module = beside_lightning(methods, lambda m: m.seen, prepare=prepare)
    assert len(module.trainer.compiles) <= 4, [one.reason for one in module.trainer.compiles]
