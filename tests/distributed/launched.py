"""A small training that a pod runs: it may raise, kill itself, or be ended and go on; rank 0 leaves its weights in a file."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import systolic as L


class Line(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.dropout = torch.nn.Linear(4, 1), torch.nn.Dropout(0.2)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return (self.layer(self.dropout(batch[0])) - batch[0].sum(1, keepdim=True)).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 0.01)


class Acts(L.Callback):
    """Does after the tenth batch what it is told."""

    def __init__(self, act: str) -> None:
        self.act = act

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.act == "slow":
            sys.stdout.write(f"batch {batch_idx}\n")
            time.sleep(0.05)
        if batch_idx != 10 or trainer.global_rank != 1:
            return
        if self.act == "raise":
            raise RuntimeError("process one has had enough")
        if self.act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


def main(directory: Path, act: str) -> None:
    L.seed_everything(3)
    data = TensorDataset(torch.randn(400, 4, generator=torch.Generator().manual_seed(1)))
    keeps = L.callbacks.ModelCheckpoint(directory / "kept", save_last=True)
    trainer = L.Trainer(
        accelerator="cpu", devices=2, max_epochs=2, logger=False, callbacks=[Acts(act), keeps],
        default_root_dir=directory,
    )  # fmt: skip
    module = Line()
    trainer.fit(module, DataLoader(data, batch_size=2, shuffle=True), ckpt_path="last")
    if trainer.is_global_zero:
        torch.save(module.state_dict(), directory / "end.pt")
    sys.stdout.write(f"steps {trainer.global_step}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
