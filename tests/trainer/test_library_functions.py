"""Functions of scikit-learn and SciPy in a step, as people call them, equal Lightning's: called after the step, by themselves."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
import torch
from scipy.stats import spearmanr
from sklearn import metrics
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, precision_recall_fscore_support
from torch.utils.data import DataLoader, TensorDataset
from trainer.as_lightning import Package, require_same
from trainer.three_ways import quiet_trainer, regression

import systolic as L


def batches(rows: int = 4) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(3)
    return DataLoader(TensorDataset(torch.randn(20, 4, generator=generator), torch.arange(20) % 3), batch_size=rows)


def scored(package: Package, score: Any, **hooks: Any) -> Any:
    """Train and validate a classifier; `score(module, truth, guess)` is called in the validation's step."""

    def validation_step(self: Any, batch: Any, batch_idx: int) -> None:
        x, y = batch
        score(self, y, (self(x) * 10).long().remainder(3).flatten())

    def loss(self: Any, batch: Any) -> torch.Tensor:
        return self(batch[0]).square().mean()

    trainer, module = package.trainer(), package.module(loss=loss, validation_step=validation_step, **hooks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes that a small batch lacks
        trainer.fit(module, batches(), batches())
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def _arrays(self: Any, y: torch.Tensor, guess: torch.Tensor) -> None:
    self.log("acc", accuracy_score(y.cpu().numpy(), guess.cpu().numpy()))


def _tensors(self: Any, y: torch.Tensor, guess: torch.Tensor) -> None:
    self.log("f1", f1_score(y.cpu(), guess.cpu(), average="macro"))


def _attributes(self: Any, y: torch.Tensor, guess: torch.Tensor) -> None:
    self.log("mcc", metrics.matthews_corrcoef(y.numpy(), guess.numpy()))
    self.log("kappa", sklearn.metrics.cohen_kappa_score(y.numpy(), guess.numpy()))


def _imported_here(self: Any, y: torch.Tensor, guess: torch.Tensor) -> None:
    from sklearn.metrics import recall_score

    self.log("recall", recall_score(y.numpy(), guess.numpy(), average="micro"))


def _of_scipy(self: Any, y: torch.Tensor, guess: torch.Tensor) -> None:
    self.log("rank", spearmanr(y.numpy(), np.arange(4))[0])
    self.log("same", spearmanr(y.numpy(), np.arange(4)).statistic)


def _arithmetic(self: Any, y: torch.Tensor, guess: torch.Tensor) -> None:
    acc = accuracy_score(y.numpy(), guess.numpy())
    self.log("percent", 100 * acc - 1)
    self.log("both", 0.5 * (acc + f1_score(y.numpy(), guess.numpy(), average="macro")))
    self.log("hits", confusion_matrix(y.numpy(), guess.numpy(), labels=[0, 1, 2])[0, 1])
    self.log("sum", confusion_matrix(y.numpy(), guess.numpy()).sum(axis=0).max())
    self.log("first", precision_recall_fscore_support(y.numpy(), guess.numpy(), average="micro")[0])


def _numpys(self: Any, y: torch.Tensor, guess: torch.Tensor) -> None:
    self.log("mean", np.mean(guess.numpy() == y.numpy()))


WAYS = [_arrays, _tensors, _attributes, _imported_here, _of_scipy, _arithmetic, _numpys]


@pytest.mark.parametrize("score", WAYS, ids=lambda way: way.__name__.strip("_"))
def test_scores_equal_lightnings(score: Any) -> None:
    found = require_same(lambda package: scored(package, score))
    assert any(found.values())


def test_what_is_kept_and_printed_are_values(capsys: pytest.CaptureFixture[str]) -> None:
    def scenario(package: Package) -> Any:
        kept: list[Any] = []

        def score(self: Any, y: torch.Tensor, guess: torch.Tensor) -> None:
            acc = accuracy_score(y.numpy(), guess.numpy())
            print(f"{acc:.2f}", acc, str(acc), round(acc, 1))  # noqa: T201
            kept.append({"acc": acc, "matrix": confusion_matrix(y.numpy(), guess.numpy(), labels=[0, 1, 2])})

        scored(package, score)
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("0.") or line.startswith("1.")]
        return [lines, [(one["acc"], one["matrix"].tolist()) for one in kept]]

    require_same(scenario)


def test_what_a_step_returns_is_that_steps_value() -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        def step(self: Any, batch: Any, batch_idx: int) -> Any:
            y = self(batch[0]).flatten()
            acc = accuracy_score(batch[1].numpy(), (y > 0).long().numpy())
            return {"loss": y.square().mean(), "acc": acc, "first": y.detach().numpy()[:1]}

        def note(self: Any, outputs: Any, *_: Any) -> None:
            seen.append((outputs["acc"], outputs["first"].tolist()))

        module = package.module(
            training_step=step, validation_step=step, on_train_batch_end=note, on_validation_batch_end=note,
            predict_step=lambda self, batch, batch_idx: step(self, batch, batch_idx)["acc"],
        )  # fmt: skip
        trainer = package.trainer()
        trainer.fit(module, batches(), batches())
        return [seen, trainer.predict(module, batches())]

    require_same(scenario)


def test_a_plan_of_such_a_step_needs_no_values() -> None:
    kept: list[Any] = []

    def step(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:
        y = self(batch[0]).flatten()
        kept.append(accuracy_score(batch[1].numpy(), (y > 0).long().numpy()))
        return y.square().mean()

    plan = quiet_trainer().preflight(regression(L.LightningModule, training_step=step)(), batches(), slice="v5litepod-8")
    assert plan is not None
    assert kept == []


def test_on_eight_cores() -> None:
    logged: list[float] = []

    def validation_step(self: Any, batch: Any, batch_idx: int) -> None:
        guess = (self(batch[0]) * 10).long().remainder(3).flatten()
        self.log("acc", accuracy_score(batch[1].numpy(), guess.numpy()))

    for devices in (1, 8):
        torch.manual_seed(0)
        module = regression(L.LightningModule, validation_step=validation_step)()
        trainer = quiet_trainer(devices=devices)
        data = DataLoader(batches().dataset, batch_size=16 // devices, drop_last=True)
        trainer.validate(module, data, verbose=False)
        logged.append(float(trainer.callback_metrics["acc"]))
    assert logged[0] == pytest.approx(logged[1])


@pytest.mark.parametrize(
    "use",
    [
        lambda acc, loss: loss * acc,
        lambda acc, loss: loss if acc > 0.5 else 2 * loss,
        lambda acc, loss: loss * float(acc),
        lambda acc, loss: loss if acc == 1.0 else 2 * loss,
        lambda acc, loss: loss * torch.tensor(acc),
        lambda acc, loss: loss * torch.as_tensor([acc, 0.5]).sum(),
        lambda acc, loss: torch.where(loss > 0, acc, loss),
        lambda acc, loss: torch.stack([loss, torch.as_tensor(acc)]).sum(),
    ],
)
def test_a_step_that_needs_the_result_equals_lightnings(use: Any) -> None:
    def scenario(package: Package) -> Any:
        def loss(self: Any, batch: Any) -> torch.Tensor:
            y = self(batch[0]).flatten()
            acc = accuracy_score(batch[1].numpy(), (y > 0).long().numpy())
            self.log("acc", acc)
            return use(acc, y.square().mean())

        trainer, module = package.trainer(), package.module(loss=loss)
        trainer.fit(module, batches())
        weights = torch.cat([one.detach().flatten() for one in module.parameters()]).tolist()
        return [*weights, float(trainer.callback_metrics["acc"])]

    require_same(scenario)


def test_the_functions_are_themselves_afterwards() -> None:
    before = (accuracy_score, metrics.f1_score, metrics._classification.f1_score)
    require_same(lambda package: scored(package, _tensors), ("eager", "compiled"))
    assert before == (accuracy_score, metrics.f1_score, metrics._classification.f1_score)
    assert sklearn.metrics.accuracy_score([1, 0], [1, 1]) == 0.5
