"""`Trainer.preflight` on real steps, compiled by the real TPU compiler."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainer.runs import trainer

import systolic as L
from systolic.exceptions import MisconfigurationException

pytest.importorskip("libtpu")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "programs"))


class Digits(L.LightningModule):
    """Two layers, with everything that a step may have: dropout, momentum, logging, a validation step."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", F.cross_entropy(self.net(batch[0]), batch[1]))

    def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.net(batch[0]).argmax(1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def loader(size: int = 8, samples: int = 100) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.rand(samples, 64), torch.randint(10, (samples,))), batch_size=size)


PARAMETERS = 64 * 128 + 128 + 128 * 10 + 10


def test_the_training_step_of_a_slice() -> None:
    model = Digits()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    report = trainer().preflight(model, loader(), slice="v5litepod-8")
    assert report.fits
    assert (report.slice.cores, report.batch.total, report.batch.per_core) == (8, 64, 8)
    assert report.parameters == PARAMETERS
    assert report.memory.parameters == 4 * PARAMETERS
    # two moments and a count for each of the four parameters: the step that repeats, not the first one
    assert report.memory.optimizer_state == 2 * 4 * PARAMETERS + 4 * 4
    assert report.memory.batch == 8 * (64 * 4 + 8)
    assert 0 < report.memory.total < report.memory.capacity
    # forward, and backward to the weights and to the hidden layer
    assert report.work is not None
    assert report.work.model_flops == 2 * 8 * (2 * 64 * 128 + 3 * 128 * 10)
    assert [one.kind for one in report.collectives] == ["all-reduce"]
    assert report.collectives[0].bytes >= 4 * PARAMETERS
    assert report.time is not None
    assert report.time.cycles > 1000
    assert report.time.samples_per_second == pytest.approx(64 / report.time.step)
    assert {name: value.equal(before[name]) for name, value in model.state_dict().items()} == dict.fromkeys(before, True)
    assert all(type(p) is nn.Parameter and p.grad is None for p in model.parameters())


def test_no_float64_reaches_the_compiler() -> None:
    report = trainer().preflight(Digits(), loader(), slice="v5litepod-8")
    assert "f64" not in report.dtypes
    assert "c128" not in report.dtypes


def test_half_precision_halves_the_parameters_and_leaves_the_module_alone() -> None:
    model = Digits()
    report = trainer(precision="bf16-true").preflight(model, loader(), slice="v5litepod-8")
    assert report.memory.parameters == 2 * PARAMETERS
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_unknown_arguments_say_what_is_known() -> None:
    with pytest.raises(ValueError, match="Did you mean 'v5litepod-8'"):
        trainer().preflight(Digits(), loader(), slice="v5lightpod-8")
    with pytest.raises(MisconfigurationException, match="Did you mean 'validate'"):
        trainer().preflight(Digits(), loader(), slice="v5litepod-8", stage="validat")
    with pytest.raises(MisconfigurationException, match="samples per core"):
        trainer().preflight(Digits(), loader(), slice="v5litepod-8", batch_size=0)
