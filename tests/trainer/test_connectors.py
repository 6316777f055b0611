"""What libraries written for Lightning reach for by a Trainer's private names says the same here."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.plugins.environments import SLURMEnvironment
from trainer.as_lightning import KINDS, Package, require_same
from trainer.three_ways import loader, quiet_trainer, regression

import systolic as L


def test_configure_optimizers_may_ask_for_the_training_data() -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        def configure_optimizers(self: Any) -> Any:
            self.trainer.fit_loop.setup_data()
            seen.extend((len(self.trainer.train_dataloader), self.trainer.num_training_batches))
            return torch.optim.SGD(self.parameters(), lr=0.1)

        package.trainer(limit_train_batches=3).fit(package.module(configure_optimizers=configure_optimizers), loader(count=20))
        return seen

    assert require_same(scenario) == [5, 3]


def test_a_setup_hook_may_ask_for_it_and_the_loader_is_made_once() -> None:
    def scenario(package: Package) -> Any:
        made: list[int] = []

        def train_dataloader(self: Any) -> Any:
            made.append(1)
            return loader(count=8)

        def setup(self: Any, stage: str) -> None:
            self.trainer.fit_loop.setup_data()

        package.trainer().fit(package.module(train_dataloader=train_dataloader, setup=setup))
        return len(made)

    assert require_same(scenario) == 1


@pytest.mark.parametrize("overfit", [0.0, 2, 0.5])
def test_loaders_are_there_before_a_run(overfit: float) -> None:
    def scenario(package: Package) -> Any:
        module = package.module(
            train_dataloader=lambda self: loader(count=16),
            val_dataloader=lambda self: loader(count=24),
            validation_step=lambda self, batch, batch_idx: None,
            test_dataloader=lambda self: loader(count=12),
            test_step=lambda self, batch, batch_idx: None,
        )
        run = package.trainer(overfit_batches=overfit)
        module.trainer = run
        run.strategy.connect(module)
        run._data_connector.attach_dataloaders(module)
        run.fit_loop.setup_data()
        run.fit_loop.epoch_loop.val_loop.setup_data()
        return run.num_training_batches, run.num_val_batches, run.lightning_module is module

    require_same(scenario)


def test_loaders_that_are_attached_are_used() -> None:
    def scenario(package: Package) -> Any:
        run, module = package.trainer(), package.module()
        module.trainer = run
        run.strategy.connect(module)
        run._data_connector.attach_dataloaders(module, train_dataloaders=loader(count=8))
        run.fit_loop.setup_data()
        found = run.num_training_batches
        run.fit(module, loader(count=12))
        return found, run.num_training_batches, run.global_step

    assert require_same(scenario) == (2, 3, 3)


def test_what_a_checkpoint_would_hold() -> None:
    def scenario(package: Package) -> Any:
        run, module = package.trainer(), package.module()
        run.fit(module, loader())
        whole, weights = (run._checkpoint_connector.dump_checkpoint(only) for only in (False, True))
        own = ("epoch", "global_step", "state_dict", "optimizer_states", "lr_schedulers")
        return [sorted(name for name in own if name in found) for found in (whole, weights)], dict(whole["state_dict"])

    require_same(scenario)


def test_the_next_checkpoint_of_a_job() -> None:
    def scenario(package: Package) -> Any:
        (package.path / "hpc_ckpt_4.ckpt").touch()
        path = package.trainer()._checkpoint_connector.hpc_save_path(package.path)
        return os.path.relpath(path, package.path)

    assert require_same(scenario) == "hpc_ckpt_5.ckpt"


def test_the_strategy_writes_and_reads_a_checkpoint(tmp_path: Path) -> None:
    run = quiet_trainer()
    run.fit(regression(L.LightningModule)(), loader())
    run.strategy.save_checkpoint(run._checkpoint_connector.dump_checkpoint(True), tmp_path / "a.ckpt")
    found = run.strategy.load_checkpoint(tmp_path / "a.ckpt")
    assert found["global_step"] == run.global_step
    assert run.strategy.launcher is None


def test_the_environment_that_was_given() -> None:
    def scenario(package: Package) -> Any:
        given = SLURMEnvironment(auto_requeue=False, requeue_signal=signal.SIGHUP)
        return package.trainer(plugins=given)._accelerator_connector.cluster_environment is given

    assert require_same(scenario) is True


@pytest.mark.parametrize("again", [None, "last"])
def test_fit_goes_on_from_what_an_exception_left(again: str | None) -> None:
    def scenario(package: Package) -> Any:
        def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
            return self.loss(batch)

        def fails(self: Any, *_: Any) -> None:
            if self.trainer.global_step == 5:
                raise RuntimeError("broken")

        def run_it(**hooks: Any) -> Any:
            saver = package.L.callbacks.OnExceptionCheckpoint(package.path)
            run = package.trainer(max_epochs=3, callbacks=[saver], enable_checkpointing=True)
            module = package.module(training_step=training_step, **hooks)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    run.fit(module, loader(count=12), ckpt_path=again)
                except RuntimeError:
                    return run.global_step
            told = any("The last model of the previous `fit`" in str(w.message) for w in caught)
            return run.global_step, run.current_epoch, told, list(package.path.glob("*.ckpt"))

        first = run_it(on_train_batch_end=fails)
        return first, run_it()

    kinds = tuple(kind for kind in KINDS if kind != "lightning")
    told = again is None
    assert require_same(scenario, ("lightning", *kinds)) == (5, (9, 3, told, []))


def test_a_callback_that_is_missing_when_training_goes_on() -> None:
    def scenario(package: Package) -> Any:
        savers = [package.checkpoint(monitor=name, filename=name) for name in ("epoch", "step")]
        first = package.trainer(callbacks=savers, enable_checkpointing=True)
        first.fit(package.module(), loader())
        path = package.path / "here.ckpt"
        first.save_checkpoint(path)

        def asked(*present: int) -> bool:
            run = package.trainer(max_epochs=2, callbacks=[savers[one] for one in present], enable_checkpointing=True)
            words = f"Please add the following callbacks: [{savers[0].state_key!r}]"
            return package.warned(lambda: run.fit(package.module(), loader(), ckpt_path=path), words)

        return asked(1), asked(1, 0)

    assert require_same(scenario) == (True, False)


@pytest.mark.parametrize("sampler", [True, False])
def test_what_language_model_repositories_ask_for(sampler: bool) -> None:
    def scenario(package: Package) -> Any:
        found = []

        def configure_optimizers(self: Any) -> Any:
            found.append(type(self.trainer.fit_loop._data_source.instance).__name__)
            found.append(self.trainer._accelerator_connector.use_distributed_sampler)
            return torch.optim.SGD(self.parameters(), 0.1)

        for data in (loader(4), None):
            methods = {} if data is not None else {"train_dataloader": lambda self: loader(4)}
            module = package.module(configure_optimizers=configure_optimizers, **methods)
            package.trainer(use_distributed_sampler=sampler).fit(module, data)
        return found

    assert require_same(scenario)[:2] == ["DataLoader", sampler]
