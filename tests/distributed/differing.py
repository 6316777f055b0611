"""A training in which one process differs from the others, or misbehaves, in one way."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

import systolic as L
from systolic import distributed
from systolic.callbacks import EarlyStopping, ModelCheckpoint, Timer


class Rows(Dataset):
    def __init__(self, count: int, seconds: float = 0.0) -> None:
        self.rows, self.seconds = torch.randn(count, 4, generator=torch.Generator().manual_seed(1)), seconds

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return self.rows[index]


class Stream(IterableDataset):
    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        return iter(self.rows)


class Line(L.LightningModule):
    def __init__(self, act: str, rank: int) -> None:
        super().__init__()
        self.act, self.rank, self.scale = act, rank, 1.0
        self.rng = np.random.default_rng(rank)
        self.layer = torch.nn.Linear(4, 2 if act == "weights" and rank else 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = (self.layer(batch).sum(1, keepdim=True) - batch.sum(1, keepdim=True)).square().mean()
        self.log("loss", loss, on_epoch=True)
        if self.act == "own draws":
            return loss * torch.from_numpy(self.rng.random(1, dtype=np.float32))
        if self.act == "loss":
            return loss * (1.0 + self.rank)
        if self.act == "branch" and self.rank:
            return loss + self.layer.weight.square().mean()
        return loss * self.scale

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val", self.layer(batch).square().mean())

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.act == "late" and batch_idx == 5 and self.rank:
            self.scale = 2.0
        if self.act == "drifting":
            self.scale = 1.0 + batch_idx * (1 + self.rank)
        if self.act in ("reads", "reads alone") and self.rank == 0:
            assert "loss" in self.trainer.callback_metrics
        if self.act == "stops" and self.rank == 1 and batch_idx == 5:
            self.trainer.should_stop = True
        if self.act == "barrier" and self.rank == 0 and batch_idx == 5:
            self.trainer.strategy.barrier("alone")
        if self.act == "syncs" and self.rank == 1 and batch_idx == 5:
            self.scale = 3.0
        if self.act == "leaves" and self.rank == 1 and batch_idx == 5:
            sys.exit(3)
        if self.act in ("syncs", "leaves before a step"):
            assert float(outputs["loss"]) >= 0.0  # waits for the devices before the processes meet

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.act == "leaves before a step" and self.rank == 1 and batch_idx == 5:
            raise OSError("caught below")

    def on_train_epoch_end(self) -> None:
        if self.act in ("plateau", "early"):
            self.log("own", float(self.rank * self.current_epoch))  # of one process: what counts is what the first has

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), 0.05)
        if self.act != "plateau":
            return optimizer
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "own"}}


def loader_of(act: str, rank: int) -> DataLoader[Any]:
    rows = Rows(80).rows
    match act:
        case "length":
            return DataLoader(Rows(80 - 16 * rank), batch_size=2)
        case "slow":
            return DataLoader(Rows(160, 0.02 * (1 + rank)), batch_size=2)
        case "other stream":
            return DataLoader(Stream(rows[rank::2]), batch_size=2)
        case "shorter stream":
            return DataLoader(Stream(rows[: 80 - 40 * rank]), batch_size=2)
    return DataLoader(Rows(80), batch_size=2, shuffle=True)


def main(directory: Path, act: str) -> None:
    distributed.join_processes()
    rank = distributed.process_index()
    L.seed_everything(3 + (rank if act == "seed" else 0))
    if act == "version" and rank:
        torch.__version__ = "1.0"
    module = Line(act, rank)
    callbacks: list[Any] = {
        "early": [EarlyStopping("own", patience=0)],
        "timer": [Timer(duration={"seconds": 2 if rank else 1000})],
        "interval": [ModelCheckpoint(directory, train_time_interval=timedelta(seconds=0.5 + rank))],
    }.get(act, [])
    endless = act in ("timer", "max_time")
    trainer = L.Trainer(
        accelerator="cpu", devices=2, max_epochs=100000 if endless else 3, logger=False, enable_checkpointing=bool(callbacks),
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=directory, callbacks=callbacks,
        gradient_clip_val=1.0 if act == "setting" and rank else None, advice=act == "slow",
        max_time={"seconds": 2} if act == "max_time" else None,
        steps_per_dispatch=2 if act == "reads alone" else 1,
    )  # fmt: skip
    try:
        trainer.fit(module, loader_of(act, rank), DataLoader(Rows(10), batch_size=2))
    except OSError:
        return
    rate = trainer.optimizers[0].param_groups[0]["lr"]
    metrics = {name: round(float(value), 5) for name, value in sorted(trainer.callback_metrics.items())}
    same = distributed.gather("compare", (trainer.global_step, rate, metrics))
    sys.stdout.write(f"ended at {trainer.global_step} {rate} {metrics} {'alike' if same[0] == same[1] else 'not alike'}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
