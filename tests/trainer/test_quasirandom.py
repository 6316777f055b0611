"""Steps that draw from a Sobol engine, as samplers of diffusion models do: its next numbers in every step, as under Lightning."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning

T = torch.Tensor


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("scrambled", [True, False])
def test_each_step_gets_the_next_numbers(scrambled: bool, devices: int) -> None:
    def prepare(module: Any) -> None:
        module.engine = torch.quasirandom.SobolEngine(2, scramble=scrambled, seed=3)

    def training_step(module: Any, batch: Any, i: int) -> T:
        drawn = module.engine.draw(batch[0].shape[0]).to(module.device)
        module.log("drawn", drawn.mean())
        return module.loss((batch[0] * (0.5 + drawn[:, :1]), batch[1]))

    def held(module: Any) -> Any:
        return module.engine.num_generated

    module = beside_lightning({"training_step": training_step}, held, prepare=prepare, devices=devices)
    assert module.engine.num_generated == 6 * 16
    assert len(module.trainer.compiles) == 1, [one.reason for one in module.trainer.compiles]
