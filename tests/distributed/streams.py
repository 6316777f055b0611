"""Streams, and what else has no known order, read by one of some processes; losses, sums and predictions as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler, get_worker_info

import systolic as L
from systolic import distributed
from systolic.callbacks import BasePredictionWriter


def samples(count: int) -> torch.Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(1))


class Stream(IterableDataset):
    """Rows, all of them or every so many; its workers share them as PyTorch's documentation has it."""

    def __init__(self, count: int, part: int = 0, parts: int = 1) -> None:
        self.rows, self.part, self.parts = samples(count), part, parts

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        own = self.rows[self.part :: self.parts]
        yield from own[worker::workers]


class Rows(Dataset):
    def __init__(self, count: int) -> None:
        self.rows = samples(count)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index]


class Batches:
    """Global batches, ready-made, of which nobody knows how many there are."""

    def __init__(self, count: int) -> None:
        self.rows = samples(count)

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from self.rows.split(16)


class Line(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.losses: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = (self.layer(batch) - batch.sum(1, keepdim=True)).square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("total", batch.sum(), reduce_fx="sum")
        self.log("mean", batch.square().mean())

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.losses.append(float(self.trainer.callback_metrics["loss"]))

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        return {"y": self.layer(batch), "n": len(batch)}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.05)


class Writes(BasePredictionWriter):
    """Each process writes its own files."""

    def __init__(self, directory: Path, interval: str) -> None:
        super().__init__(interval)
        self.directory = directory

    def write_on_batch_end(
        self, trainer: Any, pl_module: Any, prediction: Any, batch_indices: Any, batch: Any, batch_idx: int, dataloader_idx: int
    ) -> None:
        torch.save((batch_indices, prediction), self.directory / f"{trainer.global_rank}-{batch_idx}.pt")

    def write_on_epoch_end(self, trainer: Any, pl_module: Any, predictions: Any, batch_indices: Any) -> None:
        torch.save((batch_indices, predictions), self.directory / f"{trainer.global_rank}-all.pt")


def loader_of(kind: str, count: int, index: int, processes: int) -> Any:
    match kind:
        case "stream":
            return DataLoader(Stream(count), batch_size=2)
        case "stream of workers":
            return DataLoader(Stream(count), batch_size=2, num_workers=2)
        case "dropping stream":
            return DataLoader(Stream(count), batch_size=2, drop_last=True)
        case "stream of joined batches":
            return DataLoader(Stream(count), batch_size=2, collate_fn=torch.stack)
        case "batches":
            return Batches(count)
        case "batch sampler":
            return DataLoader(Rows(count), batch_sampler=BatchSampler(SequentialSampler(range(count)), 2, False))
        case "dropping":
            return DataLoader(Rows(count), batch_size=2, drop_last=True)
        case "rows":
            return DataLoader(Rows(count), batch_size=2)
        case "large rows":
            return DataLoader(Rows(count), batch_size=1024)
        case "own streams":
            batch_size = 16 // processes
            return DataLoader(Stream(count, index, processes), batch_size=batch_size)
    raise ValueError(kind)


def main(directory: Path, kind: str, count: int, cores: int) -> None:
    distributed.join_processes()
    index, processes = distributed.process_index(), distributed.process_count()
    L.seed_everything(3)
    trainer = L.Trainer(
        accelerator="cpu", devices=cores, max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, advice=False, default_root_dir=directory, use_distributed_sampler=kind != "own streams",
        callbacks=[Writes(directory, "batch_and_epoch")],
    )  # fmt: skip
    module = Line()
    loader = loader_of(kind, count, index, processes)
    trainer.fit(module, loader)
    [values] = trainer.validate(module, loader, verbose=False)
    predictions = trainer.predict(module, loader)
    assert trainer.predict(module, loader, return_predictions=False) is None
    found = {
        "process": index,
        "losses": module.losses,
        **values,
        "weights": module.layer.weight.flatten().tolist(),
        "predictions": [one["y"].flatten().tolist() for one in predictions],
        "sizes": [one["n"] for one in predictions],
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(os.environ["JAX_NUM_CPU_DEVICES"]))
