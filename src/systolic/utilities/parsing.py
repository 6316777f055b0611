"""Objects looked at by name: attributes of modules, methods that somebody has overridden, what can be pickled."""

from __future__ import annotations

import pickle
from typing import Any

from ._overrides import overrides

_BASES = ("LightningModule", "LightningDataModule", "Callback")  # by name: guests derive from Lightning's own


def is_picklable(obj: object) -> bool:
    """Whether an object can be pickled.

    Example:
        >>> is_picklable([1, 2]), is_picklable(lambda: None)
        (True, False)
    """
    try:
        pickle.dumps(obj)
    except (pickle.PickleError, AttributeError, RuntimeError, TypeError):
        return False
    return True


def is_overridden(method_name: str, instance: object | None = None, parent: type[object] | None = None) -> bool:
    """Whether an object has a method of its own in the place of its base class's.

    Args:
        method_name: the method.
        instance: the object; None counts as one without.
        parent: the class whose method counts as none; by default LightningModule, LightningDataModule or Callback, whichever
            the object derives from.

    Raises:
        ValueError: `parent` is None, and the object is none of the three.

    Example:
        >>> import systolic as L
        >>> class Module(L.LightningModule):
        ...     def training_step(self, batch): ...
        >>> is_overridden("training_step", Module()), is_overridden("validation_step", Module())
        (True, False)
    """
    if instance is None:
        return False
    if parent is None:
        parent = next((cls for cls in type(instance).__mro__ if cls.__name__ in _BASES), None)
    if parent is None:
        raise ValueError(f"Expected a parent: {type(instance).__name__} derives from none of {', '.join(_BASES)}.")
    return hasattr(parent, method_name) and overrides(instance, method_name, parent)


def lightning_hasattr(model: Any, attribute: str) -> bool:
    """Whether a module, its hyper-parameters or its datamodule's have an attribute."""
    return _holder(model, attribute) is not None


def lightning_getattr(model: Any, attribute: str) -> Any:
    """The value of an attribute of a module, of its hyper-parameters or of its datamodule's, whichever has it last.

    Raises:
        AttributeError: none of them has it.
    """
    holder = _require_holder(model, attribute)
    return holder[attribute] if isinstance(holder, dict) else getattr(holder, attribute)


def lightning_setattr(model: Any, attribute: str, value: object) -> None:
    """Set an attribute wherever a module, its hyper-parameters or its datamodule's have it.

    Raises:
        AttributeError: none of them has it.
    """
    _require_holder(model, attribute)
    for holder in _holders(model, attribute):
        if isinstance(holder, dict):
            holder[attribute] = value
        else:
            setattr(holder, attribute, value)


def _holders(model: Any, attribute: str) -> list[Any]:
    trainer = getattr(model, "_trainer", None)
    datamodule = getattr(trainer, "datamodule", None)
    found = [model] if hasattr(model, attribute) else []
    for owner in (model, datamodule):
        hparams = getattr(owner, "hparams", None)
        if hparams is not None and attribute in hparams:
            found.append(hparams)
    if datamodule is not None and hasattr(datamodule, attribute):
        found.append(datamodule)
    return found


def _holder(model: Any, attribute: str) -> Any:
    found = _holders(model, attribute)
    return found[-1] if found else None


def _require_holder(model: Any, attribute: str) -> Any:
    holder = _holder(model, attribute)
    if holder is None:
        raise AttributeError(f"{attribute} is neither an attribute of the model, nor of its hparams, nor of the datamodule.")
    return holder
