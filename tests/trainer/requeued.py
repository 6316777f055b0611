"""A job of SLURM's that gets its signal in the middle of an epoch; with systolic or with Lightning."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

L: Any = import_module(sys.argv[1])


class Line(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return (self.layer(batch[0]) - batch[0].sum(1, keepdim=True)).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 0.01)


class Warned(L.Callback):
    """SLURM sends its signal in the fifth step of the first start."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        sys.stdout.write(f"begins at {trainer.global_step}\n")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == 5:
            os.kill(os.getpid(), signal.SIGUSR1)


def main(directory: Path, ckpt_path: str | None) -> None:
    torch.manual_seed(3)
    data = TensorDataset(torch.randn(40, 4, generator=torch.Generator().manual_seed(1)))
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_epochs=2, logger=False, callbacks=[Warned()], default_root_dir=directory,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    module = Line()
    trainer.fit(module, DataLoader(data, batch_size=10), ckpt_path=ckpt_path)
    torch.save(module.state_dict(), directory / "end.pt")
    sys.stdout.write(f"ends at {trainer.global_step}\n")


if __name__ == "__main__":
    main(Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
