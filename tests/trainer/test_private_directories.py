"""Directories that a run makes are for its user only; those that were there stay as they are."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import systolic as L
from systolic.loggers import CSVLogger, TensorBoardLogger


class Tiny(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss = self.layer(batch[0]).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def test_new_directories_are_for_this_user_only(tmp_path: Path) -> None:
    root = tmp_path / "theirs"
    root.mkdir(mode=0o755)
    root.chmod(0o755)
    loggers = [CSVLogger(root / "csv"), TensorBoardLogger(root / "events")]
    data = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=4)
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, logger=loggers, log_every_n_steps=1, default_root_dir=root, profiler="simple",
        callbacks=[L.callbacks.ModelCheckpoint(root / "deep" / "checkpoints")], enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    before = os.umask(0o022)
    try:
        trainer.fit(Tiny(), data)
        trainer.save_checkpoint(root / "saved" / "again.ckpt")
    finally:
        os.umask(before)
    made = [path for path in root.rglob("*") if path.is_dir()]
    assert {"csv", "events", "deep", "checkpoints", "saved"} <= {path.name for path in made}
    assert {path: oct(path.stat().st_mode & 0o777) for path in made} == dict.fromkeys(made, oct(0o700))
    assert root.stat().st_mode & 0o777 == 0o755
