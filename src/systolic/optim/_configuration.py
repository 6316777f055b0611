"""Every form that `configure_optimizers` may return, read into one."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from ..exceptions import MisconfigurationException, OldInterfaceError
from ..utilities._suggest import suggest

_FORMS = (
    "an optimizer; a list of optimizers; ([optimizers], [schedulers]); a dict with 'optimizer' and optionally "
    "'lr_scheduler'; a sequence of such dicts; or None"
)


@dataclass
class LRSchedulerConfig:
    """A scheduler and when to advance it; Lightning's names.

    Attributes:
        scheduler: the scheduler.
        name: for LearningRateMonitor.
        interval: "epoch" or "step".
        frequency: every how many epochs or steps.
        reduce_on_plateau: whether it needs a metric.
        monitor: the metric's name.
        strict: whether a missing metric is an error.
    """

    scheduler: Any
    name: str | None = None
    interval: str = "epoch"
    frequency: int = 1
    reduce_on_plateau: bool = False
    monitor: str | None = None
    strict: bool = True


@dataclass
class OptimizerConfiguration:
    """Optimizers and schedulers that a module trains with."""

    optimizers: list[Optimizer] = field(default_factory=list)
    schedulers: list[LRSchedulerConfig] = field(default_factory=list)


def read_configuration(module: nn.Module, returned: object, automatic: bool) -> OptimizerConfiguration:
    """Read what `configure_optimizers` returned.

    Args:
        module: the module, whose parameters the optimizers are to have.
        returned: any of the forms that Lightning takes.
        automatic: whether the module uses automatic optimization.

    Raises:
        MisconfigurationException: another form, an unknown key, a plateau scheduler without monitor, several
            optimizers with automatic optimization, parameters that are not the module's, a scheduler of another optimizer.
    """
    configuration = _read(returned)
    if automatic and len(configuration.optimizers) > 1:
        raise OldInterfaceError(
            "Training with multiple optimizers is only supported with manual optimization. Set `self.automatic_optimization = "
            "False` in the module's __init__ and step the optimizers of `self.optimizers()` in training_step. Received: "
            f"{len(configuration.optimizers)} optimizers."
        )
    for optimizer in configuration.optimizers:
        _require_own_parameters(module, optimizer)
        _require_finite_rates(module, optimizer)
    if not automatic:
        _warn_of_what_nobody_reads(returned)
    for config in configuration.schedulers:
        if automatic:
            _require_steppable(config)
        _require_known_optimizer(config.scheduler, configuration.optimizers)
    if not configuration.optimizers:
        what = "None" if returned is None else "no optimizer"
        warnings.warn(
            f"`configure_optimizers` of {type(module).__name__} returned {what}: fit will run with no optimizer, and changes "
            "no parameter. To train, return an optimizer.",
            stacklevel=2,
        )
    return configuration


def _warn_of_what_nobody_reads(returned: object) -> None:
    """Warn of keys that say when and by what a scheduler steps: in manual optimization the module steps it itself."""
    if isinstance(returned, (list, tuple)) and len(returned) == 2 and isinstance(returned[1], (list, tuple)):
        given: Sequence[object] = returned[1]
    else:
        parts = returned if isinstance(returned, (list, tuple)) else [returned]
        given = [part.get("lr_scheduler") for part in parts if isinstance(part, dict)]
    for scheduler in given:
        keys = [key for key in ("reduce_on_plateau", "monitor", "strict") if isinstance(scheduler, dict) and key in scheduler]
        if keys:
            warnings.warn(
                f"The lr scheduler dict contains the key(s) {keys}, but the keys will be ignored in manual optimization: call "
                "`self.lr_schedulers().step()` where the scheduler is to step.",
                RuntimeWarning,
                stacklevel=5,
            )


def _require_known_optimizer(scheduler: object, optimizers: list[Optimizer]) -> None:
    """Refuse a scheduler that changes the learning rate of an optimizer which never steps."""
    own = getattr(scheduler, "optimizer", None)  # a scheduler of the user's own may have none
    if own is not None and not any(own is optimizer for optimizer in optimizers):
        raise MisconfigurationException(
            f"{type(scheduler).__name__} is attached with an optimizer that wasn't returned from `configure_optimizers`: "
            f"{type(own).__name__}. It returned: "
            f"{', '.join(type(optimizer).__name__ for optimizer in optimizers) or 'none'}. Return that "
            "optimizer, or make the scheduler with one of these."
        )


def _read(returned: object) -> OptimizerConfiguration:
    if returned is None:
        return OptimizerConfiguration()
    if isinstance(returned, Optimizer):
        return OptimizerConfiguration([returned])
    if isinstance(returned, dict):
        return _read_dict(returned)
    if isinstance(returned, (list, tuple)):
        if len(returned) == 2 and all(isinstance(part, (list, tuple)) for part in returned):
            optimizers = [_require_optimizer(optimizer) for optimizer in returned[0]]
            return OptimizerConfiguration(optimizers, [_read_scheduler(s) for s in returned[1]])
        if all(isinstance(part, dict) for part in returned):
            read = [_read_dict(part) for part in returned]
            return OptimizerConfiguration([r.optimizers[0] for r in read], [s for r in read for s in r.schedulers])
        if all(isinstance(part, Optimizer) for part in returned):
            return OptimizerConfiguration(list(returned))
    raise MisconfigurationException(
        f"Unknown configuration for model optimizers, returned by `configure_optimizers`. Expected {_FORMS}. Received: "
        f"{_short(returned)}."
    )


def _short(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"{type(value).__name__} of {', '.join(type(v).__name__ for v in value)}"
    return type(value).__name__


def _require_optimizer(optimizer: object) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        raise MisconfigurationException(
            f"`configure_optimizers` must return torch.optim.Optimizer objects. Received: {_short(optimizer)}."
        )
    return optimizer


def _read_dict(returned: dict[str, Any]) -> OptimizerConfiguration:
    _warn_of_keys(returned, "optimizer configuration", {"optimizer", "lr_scheduler", "monitor"})
    if not isinstance(returned.get("optimizer"), Optimizer):
        raise MisconfigurationException(
            "The dict returned by `configure_optimizers` needs the key 'optimizer' with a torch.optim.Optimizer. "
            f"Received: {_short(returned.get('optimizer'))}."
        )
    scheduler = returned.get("lr_scheduler")
    if scheduler is None:
        return OptimizerConfiguration([returned["optimizer"]])
    return OptimizerConfiguration([returned["optimizer"]], [_read_scheduler(scheduler, returned.get("monitor"))])


def _warn_of_keys(given: dict[str, Any], where: str, known: set[str]) -> None:
    """Pass over keys of somebody's own, as Lightning does, and refuse one that is probably misspelt."""
    unknown = [key for key in given if key not in known]
    for key in unknown:
        if meant := suggest(str(key), known):
            raise MisconfigurationException(f"Unknown key {key!r} in the {where}. Expected some of {sorted(known)}.{meant}")
    if unknown:
        told = f"Found unsupported keys in the {where}: {{{', '.join(map(repr, unknown))}}}. Expected some of {sorted(known)}."
        warnings.warn(f"{told} They are passed over.", RuntimeWarning, stacklevel=6)


def _read_scheduler(given: object, monitor: str | None = None) -> LRSchedulerConfig:
    if not isinstance(given, dict):
        config = LRSchedulerConfig(given, monitor=monitor)
    else:
        known = {f.name for f in fields(LRSchedulerConfig)}
        _warn_of_keys(given, "lr scheduler dict", known)
        if "scheduler" not in given:
            raise MisconfigurationException(
                "The lr scheduler dict must have the key \"scheduler\": it is the 'lr_scheduler' of `configure_optimizers`."
            )
        config = LRSchedulerConfig(**{"monitor": monitor, **{key: value for key, value in given.items() if key in known}})
    if config.interval not in ("epoch", "step"):
        raise MisconfigurationException(
            f'The "interval" key in lr scheduler dict must be "epoch" or "step". Received: {config.interval!r}.'
        )
    if not isinstance(config.frequency, int) or config.frequency < 1:
        raise MisconfigurationException(
            f"The 'frequency' of an lr_scheduler is an integer >= 1. Received: {config.frequency!r}."
        )
    config.reduce_on_plateau = config.reduce_on_plateau or isinstance(config.scheduler, ReduceLROnPlateau)
    return config


def _require_steppable(config: LRSchedulerConfig) -> None:
    """Refuse a scheduler that automatic optimization cannot step; in manual optimization the module steps it."""
    if not callable(getattr(config.scheduler, "step", None)):
        raise MisconfigurationException(
            "An lr_scheduler of `configure_optimizers` doesn't follow PyTorch's LRScheduler: it needs a method `step`. "
            f"Received: {_short(config.scheduler)}."
        )
    if config.reduce_on_plateau and config.monitor is None:
        raise MisconfigurationException(
            "`configure_optimizers` must include a monitor when a `ReduceLROnPlateau` scheduler is used: return "
            "{'optimizer': optimizer, 'lr_scheduler': scheduler, 'monitor': 'val_loss'}."
        )


def _require_finite_rates(module: nn.Module, optimizer: Optimizer) -> None:
    for number, group in enumerate(optimizer.param_groups):
        rate = group.get("lr")
        if isinstance(rate, int | float) and not math.isfinite(rate):
            raise MisconfigurationException(
                f"`configure_optimizers` of {type(module).__name__} returned {type(optimizer).__name__} with lr={rate} in its "
                f"parameter group {number}. Expected a finite number: the first step would make every weight NaN."
            )


def steps_on_host(optimizer: Optimizer) -> bool:
    """Whether an optimizer decides by values how often it computes the loss, so that its step cannot be one program.

    Args:
        optimizer: LBFGS and its subclasses do; a class of the user's own says so by an attribute `steps_on_host = True`.

    Example:
        >>> import torch
        >>> from systolic.optim import steps_on_host
        >>> steps_on_host(torch.optim.LBFGS([torch.zeros(3, requires_grad=True)]))
        True
    """
    return isinstance(optimizer, torch.optim.LBFGS) or getattr(optimizer, "steps_on_host", False) is True


def require_compilable(optimizers: Sequence[Optimizer], automatic: bool, processes: int) -> None:
    """Refuse optimizers that step on the host where they cannot.

    Args:
        optimizers: those that `configure_optimizers` returned.
        automatic: whether the module uses automatic optimization.
        processes: how many train together.

    Raises:
        MisconfigurationException: such an optimizer in manual optimization, or with several processes.
    """
    name = next((type(optimizer).__name__ for optimizer in optimizers if steps_on_host(optimizer)), None)
    if name is not None and not automatic:
        raise MisconfigurationException(
            f"{name} decides by values how often it computes the loss, and in manual optimization the whole training_step is "
            "one program. Remove `self.automatic_optimization = False` and return the loss from training_step, which "
            f"{name} then calls; or run in eager PyTorch with Trainer(compile=False)."
        )
    if name is not None and processes > 1:
        raise MisconfigurationException(
            f"{name} steps on the host, and trains in one process. Received: {processes} processes, each of which would decide "
            "by itself how often it computes the loss. Train with one process (all devices of one host), or take an optimizer "
            "that computes the loss once, such as AdamW."
        )


def _require_own_parameters(module: nn.Module, optimizer: Optimizer) -> None:
    if any(isinstance(p, torch.nn.parameter.UninitializedParameter) for g in optimizer.param_groups for p in g["params"]):
        raise MisconfigurationException(
            f"The optimizer {type(optimizer).__name__} holds parameters of lazy modules that have no shape yet. Run one batch "
            "through the module before the Trainer does."
        )
    own = {id(p) for p in module.parameters()}
    foreign = [p for group in optimizer.param_groups for p in group["params"] if id(p) not in own]
    if foreign:
        shapes = ", ".join(str(tuple(p.shape)) for p in foreign[:3])
        raise MisconfigurationException(
            f"The optimizer {type(optimizer).__name__} holds {len(foreign)} parameter(s) that do not belong to "
            f"{type(module).__name__} (shapes {shapes}). The compiled step trains the module's parameters: register "
            "the other module as an attribute of it, or make the optimizer from self.parameters()."
        )
