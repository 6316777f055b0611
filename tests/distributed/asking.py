"""Steps that ask which process they are, and batches with names, trained by one of some processes; prints what it holds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from trainer.beside_lightning import module_of, trainer_of

import systolic
from systolic import distributed
from systolic.utilities.rank_zero import rank_zero_only


class Named(Dataset[Any]):
    """Rows with a name, a path in a tuple, and a class."""

    def __len__(self) -> int:
        return 44  # the last of three batches does not divide over eight cores

    def __getitem__(self, index: int) -> Any:
        generator = torch.Generator().manual_seed(index)
        return {"x": torch.randn(4, generator=generator), "y": index % 3, "of": (f"{index}.png", {"name": f"n{index}"})}


class Steps:
    """Methods of the module."""

    def training_step(self: Any, batch: Any, i: int) -> torch.Tensor:
        loss = self.loss((batch["x"], batch["y"]))
        self.seen.append([batch["of"][0][0], len(batch["of"][1]["name"])])
        if self.trainer.is_global_zero:
            self.seen.append(round(loss.item(), 4))
            with open(self.folder / "losses.txt", "a") as file:
                file.write(f"{self.trainer.global_step} {loss:.4f}\n")
            if self.global_rank == 0 and self.local_rank == 0:
                self.log("first", loss, rank_zero_only=True)
        if i == 1:
            self.show(loss)
        self.leave_unless_first(loss)
        return loss

    @rank_zero_only
    def show(self: Any, loss: torch.Tensor) -> None:
        sys.stdout.write(f"shown {loss:.4f}\n")

    def leave_unless_first(self: Any, loss: torch.Tensor) -> None:
        if not self.trainer.strategy.is_global_zero:
            return
        sys.stdout.write(f"left {loss:.4f}\n")

    def validation_step(self: Any, batch: Any, i: int) -> None:
        guesses = self(batch["x"]).argmax(1)
        self.seen.append(list(zip(batch["of"][1]["name"], guesses.tolist(), batch["y"].tolist(), strict=True)))


def main() -> None:
    folder, cores = Path(sys.argv[1]), int(sys.argv[2])
    distributed.join_processes()

    def prepare(module: Any) -> None:
        module.folder = folder

    methods = {name: method for name, method in vars(Steps).items() if not name.startswith("__")}
    module = module_of(systolic, methods, prepare)
    trainer = trainer_of(systolic, max_epochs=2, devices=cores)
    each = 16 // (cores * distributed.process_count())
    trainer.fit(module, DataLoader(Named(), each), DataLoader(Named(), each))
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    weights = [p.detach().double().sum().item() for p in module.parameters()]
    sys.stdout.write(
        json.dumps({"seen": module.seen, "metrics": metrics, "weights": weights, "traces": len(trainer.compiles)}) + "\n"
    )


if __name__ == "__main__":
    main()
