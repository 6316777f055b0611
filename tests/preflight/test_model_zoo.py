"""Every model of the zoo passes the real TPU compiler, and its program holds no float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from model_zoo import CASES, Case
from torch.utils.data import DataLoader, TensorDataset

import systolic as L
from systolic.preflight import PreflightReport

pytest.importorskip("libtpu")

KINDS = ("mlp", "cnn_batch_norm", "VariationalAutoencoder", "LstmClassifier", "hugging_face_gpt2", "hugging_face_bert")
GENERATIONS = ("v2-8", "v3-8", "v4-8", "v5litepod-8", "v5p-8", "v6e-8", "tpu7x-8")


class Zoo(L.LightningModule):
    """A case of the zoo with AdamW."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.model = case.model()
        self.__dict__["case"] = case

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.case.loss(self.model, *batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class OneBatch:
    """No DataLoader: its batch is that of all cores."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Any]:
        yield self.batch


def preflight(name: str, *slices: str, precision: str = "32-true") -> list[PreflightReport]:
    case = CASES[name]
    [batch] = case.batches(1)
    alike = len({len(tensor) for tensor in batch}) == 1
    loader: Any = DataLoader(TensorDataset(*batch), batch_size=len(batch[0])) if alike else OneBatch(batch)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = L.Trainer(accelerator="cpu", max_epochs=1, precision=precision, **quiet)
    return trainer.preflight(Zoo(case), loader, slice=slices)


def require_sound(report: PreflightReport) -> None:
    assert report.fits
    assert report.time is not None
    assert report.time.step > 0
    assert not {"f64", "c128"} & set(report.dtypes)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_model_compiles(name: str) -> None:
    [report] = preflight(name, "v5litepod-8")
    require_sound(report)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_models_on_every_generation(name: str, precision: str) -> None:
    for report in preflight(name, *GENERATIONS, precision=precision):
        require_sound(report)


@pytest.mark.parametrize("name", ["mlp", "cnn_batch_norm"])
def test_half_precision_multiplies_nothing_in_float32(name: str) -> None:
    for precision, wanted in (("32-true", {"f32"}), ("bf16-mixed", {"bf16"}), ("bf16-true", {"bf16"})):
        [report] = preflight(name, "v5litepod-8", precision=precision)
        require_sound(report)
        assert set(report.products) == wanted, precision


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_half_precision_multiplies_nothing_in_float32_in_any_kind_of_model(name: str) -> None:
    for precision in ("bf16-mixed", "bf16-true"):
        [report] = preflight(name, "v5litepod-8", precision=precision)
        assert set(report.products) == {"bf16"}, precision
