"""What happens to one batch, in plain PyTorch. In a compiled run this is what gets traced; in eager mode it just runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from ..exceptions import MisconfigurationException
from ..metrics import StepLog
from ._anomaly import finiteness
from ._hooks import HookTable, step_arguments
from ._padding import PaddedSteps
from ._statics import BatchStatics


class TrainStep:
    """training_step, backward, clipping, optimizer step, logging.

    Attributes:
        clears: whether gradients are cleared first (the first batch of an accumulation window).
        updates: whether the optimizer steps (the last batch of the window).
        statics: what it read of batches besides tensors.
    """

    def __init__(self, trainer: Any, module: Any, hooks: HookTable) -> None:
        self._trainer = trainer
        self._module = module
        self._hooks = hooks
        self.clears = True
        self.updates = True
        self.statics = BatchStatics()
        self.padded = PaddedSteps()

    def __call__(self, batch: Any, batch_idx: Any, epoch: Any, global_step: Any) -> dict[str, Any]:
        """Run the step; returns the user's output and the values to report."""
        trainer, module = self._trainer, self._module
        batch, size = self.padded.open(batch)
        log = StepLog(trainer._train_results, size)
        symbols = SimpleNamespace(epoch=epoch, global_step=global_step)
        with trainer._inside_step("training_step", log, symbols), self.padded.guarding():
            batch = after_transfer(self._hooks, batch)
            if not module.automatic_optimization:
                before = trainer._manual_steps
                with trainer._precision.step_context():
                    output = module.training_step(*step_arguments(module.training_step, batch, batch_idx, 0))
                steps = trainer._manual_steps - before
                return {"output": _detached(output, None), "logged": log.finish(), "steps": steps}
            self._finite: dict[str, Any] = {}
            output = self._optimize(batch, batch_idx, epoch)
            return {"output": output, "logged": log.finish(), "steps": int(self.updates), "finite": self._finite}

    def _optimize(self, batch: Any, batch_idx: Any, epoch: Any) -> Any:
        trainer, module = self._trainer, self._module
        outputs: list[Any] = []

        def closure() -> torch.Tensor | None:
            with trainer._precision.step_context():
                output = module.training_step(*step_arguments(module.training_step, batch, batch_idx, 0))
            loss = _loss_of(output)
            self._clear(batch_idx, epoch)
            if loss is not None:
                loss = loss / trainer.accumulate_grad_batches
                self._backward(loss)
            outputs.append(_detached(output, loss))
            self._before_step()
            return loss

        optimizers = trainer.optimizers
        if not optimizers or not self.updates:
            with torch.enable_grad():
                closure()
            return outputs[-1]
        module.optimizer_step(epoch, batch_idx, optimizers[0], closure)
        if not outputs:
            raise MisconfigurationException(
                "`optimizer_step` was overridden and never called its `optimizer_closure`, so training_step did not "
                "run. Call optimizer.step(closure=optimizer_closure)."
            )
        if trainer.accumulate_grad_batches == 1 and self._hooks.module_hook("optimizer_zero_grad") is None:
            for parameter in (p for group in optimizers[0].param_groups for p in group["params"]):
                # kept until here for hooks; as part of the state they would cost as much memory as the parameters
                parameter.grad = None
        return outputs[-1]

    def _clear(self, batch_idx: Any, epoch: Any) -> None:
        trainer = self._trainer
        if self.clears and trainer.optimizers:
            self._hooks.both("on_before_zero_grad", trainer.optimizers[0])
            self._module.optimizer_zero_grad(epoch, batch_idx, trainer.optimizers[0])

    def _backward(self, loss: torch.Tensor) -> None:
        self._hooks.both("on_before_backward", loss)
        self._module.backward(loss)
        self._hooks.both("on_after_backward")
        if self._trainer.detect_anomaly:
            self._finite = finiteness(loss, self._module)

    def _before_step(self) -> None:
        trainer = self._trainer
        if self.updates and trainer.optimizers:
            optimizer = trainer.optimizers[0]
            self._hooks.both("on_before_optimizer_step", optimizer)
            self._module.configure_gradient_clipping(optimizer, trainer.gradient_clip_val, trainer.gradient_clip_algorithm)


class EvaluationStep:
    """validation_step or test_step, without gradients."""

    def __init__(self, trainer: Any, module: Any, hooks: HookTable, stage: str) -> None:
        self._trainer = trainer
        self._module = module
        self._hooks = hooks
        self._stage = stage
        self.dataloader_idx = 0
        self.statics = BatchStatics()
        self.padded = PaddedSteps()

    def __call__(self, batch: Any, batch_idx: Any, epoch: Any, global_step: Any) -> dict[str, Any]:
        """Run the step; returns the user's output and the values to report."""
        trainer = self._trainer
        function = getattr(self._module, f"{self._stage}_step")
        batch, size = self.padded.open(batch)
        log = StepLog(trainer._eval_results, size)
        symbols = SimpleNamespace(epoch=epoch, global_step=global_step)
        with trainer._inside_step(f"{self._stage}_step", log, symbols), torch.no_grad(), self.padded.guarding():
            batch = after_transfer(self._hooks, batch, self.dataloader_idx)
            with trainer._precision.step_context():
                output = function(*step_arguments(function, batch, batch_idx, self.dataloader_idx))
            return {"output": output, "logged": log.finish()}


def after_transfer(hooks: HookTable, batch: Any, dataloader_idx: int = 0) -> Any:
    """The batch after the user's hook, which is part of the step."""
    hook = hooks.data_hook("on_after_batch_transfer")
    return batch if hook is None else hook(batch, dataloader_idx)


def _loss_of(output: Any) -> torch.Tensor | None:
    """The loss in what training_step returned.

    Raises:
        MisconfigurationException: nothing usable was returned; says what was expected.
    """
    if output is None:
        return None
    loss = output.get("loss") if isinstance(output, dict) else output
    if not isinstance(loss, torch.Tensor):
        raise MisconfigurationException(
            "`training_step` must return the loss as a tensor, a dict with the key 'loss', or None to skip the step. "
            f"Received: {_described(output)}."
        )
    if loss.numel() != 1:
        raise MisconfigurationException(
            f"`training_step` must return a loss with one element. Received: shape {tuple(loss.shape)}. "
            "Reduce it, for instance with loss.mean()."
        )
    if not loss.requires_grad:
        raise MisconfigurationException(
            "The loss that `training_step` returned does not depend on any parameter that requires a gradient, so "
            "there is nothing to train. Look for .detach(), .item(), torch.no_grad() or a frozen model on the way from "
            "the parameters to the loss."
        )
    return loss


def _described(output: Any) -> str:
    return f"a dict with the keys {list(output)}" if isinstance(output, dict) else type(output).__name__


def _detached(output: Any, loss: torch.Tensor | None) -> Any:
    """What hooks see of a step's output: a dict; its loss is the one divided for accumulation, as in Lightning."""
    if output is None:
        return {}
    if isinstance(output, torch.Tensor):
        return {"loss": (output if loss is None else loss).detach()}
    if not isinstance(output, dict):
        return output
    found = {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in output.items()}
    return found if loss is None else {**found, "loss": loss.detach()}
