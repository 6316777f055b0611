"""What a call of the Trainer must not be given together, and what is probably missing."""

from __future__ import annotations

import warnings
from typing import Any

from ..core import LightningDataModule, LightningModule
from ..exceptions import MisconfigurationException, PossibleUserWarning
from ..utilities._overrides import overrides


def require_one_source(method: str, datamodule: LightningDataModule | None, **loaders: Any) -> None:
    """Refuse loaders next to a datamodule: the datamodule would be passed over.

    Args:
        method: "fit", "validate", "test" or "predict".
        datamodule: the call's argument.
        loaders: the call's other arguments by name.

    Raises:
        MisconfigurationException: both were given.
    """
    given = [name for name, value in loaders.items() if value is not None]
    if datamodule is not None and given:
        raise MisconfigurationException(
            f"trainer.{method} takes its data from `{given[0]}` or from `datamodule`. Received both: "
            f"{', '.join(f'{name}={type(loaders[name]).__name__}' for name in given)} and "
            f"datamodule={type(datamodule).__name__}. Leave one of them out."
        )


def warn_of_unused_validation(model: LightningModule, loaders: Any, datamodule: LightningDataModule | None) -> None:
    """Warn when fit will not validate although one half of what it needs is there."""
    has_step, name = overrides(model, "validation_step", LightningModule), type(model).__name__
    owner = datamodule if datamodule is not None else model
    has_data = loaders is not None or overrides(owner, "val_dataloader", LightningDataModule)
    if has_data and not has_step:
        warnings.warn(f"There is validation data, and {name} has no `validation_step`: fit does not validate.", stacklevel=3)
    if has_step and not has_data:
        warnings.warn(
            f"{name} has a `validation_step`, and there is no validation data: fit does not validate. Pass `val_dataloaders` "
            "to trainer.fit, or define `val_dataloader()`.",
            PossibleUserWarning,
            stacklevel=3,
        )
