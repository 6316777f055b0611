"""`self.log`: where a value goes depends on the hook that logs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..compiler import HostResult, recorded_by_all, require_plain_text, tensor_behind
from ..exceptions import MisconfigurationException
from ..metrics import LogEntry, LogOptions, is_metric, metrics_of
from ..metrics._results import as_scalar
from ._stage import Stage, TrainerFn

if TYPE_CHECKING:
    from ._run import Run


def log_value(run: Run, name: str, value: Any, options: LogOptions) -> None:
    """Record a logged value, in the step that is running or, from a hook on the host, at once."""
    if not isinstance(name, str):
        raise MisconfigurationException(f"The name of a logged value must be a string. Received: {name!r}.")
    require_plain_text(name)
    if "/dataloader_idx_" in name:
        raise MisconfigurationException(
            f"You called `self.log` with the key `{name}`, which is what values of several loaders are called: such an "
            "ending is "
            "added where there are several. Choose another name."
        )
    if is_metric(value) and options.metric_attribute is None:
        _require_attribute(run, name, value)
    if run.step_log is None:
        _log_on_host(run, name, value, options)
        return
    value = tensor_behind(value)  # np.mean of an array in the step
    method, log = run.step_log
    if method == Stage.PREDICT.step:
        raise MisconfigurationException(
            "self.log(...) is not possible in `predict_step`: predictions have no epoch values. Return the value, or "
            "evaluate with validation_step or test_step."
        )
    in_training = method == Stage.FIT.step
    on_step, on_epoch = _levels(name, options, in_training)
    loader = _loader(run, in_training)
    hook = run.hooks.running[0] or method
    asked = LogEntry(
        _full_name(name, loader, options),
        on_step,
        on_epoch,
        options.prog_bar,
        options.logger,
        options.reduction,
        hook=hook,
        loader=loader,
        metric=value if is_metric(value) else None,
    )
    if isinstance(value, HostResult):
        weight = (options.batch_size or log.batch_size()) if on_epoch and options.reduction == "mean" else 1
        recorded_by_all(log_after_step, run, asked, value, weight, in_training)
        return
    log.add(log.results.entry(asked), value, options.batch_size, hook)


def log_after_step(run: Run, entry: LogEntry, result: object, weight: float | torch.Tensor, in_training: bool) -> None:
    """After the step: log what a function of `systolic.host` gave for it."""
    number = as_scalar(entry.name, result).cpu()
    run.reporting.host_batch_value(entry, number, float(weight), in_training)


def _levels(name: str, options: LogOptions, steps: bool) -> tuple[bool, bool]:
    """Whether single values and whether their reduction are reported; by default one of them, `steps` says which."""
    on_step = steps if options.on_step is None else options.on_step
    on_epoch = not steps if options.on_epoch is None else options.on_epoch
    if not on_step and not on_epoch:
        raise MisconfigurationException(
            f"self.log({name!r}, ..., on_step=False, on_epoch=False) is not useful: it would report nothing. Set one of them "
            "to True."
        )
    return on_step, on_epoch


def _require_attribute(run: Run, name: str, metric: object) -> None:
    """Refuse a metric that is nowhere in the module: nobody would reset it, save it or move it to the devices."""
    found = dict(metrics_of(run.module))
    if any(one is metric for one in found.values()):
        return
    others = f", as {list(found)} are, or say which one it is: metric_attribute=..." if found else ": self.metric = ..."
    raise MisconfigurationException(
        f"`self.log({name!r}, {metric})`: expected a metric that is an attribute of {type(run.module).__name__}. Received: one "
        f"that is none. Make it an attribute in `__init__`{others}"
    )


def _loader(run: Run, in_training: bool) -> int | None:
    """The evaluation loader whose batch is being evaluated, where there are several."""
    evaluated = run.evaluated
    return evaluated.current if not in_training and evaluated is not None and evaluated.count > 1 else None


def _full_name(name: str, loader: int | None, options: LogOptions) -> str:
    return name if loader is None or not options.add_dataloader_idx else f"{name}/dataloader_idx_{loader}"


_BATCH_STARTS, _BATCH_ENDS = {stage.batch_start for stage in Stage}, {stage.batch_end for stage in Stage}
"""The hooks that run for each batch; the first argument of the latter is the step's output."""


def _log_on_host(run: Run, name: str, value: Any, options: LogOptions) -> None:
    """Record a value that a hook logs on the host, with the defaults that Lightning has for that hook."""
    if run.state.fn is None or run.state.fn is TrainerFn.PREDICTING:
        raise MisconfigurationException(
            f"self.log({name!r}, ...) was called where nothing is logged. Call it from a training or evaluation hook."
        )
    hook, arguments = run.hooks.running
    of_batch = hook in _BATCH_STARTS | _BATCH_ENDS
    if options.on_step and not of_batch:
        raise MisconfigurationException(
            f"self.log({name!r}, ..., on_step=True) was called in {hook or 'no hook'}, which does not run for each step. "
            "Leave `on_step` out, or log the value in on_train_batch_end."
        )
    if is_metric(value):
        value = value.compute()
    number = as_scalar(name, value).cpu()  # host sync: user code logs a value of its own
    in_training = run.state.fn is TrainerFn.FITTING and not hook.startswith(("on_validation", "on_test"))
    loader = _loader(run, in_training) if of_batch else None
    on_step, on_epoch = _levels(name, options, of_batch and in_training)
    entry = LogEntry(
        _full_name(name, loader, options), on_step, on_epoch, options.prog_bar, options.logger, options.reduction, hook, loader
    )
    if not of_batch:
        run.reporting.host_value(entry, number, in_training)
        return
    weighs = entry.on_epoch and entry.reduction == "mean"
    batch = arguments[hook in _BATCH_ENDS]
    weight = (options.batch_size or run.rows_of(batch, in_training)) if weighs else 1
    run.reporting.host_batch_value(entry, number, weight, in_training)
