"""Values that only some steps or hooks log: in rows and metrics of later steps of the epoch, too, as in Lightning."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from beside_lightning import Method, beside_lightning, loader, module_of, plain, require_equal, trainer_of

import systolic


def _step(self: Any, batch: Any, i: int) -> torch.Tensor:
    loss = self.loss(batch)
    if i == 1:
        self.log("second", loss, prog_bar=True)
    if i % 2 == 0:
        self.log("even", loss * 2, on_step=True, on_epoch=True)
    if i == 0:
        self.log("first", loss, on_step=False, on_epoch=True)
        self.log_dict({"unseen": loss, "square": loss**2}, logger=i > 0)
    return loss


def _step_after_values(self: Any, batch: Any, i: int) -> torch.Tensor:
    loss = self.loss(batch)
    self.seen.append(loss.item())
    if len(self.seen) == 3:
        self.log("mean", sum(self.seen) / 3)
        self.seen.clear()
    return loss


def _batch_end(self: Any, outputs: Any, batch: Any, i: int) -> None:
    if i == 1:
        self.log("hook", float(i) + self.current_epoch)
    if i == 2:
        self.log("both", outputs["loss"], on_step=True, on_epoch=True)


def _optimizer_step(self: Any, optimizer: Any) -> None:
    if self.global_step % 3 == 0:
        self.log("of the third", 1.0 * self.global_step)


def _batch_start(self: Any, batch: Any, i: int) -> None:
    if i == 2:
        self.log("begun", 3.0)


def _validated(self: Any, batch: Any, i: int) -> None:
    if i == 0:
        self.log("validated", self.loss(batch))


CASES: dict[str, dict[str, Method]] = {
    "steps": {"training_step": _step},
    "by values": {"training_step": _step_after_values},
    "hooks": {
        "on_train_batch_end": _batch_end,
        "on_before_optimizer_step": _optimizer_step,
        "on_train_batch_start": _batch_start,
    },
    "both, validated": {"training_step": _step, "on_train_batch_end": _batch_end, "validation_step": _validated},
}


def _logged(library: Any, methods: dict[str, Method], path: Path, reads: bool, devices: int, **options: Any) -> Any:
    class Reader(library.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.read: list[Any] = []

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            self.read.append((plain(trainer.callback_metrics), plain(trainer.logged_metrics)))

    reader = Reader()
    logger = library.pytorch.loggers.CSVLogger(path, flush_logs_every_n_steps=1)
    module = module_of(library, methods, lambda module: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        callbacks = {"callbacks": [reader]} if reads else {}
        trainer = trainer_of(library, max_epochs=2, devices=devices, logger=logger, **callbacks, **options)
        loaders = loader(64, 1, 16 // devices), loader(32, 2, 16 // devices) if "validation_step" in methods else None
        trainer.fit(module, *loaders)
    written, rows = Path(logger.log_dir) / "metrics.csv", []
    if written.exists():
        rows = [
            {name: float(value) for name, value in row.items() if value}
            for row in csv.DictReader(written.read_text().splitlines())
        ]
    bar = {name: value for name, value in trainer.progress_bar_metrics.items() if name != "v_num"}
    return rows, reader.read, plain(trainer.callback_metrics), plain(trainer.logged_metrics), bar


@pytest.mark.thin(4)
@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("every", [0, 1, 2, 3])
@pytest.mark.parametrize("name", CASES)
def test_rows_and_metrics_are_lightnings(name: str, every: int, reads: bool, devices: int, tmp_path: Path) -> None:
    theirs = _logged(lightning, CASES[name], tmp_path / "theirs", reads, 1, log_every_n_steps=every)
    ours = _logged(systolic, CASES[name], tmp_path / "ours", reads, devices, log_every_n_steps=every)
    require_equal(list(ours), list(theirs))


@pytest.mark.parametrize("step", [2, 3])
def test_rows_after_a_resume_are_those_of_a_run_that_was_not_interrupted(step: int, tmp_path: Path) -> None:
    class Save(systolic.Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, i: int) -> None:
            _batch_end(module, outputs, batch, i)
            if trainer.global_step == step:
                trainer.save_checkpoint(tmp_path / "saved.ckpt")

    def rows(name: str, **given: Any) -> list[dict[str, str]]:
        logger = systolic.pytorch.loggers.CSVLogger(tmp_path / name, flush_logs_every_n_steps=1)
        module = module_of(systolic, CASES["steps"], lambda module: None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = trainer_of(systolic, max_epochs=1, logger=logger, log_every_n_steps=1, callbacks=[Save()])
            trainer.fit(module, loader(64, 1, 16), **given)
        with open(Path(logger.log_dir) / "metrics.csv") as file:
            return [{key: value for key, value in row.items() if value} for row in csv.DictReader(file)]

    whole = rows("whole")
    assert rows("resumed", ckpt_path=tmp_path / "saved.ckpt", weights_only=False) == whole[step:]


def test_steps_that_are_dispatched_together(tmp_path: Path) -> None:
    theirs = _logged(lightning, CASES["steps"], tmp_path / "theirs", False, 1, log_every_n_steps=2)
    ours = _logged(systolic, CASES["steps"], tmp_path / "ours", False, 1, log_every_n_steps=2, steps_per_dispatch=2)
    require_equal(list(ours), list(theirs))


def test_no_steps_are_logged_with_zero(tmp_path: Path) -> None:
    """Nor do callbacks log in steps; the values of epochs are logged."""
    found = []
    for library in (lightning, systolic):
        callbacks = library.pytorch.callbacks
        logger = library.pytorch.loggers.CSVLogger(tmp_path / library.__name__)
        module = module_of(library, {"training_step": _step}, lambda module: None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            own = [callbacks.LearningRateMonitor(logging_interval="step"), callbacks.DeviceStatsMonitor(cpu_stats=True)]
            trainer_of(library, max_epochs=2, logger=logger, log_every_n_steps=0, callbacks=own).fit(module, loader(64, 1))
        with open(Path(logger.log_dir) / "metrics.csv") as file:
            found.append([{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)])
    theirs, ours = found
    assert theirs
    require_equal(ours, theirs)


@pytest.mark.parametrize("way", ["log", "log_dict", "detached", "epoch"])
def test_what_was_logged_may_be_changed_in_place_afterwards(way: str) -> None:
    def training_step(module: Any, batch: Any, i: int) -> torch.Tensor:
        loss = module.loss(batch)
        if way == "log_dict":
            module.log_dict({"loss": loss}, on_step=True, on_epoch=True)
        else:
            module.log("loss", loss.detach() if way == "detached" else loss, on_step=way != "epoch", on_epoch=True)
        loss += module.inner.weight.square().sum()
        return loss

    def validation_step(module: Any, batch: Any, i: int) -> None:
        loss = module.loss(batch)
        module.log("val_loss", loss)
        loss += 5

    beside_lightning({"training_step": training_step, "validation_step": validation_step}, lambda module: [])


def test_names_of_stages_are_formatted_as_lightnings() -> None:
    def on_validation_batch_end(module: Any, *_: Any) -> None:
        state = module.trainer.state
        module.log(f"loss of {state.stage}", 1.0)
        module.seen.append([f"{state.fn}", str(state.stage), f"{state.status}", state.fn == "FIT", state.stage.value])

    methods = {"validation_step": _validated, "on_validation_batch_end": on_validation_batch_end}
    beside_lightning(methods, lambda module: module.seen)


_CUTOFFS: dict[str, Any] = {
    "list": lambda module: module.cutoffs.tolist(),
    "made in the step": lambda module: torch.tensor([5, 10], device=module.device).tolist(),
    "item": lambda module: [one.item() for one in module.cutoffs],
    "int": lambda module: [int(one) for one in module.cutoffs],
    "tensors": lambda module: list(module.cutoffs),
}


@pytest.mark.parametrize("by", ["log", "log_dict"])
@pytest.mark.parametrize("name", _CUTOFFS)
def test_names_that_are_made_of_values(name: str, by: str) -> None:
    def logged(module: Any, loss: torch.Tensor, stem: str) -> torch.Tensor:
        for place, cutoff in enumerate(_CUTOFFS[name](module)):
            if by == "log":
                module.log(f"{stem}_{cutoff}", loss + place)
            else:
                module.log_dict({stem + "_" + str(cutoff): loss + place})
        return loss

    def training_step(module: Any, batch: Any, i: int) -> torch.Tensor:
        return logged(module, module.loss(batch), "recall")

    def validation_step(module: Any, batch: Any, i: int) -> None:
        logged(module, module.loss(batch), "val_recall")

    def prepare(module: Any) -> None:
        module.register_buffer("cutoffs", torch.tensor([5, 10]))

    methods = {"training_step": training_step, "validation_step": validation_step}
    module = beside_lightning(methods, lambda module: sorted(module.trainer.callback_metrics), prepare=prepare)
    assert len(module.trainer.compiles) <= 4, [one.reason for one in module.trainer.compiles]
