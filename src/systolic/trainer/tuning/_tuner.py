"""Looking for a learning rate or a batch size without training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...callbacks import BatchSizeFinder, Callback, LearningRateFinder
from ...callbacks.lr_finder import LRFinder
from ...exceptions import MisconfigurationException
from ...utilities.random_state import isolated_random_state
from .. import _data_checks, _guests
from .._run import Call, Run
from .._stage import STAGE_OF, Stage

if TYPE_CHECKING:
    from ...core import LightningDataModule, LightningModule
    from .._trainer import Trainer


class Tuner:
    """Finds a learning rate or a batch size for a module; the Trainer itself then trains with it.

    Args:
        trainer: a Trainer that has no such finder among its callbacks.

    Example:
        >>> quiet = dict(enable_progress_bar=False, enable_model_summary=False, logger=False)
        >>> tuner = Tuner(L.Trainer(accelerator="cpu", devices=1, max_epochs=3, **quiet))
        >>> found = tuner.lr_find(model, loader)
        Learning rate finder: lr = ...
        >>> rate = found.suggestion()
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def lr_find(
        self,
        model: LightningModule,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        dataloaders: Any = None,
        datamodule: LightningDataModule | None = None,
        method: str = "fit",
        min_lr: float = 1e-8,
        max_lr: float = 1,
        num_training: int = 100,
        mode: str = "exponential",
        early_stop_threshold: float | None = 4.0,
        update_attr: bool = True,
        attr_name: str = "",
    ) -> LRFinder | None:
        """Run a range test of learning rates; see `systolic.callbacks.LearningRateFinder`.

        Args:
            model: the module; its learning rate is set when `update_attr` is true.
            train_dataloaders: default: the module's or datamodule's.
            val_dataloaders: not used; there for scripts that pass them.
            dataloaders: of other methods than "fit", of which there are none.
            datamodule: where loaders come from.
            method: "fit".
            min_lr: the first learning rate.
            max_lr: the last one.
            num_training: how many steps lie between them.
            mode: "exponential" or "linear".
            early_stop_threshold: stop when the smoothed loss exceeds the best one this many times.
            update_attr: set the attribute.
            attr_name: its name, where it is neither `lr` nor `learning_rate`.

        Returns:
            The result; None in a quick development run.
        """
        if method != "fit" and method in STAGE_OF:
            raise MisconfigurationException(f"Expected method='fit': only training has learning rates. Received: {method!r}.")
        finder = LearningRateFinder(min_lr, max_lr, num_training, mode, early_stop_threshold, update_attr, attr_name)
        self._run(finder, model, train_dataloaders, val_dataloaders, dataloaders, datamodule, method, finder.lr_find)
        return finder.optimal_lr

    def scale_batch_size(
        self,
        model: LightningModule,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        dataloaders: Any = None,
        datamodule: LightningDataModule | None = None,
        method: str = "fit",
        mode: str = "power",
        steps_per_trial: int = 3,
        init_val: int = 2,
        max_trials: int = 25,
        batch_arg_name: str = "batch_size",
        margin: float = 0.05,
        max_val: int = 8192,
    ) -> int | None:
        """Find the largest batch size that fits; see `systolic.callbacks.BatchSizeFinder` for the other arguments.

        Args:
            model: the module.
            train_dataloaders: refused, as loaders are made anew; likewise `dataloaders`.
            val_dataloaders: of a fit.
            dataloaders: see `train_dataloaders`.
            datamodule: where loaders come from.
            method: "fit", "validate", "test" or "predict", for whose steps the batch is to fit.
            mode: "power" or "binsearch".
            steps_per_trial: how many steps to run with each size.
            init_val: the first size.
            max_trials: how many sizes to try.
            batch_arg_name: the attribute that holds the size.
            margin: with "binsearch", stay this part below the largest size that fits.
            max_val: never go above this size.

        Returns:
            The size, which the module's or datamodule's attribute has now, too.
        """
        finder = BatchSizeFinder(mode, steps_per_trial, init_val, max_trials, batch_arg_name, margin, max_val)
        find = finder.scale_batch_size
        self._run(finder, model, train_dataloaders, val_dataloaders, dataloaders, datamodule, method, find)
        return finder.optimal_batch_size

    def _run(
        self,
        finder: Callback,
        model: LightningModule,
        train_dataloaders: Any,
        val_dataloaders: Any,
        dataloaders: Any,
        datamodule: LightningDataModule | None,
        method: str,
        find: Callable[[Trainer, LightningModule], None],
    ) -> None:
        trainer, model = self._trainer, _guests.module(model)
        _require_fitting(method, train_dataloaders, val_dataloaders, dataloaders)
        stage = STAGE_OF[method]
        given, datamodule = _guests.data(train_dataloaders if stage is Stage.FIT else dataloaders, datamodule)
        if any(isinstance(callback, type(finder)) for callback in trainer.callbacks):
            raise ValueError(
                f"The Trainer is already configured with a `{type(finder).__name__}` callback. Remove it, or call "
                f"trainer.{method} without the tuner."
            )
        loaders = {stage: given}
        if stage is Stage.FIT:
            _data_checks.require_trainable(trainer.config, model)
            loaders[Stage.VALIDATE] = val_dataloaders
        call = Call(stage, model, datamodule, loaders)
        run = Run(trainer, trainer.config, call, trainer.run)
        # as in Lightning the user's random numbers are not drawn from: every search is the same, and training after it
        with run.running(), isolated_random_state():
            if stage is Stage.FIT:
                run.load_training_data(given)
                run.prepare_training()
            find(trainer, model)
            if run.enable_validation:
                run.evaluation_loaders(Stage.VALIDATE)  # with what was found, for who looks at `trainer.val_dataloaders`


def _require_fitting(method: str, train_dataloaders: object, val_dataloaders: object, dataloaders: object) -> None:
    """Refuse loaders of another method than the one that is tuned."""
    if method not in STAGE_OF:
        raise ValueError(f"Tuner: method {method!r} is invalid. Expected one of {', '.join(map(repr, STAGE_OF))}.")
    if method == "fit" and dataloaders is not None:
        raise MisconfigurationException(
            "Tuner: with method='fit' `dataloaders` has no meaning, please consider setting `train_dataloaders` and "
            "`val_dataloaders` instead."
        )
    if method != "fit" and (train_dataloaders is not None or val_dataloaders is not None):
        raise MisconfigurationException(
            f"Tuner: with method={method!r} `train_dataloaders` and `val_dataloaders` have no meaning, please consider setting "
            "`dataloaders` instead."
        )
