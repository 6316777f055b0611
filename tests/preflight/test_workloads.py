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

MULTIPLIED = {"32-true": {"f32"}, "bf16-mixed": {"bf16"}, "bf16-true": {"bf16"}}


def require_sound(report: PreflightReport, precision: str) -> None:
    """It fits, holds no float64, and multiplies what its precision says."""
    assert report.fits
    assert report.time is not None
    assert 0 < report.time.step < 10
    assert not {"f64", "c128"} & set(report.dtypes)
    assert set(report.products) == MULTIPLIED[precision]


# seven compilations, of up to ten minutes on two cores
@pytest.mark.slow
@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize(("name", "precision"), list(itertools.product(WORKLOADS, PRECISIONS)))
def test_every_generation(name: str, precision: str) -> None:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = L.Trainer(accelerator="cpu", max_epochs=1, precision=precision, **quiet)
    module, loader = WORKLOADS[name].make()
    for report in trainer.preflight(module, loader, slice=SLICES):
        require_sound(report, precision)
