"""How long fit runs, how many batches it takes, and when it validates: the same as Lightning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from trainer.resuming import columns
from trainer.three_ways import loader, quiet_trainer, regression, run

import systolic as L


def watch(seen: list[str]) -> Callable[[Any], list[Any]]:
    """A callback that notes what happens."""

    def make(base: Any) -> list[Any]:
        class Watch(base):
            def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
                seen.append(f"train {trainer.current_epoch}.{batch_idx}{'.' if trainer.is_last_batch else ''}")

            def on_validation_batch_end(
                self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
            ) -> None:
                seen.append(f"val {batch_idx}{' sanity' if trainer.sanity_checking else ''}")

            def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
                seen.append(f"end {trainer.current_epoch}")

            def on_train_start(self, trainer: Any, pl_module: Any) -> None:
                seen.append("start")

            def on_train_end(self, trainer: Any, pl_module: Any) -> None:
                seen.append(f"done {trainer.current_epoch} {trainer.global_step} {trainer.estimated_stepping_batches}")

        return [Watch()]

    return make


def validation_step(self: Any, batch: Any, batch_idx: int) -> None:
    self.log("val_loss", self.loss(batch))


def build(base: Any) -> Any:
    return regression(base, validation_step=validation_step)


def trace(kind: str, more: Callable[[Any], list[Any]] = lambda base: [], **options: Any) -> list[str]:
    """What happens in fit with 5 training batches and 3 validation batches."""
    seen: list[str] = []
    val = options.pop("val", loader(12, seed=2))
    callbacks = lambda base: [*watch(seen)(base), *more(base)]  # noqa: E731
    run(kind, options.pop("build", build), val=val, callbacks=callbacks, **options)
    return seen


CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "limit_int": {"limit_train_batches": 3, "limit_val_batches": 1},
    "limit_float": {"limit_train_batches": 0.5, "limit_val_batches": 0.4},
    "limit_more_than_there_are": {"limit_train_batches": 50},
    "no_training": {"limit_train_batches": 0},
    "no_validation": {"limit_val_batches": 0},
    "no_validation_float": {"limit_val_batches": 0.0},
    "fast_dev_run": {"fast_dev_run": True, "max_epochs": 7, "val_check_interval": 100},
    "fast_dev_run_3": {"fast_dev_run": 3, "limit_val_batches": 1},
    "max_steps": {"max_steps": 7, "max_epochs": -1},
    "max_steps_first": {"max_steps": 3, "max_epochs": 2},
    "max_steps_zero": {"max_steps": 0},
    "max_epochs_zero": {"max_epochs": 0},
    "min_steps": {"max_epochs": 1, "min_steps": 3},
    "interval_int": {"val_check_interval": 2},
    "interval_float": {"val_check_interval": 0.4},
    "interval_across_epochs": {"val_check_interval": 3, "check_val_every_n_epoch": None},
    "interval_longer_than_an_epoch": {"val_check_interval": 8, "check_val_every_n_epoch": None, "max_epochs": 4},
    "every_second_epoch": {"check_val_every_n_epoch": 2, "max_epochs": 3},
    "sanity_0": {"num_sanity_val_steps": 0, "max_epochs": 1},
    "sanity_1": {"num_sanity_val_steps": 1, "max_epochs": 1},
    "sanity_all": {"num_sanity_val_steps": -1, "max_epochs": 1},
    "accumulation": {"accumulate_grad_batches": 3, "max_steps": 3},
}


@pytest.mark.parametrize("case", CASES)
def test_as_lightning(case: str) -> None:
    assert trace("eager", **CASES[case]) == trace("lightning", **CASES[case])


def test_compiled_is_the_same_loop() -> None:
    options = {"val_check_interval": 2, "limit_train_batches": 4, "max_epochs": 2}
    assert trace("compiled", **options) == trace("eager", **options)


def _stop_at(batch: str) -> Callable[[Any], list[Any]]:
    def make(base: Any) -> list[Any]:
        class Stop(base):
            def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, data: Any, batch_idx: int) -> None:
                if f"{trainer.current_epoch}.{batch_idx}" == batch:
                    trainer.should_stop = True

        return [Stop()]

    return make


@pytest.mark.parametrize("options", [{}, {"min_epochs": 2}, {"min_steps": 4}, {"min_steps": 8}], ids=str)
def test_should_stop(options: dict[str, Any]) -> None:
    arguments = {"max_epochs": 4, **options}
    assert trace("eager", _stop_at("0.1"), **arguments) == trace("lightning", _stop_at("0.1"), **arguments)


@pytest.mark.parametrize("options", [{}, {"min_epochs": 4}, {"val_check_interval": 2}], ids=str)
def test_early_stopping(options: dict[str, Any]) -> None:
    def make(base: Any) -> list[Any]:
        if base is L.Callback:
            return [L.callbacks.EarlyStopping("val_loss", mode="max", patience=1)]
        package = pytest.importorskip("lightning.pytorch")
        return [package.callbacks.EarlyStopping("val_loss", mode="max", patience=1)]

    def rising(self: Any, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", 10.0 - self.trainer.current_epoch)

    arguments = {"max_epochs": 6, "build": lambda base: regression(base, validation_step=rising), **options}
    assert trace("eager", make, **arguments) == trace("lightning", make, **arguments)


def test_batch_start_that_skips_the_rest_of_the_epoch() -> None:
    def on_train_batch_start(self: Any, batch: Any, batch_idx: int) -> int | None:
        return -1 if batch_idx == 2 else None

    def configure_optimizers(self: Any) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    methods = {"on_train_batch_start": on_train_batch_start, "configure_optimizers": configure_optimizers}
    make = lambda base: regression(base, validation_step=validation_step, **methods)  # noqa: E731
    assert trace("eager", build=make) == trace("lightning", build=make)
    assert run("eager", make).rates == run("lightning", make).rates


@pytest.mark.parametrize("limit", [timedelta(seconds=0), {"seconds": 0}, "00:00:00:00"], ids=["timedelta", "dict", "text"])
def test_max_time(limit: Any) -> None:
    given = {"max_epochs": -1, "max_time": limit, "num_sanity_val_steps": 0}
    seen = trace("eager", **given)
    assert seen == trace("lightning", **given)


LENGTHS: list[dict[str, Any]] = [{}, {"max_steps": 1}, {"min_steps": 1}, {"max_steps": 0}, {"max_time": "00:00:00:00"}]


@pytest.mark.parametrize("given", [*LENGTHS, {"max_epochs": 1}, {"fast_dev_run": True}], ids=str)
def test_the_length_that_was_not_given_is_decided_by_fit_as_in_lightning(given: dict[str, Any]) -> None:
    def lengths(trainer: Any) -> list[Any]:
        found = [trainer.max_epochs, trainer.max_steps]
        trainer.should_stop = True
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainer.fit(regression(pl.LightningModule)(), loader(4))
        told = sum("`max_epochs` was not set" in str(warning.message) for warning in caught)
        return [*found, trainer.max_epochs, trainer.max_steps, trainer.min_epochs, told]

    options: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False, "limit_train_batches": 0}
    options |= {"enable_progress_bar": False, "enable_model_summary": False, **given}
    ours, theirs = lengths(L.Trainer(**options)), lengths(pl.Trainer(**options))
    assert ours == theirs


class Data(L.LightningDataModule):
    def train_dataloader(self) -> Any:
        return loader(8)

    def val_dataloader(self) -> Any:
        return [loader(4), loader(8)]

    def test_dataloader(self) -> Any:
        return loader(12)

    def predict_dataloader(self) -> Any:
        return loader(16)


def test_loaders_of_a_datamodule() -> None:
    seen: list[str] = []
    module = regression(
        L.LightningModule,
        validation_step=lambda self, batch, batch_idx, dataloader_idx: None,
        test_step=lambda self, batch, batch_idx: self.log("x", 1.0),
        predict_step=lambda self, batch: self(batch[0]),
    )()
    trainer = quiet_trainer(compile=False, callbacks=watch(seen)(L.Callback), num_sanity_val_steps=0)
    trainer.fit(module, datamodule=Data())
    assert seen == ["start", "train 0.0", "train 0.1.", "val 0", "val 0", "val 1", "end 0", "done 1 2 2"]
    assert trainer.num_val_batches == [1, 2]
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, Data())
    assert trainer.global_step == 4
    assert trainer.test(module, datamodule=Data(), verbose=False) == [{"x": 1.0}]
    assert len(trainer.predict(module, Data())) == 4


def test_loaders_of_the_module() -> None:
    module = regression(
        L.LightningModule,
        train_dataloader=lambda self: loader(8),
        val_dataloader=lambda self: loader(12),
        validation_step=validation_step,
    )()
    trainer = quiet_trainer(compile=False)
    trainer.fit(module)
    assert (trainer.global_step, trainer.num_val_batches) == (2, [3])
    assert list(trainer.validate(module, verbose=False)[0]) == ["val_loss"]


class Unsized(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield from zip(*columns(), strict=True)


@pytest.mark.parametrize(
    "options", [{"max_steps": 4}, {"max_steps": 4, "max_epochs": -1, "accumulate_grad_batches": 2}], ids=str
)
def test_steps_of_a_loader_without_a_length_are_estimated_as_by_lightning(options: dict[str, Any]) -> None:
    seen: list[float] = []

    def build_asking(base: Any) -> Any:
        class Asking(build(base)):
            def configure_optimizers(self) -> Any:
                seen.append(self.trainer.estimated_stepping_batches)
                return super().configure_optimizers()

        return Asking

    for kind in ("lightning", "compiled"):
        run(kind, build_asking, train=DataLoader(Unsized(), batch_size=4), val=loader(12, seed=2), **options)
    assert seen == [4, 4]
