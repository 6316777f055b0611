"""Estimate accuracy by k-fold cross-validation on scikit-learn's handwritten digits: a model and a Trainer for each fold.

$ python examples/kfold.py --accelerator cpu --devices 8
fold 0: accuracy 0.961, programs compiled: 2
fold 1: accuracy 0.944, programs compiled: 2
fold 2: accuracy 0.967, programs compiled: 2
fold 3: accuracy 0.964, programs compiled: 2
fold 4: accuracy 0.967, programs compiled: 2
5 folds: 0.960 +- 0.009
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import systolic as L


class Digits(L.LightningModule):
    """A multilayer perceptron with dropout."""

    def __init__(self, hidden: int = 128, lr: float = 3e-3) -> None:
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, 10))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        images, labels = batch
        return F.cross_entropy(self.net(images), labels)

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        images, labels = batch
        self.log("val_acc", (self.net(images).argmax(1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--batch-size", type=int, default=8, help="images per core")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--folds", type=int, default=5)
    options = parser.parse_args(words)
    digits = load_digits()
    data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target))
    scores = []
    splits = StratifiedKFold(options.folds, shuffle=True, random_state=0).split(digits.data, digits.target)
    for fold, (train, held_out) in enumerate(splits):
        L.seed_everything(fold, verbose=False)
        trainer = L.Trainer(
            accelerator=options.accelerator,
            devices=options.devices,
            max_epochs=options.epochs,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        # the last batch is left out: folds differ by an image, and another size would be another program
        loader = DataLoader(Subset(data, train), batch_size=options.batch_size, shuffle=True, drop_last=True)
        model = Digits()
        trainer.fit(model, loader)
        trainer.validate(model, DataLoader(Subset(data, held_out), batch_size=options.batch_size), verbose=False)
        scores.append(trainer.callback_metrics["val_acc"].item())
        compiled = [c for c in trainer.compiles if c.is_new_executable]
        print(f"fold {fold}: accuracy {scores[-1]:.3f}, programs compiled: {len(compiled)}")
    print(f"{options.folds} folds: {statistics.mean(scores):.3f} +- {statistics.stdev(scores):.3f}")


if __name__ == "__main__":
    main()
