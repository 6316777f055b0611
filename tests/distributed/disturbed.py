"""A training that may kill itself at a moment, and goes on from its last save; process 0 leaves its weights in a file."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import torch
from torch.utils.data import DataLoader, TensorDataset

import systolic as L
from systolic import distributed


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_save(number: int) -> None:
    """In the n-th save of this process: the file is written beside its place, and not put there."""
    replace, left = os.replace, [number]

    def replace_or_die(source: Any, target: Any, **options: Any) -> None:
        if str(target).endswith(".ckpt"):
            left[0] -= 1
            if left[0] == 0:
                die()
        replace(source, target, **options)

    os.replace = replace_or_die


def die_when_connected() -> None:
    """When JAX's service knows this process, and none of ours has told the others anything."""
    initialize = jax.distributed.initialize

    def initialize_and_die(**options: Any) -> None:
        initialize(**options)
        die()

    jax.distributed.initialize = initialize_and_die


class Line(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.dropout = torch.nn.Linear(4, 1), torch.nn.Dropout(0.2)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return (self.layer(self.dropout(batch[0])) - batch[0].sum(1, keepdim=True)).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 0.01)


class Dies(L.Callback):
    """Dies at a moment: between two batches, or by a thread while a step runs; in a save, where another process writes."""

    def __init__(self, moment: str) -> None:
        self.moment = moment

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        time.sleep(0.02)
        if trainer.global_step == 13 and self.moment == "step":
            threading.Timer(0.021, die).start()

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if self.moment == "save" and trainer.global_step == 15 and not trainer.is_global_zero:
            die()


def main(directory: Path, who: int, moment: str) -> None:
    rank = int(os.environ.get("SYSTOLIC_PROCESS", "0"))
    moment = moment if rank == who and not (directory / "died").exists() else "never"
    if moment != "never":
        (directory / "died").touch()
    if moment == "start":
        die()
    if moment == "connection":
        die_when_connected()
    distributed.join_processes()
    if moment == "meeting":
        die()
    if moment == "save" and rank == 0:
        die_in_save(5)
    L.seed_everything(3)
    data = TensorDataset(torch.randn(160, 4, generator=torch.Generator().manual_seed(1)))
    keeps = L.callbacks.ModelCheckpoint(directory / "kept", every_n_train_steps=5, save_last=True)
    trainer = L.Trainer(
        accelerator="cpu", devices=2, max_epochs=3, logger=False, callbacks=[Dies(moment), keeps], advice=False,
        default_root_dir=directory, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    module = Line()
    trainer.fit(module, DataLoader(data, batch_size=2, shuffle=True), ckpt_path="last")
    if trainer.is_global_zero:
        torch.save(module.state_dict(), directory / "end.pt")
    sys.stdout.write(f"steps {trainer.global_step}\n")
    if moment == "end":
        time.sleep(2)  # the other one has come to its end
        die()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
