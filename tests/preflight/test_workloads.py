"""Common models at their usual sizes pass the real TPU compiler; docs/tpu-models.md has what it says about them."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

import systolic as L
from systolic.preflight import PreflightReport

pytest.importorskip("libtpu")
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from tpu_workloads import PRECISIONS, SLICES, WORKLOADS  # noqa: E402

CHEAP = [name for name, workload in WORKLOADS.items() if not workload.costly]
COSTLY = [name for name, workload in WORKLOADS.items() if workload.costly]
MULTIPLIED = {"32-true": {"f32"}, "bf16-mixed": {"bf16"}, "bf16-true": {"bf16"}}


def require_sound(report: PreflightReport, precision: str) -> None:
    """It fits, holds no float64, and multiplies what its precision says."""
    assert report.fits
    assert report.time is not None
    assert 0 < report.time.step < 10
    assert not {"f64", "c128"} & set(report.dtypes)
    assert set(report.products) == MULTIPLIED[precision]


def preflight(name: str, precision: str, *slices: str) -> list[PreflightReport]:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = L.Trainer(accelerator="cpu", max_epochs=1, precision=precision, **quiet)
    module, loader = WORKLOADS[name].make()
    return trainer.preflight(module, loader, slice=slices)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "precision"), list(itertools.product(CHEAP, PRECISIONS)))
def test_cheap_models_on_every_generation(name: str, precision: str) -> None:
    for report in preflight(name, precision, *SLICES):
        require_sound(report, precision)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("slice", SLICES)
@pytest.mark.parametrize("name", COSTLY)
def test_costly_models_on_every_generation(name: str, slice: str) -> None:
    [report] = preflight(name, "bf16-mixed", slice)
    require_sound(report, "bf16-mixed")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "precision"), list(itertools.product(COSTLY, ("32-true", "bf16-true"))))
def test_costly_models_in_other_precisions(name: str, precision: str) -> None:
    [report] = preflight(name, precision, "v5litepod-8")
    require_sound(report, precision)
