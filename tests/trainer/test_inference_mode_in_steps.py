"""`torch.inference_mode` in a training step, around views and writes: what Lightning computes, with one trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning


@torch.inference_mode()
def _measured(self: Any, z: torch.Tensor) -> None:
    self.log("kept", (z.detach().view(-1).mean() + z.squeeze(-1)[0].sum() + z.t()[1:].sum()).item(), on_epoch=True)
    self.flags.append(torch.is_inference_mode_enabled())


def _step(self: Any, batch: Any, i: int) -> torch.Tensor:
    z = self(batch[0])
    _measured(self, z)
    with torch.inference_mode():
        inner = self(batch[0])
        first = inner[:, 0]
        first.mul_(2.0)
        with torch.inference_mode(False):
            outside = self.outer.weight.pow(2).mean()
            self.flags.append((torch.is_inference_mode_enabled(), outside.requires_grad))
        self.flags.append((torch.is_grad_enabled(), inner.requires_grad))
        self.log("written", inner.sum(), on_epoch=True)
    self.flags.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
    return self.loss(batch) + z.pow(2).mean() + outside


@pytest.mark.parametrize("devices", [1, 4])
def test_a_step_equals_lightnings(devices: int) -> None:
    module = beside_lightning(
        {"training_step": _step},
        lambda module: module.flags,
        prepare=lambda module: setattr(module, "flags", []),
        devices=devices,
    )
    assert len([one for one in module.trainer.compiles if one.is_new_executable]) == 1
