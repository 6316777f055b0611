"""Bars of a run that resumes in the middle of an epoch begin where the run does."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from callbacks.test_tqdm_progress import screens
from trainer.three_ways import loader, regression

import systolic as L
from systolic.callbacks import ModelCheckpoint, ProgressBar, RichProgressBar, TQDMProgressBar


def count(bar: ProgressBar) -> float:
    """Batches of the epoch that the bar shows as done."""
    if isinstance(bar, TQDMProgressBar):
        return bar.train_progress_bar.n
    assert isinstance(bar, RichProgressBar)
    assert bar.progress is not None
    return bar.progress.tasks[0].completed


class Watch(L.Callback):
    """Notes how many batches the bar has counted after each one, and gives it the time to draw itself."""

    def __init__(self, bar: ProgressBar) -> None:
        self.bar, self.seen = bar, []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        time.sleep(0.3)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step > 3:
            self.seen.append((batch_idx, count(self.bar)))


@pytest.mark.parametrize("kind", [TQDMProgressBar, RichProgressBar])
def test_it_goes_on_at_the_batch_of_the_checkpoint(
    kind: type[ProgressBar], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {
        "accelerator": "cpu", "devices": 1, "compile": False, "logger": False, "enable_model_summary": False, "max_epochs": 2,
        "advice": False,
    }  # fmt: skip
    saves = ModelCheckpoint(tmp_path, every_n_train_steps=3, save_top_k=-1)
    L.Trainer(**options, callbacks=[saves], enable_progress_bar=False).fit(regression(L.LightningModule)(), loader())
    bar = kind()
    watch = Watch(bar)
    trainer = L.Trainer(**options, callbacks=[bar, watch], enable_checkpointing=False)
    capsys.readouterr()
    trainer.fit(regression(L.LightningModule)(), loader(), ckpt_path=tmp_path / "epoch=0-step=3.ckpt")
    assert watch.seen == [(index, index) for index in (4, 0, 1, 2, 3, 4)], watch.seen
    if kind is TQDMProgressBar:
        shown = screens(capsys.readouterr().out)
        assert ("Epoch 0", "4/5") in shown, shown
        assert not shown & {("Epoch 0", "1/5"), ("Epoch 0", "2/5")}, shown
