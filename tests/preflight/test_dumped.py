"""Programs that libtpu compiles and jaxlib cannot read back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from trainer.runs import trainer

import systolic as L
from systolic.preflight import parse_slice, slice_devices
from systolic.preflight._build import lower
from systolic.preflight._compiled import compile_and_dump
from systolic.preflight._hlo import analyse
from systolic.runtime._compile_cache import cache_suspended
from systolic.trainer.inspection import Subject, trace_step

pytest.importorskip("libtpu")


class Digits(L.LightningModule):
    """As in examples/digits.py."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def rows() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.rand(64, 64), torch.randint(10, (64,))), batch_size=64)


def test_all_reduce_on_the_sparse_core_of_tpu7x() -> None:
    report = trainer().preflight(Digits(), rows(), slice="tpu7x-8")
    assert report.fits
    assert report.time is not None
    assert report.time.cycles > 0
    # all gradients, whether the TensorCore waits for them or not
    parameters = sum(parameter.numel() for parameter in Digits().parameters())
    assert sum(one.bytes for one in report.collectives) >= 4 * parameters
    assert any(one.hidden for one in report.collectives)


@pytest.mark.tables
def test_work_of_the_sparse_core_has_no_estimate() -> None:
    """The compiler gives scatters that it moves there the largest integer as cycles."""

    class Words(Digits):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(256, 64)

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return F.cross_entropy(self.net(self.embedding(batch[0])).flatten(0, 1), batch[0].flatten() % 10)

    tokens = DataLoader(TensorDataset(torch.randint(256, (16, 64))), batch_size=16)
    report = trainer().preflight(Words(), tokens, slice="tpu7x-8")
    assert report.time is not None
    assert report.time.step < 1


def test_the_dump_is_the_text_that_jax_reads() -> None:
    slice = parse_slice("v5litepod-8")
    step = trace_step(Subject.of(trainer(), "fit", Digits(), rows()), slice_devices(slice), None)
    lowered = lower(step, slice)._lowered
    with cache_suspended():  # another test may have switched it on; JAX cannot read programs for devices that are not here
        compiled, text = compile_and_dump(lowered)
    dumped, read = analyse(text), analyse(compiled.as_text())
    assert dumped.operations == read.operations
    assert (dumped.collectives, dumped.dtypes) == (read.collectives, read.dtypes)
