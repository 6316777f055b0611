"""Finding a learning rate to start with."""

from __future__ import annotations

import importlib
import importlib.util
import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from ..core import LightningModule
from ..exceptions import MisconfigurationException, MissingAttributeError
from ..utilities._suggest import suggest
from ._attributes import holders, set_everywhere
from ._console import say
from ._protocol import AccumulatingTrainerLike, TrainerLike
from ._tuning_protocol import TuningTrainerLike
from .callback import Callback

_SMOOTHING = 0.98


class LRFinder:
    """Result of a range test.

    Attributes:
        mode: "exponential" or "linear".
        results: `"lr"` and `"loss"`: the learning rates, and the smoothed losses with them.
    """

    def __init__(self, mode: str, lr_min: float, lr_max: float, num_training: int) -> None:
        self.mode, self.lr_min, self.lr_max, self.num_training = mode, lr_min, lr_max, num_training
        self.results: dict[str, list[float]] = {"lr": [], "loss": []}

    def rate(self, step: int) -> float:
        """The learning rate of a step, as Lightning's range test has it."""
        part = (step + 1) / self.num_training if step else 0.0
        if self.mode == "linear":
            return self.lr_min + part * (self.lr_max - self.lr_min)
        return self.lr_min * (self.lr_max / self.lr_min) ** part

    def suggestion(self, skip_begin: int = 10, skip_end: int = 1) -> float | None:
        """The learning rate at which the loss fell fastest.

        Args:
            skip_begin: how many of the first points not to look at.
            skip_end: how many of the last points not to look at.

        Returns:
            None when fewer than two points are left.
        """
        index = self._steepest(skip_begin, skip_end)
        return None if index is None else self.results["lr"][index]

    def _steepest(self, skip_begin: int, skip_end: int) -> int | None:
        indices = range(len(self.results["loss"]))[skip_begin : -skip_end or None]
        indices = [i for i in indices if math.isfinite(self.results["loss"][i])]
        if len(indices) < 2:
            warnings.warn(
                f"The range test has {len(indices)} usable points, and a suggestion needs two. Use more training steps, or "
                "a smaller skip_begin.",
                stacklevel=3,
            )
            return None
        losses = torch.tensor([self.results["loss"][i] for i in indices])
        rates = torch.tensor([self.results["lr"][i] for i in indices])
        return indices[int(torch.gradient(losses, spacing=[rates])[0].argmin())]

    def plot(self, suggest: bool = False, show: bool = False, ax: Any = None) -> Any:
        """Draw the loss over the learning rate with Matplotlib; returns the figure.

        Args:
            suggest: mark the suggestion.
            show: open a window.
            ax: axes to draw on, instead of a new figure.

        Raises:
            ModuleNotFoundError: Matplotlib is not installed.
        """
        if importlib.util.find_spec("matplotlib") is None:
            raise ModuleNotFoundError("LRFinder.plot draws with Matplotlib, which is not installed: pip install matplotlib.")
        plt = importlib.import_module("matplotlib.pyplot")
        ax = plt.subplots()[1] if ax is None else ax
        ax.plot(self.results["lr"], self.results["loss"])
        ax.set(xlabel="Learning rate", ylabel="Loss", xscale="log" if self.mode == "exponential" else "linear")
        index = self._steepest(10, 1) if suggest else None
        if index is not None:
            ax.plot(self.results["lr"][index], self.results["loss"][index], marker="o", markersize=10, color="red")
        if show:
            plt.show()
        return ax.figure


class LearningRateFinder(Callback):
    """Before training, run a range test: raise the learning rate step by step and watch the loss.

    The suggestion becomes the module's `lr` or `learning_rate` (attribute or hyperparameter), and `configure_optimizers` is
    called again with it. Weights, optimizers and random generators are put back. The learning rate is a variable of the
    compiled step: the whole test is one program.

    Args:
        min_lr: the first learning rate.
        max_lr: the last one.
        num_training_steps: how many steps lie between them.
        mode: "exponential" or "linear".
        early_stop_threshold: stop when the smoothed loss exceeds the best one this many times; None never stops.
        update_attr: set the attribute.
        attr_name: its name, where it is neither `lr` nor `learning_rate`.

    Raises:
        MisconfigurationException: there are several optimizers, or the attribute is not found.

    Example:
        >>> finder = LearningRateFinder(min_lr=1e-5, max_lr=1.0, num_training_steps=50)
    """

    def __init__(
        self,
        min_lr: float = 1e-8,
        max_lr: float = 1,
        num_training_steps: int = 100,
        mode: str = "exponential",
        early_stop_threshold: float | None = 4.0,
        update_attr: bool = True,
        attr_name: str = "",
    ) -> None:
        if mode not in ("exponential", "linear"):
            hint = suggest(mode, ("exponential", "linear"))
            raise ValueError(f"LearningRateFinder(mode={mode!r}): expected 'exponential' or 'linear'.{hint}")
        self._arguments = (mode, min_lr, max_lr, num_training_steps)
        self._early_stop_threshold = early_stop_threshold
        self._update_attr = update_attr
        self._attr_name = attr_name
        self.optimal_lr: LRFinder | None = None

    def on_fit_start(self, trainer: TuningTrainerLike, pl_module: LightningModule) -> None:
        """Run the test."""
        self.lr_find(trainer, pl_module)

    def lr_find(self, trainer: TuningTrainerLike, pl_module: LightningModule) -> None:
        """Run the test now; to be called between steps of `fit`, for instance in `on_train_epoch_start`."""
        if trainer.fast_dev_run:
            warnings.warn("Skipping learning rate finder since `fast_dev_run` is enabled.", stacklevel=2)
            return
        if len(trainer.optimizers) != 1:
            raise MisconfigurationException(
                "The learning rate finder only works with single optimizer. `configure_optimizers` returned "
                f"{len(trainer.optimizers)}."
            )
        name = self._name(trainer) if self._update_attr else ""
        found = LRFinder(*self._arguments)
        trainer.tuning.trial(found.num_training, [_RangeTest(found, self._early_stop_threshold)])
        self.optimal_lr = found
        rate = found.suggestion() if self._update_attr else None
        if rate is not None:
            set_everywhere(holders(trainer, name), name, rate)
            trainer.tuning.renew_optimizers(rate)
            say(f"Learning rate finder: {name} = {rate:.3g}")

    def _name(self, trainer: TuningTrainerLike) -> str:
        names = (self._attr_name,) if self._attr_name else ("lr", "learning_rate")
        for name in names:
            if holders(trainer, name):
                return name
        raise MissingAttributeError(
            f"The learning rate finder looked for {' or '.join(map(repr, names))} in the module, its hparams and the "
            f"datamodule, and found none: one of them should have one of these fields: {names}. Add the attribute, name it "
            "with `attr_name`, or set update_attr=False."
        )


class _RangeTest(Callback):
    """Sets the learning rate of each step and takes down the loss."""

    def __init__(self, found: LRFinder, threshold: float | None) -> None:
        self._found = found
        self._threshold = threshold
        self._average = self._best = 0.0

    def on_train_batch_start(self, trainer: TrainerLike, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        """Set the learning rate."""
        for group in trainer.optimizers[0].param_groups:
            group["lr"] = self._found.rate(trainer.global_step)

    def on_train_batch_end(
        self,
        trainer: AccumulatingTrainerLike,
        pl_module: LightningModule,
        outputs: Mapping[str, Any] | None,
        batch: object,
        batch_idx: int,
    ) -> None:
        """Take down the loss, smoothed as in Lightning: the bias correction counts one step more."""
        if (batch_idx + 1) % trainer.accumulate_grad_batches and not trainer.is_last_batch:
            return
        step = trainer.global_step
        self._found.results["lr"].append(trainer.optimizers[0].param_groups[0]["lr"])
        if not outputs:  # training_step returned None
            self._found.results["loss"].append(math.nan)
            return
        loss = float(outputs["loss"])  # host sync: whether to stop depends on it
        self._average = _SMOOTHING * self._average + (1 - _SMOOTHING) * loss
        smoothed = self._average / (1 - _SMOOTHING ** (step + 1))
        self._found.results["loss"].append(smoothed)
        if self._threshold is not None and step > 1 and smoothed > self._threshold * self._best:
            trainer.should_stop = True
        if step == 1 or smoothed < self._best:
            self._best = smoothed
