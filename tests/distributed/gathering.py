"""State that is split over some processes and saved as one file: tells as JSON how much memory of each host the save took."""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import systolic as L
from systolic import distributed

WIDTH, LAYERS = 1024, 16


class Wide(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x = batch[0]
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x.square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01, momentum=0.9)


def status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


class Saves(L.Callback):
    def __init__(self, directory: Path) -> None:
        self.directory, self.grown = directory, -1

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        trainer.save_checkpoint(self.directory / "warm.ckpt")  # what a first save imports and compiles stays
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # else the memory of the first save would be there for the second
        before = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts here
        trainer.save_checkpoint(self.directory / "end.ckpt")
        self.grown = status("VmHWM") - before


def main(directory: Path) -> None:
    distributed.join_processes()
    L.seed_everything(3, verbose=False)
    saves = Saves(directory)
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="fsdp", max_epochs=1, logger=False, callbacks=[saves], advice=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=directory,
    )  # fmt: skip
    trainer.fit(Wide(), DataLoader(TensorDataset(torch.randn(16, WIDTH)), batch_size=4))
    state = 2 * LAYERS * WIDTH * WIDTH * 4
    sys.stdout.write(json.dumps({"process": distributed.process_index(), "share": saves.grown / state}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
