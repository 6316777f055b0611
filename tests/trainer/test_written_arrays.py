"""Arrays of NumPy that `training_step` writes to in the host's memory are refused, and hold what they held."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from beside_lightning import loader, module_of, trainer_of

import systolic


@pytest.mark.parametrize("dtype", ["float64", "int64", "object"])
def test_a_written_array_is_refused_and_put_back(dtype: str) -> None:
    def prepare(module: Any) -> None:
        module.table = np.array([1, 2, 3, 4], dtype=dtype)

    def training_step(module: Any, batch: Any, i: int) -> torch.Tensor:
        module.table[1] = "a text" if dtype == "object" else 7
        return module.loss(batch)

    module = module_of(systolic, {"training_step": training_step}, prepare)
    with pytest.raises(systolic.CaptureError, match=r"The step writes to model\.table, an array of NumPy"):
        trainer_of(systolic).fit(module, loader(48, 1))
    assert module.table.tolist() == [1, 2, 3, 4]
