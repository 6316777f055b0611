"""Checks of what fit needs of a module, what a call must not be given together, and what is probably missing."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ..core import LightningDataModule, LightningModule
from ..exceptions import MisconfigurationException, PossibleUserWarning
from ..utilities._overrides import overrides
from ._config import TrainerConfig
from ._defaults import require_module
from ._stage import Stage

if TYPE_CHECKING:
    from ._run import Run


def require_trainable(config: TrainerConfig, model: Any) -> None:
    """Raise for a module without training_step or configure_optimizers, or that does what the trainer is asked to do."""
    require_module(model)
    for name in ("training_step", "configure_optimizers"):
        if not overrides(model, name, LightningModule):
            raise MisconfigurationException(f"No `{name}()` method defined: {type(model).__name__} needs it for trainer.fit.")
    if model.automatic_optimization:
        return
    if config.gradient_clip_val:
        raise MisconfigurationException(
            "Automatic gradient clipping is not supported for manual optimization: remove "
            f"Trainer(gradient_clip_val={config.gradient_clip_val}) and call self.clip_gradients(optimizer, "
            "gradient_clip_val=...) in training_step."
        )
    if config.accumulate_grad_batches > 1:
        raise MisconfigurationException(
            "Automatic gradient accumulation is not supported for manual optimization: remove "
            f"Trainer(accumulate_grad_batches={config.accumulate_grad_batches}) and step the optimizer every N-th batch in "
            "training_step."
        )


def require_predictable(model: LightningModule) -> None:
    """Raise for a module that has nothing to predict with."""
    if getattr(model, "predict_step", None) is None:
        raise MisconfigurationException(f"{type(model).__name__}.predict_step is None: `predict_step` cannot be None.")
    if not overrides(model, "predict_step", LightningModule) and getattr(model, "forward", None) is None:
        raise MisconfigurationException(
            f"trainer.predict requires `forward` method to run, or a `predict_step`, and {type(model).__name__} has neither."
        )


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
    has_data = has_loaders(Stage.VALIDATE, loaders, model, datamodule)
    if has_data and not has_step:
        warnings.warn(
            f"You passed in a `val_dataloader` but have no `validation_step` in {name}: fit does not validate.", stacklevel=3
        )
    if has_step and not has_data:
        warnings.warn(
            f"You defined a `validation_step` but have no `val_dataloader` for {name}: fit does not validate. Pass "
            "`val_dataloaders` "
            "to trainer.fit, or define `val_dataloader()`.",
            PossibleUserWarning,
            stacklevel=3,
        )


def warn_of_rare_logs(run: Run) -> None:
    """Warn when an epoch is shorter than the interval between two logged steps."""
    batches, every = run.num_training_batches, run.config.log_every_n_steps
    if batches < every and run.config.loggers and not run.config.fast_dev_run:
        warnings.warn(
            f"The number of training batches ({batches}) is smaller than the logging interval "
            f"Trainer(log_every_n_steps={every}): there are epochs of whose steps the loggers get no value. Set it lower to "
            "see them.",
            PossibleUserWarning,
            stacklevel=4,
        )


_COLLATION = "stack expects each tensor to be equal size"


def explain_batch(error: BaseException) -> None:
    """Add what to do to an error of PyTorch's collation."""
    if isinstance(error, RuntimeError) and _COLLATION in str(error):
        error.add_note(
            "The samples of a batch have different shapes. systolic.data.PadCollate pads them to a few lengths: "
            "DataLoader(..., collate_fn=PadCollate(...)); see docs/ragged.md."
        )


def warn_of_few(told: int | float, seen: int, epoch: int) -> None:
    """Warn when an epoch had fewer batches than the loader has by its `__len__`, or none after one that had some.

    Args:
        told: how many there should have been; infinity where the loader does not know.
        seen: how many there were.
        epoch: from 0.
    """
    if not seen:
        warnings.warn(
            f"Epoch {epoch} had no batch, and earlier ones had: `train_dataloaders` can be read once, as generators and "
            "iterators can. Pass an object whose `__iter__` begins anew, such as a DataLoader.",
            stacklevel=4,
        )
    elif told != float("inf") and seen < told:
        warnings.warn(
            f"`train_dataloaders` says by its `__len__` that it has {told} batches, and epoch {epoch} ended after {seen}. Is "
            "`__len__` right, and does no sample raise StopIteration? What the last batch of an epoch brings did not happen.",
            stacklevel=4,
        )


def has_loaders(stage: Stage, given: Any, model: LightningModule, datamodule: LightningDataModule | None) -> bool:
    """Whether there are loaders of a stage: given, or made by the datamodule, or without one by the module."""
    owner, base = (model, LightningModule) if datamodule is None else (datamodule, LightningDataModule)
    return given is not None or overrides(owner, stage.loader, base)
