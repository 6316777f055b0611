"""Hooks that Lightning once called, and would be passed over in silence now: named, with what to write instead."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection

from torch import nn

from ..exceptions import MisconfigurationException, OldInterfaceError, PossibleUserWarning
from ..utilities._overrides import overrides

_OUTPUTS = "keep what you need in a list of the module in `{step}`, and use and clear it in `{hook}`"
_WHOLE_BATCH = "do it at the end of `{step}`, which sees the batch of all cores"

REMOVED_HOOKS = {
    "training_epoch_end": _OUTPUTS.format(step="training_step", hook="on_train_epoch_end"),
    "validation_epoch_end": _OUTPUTS.format(step="validation_step", hook="on_validation_epoch_end"),
    "test_epoch_end": _OUTPUTS.format(step="test_step", hook="on_test_epoch_end"),
    "training_step_end": _WHOLE_BATCH.format(step="training_step"),
    "validation_step_end": _WHOLE_BATCH.format(step="validation_step"),
    "test_step_end": _WHOLE_BATCH.format(step="test_step"),
    "on_epoch_start": "call it `on_train_epoch_start`",
    "on_epoch_end": "call it `on_train_epoch_end`",
    "on_batch_start": "call it `on_train_batch_start`",
    "on_batch_end": "call it `on_train_batch_end`",
    "on_pretrain_routine_start": "call it `on_fit_start`",
    "on_pretrain_routine_end": "call it `on_fit_start`",
    "on_train_dataloader": "do it in `train_dataloader`",
    "on_val_dataloader": "do it in `val_dataloader`",
    "tbptt_split_batch": "split the sequence in `training_step`, with `automatic_optimization = False`",
    "get_progress_bar_dict": "override `get_metrics` of the progress bar callback",
}
"""By hook: what to write instead."""

_REFUSED = {f"{stage}_epoch_end": f"{stage}_step" for stage in ("training", "validation", "test")}
"""Those whose name is an error in Lightning, too, where the step runs. A module may have the others for itself."""

_OLD_ARGUMENTS = {
    **dict.fromkeys((*_REFUSED, "training_step_end", "validation_step_end", "test_step_end"), 1),
    "tbptt_split_batch": 2,
}
"""How many arguments the old hook was called with; the others without any."""

_NO_INDEX = "with several optimizers set `self.automatic_optimization = False` and take them from `self.optimizers()`"
REMOVED_PARAMETERS = {
    ("training_step", "optimizer_idx"): _NO_INDEX,
    ("optimizer_step", "optimizer_idx"): "write `optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure)`",
    ("optimizer_step", "on_tpu"): "write `optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure)`",
    ("backward", "optimizer_idx"): "write `backward(self, loss)`",
    ("on_before_optimizer_step", "optimizer_idx"): "write `on_before_optimizer_step(self, optimizer)`",
    ("configure_gradient_clipping", "optimizer_idx"): (
        "write `configure_gradient_clipping(self, optimizer, gradient_clip_val, gradient_clip_algorithm)`"
    ),
    ("lr_scheduler_step", "optimizer_idx"): "write `lr_scheduler_step(self, scheduler, metric)`",
    ("on_train_batch_start", "dataloader_idx"): "write `on_train_batch_start(self, batch, batch_idx)`",
    ("on_train_batch_end", "dataloader_idx"): "write `on_train_batch_end(self, outputs, batch, batch_idx)`",
}
"""By method and parameter: what to write instead."""


def require_current_hooks(model: nn.Module, base: type[nn.Module], steps: Collection[str]) -> None:
    """Warn of methods that nobody calls any more; raise for those that Lightning refuses, and for parameters nobody passes.

    Args:
        model: the user's module.
        base: LightningModule, whose own methods are up to date.
        steps: of the methods that will run, as in "training_step".

    Raises:
        MisconfigurationException: names the method and says what to write instead.
    """
    for name, instead in REMOVED_HOOKS.items():
        method = getattr(model, name, None)
        if not callable(method) or not _takes(method, _OLD_ARGUMENTS.get(name, 0)):
            continue
        told = f"`{type(model).__name__}.{name}` is a hook that Lightning 2.0 removed; it is not called. Instead, {instead}."
        if _REFUSED.get(name) in steps:
            raise MisconfigurationException(told)
        warnings.warn(f"{told} If it is a method of your own, ignore this.", PossibleUserWarning, stacklevel=4)
    for (name, parameter), instead in REMOVED_PARAMETERS.items():
        method = getattr(model, name, None)
        if callable(method) and overrides(model, name, base) and parameter in _required(method):
            raise OldInterfaceError(
                f"`{type(model).__name__}.{name}` takes `{parameter}`, which Lightning 2.0 removed. Remove the `{parameter}` "
                f"argument from `{name}`. Instead, {instead}."
            )


def _takes(method: Callable[..., object], count: int) -> bool:
    """Whether a method can be called as the old hook was: one that cannot (`on_epoch_end(self, outputs)`) is none."""
    try:
        inspect.signature(method).bind(*(None,) * count)
    except TypeError:
        return False
    return True


def _required(method: Callable[..., object]) -> set[str]:
    """The parameters without a default."""
    return {p.name for p in inspect.signature(method).parameters.values() if p.default is p.empty}
