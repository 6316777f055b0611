"""The progress bar that the Trainer shows by default."""

import importlib.util
import math
import time
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import Progress as Progress
from rich.progress import ProgressColumn, Task, TaskID, TextColumn

from ...core import LightningModule
from .._protocol import TrainerLike
from ._bar import Bar
from ._columns import BatchesProcessedColumn, CustomBarColumn, CustomTimeColumn, MetricsTextColumn, ProcessingSpeedColumn
from ._displays import Display, LineDisplay, TerminalDisplay
from ._switched import SwitchedProgressBar
from ._tasks import CustomProgress
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
    time: a batch for which nothing is drawn costs it about a microsecond at most. Override `configure_columns` to show other
    columns, rich's own among them, and `get_metrics` to show other metrics; it is asked when the bar is drawn.

    Attributes:
        progress: rich's `Progress` with the bars as its tasks; None before the first run.
        train_progress_bar_id: the task that counts training, None where there is none; likewise `val_sanity_progress_bar_id`,
            `val_progress_bar_id`, `test_progress_bar_id` and `predict_progress_bar_id`.

    Args:
        refresh_rate: How often a second to redraw; 0 shows nothing.
        leave: Leave a line behind for each finished epoch.
        theme: Colours and number format.
        console_kwargs: Arguments for rich's `Console`.

    Example:
        >>> from rich.progress import TextColumn
        >>> from systolic.callbacks import RichProgressBar
        >>> class Short(RichProgressBar):
        ...     def configure_columns(self, trainer):
        ...         return [TextColumn("{task.description} {task.percentage:.0f}%")]
        >>> Short(refresh_rate=2).refresh_rate
        2
    """

    train_progress_bar_id: TaskID | None
    val_sanity_progress_bar_id: TaskID | None
    val_progress_bar_id: TaskID | None
    test_progress_bar_id: TaskID | None
    predict_progress_bar_id: TaskID | None

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
        self._evaluated: TaskID | None = None
        self._finished: Bar | None = None
        self._watch: Ticker | None = None
        self.progress: CustomProgress | None = None
        self._metric_component: MetricsTextColumn | None = None
        self._progress_stopped = False
        self._reset_progress_bar_ids()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the display, which holds a terminal."""
        gone = ("_console", "_display", "_train", "_evaluation", "_finished", "_watch", "progress", "_metric_component")
        return {**vars(self), **dict.fromkeys(gone)}

    @property
    def refresh_rate(self) -> float:
        """How often a second the bar is redrawn."""
        return self._refresh_rate

    def _task(self, name: str) -> Task:
        number = getattr(self, f"{name}_id")
        if self.progress is None or number is None:
            raise TypeError(f"{type(self).__name__}.{name} is not there before its first batch.")
        return self.progress.bar_task(number)

    @property
    def train_progress_bar(self) -> Task:
        """The epoch's bar."""
        return self._task("train_progress_bar")

    @property
    def val_sanity_check_bar(self) -> Task:
        """The bar of the sanity check."""
        return self._task("val_sanity_progress_bar")

    @property
    def val_progress_bar(self) -> Task:
        """Validation's bar."""
        return self._task("val_progress_bar")

    @property
    def test_progress_bar(self) -> Task:
        """The bar of `trainer.test`."""
        return self._task("test_progress_bar")

    def configure_columns(self, trainer: TrainerLike) -> list[str | ProgressColumn]:
        """Columns of the bars: rich's, or one's own; the metrics stand below them."""
        theme = self.theme
        return [
            TextColumn("{task.description}", style=theme.description, markup=False),
            CustomBarColumn(
                complete_style=theme.progress_bar,
                finished_style=theme.progress_bar_finished,
                pulse_style=theme.progress_bar_pulse,
            ),
            BatchesProcessedColumn(style=theme.batch_progress),
            CustomTimeColumn(style=theme.time),
            ProcessingSpeedColumn(style=theme.processing_speed),
        ]

    def refresh(self, hard: bool = False) -> None:
        """Show what was changed in `progress`: with the next batch, or now."""
        self._due = 0.0
        if hard:
            self._tick()

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
        self._init_progress(trainer)
        console = self._console
        if console is not None and _can_redraw(console, self._console_kwargs):
            self._display = TerminalDisplay(console, self._bars_as_columns, 1 / self._refresh_rate, self._leave)
        elif console is not None:
            self._display = LineDisplay(console)
        self._watch = Ticker(_WATCH_EVERY_S, self._look)

    def _init_progress(self, trainer: TrainerLike) -> None:
        """Make the bars, unless they are there already."""
        if self.is_disabled or (self.progress is not None and not self._progress_stopped):
            return
        self._reset_progress_bar_ids()
        self._console = Console(**self._console_kwargs)
        theme = self.theme
        self._metric_component = MetricsTextColumn(trainer, theme.metrics, theme.metrics_text_delimiter, theme.metrics_format)
        self.progress = CustomProgress(*self.configure_columns(trainer), self._metric_component, console=self._console)
        self._progress_stopped = False

    def _reset_progress_bar_ids(self) -> None:
        self.train_progress_bar_id = self.val_sanity_progress_bar_id = self.val_progress_bar_id = None
        self.test_progress_bar_id = self.predict_progress_bar_id = None

    def _bars_as_columns(self) -> RenderableType:
        return self.progress.get_renderable() if self.progress is not None else ""

    def _stop_progress(self) -> None:
        if self.progress is not None and not self._progress_stopped:
            self.progress.stop()
            self._progress_stopped = True

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

    def on_sanity_check_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Make the bars."""
        self._init_progress(trainer)

    def on_train_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Make the bars."""
        self._init_progress(trainer)

    def on_train_epoch_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Begin a bar."""
        self._tell_finished()
        self._begin_epoch(trainer)

    def _begin_epoch(self, trainer: TrainerLike) -> None:
        self.train_progress_bar_id, self._train = self._begin(
            self.train_progress_bar_id, self._get_train_description(trainer.current_epoch), self.total_train_batches
        )

    def _get_train_description(self, current_epoch: int) -> str:
        return self.epoch_description(current_epoch)

    def on_step_dispatched(self, trainer: TrainerLike, pl_module: LightningModule, batch_idx: int) -> None:
        """Count, and redraw when it is time to."""
        if self._evaluation is not None:
            self._update(self._evaluated, self._evaluation.done + 1)
        elif self._display is not None:
            if self._train is None:  # a run goes on in the middle of an epoch, for which no hook tells its beginning
                self._begin_epoch(trainer)
            self._update(self.train_progress_bar_id, batch_idx + 1)
            self._update_metrics(trainer, pl_module)
        if time.perf_counter() >= self._due and self._display is not None:
            self._tick()

    def _update(self, progress_bar_id: TaskID | None, current: int) -> None:
        if self.progress is not None and progress_bar_id is not None:
            self.progress.update(progress_bar_id, completed=current)

    def _update_metrics(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Ask for the metrics where they are about to be drawn."""
        if self._metric_component is not None and time.perf_counter() >= self._due:
            self._metric_component.update(self.get_metrics(trainer, pl_module))

    def on_train_epoch_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Show the bar full."""
        if self._train is not None:
            self._due = 0.0
            self._update_metrics(trainer, pl_module)
            self._tick(final=True)
            self._finished = self._train

    def on_train_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Show the last epoch's metrics and end."""
        self._take_metrics()
        self._tick(final=True)
        self._tell_finished()
        self._stop()
        self._train = None

    def on_validation_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Begin a bar below that of training."""
        if trainer.sanity_checking:
            self._begin_evaluation(trainer, "val_sanity", self.sanity_check_description)
        else:
            self._begin_evaluation(trainer, "val", self.validation_description)

    def on_validation_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Go back to the bar of training."""
        self._end_evaluation(alone=trainer.state.fn != "fit")
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._due = 0.0
            self._update_metrics(trainer, pl_module)

    def on_test_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Begin a bar."""
        self._begin_evaluation(trainer, "test", self.test_description)

    def on_test_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """End the bar."""
        self._end_evaluation(alone=True)

    def on_predict_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Begin a bar."""
        self._begin_evaluation(trainer, "predict", self.predict_description)

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

    def _begin(self, number: TaskID | None, label: str, total: float) -> tuple[TaskID | None, Bar | None]:
        """Begin a bar, again where there is one with this number."""
        if self._display is None or self.progress is None:
            return None, None
        self._due = 0.0  # the first batch is shown at once, and the rate counts from it
        if number is not None and self._leave:
            self.progress.remove_task(number)
            number = None
        if number is None:
            number = self.progress.add_task(label, total=total)
        else:
            self.progress.reset(number, description=label, total=total, visible=True)
        return number, self.progress.bar_task(number).bar

    def _begin_evaluation(self, trainer: TrainerLike, name: str, label: str) -> None:
        self._init_progress(trainer)
        if self._display is None:
            return
        if self._train is not None:
            self._train.pause(time.perf_counter())
        number = f"{name}_progress_bar_id"
        total = getattr(self, f"total_{name.removesuffix('_sanity')}_batches")
        self._evaluated, self._evaluation = self._begin(getattr(self, number), label, total)
        setattr(self, number, self._evaluated)

    def _end_evaluation(self, *, alone: bool) -> None:
        bar, number = self._evaluation, self._evaluated
        if bar is None or number is None or self._display is None or self.progress is None:
            return
        self._tick(final=True)
        self._evaluation = self._evaluated = None
        if self._train is not None:
            self._train.resume(time.perf_counter())
        if alone:
            self._finished = bar
            self._tell_finished()
            self._stop()
        else:
            self.progress.update(number, visible=False)

    def _bars(self) -> list[Bar]:
        return [bar for bar in (self._train, self._evaluation) if bar is not None]

    def _pause_bars(self) -> None:
        now = time.perf_counter()
        for bar in self._bars():
            bar.pause(now)

    def _resume_bars(self) -> None:
        now = time.perf_counter()
        for bar in self._bars():
            bar.resume(now)

    def _tick(self, *, final: bool = False) -> None:
        """Show the current numbers, and decide when to do it again."""
        display, bars = self._display, self._bars()
        if display is None or not bars:
            return
        before = time.perf_counter()
        if bars[-1] is not self._finished:  # what hooks take after its end is not the epoch's time
            bars[-1].mark(before)
        if self._evaluation is not None:
            self._take_metrics()
        display.tick(bars, self._metrics(), final=final)
        after = time.perf_counter()
        self._due = after + max(display.interval, (after - before) / _SHARE_OF_TIME)

    def _tell_finished(self) -> None:
        """Report the epoch that has ended; only now are the values that its last hooks logged there."""
        if self._finished is not None and self._display is not None:
            self._take_metrics()
            self._display.finish(self._finished, self._metrics())
        self._finished = None

    def _take_metrics(self) -> None:
        if self._metric_component is not None:
            self._metric_component.update(self.get_metrics(self.trainer, self._module))

    def _metrics(self) -> str:
        """The metrics as the column shows them."""
        column, number = self._metric_component, self.train_progress_bar_id
        if column is None or self.progress is None or not self.progress.tasks:
            return ""
        return str(column(self.progress.bar_task(number) if number is not None else self.progress.tasks[-1]))

    def _stop(self) -> None:
        if self._display is not None:
            self._display.stop()

    def _close(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        self._tell_finished()
        self._stop()
        self._stop_progress()
        self._display = self._train = self._evaluation = self._evaluated = None
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
