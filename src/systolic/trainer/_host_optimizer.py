"""Optimizers that decide by values how often they compute the loss (LBFGS): they step on the host, between programs.

One program computes the loss and the gradient of a batch, with all that the step changes besides: BatchNorm's statistics,
random keys, sums of logged values, attributes. The optimizer calls it as its closure and writes to the parameters in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..compiler import Engine
from ..exceptions import MisconfigurationException
from ..utilities.rank_zero import rank_zero_info
from ._anomaly import require_finite
from ._step_engine import StepOutcome, WrappedEngine
from ._steps import TrainStep, let_go_of_gradients, require_closure_called, step_optimizer

if TYPE_CHECKING:
    from ._run import Run

_TOLD_AT = 2  # the first step compiles


class HostOptimizerEngine(WrappedEngine):
    """Runs training steps whose optimizer is on the host.

    Args:
        run: the run whose optimizer it is.
        step: what `engine` runs: with such an optimizer, the computation of loss and gradients alone.
        engine: the compiled engine.
    """

    def __init__(self, run: Run, step: TrainStep, engine: Engine) -> None:
        super().__init__(engine)
        self._run, self._step = run, step
        self._steps = 0

    def run(
        self,
        leaves: Sequence[Any],
        structure: Any,
        rebuild: Callable[[list[Any]], tuple[Any, ...]],
        numbers: dict[str, Any],
    ) -> StepOutcome:
        """Run one step; arguments as for the engine. The result is that of the closure's last call."""
        run, step = self._run, self._step
        if not (step.learns and step.updates):  # gradients are accumulated
            return self.engine.run(leaves, structure, rebuild, numbers)
        optimizer = run.optimizers[0]
        outcomes: list[StepOutcome] = []
        seconds: list[float] = []

        def closure() -> torch.Tensor:
            let_go_of_gradients(run, optimizer)  # so that every computation is one and the same program
            began = time.perf_counter()
            outcome = self.engine.run(leaves, structure, rebuild, numbers)
            outcomes[:] = [outcome]
            loss = self._checked(outcome, numbers)
            seconds.append(time.perf_counter() - began)
            return loss

        began = time.perf_counter()
        step_optimizer(run, optimizer, numbers["batch_idx"], numbers["epoch"], closure)
        require_closure_called(outcomes)
        let_go_of_gradients(run, optimizer)
        self._steps += 1
        if self._steps == _TOLD_AT:
            _tell(optimizer, seconds, time.perf_counter() - began)
        return outcomes[0]

    def _checked(self, outcome: StepOutcome, numbers: dict[str, Any]) -> torch.Tensor:
        """The loss, before the optimizer makes something of it."""
        run = self._run
        self.engine.verify()
        value = outcome.value()
        if run.config.detect_anomaly:
            require_finite(value["finite"], numbers["batch_idx"], numbers["epoch"], numbers["global_step"])
        if "loss" not in value["output"]:
            raise MisconfigurationException(
                f"{type(run.module).__name__}'s `training_step` returned None, and {type(run.optimizers[0]).__name__} asks for "
                "the loss each time that it calls it. Return a loss, such as `0.0 * loss` for a batch to learn nothing from."
            )
        return value["output"]["loss"].cpu()  # host sync: the optimizer decides by the value


def _tell(optimizer: torch.optim.Optimizer, seconds: list[float], whole: float) -> None:
    size = sum(p.numel() * p.element_size() for group in optimizer.param_groups for p in group["params"]) / 1e6
    mean = sum(seconds) / len(seconds)
    rank_zero_info(
        f"{type(optimizer).__name__} steps on the host, between programs that compute loss and gradient. This step called "
        f"{len(seconds)}, {mean * 1e3:.3g} ms each, and took {(whole - sum(seconds)) * 1e3:.3g} ms besides: each call copies "
        f"{size:.3g} MB of parameters to the devices and as much of gradients back."
    )
