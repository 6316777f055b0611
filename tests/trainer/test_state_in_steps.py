"""Steps that ask the Trainer what it is doing: they are traced for each answer."""

from __future__ import annotations

from typing import Any

import pytest
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader

ASKED = {
    "sanity_checking": lambda trainer: trainer.sanity_checking,
    "validating": lambda trainer: trainer.validating,
    "state": lambda trainer: trainer.state.stage.value == "sanity_check",
    "training": lambda trainer: trainer.training,
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_step_of_the_sanity_check_is_not_validations(asked: str) -> None:
    def scenario(package: Package) -> Any:
        def validation_step(self: Any, batch: Any, batch_idx: int) -> None:
            self.log("answer", 1.0 if ASKED[asked](self.trainer) else 0.0, on_epoch=True, reduce_fx="max")

        seen: list[float] = []

        def on_validation_end(self: Any) -> None:
            seen.append(float(self.trainer.callback_metrics["answer"]))

        module = package.module(validation_step=validation_step, on_validation_end=on_validation_end)
        package.trainer(max_epochs=2).fit(module, loader(8), loader(12))
        return seen

    assert len(require_same(scenario)) == 3


def test_a_training_step_that_asks_is_traced_once_more_at_most() -> None:
    def scenario(package: Package) -> Any:
        def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
            return self.loss(batch) * (2.0 if self.trainer.training else 0.0)

        trainer = package.trainer(max_epochs=2)
        trainer.fit(package.module(training_step=training_step), loader())
        if package.kind == "compiled":
            assert len(trainer.compiles) <= 3
        return trainer.global_step

    require_same(scenario)
