"""The smallest modules and datasets that train: for bug reports, and to try an option."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from ..core import LightningDataModule, LightningModule

_SIZE, _LENGTH = 32, 64


class RandomDataset(Dataset[torch.Tensor]):
    """Rows of normal random numbers, drawn once.

    Args:
        size: numbers in a row.
        length: how many rows.
    """

    def __init__(self, size: int, length: int) -> None:
        self.len = length
        self.data = torch.randn(length, size)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.data[index]

    def __len__(self) -> int:
        return self.len


class RandomDictDataset(RandomDataset):
    """The same rows as dicts: {"a": row, "b": row + 1}."""

    def __getitem__(self, index: int) -> Any:
        row = self.data[index]
        return {"a": row, "b": row + torch.ones_like(row)}


class RandomIterableDataset(IterableDataset[torch.Tensor]):
    """Rows of normal random numbers, drawn as they are asked for.

    Args:
        size: numbers in a row.
        count: how many rows.
    """

    def __init__(self, size: int, count: int) -> None:
        self.size, self.count = size, count

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (torch.randn(self.size) for _ in range(self.count))


class RandomIterableDatasetWithLen(RandomIterableDataset):
    """The same, with a length."""

    def __len__(self) -> int:
        return self.count


class BoringModel(LightningModule):
    """One linear layer that learns to give ones, with loaders of its own.

    Example:
        >>> import systolic as L
        >>> quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
        >>> L.Trainer(accelerator="cpu", devices=1, fast_dev_run=True, **quiet).fit(BoringModel())
    """

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(_SIZE, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Two numbers for each row [batch, 32]."""
        return self.layer(x)

    def loss(self, preds: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        """Mean squared distance from the labels; without any, from ones."""
        return F.mse_loss(preds, torch.ones_like(preds) if labels is None else labels)

    def step(self, batch: torch.Tensor) -> torch.Tensor:
        """The loss of a batch [batch, 32]."""
        return self.loss(self(batch))

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> Any:
        """The loss, in a dict."""
        return {"loss": self.step(batch)}

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> Any:
        """The loss, in a dict."""
        return {"x": self.step(batch)}

    def test_step(self, batch: torch.Tensor, batch_idx: int) -> Any:
        """The loss, in a dict."""
        return {"y": self.step(batch)}

    def configure_optimizers(self) -> Any:
        """SGD, and a learning rate that shrinks after each epoch."""
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)]

    def train_dataloader(self) -> DataLoader[torch.Tensor]:
        """64 rows, one by one."""
        return DataLoader(RandomDataset(_SIZE, _LENGTH))

    def val_dataloader(self) -> DataLoader[torch.Tensor]:
        """64 rows, one by one."""
        return DataLoader(RandomDataset(_SIZE, _LENGTH))

    def test_dataloader(self) -> DataLoader[torch.Tensor]:
        """64 rows, one by one."""
        return DataLoader(RandomDataset(_SIZE, _LENGTH))

    def predict_dataloader(self) -> DataLoader[torch.Tensor]:
        """64 rows, one by one."""
        return DataLoader(RandomDataset(_SIZE, _LENGTH))


class ManualOptimBoringModel(BoringModel):
    """The same in manual optimization."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> Any:
        """A step of the optimizer on the loss of the batch; returns the loss."""
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)
        loss = self.step(batch)
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        return loss


class BoringDataModule(LightningDataModule):
    """256 random rows, of which each stage gets 64."""

    def __init__(self) -> None:
        super().__init__()
        self.random_full: Dataset[torch.Tensor] | None = None

    def prepare_data(self) -> None:
        """Draw the rows."""
        self.random_full = RandomDataset(_SIZE, _LENGTH * 4)

    def setup(self, stage: str) -> None:
        """Give a stage its rows."""
        if stage == "fit":
            self.random_train = self._part(0)
        if stage in ("fit", "validate"):
            self.random_val = self._part(1)
        if stage == "test":
            self.random_test = self._part(2)
        if stage == "predict":
            self.random_predict = self._part(3)

    def _part(self, number: int) -> Dataset[torch.Tensor]:
        if self.random_full is None:  # a subclass may have nothing to prepare
            self.random_full = RandomDataset(_SIZE, _LENGTH * 4)
        return torch.utils.data.Subset(self.random_full, range(number * _LENGTH, (number + 1) * _LENGTH))

    def train_dataloader(self) -> DataLoader[torch.Tensor]:
        """Rows, one by one."""
        return DataLoader(self.random_train)

    def val_dataloader(self) -> DataLoader[torch.Tensor]:
        """Rows, one by one."""
        return DataLoader(self.random_val)

    def test_dataloader(self) -> DataLoader[torch.Tensor]:
        """Rows, one by one."""
        return DataLoader(self.random_test)

    def predict_dataloader(self) -> DataLoader[torch.Tensor]:
        """Rows, one by one."""
        return DataLoader(self.random_predict)


class DemoModel(LightningModule):
    """A linear classifier of rows of 32 numbers.

    Args:
        out_dim: how many classes.
        learning_rate: of Adam.
    """

    def __init__(self, out_dim: int = 10, learning_rate: float = 0.02) -> None:
        super().__init__()
        self.l1 = nn.Linear(_SIZE, out_dim)
        self.learning_rate = learning_rate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Values [batch, out_dim], none below zero."""
        return torch.relu(self.l1(x.view(x.size(0), -1)))

    def training_step(self, batch: torch.Tensor, batch_nb: int) -> torch.Tensor:
        """The sum of all outputs."""
        return self(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=self.learning_rate)
