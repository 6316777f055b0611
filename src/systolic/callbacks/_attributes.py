"""Values that users keep under one name in the module, its hyperparameters, or the datamodule."""

from __future__ import annotations

from typing import Any

from ._tuning_protocol import TuningTrainerLike


def holders(trainer: TuningTrainerLike, name: str) -> list[Any]:
    """The objects and dicts that have such a value: the module, `module.hparams`, the datamodule, its `hparams`."""
    found: list[Any] = []
    for owner in (trainer.lightning_module, trainer.datamodule):
        if owner is None:
            continue
        if hasattr(owner, name):  # of its class, too, and computed ones: as Lightning looks for them
            found.append(owner)
        if name in owner.hparams:
            found.append(owner.hparams)
    return found


def value_of(holder: object, name: str) -> Any:
    """The value in one of the `holders`."""
    return holder[name] if isinstance(holder, dict) else getattr(holder, name)


def set_everywhere(found: list[Any], name: str, value: object) -> None:
    """Set the value in all of the `holders`."""
    for holder in found:
        if isinstance(holder, dict):
            holder[name] = value
        else:
            setattr(holder, name, value)
