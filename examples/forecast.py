"""Forecast the next year of sea surface temperatures (El Nino, monthly since 1950, from statsmodels) with quantiles.

$ python examples/forecast.py --accelerator cpu --devices 2 --batch-size 16
mean error of the next twelve months: 0.73 degrees Celsius
taking last year's temperatures:      0.90
months between the 10% and 90% quantile: 80%
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from statsmodels.datasets import elnino
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic as L

QUANTILES = (0.1, 0.5, 0.9)
YEAR = 12


class Forecaster(L.LightningModule):
    """A GRU reads the last years, a linear layer says the quantiles of each month of the next one."""

    def __init__(self, hidden: int = 32, lr: float = 3e-3) -> None:
        super().__init__()
        self.lr = lr
        self.register_buffer("quantiles", torch.tensor(QUANTILES))
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, YEAR * len(QUANTILES))

    def forward(self, past: torch.Tensor) -> torch.Tensor:
        """Quantiles [batch, 12, 3] of the months after `past` [batch, months]: what is usual for a month, and a difference."""
        _, hidden = self.rnn(past[..., None])
        usual = past.unflatten(1, (-1, YEAR)).mean(1)
        return usual[..., None] + self.head(hidden[-1]).view(-1, YEAR, len(QUANTILES))

    def pinball(self, batch: list[torch.Tensor]) -> torch.Tensor:
        past, future = batch
        error = future[..., None] - self(past)
        return torch.maximum(self.quantiles * error, (self.quantiles - 1) * error).mean()

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss = self.pinball(batch)
        self.log("train_loss", loss, on_step=False, on_epoch=True, prog_bar=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        past, future = batch
        forecast = self(past)
        inside = (future >= forecast[..., 0]) & (future <= forecast[..., 2])
        self.log("val_loss", self.pinball(batch), prog_bar=True)
        self.log("error", (forecast[..., 1] - future).abs().mean())
        self.log("error_last_year", (past[:, -YEAR:] - future).abs().mean())
        self.log("inside", inside.float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=0.05)


def windows(series: torch.Tensor, past: int) -> TensorDataset:
    """Every stretch of `past` months with the year that follows."""
    every = series.unfold(0, past + YEAR, 1)
    return TensorDataset(every[:, :past], every[:, past:])


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--batch-size", type=int, default=4, help="windows per core")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--past", type=int, default=60, help="months that the forecast sees, in whole years")
    options = parser.parse_args(words)
    L.seed_everything(0)
    months = torch.tensor(elnino.load_pandas().data.iloc[:, 1:].to_numpy().reshape(-1), dtype=torch.float32)
    held_out = 10 * YEAR
    mean, deviation = months[:-held_out].mean(), months[:-held_out].std()
    scaled = (months - mean) / deviation
    train, validation = windows(scaled[:-held_out], options.past), windows(scaled[-held_out - options.past :], options.past)
    best = L.callbacks.ModelCheckpoint(monitor="val_loss")
    trainer = L.Trainer(
        accelerator=options.accelerator,
        devices=options.devices,
        max_epochs=options.epochs,
        callbacks=[best],
        log_every_n_steps=10,
    )
    model = Forecaster()
    held_out_loader = DataLoader(validation, batch_size=options.batch_size)
    trainer.fit(model, DataLoader(train, batch_size=options.batch_size, shuffle=True), held_out_loader)
    [result] = trainer.validate(model, held_out_loader, ckpt_path="best", verbose=False)
    print(f"mean error of the next twelve months: {result['error'] * deviation:.2f} degrees Celsius")
    print(f"taking last year's temperatures:      {result['error_last_year'] * deviation:.2f}")
    print(f"months between the 10% and 90% quantile: {result['inside']:.0%}")


if __name__ == "__main__":
    main()
