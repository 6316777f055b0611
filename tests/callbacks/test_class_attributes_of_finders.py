"""The finders set what Lightning's set: attributes of the class and properties are the module's, too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader


def kept() -> property:
    """A property that keeps its value in the object."""

    def get(self: Any) -> Any:
        return self.__dict__.get("_kept", 1e-3)

    def put(self: Any, value: Any) -> None:
        self.__dict__["_kept"] = value

    return property(get, put)


KINDS = {"class attribute": lambda: 1e-3, "property": kept}


def configure_optimizers(self: Any) -> Any:
    return torch.optim.SGD(self.parameters(), self.lr)


@pytest.mark.parametrize("kind", KINDS)
def test_the_rate_is_found(kind: str) -> None:
    def scenario(package: Package) -> Any:
        module = package.module(lr=KINDS[kind](), configure_optimizers=configure_optimizers)
        trainer = package.trainer(max_epochs=30)
        found = package.L.tuner.Tuner(trainer).lr_find(module, train_dataloaders=loader(), num_training=20)
        return module.lr, found.suggestion(), "lr" in vars(module) or "_kept" in vars(module)

    require_same(scenario)


@pytest.mark.parametrize("of_data", [False, True])
def test_the_batch_size_is_found(of_data: bool) -> None:
    """Where the module and the datamodule have one, the datamodule's counts."""

    def scenario(package: Package) -> Any:
        class Data(package.L.LightningDataModule):
            batch_size = 4

            def train_dataloader(self) -> Any:
                return loader(20, self.batch_size)

        def train_dataloader(self: Any) -> Any:
            return loader(20, self.batch_size)

        module = package.module(batch_size=2, train_dataloader=train_dataloader)
        data = Data() if of_data else None
        trainer = package.trainer(max_epochs=2)
        found = package.L.tuner.Tuner(trainer).scale_batch_size(module, datamodule=data, steps_per_trial=1, max_trials=2)
        return found, module.batch_size, data and data.batch_size

    require_same(scenario)
