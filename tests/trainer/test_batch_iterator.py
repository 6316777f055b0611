"""Steps that ask for `dataloader_iter`: one batch a step, the same training as Lightning's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader, quiet_trainer, regression

import systolic as L


def _training_step(self: Any, dataloader_iter: Any) -> torch.Tensor:
    batch, _, _ = next(dataloader_iter)
    loss = self.loss(batch)
    self.log("train_loss", loss, batch_size=4, on_epoch=True)
    return loss


def _validation_step(self: Any, dataloader_iter: Any) -> None:
    batch, batch_idx, dataloader_idx = next(dataloader_iter)
    self.log("loss", self.loss(batch) + 10 * batch_idx + 100 * dataloader_idx, batch_size=4, add_dataloader_idx=False)


def test_training_equals_lightnings() -> None:
    def scenario(package: Package) -> Any:
        trainer, model = package.trainer(max_epochs=2), package.module(training_step=_training_step)
        trainer.fit(model, loader())
        return {"weights": list(model.state_dict().values()), "loss": trainer.callback_metrics["train_loss"].detach()}

    require_same(scenario)


@pytest.mark.parametrize("stage", ["validation", "test"])
def test_evaluation_equals_lightnings(stage: str) -> None:
    def scenario(package: Package) -> Any:
        model = package.module(**{f"{stage}_step": _validation_step})
        return getattr(package.trainer(), {"validation": "validate"}.get(stage, stage))(model, loader())

    require_same(scenario)


def test_the_number_of_the_loader_comes_with_the_batch() -> None:
    def scenario(package: Package) -> Any:
        def step(self: Any, dataloader_iter: Any) -> None:
            batch, batch_idx, dataloader_idx = next(dataloader_iter)
            self.log(f"loss_{dataloader_idx}", self.loss(batch) + batch_idx, batch_size=4, add_dataloader_idx=False)

        found = package.trainer().validate(package.module(validation_step=step), [loader(8), loader(4)])
        return {name: value for values in found for name, value in values.items()}  # Lightning has them in one list's entry

    require_same(scenario)


def test_prediction_equals_lightnings() -> None:
    def scenario(package: Package) -> Any:
        model = package.module(predict_step=lambda self, dataloader_iter: self(next(dataloader_iter)[0][0]))
        return list(package.trainer().predict(model, loader()))

    require_same(scenario)


def _manual_step(self: Any, dataloader_iter: Any) -> None:
    batch, _, _ = next(dataloader_iter)
    optimizer = self.optimizers()
    optimizer.zero_grad()
    self.manual_backward(F.mse_loss(self(batch[0]), batch[1]))
    optimizer.step()


def _manual(self: Any) -> torch.optim.Optimizer:
    self.automatic_optimization = False
    return torch.optim.SGD(self.parameters(), lr=0.1)


def test_manual_optimization_equals_lightnings() -> None:
    def scenario(package: Package) -> Any:
        model = package.module(training_step=_manual_step, configure_optimizers=_manual)
        package.trainer(max_epochs=2).fit(model, loader())
        return list(model.state_dict().values())

    require_same(scenario)


@pytest.mark.parametrize("compile", [True, False])
def test_a_second_batch_is_refused(compile: bool) -> None:
    def step(self: Any, dataloader_iter: Any) -> torch.Tensor:
        first, second = next(dataloader_iter)[0], next(dataloader_iter)[0]
        return self.loss(first) + self.loss(second)

    with pytest.raises(L.MisconfigurationException, match="`training_step` asked `dataloader_iter` for a second batch"):
        quiet_trainer(compile=compile).fit(regression(L.LightningModule, training_step=step)(), loader())


@pytest.mark.parametrize("compile", [True, False])
def test_a_step_that_takes_no_batch_is_refused(compile: bool) -> None:
    model = regression(L.LightningModule, training_step=lambda self, dataloader_iter: self(torch.ones(2, 4)).sum())()
    with pytest.raises(L.MisconfigurationException, match="took no batch"):
        quiet_trainer(compile=compile).fit(model, loader())


def test_an_index_beside_it_is_refused() -> None:
    model = regression(L.LightningModule, training_step=lambda self, dataloader_iter, batch_idx: None)()
    with pytest.raises(L.MisconfigurationException, match=r"Received: `training_step\(self, dataloader_iter, batch_idx\)`"):
        quiet_trainer().fit(model, loader())


@pytest.mark.parametrize("loaders", [1, 2])
@pytest.mark.parametrize("stage", ["train", "validation", "test", "predict"])
def test_hooks_before_the_step_know_the_batch_before(stage: str, loaders: int) -> None:
    """The step has not read its batch by then."""

    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        def number(batch: Any) -> Any:
            return None if batch is None else [float(part.sum()) for part in torch.utils._pytree.tree_leaves(batch)]

        def start(self: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            seen.append(("start", number(batch), batch_idx, dataloader_idx))

        def end(self: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            seen.append(("end", number(batch), batch_idx, dataloader_idx))

        def step(self: Any, dataloader_iter: Any) -> Any:
            batch, _, _ = next(dataloader_iter)
            return self.loss(batch[0] if stage == "train" and loaders > 1 else batch)

        name = {"train": "training"}.get(stage, stage)
        hooks = {f"{name}_step": step, f"on_{stage}_batch_start": start, f"on_{stage}_batch_end": end}
        model, data = package.module(**hooks), [loader(8), loader(8, seed=2)][:loaders]
        trainer = package.trainer(max_epochs=2)
        call = {"train": trainer.fit, "validation": trainer.validate}.get(stage) or getattr(trainer, stage)
        call(model, data if loaders > 1 else data[0])
        return seen

    require_same(scenario)


def test_a_step_that_is_none_is_asked_for_nothing() -> None:
    def scenario(package: Package) -> Any:
        model = package.module()
        model.validation_step = None
        package.trainer().fit(model, loader())
        return list(model.state_dict().values())

    require_same(scenario)
