"""Smaller batches that are filled up: one program, and the values of the samples that are there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainer.runs import Given, Recorder, trainer
from trainer.test_ragged import BUCKETS, NextCharacter, loader, unpadded_losses

import systolic as L
from systolic.data import masked_mean


class Digits(L.LightningModule):
    """A small network; reads the mask where there is one."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.net = nn.Sequential(nn.Linear(64, 16), *layers, nn.ReLU(), nn.Linear(16, 10))

    def loss(self, batch: Any) -> torch.Tensor:
        x, y, *masks = batch
        losses = F.cross_entropy(self.net(x), y, reduction="none")
        return masked_mean(losses, masks[0]) if masks else losses.mean()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def digits(batch_size: int) -> DataLoader[Any]:
    """150 samples: the last batch of 32 has 22, which no 8 cores divide."""
    data = load_digits()
    x, y = torch.tensor(data.data[:150], dtype=torch.float32) / 16, torch.tensor(data.target[:150])
    return DataLoader(TensorDataset(x, y), batch_size=batch_size)


def fitted(module: L.LightningModule, batch_size: int = 32, **options: Any) -> tuple[L.Trainer, list[float]]:
    recorder = Recorder()
    run = trainer(callbacks=[recorder], max_epochs=2, **options)
    run.fit(module, digits(batch_size), digits(batch_size))
    return run, recorder.losses


@pytest.mark.thin(3)
@pytest.mark.parametrize("options", [{"devices": 1}, {"devices": 8}, {"compile": False}], ids=str)
def test_losses_and_logged_means_are_those_of_the_real_samples(options: dict[str, Any]) -> None:
    plain, expected = fitted(Digits(), compile=False)
    run, losses = fitted(Digits(), 32 // options.get("devices", 1), pad_batches=True, **options)
    assert losses == pytest.approx(expected, rel=1e-5)
    for name in ("loss", "val_loss"):
        assert float(run.callback_metrics[name]) == pytest.approx(float(plain.callback_metrics[name]), rel=1e-5)
    if options.get("compile", True):
        assert len(run.compiles) == 2  # training and validation


@pytest.mark.tables
def test_buckets_that_are_not_full_need_no_program_of_their_own() -> None:
    recorder = Recorder()
    run = trainer(max_epochs=2, callbacks=[recorder], pad_batches=True)
    run.fit(NextCharacter(), loader(16, drop_last=False))
    assert len(run.compiles) == len(BUCKETS)
    assert {len(batch["ids"]) for batch in recorder.batches} == {16}
    assert recorder.losses == pytest.approx(unpadded_losses(2, drop_last=False), rel=1e-5)


class Careless(Digits):
    """Gets a mask and does not use it."""

    def loss(self, batch: Any) -> torch.Tensor:
        x, y, _ = batch
        return F.cross_entropy(self.net(x), y)


class LogsIt(Careless):
    """Uses the mask for something else."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.log("samples", batch[2].sum())
        return self.loss(batch)


@pytest.mark.parametrize("module", [Careless, LogsIt])
def test_a_mask_that_does_not_reach_the_loss_is_refused(module: type[Digits]) -> None:
    with pytest.raises(L.MisconfigurationException, match="does not use the mask"):
        fitted(module(), pad_batches=True)


@pytest.mark.parametrize("options", [{}, {"compile": False}], ids=str)
def test_batch_norm_is_refused_on_its_line(options: dict[str, Any]) -> None:
    with pytest.raises(L.MisconfigurationException, match=r"batch normalisation(.|\n)*test_pad_batches.py"):
        fitted(Digits(nn.BatchNorm1d(16)), pad_batches=True, **options)


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        ({"x": torch.ones(4, 2), "y": torch.ones(3)}, r"shapes \[\(4, 2\), \(3,\)\]"),
        ({"x": torch.ones(4, 2), "mask": torch.ones(4)}, r"batch\['mask'\], where this batch has something else"),
    ],
)
def test_batches_that_cannot_be_filled_up_are_refused(batch: Any, text: str) -> None:
    with pytest.raises(L.MisconfigurationException, match=text):
        trainer(pad_batches=True).fit(NextCharacter(), Given([batch]))


def test_predictions_are_those_of_the_real_samples() -> None:
    class Predicts(Digits):
        def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.net(batch[0])

    outputs = trainer(pad_batches=True).predict(Predicts(), digits(32))
    assert [len(output) for output in outputs] == [32, 32, 32, 32, 22]


@pytest.mark.tables
def test_several_steps_a_dispatch() -> None:
    found = []
    for options in ({"compile": False}, {"pad_batches": True, "steps_per_dispatch": 2}):
        run = trainer(max_epochs=2, **options)
        run.fit(Digits(), digits(32))
        found.append(float(run.callback_metrics["loss"]))
    assert found[1] == pytest.approx(found[0], rel=1e-5)
