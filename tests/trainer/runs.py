"""Short silent runs of small modules, for tests that look at what the Trainer did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import systolic as L

SILENT: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
}


def trainer(devices: int = 1, **options: Any) -> L.Trainer:
    """A Trainer that writes and prints nothing."""
    return L.Trainer(**{"devices": devices, "max_epochs": 1, **SILENT, **options})


class Recorder(L.Callback):
    """Keeps the loss and the batch of every step."""

    def __init__(self) -> None:
        self.kept: list[torch.Tensor] = []
        self.batches: list[Any] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.kept.append(outputs["loss"])
        self.batches.append(batch)

    @property
    def losses(self) -> list[float]:
        return [float(loss) for loss in self.kept]


class Line(L.LightningModule):
    """Linear regression; `loss_of` gets the module and the batch."""

    def __init__(self, loss_of: Callable[[Any, Any], torch.Tensor] | None = None, inputs: int = 4) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, 1)
        self.__dict__["loss_of"] = loss_of or plain_loss

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.loss_of(self, batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def plain_loss(module: Any, batch: Any) -> torch.Tensor:
    x, y = batch["x"], batch["y"]
    return F.mse_loss(module.layer(x), y)


class Given:
    """A loader of batches that are there already. (A list would be taken for a list of loaders.)"""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches = list(batches)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


def batches(count: int, extra: Callable[[int], dict[str, Any]] | None = None, size: int = 8) -> Given:
    """Dict batches of random numbers, each with what `extra` gives for its number."""
    generator = torch.Generator().manual_seed(3)
    return Given(
        {
            "x": torch.randn(size, 4, generator=generator),
            "y": torch.randn(size, 1, generator=generator),
            **(extra(i) if extra else {}),
        }
        for i in range(count)
    )


def losses_both_ways(module: Callable[[], L.LightningModule], data: Any, **options: Any) -> tuple[list[float], list[float]]:
    """The losses of a compiled run and of an eager one, each of a new module with the same weights."""
    found = []
    for compiled in (True, False):
        torch.manual_seed(0)
        recorder = Recorder()
        trainer(compile=compiled, callbacks=[recorder], **options).fit(module(), data() if callable(data) else data)
        found.append(recorder.losses)
    return found[0], found[1]
