"""Every mistake gets an error that says what was expected, what was received, and what to do."""

from __future__ import annotations

import re
import traceback
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from trainer.three_ways import QUIET, loader, quiet_trainer, regression, samples

import systolic as L


def module(**methods: Any) -> Any:
    return regression(L.LightningModule, **methods)()


def step(function: Any) -> Any:
    """A training_step that returns what `function` makes of the module and the batch."""
    return lambda self, batch, batch_idx: function(self, batch)


BOTH = pytest.mark.parametrize("compile", [True, False])


# ---- data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: DataLoader(samples(0), batch_size=4), "`train_dataloaders` has no batch.*0 samples"),
        (lambda: [], "`train_dataloaders` has no batch"),
        (lambda: DataLoader(samples(3), batch_size=4, drop_last=True), "fewer than one global batch.*drop_last=True"),
        (lambda: None, "No training data: pass `train_dataloaders`"),
        (lambda: 7, "not iterable.*7 of type int"),
    ],
)
def test_loader(data: Any, message: str) -> None:
    with pytest.raises(L.MisconfigurationException, match=message):
        quiet_trainer(compile=False).fit(module(), data())


def test_iterable_that_turns_out_empty() -> None:
    class Nothing:
        def __iter__(self) -> Any:
            return iter([])

    with pytest.raises(L.MisconfigurationException, match="has no batch.*Nothing yields none"):
        quiet_trainer(compile=False).fit(module(), Nothing())


def test_no_validation_data() -> None:
    with pytest.raises(L.MisconfigurationException, match=r"No data: pass loaders.*`val_dataloader\(\)`"):
        quiet_trainer(compile=False).validate(module(validation_step=lambda self, batch: None))


@BOTH
def test_batch_of_the_wrong_shape_names_the_users_line(compile: bool) -> None:
    data = DataLoader(TensorDataset(torch.randn(8, 5), torch.randn(8, 1)), batch_size=4)
    with pytest.raises(RuntimeError, match=r"(?i)(mat1|shape|size|contract).*4.*5|5.*4") as caught:
        quiet_trainer(compile=compile).fit(module(), data)
    lines = [f.line for f in traceback.extract_tb(caught.value.__traceback__) if f.filename.endswith("three_ways.py")]
    assert "return self.second(torch.tanh(self.first(x)))" in lines


# ---- modules


def test_no_training_step() -> None:
    class Empty(L.LightningModule):
        def configure_optimizers(self) -> Any:
            return None

    with pytest.raises(L.MisconfigurationException, match=r"No `training_step\(\)` method defined: Empty"):
        quiet_trainer().fit(Empty(), loader())


def test_no_configure_optimizers() -> None:
    class Empty(L.LightningModule):
        def training_step(self, batch: Any) -> Any:
            return None

    with pytest.raises(L.MisconfigurationException, match=r"No `configure_optimizers\(\)` method defined: Empty"):
        quiet_trainer().fit(Empty(), loader())


@pytest.mark.parametrize("stage", ["validation", "test"])
def test_no_evaluation_step(stage: str) -> None:
    call = {"validation": "validate", "test": "test"}[stage]
    with pytest.raises(L.MisconfigurationException, match=rf"No `{stage}_step\(\)` method defined"):
        getattr(quiet_trainer(), call)(module(), loader())


@pytest.mark.parametrize("model", [torch.nn.Linear(1, 1), None, 3, L.LightningModule])
def test_no_module(model: Any) -> None:
    with pytest.raises(TypeError, match="`model` must be a `LightningModule` of systolic or of Lightning, got"):
        quiet_trainer().fit(model, loader())


def test_validate_without_a_module() -> None:
    with pytest.raises(TypeError, match="requires a `LightningModule`"):
        quiet_trainer().validate()


def test_optimizer_of_another_module() -> None:
    other = torch.nn.Linear(3, 2)
    model = module(configure_optimizers=lambda self: torch.optim.SGD(other.parameters(), lr=0.1))
    with pytest.raises(L.MisconfigurationException, match=r"SGD holds 2 parameter\(s\) that do not belong.*\(2, 3\)"):
        quiet_trainer().fit(model, loader())


# ---- losses


@BOTH
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda self, batch: self(batch[0]), r"loss with one element. Received: shape \(4, 1\).*loss.mean\(\)"),
        (lambda self, batch: self.loss(batch).detach(), "does not depend on any parameter"),
        (lambda self, batch: batch[0].mean(), "does not depend on any parameter"),
        (lambda self, batch: 3.0, "must return a Tensor, a dict, or None.*Received: float"),
        (lambda self, batch: (self.loss(batch), 1), "must return a Tensor, a dict, or None.*Received: tuple"),
        (lambda self, batch: {"los": self.loss(batch)}, r"'loss' key.*a dict with the keys \['los'\]"),
        (lambda self, batch: {"loss": 1}, r"a dict with the keys \['loss'\]"),
    ],
)
def test_loss(function: Any, message: str, compile: bool) -> None:
    with pytest.raises(L.MisconfigurationException, match=message):
        quiet_trainer(compile=compile).fit(module(training_step=step(function)), loader())


@BOTH
def test_loss_that_is_not_finite(compile: bool) -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        return torch.log(-loss) if batch_idx == 3 else loss

    model = module(training_step=training_step)
    with pytest.raises(FloatingPointError, match=r"(?s)loss.*nan.*batch_idx 3.*epoch 0.*global step 3"):
        quiet_trainer(compile=compile, detect_anomaly=True).fit(model, loader())
    quiet_trainer(compile=compile).fit(module(training_step=training_step), loader())


@BOTH
def test_gradient_that_is_not_finite(compile: bool) -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        return self.loss(batch) + (self.second.bias * 0).sqrt().sum()

    with pytest.raises(FloatingPointError, match=r"Gradients.*second\.bias"):
        quiet_trainer(compile=compile, detect_anomaly=True).fit(module(training_step=training_step), loader())


def test_detect_anomaly_changes_no_number() -> None:
    plain, watched = module(), module()
    watched.load_state_dict(plain.state_dict())
    quiet_trainer().fit(plain, loader())
    quiet_trainer(detect_anomaly=True).fit(watched, loader())
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        torch.testing.assert_close(one, other)


# ---- arguments of the Trainer


def trainer(**options: Any) -> L.Trainer:
    return L.Trainer(**{"max_epochs": 1, "accelerator": "cpu", **QUIET, **options})


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ([1, 8], r"index 8 does not exist. Received: \[1, 8\].*8 cpu device\(s\)|\[1, 8\].*9 simulated.*with 8"),
        ([9], r"\[9\].*with 8"),
        ([-1], r"indices are integers from 0. Received: \[-1\]"),
        ("9,", r"'9,'.*with 8"),
        (0, "at least one device is needed. Received: 0"),
        (9, "devices=9 asks for 9 simulated CPU cores.*with 8"),
        ("abc", "'abc' is not a number"),
        (True, "a bool is neither a count nor an index. Received: True"),
        (-2, "at least one device"),
        ([], "the list is empty"),
        ([0, 0], "an index is repeated"),
        (1.5, "expected an integer, a list of indices, or a string. Received: 1.5"),
        (None, "expected an integer.*Received: None"),
    ],
)
def test_devices(request_: Any, message: str) -> None:
    with pytest.raises(L.MisconfigurationException, match=message):
        trainer(devices=request_)


def test_unknown_accelerator() -> None:
    with pytest.raises(L.MisconfigurationException, match="`accelerator`. Expected one of 'auto', 'tpu'.*Did you mean 'tpu'"):
        trainer(accelerator="tpuu")


def test_no_tpu() -> None:
    with pytest.raises(L.MisconfigurationException, match="^No TPU devices were found.*/dev/accel.*") as caught:
        trainer(accelerator="tpu")
    for way in ("fix the environment", "accelerator='cpu', devices=8", "preflight"):
        assert way in str(caught.value)


def test_unknown_argument() -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument .max_epoch.\. Did you mean 'max_epochs'\?"):
        trainer(max_epoch=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "dpp"}, "`strategy`.*'dpp'.*Did you mean 'ddp'"),
        ({"precision": "bf16-mixd"}, "`precision`.*Did you mean 'bf16-mixed'"),
        ({"gradient_clip_val": -1}, "`gradient_clip_val`.*number >= 0. Received: -1"),
        ({"gradient_clip_val": "1"}, "`gradient_clip_val`.*'1'"),
        ({"gradient_clip_algorithm": "nrm"}, "`gradient_clip_algorithm`.*'norm' or 'value'.*Did you mean 'norm'"),
        ({"max_steps": -2}, "`max_steps`.*-2"),
        ({"max_steps": 1.5}, "`max_steps`.*1.5"),
        ({"max_epochs": -2}, "`max_epochs`.*-1.*Received: -2"),
        ({"max_epochs": 1.5}, "`max_epochs`.*Received: 1.5"),
        ({"min_epochs": -1}, "`min_epochs`.*Received: -1"),
        ({"min_steps": "3"}, "`min_steps`.*Received: '3'"),
        ({"max_time": "12 hours"}, "`max_time`.*'12 hours'"),
        ({"max_time": {"hour": 1}}, "`max_time`.*hour"),
        ({"log_every_n_steps": -1}, "`log_every_n_steps`.*-1"),
        ({"limit_train_batches": -1}, "`limit_train_batches`.*-1"),
        ({"limit_val_batches": 1.5}, "`limit_val_batches`.*1.5"),
        ({"limit_test_batches": "all"}, "`limit_test_batches`.*'all'"),
        ({"limit_predict_batches": -0.5}, "`limit_predict_batches`.*-0.5"),
        ({"num_sanity_val_steps": -2}, "`num_sanity_val_steps`.*-1.*Received: -2"),
        ({"val_check_interval": 1.5}, "`val_check_interval`.*1.5"),
        ({"val_check_interval": 0}, "`val_check_interval`.*0"),
        ({"val_check_interval": 0.5, "check_val_every_n_epoch": None}, "`val_check_interval`.*check_val_every_n_epoch=None"),
        ({"check_val_every_n_epoch": 0}, "`check_val_every_n_epoch`.*Received: 0"),
        ({"prefetch_batches": -1}, "`prefetch_batches`.*Received: -1"),
        ({"fast_dev_run": -1}, "`fast_dev_run`.*Received: -1"),
        ({"callbacks": [3]}, "`callbacks` expects objects of systolic.Callback.*Received: 3"),
        ({"callbacks": L.Callback}, "`callbacks` expects objects"),
        ({"callbacks": 3}, "`callbacks` expects objects.*3"),
        ({"logger": 3}, "int cannot be used as a logger"),
        ({"logger": [3]}, "int cannot be used as a logger"),
        ({"enable_checkpointing": False, "callbacks": L.callbacks.ModelCheckpoint()}, "enable_checkpointing=False"),
    ],
    ids=lambda value: str(value).partition(" object at ")[0],  # an address would differ between test processes
)
def test_argument(options: dict[str, Any], message: str) -> None:
    with pytest.raises((L.MisconfigurationException, TypeError), match=message):
        trainer(**options)


def test_callback_that_is_none() -> None:
    with pytest.raises(L.MisconfigurationException, match="objects of systolic.Callback, or of Lightning's. Received: 3"):
        trainer(callbacks=[3])


def test_validation_interval_longer_than_the_epoch() -> None:
    model = module(validation_step=lambda self, batch: None)
    message = re.escape("`val_check_interval` (9) must be less than or equal to the number of the training batches (5)")
    with pytest.raises(ValueError, match=message):
        quiet_trainer(compile=False, val_check_interval=9).fit(model, loader(), loader())
