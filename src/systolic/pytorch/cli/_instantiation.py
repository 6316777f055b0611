"""Objects from class paths, and the hyperparameters of those that the command line builds."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, get_type_hints

from jsonargparse import Namespace

from ...core import CLASS_PATH_KEY, given_hyperparameters

T = TypeVar("T")


class _Builder(Protocol):
    """The command line, as far as hyperparameters are concerned."""

    def plain_config(self) -> dict[str, Any]:
        """The configuration as plain data."""
        ...


class KeepingHyperparameters:
    """Builds the module or the data module of a command line, and lets it keep the configuration as its hyperparameters.

    Args:
        cli: the command line.
        key: the part of its configuration: "model" or "data".
    """

    def __init__(self, cli: _Builder, key: str) -> None:
        self._cli = cli
        self._key = key

    def __call__(self, class_type: type[T], *args: Any, applied_instantiation_links: dict[str, Any], **kwargs: Any) -> T:
        """Build an object of `class_type`; jsonargparse calls this with the arguments of `__init__`."""
        values: dict[str, Any] = self._cli.plain_config().get(self._key) or {}
        class_path = values.get("class_path")
        if class_path is not None:
            if class_path.rpartition(".")[2] != class_type.__name__:  # a module among the arguments of the module
                return class_type(*args, **kwargs)
            values = {CLASS_PATH_KEY: class_path, **values.get("init_args", {}), **values.get("dict_kwargs", {})}
        for target, value in applied_instantiation_links.items():
            key, _, path = target.partition(".")
            if key == self._key:
                _set(values, path.removeprefix("init_args.").split("."), value)
        with given_hyperparameters(class_type, values):
            return class_type(*args, **kwargs)


def _set(values: dict[str, Any], path: list[str], value: object) -> None:
    for key in path[:-1]:
        values = values[key]
    values[path[-1]] = value


def with_class_path(cls: type, init_args: Namespace | dict[str, Any] | None = None) -> dict[str, Any]:
    """Arguments of a class, with the class."""
    plain = init_args.as_dict() if isinstance(init_args, Namespace) else init_args
    return {"class_path": f"{cls.__module__}.{cls.__name__}", "init_args": plain or {}}


def instantiate_class(args: Any, init: dict[str, Any]) -> Any:
    """Build an object from the name of its class and its arguments.

    Args:
        args: its positional arguments, such as the parameters of an optimizer; a tuple of several.
        init: "class_path" is the class, "init_args" are its arguments by name.

    Returns:
        The object.

    Example:
        >>> init = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}}
        >>> optimizer = instantiate_class(torch.nn.Linear(2, 1).parameters(), init)
    """
    module, _, name = init["class_path"].rpartition(".")
    positional = args if isinstance(args, tuple) else (args,)
    return getattr(importlib.import_module(module), name)(*positional, **init.get("init_args", {}))


def returned_type(builder: type | Callable[..., object]) -> type:
    """The class itself, or the one that a function is annotated to return."""
    return builder if isinstance(builder, type) else get_type_hints(builder)["return"]
