"""`systolic.host`: functions of values in a step, logged as Lightning logs what it calls them with."""

from __future__ import annotations

import logging
from typing import Any

import lightning
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import balanced_accuracy_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic as L

QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "max_epochs": 2,
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
    "num_sanity_val_steps": 0,
}


def batches(rows: int = 44, size: int = 8) -> DataLoader[Any]:
    torch.manual_seed(0)
    x = torch.randn(rows, 4)
    return DataLoader(TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 1).long()), batch_size=size)


def scored(base: Any, wrap: Any) -> Any:
    """A module that hands labels and predictions to scikit-learn in its steps."""
    score = wrap(lambda y, guess: balanced_accuracy_score(y.numpy(), guess.numpy()))

    class Scored(base.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.net = nn.Linear(4, 3)
            self.seen: list[float] = []

        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.seen.append(float(self.trainer.callback_metrics["score"]))

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            x, y = batch
            out = self.net(x)
            self.log("score", score(y, out.argmax(1)))
            return F.cross_entropy(out, y)

        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            x, y = batch
            self.log("val_score", score(y, self.net(x).argmax(1)), prog_bar=True)
            self.log("val_least", score(y, self.net(x).argmax(1)), reduce_fx="min")

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.5)

    return Scored()


@pytest.mark.filterwarnings("ignore")  # scikit-learn's of classes that a batch lacks, Lightning's of its loaders
@pytest.mark.parametrize("loaders", [1, 2])
@pytest.mark.parametrize("devices", [1, 4])
def test_what_is_logged_is_lightnings(devices: int, loaders: int) -> None:
    ours, theirs = scored(L, L.host), scored(lightning, lambda function: function)
    trainer, oracle = L.Trainer(devices=devices, **QUIET), lightning.Trainer(devices=1, **QUIET)
    # the same global batch; the last ones do not divide among the cores
    for one, module, size in ((trainer, ours, 8), (oracle, theirs, 8 * devices)):
        validation = [batches(21, size), batches(24, size)]
        one.fit(module, batches(45, size), validation if loaders > 1 else validation[0])
    assert ours.seen == pytest.approx(theirs.seen, abs=1e-6)
    wanted = {name: float(value) for name, value in oracle.callback_metrics.items()}
    assert {name: float(value) for name, value in trainer.callback_metrics.items()} == pytest.approx(wanted, abs=1e-6)


def test_an_evaluator_with_a_state() -> None:
    seen: list[np.ndarray] = []
    update = L.host(lambda name, outputs: seen.append(outputs["value"].numpy()))

    @L.jit
    def step(x: torch.Tensor) -> torch.Tensor:
        update("any", {"value": x * 2})
        return x + 1

    for number in range(3):
        assert step(torch.full((2,), float(number))).tolist() == [number + 1.0] * 2
    np.testing.assert_array_equal(seen, [[0, 0], [2, 2], [4, 4]])


def test_gradients_flow_around_it(capsys: pytest.CaptureFixture[str]) -> None:
    weight = torch.ones(3, requires_grad=True)
    largest = L.host(lambda x: float(x.max()))

    @L.jit
    def step(x: torch.Tensor) -> torch.Tensor:
        y = weight * x
        print("largest", largest(y))  # noqa: T201
        return torch.autograd.grad(y.sum(), weight)[0]

    assert step(torch.tensor([1.0, 3.0, 2.0])).tolist() == [1.0, 3.0, 2.0]
    step(torch.tensor([5.0, 3.0, 2.0]))
    assert capsys.readouterr().out == "largest 3.0\nlargest 5.0\n"


def test_an_error_in_it_is_the_users() -> None:
    def failing(x: torch.Tensor) -> None:
        raise KeyError("no such label")

    with pytest.raises(KeyError, match="no such label"):
        L.jit(lambda x: L.host(failing)(x))(torch.ones(2))


def test_its_cost_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    count = L.host(lambda x: float(x.sum()))
    step = L.jit(lambda x: (count(x), x)[1])
    with caplog.at_level(logging.INFO, "systolic"):
        for _ in range(45):
            step(torch.ones(2))
    told = [record.getMessage() for record in caplog.records if "called on the host after every step" in record.getMessage()]
    assert len(told) == 1
    assert "ms a call (median of 20)" in told[0]


def test_outside_of_steps_it_is_the_function() -> None:
    assert L.host(lambda x, scale: float(x.sum()) * scale)(torch.ones(3, requires_grad=True), scale=2) == 6.0
