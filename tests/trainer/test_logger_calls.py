"""How the Trainer calls loggers: by keyword, with Lightning's values at Lightning's steps."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from trainer.three_ways import loader, regression, run

import systolic as L

Calls = list[tuple[dict[str, float], Any]]


def recording(package: Any, calls: Calls) -> Any:
    """A logger that keeps what it is called with, and has arguments that only keywords reach."""

    class Recording(package.loggers.Logger):
        @property
        def name(self) -> str:
            return "name"

        @property
        def version(self) -> int:
            return 0

        def log_hyperparams(self, params: Any) -> None:
            pass

        def log_metrics(self, *, step: Any, metrics: dict[str, float]) -> None:
            calls.append(({name: round(float(value), 5) for name, value in sorted(metrics.items())}, step))

    return Recording()


def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
    loss = self.loss(batch)
    self.log("loss", loss, on_step=True, on_epoch=True)
    return loss


def with_a_step_of_its_own(self: Any, batch: Any, batch_idx: int) -> Any:
    loss = self.loss(batch)
    self.log_dict({"loss": loss, "step": torch.tensor(10.0) * self.current_epoch + batch_idx})
    return loss


def validation_step(self: Any, batch: Any, batch_idx: int) -> None:
    self.log("val_loss", self.loss(batch))


def epoch_as_step(self: Any) -> None:
    self.log_dict({"epochs": 1.0, "step": float(self.current_epoch)})


CASES = {
    "steps": {"training_step": training_step},
    "a step of its own": {"training_step": with_a_step_of_its_own},
    "epochs as steps": {
        "training_step": training_step,
        "on_train_epoch_end": epoch_as_step,
        "on_validation_epoch_end": epoch_as_step,
    },
}


@pytest.mark.parametrize("case", CASES)
def test_loggers_get_what_lightning_gives_them(case: str) -> None:
    def calls(kind: str) -> Calls:
        found: Calls = []
        package = pl if kind == "lightning" else L
        run(
            kind,
            lambda base: regression(base, validation_step=validation_step, **CASES[case]),
            val=loader(8, seed=2),
            logger=recording(package, found),
            log_every_n_steps=2,
        )
        return sorted(found, key=str)

    assert calls("eager") == calls("compiled") == calls("lightning")
