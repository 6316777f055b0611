"""What a zoo case is, and the batches that cases share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Batch = tuple[torch.Tensor, ...]
Loss = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Case:
    """One model with its batches and its loss.

    Attributes:
        build: makes the model; the weights come from the global generator.
        batch: makes one batch from the global generator.
        loss: called with the model and a batch.
        clip: the norm to which the step clips gradients, or None.
    """

    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    loss: Loss
    clip: float | None

    def model(self) -> nn.Module:
        """The model with its initial weights: always the same ones."""
        torch.manual_seed(1)
        return self.build()

    def batches(self, count: int) -> list[Batch]:
        """`count` different batches: always the same ones."""
        torch.manual_seed(2)
        return [self.batch() for _ in range(count)]


CASES: dict[str, Case] = {}


def case(
    batch: Callable[[], Batch], loss: Loss, clip: float | None = None
) -> Callable[[Callable[[], nn.Module]], Callable[[], nn.Module]]:
    """Put a function that builds a model, or a model class, into the zoo, under its name."""

    def add(build: Any) -> Any:
        assert build.__name__ not in CASES
        CASES[build.__name__] = Case(build.__name__, build, batch, loss, clip)
        return build

    return add


def labelled(shape: tuple[int, ...], classes: int) -> Callable[[], Batch]:
    """Random inputs of a shape (the batch dimension first) with random classes."""
    return lambda: (torch.randn(shape), torch.randint(0, classes, shape[:1]))


def paired(shape: tuple[int, ...], target: tuple[int, ...]) -> Callable[[], Batch]:
    """Random inputs with random targets for regression."""
    return lambda: (torch.randn(shape), torch.randn(target))


def tokens(shape: tuple[int, ...], vocabulary: int) -> Callable[[], Batch]:
    """Random tokens, for models that predict the next one."""
    return lambda: (torch.randint(0, vocabulary, shape),)


def labelled_tokens(shape: tuple[int, ...], vocabulary: int, classes: int) -> Callable[[], Batch]:
    """Random tokens with one random class per row."""
    return lambda: (torch.randint(0, vocabulary, shape), torch.randint(0, classes, shape[:1]))


def classify(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the model's scores."""
    return F.cross_entropy(model(x), y)


def regress(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean squared error of the model's prediction."""
    return F.mse_loss(model(x), y)


def reconstruct(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Mean squared error between input and output."""
    return F.mse_loss(model(x), x)


def next_token(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Cross entropy of predicting each token from those before it."""
    return F.cross_entropy(model(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten())


def own_loss(model: nn.Module, *batch: torch.Tensor) -> torch.Tensor:
    """For models whose forward returns the loss."""
    return model(*batch)
