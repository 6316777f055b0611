"""The progress bar that the Trainer shows by default."""

import importlib.util
import math
import time
from typing import Any

from rich.console import Console

from ...core import LightningModule
from .._protocol import TrainerLike
from ._bar import Bar, format_metrics
from ._displays import Display, LineDisplay, TerminalDisplay
from ._switched import SwitchedProgressBar
from ._theme import RichProgressBarTheme
from ._ticker import Ticker
from .progress_bar import print_on

_NEVER = math.inf
_SHARE_OF_TIME = 0.02
_WATCH_EVERY_S = 0.25
_WORTH_TELLING_S = 1.0


class RichProgressBar(SwitchedProgressBar):
    """A progress bar on a terminal, and one line for each epoch where there is none.

    It never waits for the devices, is redrawn at most `refresh_rate` times a second, and takes at most 2% of the
    time: a batch for which nothing is drawn costs it about a microsecond at most.

    Args:
        refresh_rate: How often a second to redraw; 0 shows nothing.
        leave: Leave a line behind for each finished epoch.
        theme: Colours and number format.
        console_kwargs: Arguments for rich's `Console`.
    """

    def __init__(
        self,
        refresh_rate: float = 10,
        leave: bool = False,
        theme: RichProgressBarTheme = RichProgressBarTheme(),  # noqa: B008 - frozen
        console_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(refresh_rate, int | float) or refresh_rate < 0:
            raise ValueError(f"RichProgressBar(refresh_rate={refresh_rate!r}): expected 0 (shows nothing) or more.")
        self.theme = theme
        self._refresh_rate = refresh_rate
        self._leave = leave
        self._console_kwargs = console_kwargs or {}
        self._console: Console | None = None
        self._display: Display | None = None
        self._due = _NEVER
        self._is_busy = False
        self._train: Bar | None = None
        self._evaluation: Bar | None = None
        self._finished: Bar | None = None
        self._watch: Ticker | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the display, which holds a terminal."""
        return {**vars(self), **dict.fromkeys(("_console", "_display", "_train", "_evaluation", "_finished", "_watch"))}

    @property
    def refresh_rate(self) -> float:
        """How often a second the bar is redrawn."""
        return self._refresh_rate

    def disable(self) -> None:
        """Show nothing from now on."""
        super().disable()
        self._close()

    def print(self, *values: Any, sep: str | None = " ", end: str | None = "\n", **kwargs: Any) -> None:
        """Print above the bar; arguments are those of Python's `print`."""
        if kwargs.get("file") is not None or self._console is None:
            super().print(*values, sep=sep, end=end, **kwargs)
        else:
            print_on(self._console, values, sep, end)

    def setup(self, trainer: TrainerLike, pl_module: LightningModule, stage: str) -> None:
        """Find out where progress can be shown."""
        super().setup(trainer, pl_module, stage)
        if not self.is_enabled or self._display is not None:
            return
        self._console = console = Console(**self._console_kwargs)
        if _can_redraw(console, self._console_kwargs):
            self._display = TerminalDisplay(console, self.theme, 1 / self._refresh_rate, self._leave)
        else:
            self._display = LineDisplay(console)
        self._watch = Ticker(_WATCH_EVERY_S, self._look)

    def _look(self) -> None:
        """In a thread: tell what takes longer than a second; the main thread says nothing while it is at it."""
        activity, display = self.trainer.activity, self._display
        if display is None:
            return
        seconds = time.perf_counter() - activity.since if activity is not None else 0.0
        if activity is not None and seconds >= _WORTH_TELLING_S:
            display.busy(activity.text, seconds, activity.is_usual)
        else:
            display.busy("", 0.0, False)

    def teardown(self, trainer: TrainerLike, pl_module: LightningModule, stage: str) -> None:
        """Leave the terminal to others."""
        self._close()

    def on_exception(self, trainer: TrainerLike, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the terminal to the traceback."""
        self._close()

    def on_train_epoch_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Begin a bar."""
        self._tell_finished()
        self._train = self._begin(self.epoch_description(), self.total_train_batches)

    def on_step_dispatched(self, trainer: TrainerLike, pl_module: LightningModule, batch_idx: int) -> None:
        """Count, and redraw when it is time to."""
        if self._evaluation is not None:
            self._evaluation.done += 1
        elif self._train is not None:
            self._train.done = batch_idx + 1
        if time.monotonic() >= self._due and self._display is not None:
            self._tick()

    def on_train_epoch_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Show the bar full."""
        if self._train is not None:
            self._tick(final=True)
            self._finished = self._train

    def on_train_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Show the last epoch's metrics and end."""
        self._tick(final=True)
        self._tell_finished()
        self._stop()
        self._train = None

    def on_validation_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Begin a bar below that of training."""
        label = self.sanity_check_description if trainer.sanity_checking else self.validation_description
        self._begin_evaluation(label, self.total_val_batches)

    def on_validation_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Go back to the bar of training."""
        self._end_evaluation(alone=trainer.state.fn != "fit")

    def on_test_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Begin a bar."""
        self._begin_evaluation(self.test_description, self.total_test_batches)

    def on_test_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """End the bar."""
        self._end_evaluation(alone=True)

    def on_predict_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Begin a bar."""
        self._begin_evaluation(self.predict_description, self.total_predict_batches)

    def on_predict_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """End the bar."""
        self._end_evaluation(alone=True)

    def on_trace_start(self, trainer: TrainerLike, description: str) -> None:
        """Show a spinner."""
        self._busy(f"Tracing {description}")

    def on_compile_start(self, trainer: TrainerLike, description: str) -> None:
        """Show a spinner, or change what it says."""
        self._busy(f"Compiling {description}")

    def on_compile_end(
        self, trainer: TrainerLike, seconds: float, saved_seconds: float = 0.0, trace_seconds: float = 0.0
    ) -> None:
        """End the spinner."""
        if self._display is not None:
            self._display.compile_end(trace_seconds, seconds, saved_seconds)
            self._is_busy = False
            self._resume_bars()

    def _busy(self, message: str) -> None:
        if self._display is None:
            return
        if not self._is_busy:
            self._is_busy = True
            self._pause_bars()
        activity = self.trainer.activity
        self._display.compile_start(message, activity.expected if activity is not None else None)

    def _begin(self, label: str, total: float) -> Bar | None:
        if self._display is None:
            return None
        self._due = 0.0  # the first batch is shown at once, and the rate counts from it
        return Bar(label, total, time.monotonic())

    def _begin_evaluation(self, label: str, total: float) -> None:
        if self._train is not None:
            self._train.pause(time.monotonic())
        self._evaluation = self._begin(label, total)

    def _end_evaluation(self, *, alone: bool) -> None:
        bar = self._evaluation
        if bar is None or self._display is None:
            return
        self._tick(final=True)
        self._evaluation = None
        if self._train is not None:
            self._train.resume(time.monotonic())
        if alone:
            self._finished = bar
            self._tell_finished()
            self._stop()

    def _bars(self) -> list[Bar]:
        return [bar for bar in (self._train, self._evaluation) if bar is not None]

    def _pause_bars(self) -> None:
        now = time.monotonic()
        for bar in self._bars():
            bar.pause(now)

    def _resume_bars(self) -> None:
        now = time.monotonic()
        for bar in self._bars():
            bar.resume(now)

    def _tick(self, *, final: bool = False) -> None:
        """Show the current numbers, and decide when to do it again."""
        display, bars = self._display, self._bars()
        if display is None or not bars:
            return
        before = time.monotonic()
        if bars[-1] is not self._finished:  # what hooks take after its end is not the epoch's time
            bars[-1].mark(before)
        display.tick(bars, self._metrics(), final=final)
        after = time.monotonic()
        self._due = after + max(display.interval, (after - before) / _SHARE_OF_TIME)

    def _tell_finished(self) -> None:
        """Report the epoch that has ended; only now are the values that its last hooks logged there."""
        if self._finished is not None and self._display is not None:
            self._display.finish(self._finished, self._metrics())
        self._finished = None

    def _metrics(self) -> str:
        metrics = self.get_metrics(self.trainer, self._module)
        return format_metrics(metrics, self.theme.metrics_format, self.theme.metrics_text_delimiter)

    def _stop(self) -> None:
        if self._display is not None:
            self._display.stop()

    def _close(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        self._tell_finished()
        self._stop()
        self._display = self._train = self._evaluation = None
        self._is_busy = False
        self._due = _NEVER


def _can_redraw(console: Console, console_kwargs: dict[str, Any]) -> bool:
    """Whether the bar may use control characters.

    `FORCE_COLOR`, which continuous integration often sets, makes rich take a log file for a terminal; only a real
    one, a notebook that can (rich redraws there with ipywidgets), or an explicit `force_terminal` counts here.
    """
    if console.is_jupyter:
        return importlib.util.find_spec("ipywidgets") is not None
    forced = console_kwargs.get("force_terminal") or console_kwargs.get("force_interactive")
    return bool(forced) or (console.is_interactive and console.file.isatty())
