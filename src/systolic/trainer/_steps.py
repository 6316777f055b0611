"""Steps: the work on one batch, in plain PyTorch. A compiled run traces it; in eager mode it just runs."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..data import PaddedBatch
from ..exceptions import MisconfigurationException
from ..metrics import Results, StepLog
from ..optim import LightningOptimizer
from ._anomaly import finiteness
from ._batch_iterator import BatchIterator, asks_for_iterator
from ._batch_notes import note_batch
from ._gradient_readers import gradients_are_read_later
from ._hooks import HookTable, step_arguments
from ._left_batches import GivenBatch
from ._padding import PaddedSteps
from ._stage import Stage
from ._statics import BatchStatics
from ._symbols import Symbols

if TYPE_CHECKING:
    from ._run import Run


class Step:
    """Step around the user's method; in every one: padding, logging, the hook on the devices, precision.

    Args:
        run: the run whose step it is.
        stage: which step.
        results: the totals of logged values.

    Attributes:
        dataloader_idx: the loader whose batch it gets.
        of_several: whether there are several loaders.
        statics: what it read of batches besides tensors.
        padded: what it knows of their padding.
    """

    def __init__(self, run: Run, stage: Stage, results: Results) -> None:
        self.run, self.stage, self.results = run, stage, results
        self.dataloader_idx, self.of_several = 0, False
        self.statics = BatchStatics()
        self.padded = PaddedSteps()
        self._given: GivenBatch | None = None

    def __call__(self, batch: Any, batch_idx: Any, epoch: Any, global_step: Any) -> dict[str, Any]:
        """Run the step; returns the user's output and the values to report."""
        raise NotImplementedError

    @contextlib.contextmanager
    def entered(self, batch: Any, symbols: Symbols) -> Iterator[tuple[Any, StepLog]]:
        """Around the user's code: gives the batch as the user sees it, and where `self.log` goes."""
        # of a batch that is filled up, or shared by processes, hooks have their own rows as the loader gave them
        told = self.run.hooks.anybody(self.stage.batch_end) and not isinstance(batch, PaddedBatch) and not self.run.is_shared
        self._given = GivenBatch(batch) if told else None
        batch, size = self.padded.open(batch)
        log = StepLog(self.results, size)
        with self.run.inside_step(self.stage.step, log, symbols), self.padded.guarding(), self.statics.reads_noted():
            yield after_transfer(self.run.hooks, batch, self.dataloader_idx), log

    def left(self, batch: Any) -> dict[str, Any]:
        """The batch as hooks see it after the step, where that differs from what the loader gave."""
        return {} if self._given is None else self._given.left(batch)

    def users(self, batch: Any, batch_idx: Any) -> Any:
        """Result of the user's method."""
        function = getattr(self.run.module, self.stage.step)
        try:
            with self.run.config.numerics.step_context():
                if not asks_for_iterator(function):
                    return function(*step_arguments(function, batch, batch_idx, self.dataloader_idx, self.of_several))
                batches = BatchIterator(batch, batch_idx, self.dataloader_idx, self.stage.step)
                output = function(batches)
                batches.require_taken()
                return output
        except Exception as error:
            note_batch(error, f"{type(self.run.module).__name__}.{self.stage.step}", batch)
            raise


class TrainStep(Step):
    """training_step, backward, clipping, optimizer step, logging.

    Attributes:
        clears: whether gradients are cleared first (the first batch of an accumulation window).
        updates: whether the optimizer steps (the last batch of the window).
        learns: whether there are gradients at all; without them nothing is updated.
    """

    clears = updates = learns = True
    _told = False

    def __call__(self, batch: Any, batch_idx: Any, epoch: Any, global_step: Any) -> dict[str, Any]:
        """Run the step; returns the user's output and the values to report."""
        with self.entered(batch, Symbols(epoch, global_step, batch_idx)) as (batch, log):
            if not self.run.module.automatic_optimization:
                return _manual(self, batch, batch_idx, log)
            output, finite = self._optimize(batch, batch_idx, epoch)
            steps = int(self.updates and self.learns)
            return {"output": output, "logged": log.finish(), "steps": steps, "finite": finite, **self.left(batch)}

    def _optimize(self, batch: Any, batch_idx: Any, epoch: Any) -> tuple[Any, dict[str, Any]]:
        run, module, config, hooks = self.run, self.run.module, self.run.config, self.run.hooks
        optimizer = run.optimizers[0] if run.optimizers else None
        outputs: list[Any] = []
        finite: dict[str, Any] = {}

        @torch.enable_grad()  # an optimizer may call it inside of a `step` that is written without gradients
        def closure() -> torch.Tensor | None:
            output = self.users(batch, batch_idx)
            loss = _loss_of(output)
            if loss is None:
                self._warn_of_nothing()
            if self.clears and optimizer is not None:
                hooks.both("on_before_zero_grad", optimizer)
                module.optimizer_zero_grad(epoch, batch_idx, optimizer)
            if loss is not None and self.learns:
                loss = loss / config.accumulate_grad_batches
                hooks.both("on_before_backward", loss)
                module.backward(loss)
                hooks.both("on_after_backward")
                finite.update(finiteness(loss, module) if config.detect_anomaly else {})
            outputs.append(_detached(output, loss))
            if self.updates and self.learns and optimizer is not None:
                hooks.both("on_before_optimizer_step", optimizer)
                module.configure_gradient_clipping(optimizer, config.gradient_clip_val, config.gradient_clip_algorithm)
            return loss

        if optimizer is None or not self.updates or not self.learns or run.steps_on_host:
            closure()
        else:
            step_optimizer(run, optimizer, batch_idx, epoch, closure)
            require_closure_called(outputs)
            if not self._keeps_gradients:
                let_go_of_gradients(run, optimizer)
        return outputs[-1], finite

    @functools.cached_property
    def _keeps_gradients(self) -> bool:
        return gradients_are_read_later(self.run.module, self.run.config.callbacks)

    def _warn_of_nothing(self) -> None:
        if not self._told:
            self._told = True
            warnings.warn(
                f"{type(self.run.module).__name__}'s `training_step` returned `None`: nothing is learned from such a batch. If "
                "that is meant, ignore this warning.",
                stacklevel=2,
            )


class EvaluationStep(Step):
    """validation_step, test_step or predict_step, without gradients unless a hook has switched them on."""

    _records = False

    def grad_mode(self) -> tuple[str, ...]:
        """Key of the program besides the loader: forces are gradients, and modules of molecules want them in validation.

        With `Trainer(inference_mode=True)` nobody can switch them on, as in PyTorch.
        """
        self._records = torch.is_grad_enabled() and not self.run.config.inference_mode
        return ("with gradients",) if self._records else ()

    def __call__(self, batch: Any, batch_idx: Any, epoch: Any, global_step: Any) -> dict[str, Any]:
        """Run the step; returns the user's output and the values to report."""
        recorded = torch.set_grad_enabled(self._records)
        with recorded, self.entered(batch, Symbols(epoch, global_step, batch_idx)) as (batch, log):
            return {"output": self.users(batch, batch_idx), "logged": log.finish(), **self.left(batch)}


def _manual(step: Step, batch: Any, batch_idx: Any, log: StepLog) -> dict[str, Any]:
    """Manual optimization: the user's method does it all, and its optimizer steps are counted."""
    state = step.run.module_state
    state.begin_manual_step()
    output = step.users(batch, batch_idx)
    if output is not None and not isinstance(output, torch.Tensor | Mapping):
        raise MisconfigurationException(
            "In manual optimization `training_step` must return a Tensor or have no return value, or return a dict for hooks. "
            f"Received: {_described(output)}."
        )
    steps, state.manual_steps = state.manual_steps, 0
    return {"output": _detached(output, None), "logged": log.finish(), "steps": steps, **step.left(batch)}


def step_optimizer(
    run: Run, optimizer: torch.optim.Optimizer, batch_idx: Any, epoch: Any, closure: Callable[[], torch.Tensor | None]
) -> None:
    """Step the optimizer as the module does it; the closure computes the loss and its gradients."""
    given: Any = optimizer if run.hooks.module_hook("optimizer_step") is None else LightningOptimizer(optimizer)
    run.module.optimizer_step(epoch, batch_idx, given, closure)


def let_go_of_gradients(run: Run, optimizer: torch.optim.Optimizer) -> None:
    """They are kept until here for hooks; as part of the state they would cost as much memory as the parameters."""
    if run.config.accumulate_grad_batches > 1 or run.hooks.module_hook("optimizer_zero_grad") is not None:
        return
    if type(optimizer).zero_grad is not torch.optim.Optimizer.zero_grad or "zero_grad" in vars(optimizer):
        return  # a method of its own may leave something of them for the next step
    for parameter in (p for group in optimizer.param_groups for p in group["params"]):
        parameter.grad = None


def require_closure_called(outputs: list[Any]) -> None:
    """Refuse an `optimizer_step` of the user's that computed no loss."""
    if not outputs:
        raise MisconfigurationException(
            "The closure hasn't been executed: `optimizer_step` was overridden and never called its `optimizer_closure`, so "
            "training_step did not run. Call optimizer.step(closure=optimizer_closure)."
        )


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
            "`training_step` must return a Tensor, a dict, or None: the loss, of which the 'loss' key needs to be present in a "
            f"dict, or None to skip the step. Received: {_described(output)}."
        )
    if loss.is_complex():
        raise MisconfigurationException(
            f"`training_step` must return a real loss. Received: {loss.dtype}. A complex number has no smallest value: reduce "
            "it to a real one, for instance with loss.abs()."
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
    """View that hooks have of a step's output: a dict; its loss is the one divided for accumulation, as in Lightning."""
    if output is None:
        return {}
    if isinstance(output, torch.Tensor):
        return {"loss": (output if loss is None else loss).detach()}
    if not isinstance(output, dict):
        return output
    found = {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in output.items()}
    return found if loss is None else {**found, "loss": loss.detach()}
