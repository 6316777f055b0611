"""Host time per step of `fit`, over calling its compiled program in a bare loop."""

from __future__ import annotations

import statistics
import time
from typing import Any

import jax
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic as L


class Deep(L.LightningModule):
    """Many small layers: AdamW keeps four tensors of state for each of their two parameters."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.net = nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(16, 16), nn.ReLU())], nn.Linear(16, 10))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Compare(L.Callback):
    """Times each epoch of fit, then the same program in a bare loop."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.fit_us: list[float] = []
        self.bare_us: list[float] = []
        self.state_tensors = 0

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        self._started = time.perf_counter()

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        engine = next(e for e in trainer.run.engines.values() if e._entries)
        program = engine._entries[0].program
        jax.block_until_ready(program.buffers[0].array)
        self.fit_us.append((time.perf_counter() - self._started) / self.steps * 1e6)
        leaves = [torch.zeros(32, 16).numpy(), torch.zeros(32, dtype=torch.long).numpy()]
        donated, kept, leaves, constants, scalars, outcome, key = program.arguments(leaves, engine.last_numbers)
        started = time.perf_counter()
        with jax.enable_x64(True):
            for _ in range(self.steps):
                donated, _, outcome, key = program.function(donated, kept, leaves, constants, scalars, outcome, key)
        jax.block_until_ready(donated)
        self.bare_us.append((time.perf_counter() - started) / self.steps * 1e6)
        program.keep(donated, outcome, key, [({}, None)] * self.steps)
        self.state_tensors = len(program.captured.slots)


def measure(layers: int, steps: int = 200, rounds: int = 9) -> tuple[int, float, float]:
    """State tensors, and the medians of both times in microseconds."""
    data = TensorDataset(torch.randn(32 * steps, 16), torch.randint(0, 10, (32 * steps,)))
    compare = Compare(steps)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = L.Trainer(accelerator="cpu", devices=1, max_epochs=rounds + 1, callbacks=[compare], **quiet)
    trainer.fit(Deep(layers), DataLoader(data, batch_size=32, shuffle=True))
    return compare.state_tensors, statistics.median(compare.fit_us[1:]), statistics.median(compare.bare_us[1:])
