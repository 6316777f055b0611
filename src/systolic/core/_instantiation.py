"""Objects from hyperparameters that a command line gave: class paths and their arguments become objects again."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TypeVar

from ..exceptions import MisconfigurationException
from ._given import CLASS_PATH_KEY, INSTANTIATOR, INSTANTIATOR_KEY, given_hyperparameters

T = TypeVar("T")

_TRUSTED = (INSTANTIATOR, "systolic.pytorch.cli.instantiate_module")


def is_instantiated(saved: Mapping[str, Any], cls: type) -> bool:
    """Whether hyperparameters of a checkpoint are data for `instantiate_module`, and not arguments of `__init__`.

    Args:
        saved: the hyperparameters.
        cls: the class that is to be built from them.

    Raises:
        ValueError: they name a function that is not known to do no harm, or a class that is not imported or not a `cls`.
    """
    path = saved.get(INSTANTIATOR_KEY)
    if path is None:
        return False
    if path not in _TRUSTED:
        raise ValueError(
            f"The checkpoint wants {cls.__name__} to be built by {path!r}. Expected {INSTANTIATOR!r}: another function could "
            "run any code. Load the file with torch.load, and build the object from its hyperparameters yourself."
        )
    class_path = saved.get(CLASS_PATH_KEY)
    if class_path is not None and not _is_imported_subclass(class_path, cls):
        raise ValueError(
            f"The checkpoint is of the class {class_path!r}. Expected a subclass of {cls.__name__} that is imported already: "
            "importing what a file names could run any code. Import the module that defines it, and load again."
        )
    return True


def _is_imported_subclass(class_path: object, cls: type) -> bool:
    found = _imported(class_path)
    return isinstance(found, type) and issubclass(found, cls)


def _imported(class_path: object) -> Any:
    module, _, name = str(class_path).rpartition(".")
    return getattr(sys.modules.get(module), name, None)


def instantiate_module(class_type: type[T], config: Mapping[str, Any]) -> T:
    """Build an object from the hyperparameters that `LightningCLI` saved.

    Args:
        class_type: the class, or a base of the class that `config` names by "_class_path".
        config: its arguments as plain data; an argument that is an object is a dict of "class_path" and "init_args".

    Returns:
        The object.

    Raises:
        MisconfigurationException: jsonargparse is not installed.

    Example:
        >>> instantiate_module(torch.nn.Linear, {"in_features": 2, "out_features": 3})
        Linear(in_features=2, out_features=3, bias=True)
    """
    try:
        from jsonargparse import ArgumentParser
    except ImportError as error:
        raise MisconfigurationException(
            f"The hyperparameters of this checkpoint of {class_type.__name__} came from a command line, and jsonargparse, "
            'which builds objects from them, is not installed. Install it with `pip install "systolic[cli]"`.'
        ) from error
    parser = ArgumentParser(exit_on_error=False)
    values = {name: value for name, value in config.items() if name not in (CLASS_PATH_KEY, INSTANTIATOR_KEY)}
    if CLASS_PATH_KEY in config:
        parser.add_subclass_arguments(class_type, "module", fail_untyped=False)
        values = {"class_path": config[CLASS_PATH_KEY], "dict_kwargs": values}
    else:
        parser.add_class_arguments(class_type, "module", fail_untyped=False)
    parsed = parser.parse_object({"module": values})
    cls = _imported(config[CLASS_PATH_KEY]) if CLASS_PATH_KEY in config else class_type
    kept = {name: value for name, value in config.items() if name != INSTANTIATOR_KEY}
    with given_hyperparameters(cls, kept):
        return parser.instantiate(parsed).module
