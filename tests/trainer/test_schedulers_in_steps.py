"""Schedulers that `training_step` steps or reads, and what it reads of the Trainer: as under Lightning, in every step."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
import torch.nn.functional as F
from beside_lightning import beside_lightning, loader, module_of, plain, trainer_of
from torch.optim import lr_scheduler as schedulers

import systolic

T = torch.Tensor


class Warmup(schedulers.LRScheduler):
    """A scheduler of the user's own, with a step of its own."""

    def get_lr(self) -> list[float]:
        return [base * min(1.0, (self.last_epoch + 1) / 4) for base in self.base_lrs]

    def step(self, epoch: int | None = None) -> None:
        super().step()


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "exponential": lambda o: schedulers.ExponentialLR(o, 0.9),
    "step": lambda o: schedulers.StepLR(o, 2, 0.5),
    "cosine": lambda o: schedulers.CosineAnnealingLR(o, 6),
    "restarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 3),
    "lambda": lambda o: schedulers.LambdaLR(o, lambda step: 1 / (1 + step)),
    "one cycle": lambda o: schedulers.OneCycleLR(o, 0.2, total_steps=20),
    "sequence": lambda o: schedulers.SequentialLR(
        o, [schedulers.LinearLR(o, 0.1, total_iters=2), schedulers.ExponentialLR(o, 0.9)], [2]
    ),
    "plateau": lambda o: schedulers.ReduceLROnPlateau(o, patience=0, factor=0.5),
    "own": Warmup,
}


@pytest.mark.thin(2)
@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("when", ["each batch", "last batch"])
@pytest.mark.parametrize("kind", SCHEDULERS)
def test_a_scheduler_steps_in_training_step(kind: str, when: str) -> None:
    def training_step(module: Any, batch: Any, i: int) -> None:
        optimizer, scheduler, loss = module.optimizers(), module.lr_schedulers(), module.loss(batch)
        optimizer.zero_grad()
        module.manual_backward(loss)
        optimizer.step()
        if when == "each batch" or module.trainer.is_last_batch:
            scheduler.step(loss) if kind == "plateau" else scheduler.step()

    def on_train_batch_end(module: Any, *_: Any) -> None:
        module.seen.append((module.trainer.optimizers[0].param_groups[0]["lr"], module.lr_schedulers().last_epoch))

    def configure_optimizers(module: Any) -> Any:
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        return [optimizer], [SCHEDULERS[kind](optimizer)]

    methods = {name: method for name, method in locals().items() if callable(method)}
    beside_lightning(
        methods, lambda module: plain(module.seen), prepare=lambda m: setattr(m, "automatic_optimization", False), epochs=3
    )


READS: dict[str, Callable[[Any, int], Any]] = {
    "last batch": lambda m, i: m.trainer.is_last_batch,
    "rate": lambda m, i: m.lr_schedulers().get_last_lr()[0],
    "count": lambda m, i: m.lr_schedulers().last_epoch,
    "optimizer": lambda m, i: m.trainer.optimizers[0].param_groups[0]["lr"],
    "batch": lambda m, i: m.trainer.fit_loop.batch_idx + m.trainer.fit_loop.epoch_loop.batch_idx,
    "progress": lambda m, i: (i + m.current_epoch * m.trainer.num_training_batches) / m.trainer.estimated_stepping_batches,
    "stopping": lambda m, i: m.trainer.should_stop,
    "waited": lambda m, i: m.trainer.early_stopping_callback.wait_count,
    "best": lambda m, i: m.trainer.checkpoint_callback.best_model_path == "",
}


def _seen(library: Any, read: Callable[[Any, int], Any], interval: str, path: Path) -> tuple[Any, Any]:
    def training_step(module: Any, batch: Any, i: int) -> T:
        value = read(module, i)
        module.seen.append(value)
        module.log("value", float(value))
        return F.cross_entropy(module(batch[0]), batch[1]) * (1 + value)

    def validation_step(module: Any, batch: Any, i: int) -> None:
        module.log("v", module.loss(batch))

    def configure_optimizers(module: Any) -> Any:
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        return [optimizer], [{"scheduler": schedulers.ExponentialLR(optimizer, 0.5), "interval": interval}]

    module = module_of(library, {n: f for n, f in locals().items() if callable(f) and f is not read}, lambda module: None)
    callbacks = library.pytorch.callbacks
    watching = [callbacks.EarlyStopping("v", mode="max", patience=9), callbacks.ModelCheckpoint(path, monitor="v")]
    trainer = trainer_of(library, max_epochs=3, enable_checkpointing=True, callbacks=watching)
    trainer.fit(module, loader(48, 1), loader(36, 2))
    return plain(module.seen), [p.detach().sum().item() for p in module.parameters()]


@pytest.mark.thin(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("interval", ["epoch", "step"])
@pytest.mark.parametrize("name", READS)
def test_each_step_reads_its_own(name: str, interval: str, tmp_path: Path) -> None:
    theirs = _seen(lightning, READS[name], interval, tmp_path / "theirs")
    ours = _seen(systolic, READS[name], interval, tmp_path / "ours")
    assert len(ours[0]) == len(theirs[0]) == 9
    for mine, other in zip((*ours[0], *ours[1]), (*theirs[0], *theirs[1]), strict=True):
        assert type(mine) is type(other)
        assert math.isclose(mine, other, rel_tol=1e-5, abs_tol=1e-6)


@pytest.mark.parametrize(
    "read",
    [
        lambda m: m.trainer.fit_loop.epoch_loop.batch_progress,
        lambda m: m.trainer.fit_loop.epoch_progress,
    ],
)
def test_what_is_known_between_steps_is_refused_in_one(read: Callable[[Any], Any]) -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        read(module)
        return module.loss(batch)

    module = module_of(systolic, {"training_step": training_step}, lambda module: None)
    trainer = trainer_of(systolic)
    with pytest.raises(systolic.CaptureError, match="which is another one for every step"):
        trainer.fit(module, loader(48, 1))


def test_evaluation_steps_see_what_was_logged() -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        loss = module.loss(batch)
        module.log("loss", loss)
        return loss

    def validation_step(module: Any, batch: Any, i: int) -> None:
        module(batch[0])
        module.seen.append(float(module.trainer.callback_metrics.get("loss", -1.0)))

    beside_lightning({"training_step": training_step, "validation_step": validation_step}, lambda module: module.seen)
