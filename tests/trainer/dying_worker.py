"""A run one of whose workers dies; the process ends with an error where it does not get one, once, and goes on from its checkpoint.

A process of its own: PyTorch tells of dead workers by a signal, whose handler raises wherever the main thread is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import systolic as L
import systolic.checkpoint
from systolic.callbacks import ModelCheckpoint


class Line(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.layer(batch).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Rows(Dataset[torch.Tensor]):
    """A dataset whose thirty-seventh row meets with something in the worker that reads it."""

    def __init__(self, fate: str = "") -> None:
        self.fate = fate

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 36 and self.fate == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if index == 36 and self.fate == "out of memory":
            raise MemoryError("no room for row 36")
        if index == 36 and self.fate == "exits":
            os._exit(3)
        return torch.full((4,), index / 40)


def main(fate: str, compiled: bool, path: Path) -> None:
    """Train until the worker dies, then from the last checkpoint to the end."""
    options: dict[str, Any] = {
        "accelerator": "cpu", "devices": 1, "enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 4,
        "advice": False, "compile": compiled, "logger": False,
    }  # fmt: skip
    keeps, ended = ModelCheckpoint(path, every_n_train_steps=1, save_last=True), []

    class Ends(L.Callback):
        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            ended.append(exception)

    trainer, caught = L.Trainer(**options, callbacks=[keeps, Ends()]), None
    try:
        trainer.fit(Line(), DataLoader(Rows(fate), batch_size=4, num_workers=2))
    except (RuntimeError, MemoryError) as error:
        caught = error
    subprocess.run(["true"], check=True)  # PyTorch would raise it again with the end of any child
    assert caught is not None, "the run did not end with an error"
    assert ended == [caught], ended
    assert 1 <= trainer.global_step <= 9  # PyTorch tells of a dead worker at once, with batches before it on their way
    assert systolic.checkpoint.load(path / "last.ckpt")["global_step"] in (trainer.global_step - 1, trainer.global_step)
    sys.stdout.write(f"{type(caught).__name__}: {caught}\n")
    finished = L.Trainer(**options, enable_checkpointing=False)
    finished.fit(Line(), DataLoader(Rows(), batch_size=4, num_workers=2), ckpt_path=path / "last.ckpt")
    assert finished.global_step == 40


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "compiled", Path(sys.argv[3]))
