"""Modules, data modules, callbacks, profilers and plugins written for Lightning do as they are what they do in Lightning."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from trainer.as_lightning import KINDS, Package, require_same
from trainer.three_ways import loader, quiet_trainer, regression

import systolic as L
from systolic.compat import welcome

pl = pytest.importorskip("lightning.pytorch")


class Guest(pl.LightningModule):
    """A module that uses what Lightning's base class offers, through `super()`, too."""

    def __init__(self, rate: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        torch.manual_seed(3)
        self.layer = torch.nn.Linear(4, 1)
        self.epochs: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)

    def loss(self, batch: Any) -> torch.Tensor:
        return (self(batch[0]) - batch[1]).square().mean()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch), on_epoch=True)

    def log(self, name: str, value: Any, **options: Any) -> None:
        super().log(f"of/{name}", value, **options)

    def optimizer_step(self, *args: Any, **options: Any) -> None:
        super().optimizer_step(*args, **options)

    def on_train_epoch_end(self) -> None:
        super().on_train_epoch_end()
        self.epochs.append(self.current_epoch)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams["rate"], momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class GuestData(pl.LightningDataModule):
    """Loaders, and a hook for batches."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(1)
        self.data = torch.utils.data.TensorDataset(
            torch.randn(20, 4, generator=generator), torch.randn(20, 1, generator=generator)
        )

    def train_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(self.data, batch_size=self.hparams["size"])

    val_dataloader = test_dataloader = predict_dataloader = train_dataloader

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        x, y = super().on_before_batch_transfer(batch, dataloader_idx)
        return x * 2, y


class GuestCallback(pl.Callback):
    """Notes when it is called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        super().on_train_start(trainer, pl_module)
        self.calls.append("train start")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.calls.append(f"validation end {trainer.global_step}")


def account(package: Package, *callbacks: Any, **options: Any) -> Any:
    """What a run of the guests leaves."""
    module, noting = Guest(), GuestCallback()
    trainer = package.trainer(max_epochs=2, callbacks=[noting, *callbacks], **options)
    trainer.fit(module, datamodule=GuestData())
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    return {**module.state_dict(), **metrics, "calls": noting.calls, "epochs": module.epochs}


def test_a_module_a_data_module_and_a_callback_of_lightnings_train_as_in_lightning() -> None:
    theirs = require_same(account)
    assert theirs["calls"] == ["validation end 0", "train start", "validation end 5", "validation end 10"]
    assert theirs["epochs"] == [0, 1]
    assert {"of/train_loss", "of/val_loss"} <= set(theirs)


@pytest.mark.parametrize(
    "make",
    [
        lambda: pl.callbacks.EarlyStopping("of/val_loss", patience=1),
        lambda: pl.callbacks.GradientAccumulationScheduler({0: 1, 1: 2}),
        lambda: pl.callbacks.Timer("00:01:00:00"),
        lambda: pl.callbacks.LambdaCallback(on_train_start=lambda *_: None),
    ],
    ids=["EarlyStopping", "GradientAccumulationScheduler", "Timer", "LambdaCallback"],
)
def test_lightnings_own_callbacks_do_what_they_do_there(make: Any) -> None:
    require_same(lambda package: account(package, make()))


class Joined(pl.LightningModule):
    """A module whose batches are of two loaders, in one batch or in turn."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = torch.nn.Linear(4, 1)

    def loss(self, batch: Any) -> torch.Tensor:
        parts = batch.values() if isinstance(batch, dict) else [batch]
        return torch.stack([(self.layer(x) - y).square().mean() for x, y in (part for part in parts if part is not None)]).sum()

    def training_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> torch.Tensor:
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("mode", ["min_size", "max_size_cycle", "max_size", "sequential"])
def test_lightnings_combined_loader_combines_as_there(mode: str) -> None:
    def scenario(package: Package) -> Any:
        def combined() -> Any:
            return pl.utilities.CombinedLoader({"a": loader(20), "b": loader(12, seed=2)}, mode)

        module = Joined()
        trainer = package.trainer(max_epochs=2)
        if mode == "sequential":  # Lightning has it for evaluation only
            metrics = trainer.validate(module, combined())
        else:
            trainer.fit(module, combined(), combined())
            metrics = [{name: float(value) for name, value in trainer.callback_metrics.items()}]
        return {**module.state_dict(), "metrics": metrics, "steps": trainer.global_step}

    require_same(scenario)


def test_lightnings_model_checkpoint_saves_the_same_files() -> None:
    def scenario(package: Package) -> Any:
        saved = pl.callbacks.ModelCheckpoint(
            dirpath=package.path / "here", monitor="of/val_loss", save_top_k=1, save_last=True, filename="{epoch}-{step}"
        )
        account(package, saved, enable_checkpointing=True)
        return sorted(path.name for path in (package.path / "here").iterdir()), saved.best_model_path[-20:]

    require_same(scenario, KINDS)


def test_lightnings_progress_bar_replaces_the_default_one(capsys: Any) -> None:
    bar = pl.callbacks.TQDMProgressBar()
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, callbacks=[bar], logger=False, enable_checkpointing=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Guest(), datamodule=GuestData())
    assert trainer.progress_bar_callback is bar
    assert "5/5" in capsys.readouterr().out


def test_lightnings_profiler_measures() -> None:
    profiler = pl.profilers.SimpleProfiler()
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, profiler=profiler, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Guest(), datamodule=GuestData())
    assert profiler.recorded_durations["[LightningModule]Guest.on_train_epoch_end"]


def test_lightnings_checkpoint_io_writes(tmp_path: Any) -> None:
    class Noting(pl.plugins.TorchCheckpointIO):
        def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
            self.saved = str(path)
            super().save_checkpoint(checkpoint, path, storage_options)

    io = Noting()
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, plugins=io, logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(Guest(), datamodule=GuestData())
    assert io.saved.endswith("epoch=0-step=5.ckpt")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_a_guest_is_copied_as_an_object_of_its_own_class(copied: Any) -> None:
    module = Guest()
    adopted = welcome(module, L.LightningModule, root="LightningModule")
    assert adopted is module
    assert isinstance(module, Guest)
    assert isinstance(module, L.LightningModule)
    twin = copied(module)
    assert type(twin) is Guest
    assert torch.equal(twin.layer.weight, module.layer.weight)


def test_what_is_no_guest_stays_what_it_is() -> None:
    layer = torch.nn.Linear(1, 1)
    assert welcome(layer, L.LightningModule) is layer
    assert type(layer) is torch.nn.Linear
    with pytest.raises(TypeError, match="must be a `LightningModule` of systolic or of Lightning"):
        L.Trainer(accelerator="cpu", devices=1, max_epochs=1, logger=False).fit(layer)  # pyright: ignore[reportArgumentType]


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_what_torch_compile_made_of_a_module_is_trained_as_the_module() -> None:
    def weights(compiles: bool) -> Any:
        torch.manual_seed(0)
        module = regression(L.LightningModule, test_step=lambda self, batch, batch_idx: self.log("loss", self.loss(batch)))()
        given: Any = torch.compile(module) if compiles else module
        trainer = quiet_trainer()
        trainer.fit(given, loader())
        assert trainer.lightning_module is module
        return module.state_dict(), trainer.test(given, loader(), verbose=False)

    (plain, before), (compiled, after) = weights(False), weights(True)
    assert before == after
    for name, value in plain.items():
        torch.testing.assert_close(compiled[name], value, rtol=0, atol=0)
