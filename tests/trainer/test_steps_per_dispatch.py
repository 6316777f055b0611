"""Several steps in one dispatch are the same steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic as L

QUIET: dict[str, Any] = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


class Digits(L.LightningModule):
    """An MLP with dropout, BatchNorm, a schedule by step and a loss that depends on batch_idx."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(64, 48, bias=False), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, 10)
        )
        self.rates: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        loss = F.cross_entropy(self.net(x), y) * (1 + 0.01 * batch_idx)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", F.cross_entropy(self.net(x), y))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Steps(L.loggers.Logger):
    """Keeps every row."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    name = version = "steps"

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append((step or 0, dict(metrics)))

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to keep."""


def digits(batch_size: int = 32) -> DataLoader[Any]:
    data = load_digits()
    x, y = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
    return DataLoader(TensorDataset(x[:1000], y[:1000]), batch_size=batch_size)


def fitted(size: int, **options: Any) -> tuple[L.Trainer, Digits, Steps]:
    L.seed_everything(3)
    module, logger = Digits(), Steps()
    settings: dict[str, Any] = {"max_epochs": 2, "devices": 1, "log_every_n_steps": 1, **QUIET, "logger": logger, **options}
    trainer = L.Trainer(accelerator="cpu", steps_per_dispatch=size, **settings)
    trainer.fit(module, digits(), digits(256))
    return trainer, module, logger


@pytest.mark.tables
@pytest.mark.parametrize("devices", [1, 4])
def test_results_are_those_of_single_steps(devices: int) -> None:
    _, single, rows = fitted(1, devices=devices)
    trainer, grouped, grouped_rows = fitted(5, devices=devices)
    assert [c.reason for c in trainer.compiles].count("steps_per_dispatch=5") == 1
    for (name, a), b in zip(single.state_dict().items(), grouped.state_dict().values(), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6, msg=name)
    assert [step for step, _ in rows.rows] == [step for step, _ in grouped_rows.rows]
    for (_, a), (_, b) in zip(rows.rows, grouped_rows.rows, strict=True):
        assert b == pytest.approx(a, rel=1e-5)


@pytest.mark.tables
def test_dropout_draws_are_those_of_single_steps() -> None:
    first = [row["loss_step"] for _, row in fitted(1)[2].rows if "loss_step" in row]
    second = [row["loss_step"] for _, row in fitted(4)[2].rows if "loss_step" in row]
    assert second == pytest.approx(first, rel=1e-5)
    assert len(set(first)) == len(first)


@pytest.mark.tables
def test_no_step_is_left_over_at_a_stop() -> None:
    trainer, grouped, _ = fitted(8, max_steps=13, max_epochs=-1)
    _, single, _ = fitted(1, max_steps=13, max_epochs=-1)
    assert trainer.global_step == 13
    torch.testing.assert_close(grouped.net[0].weight, single.net[0].weight, rtol=1e-5, atol=1e-6)


@pytest.mark.tables
def test_checkpoints_between_steps_hold_all_of_them(tmp_path: Any) -> None:
    def saved(size: int) -> Any:
        keep = L.callbacks.ModelCheckpoint(dirpath=tmp_path / str(size), every_n_train_steps=7, save_top_k=-1)
        fitted(size, callbacks=[keep], enable_checkpointing=True)
        return [torch.load(path, weights_only=True) for path in sorted((tmp_path / str(size)).glob("*.ckpt"))]

    single, grouped = saved(1), saved(4)
    assert [c["global_step"] for c in grouped] == [c["global_step"] for c in single] != []
    for a, b in zip(single, grouped, strict=True):
        torch.testing.assert_close(b["state_dict"], a["state_dict"], rtol=1e-5, atol=1e-6)


class Watches(L.Callback):
    def on_train_batch_end(self, *args: Any) -> None:
        """Needs every batch."""


@pytest.mark.tables
@pytest.mark.thin(4)
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"callbacks": [Watches()]}, "on_train_batch_end is overridden"),
        ({"accumulate_grad_batches": 2}, "accumulation"),
        ({"detect_anomaly": True}, "detect_anomaly"),
        ({"compile": False}, "compile=False"),
    ],
)
def test_runs_that_need_every_batch_say_why_they_do_not_group(options: dict[str, Any], reason: str) -> None:
    with pytest.warns(UserWarning, match=f"steps_per_dispatch=4 is not used.*{reason}"):
        trainer, _, _ = fitted(4, max_epochs=1, **options)
    assert not any("steps_per_dispatch" in c.reason for c in trainer.compiles)


def test_less_than_one_is_refused() -> None:
    with pytest.raises(L.MisconfigurationException, match="steps_per_dispatch"):
        L.Trainer(accelerator="cpu", max_epochs=1, steps_per_dispatch=0)
