"""A training whose state is split over some processes; tells of its end as JSON. It may kill itself while it saves."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import systolic as L
from systolic import distributed
from systolic.callbacks import ModelCheckpoint
from systolic.checkpoint import _sharded
from systolic.plugins import ShardedCheckpointIO, TorchCheckpointIO


class Net(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 64))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return (self.net(batch[0]) - batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 0.01)


def die_in_save(number: int) -> None:
    """End this process without a word in its n-th save, when its shards are written and nothing is committed."""
    write, left = _sharded._orbax.write, [number]

    def write_and_die(*arguments: Any) -> None:
        write(*arguments)
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    _sharded._orbax.write = write_and_die


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kind", choices=["shards", "files"], default="shards")
    parser.add_argument("--strategy", default="fsdp")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--cores", type=int, default=4)
    parser.add_argument("--ckpt-path")
    parser.add_argument("--dies-in-save", type=int)
    options = parser.parse_args()
    if options.cores < 4:
        distributed.join_processes()
    if options.dies_in_save is not None and distributed.process_index() == 1:
        die_in_save(options.dies_in_save)
    L.seed_everything(3)
    data = TensorDataset(torch.randn(64, 64, generator=torch.Generator().manual_seed(1)))
    plugin = ShardedCheckpointIO() if options.kind == "shards" else TorchCheckpointIO()
    trainer = L.Trainer(
        accelerator="cpu", devices=options.cores, strategy=options.strategy, max_epochs=options.epochs, logger=False,
        callbacks=[ModelCheckpoint(options.directory, save_last=True, save_top_k=-1)], plugins=[plugin],
        default_root_dir=options.directory, enable_progress_bar=False, enable_model_summary=False, advice=False,
    )  # fmt: skip
    module = Net()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The dirpath has changed")
        trainer.fit(module, DataLoader(data, batch_size=4, shuffle=True), ckpt_path=options.ckpt_path)
    weights = torch.cat([p.detach().flatten() for p in module.parameters()])
    found = {"process": distributed.process_index(), "steps": trainer.global_step, "weights": weights.tolist()}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
