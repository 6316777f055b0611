"""How many elements a step has found, logged as Python's number: Lightning's value in every step, and no program for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning

SIZES: dict[str, Callable[[torch.Tensor], float]] = {
    "different ones": lambda i: len(i.unique()),
    "elements of those": lambda i: i.unique().numel(),
    "rows of positions": lambda i: i.nonzero().shape[0],
    "length of what a mask selects": lambda i: len(i[i > 0]),
    "size of that": lambda i: i[i > 0].size(0),
    "a multiple": lambda i: len(i.unique()) * 2,
    "a real number": lambda i: float(len(i.unique())),
    "a sum": lambda i: len(i[i > 0]) + len(i.unique()) + 1,
    "a matrix of them": lambda i: (i[i > 0][:, None] * i[i > 1]).numel(),
}
EACH_A_PROGRAM: dict[str, Callable[[torch.Tensor], float]] = {
    "a share": lambda i: len(i[i > 0]) / 16,
    "a product": lambda i: len(i[i > 0]) * len(i[i > 1]),
    "the others": lambda i: len(i) - len(i[i > 0]),
}


@pytest.mark.parametrize("size", [*SIZES, *EACH_A_PROGRAM])
def test_as_under_lightning(size: str) -> None:
    function = (SIZES | EACH_A_PROGRAM)[size]

    def training_step(self: Any, batch: Any, i: int) -> torch.Tensor:
        out = self(batch[0])
        self.log("used", function(out.argmax(-1)))
        return torch.nn.functional.cross_entropy(out, batch[1])

    def on_train_batch_end(self: Any, outputs: Any, batch: Any, i: int) -> None:
        self.seen.append(self.trainer.callback_metrics["used"].item())

    methods = {"training_step": training_step, "on_train_batch_end": on_train_batch_end}
    module = beside_lightning(methods, lambda one: one.seen, epochs=2 if size in EACH_A_PROGRAM else 6)
    assert len(set(module.seen)) > 1, "else one program is right for all"
