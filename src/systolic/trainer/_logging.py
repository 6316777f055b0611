"""`self.log`: where a value goes depends on the hook that logs it."""

from __future__ import annotations

import sys
from typing import Any

from ..data import batch_size_of
from ..exceptions import MisconfigurationException
from ..metrics import LogEntry
from ..metrics._results import as_scalar, reduction_name


def log_value(
    trainer: Any,
    module: Any,
    name: str,
    value: Any,
    prog_bar: bool,
    logger: bool,
    on_step: bool | None,
    on_epoch: bool | None,
    reduce_fx: Any,
    add_dataloader_idx: bool,
    batch_size: int | None,
) -> None:
    """Record a logged value, in the step that is running or, from a hook on the host, at once."""
    reduction = reduction_name(reduce_fx)
    if not isinstance(name, str):
        raise MisconfigurationException(f"The name of a logged value must be a string. Received: {name!r}.")
    if trainer._step_log is None:
        options = {"prog_bar": prog_bar, "logger": logger, "reduction": reduction}
        _log_on_host(trainer, name, value, on_step, on_epoch, add_dataloader_idx, batch_size, **options)
        return
    hook, log = trainer._step_log
    if hook == "predict_step":
        raise MisconfigurationException(
            "self.log(...) is not possible in `predict_step`: predictions have no epoch values. Return the value, or "
            "evaluate with validation_step or test_step."
        )
    in_training = hook == "training_step"
    options = {
        **_levels(name, on_step, on_epoch, in_training),
        "hook": trainer._hooks.running[0] or hook,
        "loader": _loader(trainer, in_training),
        "prog_bar": prog_bar,
        "logger": logger,
        "reduction": reduction,
        "metric": value if _is_metric(value) else None,
    }
    entry = log.results.entry(_full_name(name, options["loader"], add_dataloader_idx), **options)
    log.add(entry, value, batch_size)


def _levels(name: str, on_step: bool | None, on_epoch: bool | None, steps: bool) -> dict[str, bool]:
    """Whether single values and whether their reduction are reported; by default one of them, `steps` says which."""
    on_step, on_epoch = steps if on_step is None else on_step, not steps if on_epoch is None else on_epoch
    if not on_step and not on_epoch:
        raise MisconfigurationException(
            f"self.log({name!r}, ..., on_step=False, on_epoch=False) would report nothing. Set one of them to True."
        )
    return {"on_step": on_step, "on_epoch": on_epoch}


def _loader(trainer: Any, in_training: bool) -> int | None:
    """The evaluation loader whose batch is being evaluated, where there are several."""
    several = not in_training and trainer._collected is not None and trainer._collected[1] > 1
    return trainer._evaluated_loader if several else None


def _full_name(name: str, loader: int | None, add_dataloader_idx: bool) -> str:
    return name if loader is None or not add_dataloader_idx else f"{name}/dataloader_idx_{loader}"


_BATCH_HOOKS = ("_batch_start", "_batch_end")
"""Endings of the hooks that run for each batch."""


def _log_on_host(
    trainer: Any,
    name: str,
    value: Any,
    on_step: bool | None,
    on_epoch: bool | None,
    add_dataloader_idx: bool,
    batch_size: int | None,
    **options: Any,
) -> None:
    """Record a value that a hook logs on the host, with the defaults that Lightning has for that hook."""
    if trainer.state.fn is None or trainer.state.fn == "predict":
        raise MisconfigurationException(
            f"self.log({name!r}, ...) was called where nothing is logged. Call it from a training or evaluation hook."
        )
    hook, arguments = trainer._hooks.running
    of_batch = hook.endswith(_BATCH_HOOKS)
    if on_step and not of_batch:
        raise MisconfigurationException(
            f"self.log({name!r}, ..., on_step=True) was called in {hook or 'no hook'}, which does not run for each step. "
            "Leave `on_step` out, or log the value in on_train_batch_end."
        )
    if _is_metric(value):
        value = value.compute()
    number = as_scalar(name, value).cpu()  # host sync: user code logs a value of its own
    in_training = trainer.state.fn == "fit" and not hook.startswith(("on_validation", "on_test"))
    loader = _loader(trainer, in_training) if of_batch else None
    levels = _levels(name, on_step, on_epoch, of_batch and in_training)
    entry = LogEntry(_full_name(name, loader, add_dataloader_idx), **levels, **options, hook=hook, loader=loader)
    if not of_batch:
        trainer._reporting.host_value(entry, number, in_training)
        return
    weighs = entry.on_epoch and entry.reduction == "mean"
    batch = arguments[hook.endswith("_end")]
    weight = (batch_size or batch_size_of(batch)) if weighs else 1
    trainer._reporting.host_batch_value(entry, number, weight, in_training)


def _is_metric(value: Any) -> bool:
    """Whether a value is a torchmetrics object; torchmetrics is a guest and may not be installed."""
    torchmetrics = sys.modules.get("torchmetrics")
    return torchmetrics is not None and isinstance(value, torchmetrics.Metric)
