"""Callbacks decide the same under the real loop, under Lightning's, and under the small one that the other tests here use."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from callbacks.fake_trainer import FakeTrainer
from torch.utils.data import DataLoader, TensorDataset

import systolic as L
from systolic.checkpoint import load

NAN, INF = float("nan"), float("inf")
BATCHES = 4
Look = Callable[[Any, Any, Path], dict[str, Any]]


@dataclass(frozen=True)
class Scenario:
    """A callback, what is logged, and what is decided.

    Attributes:
        callback: the callback's name, here and in Lightning.
        values: `v` of each validation, in order; None logs nothing.
        arguments: the callback's.
        trainer: the Trainer's.
        epochs: how many; None for one a validation.
        ours: what systolic decides otherwise than Lightning, and docs/lightning.md says so.
    """

    callback: str
    values: list[float] = field(default_factory=list)
    arguments: dict[str, Any] = field(default_factory=dict)
    trainer: dict[str, Any] = field(default_factory=dict)
    epochs: int | None = None
    ours: dict[str, Any] = field(default_factory=dict)

    @property
    def max_epochs(self) -> int:
        return len(self.values) if self.epochs is None else self.epochs


def module(base: Any, scenario: Scenario) -> Any:
    """Logs the scenario's values."""

    class Logs(base):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.values = iter(scenario.values)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.layer(batch[0]).square().mean()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            """One batch a validation."""
            value = next(self.values, None)
            if value is not None:
                self.log("v", value)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    return Logs()


def on_a_real_loop(library: Any, scenario: Scenario, path: Path) -> tuple[Any, Any]:
    """Fit with a Trainer of systolic's or Lightning's."""
    directory = {"dirpath": path} if scenario.callback == "ModelCheckpoint" else {}
    callback = getattr(library.callbacks, scenario.callback)(**directory, **scenario.arguments)
    trainer = library.Trainer(
        accelerator="cpu", devices=1, max_epochs=scenario.max_epochs, logger=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0, callbacks=[callback],
        enable_checkpointing=bool(directory), log_every_n_steps=1, **scenario.trainer,
        **({"compile": False, "advice": False} if library is L else {}),
    )  # fmt: skip
    loaders = [DataLoader(TensorDataset(torch.ones(count, 1))) for count in (BATCHES, 1)]
    with warnings.catch_warnings():
        if library is not L:
            warnings.simplefilter("ignore")  # Lightning's own, of PyTorch's newest version and of few workers
        trainer.fit(module(library.LightningModule, scenario), *loaders)
    return trainer, callback


def on_the_small_loop(scenario: Scenario, path: Path) -> tuple[Any, Any]:
    directory = {"dirpath": path} if scenario.callback == "ModelCheckpoint" else {}
    callback = getattr(L.callbacks, scenario.callback)(**directory, **scenario.arguments)
    options = {
        ("enable_validation" if name == "limit_val_batches" else name): value for name, value in scenario.trainer.items()
    }
    trainer = FakeTrainer(callbacks=[callback], num_training_batches=BATCHES, **options)
    trainer.train([{"v": v} for v in scenario.values], epochs=scenario.max_epochs)
    return trainer, callback


def stopping(trainer: Any, callback: Any, path: Path) -> dict[str, Any]:
    """What EarlyStopping decided."""
    return {
        "steps": trainer.global_step,
        "stopped_epoch": callback.stopped_epoch,
        "wait_count": callback.wait_count,
        "best_score": f"{float(callback.best_score):.6g}",
        "reason": callback.stopping_reason.name,
    }


def kept(trainer: Any, callback: Any, path: Path) -> dict[str, Any]:
    """What ModelCheckpoint wrote and ranked."""
    score = callback.best_model_score
    return {
        "files": {file.stem: load(file, weights_only=False)["global_step"] for file in path.glob("*.ckpt")},
        "best": Path(callback.best_model_path).stem,
        "score": None if score is None else f"{float(score):.6g}",
        "ranked": {Path(file).stem: f"{float(score):.6g}" for file, score in callback.best_k_models.items()},
        "last": Path(callback.last_model_path).stem,
    }


LOOKS: dict[str, Look] = {"EarlyStopping": stopping, "ModelCheckpoint": kept}


def stops(values: list[float], trainer: dict[str, Any] | None = None, epochs: int | None = None, **arguments: Any) -> Scenario:
    return Scenario("EarlyStopping", values, {"monitor": "v", **arguments}, trainer or {}, epochs)


def keeps(values: list[float], trainer: dict[str, Any] | None = None, epochs: int | None = None, **arguments: Any) -> Scenario:
    return Scenario("ModelCheckpoint", values, arguments, trainer or {}, epochs)


TABLE = {
    "improves": stops([3, 2, 1, 0]),
    "patience": stops([3, 2, 2, 2, 2, 2]),
    "patience 2": stops([3, 2, 2, 1, 1, 0], patience=2),
    "max": stops([1, 2, 3, 3], mode="max", patience=1),
    "min_delta": stops([3, 2.95, 2.9, 2], min_delta=0.2, patience=2),
    "min_delta, max": stops([1, 1.05, 1.5], min_delta=0.1, patience=1, mode="max"),
    "stopping_threshold": stops([3, 0.1, 0], stopping_threshold=0.2),
    "divergence_threshold": stops([3, 9, 0], divergence_threshold=8),
    "nan": stops([3, NAN, 0]),
    "infinite": stops([3, -INF, 0]),
    "nan is no matter": stops([3, NAN, 2, 1], check_finite=False),
    "two validations an epoch": stops([1.0] * 4, {"val_check_interval": 0.5}, epochs=2),
    "two validations an epoch, at its end": stops(
        [1.0] * 4, {"val_check_interval": 0.5}, epochs=2, patience=100, check_on_train_epoch_end=True
    ),
    "every second epoch": stops([1.0] * 3, {"check_val_every_n_epoch": 2}, epochs=6, patience=1),
    "newest": keeps([], epochs=3),
    "best": keeps([0.9, 0.5, 0.7, 0.4], monitor="v"),
    "best, max": keeps([0.9, 0.5, 0.7, 0.4], monitor="v", mode="max"),
    "best 2": keeps([0.9, 0.5, 0.7, 0.4], monitor="v", save_top_k=2),
    "all": keeps([0.9, 0.5, 0.7, 0.4], monitor="v", save_top_k=-1),
    "none": keeps([0.9, 0.5], monitor="v", save_top_k=0),
    "nan ranks last": keeps([NAN, 0.5, NAN, 0.6], monitor="v"),
    "last": replace(
        keeps([0.5, 0.4, 0.9], monitor="v", save_last=True, save_top_k=2),
        ours={"files": {"epoch=0-step=4": 4, "epoch=1-step=8": 8, "last": 12}},
    ),
    "last only": keeps([], epochs=2, save_last=True, save_top_k=0),
    "every second epoch's": keeps([], epochs=5, every_n_epochs=2, save_top_k=-1, filename="{epoch}"),
    "every 3 steps": keeps([], epochs=2, every_n_train_steps=3, save_top_k=-1, filename="{step}"),
    "after validations": keeps([0.9, 0.1, 0.5, 0.7], {"val_check_interval": 0.5}, 2, monitor="v", save_top_k=-1),
    "names with values": keeps([0.9, 0.5], monitor="v", save_top_k=-1, filename="{epoch}-{v:.2f}"),
    "without validation": keeps([], {"limit_val_batches": 0}, 2, save_last=True, save_on_train_epoch_end=False),
}


@pytest.mark.parametrize("name", list(TABLE))
def test_decisions_are_lightnings(name: str, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    scenario = TABLE[name]
    look = LOOKS[scenario.callback]
    loops = {
        "lightning": lambda path: on_a_real_loop(lightning, scenario, path),
        "real": lambda path: on_a_real_loop(L, scenario, path),
        "small": lambda path: on_the_small_loop(scenario, path),
    }
    found = {loop: look(*fit(tmp_path / loop), tmp_path / loop) for loop, fit in loops.items()}
    for difference, ours in scenario.ours.items():
        assert found["lightning"][difference] != ours
    assert found["real"] == found["lightning"] | scenario.ours
    assert found["small"] == found["real"]


@pytest.mark.parametrize("interval", ["step", "epoch"])
@pytest.mark.parametrize("options", [{}, {"min_steps": 3}, {"min_epochs": 2}], ids=str)
def test_a_timer_whose_time_is_over_stops_where_lightnings_does(interval: str, options: dict[str, int], tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    arguments = {"duration": {"seconds": 0}, "interval": interval, "verbose": False}
    scenario = Scenario("Timer", [], arguments, options, epochs=4)
    steps = [on_a_real_loop(library, scenario, tmp_path)[0].global_step for library in (L, lightning)]
    assert steps[0] == steps[1]
