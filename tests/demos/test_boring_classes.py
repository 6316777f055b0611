"""The small modules at Lightning's names train as Lightning's own do."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}


def _fitted(library: str, name: str, rows: str) -> Any:
    root = importlib.import_module(library)
    classes = importlib.import_module(f"{library}.pytorch.demos.boring_classes")
    torch.manual_seed(0)
    model = getattr(classes, name)()
    trainer = root.Trainer(accelerator="cpu", devices=1, max_epochs=2, limit_train_batches=8, limit_val_batches=2, **QUIET)
    if rows == "datamodule":
        trainer.fit(model, datamodule=classes.BoringDataModule())
    elif rows == "own":
        trainer.fit(model)
    else:
        trainer.fit(model, torch.utils.data.DataLoader(getattr(classes, rows)(32, 16), batch_size=2))
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("BoringModel", "own"),
        ("BoringModel", "datamodule"),
        ("ManualOptimBoringModel", "own"),
        ("DemoModel", "RandomDataset"),
        ("DemoModel", "RandomIterableDatasetWithLen"),
    ],
)
def test_trains_as_lightnings(name: str, rows: str) -> None:
    ours, theirs = (_fitted(library, name, rows) for library in ("systolic", "lightning"))
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
