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


@pytest.mark.tables
def test_half_precision_halves_the_parameters_and_leaves_the_module_alone() -> None:
    model = Digits()
    report = trainer(precision="bf16-true").preflight(model, loader(), slice="v5litepod-8")
    assert report.memory.parameters == 2 * PARAMETERS
    assert report.memory.batch == 8 * (64 * 2 + 8)
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_unknown_arguments_say_what_is_known() -> None:
    with pytest.raises(ValueError, match="Did you mean 'v5litepod-8'"):
        trainer().preflight(Digits(), loader(), slice="v5lightpod-8")
    with pytest.raises(MisconfigurationException, match="Did you mean 'validate'"):
        trainer().preflight(Digits(), loader(), slice="v5litepod-8", stage="validat")
    with pytest.raises(MisconfigurationException, match="samples per core"):
        trainer().preflight(Digits(), loader(), slice="v5litepod-8", batch_size=0)


@pytest.mark.tables
def test_several_slices_share_a_trace_and_come_in_order() -> None:
    reports = trainer().preflight(Digits(), loader(), slice=["v3-8", "v5litepod-8", "v4-8"])
    assert [report.slice.name for report in reports] == ["v3-8", "v5litepod-8", "v4-8"]
    assert reports[0].compilation.trace == reports[1].compilation.trace
    # four chips of v4 are four devices, each with both of its chip's cores
    assert [report.batch.total for report in reports] == [64, 64, 32]


def test_evaluation_steps_have_no_optimizer() -> None:
    model = Digits()
    validation = trainer().preflight(model, loader(), slice="v5litepod-8", stage="validate")
    prediction = trainer().preflight(model, loader(), slice="v5litepod-8", stage="predict")
    for report in (validation, prediction):
        assert report.fits
        assert report.memory.optimizer_state == 0
        assert report.work is not None
        assert report.work.model_flops == 2 * 8 * (64 * 128 + 128 * 10)
    assert (validation.stage, prediction.stage) == ("validation", "predict")
    assert all(module.training for module in model.modules())


@pytest.mark.tables
def test_the_batch_is_that_of_a_core_however_little_data_there_is() -> None:
    few = trainer().preflight(Digits(), loader(size=8, samples=10), slice="v5litepod-256")
    assert (few.batch.per_core, few.batch.total, few.batch.samples_per_epoch) == (8, 2048, 10)
    more = trainer().preflight(Digits(), loader(), slice="v5litepod-8", batch_size=128)
    assert (more.batch.per_core, more.batch.total) == (128, 1024)
    assert more.memory.batch == 128 * (64 * 4 + 8)


def test_a_batch_that_does_not_fit_is_reported_with_the_compilers_figures() -> None:
    class Wide(Digits):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(64, 4096), nn.ReLU(), nn.Linear(4096, 10))

    report = trainer().preflight(Wide(), loader(), slice="v5litepod-8", batch_size=2**20, advise=False)
    assert not report.fits
    assert "exceeds available HBM (15.75G)" in report.refusal
    assert report.memory.capacity == int(15.75 * 2**30)
    # the hidden layer and its gradient
    assert report.memory.total > 2**20 * 4096 * 4
    assert report.memory.free < 0
    assert report.time is None
    assert report.to_dict()["fits"] is False


@pytest.mark.tables
def test_accumulation_is_reported_with_its_gradients() -> None:
    report = trainer(accumulate_grad_batches=4).preflight(Digits(), loader(), slice="v5litepod-8")
    assert report.memory.other_state >= 4 * PARAMETERS


@pytest.mark.tables
def test_manual_optimization_with_two_optimizers_and_a_datamodule() -> None:
    class Adversaries(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.forger, self.judge = nn.Linear(64, 64), nn.Linear(64, 1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            forged = self.forger(batch[0])
            for optimizer, loss in zip(
                self.optimizers(),
                (self.judge(forged).square().mean(), self.judge(batch[0]).mean() - self.judge(forged.detach()).mean()),
                strict=True,
            ):
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.Adam(self.forger.parameters()), torch.optim.SGD(self.judge.parameters(), lr=0.1, momentum=0.9)]

    class Data(L.LightningDataModule):
        def setup(self, stage: str) -> None:
            assert stage == "fit"

        def train_dataloader(self) -> Any:
            return loader()

    report = trainer().preflight(Adversaries(), datamodule=Data(), slice="v5litepod-8")
    assert report.fits
    assert report.memory.optimizer_state == 4 * (2 * (64 * 64 + 64) + 2) + 4 * 65


@pytest.mark.tables
def test_a_measurement_runs_the_step_and_leaves_the_module_alone() -> None:
    model = Digits()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    report = trainer(devices=2).preflight(model, loader(), slice="v5litepod-8", measure=True)
    assert report.measurement is not None
    assert (report.measurement.platform, report.measurement.devices) == ("cpu", 2)
    assert 0 < report.measurement.step < 10
    assert report.time is not None
    assert report.measurement.ratio == pytest.approx(report.measurement.step / report.time.step)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


@pytest.mark.tables
def test_a_trainer_that_groups_steps_is_looked_at_step_by_step() -> None:
    grouping = trainer(devices=2, steps_per_dispatch=4)
    report = grouping.preflight(Digits(), loader(), slice="v5litepod-8", measure=True)
    assert report.memory == trainer().preflight(Digits(), loader(), slice="v5litepod-8").memory
    assert report.measurement is not None
    assert grouping.steps_per_dispatch == 4


@pytest.mark.tables
def test_a_preflight_forgets_nothing_of_a_run_before_it() -> None:
    model, mine = Digits(), trainer(max_epochs=1)
    mine.fit(model, loader())
    loss, steps = mine.callback_metrics["loss"], mine.global_step
    mine.preflight(model, loader(), slice="v5litepod-8")
    assert (mine.callback_metrics["loss"], mine.global_step) == (loss, steps)
    assert model.net[0].weight.grad is None
    mine.max_epochs = 2
    mine.fit(model, loader())
    assert mine.current_epoch == 2


def test_every_figure_says_how_it_was_obtained() -> None:
    report = trainer().preflight(Digits(), loader(), slice="v5litepod-8")
    figures = report.figures()
    assert all(figure.source and figure.name and figure.group for figure in figures)
    assert {"HBM per core", "prediction", "compilation"} <= {figure.group for figure in figures}


@pytest.mark.tables
def test_the_longest_operations_name_the_users_module_and_line() -> None:
    report = trainer().preflight(Digits(), loader(), slice="v5litepod-8", batch_size=1024)
    modules = {one.module for one in report.operations}
    assert {"backward/model.net.3", "optimizer"} <= modules
    lines = {one.line for one in report.operations if "net" in one.module}
    assert lines == {f"{__file__}:{Digits.training_step.__code__.co_firstlineno + 1}"}


ALL = ("v2-8", "v3-8", "v4-8", "v5litepod-8", "v5p-8", "v6e-8", "tpu7x-8")


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
def test_every_generation_in_every_precision(precision: str) -> None:
    for report in trainer(precision=precision).preflight(Digits(), loader(), slice=ALL):
        assert report.fits
        assert report.time is not None
        assert 0 < report.time.utilization < 1
        assert "f64" not in report.dtypes
        # two layers forward, their weights and the hidden layer backward
        assert report.products == {"f32" if precision == "32-true" else "bf16": 5}


@pytest.mark.slow
def test_more_cores_need_no_more_memory_and_send_no_more() -> None:
    few, many = trainer().preflight(Digits(), loader(), slice=["v3-8", "v3-2048"])
    assert many.batch.total == 256 * few.batch.total
    assert many.memory.total <= few.memory.total * 1.05
    assert sum(one.bytes for one in many.collectives) <= sum(one.bytes for one in few.collectives) * 1.05
