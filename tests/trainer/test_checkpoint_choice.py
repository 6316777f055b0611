"""Which weights `validate`, `test` and `predict` use, compared with Lightning."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from trainer.as_lightning import Package, refuses, require_same
from trainer.three_ways import loader, quiet_trainer, regression

import systolic as L
from systolic.plugins import AsyncCheckpointIO


def _worse(self: Any, batch: Any, batch_idx: int) -> None:
    self.log("worse", float(self.current_epoch))


def _weight(self: Any, batch: Any, batch_idx: int) -> None:
    self.log("weight", self.second.bias.sum())


def _fitted(package: Package, *callbacks: Any, **options: Any) -> tuple[Any, Any]:
    """A module after two epochs, the first of which counts as the better one."""
    module = package.module(validation_step=_worse, test_step=_weight, predict_step=lambda s, b, i: s.second.bias * 1)
    saving = {"enable_checkpointing": bool(callbacks), "callbacks": list(callbacks)}
    trainer = package.trainer(max_epochs=2, **saving, **options)
    trainer.fit(module, loader(8), loader(4))
    return module, trainer


def test_without_a_module_the_best_weights_are_used() -> None:
    def scenario(package: Package) -> Any:
        module, trainer = _fitted(package, package.checkpoint(monitor="worse"))
        last = module.second.bias.item()
        given = trainer.test(module, loader(4), verbose=False)[0]["weight"]
        best = trainer.test(dataloaders=loader(4), verbose=False)[0]["weight"]
        module.second.bias.data.fill_(9.0)
        predicted = trainer.predict(dataloaders=loader(4))[0].item()
        trainer.validate(dataloaders=loader(4), verbose=False)
        return last, given, best, predicted, module.second.bias.item(), str(trainer.ckpt_path).rpartition("/")[2]

    last, given, best, predicted, now, name = require_same(scenario)
    assert given == last != best == predicted == now
    assert name == "epoch=0-step=2.ckpt"


def test_the_choice_is_announced_and_refused_as_in_lightning() -> None:
    def scenario(package: Package) -> Any:
        _, fitted = _fitted(package, package.checkpoint(monitor="worse"))
        _, several = _fitted(package, package.checkpoint(), package.checkpoint(monitor="worse"))
        _, nothing_saved = _fitted(package, package.checkpoint(save_top_k=0))
        _, unsaved = _fitted(package)
        _, quick = _fitted(package, package.checkpoint(), fast_dev_run=1)
        data = {"dataloaders": loader(4), "verbose": False}
        return [
            package.warned(lambda: fitted.test(**data), "without a m", "best"),
            package.warned(lambda: fitted.test(ckpt_path="best", **data), "without a m"),
            package.warned(lambda: several.test(ckpt_path="best", **data), "ModelCheckpoint", "callbacks", "first"),
            *[refuses(lambda t=t: t.test(**data), ValueError) for t in (nothing_saved, unsaved, quick)],
            refuses(lambda: package.trainer().test(**data), TypeError),
        ]

    assert require_same(scenario) == [True, False, True, True, True, True, True]


def test_the_last_checkpoint_is_the_newest_and_may_be_missing() -> None:
    def scenario(package: Package) -> Any:
        module, trainer = _fitted(package, package.checkpoint(save_last=True))
        last = module.second.bias.item()
        module.second.bias.data.fill_(9.0)
        trainer.test(dataloaders=loader(4), ckpt_path="last", verbose=False)
        fresh = package.trainer(enable_checkpointing=True, callbacks=[package.checkpoint(save_last=True)], max_epochs=3)
        fresh.fit(module, loader(8), loader(4), ckpt_path="last")
        bare = package.trainer(max_epochs=1)
        missing = package.warned(lambda: bare.fit(module, loader(8), ckpt_path="last"), "last", "checkpoint")
        return last, fresh.global_step, missing, bare.global_step, module.second.bias.item()

    account = require_same(scenario)
    assert account[1:4] == (6, True, 2)


def test_callbacks_of_the_module_stay_with_the_trainer() -> None:
    def scenario(package: Package) -> Any:
        class Stops(package.L.callbacks.EarlyStopping):
            pass

        own = [Stops("worse"), package.checkpoint(monitor="worse")]
        module = package.module(validation_step=_worse, test_step=_weight, configure_callbacks=lambda self: own)
        trainer = package.trainer(callbacks=[package.L.callbacks.EarlyStopping("worse")], max_epochs=2)
        trainer.fit(module, loader(8), loader(4))
        trainer.save_checkpoint(package.path / "all.ckpt")
        states = torch.load(package.path / "all.ckpt", weights_only=True)["callbacks"]
        kept = [type(c).__name__ for c in trainer.callbacks]
        return kept, sorted(states), trainer.checkpoint_callback is own[1], trainer.early_stopping_callback is own[0]

    assert require_same(scenario)[0] == ["Stops", "ModelCheckpoint"]


@pytest.mark.parametrize("where", ["here", "memory://lasts"])
def test_of_several_last_checkpoints_the_newest_is_taken(where: str) -> None:
    module = regression(L.LightningModule)()
    for epochs in (1, 2):
        callback = L.callbacks.ModelCheckpoint(where, save_last=True, save_top_k=0)
        saving = {"enable_checkpointing": True, "callbacks": [callback], "plugins": [AsyncCheckpointIO()]}
        quiet_trainer(compile=False, max_epochs=epochs, **saving).fit(module, loader(4))
    callback = L.callbacks.ModelCheckpoint(where, save_last=True, save_top_k=0)
    trainer = quiet_trainer(compile=False, max_epochs=3, enable_checkpointing=True, callbacks=[callback])
    trainer.fit(module, loader(4), ckpt_path="last")
    assert str(trainer.ckpt_path).endswith("last-v1.ckpt")
    assert trainer.global_step == 3
