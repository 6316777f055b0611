"""Digits, trained by one of some processes: its losses and weights, printed as JSON; files go to the directory it is given."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

import systolic as L
from systolic import distributed

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from digits import DigitClassifier, loaders


class Read(Dataset):
    """The digits, and which of them this process read."""

    def __init__(self, digits: Dataset) -> None:
        self.digits = digits
        self.indices: list[int] = []

    def __len__(self) -> int:
        return len(self.digits)

    def __getitem__(self, index: int) -> object:
        self.indices.append(index)
        return self.digits[index]


class Losses(L.Callback):
    """Every step's loss."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.rows: list[int] = []

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        self.values.append(float(trainer.callback_metrics["train_loss"]))
        self.rows.append(len(batch[1]))
        pl_module.log("rows", float(batch_idx), on_step=False, on_epoch=True)


def main() -> None:
    root = Path(sys.argv[1])
    several = len(sys.argv) > 2
    if several:
        distributed.join_processes()
    # what the first process draws counts: orders and initial weights
    torch.manual_seed(distributed.process_index())
    train, validation = loaders(8)
    data = Read(train.dataset)
    train = DataLoader(data, batch_size=8, shuffle=True)  # 22 batches of 64, and one of 30, which eight cores cannot share
    losses = Losses()
    trainer = L.Trainer(
        accelerator="cpu",
        devices=4 if several else 8,
        max_epochs=2,
        default_root_dir=root,
        callbacks=[losses],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = DigitClassifier()
    trainer.fit(module, train, validation)
    own, strategy = distributed.process_index(), trainer.strategy
    strategy.barrier("after fit")
    weights = torch.cat([p.detach().flatten() for p in module.parameters()])
    print(  # noqa: T201
        json.dumps(
            {
                "process": own,
                "agreed": [strategy.reduce_boolean_decision(own == 1, all=all) for all in (True, False)],
                "sent": [strategy.broadcast({"from": own}), strategy.broadcast(own, src=strategy.num_processes - 1)],
                "devices": trainer.num_devices,
                "losses": losses.values,
                "rows": losses.rows,
                "mean_batch": float(trainer.callback_metrics["rows"]),
                "read": data.indices,
                "accuracy": float(trainer.callback_metrics["val_acc"]),
                "weights": weights.tolist(),
            }
        )
    )


main()
