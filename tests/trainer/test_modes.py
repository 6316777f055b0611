"""Train and eval mode of submodules, compared with Lightning."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader, quiet_trainer, regression

import systolic as L
from systolic.exceptions import PossibleUserWarning


def _backbone(package: Package, **methods: Any) -> Any:
    """A regression on features of a backbone with batch norm and dropout, which is in eval mode."""
    module = package.module(**methods)
    torch.manual_seed(1)
    module.backbone = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).eval()
    module.norm = nn.BatchNorm1d(4)
    return module


def _loss(self: Any, batch: Any) -> torch.Tensor:
    return nn.functional.mse_loss(self(self.norm(self.backbone(batch[0]))), batch[1])


def _modes(module: Any) -> dict[str, bool]:
    return {name: submodule.training for name, submodule in module.named_modules()}


def test_what_is_in_eval_mode_before_fit_stays_in_it() -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []
        steps = {
            "on_train_batch_end": lambda self, *args: seen.append(_modes(self)),
            "on_validation_batch_end": lambda self, *args: seen.append(_modes(self)),
            "validation_step": lambda self, batch, batch_idx: self.log("val_loss", self.loss(batch)),
        }
        module = _backbone(package, loss=_loss, **steps)
        trainer = package.trainer(max_epochs=2)
        warned = package.warned(lambda: trainer.fit(module, loader(8), loader(4)), "4 module(s)", "eval mode")
        statistics = {name: value for name, value in module.named_buffers() if "running" in name}
        return warned, seen, _modes(module), statistics, trainer.callback_metrics["val_loss"], module.second.weight

    warned, seen, after, statistics, *_ = require_same(scenario)
    assert warned
    assert after == seen[1], "the first training batch"
    assert not after["backbone.1"]
    assert after["norm"]
    assert torch.equal(statistics["backbone.1.running_mean"], torch.zeros(4))
    assert not torch.equal(statistics["norm.running_mean"], torch.zeros(4))


def test_a_module_wholly_in_eval_mode_is_trained_in_it() -> None:
    def scenario(package: Package) -> Any:
        module = _backbone(package, loss=_loss).eval()
        trainer = package.trainer()
        warned = package.warned(lambda: trainer.fit(module, loader(8)), "module(s)", "eval mode")
        return warned, module.norm.running_mean, module.second.weight, module.training

    assert require_same(scenario)[0]


def test_the_warning_can_be_filtered_by_its_category() -> None:
    with pytest.warns(PossibleUserWarning, match=r"Regression, first, second\. Dropout"):
        quiet_trainer(compile=False).fit(regression(L.LightningModule)().eval(), loader(4))


def test_the_module_may_decide_about_modes_itself() -> None:
    def scenario(package: Package) -> Any:
        seen: list[bool] = []
        methods = {
            "on_validation_model_eval": lambda self: None,
            "on_validation_model_train": lambda self: self.eval(),
            "on_test_model_train": lambda self: None,
            "validation_step": lambda self, batch, batch_idx: seen.append(self.training),
            "test_step": lambda self, batch, batch_idx: seen.append(self.training),
            "predict_step": lambda self, batch, batch_idx: seen.append(self.training),
        }
        module = package.module(**methods)
        trainer = package.trainer(num_sanity_val_steps=0)
        trainer.fit(module, loader(4), loader(4))
        after_fit = module.training
        module.train()
        trainer.predict(module, loader(4))
        after_predict = module.training
        trainer.test(module, loader(4), verbose=False)
        return seen, after_fit, after_predict, module.training

    assert require_same(scenario) == ([True, False, False], False, True, False)


@pytest.mark.parametrize("own", [True, False])
def test_gradients_are_let_go_of_before_validation(own: bool) -> None:
    """In manual optimization without zero_grad, what validation clears is seen in the next step."""

    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.manual_backward(loss)
        self.optimizers().step()
        return loss

    def scenario(package: Package) -> Any:
        methods: dict[str, Any] = {
            "training_step": training_step,
            "validation_step": lambda self, batch, batch_idx: None,
            "configure_optimizers": lambda self: torch.optim.SGD(self.parameters(), lr=0.01),
        }
        if own:
            methods["on_validation_model_zero_grad"] = lambda self: None
        module = package.module(**methods)
        module.automatic_optimization = False
        package.trainer(val_check_interval=2, num_sanity_val_steps=0).fit(module, loader(24), loader(4))
        return module.second.weight, module.first.weight

    require_same(scenario)
