"""Cost of saving every ten steps in the background, beyond the copy: runs with and without, interleaved, on the CPU.

python benchmarks/checkpointing.py [--repeats 5] [--steps 100] [--width 512]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic as L
from systolic.callbacks import Callback, ModelCheckpoint
from systolic.plugins import AsyncCheckpointIO, CheckpointIO, TorchCheckpointIO


class Model(L.LightningModule):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(4)))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Forgets(TorchCheckpointIO):
    """The copy to the host only: nothing is written."""

    writes_later = True  # copies, as for the thread

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        del checkpoint


class Clock(Callback):
    """Seconds from the end of the first ten steps, which compile, to the end of the last one."""

    def __init__(self) -> None:
        self.began = self.ended = 0.0

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        float(outputs["loss"])  # host sync: the step is over
        now = time.perf_counter()
        if batch_idx == 9:
            self.began = now
        self.ended = now


def seconds(io: CheckpointIO | None, steps: int, width: int, batch: int) -> float:
    """Seconds for a step."""
    torch.manual_seed(0)
    data = DataLoader(TensorDataset(torch.randn(batch * steps, width)), batch_size=batch)
    clock = Clock()
    with tempfile.TemporaryDirectory() as directory:
        saves = [] if io is None else [ModelCheckpoint(directory, every_n_train_steps=10, save_top_k=1)]
        trainer = L.Trainer(
            accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
            enable_checkpointing=bool(saves), callbacks=[*saves, clock], plugins=None if io is None else [io], advice=False,
        )  # fmt: skip
        trainer.fit(Model(width), data)
    return (clock.ended - clock.began) / (steps - 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=512)
    options = parser.parse_args()
    ways = {"none": lambda: None, "copy": Forgets, "async": AsyncCheckpointIO, "sync": TorchCheckpointIO}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.repeats):
        for name, make in ways.items():
            times[name].append(seconds(make(), options.steps, options.width, options.batch))
    plain = times["none"]
    for name, found in times.items():
        ratio = statistics.median(one / other for one, other in zip(found, plain, strict=True))
        beyond = statistics.median(one / other for one, other in zip(found, times["copy"], strict=True))
        print(
            f"{name:6} {statistics.median(found) * 1e3:8.2f} ms/step   x{ratio:.3f} of none   x{beyond:.3f} of the copy alone"
        )


if __name__ == "__main__":
    main()
