"""Advice, on steps compiled by the real TPU compiler."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from trainer.runs import trainer

import systolic as L
from systolic.preflight import Advice, PreflightReport

pytest.importorskip("libtpu")


class Widths(L.LightningModule):
    """Layers of given sizes."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.net = nn.Sequential(*(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def rows(width: int, classes: int = 2, samples: int = 64) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.rand(samples, width), torch.randint(classes, (samples,))), batch_size=8)


def about(report: PreflightReport, topic: str) -> Advice | None:
    return next((one for one in report.advice if one.topic == topic), None)


def test_sizes_that_do_not_fill_the_matrix_unit_are_named() -> None:
    reports = trainer().preflight(Widths(64, 300, 128), rows(64), slice=["v5litepod-1", "v6e-1"])
    small, large = (about(report, "matrix unit") for report in reports)
    assert small is not None
    assert large is not None
    line = f"{__file__}:{Widths.training_step.__code__.co_firstlineno + 1}"
    assert [(one.name, one.value, one.unit) for one in small.evidence] == [
        (f"model.net.0 ({line}), 64 x 300, padded to 128 x 384: filled", pytest.approx(100 * 64 * 300 / (128 * 384)), "%"),
        ("  as 64 x 256: tiles saved", pytest.approx(100 / 3), "%"),
        (f"model.net.1 ({line}), 300 x 128, padded to 384 x 128: filled", pytest.approx(100 * 300 / 384), "%"),
        ("  as 256 x 128: tiles saved", pytest.approx(100 / 3), "%"),
    ]
    assert {one.name.split("padded to ")[1] for one in large.evidence[::2]} == {"256 x 512: filled", "512 x 256: filled"}
    # idle: (3 * (1 - 0.39) + 3 * (1 - 0.78)) / 6 tiles
    assert "leave 41% of the matrix unit's time" in small.text


def test_sizes_that_fill_it_are_not() -> None:
    assert about(trainer().preflight(Widths(128, 256, 128), rows(128), slice="v5litepod-1"), "matrix unit") is None


def test_a_transposed_convolution_is_a_product_of_channels() -> None:
    class Up(Widths):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Unflatten(1, (4, 4, 4)), nn.ConvTranspose2d(4, 6, 2, stride=2), nn.Flatten())

    advice = about(trainer().preflight(Up(), rows(64), slice="v5litepod-1"), "matrix unit")
    assert advice is not None
    assert "4 x 6, padded to 128 x 128" in advice.evidence[0].name


def test_passes_of_float32_products() -> None:
    def precision(**options: Any) -> Advice | None:
        return about(trainer(**options).preflight(Widths(128, 128), rows(128), slice="v5litepod-1"), "precision")

    exact, usual = precision(matmul_precision="highest"), precision()
    assert exact is not None
    assert usual is not None
    assert [one.value for one in exact.evidence] == [100.0, 6]
    assert [one.value for one in usual.evidence] == [100.0, 1]
    assert precision(precision="bf16-mixed") is None


def test_gathers_that_dominate_name_the_line() -> None:
    class Table(Widths):
        def __init__(self) -> None:
            super().__init__()
            # too large to be brought on chip as a whole
            self.table = nn.Embedding.from_pretrained(torch.zeros(300_000, 256))

        def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
            return self.table(batch[0]).amax(1)

    tokens = DataLoader(TensorDataset(torch.randint(300_000, (64, 512))), batch_size=8)
    advice = about(trainer().preflight(Table(), tokens, slice="v5litepod-1", stage="predict"), "gather and scatter")
    assert advice is not None
    assert any("model.table" in one.name for one in advice.evidence)
    assert sum(one.value for one in advice.evidence) > 10  # type: ignore[misc,arg-type]


def test_a_batch_that_takes_longer_than_the_step() -> None:
    class Mean(Widths):
        def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
            return batch[0].mean(1)

    report = trainer().preflight(Mean(), rows(4096), slice="v5litepod-1", stage="predict", batch_size=1024)
    advice = about(report, "host")
    assert advice is not None
    figures = {one.name: one.value for one in advice.evidence}
    # the labels come along
    assert figures["batch per core"] == 1024 * (4096 * 4 + 8)
    assert figures["time to bring it"] == pytest.approx(1024 * (4096 * 4 + 8) / 16e9)
    assert about(trainer().preflight(Widths(4096, 4096), rows(4096), slice="v5litepod-1"), "host") is None


def test_advice_is_part_of_every_form_of_the_report() -> None:
    report = trainer().preflight(Widths(64, 10), rows(64), slice="v5litepod-1")
    assert {"matrix unit", "precision", "time"} <= {one.topic for one in report.advice}
    assert all(figure.source for one in report.advice for figure in one.evidence)
    assert [one["topic"] for one in report.to_dict()["advice"]] == [one.topic for one in report.advice]
