"""Finding the largest batch that fits."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ..core import LightningModule
from ..exceptions import MisconfigurationException, OutOfMemoryError
from ..utilities._host_memory import available_bytes
from ..utilities._suggest import suggest
from ..utilities.memory import is_oom_error
from ..utilities.rank_zero import rank_zero_info
from ._attributes import holders, set_everywhere, value_of
from ._protocol import DeviceTrainerLike
from ._tuning_protocol import TuningTrainerLike
from .callback import Callback

_MODES = ("power", "binsearch")


class BatchSizeFinder(Callback):
    """Before training, or an evaluation, find the largest batch size that fits, and run with it.

    Each size is compiled first: what XLA says the step needs is compared with the device's memory, so a size that does not
    fit is noticed before anything runs into the limit. Sizes that fit are run for `steps_per_trial` steps; an error about
    memory then counts as not fitting, too. Weights, optimizers and random generators are put back after each trial.

    The loader must come from the module's or datamodule's `train_dataloader` (or that of the evaluation), which reads the size
    from an attribute.

    Args:
        mode: "power" doubles until it does not fit; "binsearch" then searches between the last two sizes.
        steps_per_trial: how many steps to run with each size.
        init_val: the first size.
        max_trials: how many sizes to try.
        batch_arg_name: the attribute (or hyperparameter) of the module or datamodule that holds the size.
        margin: with "binsearch", stay this part below the largest size that fits.
        max_val: never go above this size.
        device_memory: bytes to fill on each device; default: what the device reports, on a CPU the memory that is free.
            Of these 90% may be used, as fragments and the next batch need room, too.

    Attributes:
        optimal_batch_size: what was found.

    Raises:
        MisconfigurationException: the attribute is not found, loaders were passed to the call, or an evaluation has several.
        OutOfMemoryError: not even a batch of one sample fits.

    Example:
        >>> finder = BatchSizeFinder(mode="binsearch", init_val=8)
    """

    def __init__(
        self,
        mode: str = "power",
        steps_per_trial: int = 3,
        init_val: int = 2,
        max_trials: int = 25,
        batch_arg_name: str = "batch_size",
        margin: float = 0.05,
        max_val: int = 8192,
        device_memory: int | None = None,
    ) -> None:
        if mode not in _MODES:
            raise ValueError(f"BatchSizeFinder(mode={mode!r}): `mode` should be either of {_MODES}.{suggest(mode, _MODES)}")
        if not 0.0 <= margin < 1.0:
            raise ValueError(f"BatchSizeFinder(margin={margin!r}): expected a number from 0 up to, not including, 1.")
        self.optimal_batch_size: int | None = init_val
        self._mode, self._init_val, self._max_trials = mode, init_val, max_trials
        self._steps_per_trial, self._name = steps_per_trial, batch_arg_name
        self._margin, self._max_val = margin, max_val
        self._device_memory = device_memory

    def on_fit_start(self, trainer: TuningTrainerLike, pl_module: LightningModule) -> None:
        """Search."""
        self.scale_batch_size(trainer, pl_module)

    def on_validation_start(self, trainer: TuningTrainerLike, pl_module: LightningModule) -> None:
        """Search, before `trainer.validate`; validations of a fit take what training has found."""
        if trainer.state.fn == "validate":
            self.scale_batch_size(trainer, pl_module)

    def on_test_start(self, trainer: TuningTrainerLike, pl_module: LightningModule) -> None:
        """Search."""
        self.scale_batch_size(trainer, pl_module)

    def on_predict_start(self, trainer: TuningTrainerLike, pl_module: LightningModule) -> None:
        """Search."""
        self.scale_batch_size(trainer, pl_module)

    def scale_batch_size(self, trainer: TuningTrainerLike, pl_module: LightningModule) -> None:
        """Search now; to be called between steps of `fit`, for instance in `on_train_epoch_start`."""
        if trainer.fast_dev_run:
            warnings.warn("Skipping batch size scaler since `fast_dev_run` is enabled.", stacklevel=2)
            return
        found = self._require_attribute(trainer)
        before, limit = value_of(found[0], self._name), self._limit(trainer)

        def works(size: int) -> bool:
            set_everywhere(found, self._name, size)
            try:
                trainer.tuning.reload_data()
                trainer.tuning.trial(self._steps_per_trial, [], memory_limit=limit)
            except (RuntimeError, MemoryError) as error:
                if not is_oom_error(error):
                    set_everywhere(found, self._name, before)
                    raise
                return False
            return True

        samples = trainer.tuning.samples()
        largest = min(self._max_val, samples or self._max_val)
        best = search(works, self._mode, min(self._init_val, largest), largest, self._max_trials, rank_zero_info)
        if best == samples:
            rank_zero_info(f"The batch size {best} is greater or equal than the length of your dataset: {samples}.")
        if self._mode == "binsearch":
            best = max(1, int(best * (1 - self._margin)))
        set_everywhere(found, self._name, best)
        trainer.tuning.reload_data()
        self.optimal_batch_size = best
        rank_zero_info(f"Finished batch size finder, will continue with full run using {self._name} = {best}")

    def _require_attribute(self, trainer: TuningTrainerLike) -> list[Any]:
        tuning = trainer.tuning
        if tuning.loaders_given:
            raise MisconfigurationException(
                "Batch size finder cannot be used with dataloaders passed directly to the call, as it makes new ones. Define "
                f"`{tuning.loader_method}()` in the module or in a datamodule, with batch_size=self.{self._name}."
            )
        if tuning.loaders != 1:
            raise MisconfigurationException(
                f"Batch size finder cannot be used with multiple {tuning.loader_method.split('_')[0]} dataloaders. Expected "
                f"one from `{tuning.loader_method}()`. Received: {tuning.loaders}."
            )
        found = holders(trainer, self._name)
        if not found:
            raise MisconfigurationException(
                f"The batch size finder looked for {self._name!r} in the module, its hparams and the datamodule, and found "
                f"none. Add the attribute and use it in `{tuning.loader_method}`, or name it with `batch_arg_name`."
            )
        module = trainer.lightning_module
        if module is not None and hasattr(module, self._name) and self._name in module.hparams:
            warnings.warn(
                f"Field `model.{self._name}` and `model.hparams.{self._name}` are mutually exclusive! Both are set to the size "
                "that is found. Remove the one that the loader does not read.",
                stacklevel=2,
            )
        return found

    def _limit(self, trainer: DeviceTrainerLike) -> int | None:
        if self._device_memory is not None or not trainer.devices:
            memory = self._device_memory
        elif trainer.devices[0].platform == "cpu":
            free = available_bytes()
            memory = None if free is None else free // len(trainer.devices)
        else:
            memory = (trainer.devices[0].memory_stats() or {}).get("bytes_limit")
        return None if memory is None else int(memory * 0.9)


def search(
    works: Callable[[int], bool], mode: str, first: int, largest: int, trials: int, tell: Callable[[str], None] | None = None
) -> int:
    """The largest size that works, found by doubling, and by halving intervals in the mode "binsearch".

    Args:
        works: tries a size.
        mode: "power" or "binsearch".
        first: the first size.
        largest: no larger one is tried.
        trials: how many sizes to try at most; more are tried only while none has worked.
        tell: called with a line for each size that is not the last.

    Raises:
        OutOfMemoryError: nothing works.

    Example:
        >>> search(lambda size: size <= 100, "power", 2, 1000, 25), search(lambda size: size <= 100, "binsearch", 2, 1000, 25)
        (64, 100)
    """
    low, high, size = 0, largest + 1, first
    while True:
        trials -= 1
        fits = works(size)
        if fits:
            low = size
        else:
            high = size
        if low == 0 and high == 1:
            raise OutOfMemoryError("Not even a batch of one sample fits into the memory of the devices.")
        doubling = high > largest
        if high - low <= 1 or (low and (trials <= 0 or (mode == "power" and not doubling))):
            return low
        tried, size = size, min(2 * low, largest) if doubling else (low + high) // 2
        if tell is not None:
            tell(f"Batch size {tried} {'succeeded' if fits else 'failed'}, trying batch size {size}")
