"""Progress of the loops is set by the names that Lightning's users know, to the effect that it has in Lightning."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader

import systolic

COUNTS = ("ready", "started", "processed", "completed")


def shown(trainer: Any) -> Any:
    """Counters of a Trainer."""
    progress = trainer.fit_loop.epoch_progress
    epochs = [[getattr(part, name) for name in COUNTS] for part in (progress.total, progress.current)]
    loop = trainer.fit_loop.epoch_loop
    steps = (
        loop.automatic_optimization.optim_progress.optimizer_steps,
        loop.manual_optimization.optim_step_progress.total.completed,
    )
    batches = loop.batch_progress
    return [
        trainer.current_epoch, trainer.global_step, trainer.fit_loop.done, trainer.fit_loop.restarting, epochs, steps,
        loop.total_batch_idx, batches.total.completed, batches.current.completed,
    ]  # fmt: skip


def validation_step(self: Any, batch: Any, batch_idx: int) -> None:
    self.log("val_loss", self.loss(batch))


def by_hand(self: Any, batch: Any, batch_idx: int) -> None:
    optimizer = self.optimizers()
    optimizer.zero_grad()
    self.manual_backward(self.loss(batch))
    optimizer.step()


def noting(package: Package, epochs: list[Any], **hooks: Any) -> Any:
    """A callback that notes the epochs."""

    def on_train_epoch_start(self: Any, trainer: Any, pl_module: Any) -> None:
        epochs.append((trainer.current_epoch, trainer.global_step))

    return type("Notes", (package.L.Callback,), {"on_train_epoch_start": on_train_epoch_start, **hooks})()


def set_both(trainer: Any, epoch: int) -> None:
    """The usual lines that say at which epoch to begin."""
    trainer.fit_loop.epoch_progress.current.processed = epoch
    trainer.fit_loop.epoch_progress.current.completed = epoch


def set_processed(trainer: Any, epoch: int) -> None:
    """The one of them that counts in fit."""
    trainer.fit_loop.epoch_progress.current.processed = epoch


def set_completed(trainer: Any, epoch: int) -> None:
    """The one of them that validate counts by."""
    trainer.fit_loop.epoch_progress.current.completed = epoch


def load_current(trainer: Any, epoch: int) -> None:
    """All of them."""
    trainer.fit_loop.epoch_progress.current.load_state_dict(dict.fromkeys(COUNTS, epoch))


SETTERS = [set_both, set_processed, set_completed, load_current]


@pytest.mark.parametrize("setter", SETTERS)
@pytest.mark.parametrize("options", [{}, {"max_steps": 9, "num_sanity_val_steps": 1}], ids=str)
def test_fit_begins_at_the_epoch_that_was_set(setter: Any, options: dict[str, Any]) -> None:
    def scenario(package: Package) -> Any:
        epochs: list[Any] = []
        trainer = package.trainer(max_epochs=4, callbacks=[noting(package, epochs)], limit_train_batches=2, **options)
        setter(trainer, 2)
        before = trainer.current_epoch
        trainer.fit(package.module(validation_step=validation_step), loader(), loader())
        return before, epochs, shown(trainer)

    require_same(scenario)


@pytest.mark.parametrize("hook", ["setup", "on_fit_start", "on_train_start", "on_train_epoch_end"])
def test_hooks_set_the_epoch(hook: str) -> None:
    def scenario(package: Package) -> Any:
        epochs: list[Any] = []

        def setting(self: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
            if trainer.current_epoch == 0:
                set_both(trainer, 2)

        callback = noting(package, epochs, **{hook: setting})
        trainer = package.trainer(max_epochs=4, callbacks=[callback], limit_train_batches=2)
        trainer.fit(package.module(), loader())
        return epochs, shown(trainer)

    require_same(scenario)


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_trainer_that_is_set_back_fits_again(epoch: int) -> None:
    def scenario(package: Package) -> Any:
        module, seen = package.module(), []
        trainer = package.trainer(max_epochs=2, limit_train_batches=2)
        trainer.fit(module, loader())
        seen.append(shown(trainer))
        set_both(trainer, epoch)
        seen.append(trainer.fit_loop.done)
        trainer.fit(module, loader())
        return seen, shown(trainer), [p.detach() for p in module.parameters()]

    require_same(scenario)


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.parametrize("which", ["automatic", "manual"])
def test_steps_count_on_from_what_was_set(automatic: bool, which: str) -> None:
    def scenario(package: Package) -> Any:
        trainer = package.trainer(max_epochs=2, limit_train_batches=2, max_steps=12)
        loop = trainer.fit_loop.epoch_loop
        if which == "automatic":
            loop.automatic_optimization.optim_progress.optimizer.step.total.completed = 10
        else:
            loop.manual_optimization.optim_step_progress.total.completed = 10
        before = trainer.global_step
        methods = {} if automatic else {"training_step": by_hand, "automatic_optimization": False}
        trainer.fit(package.module(**methods), loader())
        return before, trainer.global_step, trainer.current_epoch

    require_same(scenario)


def test_validation_is_of_the_epoch_that_was_set() -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        def on_validation_epoch_end(self: Any) -> None:
            seen.append(self.current_epoch)

        trainer = package.trainer(max_epochs=2)
        set_completed(trainer, 7)
        module = package.module(validation_step=validation_step, on_validation_epoch_end=on_validation_epoch_end)
        trainer.validate(module, loader(), verbose=False)
        return seen

    assert require_same(scenario) == [7]


def test_another_trainer_goes_on_from_the_progress_of_one() -> None:
    def scenario(package: Package) -> Any:
        epochs: list[Any] = []
        first = package.trainer(max_epochs=2, limit_train_batches=2)
        first.fit(package.module(), loader())
        second = package.trainer(max_epochs=4, limit_train_batches=2, callbacks=[noting(package, epochs)])
        second.fit_loop.load_state_dict(first.fit_loop.state_dict())
        before = shown(second)
        second.fit(package.module(), loader())
        return before, epochs, shown(second)

    require_same(scenario)


def test_progress_from_within_an_epoch_goes_on_within_it() -> None:
    def scenario(package: Package) -> Any:
        states: list[Any] = []
        batches: list[Any] = []

        def keeping(self: Any, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if trainer.global_step == 4:
                states.append(copy.deepcopy(trainer.fit_loop.state_dict()))

        def counting(self: Any, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            batches.append((trainer.current_epoch, batch_idx, trainer.global_step))

        first = package.trainer(
            max_epochs=2, callbacks=[noting(package, [], on_train_batch_end=keeping)], limit_train_batches=3
        )
        first.fit(package.module(), loader())
        second = package.trainer(
            max_epochs=3, callbacks=[noting(package, [], on_train_batch_end=counting)], limit_train_batches=3
        )
        second.fit_loop.load_state_dict(states[0])
        restarting = second.fit_loop.restarting
        second.fit(package.module(), loader())
        return restarting, batches, shown(second)[:4]

    require_same(scenario)


def test_whole_progress_is_reset_and_counted() -> None:
    def scenario(package: Package) -> Any:
        trainer = package.trainer(max_epochs=2, limit_train_batches=2)
        trainer.fit(package.module(), loader())
        trainer.fit_loop.epoch_progress.reset()
        trainer.fit_loop.epoch_loop.batch_progress.total.increment_by(3)
        trainer.fit_loop.epoch_loop.scheduler_progress.total.completed = 5
        seen = shown(trainer), trainer.fit_loop.epoch_loop.scheduler_progress.state_dict()
        trainer.fit(package.module(), loader())
        return seen, shown(trainer)

    require_same(scenario)


def test_what_cannot_be_set_is_refused() -> None:
    trainer = systolic.Trainer(accelerator="cpu", devices=1, max_epochs=1, logger=False)
    with pytest.raises(systolic.MisconfigurationException, match="begins anew in every run"):
        trainer.validate_loop.batch_progress.total.completed = 3
    kept = copy.deepcopy(trainer.fit_loop.epoch_progress)
    kept.current.completed = 3  # a copy, as in Lightning, is of no trainer
    assert trainer.current_epoch == 0
