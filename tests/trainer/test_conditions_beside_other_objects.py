"""A step with a condition whose lists, dicts or tensors are replaced before every step: a trace for each way, not for each change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning

Read = Callable[[Any], Any]


def _rates(m: Any) -> Any:
    return m.lr_schedulers().get_last_lr()[0]


def _replace_list(m: Any) -> None:
    m.kept = [m.kept[0] * 0.5 + 1]


def _replace_dict(m: Any) -> None:
    m.kept = {0: m.kept[0] * 0.5 + 1}


def _replace_tensor(m: Any) -> None:
    m.kept = [m.kept[0] * 0.5 + 1]


CASES: dict[str, tuple[Read, Callable[[Any], None], Any]] = {
    "last rates": (_rates, lambda m: None, None),
    "list": (lambda m: m.kept[0], _replace_list, [0.25]),
    "dict": (lambda m: m.kept[0], _replace_dict, {0: 0.25}),
    "tensor in a list": (lambda m: m.kept[0], _replace_tensor, [torch.tensor(0.25)]),
}


@pytest.mark.parametrize("name", CASES)
def test_each_way_is_traced_once(name: str) -> None:
    read, replace, first = CASES[name]

    def prepare(module: Any) -> None:
        module.kept = first

    def training_step(self: Any, batch: Any, i: int) -> Any:
        loss = self.loss(batch)
        value = read(self)
        self.log("value", value)
        if i % 3 == 0:
            self.log("third", loss)
            return loss * value
        if i % 3 == 1:
            return loss + value * loss.detach()
        return loss

    def on_train_batch_end(self: Any, *_: Any) -> None:
        self.seen.append(float(self.trainer.callback_metrics["value"]))
        replace(self)

    def configure_optimizers(self: Any) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    methods = {
        "training_step": training_step,
        "on_train_batch_end": on_train_batch_end,
        "configure_optimizers": configure_optimizers,
    }
    module = beside_lightning(methods, lambda m: m.seen, prepare=prepare, epochs=6)
    assert len(module.trainer.compiles) <= 4, [one.reason for one in module.trainer.compiles]
