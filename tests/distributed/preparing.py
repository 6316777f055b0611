"""`prepare_data` of datamodule and module in processes on some hosts: who called it, told as JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

import systolic as L
from systolic import distributed


class Data(L.LightningDataModule):
    def __init__(self, root: Path, per_node: bool, processes: int) -> None:
        super().__init__()
        self.root, self.prepare_data_per_node, self.processes = root, per_node, processes

    def prepare_data(self) -> None:
        assert not (self.root / "under way").exists(), "two at once"
        (self.root / "under way").touch()
        time.sleep(0.5)
        (self.root / f"data {self.trainer.global_rank}").touch()
        (self.root / "under way").unlink()

    def setup(self, stage: str) -> None:
        assert any(self.root.glob("data *")), "prepared before"

    def train_dataloader(self) -> Any:
        return DataLoader(torch.ones(8, 2), batch_size=2)


class Line(L.LightningModule):
    def __init__(self, root: Path, per_node: bool) -> None:
        super().__init__()
        self.root, self.layer, self.prepare_data_per_node = root, torch.nn.Linear(2, 1), per_node

    def prepare_data(self) -> None:
        (self.root / f"module {self.trainer.global_rank}").touch()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.layer(batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.05)


def main(root: Path, per_node: bool, num_nodes: int | None) -> None:
    distributed.join_processes()
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=root, num_nodes=num_nodes, advice=False,
    )  # fmt: skip
    trainer.fit(Line(root, per_node), datamodule=Data(root, per_node, distributed.process_count()))
    place = [trainer.global_rank, trainer.node_rank, trainer.local_rank, trainer.num_nodes, trainer.world_size]
    sys.stdout.write(json.dumps({"place": place}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "per node", int(sys.argv[3]) or None)
