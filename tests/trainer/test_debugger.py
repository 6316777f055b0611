"""`Trainer(compile=False)`: ordinary PyTorch, with a debugger."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from trainer.three_ways import loader, quiet_trainer, regression

import systolic as L
from systolic.runtime._device_tensor import DeviceTensor


def test_breakpoint_sees_values(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def hook() -> None:
        frame = sys._getframe(1)
        seen.append(frame.f_locals["loss"].item())
        assert type(frame.f_locals["batch"][0]) is torch.Tensor
        assert frame.f_code.co_name == "training_step"

    monkeypatch.setattr(sys, "breakpointhook", hook)
    outputs: list[float] = []

    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        breakpoint()  # noqa: T100
        return loss

    def on_train_batch_end(self: Any, out: Any, batch: Any, batch_idx: int) -> None:
        outputs.append(out["loss"].item())

    methods = {"training_step": training_step, "on_train_batch_end": on_train_batch_end}
    quiet_trainer(compile=False).fit(regression(L.LightningModule, **methods)(), loader())
    assert seen == outputs
    assert len(seen) == 5


def test_python_decisions_on_values() -> None:
    taken: list[bool] = []

    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        taken.append(bool(loss > 1))
        return 0.5 * loss if loss > 1 else loss

    module = regression(L.LightningModule, training_step=training_step)()
    quiet_trainer(compile=False, max_epochs=2).fit(module, loader())
    assert len(taken) == 10
    assert set(taken) == {True, False}


def test_a_text_of_a_value_names_the_line_when_compiled() -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        return loss * float("%.1f" % loss.detach())  # noqa: UP031

    module = regression(L.LightningModule, training_step=training_step)()
    with pytest.raises(L.DataDependentError, match=r"(?s)test_debugger.py:\d+ in training_step.*compile=False"):
        quiet_trainer().fit(module, loader())


def test_tensors_stay_ordinary() -> None:
    class Watch(L.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            assert not any(isinstance(t, DeviceTensor) for t in pl_module.state_dict().values())
            assert trainer.compiles == []
            assert type(outputs["loss"]) is torch.Tensor

    quiet_trainer(compile=False, callbacks=[Watch()]).fit(regression(L.LightningModule)(), loader())
