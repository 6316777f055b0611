"""WeightAveraging and EMAWeightAveraging: what Lightning's do, without fetching anything."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from callbacks.averaging import EIGHT, ONE, account, loaders, module, require_close
from torch.optim.swa_utils import get_ema_avg_fn, get_ema_multi_avg_fn, get_swa_multi_avg_fn
from trainer.as_lightning import Package, accounts, package, require_same
from trainer.three_ways import loader, quiet_trainer

import systolic as L
from systolic.runtime import observing


def after_epochs(base: Any) -> Any:
    """Averages after every epoch but the first, and after no step."""

    class AfterEpochs(base):
        def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
            return epoch_idx is not None and epoch_idx >= 1

    return AfterEpochs()


MAKES = {
    "equal weights": lambda callbacks: callbacks.WeightAveraging(),
    "no buffers": lambda callbacks: callbacks.WeightAveraging(use_buffers=False),
    "on the host": lambda callbacks: callbacks.WeightAveraging(device="cpu"),
    "avg_fn": lambda callbacks: callbacks.WeightAveraging(avg_fn=get_ema_avg_fn(0.875)),
    "multi_avg_fn": lambda callbacks: callbacks.WeightAveraging(multi_avg_fn=get_ema_multi_avg_fn(0.875)),
    "multi_avg_fn, equal": lambda callbacks: callbacks.WeightAveraging(use_buffers=False, multi_avg_fn=get_swa_multi_avg_fn()),
    "after epochs": lambda callbacks: after_epochs(callbacks.WeightAveraging),
    # weights with few binary digits: averages of counts, which are cut off to integers, then round alike in every order
    "ema": lambda callbacks: callbacks.EMAWeightAveraging(decay=0.75),
    "ema, late": lambda callbacks: callbacks.EMAWeightAveraging(
        decay=0.75, update_every_n_steps=3, update_starting_at_step=4, update_starting_at_epoch=1
    ),
}


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", list(MAKES))
def test_averages_are_lightnings(name: str) -> None:
    theirs, *ours = accounts(lambda package: account(package, MAKES[name]), ONE)
    for found in ours:
        require_close(found, theirs)


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", ["ema, late", "equal weights"])
def test_averages_on_eight_cores(name: str) -> None:
    theirs, ours = accounts(lambda package: account(package, MAKES[name], devices=8), EIGHT)
    require_close(ours, theirs)


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", ["ema, late", "equal weights"])
def test_a_run_goes_on_with_its_average(name: str) -> None:
    def scenario(package: Package) -> Any:
        account(package, MAKES[name], epochs=1)
        found = account(package, MAKES[name], epochs=3, path=package.path / "0.ckpt")
        found[1] = [seen for seen in found[1] if seen[1] != 5]  # Lightning validates the first epoch once more
        return found

    (whole,) = accounts(lambda package: account(package, MAKES[name]), ("compiled",))
    theirs, ours = accounts(scenario, EIGHT)
    require_close(ours, theirs)
    require_close(ours[0], whole[0])


@pytest.mark.tables
def test_steps_are_counted_by_optimizers_that_step() -> None:
    def manual(self: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx % 2:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.loss(batch))
            optimizer.step()

    def by_hand(package: Package) -> Any:
        methods = {"training_step": manual, "automatic_optimization": property(lambda self: False, lambda self, value: None)}
        return account(package, MAKES["ema"], epochs=2, methods=methods)

    for scenario in (by_hand, lambda package: account(package, MAKES["ema"], epochs=2, accumulate_grad_batches=2)):
        theirs, ours = accounts(scenario, EIGHT)
        require_close(ours, theirs)


class Fetched:
    """Counts transfers to the host in the middle of an epoch."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def sent(self, size: int, began: float, ended: float) -> None:
        pass

    def fetched(self, size: int, began: float, ended: float) -> None:
        self.sizes.append(size)


def fetched_in_an_epoch(*callbacks: L.Callback) -> tuple[int, int]:
    """How many times something is fetched in a second epoch, and how many programs there are in all."""
    watching, fetched = contextlib.ExitStack(), Fetched()

    class Epoch(L.Callback):
        def on_train_epoch_start(self, trainer: L.Trainer, pl_module: Any) -> None:
            if trainer.current_epoch == 1:
                watching.enter_context(observing(fetched))

        def on_train_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
            watching.close()

    model = module(package("compiled", Path()), validation_step=None)
    trainer = quiet_trainer(max_epochs=2, callbacks=[*callbacks, Epoch()])
    trainer.fit(model, loaders(1)[0])
    return len(fetched.sizes), sum(compile.is_new_executable for compile in trainer.compiles)


def test_nothing_is_fetched_and_one_program_is_compiled_more() -> None:
    without, programs = fetched_in_an_epoch()
    assert fetched_in_an_epoch(L.callbacks.EMAWeightAveraging()) == (without, programs + 2)  # one more for the end


def test_a_checkpoint_from_the_middle_of_validation_holds_each_where_it_belongs(tmp_path: Path) -> None:
    averaging = L.callbacks.EMAWeightAveraging(decay=0.5)

    class Saving(L.Callback):
        def save(self, trainer: L.Trainer, name: str) -> None:
            if not trainer.sanity_checking:
                trainer.save_checkpoint(tmp_path / name)

        def on_validation_start(self, trainer: L.Trainer, pl_module: Any) -> None:
            self.save(trainer, "before")

        def on_validation_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
            self.save(trainer, "between")

    trainer = quiet_trainer(callbacks=[averaging, Saving()])
    trainer.fit(module(package("compiled", tmp_path)), *loaders(1))
    before, between = (torch.load(tmp_path / name, weights_only=False) for name in ("before", "between"))
    for name in ("state_dict", "current_model_state", "averaging_state"):
        require_close(dict(between[name]), dict(before[name]))


def test_a_checkpoint_of_a_run_without_average(tmp_path: Path) -> None:
    plain = quiet_trainer(max_epochs=1)
    plain.fit(module(package("compiled", tmp_path)), *loaders(1))
    plain.save_checkpoint(tmp_path / "plain.ckpt")
    averaging = L.callbacks.WeightAveraging()
    trainer, model = quiet_trainer(max_epochs=1, callbacks=[averaging]), module(package("compiled", tmp_path))
    with pytest.warns(UserWarning, match="saved without it"):
        trainer.fit(model, *loaders(1), ckpt_path=tmp_path / "plain.ckpt")
    require_close(dict(model.state_dict()), dict(torch.load(tmp_path / "plain.ckpt", weights_only=False)["state_dict"]))
    with pytest.warns(UserWarning, match="outside of fit"):
        quiet_trainer(callbacks=[L.callbacks.WeightAveraging()]).validate(model, loaders(1)[1], tmp_path / "plain.ckpt")


def test_another_device_is_refused() -> None:
    with pytest.raises(L.MisconfigurationException, match="expected None"):
        L.callbacks.WeightAveraging(device="cuda")


def test_a_subclass_may_do_more_where_the_average_is_exchanged() -> None:
    def scenario(package: Package) -> list[str]:
        calls: list[str] = []

        class Telling(package.L.callbacks.WeightAveraging):
            def _swap_models(self, pl_module: Any) -> None:
                calls.append("swap")
                super()._swap_models(pl_module)

            def _copy_average_to_current(self, pl_module: Any) -> None:
                calls.append("copy")
                super()._copy_average_to_current(pl_module)

        trainer = package.trainer(callbacks=[Telling()], max_epochs=2)
        validating = {"validation_step": lambda self, batch, batch_idx: self.log("v", self.loss(batch))}
        trainer.fit(package.module(**validating), loader(), loader(8))
        return calls

    assert require_same(scenario) == ["swap"] * 6 + ["copy"]  # the sanity check, too
