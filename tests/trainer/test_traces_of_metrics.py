"""Metrics of torchmetrics cost no second trace: neither of the step that calls them, nor of the one that does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torchmetrics
from beside_lightning import beside_lightning

T = torch.Tensor


def metrics(kind: str) -> Any:
    made: dict[str, Any] = {
        "sums": lambda: torchmetrics.MeanSquaredError(),
        "mean": lambda: torchmetrics.MeanMetric(),
        "extreme": lambda: torchmetrics.MaxMetric(),
    }
    return made[kind]()


@pytest.mark.parametrize("where", ["training", "validation", "both"])
@pytest.mark.parametrize("kind", ["sums", "mean", "extreme"])
def test_each_step_is_traced_once(kind: str, where: str) -> None:
    def prepare(module: Any) -> None:
        module.add_module("metric_training", metrics(kind))
        module.add_module("metric_validation", metrics(kind))

    def called(module: Any, batch: Any, stage: str) -> None:
        x, y = batch
        metric, given = module._modules[f"metric_{stage}"], (module(x).mean(-1).detach(), y.float())
        metric(*given if kind == "sums" else given[:1])
        module.log(f"{stage}_metric", metric, on_step=False, on_epoch=True)

    def training_step(module: Any, batch: Any, batch_idx: int) -> T:
        if where != "validation":
            called(module, batch, "training")
        return module.loss(batch)

    def validation_step(module: Any, batch: Any, batch_idx: int) -> None:
        if where != "training":
            called(module, batch, "validation")

    methods = {"training_step": training_step, "validation_step": validation_step}
    module = beside_lightning(methods, lambda m: [], prepare=prepare, epochs=3)
    assert not [compile.reason for compile in module.trainer.compiles if "metric" in compile.reason]


def test_groups_of_a_collection_concern_the_steps_that_call_it_alone() -> None:
    def prepare(module: Any) -> None:
        module.errors = torchmetrics.MetricCollection(
            {"squared": torchmetrics.MeanSquaredError(), "rooted": torchmetrics.MeanSquaredError(squared=False)}
        )

    def training_step(module: Any, batch: Any, batch_idx: int) -> T:
        return module.loss(batch)

    def validation_step(module: Any, batch: Any, batch_idx: int) -> None:
        module.errors.update(module(batch[0]).mean(-1).detach(), batch[1].float())

    def on_validation_epoch_end(module: Any) -> None:
        module.log_dict(module.errors.compute())
        module.errors.reset()

    methods = {
        "training_step": training_step,
        "validation_step": validation_step,
        "on_validation_epoch_end": on_validation_epoch_end,
    }
    module = beside_lightning(methods, lambda m: [], prepare=prepare, epochs=3, num_sanity_val_steps=0)
    of_groups = [compile.reason for compile in module.trainer.compiles if "_groups_checked" in compile.reason]
    assert len(of_groups) == 1, "validation's second batch finds the groups that its first one has made"
