"""`rank_zero_experiment`, which loggers of one's own import beside `Logger`, as Lightning documents it."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset


def used(library: str) -> tuple[Any, ...]:
    """What a logger with this decorator writes in a fit of two steps, and what another process than the first has of it."""
    package = importlib.import_module(library)
    logger_module = importlib.import_module(f"{library}.pytorch.loggers.logger")
    rank_zero_only = importlib.import_module(f"{library}.pytorch.utilities.rank_zero").rank_zero_only

    class Mine(logger_module.Logger):
        name, version, made = "mine", 0, 0

        @property
        @logger_module.rank_zero_experiment
        def experiment(self) -> list[Any]:
            """Of the first process."""
            if not self.made:
                self.made, self.rows = 1, []
            return self.rows

        def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
            self.experiment.append((step, metrics["loss"]))

        def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
            """Nothing."""

    class Module(package.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = self.weight * batch[0].mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.5)

    logger = Mine()
    package.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, logger=logger, enable_progress_bar=False, log_every_n_steps=1,
        enable_model_summary=False, enable_checkpointing=False,
    ).fit(Module(), DataLoader(TensorDataset(torch.ones(8, 1)), 4))  # fmt: skip
    before, rank_zero_only.rank = rank_zero_only.rank, 1
    try:
        elsewhere = Mine()
        other = elsewhere.experiment
        other[0].add_image("x", 3)
        other.append(1)
    finally:
        rank_zero_only.rank = before
    described = vars(Mine)["experiment"].__doc__
    return logger.rows, logger.made, elsewhere.made, type(other).__name__.strip("_"), described


@pytest.mark.filterwarnings("ignore")
def test_the_first_process_has_the_experiment_and_others_one_that_does_nothing() -> None:
    theirs, ours = used("lightning"), used("systolic")
    assert ours == theirs
    assert ours[0] == [(0, 1.0), (1, 0.5)]
