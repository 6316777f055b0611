"""A training whose step looks at its labels, in some processes of some cores: its error and weights, printed as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic as L
from systolic import distributed


class Guarded(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(4, 3)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        if (y >= 3).any():
            raise ValueError(f"a label of batch {batch_idx}")
        return F.cross_entropy(self.net(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def main() -> None:
    bad = int(sys.argv[1])
    if len(sys.argv) > 2:
        distributed.join_processes()
    x = torch.randn(12 * 16, 4, generator=torch.Generator().manual_seed(1))
    y = torch.arange(len(x)) % 3
    y[bad * 16 + 9] = 5  # of the second process, where there is one
    module, error = Guarded(), ""
    trainer = L.Trainer(
        accelerator="cpu", devices=8 // distributed.process_count(), max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    try:
        trainer.fit(module, DataLoader(TensorDataset(x, y), batch_size=2))
    except ValueError as raised:
        error = f"{raised}; {raised.__notes__[-1]}"
    weights = module.net.weight.detach().flatten().tolist()
    sys.stdout.write(json.dumps({"devices": trainer.num_devices, "error": error, "weights": weights}) + "\n")


if __name__ == "__main__":
    main()
