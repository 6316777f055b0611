"""What scripts read from a Trainer, and its less common arguments, are what they are in Lightning."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader, quiet_trainer, regression, samples

import systolic as L
from systolic.trainer.states import TrainerStatus


def validating(self: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
    self.log("val_loss", self.loss(batch))


def members(package: Package) -> dict[str, Any]:
    """What a Trainer says of its loaders and callbacks, before and after fit."""
    trainer, given = package.trainer(accelerator="cpu", limit_train_batches=3), loader()
    before = (trainer.train_dataloader, trainer.val_dataloaders, trainer.state.status.value, trainer.model)
    model = package.module(validation_step=validating)
    trainer.fit(model, given, [given, loader()])
    return {
        "before": before,
        "train_dataloader": trainer.train_dataloader is given,
        "val_dataloaders": [one is given for one in trainer.val_dataloaders],
        "test_dataloaders": trainer.test_dataloaders,
        "model": trainer.model is model,
        "attached": model.trainer is trainer,
        "status": trainer.state.status.value,
        "callbacks": [len(trainer.checkpoint_callbacks), len(trainer.early_stopping_callbacks)],
        "flags": [trainer.interrupted, trainer.evaluating, trainer.received_sigterm],
        "fit loop": [trainer.fit_loop.max_batches, trainer.fit_loop.epoch_loop.val_loop.max_batches],
        "prefix": trainer.state.stage.dataloader_prefix if trainer.state.stage is not None else "train",
        "device_ids": trainer.device_ids,
        "strategy model": trainer.strategy.model is model,
        "scaler": trainer.scaler,
    }


def test_members() -> None:
    assert require_same(members)["status"] == "finished"


def test_the_logger_can_be_replaced() -> None:
    trainer = quiet_trainer()
    first, second = (L.loggers.CSVLogger("logs") for _ in range(2))
    trainer.logger = first
    assert trainer.loggers == [first]
    trainer.loggers = [second]
    assert trainer.logger is second
    trainer.logger = None
    assert trainer.loggers == []
    trainer.loggers = None
    assert trainer.loggers == []
    assert trainer.logger is None


def test_an_exception_is_an_interruption() -> None:
    def fails(self: Any, batch: Any, batch_idx: int) -> Any:
        raise ValueError("a mistake")

    trainer = quiet_trainer()
    with pytest.raises(ValueError, match="a mistake"):
        trainer.fit(regression(L.LightningModule, training_step=fails)(), loader())
    assert trainer.interrupted
    assert trainer.state.status is TrainerStatus.INTERRUPTED


@pytest.mark.parametrize("amount", [2, 0.5])
def test_overfit_batches(amount: int | float) -> None:
    def scenario(package: Package) -> Any:
        seen: dict[str, list[float]] = {"train": [], "val": []}
        module = package.module(validation_step=validating)
        trainer = package.trainer(max_epochs=2, overfit_batches=amount, callbacks=[Seen(package, seen)])
        shuffling = DataLoader(samples(), batch_size=4, shuffle=True)
        trainer.fit(module, shuffling, DataLoader(samples(seed=2), batch_size=4, shuffle=True))
        return seen, trainer.limit_train_batches, trainer.limit_val_batches, module.state_dict()

    seen = require_same(scenario)[0]
    assert len(seen["train"]) == 4
    assert seen["train"][:2] == seen["train"][2:]


def Seen(package: Package, seen: dict[str, list[float]]) -> Any:
    """A callback that notes the batches."""

    class Noting(package.L.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            seen["train"].append(float(batch[0].sum()))

        def on_validation_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
        ) -> None:
            seen["val"].append(float(batch[0].sum()))

    return Noting()


@pytest.mark.parametrize(
    ("every", "options"),
    [
        (0, {}),
        (1, {}),
        (2, {}),
        (1, {"check_val_every_n_epoch": 2}),
        (2, {"check_val_every_n_epoch": 2, "num_sanity_val_steps": 0}),
        (3, {"val_check_interval": 0.5}),
        (1, {"num_sanity_val_steps": 0, "check_val_every_n_epoch": 3}),
        (0, {"num_sanity_val_steps": 0, "check_val_every_n_epoch": 3}),
    ],
)
def test_reload_dataloaders_every_n_epochs(every: int, options: dict[str, Any]) -> None:
    def scenario(package: Package) -> Any:
        asked: dict[str, list[int]] = {"train": [], "val": [], "sanity": []}

        def train_dataloader(self: Any) -> Any:
            asked["train"].append(self.current_epoch)
            return loader()

        def val_dataloader(self: Any) -> Any:
            asked["sanity" if self.trainer.sanity_checking else "val"].append(self.current_epoch)
            return loader(count=8)

        module = package.module(validation_step=validating, train_dataloader=train_dataloader, val_dataloader=val_dataloader)
        package.trainer(max_epochs=5, reload_dataloaders_every_n_epochs=every, **options).fit(module)
        return asked

    require_same(scenario)


@pytest.mark.parametrize("interval", ["00:00:00:00", timedelta(0), {"seconds": 0}])
def test_validation_by_the_clock(interval: Any) -> None:
    def scenario(package: Package) -> Any:
        seen: dict[str, list[float]] = {"train": [], "val": []}
        module = package.module(validation_step=validating)
        trainer = package.trainer(val_check_interval=interval, callbacks=[Seen(package, seen)], num_sanity_val_steps=0)
        trainer.fit(module, loader(), loader(count=4))
        return len(seen["val"])

    assert require_same(scenario) == 5


def test_validation_by_the_clock_waits() -> None:
    trainer = quiet_trainer(val_check_interval="00:01:00:00", num_sanity_val_steps=0)
    trainer.fit(regression(L.LightningModule, validation_step=validating)(), loader(), loader(count=4))
    assert "val_loss" not in trainer.callback_metrics


@pytest.mark.parametrize("return_predictions", [None, True, False])
def test_predictions_are_kept_unless_they_are_not_wanted(return_predictions: bool | None) -> None:
    def scenario(package: Package) -> Any:
        module = package.module(predict_step=lambda self, batch, batch_idx: len(batch[0]))
        return package.trainer().predict(module, loader(10), return_predictions=return_predictions)

    require_same(scenario)


def test_small_answers_that_scripts_build_on() -> None:
    def scenario(package: Package) -> Any:
        module = package.module()
        flags = [package.trainer(fast_dev_run=n).fast_dev_run for n in (True, 1, 2, False)]
        chained = module.freeze() is module, module.training, module.unfreeze() is module, module.training
        return flags, package.trainer(num_sanity_val_steps=-1).num_sanity_val_steps, chained

    require_same(scenario)


def test_barebones_switches_everything_off() -> None:
    trainer = L.Trainer(accelerator="cpu", devices=1, max_epochs=1, barebones=True)
    assert trainer.callbacks == []
    assert trainer.loggers == []
    with pytest.warns(UserWarning, match="barebones=True"):
        trainer.fit(regression(L.LightningModule, training_step=logging_step)(), loader())
    assert trainer.callback_metrics == {}
    with pytest.raises(ValueError, match="barebones=True, logger=True"):
        L.Trainer(barebones=True, logger=True)


def logging_step(self: Any, batch: Any, batch_idx: int) -> Any:
    loss = self.loss(batch)
    self.log("train_loss", loss)
    return loss


def test_what_has_no_meaning_here_is_refused() -> None:
    with pytest.raises(L.MisconfigurationException, match="`num_nodes`. Expected 1"):
        quiet_trainer(num_nodes=4)
    with pytest.raises(L.MisconfigurationException, match="uploaded to no registry"):
        quiet_trainer(model_registry="mine")
    with pytest.raises(L.MisconfigurationException, match="reload_dataloaders_every_n_epochs"):
        quiet_trainer(reload_dataloaders_every_n_epochs=-1)


@pytest.mark.parametrize("enabled", [True, False])
def test_hyperparameters_are_logged_unless_switched_off(enabled: bool, tmp_path: Any) -> None:
    class Tuned(regression(L.LightningModule)):
        def __init__(self, width: int = 3) -> None:
            super().__init__()
            self.save_hyperparameters()

    logger = L.loggers.CSVLogger(tmp_path)
    quiet_trainer(logger=logger, enable_autolog_hparams=enabled).fit(Tuned(), loader())
    files = [path.read_text() for path in tmp_path.rglob("hparams.yaml")]
    assert any("width" in text for text in files) == enabled


class Copying(L.Callback):
    """Copies the module in the middle of a run."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.copies = [copy.deepcopy(pl_module), pickle.loads(pickle.dumps(pl_module))]


class Pickled(L.LightningModule):
    """A module that pickle finds by name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return (self.layer(batch[0]) - batch[1]).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_module_is_copied_and_pickled_during_fit(compiled: bool) -> None:
    copying, module = Copying(), Pickled()
    quiet_trainer(callbacks=[copying], compile=compiled).fit(module, loader())
    for twin in copying.copies:
        assert torch.equal(twin.layer.weight, module.layer.weight)
        assert type(twin.layer.weight.data) is torch.Tensor
        with pytest.raises(RuntimeError, match="not attached"):
            _ = twin.trainer


def clipped_by_a_callback(package: Package) -> list[float]:
    """The weights after training under a norm that a callback tightens from batch to batch."""

    class Tighten(package.L.Callback):
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
            trainer.gradient_clip_val = (10.0, 0.01, 0.01, 5.0)[batch_idx % 4]

    trainer = package.trainer(limit_train_batches=6, gradient_clip_val=10.0, callbacks=[Tighten()])
    module = package.module()
    trainer.fit(module, loader())
    return [float(value) for parameter in module.parameters() for value in parameter.detach().flatten()]


@pytest.mark.tables
def test_a_callback_may_change_the_norm_that_gradients_are_clipped_to() -> None:
    require_same(clipped_by_a_callback)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda trainer: pickle.loads(pickle.dumps(trainer))])
def test_a_trainer_is_copied_and_pickled_with_its_devices(copied: Any) -> None:
    trainer = L.Trainer(accelerator="cpu", devices=2, max_epochs=3)
    other = copied(trainer)
    assert (other.devices, other.max_epochs, len(other.callbacks)) == (trainer.devices, 3, len(trainer.callbacks))


def test_callbacks_log_with_the_modules_log() -> None:
    def scenario(package: Package) -> Any:
        class Logs(package.L.Callback):
            def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
                self.log("mine", 2.0)
                self.log_dict({"more": 3.0})

        trainer = package.trainer(callbacks=[Logs()])
        trainer.fit(package.module(), loader(4))
        return {name: float(value) for name, value in trainer.callback_metrics.items()}

    assert require_same(scenario) == {"mine": 2.0, "more": 3.0}


def test_loggers_get_the_module_when_fit_begins(tmp_path: Any) -> None:
    def scenario(package: Package) -> Any:
        class Graphs(package.L.loggers.CSVLogger):
            calls: list[str] = []

            def log_graph(self, model: Any, input_array: Any = None) -> None:
                self.calls.append(type(model).__name__)

        logger = Graphs(package.path)
        package.trainer(logger=logger, log_every_n_steps=1).fit(package.module(), loader(4))
        return logger.calls

    assert require_same(scenario) == ["Regression"]


def test_gradients_from_before_a_run_are_nobodys() -> None:
    def scenario(package: Package) -> Any:
        def training_step(self: Any, batch: Any, batch_idx: int) -> None:
            self.manual_backward(self.loss(batch))
            self.optimizers().step()

        module = package.module(training_step=training_step)
        module.automatic_optimization = False
        sum(parameter.sum() for parameter in module.parameters()).backward()
        package.trainer(max_steps=1).fit(module, loader(4))
        return module.first.weight.detach()

    require_same(scenario)


def test_a_datamodule_tells_its_loaders() -> None:
    def scenario(package: Package) -> Any:
        class Data(package.L.LightningDataModule):
            def train_dataloader(self) -> Any:
                return [loader(8), loader(12)]

            def val_dataloader(self) -> Any:
                raise RuntimeError("not yet")

            def test_dataloader(self) -> Any:
                return loader(16)

        return str(Data())

    assert "size=16" in require_same(scenario)
