"""A training of one of some processes; tells as JSON what it compiled, read from the cache, and came to."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import jax
import torch
from torch.utils.data import DataLoader

import systolic as L
from systolic import distributed


class Line(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return (self.layer(batch) - batch.sum(1, keepdim=True)).square().mean()

    def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.layer(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.05)


def main(caches: Path, one_for_all: bool) -> None:
    distributed.join_processes()
    own = caches / ("all" if one_for_all else str(distributed.process_index()))
    os.environ["SYSTOLIC_CACHE_DIR"] = str(own)
    events: list[str] = []
    compiler: Any = sys.modules["jax._src.compiler"]
    compile_and_load, compiled = compiler.backend_compile_and_load, []

    def noted(backend: Any, module: Any, *arguments: Any) -> Any:
        compiled.append(str(module.operation.attributes["sym_name"]))
        return compile_and_load(backend, module, *arguments)

    compiler.backend_compile_and_load = noted
    jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
    L.seed_everything(3, verbose=False)
    trainer = L.Trainer(
        accelerator="cpu", devices=2, max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, advice=False, default_root_dir=caches,
    )  # fmt: skip
    module = Line()
    loader = DataLoader(torch.randn(16, 4, generator=torch.Generator().manual_seed(1)), batch_size=2)
    trainer.fit(module, loader)
    trainer.predict(module, loader)  # a program of this process's devices alone
    found = {
        "process": distributed.process_index(),
        "compiled": compiled,
        "hits": events.count("/jax/compilation_cache/cache_hits"),
        "written": len(list(own.rglob("*-cache"))),
        "weights": module.layer.weight.flatten().tolist(),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "shared")
