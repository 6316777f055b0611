"""A training whose loss is not finite in one batch: one of some processes, which go back together; tells of it as JSON."""

from __future__ import annotations

import json
import math
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import systolic as L
from systolic import distributed
from systolic.callbacks import ModelCheckpoint, SpikeDetection
from systolic.plugins import AsyncCheckpointIO


class Line(L.LightningModule):
    """Poisons batch 5 of the second epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.dropout = torch.nn.Linear(4, 1), torch.nn.Dropout(0.2)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = (self.layer(self.dropout(batch[0])) - batch[0].sum(1, keepdim=True)).square().mean()
        self.log("loss", loss, on_epoch=True)
        return loss * math.nan if self.current_epoch == 1 and batch_idx == 5 else loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 0.01)


def main(root: Path, several: bool) -> None:
    if several:
        distributed.join_processes()
    L.seed_everything(3)
    data = TensorDataset(torch.randn(64, 4, generator=torch.Generator().manual_seed(1)))
    spike, keeps = SpikeDetection(action="rewind", rtol=1e9), ModelCheckpoint(root / "kept", every_n_train_steps=3)
    trainer = L.Trainer(
        accelerator="cpu", devices=2 if several else 4, max_epochs=3, logger=False, callbacks=[spike, keeps],
        default_root_dir=root, plugins=[AsyncCheckpointIO()], enable_progress_bar=False, enable_model_summary=False,
        advice=False,
    )  # fmt: skip
    module = Line()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(module, DataLoader(data, batch_size=2, shuffle=True))
    told = [str(warning.message) for warning in caught if "SpikeDetection" in str(warning.message)]
    found = {
        "process": distributed.process_index(),
        "told": len(told),
        "rewinds": spike.rewinds,
        "bad_batches": spike.bad_batches,
        "steps": trainer.global_step,
        "loss": float(trainer.callback_metrics["loss_epoch"]),
        "weights": module.layer.weight.flatten().tolist(),
    }
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), len(sys.argv) > 2)
