"""Where a second fit and a resumed one begin, and in which order things are restored; compared with Lightning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from trainer.as_lightning import Package, misconfiguration, refuses, require_same
from trainer.three_ways import loader, quiet_trainer, regression

import systolic as L


def _noting(package: Package, seen: list[Any]) -> Any:
    """A module that notes where fit begins and which epochs it runs."""

    def note(name: str) -> Callable[[Any], None]:
        return lambda self: seen.append((name, self.trainer.current_epoch, self.trainer.global_step))

    hooks = ("on_fit_start", "on_train_start", "on_train_epoch_start", "on_fit_end")
    return package.module(**{name: note(name) for name in hooks})


class _StopsOnce:
    """Ends the first fit in its second step, by an error or by `should_stop`."""

    def __init__(self, by_error: bool) -> None:
        self.by_error, self.seen = by_error, 0

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        self.seen += 1
        if self.seen == 2 and self.by_error:
            raise ZeroDivisionError
        trainer.should_stop = trainer.should_stop or self.seen == 2


@pytest.mark.thin(2)
@pytest.mark.parametrize("ending", ["max_epochs", "max_steps", "should_stop", "error"])
def test_a_second_fit_goes_on_from_the_counters_of_the_first(ending: str) -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []
        module = _noting(package, seen)
        stops = type("Stops", (_StopsOnce, package.L.Callback), {})(ending == "error")
        callbacks = [stops] if ending in ("error", "should_stop") else []
        limits = {"max_epochs": -1, "max_steps": 3} if ending == "max_steps" else {"max_epochs": 2}
        trainer = package.trainer(callbacks=callbacks, **limits)
        for _ in range(2):
            try:
                trainer.fit(module, loader(12))
            except ZeroDivisionError:
                seen.append("error")
            seen.append((trainer.current_epoch, trainer.global_step))
        trainer.test(package.module(test_step=lambda *args: None), loader(4), verbose=False)
        seen.append((trainer.current_epoch, trainer.global_step))
        trainer.fit_loop.max_epochs += 0 if ending == "max_steps" else 1
        trainer.fit_loop.epoch_loop.max_steps += 2 if ending == "max_steps" else 0
        trainer.fit(module, loader(12))
        return seen, trainer.current_epoch, trainer.global_step, module.second.weight

    require_same(scenario)


def test_validation_counts_batches_on_in_a_second_fit_and_a_resumed_one() -> None:
    def scenario(package: Package) -> Any:
        seen: list[int] = []
        methods = {
            "validation_step": lambda self, batch, batch_idx: None,
            "on_validation_start": lambda self: seen.append(self.trainer.global_step),
        }
        options = {"check_val_every_n_epoch": None, "val_check_interval": 2, "num_sanity_val_steps": 0}
        trainer = package.trainer(**options)
        trainer.fit(package.module(**methods), loader(12), loader(4))
        trainer.save_checkpoint(package.path / "a.ckpt")
        trainer.fit_loop.max_epochs = 2
        trainer.fit(package.module(**methods), loader(12), loader(4))
        seen.append(-1)
        resumed = package.trainer(max_epochs=2, **options)
        resumed.fit(package.module(**methods), loader(12), loader(4), ckpt_path=package.path / "a.ckpt")
        return seen

    assert require_same(scenario)[:2] == [2, 4]


@pytest.mark.parametrize("moment", ["after fit", "on_train_epoch_end"])
def test_a_checkpoint_of_lightning_resumes_in_the_epoch_in_which_lightning_resumes(moment: str) -> None:
    lightning = Package("lightning", pytest.importorskip("lightning.pytorch"), None)  # type: ignore[arg-type]

    def first(package: Package, path: Any) -> None:
        class Saves(package.L.Callback):
            def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
                if moment == "on_train_epoch_end" and trainer.current_epoch == 0:
                    trainer.save_checkpoint(path)

        trainer = package.trainer(callbacks=[Saves()], max_epochs=1)
        trainer.fit(package.module(), loader(8))
        if moment == "after fit":
            trainer.save_checkpoint(path)

    def scenario(package: Package) -> Any:
        lightning.path = package.path
        first(lightning, package.path / "theirs.ckpt")
        seen: list[Any] = []
        module = _noting(package, seen)
        trainer = package.trainer(max_epochs=3)
        trainer.fit(module, loader(8), ckpt_path=package.path / "theirs.ckpt")
        return seen, trainer.current_epoch, trainer.global_step, module.second.weight

    seen, *_ = require_same(scenario)
    assert [entry[1] for entry in seen if entry[0] == "on_train_epoch_start"] == [1, 2]


def _ordered(package: Package, seen: list[Any]) -> tuple[Any, Any, Any]:
    """A module, a callback and a datamodule that note in which order they are set up and restored."""

    def note(name: str, result: Any = None) -> Any:
        def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(name)
            return result

        return hook

    def configure_optimizers(self: Any) -> Any:
        seen.append(("configure_optimizers", self.first.bias.sum().item()))
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    def position(name: str) -> Any:
        def hook(self: Any, trainer: Any, *args: Any) -> None:
            optimizer = trainer.optimizers[0] if trainer.optimizers else None
            state = len(optimizer.state) if optimizer is not None and trainer.state.fn == "fit" else 0
            seen.append((name, trainer.current_epoch, trainer.global_step, state))

        return hook

    steps = {f"{stage}_step": lambda self, batch, batch_idx: None for stage in ("validation", "test", "predict")}
    module = package.module(
        configure_model=note("configure_model"), configure_optimizers=configure_optimizers,
        on_load_checkpoint=note("module.on_load_checkpoint"), **steps,
    )  # fmt: skip
    callback = type("Noting", (package.L.Callback,), {
        "setup": note("callback.setup"), "on_load_checkpoint": note("callback.on_load_checkpoint"),
        "load_state_dict": note("callback.load_state_dict"), "state_dict": lambda self: {"a": 1},
        "on_fit_start": position("on_fit_start"), "on_train_start": position("on_train_start"),
    })()  # fmt: skip
    data = type("Data", (package.L.LightningDataModule,), {
        "setup": note("data.setup"), "load_state_dict": note("data.load_state_dict"), "state_dict": lambda self: {"b": 1},
        **{f"{stage}_dataloader": lambda self: loader(8) for stage in ("train", "val", "test", "predict")},
    })()  # fmt: skip
    return module, callback, data


def test_everything_is_restored_in_lightnings_order() -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []
        module, callback, data = _ordered(package, seen)
        trainer = package.trainer(callbacks=[callback], num_sanity_val_steps=0)
        trainer.fit(module, datamodule=data)
        trainer.save_checkpoint(package.path / "a.ckpt")
        for call in ("fit", "validate", "test", "predict"):
            seen.append(call)
            module, callback, data = _ordered(package, seen)
            again = package.trainer(callbacks=[callback], max_epochs=2, num_sanity_val_steps=0)
            getattr(again, call)(module, datamodule=data, ckpt_path=package.path / "a.ckpt")
            seen.append((again.current_epoch, again.global_step))
        return seen

    account = require_same(scenario)
    assert ("on_fit_start", 0, 0, 0) in account
    assert ("on_train_start", 1, 2, 4) in account


def test_what_cannot_be_resumed_is_refused() -> None:
    def scenario(package: Package) -> Any:
        trainer = package.trainer(max_epochs=2)
        trainer.fit(package.module(), loader(4))
        trainer.save_checkpoint(package.path / "all.ckpt")
        trainer.save_checkpoint(package.path / "weights.ckpt", weights_only=True)
        errors = (misconfiguration(package), KeyError)
        again = [package.trainer(max_epochs=3), package.trainer(max_epochs=1)]
        paths = [package.path / "weights.ckpt", package.path / "all.ckpt"]
        return [
            refuses(lambda t=t, p=p: t.fit(package.module(), loader(4), ckpt_path=p), *errors)
            for t, p in zip(again, paths, strict=True)
        ]

    assert require_same(scenario) == [True, True]


def test_a_fit_with_nothing_to_do_says_so() -> None:
    trainer = quiet_trainer(compile=False)
    trainer.fit(regression(L.LightningModule)(), loader(4))
    with pytest.warns(UserWarning, match=r"nothing to do: epoch 1 and step 1.*max_epochs=1.*fit_loop\.max_epochs"):
        trainer.fit(regression(L.LightningModule)(), loader(4))
