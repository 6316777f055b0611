"""Loaders are asked for when Lightning asks: after `configure_optimizers` and `on_fit_start`, training's after the sanity check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from trainer.as_lightning import Package, require_same

import systolic

HOOKS = ("setup", "on_fit_start", "on_sanity_check_start", "on_sanity_check_end", "on_train_start", "on_train_epoch_start")


def fitted(package: Package, asks: Callable[[Any], Any] = lambda module: None, **options: Any) -> Any:
    """The hooks and loaders of two fits in their order, and the weight; the training data is what `on_fit_start` decided."""
    called: list[Any] = []

    class Module(package.L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

        def on_fit_start(self) -> None:
            self.scale = 2.0

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.weight * batch[0].mean()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            if called[-1] != "validation_step":
                called.append("validation_step")

        def configure_optimizers(self) -> torch.optim.Optimizer:
            called.append("configure_optimizers")
            called.append(asks(self))
            return torch.optim.SGD(self.parameters(), 0.1)

    class Data(package.L.LightningDataModule):
        def train_dataloader(self) -> Any:
            called.append("train_dataloader")
            scale = getattr(self.trainer.lightning_module, "scale", 0.0)
            return DataLoader(TensorDataset(torch.randn(8, 1) * scale), 4)

        def val_dataloader(self) -> Any:
            called.append("val_dataloader")
            return DataLoader(TensorDataset(torch.randn(8, 1)), 4)

    def noting(hook: str) -> Callable[..., None]:
        return lambda *args, **kwargs: called.append(hook)

    torch.manual_seed(3)
    notes = type("Notes", (package.L.Callback,), {hook: noting(hook) for hook in HOOKS})()
    trainer = package.trainer(callbacks=[notes], **{"num_sanity_val_steps": 1, "max_epochs": 2, **options})
    module, data = Module(), Data()
    trainer.fit(module, datamodule=data)
    trainer.fit_loop.max_epochs = 3
    called.append("second")
    trainer.fit(module, datamodule=data)
    return called, float(module.weight)


def test_loaders_come_after_the_first_hooks() -> None:
    called, _ = require_same(fitted)
    first = called[: called.index("on_train_start") + 1]
    assert first == [
        "setup", "configure_optimizers", None, "on_fit_start", "on_sanity_check_start", "val_dataloader", "validation_step",
        "on_sanity_check_end", "train_dataloader", "on_train_start",
    ]  # fmt: skip


def test_without_sanity_check() -> None:
    def scenario(package: Package) -> Any:
        called, _ = fitted(package, num_sanity_val_steps=0)
        return [one for one in called if one != "val_dataloader"]  # which Lightning asks for before training

    require_same(scenario)


@pytest.mark.parametrize("options", [{"reload_dataloaders_every_n_epochs": 1}, {"limit_val_batches": 0}], ids=str)
def test_with_other_arguments(options: dict[str, Any]) -> None:
    require_same(lambda package: fitted(package, **options)[0])


def test_the_number_of_steps_is_known_to_configure_optimizers() -> None:
    called, _ = require_same(lambda package: fitted(package, lambda module: module.trainer.estimated_stepping_batches))
    assert called[1:4] == ["configure_optimizers", "train_dataloader", 4]


@pytest.mark.parametrize("name", ["num_training_batches", "train_dataloader"])
def test_what_lightning_does_not_know_yet_is_made_when_a_hook_asks(name: str, tmp_path: Any) -> None:
    found: list[Any] = []
    package = Package("compiled", systolic, tmp_path)
    called, _ = fitted(package, lambda module: found.append(getattr(module.trainer, name)))
    batches, second = [one if name == "num_training_batches" else len(one) for one in found]
    assert batches == second == 2
    assert called[1:4] == ["configure_optimizers", "train_dataloader", None]
    assert called.count("train_dataloader") == 2


def test_finders_have_their_loader() -> None:
    def scenario(package: Package) -> Any:
        called: list[str] = []

        class Finds(package.L.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.layer, self.batch_size, self.lr = torch.nn.Linear(1, 1), 2, 0.1

            def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
                return self.layer(batch[0]).square().mean()

            def train_dataloader(self) -> Any:
                called.append(f"train_dataloader({self.batch_size})")
                return DataLoader(TensorDataset(torch.ones(64, 1)), self.batch_size)

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return torch.optim.SGD(self.parameters(), self.lr)

        module = Finds()
        finder = package.L.callbacks.BatchSizeFinder(max_trials=2, steps_per_trial=1)
        package.trainer(callbacks=[finder]).fit(module)
        return module.batch_size, called[-1]

    assert require_same(scenario) == (4, "train_dataloader(4)")
