"""The parser of a command line: jsonargparse's, which knows modules, callbacks, optimizers and schedulers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jsonargparse import ArgumentParser, register_unresolvable_import_paths, set_parsing_settings
from jsonargparse.typing import class_from_function
from torch.optim import Optimizer

from ...callbacks import Callback
from ...core import LightningDataModule, LightningModule
from ...exceptions import MisconfigurationException
from ...trainer import Trainer
from ._types import LRSchedulerType, LRSchedulerTypeTuple

# some functions of PyTorch have a `__module__` in which they cannot be found
register_unresolvable_import_paths(torch)
set_parsing_settings(config_read_mode_fsspec_enabled=True)

_CONFIGURABLE = (Trainer, LightningModule, LightningDataModule, Callback)

Configurable = Trainer | LightningModule | LightningDataModule | Callback
Group = tuple[type | tuple[type, ...], str]
"""The class or classes of a group of arguments, and the argument that it is linked to, or "AUTOMATIC"."""


class LightningArgumentParser(ArgumentParser):
    """A parser of arguments and configuration files.

    Args:
        *args: arguments of jsonargparse's parser.
        description: what `--help` begins with.
        env_prefix: what names of environment variables begin with, where they are read.
        default_env: read arguments from environment variables, too.
        **kwargs: further arguments of jsonargparse's parser.

    Attributes:
        callback_keys: keys of the callbacks that were added.

    Example:
        >>> parser = LightningArgumentParser()
        >>> keys = parser.add_lightning_class_args(L.callbacks.EarlyStopping, "early_stopping")
    """

    def __init__(
        self,
        *args: Any,
        description: str = "Lightning Trainer command line tool",
        env_prefix: str = "PL",
        default_env: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, description=description, env_prefix=env_prefix, default_env=default_env, **kwargs)
        self.callback_keys: list[str] = []
        self._optimizers: dict[str, Group] = {}
        self._lr_schedulers: dict[str, Group] = {}

    @property
    def optimizer_groups(self) -> dict[str, Group]:
        """Groups of arguments that `add_optimizer_args` made, by key."""
        return self._optimizers

    @property
    def lr_scheduler_groups(self) -> dict[str, Group]:
        """Groups of arguments that `add_lr_scheduler_args` made, by key."""
        return self._lr_schedulers

    def add_lightning_class_args(
        self,
        lightning_class: type[Configurable] | Callable[..., Configurable],
        nested_key: str,
        subclass_mode: bool = False,
        required: bool = True,
    ) -> list[str]:
        """Add the arguments of a Trainer, module, data module or callback.

        Args:
            lightning_class: the class, or a function that returns such an object and says so by its annotation.
            nested_key: the key that the arguments stand under.
            subclass_mode: take the name of any subclass, and then its arguments.
            required: whether one has to be given, in subclass mode.

        Returns:
            The names of the arguments.

        Raises:
            MisconfigurationException: the class is of another kind.
        """
        found = lightning_class if isinstance(lightning_class, type) else class_from_function(lightning_class)
        if not issubclass(found, _CONFIGURABLE):
            raise MisconfigurationException(
                f"Cannot add arguments from: {lightning_class}. Expected a subclass of Trainer, LightningModule, "
                "LightningDataModule or Callback, or a function that is annotated to return one."
            )
        if issubclass(found, Callback):
            self.callback_keys.append(nested_key)
        if subclass_mode:
            self.add_subclass_arguments(found, nested_key, fail_untyped=False, required=required)
            return [nested_key]
        is_trainer = issubclass(found, Trainer)
        return self.add_class_arguments(found, nested_key, fail_untyped=False, instantiate=not is_trainer, sub_configs=True)

    def add_optimizer_args(
        self,
        optimizer_class: type[Optimizer] | tuple[type[Optimizer], ...] = (Optimizer,),
        nested_key: str = "optimizer",
        link_to: str = "AUTOMATIC",
    ) -> None:
        """Add the arguments of an optimizer.

        Args:
            optimizer_class: the class; a tuple takes the name of any subclass of its classes.
            nested_key: the key that the arguments stand under.
            link_to: an argument that gets them; "AUTOMATIC" makes the optimizer of `configure_optimizers` from them.
        """
        self._require_subclasses(optimizer_class, (Optimizer,), "optimizer")
        self._add(optimizer_class, nested_key, skip="params")
        self._optimizers[nested_key] = (optimizer_class, link_to)

    def add_lr_scheduler_args(
        self,
        lr_scheduler_class: LRSchedulerType | tuple[LRSchedulerType, ...] = LRSchedulerTypeTuple,
        nested_key: str = "lr_scheduler",
        link_to: str = "AUTOMATIC",
    ) -> None:
        """Add the arguments of a scheduler of the learning rate.

        Args:
            lr_scheduler_class: the class; a tuple takes the name of any subclass of its classes.
            nested_key: the key that the arguments stand under.
            link_to: an argument that gets them; "AUTOMATIC" makes the scheduler of `configure_optimizers` from them.
        """
        self._require_subclasses(lr_scheduler_class, LRSchedulerTypeTuple, "lr_scheduler")
        self._add(lr_scheduler_class, nested_key, skip="optimizer")
        self._lr_schedulers[nested_key] = (lr_scheduler_class, link_to)

    def _add(self, classes: type | tuple[type, ...], nested_key: str, skip: str) -> None:
        if isinstance(classes, tuple):
            self.add_subclass_arguments(classes, nested_key, instantiate=False, fail_untyped=False, skip={skip})
        else:
            self.add_class_arguments(classes, nested_key, instantiate=False, fail_untyped=False, skip={skip}, sub_configs=True)

    @staticmethod
    def _require_subclasses(classes: type | tuple[type, ...], bases: tuple[type, ...], argument: str) -> None:
        given = classes if isinstance(classes, tuple) else (classes,)
        wrong = [one for one in given if not issubclass(one, bases)]
        if wrong:
            expected = " or ".join(base.__name__ for base in bases)
            raise MisconfigurationException(
                f"`{argument}_class` expects subclasses of {expected}. Received: {', '.join(one.__name__ for one in wrong)}."
            )
