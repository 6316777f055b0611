"""`self._device` and `self._dtype`, which are Lightning's own, and which models read and set none the less."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning


def masked(self: Any, batch: Any, i: int) -> torch.Tensor:
    mask = torch.full((4,), 0.5, device=self._device, dtype=self._dtype)
    return self.loss((batch[0] + mask, batch[1]))


def test_read() -> None:
    seen = beside_lightning({"training_step": masked}, lambda one: [str(one._device), str(one._dtype)])
    assert seen._device == torch.device("cpu")


@pytest.mark.parametrize("convert", ["double", "half", "bfloat16"])
def test_dtype_that_a_module_is_converted_to(convert: str) -> None:
    def held(module: Any) -> str:
        return str(getattr(module, convert)()._dtype) if convert != "bfloat16" else str(module.to(torch.bfloat16)._dtype)

    beside_lightning({}, held)


def test_set() -> None:
    def prepare(self: Any) -> None:
        self._device = torch.device("cpu")
        self._dtype = torch.float64

    def training_step(self: Any, batch: Any, i: int) -> torch.Tensor:
        return self.loss(batch) * torch.ones((), dtype=self._dtype, device=self._device)

    beside_lightning({"training_step": training_step}, lambda one: str(one._dtype), prepare=prepare)
