"""A progress bar drawn by tqdm, under the name and with the methods of Lightning's."""

from __future__ import annotations

import importlib.util
import math
import os
import sys
from typing import TYPE_CHECKING, Any

from ...core import LightningModule
from .._protocol import TrainerLike
from ._switched import SwitchedProgressBar

if TYPE_CHECKING or importlib.util.find_spec("tqdm") is not None:
    from ._tqdm import Tqdm


class TQDMProgressBar(SwitchedProgressBar):
    """Up to two bars of tqdm's: one for the epoch, and below it one for each loader of an evaluation.

    Override `init_train_tqdm` and the like to change a bar, and `get_metrics` to change what stands behind it. It shows the
    values that have arrived from the devices, and never waits for them.

    Args:
        refresh_rate: after how many batches a bar is redrawn; 0 shows nothing. `TQDM_MINITERS` raises it.
        process_position: how many pairs of lines are left free above.
        leave: whether the bar of each epoch stays.

    Raises:
        ModuleNotFoundError: tqdm is not installed.

    Example:
        >>> from systolic.callbacks import TQDMProgressBar
        >>> class Named(TQDMProgressBar):
        ...     def init_validation_tqdm(self):
        ...         bar = super().init_validation_tqdm()
        ...         bar.set_description("checking")
        ...         return bar
        >>> Named(refresh_rate=10).refresh_rate
        10
    """

    BAR_FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"

    def __init__(self, refresh_rate: int = 1, process_position: int = 0, leave: bool = False) -> None:
        super().__init__()
        if importlib.util.find_spec("tqdm") is None:
            raise ModuleNotFoundError(
                "TQDMProgressBar draws with tqdm, which is not installed: pip install tqdm. The default, RichProgressBar, needs"
                " nothing more."
            )
        self._refresh_rate = _resolved(refresh_rate)
        self._process_position = process_position
        self._leave = leave
        self._bars: dict[str, Tqdm | None] = dict.fromkeys(("train", "val", "test", "predict"))
        self._drawn: dict[str, int] = {}
        self._batches: list[int | float] = []
        self._loader = -1
        self._has_begun = self._in_epoch = False
        self._evaluated = ""
        self._label = ""

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the bars, which cannot be pickled."""
        return {**vars(self), "_bars": dict.fromkeys(self._bars)}

    def _bar(self, name: str) -> Tqdm:
        bar = self._bars[name]
        if bar is None:
            raise TypeError(f"{type(self).__name__}.{name}_progress_bar is not there before its first batch.")
        return bar

    @property
    def train_progress_bar(self) -> Tqdm:
        """The epoch's bar."""
        return self._bar("train")

    @train_progress_bar.setter
    def train_progress_bar(self, bar: Tqdm) -> None:
        self._bars["train"] = bar

    @property
    def val_progress_bar(self) -> Tqdm:
        """Validation's bar, and that of the sanity check."""
        return self._bar("val")

    @val_progress_bar.setter
    def val_progress_bar(self, bar: Tqdm) -> None:
        self._bars["val"] = bar

    @property
    def test_progress_bar(self) -> Tqdm:
        """The bar of `trainer.test`."""
        return self._bar("test")

    @test_progress_bar.setter
    def test_progress_bar(self, bar: Tqdm) -> None:
        self._bars["test"] = bar

    @property
    def predict_progress_bar(self) -> Tqdm:
        """The bar of `trainer.predict`."""
        return self._bar("predict")

    @predict_progress_bar.setter
    def predict_progress_bar(self, bar: Tqdm) -> None:
        self._bars["predict"] = bar

    @property
    def refresh_rate(self) -> int:
        """After how many batches a bar is redrawn."""
        return self._refresh_rate

    @property
    def process_position(self) -> int:
        """How many pairs of lines are left free above."""
        return self._process_position

    def init_sanity_tqdm(self) -> Tqdm:
        """Make the bar of the sanity check."""
        return self._new(self.sanity_check_description, leave=False)

    def init_train_tqdm(self) -> Tqdm:
        """Make the bar of training."""
        return self._new(self.train_description, leave=True, smoothing=0)

    def init_validation_tqdm(self) -> Tqdm:
        """Make the bar of validation: below that of training, where there is one."""
        below = self.trainer.state.fn != "validate"
        return self._new(self.validation_description, leave=not below, below=below)

    def init_test_tqdm(self) -> Tqdm:
        """Make the bar of a test."""
        return self._new(self.test_description, leave=True)

    def init_predict_tqdm(self) -> Tqdm:
        """Make the bar of a prediction."""
        return self._new(self.predict_description, leave=True, smoothing=0)

    def _new(self, description: str, *, leave: bool, below: bool = False, smoothing: float = 0.3) -> Tqdm:
        return Tqdm(
            desc=description,
            position=2 * self._process_position + below,
            disable=self.is_disabled,
            leave=leave,
            dynamic_ncols=True,
            file=sys.stdout,
            smoothing=smoothing,
            bar_format=self.BAR_FORMAT,
        )

    def on_train_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Make the bar."""
        self.train_progress_bar = self.init_train_tqdm()
        self._in_epoch = False

    def on_train_epoch_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Begin the bar again."""
        if self._leave:
            self.train_progress_bar = self.init_train_tqdm()
        self._begin_epoch(trainer)

    def _begin_epoch(self, trainer: TrainerLike, done: int = 0) -> None:
        self._begin("train", f"Epoch {trainer.current_epoch}", self.total_train_batches, done)
        self._in_epoch = True

    def on_step_dispatched(self, trainer: TrainerLike, pl_module: LightningModule, batch_idx: int) -> None:
        """Redraw the bar that moves, when it is time to."""
        if self._evaluated:
            if batch_idx == 0 and self._has_begun:
                self._next_loader()
            self._has_begun = True
            self._moved(self._evaluated, batch_idx + 1)
            return
        if self._bars["train"] is None:
            return
        if not self._in_epoch:  # of a run that goes on in the middle of one, for which no hook tells its beginning
            self._begin_epoch(trainer, batch_idx)
        if self._moved("train", batch_idx + 1):
            self.train_progress_bar.set_postfix(self.get_metrics(trainer, pl_module))

    def _moved(self, name: str, done: int) -> bool:
        """Redraw the bar if it is time to, and tell whether it was; not one that hooks of a subclass draw by themselves."""
        bar = self._bar(name)
        if bar.n not in (0, self._drawn.get(name)):
            return False
        due = self._should_update(done, bar.total)
        if due and not bar.disable:
            self._drawn[name] = bar.n = done
            bar.refresh()
        return due

    def _should_update(self, current: int, total: float | None) -> bool:
        """Whether it is time to redraw a bar.

        Args:
            current: batches that are done.
            total: batches that there are.
        """
        return self.is_enabled and (current % self._refresh_rate == 0 or current == total)

    def on_train_epoch_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Show the epoch's metrics."""
        bar = self.train_progress_bar
        if not bar.disable:
            bar.set_postfix(self.get_metrics(trainer, pl_module))
        if self._leave:
            bar.close()

    def on_train_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Close the bar."""
        self.train_progress_bar.close()

    def on_validation_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Make a bar."""
        sanity = trainer.sanity_checking
        self.val_progress_bar = self.init_sanity_tqdm() if sanity else self.init_validation_tqdm()
        label = self.sanity_check_description if sanity else self.validation_description
        self._begin_evaluation("val", label, trainer.num_sanity_val_batches if sanity else trainer.num_val_batches)

    def on_validation_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Close the bar, and show what was logged behind that of training."""
        self._end_evaluation()
        if self._bars["train"] is not None and trainer.state.fn == "fit":
            self.train_progress_bar.set_postfix(self.get_metrics(trainer, pl_module))

    def on_test_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Make a bar."""
        self.test_progress_bar = self.init_test_tqdm()
        self._begin_evaluation("test", self.test_description, trainer.num_test_batches)

    def on_test_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Close the bar."""
        self._end_evaluation()

    def on_predict_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Make a bar."""
        self.predict_progress_bar = self.init_predict_tqdm()
        self._begin_evaluation("predict", self.predict_description, trainer.num_predict_batches)

    def on_predict_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Close the bar."""
        self._end_evaluation()

    def on_exception(self, trainer: TrainerLike, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the terminal to the traceback."""
        self._evaluated = ""
        for bar in self._bars.values():
            if bar is not None:
                bar.close()

    def _begin_evaluation(self, name: str, label: str, batches: Any) -> None:
        self._evaluated, self._label, self._batches, self._loader = name, label, list(batches), -1
        self._has_begun = False
        self._next_loader()

    def _next_loader(self) -> None:
        """Begin the bar again for the next loader that gives batches."""
        following = [i for i, count in enumerate(self._batches) if i > self._loader and count]
        if following:
            self._loader = following[0]
            self._begin(self._evaluated, f"{self._label} DataLoader {self._loader}", self._batches[self._loader])

    def _begin(self, name: str, description: str, total: int | float, done: int = 0) -> None:
        bar = self._bar(name)
        bar.reset()
        self._drawn[name] = 0
        bar.total = int(total) if math.isfinite(total) else None
        bar.initial = done  # the rate is of those after it
        bar.set_description(description)

    def _end_evaluation(self) -> None:
        self._bar(self._evaluated).close()
        self._evaluated = ""

    def print(self, *values: Any, sep: str | None = " ", **kwargs: Any) -> None:
        """Print above the bars; arguments are those of Python's `print`."""
        bar = next((bar for bar in self._bars.values() if bar is not None and not bar.disable), None)
        if bar is None:
            print(*values, **({} if sep == " " else {"sep": sep}), **kwargs)  # noqa: T201 - as Lightning's does
        else:
            bar.write((" " if sep is None else sep).join(map(str, values)), **kwargs)


def _resolved(refresh_rate: int) -> int:
    if os.environ.get("COLAB_GPU") and refresh_rate == 1:
        return 20  # Colab's browser cannot keep up with more
    return max(int(os.environ.get("TQDM_MINITERS", 0)), refresh_rate)
