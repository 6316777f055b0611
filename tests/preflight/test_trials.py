"""Advice that is found by compiling variants of a step with the real TPU compiler."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from preflight.test_advice import Widths, rows
from torch import Tensor, nn
from trainer.runs import trainer

from systolic.preflight import Advice, Comparison, PreflightReport

pytest.importorskip("libtpu")

_GIB = 2**30


class Wide(Widths):
    """Its compilation takes a second; the hidden layer takes 64 KiB a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 16_384), nn.ReLU(), nn.Linear(16_384, 128))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return F.mse_loss(self.net(batch[0]), batch[0].repeat(1, 2))


def advice(report: PreflightReport, topic: str) -> list[Advice]:
    return [one for one in report.advice if one.topic == topic]


@pytest.mark.slow
def test_the_largest_batch_fits_and_the_next_does_not() -> None:
    model, data = Wide(), rows(64)
    report = trainer().preflight(model, data, slice="v5litepod-1", batch_size=400_000)
    assert not report.fits
    assert "exceeds available HBM (15.75G)" in report.refusal
    best, accumulated, narrow, recomputed = advice(report, "memory")
    fitting, refused = (int(one.name.split(" per core")[0]) for one in best.evidence[:2])
    assert 0 < refused - fitting <= fitting / 32
    assert best.text.startswith(f"{fitting} samples per core fit ({fitting} in a step of all cores); {refused} do not")
    # asked again, the compiler says the same
    fits, does_not = trainer().preflight(model, data, slice="v5litepod-1", batch_size=[fitting, refused])
    assert fits.fits
    assert not does_not.fits
    assert (fits.memory.total, does_not.memory.total) == (best.evidence[0].value, best.evidence[1].value)
    assert fits.memory.total < 15.75 * _GIB < does_not.memory.total
    assert "exceeds available HBM (15.75G)" in does_not.refusal
    # and so does it of the other ways out
    times = -(-400_000 // fitting)
    assert f"with {times} times the accumulate_grad_batches" in accumulated.text
    again = trainer(accumulate_grad_batches=times).preflight(model, data, slice="v5litepod-1", batch_size=-(-400_000 // times))
    assert again.fits
    assert again.memory.total == accumulated.evidence[0].value
    half = trainer(precision="bf16-mixed")
    mixed = half.preflight(model, data, slice="v5litepod-1", batch_size=400_000, advise=False)
    assert mixed.memory.total == narrow.evidence[1].value
    assert ("alone does not make" in narrow.text) is not mixed.fits
    assert recomputed.evidence[0].value == report.memory.temporaries


def test_a_model_that_is_too_large_for_any_batch() -> None:
    class Huge(Widths):
        def __init__(self) -> None:
            super().__init__()
            # 16 GiB of address space that nothing touches
            self.table = nn.Parameter(torch.empty(8, 2**29))

        def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
            return batch[0] @ self.table

    report = trainer().preflight(Huge(), rows(8), slice="v5litepod-1", stage="predict")
    assert not report.fits
    assert "Not even one sample per core fits" in advice(report, "memory")[0].text


def test_doubling_the_batch_until_the_data_set_ends() -> None:
    report = trainer().preflight(Widths(64, 64), rows(64), slice="v5litepod-1", advise=True)
    [batch] = advice(report, "batch size")
    tried = [one.name for one in batch.evidence[::2]]
    assert tried == [f"{size} per core: model FLOP utilization" for size in (8, 16, 32, 64)]
    assert "Utilization grows up to 64 samples per core (the data set holds no more" in batch.text
    shares = [one.value for one in batch.evidence[::2]]
    assert shares == sorted(shares)  # type: ignore[type-var]
    [precision] = advice(report, "precision")
    steps = {one.name: one.value for one in precision.evidence}
    assert steps["32-true: step"] == report.time.step  # type: ignore[union-attr]
    faster = steps["bf16-mixed: step"] < steps["32-true: step"]  # type: ignore[operator]
    assert ("times as fast" in precision.text) is faster


def test_trials_leave_the_trainer_as_it_was() -> None:
    mine = trainer(accumulate_grad_batches=3)
    before = dict(vars(mine))
    mine.preflight(Widths(64, 64), rows(64), slice="v5litepod-1", advise=True)
    assert vars(mine) == before


def test_every_slice_with_every_batch() -> None:
    reports = trainer().preflight(Widths(64, 10), rows(64), slice=["v5litepod-1", "v4-8"], batch_size=[8, 16])
    assert [(one.slice.name, one.batch.total) for one in reports] == [
        ("v5litepod-1", 8), ("v5litepod-1", 16), ("v4-8", 32), ("v4-8", 64),
    ]  # fmt: skip
    table = Comparison(reports)
    assert table.header()[:4] == ["slice", "per core", "all cores", "fits"]
    assert [row[:4] for row in table.rows()] == [
        ["v5litepod-1", "8", "8", "yes"], ["v5litepod-1", "16", "16", "yes"],
        ["v4-8", "8", "32", "yes"], ["v4-8", "16", "64", "yes"],
    ]  # fmt: skip
