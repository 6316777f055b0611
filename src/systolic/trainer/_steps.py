"""What happens to one batch, in plain PyTorch. In a compiled run this is what gets traced; in eager mode it just runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from ..data import batch_size_of
from ..exceptions import MisconfigurationException
from ..metrics import StepLog
from ._hooks import HookTable, step_arguments


class TrainStep:
    """training_step, backward, clipping, optimizer step, logging.

    Attributes:
        clears: whether gradients are cleared first (the first batch of an accumulation window).
        updates: whether the optimizer steps (the last batch of the window).
    """

    def __init__(self, trainer: Any, module: Any, hooks: HookTable) -> None:
        self._trainer = trainer
        self._module = module
        self._hooks = hooks
        self.clears = True
        self.updates = True

    def __call__(self, batch: Any, batch_idx: Any, epoch: Any, global_step: Any) -> dict[str, Any]:
        """Run the step; returns the user's output and the values to report."""
        trainer, module = self._trainer, self._module
        log = StepLog(trainer._train_results, lambda: batch_size_of(batch))
        with trainer._inside_step("training_step", log, SimpleNamespace(epoch=epoch, global_step=global_step)):
            batch = _after_transfer(self._hooks, batch)
            if not module.automatic_optimization:
                before = trainer._manual_steps
                output = module.training_step(*step_arguments(module.training_step, batch, batch_idx, 0))
                steps = trainer._manual_steps - before
                return {"output": _detached(output), "logged": log.finish(), "steps": steps}
            output = self._optimize(batch, batch_idx, epoch)
            return {"output": output, "logged": log.finish(), "steps": int(self.updates)}

    def _optimize(self, batch: Any, batch_idx: Any, epoch: Any) -> Any:
        trainer, module = self._trainer, self._module
        outputs: list[Any] = []

        def closure() -> torch.Tensor | None:
            output = module.training_step(*step_arguments(module.training_step, batch, batch_idx, 0))
            loss = _loss_of(output)
            outputs.append(output)
            if loss is None:
                return None
            self._backward(loss / trainer.accumulate_grad_batches, batch_idx, epoch)
            return loss

        optimizers = trainer.optimizers
        if not optimizers or not self.updates:
            with torch.enable_grad():
                closure()
            return _detached(outputs[0])
        module.optimizer_step(epoch, batch_idx, optimizers[0], closure)
        if not outputs:
            raise MisconfigurationException(
                "`optimizer_step` was overridden and never called its `optimizer_closure`, so training_step did not "
                "run. Call optimizer.step(closure=optimizer_closure)."
            )
        for group in optimizers[0].param_groups:
            for parameter in group["params"]:
                # kept until here for hooks; as part of the state they would cost as much memory as the parameters
                parameter.grad = None
        return _detached(outputs[0])

    def _backward(self, loss: torch.Tensor, batch_idx: Any, epoch: Any) -> None:
        trainer, module, hooks = self._trainer, self._module, self._hooks
        optimizer = trainer.optimizers[0] if trainer.optimizers else None
        if self.clears and optimizer is not None:
            hooks.both("on_before_zero_grad", optimizer)
            module.optimizer_zero_grad(epoch, batch_idx, optimizer)
        hooks.both("on_before_backward", loss)
        module.backward(loss)
        hooks.both("on_after_backward")
        if self.updates and optimizer is not None:
            hooks.both("on_before_optimizer_step", optimizer)
            module.configure_gradient_clipping(optimizer, trainer.gradient_clip_val, trainer.gradient_clip_algorithm)


class EvaluationStep:
    """validation_step or test_step, without gradients."""

    def __init__(self, trainer: Any, module: Any, hooks: HookTable, stage: str) -> None:
        self._trainer = trainer
        self._module = module
        self._hooks = hooks
        self._stage = stage
        self.dataloader_idx = 0

    def __call__(self, batch: Any, batch_idx: Any, epoch: Any, global_step: Any) -> dict[str, Any]:
        """Run the step; returns the user's output and the values to report."""
        trainer = self._trainer
        function = getattr(self._module, f"{self._stage}_step")
        log = StepLog(trainer._eval_results, lambda: batch_size_of(batch))
        symbols = SimpleNamespace(epoch=epoch, global_step=global_step)
        with trainer._inside_step(f"{self._stage}_step", log, symbols), torch.no_grad():
            batch = _after_transfer(self._hooks, batch, self.dataloader_idx)
            output = function(*step_arguments(function, batch, batch_idx, self.dataloader_idx))
            return {"output": output, "logged": log.finish()}


def _after_transfer(hooks: HookTable, batch: Any, dataloader_idx: int = 0) -> Any:
    hook = hooks.module_hook("on_after_batch_transfer")
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


def _detached(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return {"loss": output.detach()}
    if isinstance(output, dict):
        return {k: v.detach() if isinstance(v, torch.Tensor) else v for k, v in output.items()}
    return output
