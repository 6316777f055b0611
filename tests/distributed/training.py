"""Digits, trained by one of some processes: its losses and weights, printed as JSON; files go to the directory it is given."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader

import systolic as L
from systolic import distributed

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from digits import DigitClassifier, loaders


class Losses(L.Callback):
    """Every step's loss."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: object, *_: object) -> None:
        self.values.append(float(trainer.callback_metrics["train_loss"]))


def main() -> None:
    root = Path(sys.argv[1])
    L.seed_everything(0)
    train, validation = loaders(8)
    train = DataLoader(train.dataset, batch_size=8, shuffle=True, drop_last=True)
    losses = Losses()
    trainer = L.Trainer(
        accelerator="cpu",
        devices=4 if len(sys.argv) > 2 else 8,
        max_epochs=2,
        limit_train_batches=8,
        limit_val_batches=5,
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
                "accuracy": float(trainer.callback_metrics["val_acc"]),
                "weights": weights.tolist(),
            }
        )
    )


main()
