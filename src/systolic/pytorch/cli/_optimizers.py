"""Optimizers and schedulers of the command line: linked to the module's arguments, or made for `configure_optimizers`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from types import MethodType
from typing import Any, Protocol

from jsonargparse import Namespace
from torch.optim import Optimizer

from ...core import LightningModule
from ...exceptions import MisconfigurationException
from ...utilities._overrides import overrides
from ._instantiation import instantiate_class, with_class_path
from ._parser import Group, LightningArgumentParser
from ._types import LRSchedulerTypeUnion, ReduceLROnPlateau

AUTOMATIC = "AUTOMATIC"


class Configure(Protocol):
    """Makes the value of `configure_optimizers`; it is `LightningCLI.configure_optimizers`, or what overrides it."""

    def __call__(
        self, lightning_module: LightningModule, optimizer: Optimizer, lr_scheduler: LRSchedulerTypeUnion | None = None
    ) -> Any:
        """The value of `configure_optimizers` of a module."""
        ...


def returned_value(optimizer: Optimizer, lr_scheduler: LRSchedulerTypeUnion | None) -> Any:
    """The value of `configure_optimizers` for an optimizer and a scheduler."""
    if lr_scheduler is None:
        return optimizer
    if isinstance(lr_scheduler, ReduceLROnPlateau):
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": lr_scheduler, "monitor": lr_scheduler.monitor}}
    return [optimizer], [lr_scheduler]


def link(parser: LightningArgumentParser) -> None:
    """Link groups of arguments to those that `link_to` names."""
    for key, (classes, target) in {**parser.optimizer_groups, **parser.lr_scheduler_groups}.items():
        if target == AUTOMATIC:
            continue
        if isinstance(classes, tuple):
            parser.link_arguments(key, target)
        else:
            parser.link_arguments(key, target, compute_fn=functools.partial(with_class_path, classes))


def configure_automatically(
    cli_class: type, parser: LightningArgumentParser, config: Mapping[str, Any], model: LightningModule, configure: Configure
) -> None:
    """Give a module a `configure_optimizers` that returns the optimizer and scheduler of the command line, if there are any.

    Args:
        cli_class: the class of the command line; messages name it.
        parser: the parser with the groups of arguments.
        config: what was parsed.
        model: the module.
        configure: makes the value of `configure_optimizers`.

    Raises:
        MisconfigurationException: there are two optimizers, or two schedulers, and nothing says what becomes of them.
    """
    optimizers, schedulers = _automatic(parser.optimizer_groups), _automatic(parser.lr_scheduler_groups)
    if not optimizers:
        return
    if len(optimizers) > 1 or len(schedulers) > 1:
        raise MisconfigurationException(
            f"`{cli_class.__name__}` expects at most one optimizer and one lr_scheduler to be 'AUTOMATIC', but found "
            f"{optimizers + schedulers}. Give the others `link_to=` an argument of the module, and implement "
            "`configure_optimizers`."
        )
    chosen = _chosen(parser.optimizer_groups, optimizers[0], config)
    if not chosen:
        return
    if overrides(model, "configure_optimizers", LightningModule):
        warnings.warn(
            f"`{type(model).__name__}.configure_optimizers` will be overridden by `{cli_class.__name__}.configure_optimizers`.",
            stacklevel=2,
        )
    optimizer = instantiate_class(model.parameters(), chosen)
    scheduled = _chosen(parser.lr_scheduler_groups, schedulers[0], config) if schedulers else None
    scheduler = instantiate_class(optimizer, scheduled) if scheduled else None
    function = functools.partial(configure, optimizer=optimizer, lr_scheduler=scheduler)
    functools.update_wrapper(function, configure)
    model.configure_optimizers = MethodType(function, model)


def _automatic(groups: Mapping[str, Group]) -> list[str]:
    return [key for key, (_, target) in groups.items() if target == AUTOMATIC]


def _chosen(groups: Mapping[str, Group], key: str, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The class and arguments of a group; None where the command line gave none."""
    found: Namespace | dict[str, Any] | None = config.get(key)
    classes = groups[key][0]
    if not isinstance(classes, tuple):
        return with_class_path(classes, found)
    return found.as_dict() if isinstance(found, Namespace) else found
