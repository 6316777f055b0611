"""A training of a module that is made on the meta device or the CPU, with state split over processes; tells of it as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch.utils.data import DataLoader

import systolic as L
from systolic import distributed


class Net(L.LightningModule):
    def __init__(self, device: str) -> None:
        super().__init__()
        self.made_on = device
        self.losses: list[float] = []
        self.on_host = 0

    def configure_model(self) -> None:
        with torch.device(self.made_on):
            self.net = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 64))

    def on_fit_start(self) -> None:
        self.on_host = sum(p.nbytes for p in self.parameters() if type(p) is torch.nn.Parameter)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return (self.net(batch) - batch).square().mean()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.losses.append(float(outputs["loss"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 0.01)


def main() -> None:
    device, strategy, cores = sys.argv[1], sys.argv[2], int(sys.argv[3])
    distributed.join_processes()
    rows = torch.randn(128, 64, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(5 + distributed.process_index())  # the first process's numbers are taken
    model = Net(device)
    trainer = L.Trainer(
        accelerator="cpu", devices=cores, strategy=strategy, max_epochs=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, advice=False,
    )  # fmt: skip
    trainer.fit(model, DataLoader(rows, batch_size=2))
    weights = [float(p.double().sum()) for p in model.parameters()]
    sys.stdout.write(json.dumps({"losses": model.losses, "weights": weights, "on_host": model.on_host}) + "\n")


if __name__ == "__main__":
    main()
