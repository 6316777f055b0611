"""Hooks around a run: measured under Lightning's names, in the run's precision, and only where there is something to do."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from trainer.as_lightning import Package, misconfiguration, refuses, require_same
from trainer.three_ways import loader


def datamodule(package: Package, asked: list[str]) -> Any:
    """A datamodule that notes which loaders it is asked for."""

    class Data(package.L.LightningDataModule):
        def prepare_data(self) -> None:
            asked.append("prepare")

        def train_dataloader(self) -> Any:
            asked.append("train")
            return loader()

        def test_dataloader(self) -> Any:
            asked.append("test")
            return loader()

        def predict_dataloader(self) -> Any:
            asked.append("predict")
            return loader()

        def state_dict(self) -> dict[str, Any]:
            return {"seen": 1}

    return Data()


def test_hooks_are_measured() -> None:
    def scenario(package: Package) -> Any:
        trainer = package.trainer(profiler="simple", callbacks=[package.checkpoint()], enable_checkpointing=True)
        data = datamodule(package, [])
        trainer.fit(package.module(), datamodule=data)
        path = trainer.checkpoint_callback.best_model_path
        again = package.trainer(profiler="simple", max_epochs=2)
        again.fit(package.module(), datamodule=data, ckpt_path=path)
        kinds = ("[LightningDataModule]", "[LightningModule]")
        names = {action for one in (trainer, again) for action in one.profiler.recorded_durations if action.startswith(kinds)}
        wanted = ("prepare_data", "setup", "state_dict", "load_state_dict", "teardown", "configure_optimizers")
        return sorted(name for name in names if name.endswith(wanted) and "Regression.prepare_data" not in name)

    assert "[LightningDataModule]Data.load_state_dict" in require_same(scenario)


def test_loaders_that_give_nothing_are_not_asked_for() -> None:
    def scenario(package: Package) -> Any:
        asked: list[str] = []
        data = datamodule(package, asked)
        trainer = package.trainer(limit_test_batches=0, limit_predict_batches=0)
        tested = trainer.test(package.module(test_step=lambda self, batch, batch_idx: None), datamodule=data, verbose=False)
        return tested, trainer.num_test_batches, asked

    assert require_same(scenario) == ([], [], ["prepare"])


def test_layers_are_made_in_the_precision_of_the_run() -> None:
    def scenario(package: Package) -> Any:
        def configure_model(self: Any) -> None:
            self.extra = torch.nn.Linear(2, 2)
            self.register_buffer("inside", torch.complex(torch.ones(3), torch.full((3,), 2.0)), persistent=False)

        def on_fit_start(self: Any) -> None:
            seen.append([str(t.dtype) for t in (self.extra.weight, self.first.weight, self.inside, self.outside)])
            seen.append(self.outside.imag.tolist())

        seen: list[Any] = []
        module = package.module(configure_model=configure_model, on_fit_start=on_fit_start)
        module.register_buffer("outside", torch.complex(torch.ones(3), torch.full((3,), 2.0)), persistent=False)
        package.trainer(precision="64-true").fit(module, loader())
        return seen

    account = require_same(scenario)
    assert account == [["torch.float64", "torch.float64", "torch.complex128", "torch.complex64"], [2.0, 2.0, 2.0]]


def test_predict_needs_something_to_predict_with() -> None:
    def scenario(package: Package) -> Any:
        def without(name: str) -> Any:
            module = package.module()
            setattr(module, name, None)
            return module

        error = misconfiguration(package)
        lacking = [without(name) for name in ("predict_step", "forward")]
        return [refuses(functools.partial(package.trainer().predict, module, loader()), error) for module in lacking]

    assert require_same(scenario) == [True, True]


def test_indices_of_predictions_are_kept_for_those_who_want_them_at_the_end() -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        class Writer(package.L.callbacks.BasePredictionWriter):
            def write_on_batch_end(self, trainer: Any, pl_module: Any, prediction: Any, batch_indices: Any, *rest: Any) -> None:
                seen.append(list(batch_indices))

            def write_on_epoch_end(self, trainer: Any, pl_module: Any, predictions: Any, batch_indices: Any) -> None:
                seen.append(("end", batch_indices))

        def on_predict_epoch_end(self: Any) -> None:
            seen.append(self.trainer.predict_loop.epoch_batch_indices)

        for interval in ("batch", "batch_and_epoch"):
            module = package.module(on_predict_epoch_end=on_predict_epoch_end, predict_step=lambda self, batch: self(batch[0]))
            package.trainer(callbacks=[Writer(interval)]).predict(module, loader(8), return_predictions=False)
        return seen

    assert require_same(scenario)[:3] == [[0, 1, 2, 3], [4, 5, 6, 7], [[]]]


@pytest.mark.parametrize("mode", ["max_size_cycle", "min_size", "max_size", "sequential"])
def test_batches_of_each_combined_loader(mode: str) -> None:
    def scenario(package: Package) -> Any:
        combined = package.L.utilities.CombinedLoader if package.kind == "lightning" else package.L.data.CombinedLoader
        seen: list[Any] = []

        def test_step(self: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            seen.append(0)

        trainer = package.trainer(limit_test_batches=4)
        given = combined({"a": loader(), "b": loader(8)}, mode=mode)
        trainer.test(package.module(on_test_batch_end=lambda self, *args: seen.append(1), test_step=test_step), given)
        return trainer.num_test_batches, seen.count(1)

    assert require_same(scenario)[0] == [4, 2]


def test_hooks_of_the_optimizer_are_not_called_in_every_batch() -> None:
    def scenario(package: Package) -> Any:
        def optimizer_zero_grad(self: Any, epoch: int, batch_idx: int, optimizer: Any) -> None:
            optimizer.zero_grad()

        def warned(scheduling: dict[int, int], **methods: Any) -> bool:
            trainer = package.trainer(callbacks=[package.L.callbacks.GradientAccumulationScheduler(scheduling)])
            return package.warned(lambda: trainer.fit(package.module(**methods), loader()), "hooks will not be called")

        own = {"optimizer_zero_grad": optimizer_zero_grad}
        return [warned({0: 2}, **own), warned({0: 1}, **own), warned({0: 2})]

    assert require_same(scenario) == [True, False, False]
