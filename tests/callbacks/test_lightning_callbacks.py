"""Callbacks of Lightning's that change how fit goes, or write what it gives: equal to Lightning's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader, quiet_trainer, regression, samples

import systolic as L
from systolic.callbacks import BasePredictionWriter, GradientAccumulationScheduler, OnExceptionCheckpoint


def test_gradient_accumulation_scheduler() -> None:
    def scenario(package: Package) -> Any:
        scheduler = package.L.callbacks.GradientAccumulationScheduler({1: 2, 3: 4})
        trainer, module = package.trainer(max_epochs=5, callbacks=[scheduler]), package.module()
        trainer.fit(module, loader())
        states.append(module.state_dict())
        return trainer.global_step

    states: list[Any] = []
    assert require_same(scenario) == 5 + 3 + 3 + 2 + 2
    for state in states[1:]:
        torch.testing.assert_close(state, states[0])


@pytest.mark.parametrize(
    ("schedule", "error"), [({}, TypeError), ({"1": 2}, L.MisconfigurationException), ({-1: 2}, L.MisconfigurationException)]
)
def test_gradient_accumulation_scheduler_refuses(schedule: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="Received|empty"):
        GradientAccumulationScheduler(schedule)


def test_gradient_accumulation_scheduler_and_the_argument_contradict() -> None:
    trainer = quiet_trainer(accumulate_grad_batches=2, callbacks=[GradientAccumulationScheduler({0: 4})])
    with pytest.raises(ValueError, match="Remove one of them"):
        trainer.fit(regression(L.LightningModule)(), loader())


def with_backbone(package: Package) -> Any:
    """A module whose first layers are its backbone."""

    class Backed(package.L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(5)
            self.backbone = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh())
            self.head = torch.nn.Linear(8, 1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return (self.head(self.backbone(batch[0])) - batch[1]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=0.05, momentum=0.9)

    return Backed()


@pytest.mark.parametrize("train_bn", [True, False])
def test_backbone_finetuning(train_bn: bool) -> None:
    def scenario(package: Package) -> Any:
        finetuning = package.L.callbacks.BackboneFinetuning(unfreeze_backbone_at_epoch=2, train_bn=train_bn)
        trainer, module = package.trainer(max_epochs=5, callbacks=[finetuning]), with_backbone(package)
        trainer.fit(module, loader())
        groups = trainer.optimizers[0].param_groups
        return module.state_dict(), [(group["lr"], len(group["params"])) for group in groups], finetuning.previous_backbone_lr

    require_same(scenario)


def test_finetuning_goes_on_from_a_checkpoint() -> None:
    def scenario(package: Package) -> Any:
        def fitted(epochs: int, path: Any = None) -> Any:
            finetuning = package.L.callbacks.BackboneFinetuning(unfreeze_backbone_at_epoch=1)
            trainer, module = package.trainer(max_epochs=epochs, callbacks=[finetuning]), with_backbone(package)
            trainer.fit(module, loader(), ckpt_path=path)
            return trainer, module

        trainer, _ = fitted(2)
        trainer.save_checkpoint(package.path / "two.ckpt")
        resumed, module = fitted(4, package.path / "two.ckpt")
        states.append(module.state_dict())
        return [(group["lr"], len(group["params"])) for group in resumed.optimizers[0].param_groups]

    states: list[Any] = []
    require_same(scenario, ("lightning", "compiled"))
    torch.testing.assert_close(states[1], states[0])


def test_finetuning_needs_a_backbone() -> None:
    trainer = quiet_trainer(callbacks=[L.callbacks.BackboneFinetuning()])
    with pytest.raises((AttributeError, L.MisconfigurationException), match="backbone"):
        trainer.fit(regression(L.LightningModule)(), loader())


@pytest.mark.parametrize("interval", ["batch", "epoch", "batch_and_epoch"])
@pytest.mark.parametrize("loaders", [1, 2])
def test_prediction_writer(interval: str, loaders: int) -> None:
    def scenario(package: Package) -> Any:
        class Writer(package.L.callbacks.BasePredictionWriter):
            def __init__(self) -> None:
                super().__init__(interval)
                self.written: list[Any] = []

            def write_on_batch_end(
                self, trainer: Any, pl_module: Any, prediction: Any, batch_indices: Any, batch: Any, *place: int
            ) -> None:
                self.written.append((prediction.tolist(), batch_indices, place))

            def write_on_epoch_end(self, trainer: Any, pl_module: Any, predictions: Any, batch_indices: Any) -> None:
                self.written.append((torch.utils._pytree.tree_map(torch.Tensor.tolist, predictions), batch_indices))

        writer = Writer()
        module = package.module(predict_step=lambda self, batch, batch_idx, dataloader_idx=0: self(batch[0]))
        given = [DataLoader(samples(10, seed), batch_size=4, shuffle=False) for seed in range(loaders)]
        trainer = package.trainer(callbacks=[writer])
        returned = trainer.predict(module, given, return_predictions=False)
        return writer.written, returned

    require_same(scenario)


def test_prediction_writer_refuses_another_interval() -> None:
    with pytest.raises(L.MisconfigurationException, match="write_interval"):
        BasePredictionWriter("sometimes")


def test_on_exception_checkpoint(tmp_path: Any) -> None:
    def fails(self: Any, batch: Any, batch_idx: int) -> None:
        raise ValueError("a mistake")

    saving = OnExceptionCheckpoint(tmp_path)
    module = regression(L.LightningModule, validation_step=fails)()
    trainer = quiet_trainer(callbacks=[saving], enable_checkpointing=True, num_sanity_val_steps=0)
    with pytest.raises(ValueError, match="a mistake"):
        trainer.fit(module, loader(), loader())
    assert torch.load(saving.ckpt_path)["global_step"] == 5
    again = quiet_trainer(callbacks=[saving], enable_checkpointing=True)
    with pytest.warns(UserWarning, match=r"OnExceptionCheckpoint saved .*on_exception.ckpt"):
        again.fit(regression(L.LightningModule)(), loader())
    assert again.global_step == 5 * again.max_epochs  # not those of the first run once more
    assert not (tmp_path / "on_exception.ckpt").exists()
