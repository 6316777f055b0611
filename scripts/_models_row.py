"""What one row of the model sweep is: how a model is built, and what it is trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Batch = dict[str, Any]
Build = Callable[[], nn.Module]
MakeBatch = Callable[[nn.Module], Batch]
LossOf = Callable[[nn.Module, Batch], torch.Tensor]


@dataclass(frozen=True)
class Row:
    """One model.

    Attributes:
        name: what the table calls it; unique.
        family: the section of the table.
        build: makes the model with random weights, from the global generator; downloads nothing.
        batch: makes one batch from the global generator.
        loss: the loss of a batch.
    """

    name: str
    family: str
    build: Build
    batch: MakeBatch
    loss: LossOf


ROWS: dict[str, Row] = {}


def add(row: Row) -> None:
    """Put a row into the table.

    Raises:
        ValueError: there is a row of that name.
    """
    if row.name in ROWS:
        raise ValueError(f"Expected one row for each name; {row.name} is there twice.")
    ROWS[row.name] = row


def without_dropout(model: nn.Module) -> nn.Module:
    """The model, in which nothing is dropped: eager PyTorch draws other numbers, and would be no oracle."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) or type(module).__name__ == "StochasticDepth":
            module.p = 0.0
        if type(module).__name__ == "LabelEmbedding":  # of diffusers, which drops labels
            module.dropout_prob = 0.0
    return model


def loss_of_output(model: nn.Module, batch: Batch) -> torch.Tensor:
    """The loss that the model computes; of one that computes none, the mean square of what it gives."""
    output = model(**batch)
    if isinstance(output, dict) and (loss := output.get("loss")) is not None:
        return loss.mean()
    return mean_square(output)


def mean_square(output: Any) -> torch.Tensor:
    """Mean square of the first tensors of a model's output that depend on its weights."""
    if isinstance(output, torch.Tensor):
        return output.float().square().mean()
    if isinstance(output, dict):
        output = output.values()
    return next(value.float().square().mean() for value in _tensors(output) if value.requires_grad)


def _tensors(output: Iterable[Any]) -> Iterable[torch.Tensor]:
    for value in output:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
