"""Loggers that a step reaches through the Trainer: what it calls of them is called after every step, with its values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader


def _weight(module: Any) -> Any:
    return next(p for p in module.parameters() if p.ndim > 1).grad


def of_trainer(trainer: Any, module: Any) -> None:
    trainer.logger.experiment.add_histogram("weight", _weight(module), trainer.global_step)


def of_its_list(trainer: Any, module: Any) -> None:
    trainer.loggers[0].experiment.add_histogram("weight", _weight(module).cpu().numpy(), trainer.global_step)


def a_number(trainer: Any, module: Any) -> None:
    trainer.logger.experiment.add_scalar("norm", _weight(module).norm(), trainer.global_step)


def its_own_method(trainer: Any, module: Any) -> None:
    trainer.logger.log_metrics({"norm": _weight(module).norm().item()}, step=trainer.global_step)


def of_module(trainer: Any, module: Any) -> None:
    module.logger.experiment.add_histogram("weight", _weight(module), trainer.global_step)
    module.loggers[0].experiment.add_scalar("norm", _weight(module).norm(), trainer.global_step)


@pytest.mark.parametrize("hook", ["on_after_backward", "on_before_optimizer_step", "on_before_zero_grad"])
@pytest.mark.parametrize("logs", [of_trainer, of_its_list, a_number, its_own_method, of_module])
def test_callbacks_log_gradients_as_under_lightning(logs: Any, hook: str) -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        def kept(name: str) -> Any:
            def call(self: Any, *args: Any, **named: Any) -> None:
                values = [*args, *named.values()]
                seen.append((name, *(one if isinstance(one, str | int) else _sum(one) for one in values)))

            return call

        class Experiment:
            add_histogram, add_scalar = kept("histogram"), kept("scalar")

        class Logger(package.L.loggers.logger.Logger):  # type: ignore[misc]
            name, version, experiment = "kept", 0, Experiment()
            log_metrics, log_hyperparams = kept("metrics"), kept("hyperparameters")

        class Logs(package.L.Callback):  # type: ignore[misc]
            pass

        def call(self: Any, trainer: Any, module: Any, *rest: Any) -> None:
            if _weight(module) is not None:
                logs(trainer, module)

        setattr(Logs, hook, call)
        package.trainer(logger=Logger(), callbacks=[Logs()]).fit(package.module(), loader(8))
        return seen

    require_same(scenario)


def _sum(value: Any) -> Any:
    return {k: torch.as_tensor(v).sum() for k, v in value.items()} if isinstance(value, dict) else torch.as_tensor(value).sum()
