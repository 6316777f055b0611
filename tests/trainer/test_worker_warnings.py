"""Warnings of what a loader says of its workers: where Lightning gives them, with the cores that a machine has."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader, quiet_trainer, regression, samples

import systolic as L
from systolic.exceptions import PossibleUserWarning


class Read(Dataset[Any]):
    """Samples that are made when they are asked for."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return samples(4)[index]


def _step(self: Any, batch: Any, batch_idx: int) -> None:
    self.log("loss", self.loss(batch))


def _machine(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))


@pytest.mark.parametrize("cores", [1, 2, 4])
@pytest.mark.parametrize("call", ["fit", "fit of two", "validate", "test", "predict"])
def test_too_few_workers_are_told_where_lightning_tells_them(call: str, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, cores)
    stage = {"fit": "train", "fit of two": "train", "validate": "val"}.get(call, call)

    def scenario(package: Package) -> Any:
        data = DataLoader(Read(), batch_size=2)
        module = package.module(
            validation_step=_step, test_step=_step, predict_step=lambda self, batch, batch_idx: self(batch[0])
        )
        given = [data, data] if call == "fit of two" else data
        if call == "fit of two":
            module.training_step = lambda batch, batch_idx: module.loss(batch[0]) + module.loss(batch[1])
        method = getattr(package.trainer(), call.split()[0])
        return package.warned(lambda: method(module, given), f"The '{stage}_dataloader' does not have many workers")

    assert require_same(scenario, ("lightning", "eager")) == (cores > 2)


def test_a_loader_of_tensors_in_memory_needs_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, 8)
    torch.manual_seed(0)
    module = regression(L.LightningModule)()
    quiet_trainer().fit(module, loader(4))
    with pytest.warns(PossibleUserWarning, match="num_workers=7"):
        quiet_trainer().fit(module, DataLoader(Read(), batch_size=2))


def test_spawned_workers_that_do_not_persist_are_told() -> None:
    module = regression(L.LightningModule)()
    spawned = DataLoader(samples(4), batch_size=2, num_workers=1, multiprocessing_context=multiprocessing.get_context("spawn"))
    with pytest.warns(UserWarning, match="'train_dataloader' are spawned.*persistent_workers=True"):
        quiet_trainer().fit(module, spawned)


def test_workers_that_persist_beside_loaders_that_do_not_are_told() -> None:
    def scenario(package: Package) -> Any:
        data = DataLoader(samples(4), batch_size=2, num_workers=2, persistent_workers=True, pin_memory=True)
        module = package.module(train_dataloader=lambda self: data)
        trainer = package.trainer(reload_dataloaders_every_n_epochs=1)
        return package.warned(lambda: trainer.fit(module), "persistent_workers", "pin_memory", "combination")

    assert require_same(scenario, ("lightning", "eager"))


@pytest.mark.parametrize("has_length", [True, False])
@pytest.mark.parametrize("call", ["fit", "validate", "test", "predict"])
def test_the_length_of_a_stream_is_told(call: str, has_length: bool) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter([samples(4)[index] for index in range(4)])

    if has_length:
        Stream.__len__ = lambda self: 4  # type: ignore[attr-defined]

    def scenario(package: Package) -> Any:
        module = package.module(
            validation_step=_step, test_step=_step, predict_step=lambda self, batch, batch_idx: self(batch[0])
        )
        method = getattr(package.trainer(), call)
        return package.warned(
            lambda: method(module, DataLoader(Stream(), batch_size=2)), "Your `IterableDataset` has `__len__` defined."
        )

    assert require_same(scenario, ("lightning", "eager")) == has_length
