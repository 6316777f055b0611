"""`trainer.jit`: functions of callbacks that change tensors between steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from trainer.runs import Line, batches, trainer

import systolic as L


class Shrink(L.Callback):
    """Halves the weights after each step, by a factor that may change, and counts in a tensor of its own."""

    def __init__(self) -> None:
        self.count = torch.zeros(1)

    def setup(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        weight, count, settings = pl_module.layer.weight, self.count, {"factor": 0.5}

        def shrink() -> None:
            weight.mul_(settings["factor"])
            count.add_(1)

        self.settings = settings
        self.shrink = trainer.jit(shrink)

    def on_step_dispatched(self, trainer: L.Trainer, pl_module: Any, batch_idx: int) -> None:
        self.settings["factor"] = 0.5 if batch_idx < 4 else 0.25
        self.shrink()


@pytest.mark.parametrize("options", [{}, {"steps_per_dispatch": 3}, {"devices": 8}], ids=str)
def test_a_function_between_steps_is_what_it_is_in_eager_mode(options: dict[str, Any]) -> None:
    found = []
    for arguments in (options, {"compile": False}):
        torch.manual_seed(0)
        module, callback = Line(), Shrink()
        trainer(callbacks=[callback], **arguments).fit(module, batches(6, size=8))
        found.append(dict(module.state_dict()) | {"count": callback.count})
    assert float(found[0]["count"]) == 6
    assert type(module.layer.weight) is torch.nn.Parameter
    torch.testing.assert_close(found[0], found[1])


def test_what_a_run_compiles_counts_its_functions() -> None:
    run = trainer(callbacks=[Shrink()])
    run.fit(Line(), batches(2))
    assert len(run.compiles) == 2
