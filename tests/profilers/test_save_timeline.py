"""The profiler's timeline shows for how long the devices stand still while a checkpoint is saved."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic as L
from systolic.plugins import AsyncCheckpointIO, CheckpointIO, TorchCheckpointIO
from systolic.profilers import XLAProfiler

WIDTH = 1024
Span = tuple[float, float]


class Wide(L.LightningModule):
    """Steps of some milliseconds, and 50 MB of state, which take many times as long to write."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


def timeline(io: CheckpointIO, path: Path) -> dict[str, list[Span]]:
    """Where in a trace of steps 8 to 39 programs ran, and where the saves after steps 10, 20 and 30 copied and wrote."""
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_steps=40, logger=False, enable_progress_bar=False, enable_model_summary=False,
        plugins=[io], profiler=XLAProfiler(dirpath=path, trace_steps=(8, 39)),
        callbacks=[L.callbacks.ModelCheckpoint(path, every_n_train_steps=10)],
    )  # fmt: skip
    trainer.fit(Wide(), DataLoader(TensorDataset(torch.randn(4 * 40, WIDTH)), batch_size=4))
    (file,) = path.glob("trace/**/perfetto_trace.json.gz")
    spans: dict[str, list[Span]] = {"run": [], "checkpoint: copy": [], "checkpoint: write": []}
    for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]:
        # the CPU's runtime waits in a span of this name for a program that it has begun
        name = "run" if event.get("name") == "ThunkExecutor::Execute (wait for completion)" else event.get("name")
        if name in spans:
            spans[name].append((event["ts"], event["ts"] + event["dur"]))
    return spans


@pytest.mark.parametrize("io", [AsyncCheckpointIO, TorchCheckpointIO])
def test_the_devices_stand_still_for_the_copy_only(io: type[CheckpointIO], tmp_path: Path) -> None:
    spans = timeline(io(), tmp_path)
    copies, writes, begins = spans["checkpoint: copy"], spans["checkpoint: write"], [run[0] for run in spans["run"]]
    assert len(begins) > 20, len(begins)
    assert 2 <= len(writes) <= len(copies) <= 3, (copies, writes)
    ran_meanwhile = [sum(began < at < ended for at in begins) for began, ended in writes]
    assert any(ran_meanwhile) == (io is AsyncCheckpointIO), ran_meanwhile
